//! Lays out a fresh cache.
//!
//! 1. Both superblocks are wiped, the second first: what lay there before is whole until its first
//!    one goes.
//! 2. Cursors and entries are zeroed: every entry is free, no element counts.
//! 3. The superblocks are written, the second first. A cut before that leaves no cache; one in
//!    between leaves the new one.

use crate::open::scan::superblocks;
use tidegate_layout::disk_cache::{
    CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN, CURSORS_AT, CachePlan, Checksums, JournalPlan, LBA_BITS, RingElement,
    SUPERBLOCK_BYTES, SUPERBLOCK_COPIES_AT, Superblock, TrustedSuperblock,
};
use tidegate_media::{Contents, Poison, Region, Sealed};
use zerocopy::IntoBytes;

/// What to lay out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatSpec {
    /// Bytes in a block: a power of two from 512 to 65536.
    pub block_size: u32,
    /// Blocks of that size on the disk.
    pub disk_blocks: u64,
    /// Elements in the ring, a power of two from 4 on; a transaction takes at most half of them.
    pub ring_slots: u32,
    /// The cache's identity.
    pub uuid: [u8; 16],
    /// The disk's identity, in any form that tells disks apart.
    pub disk: [u8; 32],
}

impl FormatSpec {
    /// Elements of a ring of 1 MiB.
    pub const RING_SLOTS: u32 = 65536;

    /// Elements of the usual ring in a region of `region_bytes` bytes: [`FormatSpec::RING_SLOTS`],
    /// or as many as an eighth of a small region holds.
    pub fn ring_slots_in(region_bytes: u64) -> u32 {
        let fits = u32::try_from(region_bytes / RING_PARTS / ELEMENT_BYTES).unwrap_or(u32::MAX);
        FormatSpec::RING_SLOTS.min(1 << fits.max(1).ilog2())
    }
}

/// The usual ring takes at most one part in so many of a small region.
const RING_PARTS: u64 = 8;
/// Bytes in an element of the ring.
const ELEMENT_BYTES: u64 = size_of::<RingElement>() as u64;
/// Bytes of the largest write that is put in place as a whole.
const ATOMIC_BYTES_MAX: u32 = 1 << 20;

/// Why a region was not formatted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A block size the format does not have.
    #[error(
        "{0} is no block size of a cache: a power of two from {CACHE_BLOCK_BYTES_MIN} to {CACHE_BLOCK_BYTES_MAX} is"
    )]
    BlockSize(u32),
    /// A disk of no blocks, or of too many.
    #[error("a disk of {0} blocks cannot be cached: it takes 1 to 2^{LBA_BITS}")]
    DiskBlocks(u64),
    /// A ring that is no power of two, or too small.
    #[error("{0} elements make no ring: a power of two from {RING_SLOTS_MIN} on does")]
    RingSlots(u32),
    /// The region has no room for the least cache.
    #[error("{has} bytes are too few for a cache of {BLOCKS_MIN} blocks, which takes {min}")]
    TooSmall {
        /// Bytes in the region.
        has: u64,
        /// Bytes of the smallest region with such a ring.
        min: u64,
    },
    /// The ring lies where no cache of this program has it, and cannot be moved.
    #[error("the ring lies at byte {at}, and cannot be moved")]
    RingElsewhere {
        /// Where it begins.
        at: u64,
    },
    /// The disk's journal is too small for the cache.
    #[error("a journal for {journal} blocks is too small for a cache of {blocks}")]
    Journal {
        /// Blocks that the journal has room for.
        journal: u32,
        /// Blocks that the cache would have.
        blocks: u32,
    },
    /// The medium refused a store; the region holds no cache now.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}

/// Blocks of the least cache: a transaction of two needs two free ones.
pub(crate) const BLOCKS_MIN: u32 = 4;
const RING_SLOTS_MIN: u32 = 4;
/// Regions are made of whole pages.
const PAGE_BYTES: u64 = 4096;

