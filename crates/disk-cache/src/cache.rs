//! The cache itself, and how one is opened.

use crate::admission::Admission;
use crate::conflicts::{Conflicts, Recent};
use crate::counters::{Counters, Tally};
use crate::drain::{Doorbell, FlushDoubt, Sweep};
use crate::format::Identity;
use crate::group::Waiting;
use crate::guard::{self, Guard, Start};
use crate::index::{Cached, Index, Side, State};
use crate::load::{self, NoSuperblock, Unusable};
use crate::lost::LostEntries;
use crate::medium::{Medium, ring_plan};
use crate::mode::Mode;
use crate::order::Order;
use crate::past::InDoubt;
use crate::pool::{FreeEntry, Pool};
use crate::ring::{EntryMove, Ring};
use crate::transient::{Reads, Transients};
use crate::twin;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_layout::disk_cache::{EntryState, TrustedSuperblock};
use tidegate_media::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use tidegate_media::{Backing, BlockSet, Corrupt, Error, Geometry, Lba, Poison, Region, Result, Sealed};
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;
use tidegate_wal::Loaded;

/// A disk behind a cache in persistent memory.
pub struct DiskCache<R> {
    pub(crate) medium: Medium<R>,
    pub(crate) disk: Arc<dyn Backing>,
    pub(crate) geometry: Geometry,
    /// Blocks of the disk in one of the cache.
    pub(crate) disk_blocks_each: u64,
    pub(crate) index: Index,
    pub(crate) pool: Pool,
    pub(crate) ring: Mutex<Ring>,
    /// Transactions that wait for it.
    pub(crate) waiting: Mutex<Waiting>,
    /// Dirty blocks.
    pub(crate) dirty: AtomicU64,
    pub(crate) sweep: Mutex<Sweep>,
    pub(crate) flush_doubt: Mutex<FlushDoubt>,
    pub(crate) in_doubt: InDoubt,
    /// Whether the disk flushed since the cache was opened: until then a power cut may change what a read of it saw.
    pub(crate) disk_settled: AtomicBool,
    /// What is known of the disk's first blocks.
    pub(crate) start: Start,
    /// A block that held something else than the cache had left there when it was opened, if there was one.
    changed: Option<Lba>,
    /// What keeps the order of commits on the disk, if the cache is to.
    pub(crate) order: Option<Order>,
    /// Held by the writer that makes room for itself and for those behind it.
    pub(crate) helping: Mutex<Sweep>,
    /// Whether whoever drains sleeps and wants the doorbell rung.
    pub(crate) asleep: AtomicBool,
    pub(crate) doorbell: Mutex<Option<Arc<dyn Doorbell>>>,
    pub(crate) mode: AtomicU32,
    pub(crate) admission: Admission,
    pub(crate) reads: Reads,
    pub(crate) transients: Transients,
    pub(crate) conflicts: Conflicts,
    pub(crate) recent: Recent,
    pub(crate) tally: Tally,
    lost: LostEntries,
    identity: Identity,
}

/// How a cache behaves. Nothing of it is kept on the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What is done with reads and writes.
    pub mode: Mode,
    /// Which clean block goes when room is needed.
    pub replacement: Replacement,
    /// Which blocks that are read come in, if the mode lets any in.
    pub admit: Admit,
    /// Reads that are part of a run of more blocks than this bring nothing in; 0: no run is too long.
    pub sequential_blocks: u32,
    /// What becomes of blocks that are read when the cache is opened anew.
    pub reads: Reads,
    /// What becomes of transactions that touch the same blocks at the same time.
    pub conflicts: Conflicts,
    /// Whether the disk keeps the order of commits, if the cache was laid out for that.
    pub journaling: Journaling,
    /// What is done to notice that somebody wrote to the disk without its cache.
    pub guard: Guard,
}

/// Whether blocks reach the disk by its journal, where it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Journaling {
    /// If the cache was laid out for it.
    #[default]
    AsLaidOut,
    /// Never: the disk stands in for the cache's own, and has no journal.
    Ignored,
}

