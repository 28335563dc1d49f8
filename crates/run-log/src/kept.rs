//! What is kept in persistent memory: a transactional cache, of a disk that is made of files.
//!
//! Block `b` of *slot* `s` of that disk is block `b` of the file that the slot stands for. A sync
//! is one transaction of all blocks that were written, and of the file's size if it is another. The
//! kernel's page cache has at least what is kept, so destaging writes nothing: it has the kernel
//! bring the files to their disks. When what is kept of a file counts no longer, its slot is made
//! *void*: one bit, durable on return, in a map behind the cache. Slots come in families of
//! [`FAMILY_SLOTS`], so that a file that goes on being held has another one at once.
//!
//! The program that holds a file may commit to a *strip* by itself, until that is full. What it is
//! about is committed here then, and the same transaction says in the block with the file's size
//! that this filling of the strip is *absorbed*. Before that block can leave the cache, the strip's
//! head says that nothing counts.
//!
//! A file has a pair of strips: its program hands a full filling over and goes on with the next
//! one, on the other strip, while the older one is absorbed (`wal/pair.rs`). Step by step:
//!
//! 1. The blocks are read from the file, at least as new as the filling. What is newer in them is
//!    on the other strip too, whose records go over them at recovery, or was not synced yet. *Cut
//!    here*: the records of both fillings count, the older ones first.
//! 2. One transaction has the blocks, the size and the filling's number. *Cut behind it*: the
//!    blocks count, and the newer filling's records over them; the older filling's do not, whatever
//!    its head says.
//! 3. The head of the strip that has this filling, and of no other, says durably that nothing
//!    counts. *Cut before it*: as behind step 2, since the block that tells so has not left the
//!    cache.
//! 4. The program is answered. Not before has it filled that strip again.
//!
//! Fillings are absorbed in their order, each before anything else of the file is kept: the number
//! of the last one says of all before it too that they count no more. If one cannot be absorbed,
//! both stay as they are and nothing more is kept of the file, until its program has synced it by
//! the kernel and what was kept is forgotten, and both fillings with it.

use super::blocks::Blocks;
use super::follower::Follower;
use super::ground::Below;
use super::span::Span;
use super::strips::{Done, Strips};
use super::version;
use crate::failure::{Failure, RunFailure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tidegate_background::Destager;
use tidegate_disk_cache::{DiskCache, FormatSpec, Options, TransactionError, check, format};
use tidegate_host::Doing;
use tidegate_host::default_paths;
use tidegate_host::owned::{self, What};
use tidegate_host::unlocked::unlocked;
use tidegate_layout::kept::{KeptSize, STRIP_BYTES};
use tidegate_media::{
    Access, Allocation, Backing, BlockDevice, Contents, Counters, Durability, Error, Extent, ExtentKind, Geometry, Lba,
    LbaRange, MappedPart, MappedRegion, Misuse, Region, Result, Run, Sealed,
};
use tidegate_policy::writeback::destage::Caps;
use tidegate_preload_wire::FileId;
use tidegate_wal::pair::{STRIPS, strip_of};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a block.
pub(super) const BLOCK_BYTES: u64 = BLOCK as u64;
/// The same for buffers.
pub(super) const BLOCK: usize = 4096;
/// Blocks of a slot.
pub(super) const FILE_BLOCKS: u64 = 1 << 24;
/// Slots of one hold.
pub(super) const FAMILY_SLOTS: u32 = 64;
/// Slots there are. The first family has the files' sizes instead: block `s` of slot 0 is about
/// slot `s`.
const SLOTS: u32 = 1 << 24;
const VOID_BYTES: u64 = SLOTS as u64 / 8;
/// Strips there are at most, for half as many files: more than that are not synced often at a time.
const STRIPS_MAX: u64 = 256;
/// A pool of the least size still has room for some blocks.
const POOL_BYTES_MIN: u64 = 16 << 20;
/// Of a hundred blocks so many may be dirty before syncs are the kernel's.
const DIRTY_PERCENT_MAX: u64 = 80;
/// After this time the disk catches up, whatever else goes on.
const DIRTY_AGE: Duration = Duration::from_secs(1);

/// The cache that is one part of a pool.
pub(super) type Cache<R> = DiskCache<Span<R>>;

/// Maps the pool at `path`, made now with `size` bytes if it is absent, as is its folder then.
pub(super) fn map(path: &Path, size: u64) -> Result<MappedRegion, Failure> {
    // Of a link to nowhere nothing is made.
    if path.is_symlink() || path.try_exists().unwrap_or(true) {
        return open(path);
    }
    if size < POOL_BYTES_MIN || !size.is_multiple_of(BLOCK_BYTES) {
        return Err(RunFailure::PoolSize { size, min: POOL_BYTES_MIN }.into());
    }
    default_paths::make_folder_of(path)?;
    let made = MappedRegion::create(path, size, Allocation::Full);
    made.map_err(|error| RunFailure::of_map(Doing::Create, error))
}

/// Maps the pool at `path`, which is there and this user's: it has what is written to files.
pub(super) fn open(path: &Path) -> Result<MappedRegion, Failure> {
    let path = &owned::resolved(path).map_err(|error| RunFailure::of_file(path, Doing::Write, error))?;
    let mapped = unlocked(|| MappedRegion::open_if(path, Access::ReadWrite, |file| owned::accept(file, What::Memory)));
    mapped.map_err(|error| RunFailure::of_map(Doing::Write, error))
}

/// The parts of a pool: the cache, behind it the strips, and the map of void slots at the end.
pub(super) struct Parts<R> {
    cache: Span<R>,
    strips: Strips<R>,
    void: VoidMap<R>,
}

/// How large the parts of a pool are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Strips,
    pub(super) strips: u32,
    /// and the bytes of each.
    pub(super) strip_bytes: u64,
    /// Bytes of the map of void slots.
    pub(super) void_bytes: u64,
}

