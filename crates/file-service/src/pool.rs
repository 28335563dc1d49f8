//! The pool of a mount: found or made, recovered, opened.

pub(crate) mod hidden;
pub(crate) mod known_contexts;
pub(crate) mod read_admission;
pub(crate) mod record;
pub(crate) mod refills;
pub(crate) mod volatile;
pub(crate) mod write_back;

use crate::lifecycle::failure::ServiceFailure;
use crate::pool::volatile::Volatile;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tidegate_access_trace::ContextBoard;
use tidegate_file_cache::{FileCache, FileIdentity, FilePool, PoolOpenError, PoolSpec, dram_bytes, format, identify};
use tidegate_host::default_paths;
use tidegate_host::owned::{self, What, accept};
use tidegate_host::threads::side_by_side;
use tidegate_host::unlocked::unlocked;
use tidegate_layout::file_cache::{LEASE_CLASS, NAMESPACE_LINES_MIN, VOLATILE_BLOCK_BYTES};
use tidegate_media::{Access, Allocation, Domain, LockedFile, MappedRegion, Region};
use tidegate_policy::placement::NamedPlacement;

/// Bytes of a pool that is made, unless asked otherwise.
pub(crate) const POOL_BYTES: u64 = 1 << 30;

/// Fewest bytes of DRAM for unsynced writes.
pub(crate) const DRAM_BYTES_MIN: u64 = 1 << 20;

const _: () = assert!(DRAM_BYTES_MIN >= LANES_MAX as u64 * VOLATILE_BLOCK_BYTES);

/// A lane for so many bytes of a pool, and not more than [`LANES_MAX`].
const LANE_BYTES: u64 = 64 << 20;
pub(crate) const LANES_MAX: u32 = 4;

/// The log of names has so many lines at most, of 64 bytes, and one in so many bytes of a pool.
const NAMESPACE_LINES_MAX: u64 = 1 << 18;
const BYTES_PER_NAMESPACE_LINE: u64 = 64 * 64;

/// A file for so many bytes of a lane: as many as there are entries, up to [`FILES_MAX`].
const BYTES_PER_FILE: u64 = 4 << 10;
const FILES_MAX: u64 = 1 << 16;

/// A pool that this process has for itself.
pub(crate) struct Pool {
    pub(crate) path: PathBuf,
    pub(crate) region: Arc<MappedRegion>,
    /// Whether this process made the file.
    pub(crate) origin: Origin,
    /// What is laid out on the region, once it was looked at: to find nothing takes a look at every
    /// byte.
    layout: OnceLock<Layout>,
}

/// Which memory a pool may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// Memory that keeps what is durable when the power fails.
    PowerFail,
    /// Any, for a trial.
    Anything,
}

/// Where a pool is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was there.
    Found,
    /// This process made its file.
    Made,
}

/// How a pool was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Nothing was ever laid out on the region.
    Blank,
    /// A pool was.
    Pool,
}

impl Pool {
    /// The pool at `path`, made now with `bytes` if it is absent, and of memory as `needed`.
    pub(crate) fn open_or_create(path: &Path, bytes: u64, needed: Needed) -> Result<Pool, ServiceFailure> {
        let is_new = !path.is_symlink() && matches!(path.try_exists(), Ok(false));
        let pool = if is_new { Pool::create(path, bytes)? } else { Pool::open(path)? };
        if needed == Needed::Anything || matches!(pool.region.domain(), Domain::PowerFail { .. }) {
            return Ok(pool);
        }
        if is_new {
            // Nobody else could use it so far. If it stays, it is an empty file.
            let _ = std::fs::remove_file(path);
        }
        Err(ServiceFailure::NotPersistent { pool: path.to_owned(), is: meaning(pool.region.domain()) })
    }

    fn create(path: &Path, bytes: u64) -> Result<Pool, ServiceFailure> {
        default_paths::make_folder_of(path)?;
        let region = MappedRegion::create(path, bytes, Allocation::Full)?;
        // A file that was just made has nothing.
        Ok(Pool { path: path.to_owned(), region: Arc::new(region), origin: Origin::Made, layout: Layout::Blank.into() })
    }

    /// The pool at `path`, which is there and this user's.
    pub(crate) fn open(path: &Path) -> Result<Pool, ServiceFailure> {
        let resolved = owned::resolved(path).map_err(ServiceFailure::of_file("open", path))?;
        let own = |file: &File| accept(file, What::Memory);
        let region = unlocked(|| MappedRegion::open_if(&resolved, Access::ReadWrite, own))?;
        Ok(Pool { path: resolved, region: Arc::new(region), origin: Origin::Found, layout: OnceLock::new() })
    }

    /// The pool at `path` that another process opened and has locked.
    pub(crate) fn of_file(path: PathBuf, file: File) -> Result<Pool, ServiceFailure> {
        let region = MappedRegion::of_file(&path, file)?;
        Ok(Pool { path, region: Arc::new(region), origin: Origin::Found, layout: Layout::Pool.into() })
    }

