//! Acts of one core that touch no region: atomics, giving way, system calls.

use super::{each, figure};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_measure::Estimate;
use tidegate_sim::cost::Act;

const TURNS: u32 = 20_000;

pub(super) fn measure() -> Vec<(Act, Estimate)> {
    let word = AtomicU64::new(1);
    let access = || each(TURNS, |_| black_box(&word).load(Ordering::Acquire));
    let locked = || each(TURNS, |_| black_box(&word).fetch_add(1, Ordering::AcqRel));
    let yielded = || each(1000, |_| std::thread::yield_now());
    let call = || each(1000, |_| rustix::process::getppid());
    vec![
        (Act::Access, figure(access)),
        (Act::Locked, figure(locked)),
        (Act::Yield, figure(yielded)),
        (Act::SystemCall, figure(call)),
    ]
}
