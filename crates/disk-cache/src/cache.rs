//! The cache itself: its parts, its options, and its figures.

use crate::commit::committer::Committer;
use crate::commit::conflicts::Conflicts;
use crate::counters::{Counters, UnlockedCounts};
use crate::destage::destager::Destager;
use crate::free_list::FreeList;
use crate::index::Index;
use crate::mode::Mode;
use crate::open::format::Identity;
use crate::open::guard::Guard;
use crate::open::poisoned_entries::PoisonedEntries;
use crate::read::reader::{Reader, Reads};
use crate::region_io::Medium;
use std::sync::Arc;
use tidegate_media::sync::{AtomicU32, AtomicU64, Ordering};
use tidegate_media::{Backing, Geometry, Lba, Region};
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;

/// A disk behind a cache in persistent memory.
pub struct DiskCache<R> {
    pub(crate) medium: Medium<R>,
    pub(crate) disk: Arc<dyn Backing>,
    pub(crate) geometry: Geometry,
    /// Blocks of the disk in one of the cache.
    pub(crate) disk_blocks_each: u64,
    pub(crate) table: BlockTable,
    pub(crate) committer: Committer,
    pub(crate) reader: Reader,
    pub(crate) destager: Destager,
    pub(crate) mode: AtomicU32,
    pub(crate) tally: UnlockedCounts,
    pub(crate) found: AsOpened,
}

/// The findings of an opening, on the region and the disk.
pub(crate) struct AsOpened {
    pub(crate) identity: Identity,
    /// Entries that the region does not give back.
    pub(crate) poisoned: PoisonedEntries,
    /// A block of the disk that held something else than the cache had left there.
    pub(crate) changed: Option<Lba>,
}

/// The blocks that are cached, and those that are free.
pub(crate) struct BlockTable {
    pub(crate) index: Index,
    pub(crate) free_list: FreeList,
    /// How many blocks are dirty.
    pub(crate) dirty: AtomicU64,
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
    /// Reads that are part of a run of more blocks than this bring nothing in; 0: no run is too
    /// long.
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

/// How full a cache is, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
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
    /// What the superblock says.
    pub fn identity(&self) -> Identity {
        self.found.identity
    }

    /// A block of the disk that somebody had written without the cache when it was opened, if one
    /// was found. What was clean was given up then.
    pub fn changed(&self) -> Option<Lba> {
        self.found.changed
    }

    /// Entries that could not be read when the cache was opened. Their blocks read as the disk has
    /// them.
    pub fn lost(&self) -> &PoisonedEntries {
        &self.found.poisoned
    }

    /// Blocks of the largest transaction.
    pub fn transaction_blocks_max(&self) -> u32 {
        self.found.identity.transaction_blocks_max().min(self.usable_blocks() / 2).max(1)
    }

    /// Blocks that entries can be found for: one less for each entry that cannot be read.
    pub(crate) fn usable_blocks(&self) -> u32 {
        self.found.poisoned.leave_of(self.found.identity.blocks)
    }

    /// How full the cache is: exact while nothing is going on.
    pub fn fill(&self) -> Occupancy {
        let (mut cached, mut dirty, mut kept) = (0, 0, 0);
        for stripe in 0..self.table.index.stripes() {
            let [cached_here, dirty_here, kept_here] = self.table.index.lock(stripe).fill();
            cached += cached_here;
            dirty += dirty_here;
            kept += kept_here;
        }
        let free = u32::try_from(self.table.free_list.free_blocks()).expect("fewer than there are blocks");
        Occupancy { blocks: self.medium.plan.blocks, clean: cached - dirty, dirty, free, kept }
    }

    /// Blocks that only the cache has.
    pub fn dirty_blocks(&self) -> u64 {
        self.table.dirty.load(Ordering::Relaxed)
    }

    /// The blocks that only the cache has, ascending.
    pub fn dirty_lbas(&self) -> Vec<Lba> {
        let mut lbas = Vec::new();
        for stripe in 0..self.table.index.stripes() {
            lbas.extend(self.table.index.lock(stripe).all_dirty().map(Lba));
        }
        lbas.sort_unstable();
        lbas
    }

    /// The cached blocks that the disk has too, ascending.
    pub fn clean_lbas(&self) -> Vec<Lba> {
        let stripes = (0..self.table.index.stripes()).map(|stripe| self.table.index.lock(stripe));
        let mut lbas: Vec<Lba> = stripes.flat_map(|stripe| stripe.all_clean().map(Lba).collect::<Vec<_>>()).collect();
        lbas.sort_unstable();
        lbas
    }

    /// What was done since the cache was opened.
    pub fn counters(&self) -> Counters {
        self.tally.counters(&self.table.index)
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
