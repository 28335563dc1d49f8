//! The decision in which tier each block of a file lies, with its reason.
//!
//! The caller has the blocks: an index from pages of files to slots, and what is dirty. Slots of
//! both tiers are numbered together ([`TierSlots`]). It announces each request
//! ([`Placement::begin`]), asks about each page that the request touches ([`Placement::place`]),
//! and reports what it did ([`Placement::insert`], [`Placement::remove`]). If a tier is full, it
//! asks for a victim ([`Placement::evict`]); between requests it asks for work in the background
//! ([`Placement::work`]), one bounded step at a time.
//!
//! - LRU: one list over both tiers.
//! - Cheetah: by synchronicity, and by the temperature of extents.
//! - UHNVM: by the access pattern of the program context.
//! - Tidegate: by how soon a block is used again, told by its context and by its own past.
//!
//! Memory is bounded: none allocates after it was made but for a table of extents of a fixed
//! capacity. [`NamedPlacement::bytes_per_slot`] and [`NamedPlacement::bytes_of_contexts`] say how
//! much.

mod by_name;
mod bypass;
mod cheetah;
mod contexts;
mod extents;
mod lru;
#[cfg(test)]
mod tests;
mod touches;
mod uhnvm;
mod worth;

pub use by_name::{NamedPlacement, UnknownPlacement};
pub use bypass::{BadGlob, Bypass};
pub use contexts::{AccessPattern, LearntPattern};

use crate::evict::mixed;
use std::fmt;
use std::ops::Range;

/// Bytes of a page, and of a slot.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of an extent.
pub const EXTENT_BYTES: u64 = 1 << 20;

/// Bytes of the line in which Optane stores.
pub const LINE_BYTES: u32 = 256;

/// A kind of memory that caches blocks of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Volatile memory.
    Dram,
    /// Persistent memory.
    Nvm,
}

/// How many slots each tier has. Slots of DRAM are numbered from 0, those of NVM after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierSlots {
    /// Slots in DRAM.
    pub dram: u32,
    /// Slots in NVM.
    pub nvm: u32,
}

impl TierSlots {
    /// Returns the number of slots of both tiers.
    pub fn all(self) -> u32 {
        self.dram + self.nvm
    }

    /// Returns the number of slots of `tier`.
    pub fn of(self, tier: Tier) -> u32 {
        match tier {
            Tier::Dram => self.dram,
            Tier::Nvm => self.nvm,
        }
    }

    /// Returns the tier of `slot`.
    pub fn tier(self, slot: u32) -> Tier {
        if slot < self.dram { Tier::Dram } else { Tier::Nvm }
    }
}

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// A read.
    Read,
    /// A write that a power loss may take.
    Write,
    /// A write that has to survive a power loss before it is answered.
    SyncWrite,
}

/// A read or write of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRequest {
    /// The file's number.
    pub file: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is; not 0.
    pub bytes: u32,
    /// What it asks for.
    pub kind: IoKind,
    /// The program context.
    pub context: u64,
    /// The time since some beginning, which never goes back.
    pub now_ms: u64,
}

impl IoRequest {
    /// Returns the pages it touches, with the bytes of each that it covers.
    pub fn pages(&self) -> impl Iterator<Item = (FilePage, u32)> + use<> {
        let (file, offset, end) = (self.file, self.offset, self.offset + u64::from(self.bytes));
        (offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |page| {
            let covered = end.min((page + 1) * PAGE_BYTES) - offset.max(page * PAGE_BYTES);
            (FilePage { file, page }, u32::try_from(covered).expect("at most a page"))
        })
    }
}

/// A page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePage {
    /// The file's number.
    pub file: u64,
    /// The page's number in the file.
    pub page: u64,
}

impl FilePage {
    /// Returns the extent that the page lies in.
    pub fn extent(self) -> FileExtent {
        FileExtent { file: self.file, extent: self.page / (EXTENT_BYTES / PAGE_BYTES) }
    }

    /// Returns a number that each bit of the page's name decides about.
    fn hash(self) -> u64 {
        mixed(self.page ^ mixed(self.file))
    }
}

/// An extent of a file: 1 MiB, aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileExtent {
    /// The file's number.
    pub file: u64,
    /// The extent's number in the file.
    pub extent: u64,
}

impl FileExtent {
    /// Returns the bytes of the file that the extent has.
    pub fn bytes(self) -> Range<u64> {
        self.extent * EXTENT_BYTES..(self.extent + 1) * EXTENT_BYTES
    }

    /// Returns the pages of the extent.
    pub fn pages(self) -> impl Iterator<Item = FilePage> {
        let pages = EXTENT_BYTES / PAGE_BYTES;
        let file = self.file;
        (self.extent * pages..(self.extent + 1) * pages).map(move |page| FilePage { file, page })
    }
}

/// Slots without a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSlots {
    /// In DRAM.
    pub dram: u32,
    /// In NVM.
    pub nvm: u32,
}

impl FreeSlots {
    /// Returns how many `tier` has.
    pub fn of(self, tier: Tier) -> u32 {
        match tier {
            Tier::Dram => self.dram,
            Tier::Nvm => self.nvm,
        }
    }
}