/// Why a cache is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The region is too small for a superblock.
    #[error("{0} bytes hold no cache")]
    TooSmall(u64),
    /// Neither superblock can be read.
    #[error("neither superblock can be read: {0}")]
    Unreadable(Poison),
    /// Neither superblock keeps the rules: this is no cache, or a damaged one.
    #[error("there is no superblock: {0}")]
    NoSuperblock(Corrupt),
    /// The superblock has features that this program does not know; it may be read only.
    #[error("the cache has features that forbid writing to it")]
    ReadOnlyFeatures,
    /// The disk's blocks do not fit together to blocks of the cache, or the disk is smaller than the cache knows it.
    #[error(
        "a disk of {disk_bytes} bytes in blocks of {disk_block} is not the one of {expected_bytes} bytes that is cached"
    )]
    Disk {
        /// Bytes on the disk given.
        disk_bytes: u64,
        /// Bytes in one of its blocks.
        disk_block: u32,
        /// Bytes that the cache's disk has at least.
        expected_bytes: u64,
    },
    /// Somebody wrote to the disk without its cache, which has blocks for it.
    #[error(
        "block {lba} of the disk is not what its cache left there, so it was written without it (mounted, or by another region), and {dirty} blocks are only in this one: write them elsewhere (`tidegate salvage`), or over what the disk holds now (`tidegate flush --force`)"
    )]
    DiskChanged {
        /// The first block that was found to be another, in blocks of the cache.
        lba: u64,
        /// Blocks that only the cache has.
        dirty: u64,
        /// Bytes in a block.
        block_size: u32,
    },
    /// What lies on the region breaks a rule, cannot be read, or cannot be stored to.
    #[error(transparent)]
    Device(#[from] Error),
}

impl From<Sealed> for OpenError {
    fn from(sealed: Sealed) -> OpenError {
        OpenError::Device(sealed.into())
    }
}

/// How full a cache is, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Blocks that it can hold.
    pub blocks: u32,
    /// Blocks that the disk has too.
    pub clean: u32,
    /// Blocks that only the cache has.
    pub dirty: u32,
    /// Blocks ready for the next write.
    pub free: u32,
    /// Older contents of dirty blocks, which a group on its way to an ordered disk needs.
    pub kept: u32,
}

impl<R: Region> DiskCache<R> {
    /// Opens the cache on `region` in front of `disk`: first what a power cut or a kill left half done is done, and made durable, on the disk
    /// too: a process killed amid a write past the cache may have left it unflushed. If the disk does not flush, no block is taken in before it does.
    ///
    /// Whether `disk` is the right one, of the same size but with other contents, only the caller can tell: see
    /// [`identify`](crate::identify()). What somebody wrote to the right one is noticed as [`Options::guard`] says: if nothing is dirty, all that is cached is
    /// given up then, and [`DiskCache::changed`] tells; otherwise nothing is written to the disk.
    pub fn open(region: R, disk: Arc<dyn Backing>, options: Options) -> Result<DiskCache<R>, OpenError> {
        let superblock = usable_superblock(&region)?;
        let plan = superblock.plan;
        let of_disk = disk.geometry();
        let journal = plan.journal().filter(|_| options.journaling == Journaling::AsLaidOut);
        let blocks = journal.map_or(plan.disk_blocks, |journal| journal.end());
        let expected_bytes = blocks * u64::from(plan.block_size);
        if !plan.block_size.is_multiple_of(of_disk.block_size) || of_disk.bytes() < expected_bytes {
            let (disk_bytes, disk_block) = (of_disk.bytes(), of_disk.block_size);
            return Err(OpenError::Disk { disk_bytes, disk_block, expected_bytes });
        }
        let mut medium = Medium::new(region, plan);
        let settled = disk.flush().is_ok();
        twin::make_both_count(&medium.region)?;
        let applied = apply_what_counts(&medium)?;
        let mut rebuilt = Rebuilt::of(&medium, options.replacement)?;
        let lost = LostEntries::of(&medium.plan, &rebuilt.unreadable, &applied.newest);
        let ring = settle(&medium, applied, &rebuilt.unreadable)?;
        let (start, changed) = guarded(&mut medium, &superblock, (&*disk, settled), &options, &mut rebuilt)?;
        let identity = Identity::from(&usable_superblock(&medium.region)?);
        let cache = DiskCache {
            disk_blocks_each: u64::from(plan.block_size / of_disk.block_size),
            geometry: Geometry {
                block_size: plan.block_size,
                blocks: plan.disk_blocks,
                atomic_blocks: identity.atomic_blocks().min(lost.leave_of(plan.blocks) / 2).max(1),
                volatile_cache: false,
                read_only: false,
                fast_zeroes: false,
            },
            medium,
            disk,
            index: rebuilt.index,
            pool: rebuilt.pool,
            ring: Mutex::new(ring),
            waiting: Mutex::default(),
            dirty: AtomicU64::new(rebuilt.dirty),
            sweep: Mutex::default(),
            flush_doubt: Mutex::default(),
            in_doubt: InDoubt::default(),
            disk_settled: AtomicBool::new(settled),
            start,
            changed,
            order: journal.map(|journal| Order::new(journal, identity.uuid)),
            helping: Mutex::default(),
            asleep: AtomicBool::new(false),
            doorbell: Mutex::new(None),
            mode: AtomicU32::new(options.mode.number()),
            admission: Admission::new(options.admit, options.sequential_blocks, plan.blocks),
            reads: options.reads,
            transients: Transients::new(options.reads, plan.blocks),
            conflicts: options.conflicts,
            recent: Recent::default(),
            tally: Tally::default(),
            lost,
            identity,
        };
        cache.settle_order();
        Ok(cache)
    }