    /// Ends the use of the pool's memory and retains the pool for this process.
    pub(crate) fn into_locked_file(self) -> Option<LockedFile> {
        Arc::into_inner(self.region)?.into_locked_file()
    }

    /// What is laid out on the region. Anything but a pool of a mount is refused.
    pub(crate) fn layout(&self) -> Result<Layout, ServiceFailure> {
        if let Some(layout) = self.layout.get() {
            return Ok(*layout);
        }
        let found = self.find_layout()?;
        Ok(*self.layout.get_or_init(|| found))
    }

    fn find_layout(&self) -> Result<Layout, ServiceFailure> {
        match identify(&*self.region) {
            Ok(_) => Ok(Layout::Pool),
            Err(PoolOpenError::NoPool(_)) => match self.region.is_all_zero() {
                Ok(true) => Ok(Layout::Blank),
                Ok(false) => Err(ServiceFailure::NotAPool { pool: self.path.clone() }),
                Err(poison) => Err(ServiceFailure::Poisoned { pool: self.path.clone(), poison }),
            },
            Err(error) => Err(self.not_opened(error)),
        }
    }

    /// The number that the pool got when it was laid out; None: it is blank.
    pub(crate) fn id(&self) -> Result<Option<String>, ServiceFailure> {
        let is_laid_out = self.layout()? == Layout::Pool;
        is_laid_out.then(|| Ok(self.volatile()?.id())).transpose()
    }

    /// Whether the pool has nothing of any file. Opens it for that, with `dram` bytes.
    pub(crate) fn is_empty(&self, dram: u64) -> Result<bool, ServiceFailure> {
        Ok(self.layout()? == Layout::Blank || self.lanes_open(dram)?.detached().is_empty())
    }

    /// Lays out a fresh pool.
    pub(crate) fn format(self) -> Result<Pool, ServiceFailure> {
        match format(&*self.region, &spec(self.region.len())) {
            Ok(()) => Ok(Pool { layout: Layout::Pool.into(), ..self }),
            Err(error) => Err(ServiceFailure::NotFormatted { pool: self.path, error }),
        }
    }

    /// Opens every lane, as an earlier process left it. The memory of unsynced writes is made with
    /// blocks of `dram` bytes in all, unless it is there already.
    pub(crate) fn lanes_open(&self, dram: u64) -> Result<FilePool<MappedRegion>, ServiceFailure> {
        let (volatile, lanes) = (self.volatile()?, self.lanes()?);
        let bytes = dram_bytes(&*self.region, dram).map_err(|error| self.not_opened(error))?;
        let open = |lane| {
            let memory = volatile.open_or_create(lane, bytes)?;
            let lane = FileCache::open(Arc::clone(&self.region), lane, Arc::new(memory));
            lane.map_err(|error| self.not_opened(error))
        };
        // A full lane takes long to load.
        let lanes = side_by_side(lanes, open)?;
        let pool = FilePool::of_lanes(&self.region, lanes).map_err(|error| self.not_opened(error));
        pool.inspect(|pool| pool.renew_by(LEASE_CLASS, &MappedRegion::renewal(&self.region)))
    }

    /// Removes the memory of unsynced writes.
    pub(crate) fn remove_volatile(&self) -> Result<(), ServiceFailure> {
        let volatile = self.volatile()?;
        volatile.remove_gone()?;
        volatile.remove_board()?;
        (0..self.lanes()?).try_for_each(|lane| volatile.remove(lane))
    }

    /// Files that lost their last name where no log of names says so.
    pub(crate) fn gone(&self) -> Result<HashSet<FileIdentity>, ServiceFailure> {
        self.volatile()?.gone()
    }

    /// The board on which programs of the mount on `device` say their contexts.
    pub(crate) fn board(&self, device: u64, policy: NamedPlacement) -> Result<ContextBoard, ServiceFailure> {
        let opened = ContextBoard::open(self.volatile()?.path_of_board(), device, policy);
        opened.map_err(|error| ServiceFailure::System { doing: "opening the board of program contexts", error })
    }

    fn volatile(&self) -> Result<Volatile, ServiceFailure> {
        Ok(Volatile::of(identify(&*self.region).map_err(|error| self.not_opened(error))?.uuid))
    }

    fn lanes(&self) -> Result<u32, ServiceFailure> {
        Ok(identify(&*self.region).map_err(|error| self.not_opened(error))?.plan.lanes)
    }

    fn not_opened(&self, error: PoolOpenError) -> ServiceFailure {
        ServiceFailure::NotOpened { pool: self.path.clone(), error }
    }
}

/// The pool of a mount of `source`, unless another is named: named after it, in the user's state
/// folder.
pub fn default_pool(source: &Path) -> PathBuf {
    let name: String = source.to_string_lossy().chars().map(|sign| if sign == '/' { '-' } else { sign }).collect();
    // A path may be longer than a name; its end tells more than its beginning.
    let end: String = name.chars().rev().take(NAME_CHARS_MAX).collect();
    let name: String = end.chars().rev().collect();
    default_paths::default_pool().with_file_name(format!("mount{name}.pool"))
}

/// Most letters of a default pool's name, each of up to four bytes.
const NAME_CHARS_MAX: usize = 60;