impl Shape {
    /// Of a pool of `bytes` of this version.
    fn of(bytes: u64, version: u8) -> Shape {
        // One byte in so many is a strip's. What was laid out stays as it is, whatever new pools
        // are like.
        let (share, strip_bytes) = if version < version::LONGER_STRIPS { (16, 256 << 10) } else { (8, STRIP_BYTES) };
        let strips = (bytes / share / strip_bytes).min(STRIPS_MAX);
        let strips = u32::try_from(strips).expect("few");
        Shape { strips, strip_bytes, void_bytes: VOID_BYTES }
    }
}

impl<R: Region> Parts<R> {
    /// Of the pool at `path`, of this version, if it is large enough.
    pub(super) fn of(path: &Path, region: Arc<R>, version: u8) -> Result<Parts<R>, Failure> {
        if region.len() < POOL_BYTES_MIN {
            return Err(RunFailure::PoolTooSmall { pool: path.to_owned(), min: POOL_BYTES_MIN }.into());
        }
        let shape = Shape::of(region.len(), version);
        Ok(Parts::shaped(region, shape))
    }

    /// With this shape.
    pub(super) fn shaped(region: Arc<R>, shape: Shape) -> Parts<R> {
        let end = region.len() / BLOCK_BYTES * BLOCK_BYTES;
        let void_at = end - shape.void_bytes;
        let strips_at = void_at - u64::from(shape.strips) * shape.strip_bytes;
        let strips = Strips::new(&region, strips_at, shape.strip_bytes, shape.strips);
        let void = VoidMap(Span::new(Arc::clone(&region), void_at, end));
        Parts { cache: Span::new(region, 0, strips_at), strips, void }
    }

    /// Makes all slots of `families` void, durably.
    pub(super) fn make_void(&self, families: impl Iterator<Item = u32>) -> Result<(), Sealed> {
        let there = families.filter(|family| u64::from(*family) < self.void.families());
        there.for_each(|family| self.void.add_family(family));
        self.void.0.fence()
    }

    /// What keeps the cache from being opened, if anything does.
    pub(super) fn damage(&self) -> Option<String> {
        match check(&self.cache) {
            Err(none) => Some(none.to_string()),
            Ok(report) if report.opens() => None,
            Ok(report) => Some(report.findings.first().map_or_else(String::new, ToString::to_string)),
        }
    }

    /// Opens the cache over `files`, and gives the rest as it is.
    pub(super) fn open(self, files: Arc<Files>) -> Result<Opened<R>, tidegate_disk_cache::OpenError> {
        let cache = DiskCache::open(self.cache, files, Options::default())?;
        Ok(Opened { cache, strips: self.strips, void: self.void })
    }
}

