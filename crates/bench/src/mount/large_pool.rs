//! A pool with a million pages that the files below lack, as a crash leaves it: how much memory the
//! service has for each of them, and how soon it serves the first byte.
//!
//! A service lays the pool out and is killed. Then the engine itself, in this process, commits the
//! pages: no page is the neighbour of another, so each has a block and an entry of its own.

use super::Mounted;
use crate::files::testbed::missing;
use crate::served::server::pause;
use crate::target::Outcome;
use anyhow::{Context, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidegate_file_cache::{
    BackingFile, BackingStatus, Fallocate, FileIdentity, FilePool, Persistence, PoolOpenError, Refused, Sought, Stamp,
    Synced, dram_bytes, identify,
};
use tidegate_measure::medium::remove_memory_of;
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_measure::workload::Effort;
use tidegate_media::{Access, MapError, MappedRegion, Region};

/// Pages, and those of a run that only shows that the rows work.
const PAGES: u64 = 1 << 20;
const PAGES_FEW: u64 = 1 << 14;

/// Operations in a sample for which all pages are made.
const STEPS_OF_ALL: u32 = 10_000;

/// Files: so many that each of the pool's lanes has about as many.
const FILES: u64 = 128;

/// Pages of a commit.
const COMMIT_PAGES: u64 = 256;

/// Bytes of DRAM for what is not committed yet.
const DRAM_BYTES: u64 = 64 << 20;

/// How long the pool of a service that was killed may be locked.
const PATIENCE: Duration = Duration::from_secs(20);

/// Times that the first byte is waited for.
const SAMPLES_MAX: u16 = 3;

/// A mount whose pool is full of pages; it is gone when this is dropped, without a write-back.
struct LargePool {
    mounted: Mounted,
    folder: PathBuf,
    pages: u64,
    /// Bytes of memory that the service had when it began.
    empty_bytes: u64,
    /// What the memory of unsynced writes is named by.
    uuid: Option<[u8; 16]>,
}

impl LargePool {
    /// The pages are in the pool, and no service runs.
    fn new(effort: Effort) -> anyhow::Result<LargePool> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number only has to be another one each time.
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tidegate-large-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(folder.join("root"))?;
        let pages = if effort.steps < STEPS_OF_ALL { PAGES_FEW } else { PAGES };
        // Lanes differ by about a sixth in how many files they have; and there are records.
        let mib = u32::try_from((pages * BLOCK_BYTES as u64 * 2) >> 20)?;
        let mounted = Mounted::service(&folder.join("source"), &folder.join("root"), mib, None)?;
        let mut large = LargePool { mounted, folder, pages, empty_bytes: 0, uuid: None };
        large.empty_bytes = large.mounted.resident_bytes()?;
        large.begin_files()?;
        large.commit_pages()?;
        Ok(large)
    }

    fn path(&self, file: u64) -> PathBuf {
        self.folder.join("root").join(format!("file-{file}"))
    }

    /// Has the pool know the files, and kills the service before it wrote them back.
    fn begin_files(&mut self) -> anyhow::Result<()> {
        let block = Block::filled(1);
        let begin = |number| -> anyhow::Result<File> {
            let file = File::create_new(self.path(number))?;
            file.set_len(self.file_bytes())?;
            file.write_all_at(block.bytes(), 0)?;
            file.sync_data()?;
            Ok(file)
        };
        let files = (0..FILES).map(begin).collect::<anyhow::Result<Vec<_>>>()?;
        // A hole is made below at once, so that the pool has no mark of the file any more: what
        // stands in for it below has none.
        for file in &files {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, hole, self.file_bytes() - 2 * BLOCK_BYTES as u64, BLOCK_BYTES as u64)?;
        }
        self.mounted.kill()
    }

    /// Pages of a file, and as many holes.
    fn file_bytes(&self) -> u64 {
        self.pages / FILES * 2 * BLOCK_BYTES as u64 + (4 << 20)
    }

    fn commit_pages(&mut self) -> anyhow::Result<()> {
        let region = Arc::new(opened(self.mounted.pool()?)?);
        self.uuid = Some(identify(&*region)?.uuid);
        let bytes = dram_bytes(&*region, DRAM_BYTES)?;
        let mut memory = Vec::new();
        for _ in 0..identify(&*region)?.plan.lanes {
            memory.push(Arc::new(MappedRegion::anonymous(bytes)?));
        }
        let dram = |lane: u32| -> Result<Arc<dyn Region>, PoolOpenError> { Ok(memory[lane as usize].clone()) };
        let pool = FilePool::open(&region, dram)?;
        let files = pool.detached();
        ensure!(files.len() as u64 > FILES / 2, "the service wrote {} files back before it was killed", FILES);
        let each = self.pages / files.len() as u64;
        let block = page();
        for (file, known) in files {
            pool.attach(file, Arc::new(Nowhere(known.identity, self.file_bytes())))?;
            // The first sync of a file that a crash left changed goes below.
            pool.sync(file)?;
            for number in 0..each {
                pool.write(file, number * 2 * BLOCK_BYTES as u64, block.bytes(), Persistence::Asynchronous)?;
                if number % COMMIT_PAGES == COMMIT_PAGES - 1 || number + 1 == each {
                    ensure!(pool.sync(file)? == Synced::Atomically, "the pool has no room for {} pages", self.pages);
                }
            }
        }
        self.pages = pool.fill().out_of_sync / BLOCK_BYTES as u64;
        Ok(())
    }

    /// Seconds from the start of the service to the first byte that it serves.
    fn seconds_to_first_byte(&mut self) -> anyhow::Result<f64> {
        let began = Instant::now();
        self.mounted.mount_again(&self.folder.join("source"))?;
        let mut out = [0; BLOCK_BYTES];
        File::open(self.path(FILES - 1))?.read_exact_at(&mut out, 2 * BLOCK_BYTES as u64)?;
        let took = began.elapsed();
        ensure!(out == *page().bytes(), "the service serves what was not committed");
        Ok(took.as_secs_f64())
    }
}