/// Whether there is a pool of a mount at `path`, be it in use or not.
pub fn is_pool(path: &Path) -> bool {
    let is_laid_out = || {
        let region = MappedRegion::open(path, Access::PrivateUnlocked);
        region.is_ok_and(|region| matches!(identify(&region), Ok(_) | Err(PoolOpenError::OtherVersion { .. })))
    };
    record::path_of(path).exists() || is_laid_out()
}

/// Where what has no file any more is saved.
pub(crate) fn salvage_of(pool: &Path) -> PathBuf {
    pool.with_added_extension("salvaged")
}

/// What a fresh pool of `bytes` is like.
fn spec(bytes: u64) -> PoolSpec {
    let lanes = (bytes / LANE_BYTES).clamp(1, LANES_MAX.into());
    let files = (bytes / lanes / BYTES_PER_FILE).clamp(16, FILES_MAX);
    // Every 16th byte for the ring, of elements of 64 bytes.
    let ring_slots = (bytes / lanes / 16 / 64).clamp(64, 1 << 15);
    let ring_slots = if ring_slots.is_power_of_two() { ring_slots } else { ring_slots.next_power_of_two() / 2 };
    let namespace_lines = (bytes / BYTES_PER_NAMESPACE_LINE).clamp(NAMESPACE_LINES_MIN.into(), NAMESPACE_LINES_MAX);
    PoolSpec {
        namespace_lines: u32::try_from(namespace_lines).unwrap_or(NAMESPACE_LINES_MIN),
        lanes: u32::try_from(lanes).unwrap_or(1),
        files: u32::try_from(files).unwrap_or(16),
        ring_slots: u32::try_from(ring_slots).unwrap_or(64),
        ..PoolSpec::usual(*uuid::Uuid::new_v4().as_bytes())
    }
}

/// What memory is that is not persistent.
fn meaning(domain: Domain) -> &'static str {
    match domain {
        Domain::DiskFile => "an ordinary file, not persistent memory",
        _ => domain.meaning(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_layout::disk_cache::SUPERBLOCK_COPIES_AT;
    use tidegate_layout::file_cache::PoolSuperblock;
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn a_fresh_pool_of_any_size_can_be_opened() {
        for bytes in [8 << 20, 20 << 20, 130 << 20] {
            let region = Arc::new(MappedRegion::anonymous(bytes).expect("memory"));
            let pool = Pool { path: "pool".into(), region, origin: Origin::Found, layout: OnceLock::new() };
            assert_eq!(pool.layout().expect("readable"), Layout::Blank);
            let Pool { path, region, .. } = pool.format().expect("laid out");
            let pool = Pool { path, region, origin: Origin::Found, layout: OnceLock::new() };
            assert_eq!(pool.layout().expect("readable"), Layout::Pool);
            drop(pool.lanes_open(1 << 20).expect("opened"));
            pool.remove_volatile().expect("removed");
        }
    }

    #[test]
    fn a_pool_of_another_version_is_told_from_what_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool");
        let pool = Pool::open_or_create(&path, 8 << 20, Needed::Anything).expect("room").format().expect("laid out");
        let mut raw = PoolSuperblock::new_zeroed();
        for at in SUPERBLOCK_COPIES_AT {
            pool.region.read(at, raw.as_mut_bytes()).expect("readable");
            raw.version = 1.into();
            let checksum = crc32c::crc32c(&raw.as_bytes()[..252]);
            raw.checksum = checksum.into();
            pool.region.write(at, raw.as_bytes());
        }
        drop(pool);
        assert!(is_pool(&path));
        let pool = Pool::open(&path).expect("there is something");
        let other = PoolOpenError::OtherVersion { version: 1 };
        assert!(matches!(pool.layout(), Err(ServiceFailure::NotOpened { error, .. }) if error == other));
    }

    #[test]
    fn what_is_no_pool_is_not_touched() {
        let region = Arc::new(MappedRegion::anonymous(8 << 20).expect("memory"));
        region.store_u64(4 << 20, 1);
        let pool = Pool { path: "pool".into(), region, origin: Origin::Found, layout: OnceLock::new() };
        assert!(matches!(pool.layout(), Err(ServiceFailure::NotAPool { .. })));
    }

    #[test]
    fn a_pool_that_no_power_loss_survives_is_refused_and_not_left_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool");
        let refused = Pool::open_or_create(&path, 8 << 20, Needed::PowerFail);
        assert!(matches!(refused, Err(ServiceFailure::NotPersistent { .. })));
        assert!(!path.exists());
        Pool::open_or_create(&path, 8 << 20, Needed::Anything).expect("a trial");
    }

    #[test]
    fn default_pools_are_named_after_their_source() {
        let named =
            |path: &str| default_pool(Path::new(path)).file_name().map(|name| name.to_string_lossy().into_owned());
        assert_eq!(named("/srv/app files").as_deref(), Some("mount-srv-app files.pool"));
        let long = named(&format!("/{}", "ä/".repeat(300))).expect("a name");
        assert!(long.len() <= 255);
    }
}