/// A pool whose cache is open.
pub(super) struct Opened<R: Region> {
    /// What was kept in blocks.
    pub(super) cache: Cache<R>,
    /// What programs committed by themselves.
    pub(super) strips: Strips<R>,
    /// What counts no longer.
    pub(super) void: VoidMap<R>,
}

/// A family's slots are one word of the map.
const _: () = assert!(FAMILY_SLOTS == u64::BITS);

/// Which slots count no longer.
pub(super) struct VoidMap<R>(Span<R>);

impl<R: Region> VoidMap<R> {
    /// Families of slots that it tells of.
    fn families(&self) -> u64 {
        self.0.len() * 8 / u64::from(FAMILY_SLOTS)
    }

    fn place(slot: u32) -> (u64, u64) {
        (u64::from(slot / 64) * 8, 1 << (slot % 64))
    }

    /// Whether `slot` is void; one that cannot be read is not.
    pub(super) fn has(&self, slot: u32) -> bool {
        let (at, bit) = VoidMap::<R>::place(slot);
        self.0.load_u64(at).is_ok_and(|word| word & bit != 0)
    }

    /// Makes `slot` void, durably. Only one caller at a time.
    fn add(&self, slot: u32) -> Result<(), Error> {
        let (at, bit) = VoidMap::<R>::place(slot);
        self.0.store_u64(at, self.0.load_u64(at)? | bit);
        self.0.flush(at, 8);
        Ok(self.0.fence()?)
    }

    /// Makes all slots of `family` void, as soon as that is fenced.
    fn add_family(&self, family: u32) {
        let (at, _) = VoidMap::<R>::place(first_slot(family));
        self.0.store_u64(at, u64::MAX);
        self.0.flush(at, 8);
    }

    fn clear(&self) -> Result<(), Sealed> {
        let zeroes = [0; BLOCK];
        (0..self.0.len()).step_by(zeroes.len()).for_each(|at| self.0.stream(at, &zeroes));
        self.0.fence()
    }
}

/// The first slot of a family.
pub(super) fn first_slot(family: u32) -> u32 {
    family * FAMILY_SLOTS
}

/// A slot, and the blocks of its disk.
pub(super) fn block_of(slot: u32, block: u64) -> Lba {
    Lba(u64::from(slot) * FILE_BLOCKS + block)
}

/// The slot and the block in it.
pub(super) fn slot_of(lba: Lba) -> (u32, u64) {
    (u32::try_from(lba.0 / FILE_BLOCKS).expect("a disk has few enough slots"), lba.0 % FILE_BLOCKS)
}

/// The block that has the size of slot `slot`'s file.
pub(super) fn size_block(slot: u32) -> Lba {
    Lba(u64::from(slot))
}

/// What `block` tells of a file.
pub(super) fn size_in(block: &[u8]) -> Option<KeptSize> {
    let (size, _) = KeptSize::read_from_prefix(block).ok()?;
    size.is_there().then_some(size)
}

fn block_with(size: KeptSize) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..size_of::<KeptSize>()].copy_from_slice(size.as_bytes());
    block
}

type OnFailure = Box<dyn Fn(u32, FileId) + Send + Sync>;

/// A file whose slot counts.
struct Known {
    file: Arc<dyn Below>,
    /// The pair of strips of its program,
    strip: Option<u32>,
    /// and how many of the bytes that were committed to each the cache or the disk has too.
    elsewhere: [u64; STRIPS],
}

/// The disk that is made of files.
#[derive(Default)]
pub(super) struct Files {
    /// The files of the slots that count.
    files: Mutex<HashMap<u32, Known>>,
    /// Slots that were destaged since the last flush.
    touched: Mutex<BTreeSet<u32>>,
    /// Slots whose file could not be brought to its disk: what is kept of them stays.
    failed: Mutex<BTreeSet<u32>>,
    /// Who is told of each, at once: a kill may come before the hold's end.
    on_failure: OnceLock<OnFailure>,
    /// One flush at a time: one that finds nothing to bring to a disk may not end before the one
    /// that is bringing it.
    flushing: Mutex<()>,
    /// Slots with a filling that is being absorbed: what tells so is not written before the strip
    /// says it too, and so does not leave the cache.
    absorbing: Mutex<BTreeSet<u32>>,
    /// Syncs of files by the supervisor, and the nanoseconds they took.
    syncs: AtomicU64,
    sync_ns: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    fn insert(&self, slot: u32, known: Known) {
        lock(&self.files).insert(slot, known);
    }

