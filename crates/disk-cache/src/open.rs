//! Opening: finishes the work that a power cut or a kill left half done, and fills DRAM from the
//! entries.

pub(crate) mod format;
pub(crate) mod guard;
pub(crate) mod poisoned_entries;
pub(crate) mod resize;
pub(crate) mod scan;
pub(crate) mod superblock_copies;

use crate::cache::{AsOpened, BlockTable, DiskCache, Journaling, Options};
use crate::commit::committer::Committer;
use crate::commit::redo::{EntryMove, Ring};
use crate::counters::UnlockedCounts;
use crate::destage::destager::Destager;
use crate::destage::first_blocks::FirstBlocks;
use crate::destage::order::Order;
use crate::free_list::{FreeEntry, FreeList};
use crate::index::{BlockState, Cached, Index, Side};
use crate::open::format::Identity;
use crate::open::guard::Guard;
use crate::open::poisoned_entries::PoisonedEntries;
use crate::open::scan::{NoSuperblock, Unusable};
use crate::read::filter::Filter;
use crate::read::reader::Reader;
use crate::region_io::{Medium, ring_plan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_layout::disk_cache::{EntryState, TrustedSuperblock};
use tidegate_media::sync::{AtomicBool, AtomicU32, AtomicU64};
use tidegate_media::{Backing, BlockSet, Corrupt, Error, Geometry, Lba, Poison, Region, Result, Sealed};
use tidegate_policy::evict::Replacement;
use tidegate_wal::{Loaded, corrupt};

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
    /// The disk's blocks do not fit together to blocks of the cache, or the disk is smaller than
    /// the cache knows it.
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

impl<R: Region> DiskCache<R> {
    /// Opens the cache on `region` in front of `disk`: first what a power cut or a kill left half
    /// done is done, and made durable, on the disk too: a process killed amid a write past the
    /// cache may have left it unflushed. If the disk does not flush, no block is taken in before it
    /// does.
    ///
    /// Whether `disk` is the right one, of the same size but with other contents, only the caller
    /// can tell: see [`identify`](crate::identify()). What somebody wrote to the right one is
    /// noticed as [`Options::guard`] says: if nothing is dirty, all that is cached is given up
    /// then, and [`DiskCache::changed`] tells; otherwise nothing is written to the disk.
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
        superblock_copies::make_both_count(&medium.region)?;
        let applied = apply_what_counts(&medium)?;
        let mut rebuilt = Rebuilt::of(&medium, options.replacement)?;
        let poisoned = PoisonedEntries::of(&medium.plan, &rebuilt.unreadable, &applied.newest);
        let ring = settle(&medium, applied, &rebuilt.unreadable)?;
        let (first_blocks, changed) = guarded(&mut medium, &superblock, (&*disk, settled), &options, &mut rebuilt)?;
        let identity = Identity::from(&usable_superblock(&medium.region)?);
        let filter = Filter::new(options.admit, options.sequential_blocks, plan.blocks);
        let cache = DiskCache {
            disk_blocks_each: u64::from(plan.block_size / of_disk.block_size),
            geometry: Geometry {
                block_size: plan.block_size,
                blocks: plan.disk_blocks,
                atomic_blocks: identity.atomic_blocks().min(poisoned.leave_of(plan.blocks) / 2).max(1),
                volatile_cache: false,
                read_only: false,
                fast_zeroes: false,
            },
            medium,
            disk,
            table: BlockTable {
                index: rebuilt.index,
                free_list: rebuilt.free_list,
                dirty: AtomicU64::new(rebuilt.dirty),
            },
            committer: Committer::new(ring, options.conflicts),
            reader: Reader::new(filter, options.reads, plan.blocks),
            destager: Destager::new(
                AtomicBool::new(settled),
                first_blocks,
                journal.map(|journal| Order::new(journal, identity.uuid)),
            ),
            mode: AtomicU32::new(options.mode.number()),
            tally: UnlockedCounts::default(),
            found: AsOpened { identity, poisoned, changed },
        };
        cache.settle_order();
        Ok(cache)
    }
}

pub(crate) fn usable_superblock<R: Region>(region: &R) -> Result<TrustedSuperblock, OpenError> {
    if region.len() < tidegate_layout::disk_cache::CURSORS_AT {
        return Err(OpenError::TooSmall(region.len()));
    }
    let newest = scan::superblocks(region).map_err(|wrong| match wrong {
        NoSuperblock::Unreadable(poison) => OpenError::Unreadable(poison),
        NoSuperblock::Broken(corrupt) => OpenError::NoSuperblock(corrupt),
    })?;
    match newest.superblock.read_only {
        true => Err(OpenError::ReadOnlyFeatures),
        false => Ok(newest.superblock),
    }
}

/// Looks whether the disk was written without its cache, which is `rebuilt`. If so, what is clean
/// is given up: unless something is dirty, and the options do not say that it goes to the disk all
/// the same. What is known of the disk from now on, and the first block that was another.
fn guarded<R: Region>(
    medium: &mut Medium<R>,
    superblock: &TrustedSuperblock,
    (disk, settled): (&dyn Backing, bool),
    options: &Options,
    rebuilt: &mut Rebuilt,
) -> Result<(FirstBlocks, Option<Lba>), OpenError> {
    match options.guard {
        Guard::Off => return Ok((FirstBlocks::default(), None)),
        Guard::AsLaidOut => {}
        Guard::Always | Guard::Forced => guard::begin(medium, superblock)?,
    }
    if !medium.plan.start_sums {
        return Ok((FirstBlocks::default(), None));
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
    Ok((FirstBlocks::of(medium.plan.start_blocks()), changed))
}

/// Elements that count, and were applied.
pub(crate) struct Applied {
    loaded: Loaded<EntryMove>,
    /// For each entry that they name, what the newest of them says.
    newest: BTreeMap<u32, EntryState>,
}

/// Applies the elements that count.
///
/// A killed process may have left cursors and entries visible that nobody flushed. What is done
/// here and later would rest on stores that a power cut can still take. So the cursors are made
/// durable before an element is applied, and by [`settle`] all entries before any is used.
pub(crate) fn apply_what_counts<R: Region>(medium: &Medium<R>) -> Result<Applied, OpenError> {
    let loaded = Loaded::begin(&medium.region, ring_plan(&medium.plan))?;
    let newest = scan::newest(&loaded, &medium.plan).map_err(Error::from)?;
    for (entry, newest) in &newest {
        let at = medium.plan.entry_at(*entry);
        // What cannot be read may not be stored to.
        let Ok(own) = medium.entry(*entry) else { continue };
        let own = own.check(&medium.plan).map_err(|broken| Error::from(corrupt(at, broken)))?;
        if let EntryState::Holds { lba, block, counter, clean } = scan::recovered(own, Some(newest))
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
    free_list: FreeList,
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
        scan::entries(&medium.region, plan, |entry, state| {
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
                    let state = if clean { BlockState::Clean } else { BlockState::Dirty };
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
        let free_list = FreeList::new(used.absent().skip(unreadable.len()), free.into_iter());
        Ok(Rebuilt { index, free_list, dirty, unreadable })
    }
}