/// What a region says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cache's identity.
    pub uuid: [u8; 16],
    /// The disk's identity, as given to [`format()`].
    pub disk: [u8; 32],
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks that the cache holds.
    pub blocks: u32,
    /// Blocks of the disk.
    pub disk_blocks: u64,
    /// Elements in the ring.
    pub ring_slots: u32,
    /// Superblocks written so far.
    pub sequence: u64,
    /// Whether there is a checksum of each block.
    pub sums: Checksums,
    /// Blocks that the journal behind the disk's blocks has room for; 0: the disk does not keep the
    /// order of commits.
    pub journal_blocks: u32,
}

impl Identity {
    /// The journal behind the disk's blocks, if there is one.
    pub fn journal(&self) -> Option<JournalPlan> {
        let Identity { block_size, disk_blocks, journal_blocks: capacity, .. } = *self;
        (capacity > 0).then_some(JournalPlan { block_size, disk_blocks, capacity })
    }

    /// Blocks of the largest transaction.
    pub fn transaction_blocks_max(&self) -> u32 {
        (self.ring_slots / 2).min(self.blocks / 2)
    }

    /// Blocks of the largest write that is put in place as a whole.
    pub fn atomic_blocks(&self) -> u32 {
        (ATOMIC_BYTES_MAX / self.block_size).min(self.transaction_blocks_max())
    }
}

impl From<&TrustedSuperblock> for Identity {
    fn from(superblock: &TrustedSuperblock) -> Identity {
        let TrustedSuperblock { plan, uuid, disk, sequence, .. } = *superblock;
        let CachePlan { block_size, blocks, disk_blocks, ring_slots, journal_blocks, .. } = plan;
        let sums = plan.sums();
        Identity { uuid, disk, block_size, blocks, disk_blocks, ring_slots, sequence, sums, journal_blocks }
    }
}

/// What lies on `region`, if it is a cache. Reads the superblocks only; `Err` if both are
/// unreadable.
pub fn identify<R: Region + ?Sized>(region: &R) -> Result<Option<Identity>, Poison> {
    if region.len() < CURSORS_AT {
        return Ok(None);
    }
    match superblocks(region) {
        Ok(newest) => Ok(Some(Identity::from(&newest.superblock))),
        Err(crate::open::scan::NoSuperblock::Unreadable(poison)) => Err(poison),
        Err(crate::open::scan::NoSuperblock::Broken(_)) => Ok(None),
    }
}

/// How many blocks [`format()`] finds room for.
pub fn blocks_in(region_bytes: u64, block_size: u32, ring_slots: u32) -> Option<u32> {
    CachePlan::fitting(region_bytes, block_size, 1, ring_slots).map(|plan| plan.blocks)
}

/// Lays out a fresh cache over all of `region`, without checksums. What lay there is gone.
pub fn format<R: Region + ?Sized>(region: &R, spec: &FormatSpec, contents: Contents) -> Result<(), FormatError> {
    format_with(Checksums::Absent, region, spec, contents)
}

/// Lays out a fresh cache over all of `region`, with or without checksums. Older contents are gone.
pub fn format_with<R: Region + ?Sized>(
    sums: Checksums,
    region: &R,
    spec: &FormatSpec,
    contents: Contents,
) -> Result<(), FormatError> {
    lay_out(&plan(sums, region.len(), spec)?, region, spec, contents)
}

/// Lays out a fresh cache that keeps the order of commits on its disk, by the journal for up to
/// `journal_blocks` that [`lay_out_journal`](crate::lay_out_journal) has laid out there:
/// [`FormatSpec::disk_blocks`] are those before it.
pub fn format_ordered<R: Region + ?Sized>(
    journal_blocks: u32,
    sums: Checksums,
    region: &R,
    spec: &FormatSpec,
    contents: Contents,
) -> Result<(), FormatError> {
    let plan = plan(sums, region.len(), spec)?;
    lay_out(&with_journal(plan, journal_blocks)?, region, spec, contents)
}