    fn with_strips(&self) -> Vec<(u32, u32)> {
        lock(&self.files).iter().filter_map(|(slot, known)| Some((*slot, known.strip?))).collect()
    }

    /// The first `bytes` that were committed to strip `place` of the file of `slot` are elsewhere
    /// too.
    fn settle(&self, slot: u32, place: usize, bytes: u64) {
        if let Some(known) = lock(&self.files).get_mut(&slot) {
            known.elsewhere[place] = known.elsewhere[place].max(bytes);
        }
    }

    /// Bytes that lie on strips and nowhere else, if `bytes` gives those that were committed to
    /// each strip of a pair.
    fn on_strips(&self, bytes: impl Fn(u32) -> [u64; STRIPS]) -> u64 {
        let files = lock(&self.files);
        let each = files.values().filter_map(|known| Some(bytes(known.strip?).into_iter().zip(known.elsewhere)));
        each.flatten().map(|(all, elsewhere)| all.saturating_sub(elsewhere)).sum()
    }

    /// Brings the file of `slot` to its disk, if there is one. False: it cannot be brought there,
    /// now or ever since.
    fn sync(&self, slot: u32) -> bool {
        let Some(file) = lock(&self.files).get(&slot).map(|known| Arc::clone(&known.file)) else { return true };
        let began = Instant::now();
        let synced = file.sync();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.sync_ns.fetch_add(ns, Ordering::Relaxed);
        if synced.is_err() {
            // The kernel says so once.
            self.set_failed(slot);
        }
        synced.is_ok()
    }

    fn remove(&self, slot: u32) {
        lock(&self.files).remove(&slot);
    }

    fn has_failed(&self, slot: u32) -> bool {
        lock(&self.failed).contains(&slot)
    }

    fn set_failed(&self, slot: u32) {
        let is_new = lock(&self.failed).insert(slot);
        let file = lock(&self.files).get(&slot).map(|known| known.file.id());
        if let Some((tell, file)) = self.on_failure.get().zip(file).filter(|_| is_new) {
            tell(slot, file);
        }
    }

    /// A filling of the strip of `slot` is being absorbed until the answer is dropped.
    fn absorb(&self, slot: u32) -> Absorbing<'_> {
        lock(&self.absorbing).insert(slot);
        Absorbing { files: self, slot }
    }

    /// Which slots blocks of `run` are about.
    fn slots(run: &Run<'_>) -> impl Iterator<Item = u32> + use<> {
        let blocks = run.at.0..run.at.0 + run.data.len() as u64 / BLOCK_BYTES;
        blocks.map(|lba| match slot_of(Lba(lba)) {
            (0, slot) => u32::try_from(slot).expect("the first slot has as many blocks as there are slots"),
            (slot, _) => slot,
        })
    }
}

/// A slot among those with a filling that is being absorbed.
struct Absorbing<'a> {
    files: &'a Files,
    slot: u32,
}

impl Drop for Absorbing<'_> {
    fn drop(&mut self) {
        lock(&self.files.absorbing).remove(&self.slot);
    }
}

const _: () = assert!(GEOMETRY.block_size as u64 == BLOCK_BYTES);
const GEOMETRY: Geometry = Geometry {
    block_size: 4096,
    blocks: SLOTS as u64 * FILE_BLOCKS,
    atomic_blocks: 0,
    volatile_cache: true,
    read_only: false,
    fast_zeroes: false,
};

impl BlockDevice for Files {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    /// Nothing is read that is not cached.
    fn read(&self, _: Lba, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], _: Durability) -> Result<()> {
        let slots: BTreeSet<u32> = Files::slots(&Run { at, data }).collect();
        if slots.iter().any(|slot| self.has_failed(*slot)) {
            return Err(not_durable());
        }
        if !lock(&self.absorbing).is_disjoint(&slots) {
            return Err(Misuse::NotNow.into());
        }
        lock(&self.touched).extend(slots);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let _alone = lock(&self.flushing);
        let touched = std::mem::take(&mut *lock(&self.touched));
        // All of them, even if one cannot be.
        let well = touched.into_iter().filter(|slot| !self.sync(*slot)).count() == 0;
        if well { Ok(()) } else { Err(not_durable()) }
    }

    fn discard(&self, _: LbaRange) -> Result<()> {
        Ok(())
    }

    fn write_zeroes(&self, _: LbaRange, _: Durability) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        Ok(Extent { blocks: range.blocks, kind: ExtentKind::Data })
    }
}

