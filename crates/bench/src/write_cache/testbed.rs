//! A cache over a device with threads that drain it, as the program has them, and the ways in which
//! it is written to.

use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate_background::{DrainPool, Setup};
use tidegate_measure::cost::nanoseconds_on_core;
use tidegate_measure::medium;
use tidegate_measure::subject::Block;
use tidegate_media::{BlockDevice, Durability, Lba, MappedRegion};
use tidegate_sim::Rng;
use tidegate_write_cache::{Options, WriteCache, bytes_for};

use super::arrivals::Arrivals;

/// What the program allows for draining everything.
const DRAIN_WITHIN: Duration = Duration::from_micros(700);

/// Which number about many times is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Percentile {
    /// Their mean.
    Mean,
    /// What one in ten thousand exceeds.
    P9999,
}

/// A cache, what it stands on, and its threads.
pub(super) struct Testbed {
    /// The device below.
    pub(super) device: Arc<dyn BlockDevice>,
    /// The cache.
    pub(super) cache: Arc<WriteCache<MappedRegion>>,
    /// Its threads.
    pub(super) pool: DrainPool,
    /// Drawn so far.
    walks: AtomicU64,
}

impl Testbed {
    /// A cache of `slots` slots over `device`, whose pages are all mapped.
    pub(super) fn new(device: Arc<dyn BlockDevice>, slots: u32) -> anyhow::Result<Testbed> {
        let block_size = device.geometry().block_size;
        let region = medium::region(bytes_for(slots, block_size))?;
        let cache = Arc::new(WriteCache::create(region, device.clone(), Options::new([1; 16], slots))?);
        let pool =
            DrainPool::start(&cache, Setup { threads: 1, drain_within: DRAIN_WITHIN }).context("draining threads")?;
        let testbed = Testbed { device, cache, pool, walks: AtomicU64::new(0) };
        let block = Block::filled(0);
        (0..testbed.blocks()).try_for_each(|lba| testbed.device.write(Lba(lba), block.bytes(), Durability::Fua))?;
        Ok(testbed)
    }

    fn blocks(&self) -> u64 {
        medium::WALK_BYTES / u64::from(self.device.geometry().block_size)
    }

    /// Blocks drawn for a walk of `steps`.
    fn draw(&self, steps: usize) -> Vec<u64> {
        // Each walk has a seed of its own.
        let mut random = Rng::new(self.walks.fetch_add(1, Ordering::Relaxed));
        (0..steps).map(|_| random.below(self.blocks())).collect()
    }

    /// Nanoseconds of a write, on average over bursts that each begin with an empty cache.
    pub(super) fn bursts(&self, bursts: usize, burst: usize) -> f64 {
        let block = Block::filled(1);
        let mut spent = Duration::ZERO;
        for _ in 0..bursts {
            let walk = self.draw(burst);
            while self.cache.bytes_left() > 0 {
                std::hint::spin_loop();
            }
            let begin = Instant::now();
            walk.iter().for_each(|lba| write(&*self.cache, *lba, &block));
            spent += begin.elapsed();
        }
        spent.as_nanos() as f64 / (bursts * burst) as f64
    }

    /// Nanoseconds of a write by each of `writers`, all writes and the flush at the end counted.
    pub(super) fn sustained(&self, device: &dyn BlockDevice, writes: u32, writers: usize) -> f64 {
        let walks: Vec<Vec<u64>> = (0..writers).map(|_| self.draw(writes as usize / writers)).collect();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for walk in &walks {
                scope.spawn(|| {
                    let block = Block::filled(2);
                    walk.iter().for_each(|lba| write(device, *lba, &block));
                });
            }
        });
        device.flush().expect("the device flushes");
        begin.elapsed().as_nanos() as f64 / f64::from(writes)
    }

    /// The chosen number about the times of `writes` writes, one after the other.
    pub(super) fn latency(&self, device: &dyn BlockDevice, writes: u32, which: Percentile) -> f64 {
        let block = Block::filled(3);
        let walk = self.draw(writes as usize);
        let mut times: Vec<f64> = walk
            .iter()
            .map(|lba| {
                let begin = Instant::now();
                write(device, *lba, &block);
                begin.elapsed().as_nanos() as f64
            })
            .collect();
        device.flush().expect("the device flushes");
        match which {
            Percentile::Mean => times.iter().sum::<f64>() / times.len() as f64,
            Percentile::P9999 => {
                times.sort_by(f64::total_cmp);
                times[times.len() - 1 - times.len() / 10_000]
            }
        }
    }

    /// Writes a block that says when.
    pub(super) fn write_stamped(&self, arrivals: &Arrivals) {
        let mut block = Block::filled(4);
        block.bytes_mut()[..8].copy_from_slice(&arrivals.stamp());
        let lba = self.draw(1)[0];
        write(&*self.cache, lba, &block);
    }

    /// Milliseconds of a flush after `writes` writes.
    pub(super) fn flush_after(&self, writes: u64) -> f64 {
        let block = Block::filled(5);
        let walk = self.draw(usize::try_from(writes).expect("it fits in memory"));
        walk.iter().for_each(|lba| write(&*self.cache, *lba, &block));
        let begin = Instant::now();
        self.cache.flush().expect("the device flushes");
        begin.elapsed().as_secs_f64() * 1e3
    }
}

fn write(device: &dyn BlockDevice, lba: u64, block: &Block) {
    device.write(Lba(lba), block.bytes(), Durability::Volatile).expect("the device writes");
}

/// Waits for `due`: asleep while that is far, awake for the rest.
pub(super) fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > Duration::from_millis(2) {
        std::thread::park_timeout(left.saturating_sub(Duration::from_millis(1)));
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

/// CPU time that the process uses while nothing is asked of the cache, from the moment that its
/// threads sleep.
pub(super) fn idle_cpu_nanoseconds(pool: &DrainPool, time: Duration) -> anyhow::Result<u64> {
    while !pool.is_asleep() {
        std::thread::yield_now();
    }
    let before = threads_cpu()?;
    std::thread::park_timeout(time);
    Ok(threads_cpu()? - before)
}

/// CPU time of the threads that drain, in nanoseconds, as the kernel counts it.
fn threads_cpu() -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").context("the list of threads")? {
        let task = task?.path();
        // A thread may end meanwhile.
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        let times = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        if name.starts_with("drain-") {
            sum += nanoseconds_on_core(&times).unwrap_or(0);
        }
    }
    Ok(sum)
}
