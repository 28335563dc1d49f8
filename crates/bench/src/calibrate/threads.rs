//! Acts between two threads: handing a line over, waking, and taking turns on one core.

use super::{each, figure};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tidegate_measure::Estimate;
use tidegate_measure::workload::{cores, stay_on};
use tidegate_sim::cost::Act;

const TURNS: u32 = 2000;
const STOP: u32 = u32::MAX;

/// Needs two cores: on one, nothing is handed over.
pub(super) fn measure() -> anyhow::Result<Vec<(Act, Estimate)>> {
    anyhow::ensure!(cores().len() >= 2, "calibration needs two cores, and this process may use {}", cores().len());
    Ok(vec![(Act::HandOff, handed_over()), (Act::WakeUp, woken()), (Act::Switch, switched())])
}

/// A number that two threads raise in turn.
#[repr(align(128))]
struct Turn(AtomicU32);

impl Turn {
    /// Waits until it is `value`; false if it is [`STOP`].
    fn wait_for(&self, value: u32, mut meanwhile: impl FnMut()) -> bool {
        loop {
            match self.0.load(Ordering::Acquire) {
                STOP => return false,
                now if now == value => return true,
                _ => meanwhile(),
            }
        }
    }
}

/// Runs `own` on this core and `other` on the n-th, the number between them.
fn against(core: usize, other: impl Fn(&Turn) + Sync, own: impl FnOnce(&Turn, &Thread) -> Estimate) -> Estimate {
    let turn = Turn(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            stay_on(core);
            other(&turn);
        });
        let estimate = own(&turn, peer.thread());
        turn.0.store(STOP, Ordering::Release);
        peer.thread().unpark();
        estimate
    })
}

/// Answers every 1 with a 2.
fn answer(turn: &Turn, meanwhile: impl Fn()) {
    while turn.wait_for(1, &meanwhile) {
        let _ = turn.0.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn handed_over() -> Estimate {
    let spin = std::hint::spin_loop;
    against(
        1,
        |turn| answer(turn, spin),
        |turn, _| {
            figure(|| {
                each(TURNS, |_| {
                    turn.0.store(1, Ordering::Release);
                    turn.wait_for(2, spin);
                }) / 2.0
            })
        },
    )
}

/// From an unparking to the other's answer, whose way back is short beside it.
fn woken() -> Estimate {
    const WAKE_UPS: u32 = 50;
    /// Enough for it to have gone to sleep: a thread that is awake is not woken.
    const YIELDS: u32 = 200;
    against(
        1,
        |turn| answer(turn, std::thread::park),
        |turn, peer| {
            figure(|| {
                let mut spent = Duration::ZERO;
                for _ in 0..WAKE_UPS {
                    each(YIELDS, |_| std::thread::yield_now());
                    let begin = Instant::now();
                    turn.0.store(1, Ordering::Release);
                    peer.unpark();
                    turn.wait_for(2, std::hint::spin_loop);
                    spent += begin.elapsed();
                }
                spent.as_nanos() as f64 / f64::from(WAKE_UPS)
            })
        },
    )
}

fn switched() -> Estimate {
    against(
        0,
        |turn| answer(turn, std::thread::yield_now),
        |turn, _| {
            figure(|| {
                each(TURNS, |_| {
                    turn.0.store(1, Ordering::Release);
                    turn.wait_for(2, std::thread::yield_now);
                }) / 2.0
            })
        },
    )
}