fn not_durable() -> Error {
    Misuse::ReadOnly.into()
}

impl Backing for Files {
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        runs.iter().map(|run| self.write(run.at, run.data, Durability::Volatile)).collect()
    }
}

/// The pool of a run.
pub(super) struct Kept<R: Region> {
    cache: Arc<Cache<R>>,
    /// Blocks that the cache has room for.
    blocks: u64,
    files: Arc<Files>,
    strips: Arc<Strips<R>>,
    void: Mutex<VoidMap<R>>,
    next_family: AtomicU64,
    families: u64,
    /// Brings files to their disks meanwhile.
    destager: Option<Destager>,
    /// The same for those whose programs commit by themselves.
    follower: Option<Follower>,
    /// What the memory did.
    counters: Option<Box<dyn Fn() -> Counters + Send + Sync>>,
}

/// What a pool is like.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Fill {
    /// Bytes it has room for.
    pub pool_bytes: u64,
    /// Bytes that wait for their disks,
    pub waiting_bytes: u64,
    /// and those that programs synced by themselves since: they are neither among these nor on
    /// their disks.
    pub strip_bytes: u64,
    /// How often the supervisor brought a file to its disk.
    pub disk_syncs: u64,
    /// Microseconds that took each time.
    pub disk_sync_us: Option<u64>,
    /// Lines of the memory that were flushed,
    pub lines_flushed: u64,
    /// and fences behind them.
    pub fences: u64,
}

/// A file's place in the pool.
#[derive(Debug)]
pub(super) struct Place {
    file: Arc<dyn Below>,
    family: u32,
    /// Which slot of the family.
    member: u32,
    /// The size that was kept last.
    size: Option<u64>,
    /// The least size that can be kept: that of the file when the slot was empty, or the last one.
    /// None: nobody knows.
    size_min: Option<u64>,
    /// The pair of strips that its program may commit to.
    strip: Option<u32>,
    /// The last filling of them that is absorbed.
    absorbed: u32,
    /// The last one that the program has handed over: it goes on with the next.
    handed_over: u32,
}

/// Why nothing was kept.
#[derive(Debug)]
pub(super) enum NotKept {
    /// There is no room, or too much at once, or the file's disk has failed, or the file was
    /// shortened behind our back, or an older filling of its strips is to be absorbed first.
    NoRoom,
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The memory has failed.
    Failed(TransactionError),
    /// It has failed after all was kept: the strip may tell of what is older.
    Sealed(Sealed),
}

impl Kept<MappedRegion> {
    /// A pool with nothing in it over all of `region`, and a thread that brings files to their
    /// disks.
    pub(super) fn fresh(path: &Path, region: Arc<MappedRegion>) -> Result<Kept<MappedRegion>, Failure> {
        let refused = |why: String| RunFailure::Pool { pool: path.to_owned(), why };
        let mut parts = Parts::of(path, Arc::clone(&region), version::NEW)?;
        parts.strips.ask_mapped(Box::new(is_mapped(&region)));
        let mut kept = Kept::lay_out(parts, refused)?;
        kept.counters = Some(Box::new(move || region.counters()));
        let caps = Caps { age: DIRTY_AGE, ..Caps::default() };
        let destager = Destager::start(Arc::clone(&kept.cache), caps).map_err(Failure::system("starting a thread"))?;
        kept.destager = Some(destager);
        let (files, strips) = (Arc::clone(&kept.files), Arc::clone(&kept.strips));
        let mut seen = HashMap::new();
        let follower = Follower::start(DIRTY_AGE, move || bring_committed(&files, &strips, &mut seen));
        kept.follower = Some(follower.map_err(Failure::system("starting a thread"))?);
        Ok(kept)
    }
}

/// Brings those files to their disks to whose strips something was committed since they were
/// `seen`.
fn bring_committed<R: Region>(files: &Files, strips: &Strips<R>, seen: &mut HashMap<u32, [u64; STRIPS]>) {
    let now = files.with_strips();
    seen.retain(|slot, _| now.iter().any(|(known, _)| known == slot));
    for (slot, strip) in now {
        // Each commit is of some bytes, which the file had before they were counted.
        let bytes = strips.bytes(strip);
        let is_more = seen.insert(slot, bytes).unwrap_or_default() != bytes;
        if is_more && files.sync(slot) && !files.has_failed(slot) {
            bytes.into_iter().enumerate().for_each(|(place, bytes)| files.settle(slot, place, bytes));
        }
    }
}

