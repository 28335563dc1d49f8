//! The write cache of a served volume: whether it is worth having, where its slots lie, the
//! threads that drain it, and what a killed server left in it.
//!
//! The slots lie in a file in memory, named after the volume and the file it lies in (a copy of a
//! volume is another one), that exists while a server uses it. A server that finds one when it
//! opens the volume completes it first, with or without a cache of its own. Whose file that may be:
//! `files`.

mod files;

use crate::failure::{Doing, Failure, VolumeFailure, WriteCacheFailure};
use crate::stats::registry::MetricSource;
use crate::volume::orphans;
use files::{CacheFiles, remove};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_background::{DrainPool, Setup};
use tidegate_btt::Btt;
use tidegate_host::progress::Drain;
use tidegate_host::units::Human;
use tidegate_host::unlocked::unlocked;
use tidegate_media::{BlockDevice, MapError, MappedRegion, Region};
use tidegate_volume_region::xattrs::Xattr;
use tidegate_write_cache::{CreateError, Options, WriteCache, bytes_for, complete};
use uuid::Uuid;

/// The cache's memory unless told otherwise. Little of it is used at once: what a flush finds is to
/// be drained within [`DRAIN_WITHIN`].
const BYTES: u64 = 16 << 20;

/// What waits in the cache is to be drained in this time.
const DRAIN_WITHIN: Duration = Duration::from_micros(700);

/// Threads that drain; more than two help only where many cores are idle.
const THREADS_MAX: usize = 4;

/// What a write has to gain by a cache. Draining costs another core two copies and its visits to
/// the queues; a gain below that is one only as long as that core has nothing else to do.
const GAIN_MIN: Duration = Duration::from_micros(1);

/// What to do about a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCacheSize {
    /// Have one if the memory is slower than DRAM by as much as a cache costs, and another core can
    /// drain it.
    #[default]
    Auto,
    /// Have none.
    Off,
    /// Have one of so many bytes.
    Bytes(u64),
}

/// What 4 KiB cost, measured when the volume was opened.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A streamed write of one block to the region, with its fence.
    pub region: Duration,
    /// A copy of one block into DRAM that no cache of the processor holds.
    pub dram: Duration,
}

impl Costs {
    /// Measures both; nothing a user sees changes.
    pub fn measure<R: Region>(engine: &Btt<R>) -> Option<Costs> {
        const COPIES: u64 = 4096;
        let size = u64::from(engine.geometry().block_size);
        let block = vec![0x5a; usize::try_from(size).ok()?];
        let dram = MappedRegion::anonymous(COPIES * size).ok()?;
        let copy = || (0..COPIES).for_each(|slot| dram.write(slot * size, &block));
        // The first time maps the pages.
        copy();
        let lanes = engine.rehearse(&block).ok()?.max(1);
        let region = least(|| drop(engine.rehearse(&block)));
        Some(Costs { region: region / lanes, dram: least(copy) / u32::try_from(COPIES).ok()? })
    }

    /// Why a server that may use so many cores is better off without a cache, if it is.
    fn against_a_cache(self, cores: usize) -> Option<String> {
        let Costs { region, dram } = self;
        if region < dram + GAIN_MIN {
            return Some(format!("a streamed write here takes {region:.2?}, a copy into DRAM {dram:.2?}"));
        }
        (cores < 2).then(|| "there is one core, and draining takes another".to_owned())
    }
}

/// Nanoseconds since the first call.
fn now_ns() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(FIRST.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The least of the times that `work` takes: the one in which the thread was not interrupted.
fn least(work: impl Fn()) -> Duration {
    let times = (0..5).map(|_| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    });
    times.min().expect("five times")
}

/// A cache in use.
pub struct ActiveWriteCache {
    cache: Arc<WriteCache<MappedRegion>>,
    /// Until it is finished or closed.
    pool: Mutex<Option<DrainPool>>,
    file: PathBuf,
}

/// A volume: what its cache's file is named after.
#[derive(Clone, Copy, Debug)]
pub struct VolumeIdentity<'a> {
    /// The region file.
    pub pmem: &'a Path,
    /// The volume in it.
    pub uuid: Uuid,
}

/// Completes what a killed server left for the volume, and returns how many blocks that were.
pub(crate) fn complete_leftover(volume: VolumeIdentity, device: &dyn BlockDevice) -> Result<u64, Failure> {
    let files = CacheFiles::of(volume)?;
    let mut left = Vec::new();
    for file in files.left()? {
        match unlocked(|| files.open(&file)) {
            Ok(region) => left.push((file, region)),
            Err(MapError::NotFound { .. }) => {}
            // Its server was killed before the file had any bytes: no block ever went into it.
            Err(MapError::Empty { .. }) => remove(&file)?,
            Err(error) => return Err(VolumeFailure::of_map(Doing::Write, error).into()),
        }
    }
    let not_completed = |cache: &Path, why| WriteCacheFailure::NotCompleted {
        path: volume.pmem.to_owned(),
        cache: cache.to_owned(),
        why,
    };
    match &left[..] {
        [] => Ok(0),
        [(file, region)] => {
            let completed = complete(region, volume.uuid.into_bytes(), device);
            let blocks = completed.map_err(|error| not_completed(file, error.to_string()))?;
            remove(file)?;
            Ok(blocks)
        }
        [(file, _), (other, _), ..] => {
            let why =
                format!("{} may have others of the same blocks, and nothing tells which are newer", other.display());
            Err(not_completed(file, why).into())
        }
    }
}

