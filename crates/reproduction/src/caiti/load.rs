//! Closed-loop writers, as fio's jobs are, and the time of each of their requests.
//!
//! A request first takes what the system call, the file system and the block layer take
//! ([`crate::kernel`]): the writer spins for so long, as a core does that runs them. Writers of a
//! file of Ext4-DAX pass no block layer.
//!
//! Blocks are drawn before the clock starts, and a request's time goes into memory that was touched
//! before: recording costs two looks at the clock, some 50 ns, in each request alike. Beside the
//! writers runs what Ext4 would send: a flush every five seconds that no writer waits for.

use crate::kernel::past_the_block_layer;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_media::{BlockDevice, Durability, Lba, Result};
use tidegate_sim::Rng;

/// How often a journaling file system commits.
const COMMIT_EVERY: Duration = Duration::from_secs(5);

/// Caiti's time per request (Table 1, 512 MiB).
pub(crate) const CAITI_NS: f64 = 4410.0;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of seconds at most")]
pub(crate) fn whole(ns: f64) -> u64 {
    ns.round() as u64
}

/// What is asked of a device.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Writers at once.
    pub jobs: u32,
    /// Requests before those that are measured, of all jobs: enough to fill a cache.
    pub warm: u32,
    /// Requests that are measured, of all jobs: writes of 4 KiB, at random over the blocks.
    pub requests: u32,
    /// Blocks written to, from the first on.
    pub blocks: u64,
    /// A flush after so many writes of a job.
    pub flush_every: Option<u32>,
    /// Where the sequence of blocks begins.
    pub seed: u64,
    /// What the software above takes of each request, in nanoseconds.
    pub path_ns: u64,
}

impl Load {
    /// This load on a file of Ext4-DAX.
    #[must_use]
    pub fn past_the_block_layer(self) -> Load {
        Load { path_ns: past_the_block_layer(self.path_ns), ..self }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Times {
    /// From the first request to the last.
    pub total: Duration,
    /// Nanoseconds of each write, job after job.
    pub writes: Vec<u32>,
    /// Nanoseconds of each flush.
    pub flushes: Vec<u64>,
}

impl Times {
    /// Nanoseconds for each request: all the time over all the requests, as fio's mean over a whole
    /// run.
    pub fn per_request(&self) -> f64 {
        self.total.as_nanos() as f64 / self.writes.len() as f64
    }

    /// The write time that one in `one_in` exceeds.
    pub fn exceeded_by_one_in(&self, one_in: usize) -> f64 {
        let mut sorted = self.writes.clone();
        sorted.sort_unstable();
        f64::from(sorted[sorted.len() - 1 - (sorted.len() - 1) / one_in])
    }
}

/// Puts `load` on `device`. The final flush is not counted.
pub fn run(device: &dyn BlockDevice, load: &Load) -> Result<Times> {
    let walks: Vec<Vec<u64>> = (0..load.jobs).map(|job| walk(load, job)).collect();
    let done = AtomicBool::new(false);
    let warm = (load.warm / load.jobs) as usize;
    let all_warm = Barrier::new(walks.len());
    let job = |walk: &[u64]| {
        let (before, measured) = walk.split_at(warm);
        let warmed = write_all(device, before, load.path_ns, None);
        all_warm.wait();
        // The jobs' own clocks: on a busy machine the thread that waits for them may be late.
        let begin = Instant::now();
        let times = warmed.and_then(|_| write_all(device, measured, load.path_ns, load.flush_every));
        (begin, Instant::now(), times)
    };
    let times = std::thread::scope(|scope| -> Result<Times> {
        let committer = scope.spawn(|| commit_now_and_then(device, &done));
        let jobs: Vec<_> = walks.iter().map(|walk| scope.spawn(|| job(walk))).collect();
        let ended: Vec<_> = jobs.into_iter().map(|job| job.join().expect("a job does not panic")).collect();
        done.store(true, Ordering::Release);
        committer.thread().unpark();
        let first = ended.iter().map(|(begin, ..)| *begin).min();
        let last = ended.iter().map(|(_, end, _)| *end).max();
        let total = last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first);
        let mut all = Times { total, writes: Vec::new(), flushes: Vec::new() };
        for (.., times) in ended {
            let times = times?;
            all.writes.extend(times.writes);
            all.flushes.extend(times.flushes);
        }
        Ok(all)
    })?;
    device.flush()?;
    Ok(times)
}

fn walk(load: &Load, job: u32) -> Vec<u64> {
    let mut random = Rng::new(load.seed.wrapping_add(u64::from(job) << 32));
    (0..(load.warm + load.requests) / load.jobs).map(|_| random.below(load.blocks)).collect()
}

fn write_all(device: &dyn BlockDevice, walk: &[u64], path_ns: u64, flush_every: Option<u32>) -> Result<Times> {
    let block = vec![0x5a_u8; device.geometry().block_size as usize];
    let mut times = Times { total: Duration::ZERO, writes: vec![0; walk.len()], flushes: Vec::new() };
    let path = Duration::from_nanos(path_ns);
    for (nth, (lba, time)) in (1_u32..).zip(walk.iter().zip(&mut times.writes)) {
        let begin = Instant::now();
        while begin.elapsed() < path {
            std::hint::spin_loop();
        }
        device.write(Lba(*lba), &block, Durability::Volatile)?;
        *time = u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX);
        if flush_every.is_some_and(|every| nth.is_multiple_of(every)) {
            let begin = Instant::now();
            device.flush()?;
            times.flushes.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    Ok(times)
}

fn commit_now_and_then(device: &dyn BlockDevice, done: &AtomicBool) {
    let mut last = Instant::now();
    while !done.load(Ordering::Acquire) {
        std::thread::park_timeout(COMMIT_EVERY.saturating_sub(last.elapsed()));
        if last.elapsed() >= COMMIT_EVERY {
            last = Instant::now();
            if device.flush().is_err() {
                // The writers meet the same device and report it.
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::kernel::path_ns;
    use tidegate_baselines::raw::RawPmem;
    use tidegate_media::MappedRegion;

    #[test]
    fn every_request_is_made_and_timed() {
        let region = MappedRegion::anonymous(64 * 4096).unwrap();
        let device = RawPmem::new(region, 4096).unwrap();
        let load = Load {
            jobs: 2,
            warm: 100,
            requests: 4000,
            blocks: 64,
            flush_every: Some(100),
            seed: 9,
            path_ns: path_ns(),
        };
        let times = run(&device, &load).unwrap();
        assert_eq!((times.writes.len(), times.flushes.len()), (4000, 40));
        assert!(times.writes.iter().all(|time| u64::from(*time) > path_ns()), "each passes the software first");
        assert!(times.total > Duration::from_nanos(2000 * path_ns()), "each job makes its own one after the other");
        let mut block = [0; 4096];
        assert!(
            (0..64).all(|lba| device.read(Lba(lba), &mut block).is_ok() && block == [0x5a; 4096]),
            "all blocks hit"
        );
    }

    #[test]
    fn percentiles_are_read_off_the_sorted_times() {
        let times = Times { total: Duration::from_micros(10), writes: (1..=1000).rev().collect(), flushes: vec![] };
        assert_eq!((times.exceeded_by_one_in(1000), times.exceeded_by_one_in(10)), (1000.0, 901.0));
        assert_eq!(times.per_request(), 10.0);
    }
}