/// Where a block that is accessed shall lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Where it is.
    Stay(Reason),
    /// In DRAM.
    ToDram(Reason),
    /// In NVM.
    ToNvm(Reason),
    /// In the file below alone: a cached block is written back, if it is dirty, and dropped.
    Below(Reason),
}

impl Decision {
    /// Returns the decision for `tier`.
    pub fn to(tier: Tier, reason: Reason) -> Decision {
        match tier {
            Tier::Dram => Decision::ToDram(reason),
            Tier::Nvm => Decision::ToNvm(reason),
        }
    }

    /// Returns why it was taken.
    pub fn reason(self) -> Reason {
        match self {
            Decision::Stay(reason) | Decision::ToDram(reason) | Decision::ToNvm(reason) | Decision::Below(reason) => {
                reason
            }
        }
    }
}

/// Why a block lies where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It was cached already, and nothing speaks for another tier.
    Cached,
    /// A tier had a free slot.
    FreeSlot,
    /// It replaces the block that was not used for the longest time.
    UsedLast,
    /// It was written and has to survive a power loss.
    Synchronous,
    /// It was written and need not survive a power loss.
    Asynchronous,
    /// It was read from the file below.
    ReadBelow,
    /// The temperature of its extent reached the threshold.
    Hot,
    /// The temperature of its extent is below the threshold, and room was needed.
    Cold,
    /// Its program context reads or writes so.
    Pattern(AccessPattern),
    /// It will be used sooner than the block it replaces.
    SoonerUsed,
    /// Every cached block will be used sooner, or as soon.
    LaterUsed,
    /// A rival's rule, of which it tells no more.
    Rule,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Cached => "it was cached there",
            Reason::FreeSlot => "the tier had room",
            Reason::UsedLast => "it was used last",
            Reason::Synchronous => "its write was synchronous",
            Reason::Asynchronous => "its write was asynchronous",
            Reason::ReadBelow => "it was read from the file below",
            Reason::Hot => "its extent is hot",
            Reason::Cold => "its extent is cold",
            Reason::Pattern(pattern) => return write!(f, "its program context is {pattern}"),
            Reason::SoonerUsed => "it is expected to be used sooner than the block it replaced",
            Reason::LaterUsed => "every cached block is expected to be used as soon",
            Reason::Rule => "the rule of the placement",
        })
    }
}

/// What a slot's block allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The file below has it too.
    Clean,
    /// The file below has an older one.
    Dirty,
    /// It may not go at this moment.
    Pinned,
}

/// A block that makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The slot, which the placement has forgotten.
    pub slot: u32,
    /// Why this one.
    pub reason: Reason,
}

/// A step in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The extent's cached blocks in `from` leave it: those of DRAM to NVM, those of NVM to the
    /// file below.
    Reclaim {
        /// The extent.
        extent: FileExtent,
        /// The tier that needs room.
        from: Tier,
        /// Why this one.
        reason: Reason,
    },
    /// The extent's blocks in NVM move to DRAM, as far as that has free slots.
    Migrate {
        /// The extent.
        extent: FileExtent,
        /// Why this one.
        reason: Reason,
    },
}

/// Chooses tiers for blocks, and victims among them.
///
/// A block that moves is inserted at its new slot before it is removed from the old one. A block of
/// NVM that the file below lacks is written back before it moves to DRAM: a power loss would take a
/// write that was to survive.
pub trait Placement: Send {
    /// A request begins; its pages are asked about next.
    fn begin(&mut self, request: &IoRequest);

    /// Decides about a page of the request that began last; `slot` has it at the moment. A decision
    /// for a tier without a free slot counts on [`Placement::evict`].
    fn place(&mut self, request: &IoRequest, page: FilePage, slot: Option<u32>, free: FreeSlots) -> Decision;

    /// `slot`, not known until now, has `page` from now on.
    fn insert(&mut self, slot: u32, page: FilePage);

    /// What is inserted next was used last by a program of this context. Nothing is learnt from
    /// that, and nothing is placed until the next request begins.
    fn resume(&mut self, _context: u64) {}

    /// `slot` has no block any more, for another reason than an eviction.
    fn remove(&mut self, slot: u32);

    /// Chooses a block of `tier` that `condition` does not pin, and forgets it.
    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction>;

    /// The next step in the background, or None if there is nothing to do. Most have none.
    fn work(&mut self, _free: FreeSlots) -> Option<Work> {
        None
    }

    /// How programs of a context read and write; None: this placement does not ask, or has not seen
    /// the context lately.
    fn pattern(&self, _context: u64) -> Option<AccessPattern> {
        None
    }

    /// What is known of contexts, the one used last first; for a placement over as many slots.
    fn known_contexts(&self) -> Vec<LearntPattern> {
        Vec::new()
    }

    /// Takes over what an earlier placement knew of contexts. What cannot be is left out.
    fn take_over(&mut self, _known: &[LearntPattern]) {}

    /// How hot an extent is, if this placement measures that.
    fn temperature(&self, _extent: FileExtent) -> Option<f64> {
        None
    }

    /// The bytes of NVM that are read or written, whole, for `bytes` of one page: at least as many.
    /// Where blocks have no sizes of their own, these are the memory's lines.
    fn nvm_bytes(&self, bytes: u32) -> u32 {
        bytes.next_multiple_of(LINE_BYTES)
    }
}