/// Whether anybody has mapped a part of `region`. Of a device no part can be had by itself, and its
/// strips are nobody's.
fn is_mapped(region: &Arc<MappedRegion>) -> impl Fn(u64, u64) -> bool + use<> {
    let region = Arc::clone(region);
    move |at, len| {
        let file = region.file().filter(|file| file.metadata().is_ok_and(|data| data.is_file()));
        file.is_none_or(|file| MappedPart::is_mapped(file.as_fd(), at, len).unwrap_or(true))
    }
}

impl<R: Region> Kept<R> {
    /// A pool with nothing in it, and nobody who brings files to their disks meanwhile.
    pub(super) fn lay_out(parts: Parts<R>, refused: impl Fn(String) -> RunFailure) -> Result<Kept<R>, RunFailure> {
        let spec = FormatSpec {
            block_size: GEOMETRY.block_size,
            disk_blocks: GEOMETRY.blocks,
            ring_slots: FormatSpec::ring_slots_in(parts.cache.len()),
            uuid: *uuid::Uuid::new_v4().as_bytes(),
            disk: version::disk(),
        };
        // The strips go first: where they lie now an older pool may have had its blocks, which
        // would seem to say that something counts. The map goes last: without it what lay in the
        // cache would.
        parts.strips.clear_all().map_err(|error| refused(error.to_string()))?;
        format(&parts.cache, &spec, Contents::Unknown).map_err(|error| refused(error.to_string()))?;
        parts.void.clear().map_err(|error| refused(error.to_string()))?;
        let files = Arc::new(Files::default());
        let Opened { cache, strips, void } =
            parts.open(Arc::clone(&files)).map_err(|error| refused(error.to_string()))?;
        let families = void.families();
        Ok(Kept {
            blocks: cache.fill().blocks.into(),
            cache: Arc::new(cache),
            files,
            strips: Arc::new(strips),
            void: Mutex::new(void),
            next_family: AtomicU64::new(1),
            families,
            destager: None,
            follower: None,
            counters: None,
        })
    }

    /// Brings files to their disks, as far as `blocks_max` blocks go.
    #[cfg(test)]
    pub(super) fn step(&self, blocks_max: u32) {
        self.cache.destage_step(blocks_max);
    }

    /// Does once what is done from time to time for files whose programs commit by themselves.
    #[cfg(test)]
    pub(super) fn bring_committed(&self) {
        bring_committed(&self.files, &self.strips, &mut HashMap::new());
    }

    /// `tell` gets the slot of each file that cannot be brought to its disk, and the file, when
    /// that is found out.
    pub(super) fn on_failure(&self, tell: impl Fn(u32, FileId) + Send + Sync + 'static) {
        // There is one keeper of a pool.
        let _ = self.files.on_failure.set(Box::new(tell));
    }

    /// A number for a file's family. None: this run has held too many files.
    pub(super) fn family(&self) -> Option<u32> {
        let family = self.next_family.fetch_add(1, Ordering::Relaxed);
        u32::try_from(family).ok().filter(|_| family < self.families)
    }

    /// A pair of strips for a program, if there is one: it is to be in the journal before the
    /// program knows of it.
    pub(super) fn strip(&self) -> Option<u32> {
        self.strips.give()
    }

    /// Strips that no program knows of, or whose file is held no more.
    pub(super) fn take_back(&self, strip: Option<u32>) {
        strip.into_iter().for_each(|strip| self.strips.take_back(strip));
    }

    /// Where in the pool the pair `strip` lies, and its bytes.
    pub(super) fn strip_range(&self, strip: u32) -> (u64, u64) {
        self.strips.range(strip)
    }

    /// What its program did at `strip`.
    pub(super) fn done_at(&self, strip: Option<u32>) -> Done {
        strip.map(|strip| self.strips.done(strip)).unwrap_or_default()
    }

    /// What programs did at all strips.
    pub(super) fn done_at_strips(&self) -> Done {
        self.strips.done_at_all()
    }