/// `plan` with a journal for up to `journal_blocks` behind the disk's blocks.
pub(crate) fn with_journal(plan: CachePlan, journal_blocks: u32) -> Result<CachePlan, FormatError> {
    match journal_blocks < plan.blocks {
        true => Err(FormatError::Journal { journal: journal_blocks, blocks: plan.blocks }),
        false => Ok(plan.ordered(journal_blocks)),
    }
}

fn lay_out<R: Region + ?Sized>(
    plan: &CachePlan,
    region: &R,
    spec: &FormatSpec,
    contents: Contents,
) -> Result<(), FormatError> {
    for at in SUPERBLOCK_COPIES_AT.into_iter().rev() {
        region.stream(at, &ZEROES);
        region.fence()?;
    }
    if contents == Contents::Unknown {
        zero(region, CURSORS_AT, plan.ring_at - CURSORS_AT);
        zero(region, plan.entries_at, plan.data_at - plan.entries_at);
        region.fence()?;
    }
    let superblock = Superblock::new(plan, spec.uuid, spec.disk, 1);
    for at in SUPERBLOCK_COPIES_AT.into_iter().rev() {
        region.stream(at, superblock.as_bytes());
        region.fence()?;
    }
    Ok(())
}

const ZEROES: [u8; 4096] = [0; 4096];
const _: () = assert!(ZEROES.len() as u64 == SUPERBLOCK_BYTES);

fn plan(sums: Checksums, region_bytes: u64, spec: &FormatSpec) -> Result<CachePlan, FormatError> {
    let FormatSpec { block_size, disk_blocks, ring_slots, .. } = *spec;
    if !block_size.is_power_of_two() || !(CACHE_BLOCK_BYTES_MIN..=CACHE_BLOCK_BYTES_MAX).contains(&block_size) {
        return Err(FormatError::BlockSize(block_size));
    }
    if !(1..=1 << LBA_BITS).contains(&disk_blocks) {
        return Err(FormatError::DiskBlocks(disk_blocks));
    }
    if !ring_slots.is_power_of_two() || ring_slots < RING_SLOTS_MIN {
        return Err(FormatError::RingSlots(ring_slots));
    }
    fitting(sums, region_bytes, spec)
}

/// The largest cache of the form that `spec` describes in a region of `region_bytes`.
pub(crate) fn fitting(sums: Checksums, region_bytes: u64, spec: &FormatSpec) -> Result<CachePlan, FormatError> {
    let FormatSpec { block_size, disk_blocks, ring_slots, .. } = *spec;
    let plan = CachePlan::fitting_with(sums, region_bytes, block_size, disk_blocks, ring_slots);
    let min = || CachePlan::cut_with(sums, BLOCKS_MIN, block_size, disk_blocks, ring_slots).end();
    plan.filter(|plan| plan.blocks >= BLOCKS_MIN)
        .ok_or_else(|| FormatError::TooSmall { has: region_bytes, min: min().next_multiple_of(PAGE_BYTES) })
}

fn zero<R: Region + ?Sized>(region: &R, at: u64, bytes: u64) {
    for start in (at..at + bytes).step_by(ZEROES.len()) {
        let len = usize::try_from((at + bytes - start).min(SUPERBLOCK_BYTES)).expect("at most a page");
        region.stream(start, &ZEROES[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_rings_are_powers_of_two_and_leave_most_of_a_region_to_blocks() {
        for mib in [1, 2, 3, 7, 64, 1000, 1 << 20] {
            let slots = FormatSpec::ring_slots_in(mib << 20);
            assert!(slots.is_power_of_two() && u64::from(slots) * ELEMENT_BYTES * RING_PARTS <= mib << 20, "{mib}");
        }
        assert_eq!(FormatSpec::ring_slots_in(1 << 30), FormatSpec::RING_SLOTS);
    }
}