/// Why a volume is only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadsOnly {
    /// It was asked for.
    AsAsked,
    /// The volume is damaged, and a write could destroy more.
    Damaged,
}

/// Refuses to show a volume without the blocks that a killed server left in its cache. A file
/// without bytes has none, and stays: one who only reads need not be able to remove it.
pub(crate) fn refuse_leftover(volume: VolumeIdentity, reads_only: ReadsOnly) -> Result<(), Failure> {
    let left = CacheFiles::of(volume)?.left()?;
    match left.into_iter().find(|cache| fs::symlink_metadata(cache).is_ok_and(|left| left.len() > 0)) {
        None => Ok(()),
        Some(cache) => {
            let path = volume.pmem.to_owned();
            Err(match reads_only {
                ReadsOnly::AsAsked => WriteCacheFailure::ReadOnly { path, cache }.into(),
                ReadsOnly::Damaged => WriteCacheFailure::Damaged { path, cache }.into(),
            })
        }
    }
}

/// Why a cache's file could not be made.
fn no_cache(volume: VolumeIdentity, file: &Path, error: MapError) -> Failure {
    let (path, cache) = (volume.pmem.to_owned(), file.to_owned());
    match error {
        MapError::NoSpace { len: bytes, .. } | MapError::TooLarge { len: bytes, .. } => {
            WriteCacheFailure::NoRoom { path, cache, bytes }.into()
        }
        error => VolumeFailure::of_map(Doing::Create, error).into(),
    }
}

impl Drain for ActiveWriteCache {
    fn bytes_left(&self) -> u64 {
        self.cache.bytes_left()
    }

    fn finish(&self, progress: &mut dyn FnMut(u64)) -> tidegate_media::Result<()> {
        match self.take_pool() {
            Some(pool) => pool.finish(&self.cache, progress).flushed,
            None => self.cache.flush(),
        }
    }

    fn kept_in(&self) -> &Path {
        &self.file
    }

    fn close(&self) -> io::Result<()> {
        drop(self.take_pool());
        fs::remove_file(&self.file)
    }
}

impl ActiveWriteCache {
    /// Puts a cache in front of `device`, the volume's blocks, if `size` and `costs` say so.
    /// Otherwise, a sentence on why there is none.
    pub fn start(
        size: WriteCacheSize,
        costs: Option<Costs>,
        volume: VolumeIdentity,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Result<ActiveWriteCache, String>, Failure> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let against =
            costs.map_or(Some("the region is no slower than DRAM".to_owned()), |costs| costs.against_a_cache(cores));
        let bytes = match (size, against) {
            (WriteCacheSize::Off, _) => return Ok(Err("off".to_owned())),
            (WriteCacheSize::Bytes(bytes), _) => bytes,
            (WriteCacheSize::Auto, None) => BYTES,
            (WriteCacheSize::Auto, Some(why)) => return Ok(Err(format!("off: {why}"))),
        };
        let block_size = device.geometry().block_size;
        let slots = u32::try_from(bytes / u64::from(block_size)).unwrap_or(u32::MAX - 1).max(1);
        let (file, region) = match CacheFiles::of(volume)?.create(bytes_for(slots, block_size)) {
            Ok(made) => made,
            Err((_, MapError::NoSpace { .. })) if size == WriteCacheSize::Auto => {
                return Ok(Err(format!("off: {} has no room for it", orphans::folder().display())));
            }
            Err((file, error)) => return Err(no_cache(volume, &file, error)),
        };
        region.file().into_iter().for_each(|file| Xattr::Volume.write(file, volume.pmem));
        let options = Options::new(volume.uuid.into_bytes(), slots);
        let refused = |error: CreateError| VolumeFailure::NotDurable { path: file.clone(), why: error.to_string() };
        let cache = Arc::new(WriteCache::create(region, device, options).map_err(refused)?);
        let threads = (cores / 2).clamp(1, THREADS_MAX);
        cache.set_clock(now_ns);
        let pool = DrainPool::start(&cache, Setup { threads, drain_within: DRAIN_WITHIN });
        let pool = pool.map_err(Failure::system("starting the threads that drain the cache"))?;
        Ok(Ok(ActiveWriteCache { cache, pool: Mutex::new(Some(pool)), file }))
    }

    /// The threads that drain it, until somebody takes them.
    fn take_pool(&self) -> Option<DrainPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The volume behind the cache.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.cache) as Arc<dyn BlockDevice>
    }

    /// The cache as one who shows its numbers sees it.
    pub fn watched(&self) -> Arc<dyn MetricSource> {
        Arc::clone(&self.cache) as Arc<dyn MetricSource>
    }

    /// A line about it.
    pub fn describe(&self) -> String {
        let size = u64::from(self.cache.slots()) * u64::from(self.cache.geometry().block_size);
        format!("{} in {}, drained at once", Human(size), self.file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_has_to_gain_more_than_it_costs() {
        let costs = |region, dram| Costs { region: Duration::from_nanos(region), dram: Duration::from_nanos(dram) };
        assert_eq!(costs(2500, 500).against_a_cache(2), None);
        let twice_the_time = costs(900, 450).against_a_cache(2).unwrap();
        assert!(twice_the_time.contains("900.00ns") && twice_the_time.contains("450.00ns"), "{twice_the_time}");
        assert!(costs(2500, 500).against_a_cache(1).unwrap().contains("one core"));
    }
}
