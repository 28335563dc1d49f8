//! The floor of an acknowledgement: a plain copy into DRAM, with the same load on the other core.
//!
//! One thread copies blocks into an array, each burst into the same places, which whoever drains
//! has read last; another follows, reads each block and writes it to a block translation table, at
//! the backoff of a thread that drains. There is no metadata and no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tidegate_measure::medium;
use tidegate_measure::subject::Block;
use tidegate_media::{BlockDevice, Durability, Lba, MappedRegion, Region};
use tidegate_policy::writeback::backoff::{Backoff, Next};

/// An array that a thread drains.
pub(super) struct DrainedArray {
    shared: Arc<Shared>,
    drainer: Option<JoinHandle<()>>,
}

struct Shared {
    array: MappedRegion,
    /// Places in use: as many as a burst has copies.
    window: u64,
    copied: AtomicU64,
    drained: AtomicU64,
    ending: AtomicBool,
}

impl DrainedArray {
    /// An array of `blocks` blocks, drained into `device`; bursts of `window` copies use that many
    /// of them.
    pub(super) fn new(blocks: u32, window: usize, device: Arc<dyn BlockDevice>) -> anyhow::Result<DrainedArray> {
        let array = medium::region(u64::from(blocks) * 4096)?;
        let counts = || AtomicU64::new(0);
        let (copied, drained, ending) = (counts(), counts(), AtomicBool::new(false));
        let shared = Arc::new(Shared { array, window: window as u64, copied, drained, ending });
        let of_thread = shared.clone();
        let drainer = thread::Builder::new().name("drain-floor".to_owned()).spawn(move || of_thread.drain(&*device))?;
        Ok(DrainedArray { shared, drainer: Some(drainer) })
    }

    /// Nanoseconds of a copy, on average over bursts that each begin when everything is drained.
    pub(super) fn bursts(&self, bursts: usize, burst: usize) -> f64 {
        let block = Block::filled(1);
        let mut spent = Duration::ZERO;
        for _ in 0..bursts {
            let first = self.shared.copied.load(Ordering::Relaxed);
            while self.shared.drained.load(Ordering::Acquire) < first {
                std::hint::spin_loop();
            }
            let begin = Instant::now();
            for place in 0..burst as u64 {
                self.shared.array.write((first + place) % self.shared.window * 4096, block.bytes());
                // Release: whoever sees the count sees the block.
                self.shared.copied.store(first + place + 1, Ordering::Release);
            }
            spent += begin.elapsed();
        }
        spent.as_nanos() as f64 / (bursts * burst) as f64
    }
}

impl Shared {
    fn drain(&self, device: &dyn BlockDevice) {
        let (mut backoff, mut block, mut at) = (Backoff::default(), Block::filled(0), 0_u64);
        while !self.ending.load(Ordering::Acquire) {
            let waiting = self.copied.load(Ordering::Acquire) - at;
            let step = waiting.min(64);
            for _ in 0..step {
                self.array.read(at % self.window * 4096, block.bytes_mut()).expect("the array reads");
                let lba = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % device.geometry().blocks;
                device.write(Lba(lba), block.bytes(), Durability::Volatile).expect("the device writes");
                at += 1;
            }
            self.drained.store(at, Ordering::Release);
            match backoff.after_step(u32::try_from(step).expect("at most 64")) {
                Next::GoOn => {}
                Next::Sleep(time) => thread::park_timeout(time),
                Next::Park => thread::park_timeout(Duration::from_micros(300)),
            }
        }
    }
}

impl Drop for DrainedArray {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        if let Some(drainer) = self.drainer.take() {
            // A thread that panicked said so.
            let _ = drainer.join();
        }
    }
}
