//! The time of a sync beside many cached pages: what is not dirty has to cost nothing.

use crate::files::testbed::{Storage, Testbed, missing};
use crate::target::Outcome;
use anyhow::Context;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_measure::workload::Effort;
use tidegate_sim::Rng;

/// Cached pages.
const CACHED: [u64; 3] = [512, 16 << 10, 256 << 10];

/// MiB of a pool with room for all of them.
const POOL_MIB: u32 = 2048;

/// Syncs in a sample.
const SYNCS_MAX: u32 = 100;

/// A file whose pages are all cached.
struct CachedFile {
    file: File,
    pages: u64,
    random: Rng,
    _testbed: Testbed,
}

impl CachedFile {
    fn new(pages: u64) -> anyhow::Result<CachedFile> {
        let testbed = Testbed::new(Storage::Mount(POOL_MIB))?;
        let file = File::options().write(true).create_new(true).open(testbed.root().join("file"))?;
        let piece = vec![5; 64 * BLOCK_BYTES];
        for at in (0..pages * BLOCK_BYTES as u64).step_by(piece.len()) {
            file.write_all_at(&piece, at)?;
            file.sync_data()?;
        }
        // Else the most pages would be measured beside the longest write-back.
        testbed.mount().context("it is a mount")?.flush()?;
        Ok(CachedFile { file, pages, random: Rng::new(3), _testbed: testbed })
    }

    /// Nanoseconds of the median `fdatasync` of `dirty` pages; their writes are not timed.
    fn nanoseconds(&mut self, dirty: u32, syncs: u32) -> anyhow::Result<f64> {
        let block = Block::filled(9);
        let mut times = Vec::new();
        for _ in 0..syncs {
            for _ in 0..dirty {
                self.file.write_all_at(block.bytes(), self.random.below(self.pages) * BLOCK_BYTES as u64)?;
            }
            let began = Instant::now();
            self.file.sync_data()?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2].as_nanos() as f64)
    }
}

/// The longest time of a sync of `dirty` pages over the shortest, of samples in turn.
pub(super) fn compare(effort: Effort, dirty: u32) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let mut files = CACHED.iter().map(|pages| CachedFile::new(*pages)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut spreads = Vec::new();
    for _ in 0..effort.pairs {
        let syncs = effort.steps.min(SYNCS_MAX);
        let times = files.iter_mut().map(|file| file.nanoseconds(dirty, syncs)).collect::<anyhow::Result<Vec<_>>>()?;
        let (least, most) =
            times.iter().fold((f64::MAX, 0.0_f64), |(least, most), time| (least.min(*time), most.max(*time)));
        spreads.push(most / least);
    }
    Ok(Outcome::figure(&spreads, "×"))
}