    /// What the superblock says.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// A block of the disk that somebody had written without the cache when it was opened, if one was found. What was clean was given up then.
    pub fn changed(&self) -> Option<Lba> {
        self.changed
    }

    /// Entries that could not be read when the cache was opened. Their blocks read as the disk has them.
    pub fn lost(&self) -> &LostEntries {
        &self.lost
    }

    /// Blocks of the largest transaction.
    pub fn transaction_blocks_max(&self) -> u32 {
        self.identity.transaction_blocks_max().min(self.usable_blocks() / 2).max(1)
    }

    /// Blocks that entries can be found for: one less for each entry that cannot be read.
    pub(crate) fn usable_blocks(&self) -> u32 {
        self.lost.leave_of(self.identity.blocks)
    }

    /// How full the cache is: exact while nothing is going on.
    pub fn fill(&self) -> Fill {
        let (mut cached, mut dirty, mut kept) = (0, 0, 0);
        for stripe in 0..self.index.stripes() {
            let [cached_here, dirty_here, kept_here] = self.index.lock(stripe).fill();
            cached += cached_here;
            dirty += dirty_here;
            kept += kept_here;
        }
        let free = u32::try_from(self.pool.free_blocks()).expect("fewer than there are blocks");
        Fill { blocks: self.medium.plan.blocks, clean: cached - dirty, dirty, free, kept }
    }

    /// Blocks that only the cache has.
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// The blocks that only the cache has, ascending.
    pub fn dirty_lbas(&self) -> Vec<Lba> {
        let mut lbas = Vec::new();
        for stripe in 0..self.index.stripes() {
            lbas.extend(self.index.lock(stripe).all_dirty().map(Lba));
        }
        lbas.sort_unstable();
        lbas
    }

    /// The cached blocks that the disk has too, ascending.
    pub fn clean_lbas(&self) -> Vec<Lba> {
        let stripes = (0..self.index.stripes()).map(|stripe| self.index.lock(stripe));
        let mut lbas: Vec<Lba> = stripes.flat_map(|stripe| stripe.all_clean().map(Lba).collect::<Vec<_>>()).collect();
        lbas.sort_unstable();
        lbas
    }

    /// What was done since the cache was opened.
    pub fn counters(&self) -> Counters {
        self.tally.counters(&self.index)
    }

    /// The region.
    pub fn region(&self) -> &R {
        &self.medium.region
    }

    /// The region and the disk. What is dirty stays so, durably.
    pub fn into_parts(self) -> (R, Arc<dyn Backing>) {
        (self.medium.region, self.disk)
    }
}

pub(crate) fn usable_superblock<R: Region>(region: &R) -> Result<TrustedSuperblock, OpenError> {
    if region.len() < tidegate_layout::disk_cache::CURSORS_AT {
        return Err(OpenError::TooSmall(region.len()));
    }
    let newest = load::superblocks(region).map_err(|wrong| match wrong {
        NoSuperblock::Unreadable(poison) => OpenError::Unreadable(poison),
        NoSuperblock::Broken(corrupt) => OpenError::NoSuperblock(corrupt),
    })?;
    match newest.superblock.read_only {
        true => Err(OpenError::ReadOnlyFeatures),
        false => Ok(newest.superblock),
    }
}

/// Looks whether the disk was written without its cache, which is `rebuilt`. If so, what is clean is given up: unless something is dirty, and the options do not say that
/// it goes to the disk all the same. What is known of the disk from now on, and the first block that was another.
fn guarded<R: Region>(
    medium: &mut Medium<R>,
    superblock: &TrustedSuperblock,
    (disk, settled): (&dyn Backing, bool),
    options: &Options,
    rebuilt: &mut Rebuilt,
) -> Result<(Start, Option<Lba>), OpenError> {
    match options.guard {
        Guard::Off => return Ok((Start::default(), None)),
        Guard::AsLaidOut => {}
        Guard::Always | Guard::Forced => guard::begin(medium, superblock)?,
    }
    if !medium.plan.start_sums {
        return Ok((Start::default(), None));
    }
    let changed = guard::first_changed(medium, disk);
    if let Some(lba) = changed {
        if rebuilt.dirty > 0 && options.guard != Guard::Forced {
            let block_size = medium.plan.block_size;
            return Err(OpenError::DiskChanged { lba: lba.0, dirty: rebuilt.dirty, block_size });
        }
        guard::forget(medium)?;
        *rebuilt = Rebuilt::of(medium, options.replacement)?;
    }
    guard::remember(medium, disk, settled)?;
    Ok((Start::of(medium.plan.start_blocks()), changed))
}

