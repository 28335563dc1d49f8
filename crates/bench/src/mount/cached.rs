//! The time of a sync beside many cached pages: what is not dirty has to cost nothing.

use crate::files::testbed::{Storage, Testbed, missing};
use crate::target::Outcome;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_measure::workload::Effort;
use tidegate_sim::Rng;

/// Cached pages of the larger files: with fewer operations in a sample, they are smaller.
const CACHED: [u64; 2] = [16 << 10, 256 << 10];

/// Cached pages of the smallest file, unless more are dirty.
const CACHED_MIN: u64 = 512;

/// Operations in a sample for which a file has all of these pages.
const STEPS_OF_ALL: u64 = 20_000;

/// MiB of a pool with room for all of them.
const POOL_MIB: u32 = 2048;

/// The files, in a mount.
pub(super) const MOUNT: Storage = Storage::Mount(POOL_MIB);

/// Syncs in a sample. The disk's own file system does a tenth.
const SYNCS_MAX: u32 = 100;

/// A file whose pages are all cached.
struct CachedFile {
    file: File,
    pages: u64,
    random: Rng,
}

impl CachedFile {
    fn new(testbed: &Testbed, nth: usize, pages: u64) -> anyhow::Result<CachedFile> {
        let path = testbed.root().join(format!("file-{nth}"));
        let file = File::options().write(true).create_new(true).open(path)?;
        let piece = vec![5; 64 * BLOCK_BYTES];
        for at in (0..pages * BLOCK_BYTES as u64).step_by(piece.len()) {
            file.write_all_at(&piece, at)?;
            file.sync_data()?;
        }
        Ok(CachedFile { file, pages, random: Rng::new(3) })
    }

    /// Nanoseconds of the median `fdatasync` of `dirty` pages; their writes are not timed. The
    /// pages are spread over the file, and no two are neighbours: a run of pages is committed as
    /// one block, which takes half as long.
    fn nanoseconds(&mut self, dirty: u32, syncs: u32) -> anyhow::Result<f64> {
        let (block, part) = (Block::filled(9), self.pages / u64::from(dirty));
        let mut times = Vec::new();
        for _ in 0..syncs {
            for number in 0..u64::from(dirty) {
                let page = number * part + self.random.below(part / 2) * 2;
                self.file.write_all_at(block.bytes(), page * BLOCK_BYTES as u64)?;
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
pub(super) fn compare(effort: Effort, dirty: u32, storage: Storage) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let testbed = Testbed::new(storage)?;
    let least = CACHED_MIN.max(2 * u64::from(dirty));
    let share = |pages: u64| (pages * u64::from(effort.steps).min(STEPS_OF_ALL) / STEPS_OF_ALL).max(least);
    let pages = [least].into_iter().chain(CACHED.map(share));
    let files = pages.enumerate().map(|(nth, pages)| CachedFile::new(&testbed, nth, pages));
    let mut files = files.collect::<anyhow::Result<Vec<_>>>()?;
    // Else samples would be measured beside the write-back of all this.
    testbed.mount().map_or(Ok(()), |mount| mount.flush())?;
    let syncs = effort.steps.min(if storage == Storage::Disk { SYNCS_MAX / 10 } else { SYNCS_MAX });
    let mut spreads = Vec::new();
    for _ in 0..effort.pairs {
        let times = files.iter_mut().map(|file| file.nanoseconds(dirty, syncs)).collect::<anyhow::Result<Vec<_>>>()?;
        let (least, most) =
            times.iter().fold((f64::MAX, 0.0_f64), |(least, most), time| (least.min(*time), most.max(*time)));
        spreads.push(most / least);
    }
    Ok(Outcome::figure(&spreads, "×"))
}