    /// A place for `file`, whose family and strip the journal has.
    pub(super) fn place(&self, file: Arc<dyn Below>, family: u32, strip: Option<u32>) -> Place {
        let mut place =
            Place { file, family, member: 0, size: None, size_min: None, strip, absorbed: 0, handed_over: 0 };
        self.empty(&mut place);
        place
    }

    /// Nothing is kept in the place's slot.
    fn empty(&self, place: &mut Place) {
        (place.size, place.absorbed, place.handed_over) = (None, 0, 0);
        place.size_min = place.file.size().ok();
        let elsewhere = place.strip.map(|strip| self.strips.bytes(strip)).unwrap_or_default();
        self.files.insert(place.slot(), Known { file: Arc::clone(&place.file), strip: place.strip, elsewhere });
    }

    /// Keeps `ranges` of the file as they are now, and that it has `size` bytes: all of it,
    /// durably, or none. `filling` of its strips, if it is not 0, counts no more then.
    pub(super) fn keep(
        &self,
        place: &mut Place,
        size: u64,
        filling: u32,
        ranges: &[(u64, u64)],
    ) -> Result<(), NotKept> {
        let slot = place.slot();
        let blocks = Blocks::of(size, ranges);
        let full = (self.cache.dirty_blocks() + blocks.count()) * 100 > self.blocks * DIRTY_PERCENT_MAX;
        if full {
            let _ = self.destager.as_ref().map(Destager::flush);
        }
        let too_many = blocks.count() >= u64::from(self.cache.transaction_blocks_max());
        // Recovery makes files longer, never shorter.
        let fits = place.size_min.is_some_and(|min| (min..=super::held_file::FILE_BYTES_MAX).contains(&size));
        if full || too_many || !fits || !place.comes_next(filling) || self.files.has_failed(slot) {
            return Err(NotKept::NoRoom);
        }
        let mut transaction = self.cache.begin();
        let mut bytes = Vec::new();
        for run in blocks.runs() {
            bytes.resize(run.bytes(), 0);
            place.file.read(run.at(), &mut bytes).map_err(NotKept::Unreadable)?;
            transaction.write(block_of(slot, run.first), &bytes).map_err(NotKept::Failed)?;
        }
        let absorbed = place.absorbed.max(filling);
        if place.size != Some(size) || place.absorbed != absorbed {
            let told = block_with(KeptSize::new(size, absorbed));
            transaction.write(size_block(slot), &told).map_err(NotKept::Failed)?;
        }
        let strip = place.strip.filter(|_| filling > 0);
        // Until its head is cleared.
        let _absorbing = strip.map(|_| self.files.absorb(slot));
        if transaction.blocks() > 0 {
            transaction.commit().map_err(NotKept::Failed)?;
        }
        (place.size, place.size_min, place.absorbed) = (Some(size), Some(size), absorbed);
        if let Some(strip) = strip {
            self.strips.clear(strip, filling).map_err(NotKept::Sealed)?;
            // Its program does not commit to it before it is answered.
            let number = strip_of(filling);
            self.files.settle(slot, number, self.strips.bytes(strip)[number]);
        }
        Ok(())
    }

    /// The kernel made the file durable: nothing that is kept of it counts any more, durably. Its
    /// slot from now on; none: its family has no other.
    pub(super) fn forget(&self, place: &mut Place) -> Result<Option<u32>, Error> {
        self.end(place)?;
        place.member += 1;
        if place.member >= FAMILY_SLOTS {
            return Ok(None);
        }
        self.empty(place);
        Ok(Some(place.slot()))
    }

    /// The same for the last time.
    pub(super) fn end(&self, place: &Place) -> Result<(), Error> {
        lock(&self.void).add(place.slot())?;
        self.files.remove(place.slot());
        Ok(())
    }

    /// Whether the file of `place` is on its disk for certain, if `well` it was brought there now.
    /// If not, what is kept of it stays.
    pub(super) fn is_brought(&self, place: &Place, well: bool) -> bool {
        if !well {
            self.files.set_failed(place.slot());
        }
        // The kernel may have said so to another flush before.
        !self.files.has_failed(place.slot())
    }

    /// No file is held any more, and all are on their disks: nothing on strips counts.
    pub(super) fn clear_strips(&self) -> Result<(), Sealed> {
        self.strips.clear_all()
    }

