//! What a write through shared memory cannot do without: a signal each way, and the write.

use super::drivers::WARMING;
use super::{drivers, writes};
use crate::target::Outcome;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::medium::{self, WALK_BYTES};
use tidegate_measure::subject::{BLOCK_BYTES, Block, BlockWrites, sweep};
use tidegate_measure::workload::{Effort, stay_on};
use tidegate_media::{BlockDevice, Durability, Lba};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Nanoseconds of a write by vhost-user-blk over those of two signals between threads of one
/// process, on one core, and the write of the volume.
pub(super) fn compare(effort: Effort) -> anyhow::Result<Outcome> {
    let (_server, mut rate) = drivers::vhost_together()?;
    let btt = medium::btt()?;
    sweep(&BlockWrites(&btt));
    // Each block is there before it is measured, as below.
    rate(WARMING)?;
    let count = writes(effort);
    let pairs = Pairs::try_alternate(effort.pairs, || Ok(1e9 / rate(count)?), || bare(&btt, count))?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

/// A descriptor that is signalled, and the means to sleep until it is.
struct Signal {
    eventfd: EventFd,
    waiting: Epoll,
}

impl Signal {
    fn new() -> anyhow::Result<Signal> {
        let (eventfd, waiting) = (EventFd::new(EFD_NONBLOCK)?, Epoll::new()?);
        let edge = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, 0);
        waiting.ctl(ControlOperation::Add, eventfd.as_raw_fd(), edge)?;
        Ok(Signal { eventfd, waiting })
    }

    fn give(&self) -> anyhow::Result<()> {
        Ok(self.eventfd.write(1)?)
    }

    fn await_it(&self) -> anyhow::Result<()> {
        self.waiting.wait(-1, &mut [EpollEvent::default()])?;
        Ok(())
    }
}

/// Nanoseconds of one round: a thread is signalled, writes a block, and signals back.
fn bare(device: &(impl BlockDevice + ?Sized), count: u64) -> anyhow::Result<f64> {
    let (there, back, is_over) = (Signal::new()?, Signal::new()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> anyhow::Result<()> {
            stay_on(0);
            let (block, blocks) = (Block::filled(0), WALK_BYTES / BLOCK_BYTES as u64);
            let mut at = count | 1;
            loop {
                there.await_it()?;
                if is_over.load(Ordering::Acquire) {
                    return Ok(());
                }
                at = at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                device.write(Lba((at >> 20) % blocks), block.bytes(), Durability::Volatile)?;
                back.give()?;
            }
        });
        let signaller = scope.spawn(|| -> anyhow::Result<f64> {
            stay_on(0);
            let began = Instant::now();
            for _ in 0..count {
                there.give()?;
                back.await_it()?;
            }
            let took = began.elapsed();
            is_over.store(true, Ordering::Release);
            there.give()?;
            Ok(took.as_secs_f64() * 1e9 / count as f64)
        });
        let figure = signaller.join().expect("no panic");
        writer.join().expect("no panic")?;
        figure
    })
}