impl Drop for LargePool {
    fn drop(&mut self) {
        // What is left stays in folders for what is temporary.
        let _ = self.mounted.kill();
        let _ = unmount(self.folder.join("root"), UnmountFlags::DETACH);
        let _ = std::fs::remove_dir_all(&self.folder);
        if let Some(uuid) = self.uuid {
            remove_memory_of(uuid, 4);
        }
    }
}

/// What every page holds.
fn page() -> Block {
    Block::filled(7)
}

/// The pool of a service that was killed, once that is gone.
fn opened(pool: &Path) -> anyhow::Result<MappedRegion> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match MappedRegion::open(pool, Access::ReadWrite) {
            Err(MapError::InUse { .. }) if Instant::now() < deadline => pause(),
            opened => return opened.context("opening the pool"),
        }
    }
}

/// A file below that nothing is written to.
struct Nowhere(FileIdentity, u64);

impl BackingFile for Nowhere {
    fn identity(&self) -> FileIdentity {
        self.0
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        Ok(BackingStatus { len: self.1, stamp: Stamp::of(1, 1), is_removed: false })
    }

    fn read(&self, _at: u64, _out: &mut [u8]) -> Result<usize, Refused> {
        Ok(0)
    }

    fn write(&self, _at: u64, _data: &[u8]) -> Result<(), Refused> {
        Ok(())
    }

    fn set_len(&self, _len: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn fallocate(&self, _at: u64, _len: u64, _how: Fallocate) -> Result<(), Refused> {
        Ok(())
    }

    fn seek(&self, _at: u64, _sought: Sought) -> Result<Option<u64>, Refused> {
        Ok(None)
    }

    fn sync(&self) -> Result<(), Refused> {
        Ok(())
    }
}

/// Bytes of memory that the service has for a page, but for the page itself.
pub(super) fn memory_per_page(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let mut large = LargePool::new(effort)?;
    large.seconds_to_first_byte()?;
    let more = large.mounted.resident_bytes()?.saturating_sub(large.empty_bytes);
    Ok(Outcome::figure(&[more as f64 / large.pages as f64], "B"))
}

/// Seconds until a service serves the first byte after a crash.
pub(super) fn first_byte(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let samples = 0..effort.pairs.min(SAMPLES_MAX);
    let seconds = samples.map(|_| LargePool::new(effort)?.seconds_to_first_byte());
    Ok(Outcome::figure(&seconds.collect::<anyhow::Result<Vec<_>>>()?, "s"))
}