/// Elements that count, and were applied.
pub(crate) struct Applied {
    loaded: Loaded<EntryMove>,
    /// For each entry that they name, what the newest of them says.
    newest: BTreeMap<u32, EntryState>,
}

/// Applies the elements that count.
///
/// A killed process may have left cursors and entries visible that nobody flushed. What is done here and later would rest on stores that a power
/// cut can still take. So the cursors are made durable before an element is applied, and by [`settle`] all entries before any is used.
pub(crate) fn apply_what_counts<R: Region>(medium: &Medium<R>) -> Result<Applied, OpenError> {
    let loaded = Loaded::begin(&medium.region, ring_plan(&medium.plan))?;
    let newest = load::newest(&loaded, &medium.plan).map_err(Error::from)?;
    for (entry, newest) in &newest {
        let at = medium.plan.entry_at(*entry);
        // What cannot be read may not be stored to.
        let Ok(own) = medium.entry(*entry) else { continue };
        let own = own.check(&medium.plan).map_err(|broken| Error::from(load::corrupt(at, broken)))?;
        if let EntryState::Holds { lba, block, counter, clean } = load::recovered(own, Some(newest))
            && own.counter() != counter
        {
            medium.store_lba(*entry, lba);
            if medium.words_overtake() {
                medium.flush_entry(*entry);
                medium.fence()?;
            }
            medium.store_state(*entry, medium.plan.holding_word(lba, block, counter, clean));
        }
    }
    Ok(Applied { loaded, newest })
}

/// Makes every entry durable that can be read, and retires the elements.
pub(crate) fn settle<R: Region>(
    medium: &Medium<R>,
    applied: Applied,
    unreadable: &BTreeSet<u32>,
) -> Result<Ring, OpenError> {
    let plan = &medium.plan;
    let mut from = 0;
    for until in unreadable.iter().copied().chain([plan.blocks]) {
        medium.region.flush(plan.entry_at(from), plan.entry_at(until) - plan.entry_at(from));
        from = until + 1;
    }
    medium.fence()?;
    Ok(applied.loaded.finish(&medium.region)?)
}

/// What DRAM holds beside the region, built from the entries' blocks alone.
struct Rebuilt {
    index: Index,
    pool: Pool,
    dirty: u64,
    /// Entries that cannot be read.
    unreadable: BTreeSet<u32>,
}

impl Rebuilt {
    fn of<R: Region>(medium: &Medium<R>, replacement: Replacement) -> Result<Rebuilt> {
        let plan = &medium.plan;
        let index = Index::new(plan.blocks, replacement);
        let mut used = BlockSet::new(plan.blocks);
        let mut free = Vec::new();
        let mut dirty = 0;
        let mut unreadable = BTreeSet::new();
        load::entries(&medium.region, plan, |entry, state| {
            let state = match state {
                Ok(state) => state,
                Err(Unusable::Broken(corrupt)) => return Err(corrupt.into()),
                Err(Unusable::Unreadable) => {
                    unreadable.insert(entry);
                    return Ok(());
                }
            };
            match state {
                EntryState::Free { counter } => free.push(FreeEntry { entry, counter }),
                EntryState::Holds { lba, block, counter, clean } => {
                    let state = if clean { State::Clean } else { State::Dirty };
                    let cached = Cached { entry, block, counter, state, named: true, side: Side::default() };
                    let mut stripe = index.lock_for(lba);
                    let rule = if !used.insert(block) {
                        Some(("no block is named by two entries", u64::from(block)))
                    } else {
                        stripe.get(lba).map(|_| ("no block of the disk is cached twice", lba))
                    };
                    if let Some((rule, found)) = rule {
                        return Err(Corrupt { rule, at: plan.entry_at(entry), found: found.to_string() }.into());
                    }
                    index.insert(&mut stripe, lba, cached);
                    dirty += u64::from(!clean);
                }
            }
            Ok(())
        })?;
        let pool = Pool::new(used.absent().skip(unreadable.len()), free.into_iter());
        Ok(Rebuilt { index, pool, dirty, unreadable })
    }
}
