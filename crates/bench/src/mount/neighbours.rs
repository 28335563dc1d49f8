//! A program that syncs a page now and then, beside others that write and sync all the time.

use super::calls::{Act, Client};
use crate::files::testbed::{Storage, Testbed, missing};
use crate::target::Outcome;
use anyhow::Context;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::testbed::pause;
use tidegate_measure::workload::Effort;

/// Syncs in a sample, at most.
const SYNCS_MAX: u32 = 1000;
/// Blocks of the modest program's file.
const BLOCKS: u64 = 1024;

/// What a greedy program writes at a time, before it syncs, and how long its file is.
const WRITE_BYTES: usize = 1 << 20;
const FILE_BYTES: u64 = 64 << 20;

/// The programs, each with a file of its own.
struct Neighbours {
    modest: Client,
    greedy: Vec<File>,
    syncs: u32,
    testbed: Testbed,
}

impl Neighbours {
    fn new(effort: Effort, storage: Storage, greedy: usize) -> anyhow::Result<Neighbours> {
        let testbed = Testbed::new(storage)?;
        let modest = Client::new(Act::WriteAndSync, &testbed.root(), greedy, BLOCKS)?;
        let path = |number: usize| testbed.root().join(format!("file-{number}"));
        let greedy = (0..greedy).map(|number| File::create_new(path(number))).collect::<Result<_, _>>()?;
        Ok(Neighbours { modest, greedy, syncs: effort.steps.min(SYNCS_MAX), testbed })
    }

    /// Nanoseconds of the modest program alone, when nothing waits for the disk any more.
    fn alone(&mut self) -> anyhow::Result<f64> {
        match self.testbed.mount().filter(|mount| mount.pool().is_ok()) {
            Some(mount) => mount.flush()?,
            None => rustix::fs::syncfs(File::open(self.testbed.root())?)?,
        }
        self.p99()
    }

    /// Nanoseconds that the slowest of a hundred writes and syncs of the modest program takes.
    fn p99(&mut self) -> anyhow::Result<f64> {
        let mut times = Vec::new();
        for _ in 0..self.syncs {
            pause();
            let began = Instant::now();
            self.modest.call()?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        Ok(times.get(times.len() * 99 / 100).context("no syncs")?.as_nanos() as f64)
    }

    /// That time of the modest program while the greedy ones write, each of which wrote all of its
    /// file before.
    fn beside(&mut self) -> anyhow::Result<f64> {
        let files: Vec<_> = self.greedy.iter().map(File::try_clone).collect::<Result<_, _>>()?;
        let (written, ends) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let write = |file| write_until(file, &written, &ends);
            let started: Vec<_> = files.iter().map(|file| scope.spawn(move || write(file))).collect();
            let enough = files.len() as u64 * FILE_BYTES;
            // Relaxed: see below. A writer that failed writes no more, and is asked why below.
            while written.load(Ordering::Relaxed) < enough && !started.iter().any(|writer| writer.is_finished()) {
                pause();
            }
            let measured = self.p99();
            // Relaxed: nothing else is told by it.
            ends.store(true, Ordering::Relaxed);
            for writer in started {
                writer.join().expect("a writer reports what goes wrong")?;
            }
            measured
        })
    }
}

fn write_until(file: &File, written: &AtomicU64, ends: &AtomicBool) -> std::io::Result<()> {
    let data = vec![7; WRITE_BYTES];
    for at in (0..FILE_BYTES).step_by(WRITE_BYTES).cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        file.write_all_at(&data, at)?;
        file.sync_data()?;
        written.fetch_add(WRITE_BYTES as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// The 99th percentile of the modest program's syncs beside so many greedy programs over that
/// alone.
pub(super) fn p99_over_alone(effort: Effort, storage: Storage, greedy: usize) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let neighbours = std::cell::RefCell::new(Neighbours::new(effort, storage, greedy)?);
    let pairs =
        Pairs::try_alternate(effort.pairs, || neighbours.borrow_mut().beside(), || neighbours.borrow_mut().alone())?;
    Ok(Outcome::ratio(&pairs, "ns"))
}