    /// What the pool is like now.
    pub(super) fn fill(&self) -> Fill {
        let fill = self.cache.fill();
        let syncs = self.files.syncs.load(Ordering::Relaxed);
        let counters = self.counters.as_ref().map(|counters| counters()).unwrap_or_default();
        let by_programs = self.strips.done_at_all();
        let disk_sync_ns = self.files.sync_ns.load(Ordering::Relaxed).checked_div(syncs);
        Fill {
            pool_bytes: u64::from(fill.blocks) * BLOCK_BYTES,
            waiting_bytes: u64::from(fill.dirty) * BLOCK_BYTES,
            strip_bytes: self.strip_bytes(),
            disk_syncs: syncs,
            disk_sync_us: disk_sync_ns.map(|ns| ns / 1000),
            lines_flushed: counters.lines_flushed + by_programs.lines,
            fences: counters.fences + by_programs.fences,
        }
    }

    /// Bytes that lie on strips and nowhere else, files apart.
    fn strip_bytes(&self) -> u64 {
        self.files.on_strips(|strip| self.strips.bytes(strip))
    }

    /// Bytes that their disks do not have.
    pub(super) fn dirty_bytes(&self) -> u64 {
        self.cache.dirty_blocks() * BLOCK_BYTES + self.strip_bytes()
    }
}

impl Place {
    /// The file.
    pub(super) fn file(&self) -> &dyn Below {
        &*self.file
    }

    /// Its program goes on with the filling behind `filling`.
    pub(super) fn hand_over(&mut self, filling: u32) {
        self.handed_over = filling;
    }

    /// Whether `filling` is the next one to be absorbed; or, if it is 0, whether none waits to be.
    fn comes_next(&self, filling: u32) -> bool {
        if filling > 0 { filling == self.absorbed + 1 } else { self.handed_over <= self.absorbed }
    }

    /// Its family.
    pub(super) fn family(&self) -> u32 {
        self.family
    }

    /// Bytes that the file has at least, as far as is known.
    pub(super) fn size_min(&self) -> Option<u64> {
        self.size_min
    }

    /// Whether what is kept can be forgotten once more.
    pub(super) fn has_another_slot(&self) -> bool {
        self.member + 1 < FAMILY_SLOTS
    }

    /// Its slot now.
    pub(super) fn slot(&self) -> u32 {
        first_slot(self.family) + self.member
    }

    /// The strips of its program.
    pub(super) fn strip(&self) -> Option<u32> {
        self.strip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_all_versions_have_their_strips_where_they_were_laid_out() {
        let shape = |bytes, version| {
            let Shape { strips, strip_bytes, void_bytes } = Shape::of(bytes, version);
            (strips, strip_bytes, void_bytes)
        };
        for version in [2, 3, 4] {
            assert_eq!(shape(16 << 20, version), (4, 262_144, 2_097_152));
            assert_eq!(shape(1 << 30, version), (256, 262_144, 2_097_152));
            assert_eq!(shape(1 << 40, version), (256, 262_144, 2_097_152));
        }
        assert_eq!(shape(16 << 20, 5), (4, 524_288, 2_097_152));
        assert_eq!(shape(100 << 20, 5), (25, 524_288, 2_097_152));
        assert_eq!(shape(1 << 40, 5), (256, 524_288, 2_097_152));
    }

    #[test]
    fn sizes_are_read_as_they_were_written() {
        let size = KeptSize::new(12_345, 6);
        assert_eq!(size_in(&block_with(size)), Some(size));
        assert_eq!(size_in(&[0; 4096]), None);
    }

    #[test]
    fn what_is_refused_for_now_is_no_failure() {
        let files = Files::default();
        let write = |slot| files.write(block_of(slot, 3), &[0; BLOCK], Durability::Volatile);
        let absorbing = files.absorb(64);
        assert_eq!((write(64), write(65)), (Err(Misuse::NotNow.into()), Ok(())));
        files.set_failed(64);
        assert_eq!(write(64), Err(not_durable()), "it fails whether now or later");
        files.set_failed(65);
        drop(absorbing);
        assert_eq!((write(65), write(66)), (Err(not_durable()), Ok(())));
    }

    #[test]
    fn slots_and_blocks_are_told_apart() {
        assert_eq!(slot_of(block_of(65, 7)), (65, 7));
        assert_eq!(slot_of(size_block(65)), (0, 65));
    }
}
