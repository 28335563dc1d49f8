//! Fresh pools, and what pools say of themselves.
//!
//! A pool is laid out so: both superblocks are zeroed; then the cursors of the namespace log, and
//! the cursors, records and entries of each lane; a fence; then the superblocks are written, one
//! after the other, each with a fence. So a region with a superblock is whole.

use crate::error::FileError;
use tidegate_layout::disk_cache::SUPERBLOCK_COPIES_AT;
use tidegate_layout::file_cache::{
    LanePlan, NAMESPACE_LINES_MIN, PoolContents, PoolPlan, PoolSuperblock, TrustedPool, VOLATILE_BLOCK_BYTES,
    VolatilePlan,
};
use tidegate_media::{Corrupt, Error, Poison, Region, Sealed};
use tidegate_wal::corrupt;
use zerocopy::{FromZeros, IntoBytes};

/// What a fresh pool is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// The pool's identity.
    pub uuid: [u8; 16],
    /// Lanes: processes that can use the pool at a time.
    pub lanes: u32,
    /// Files that a lane can hold at a time.
    pub files: u32,
    /// Elements in a lane's ring, a power of two from 4 on: a commit takes at most half of them.
    pub ring_slots: u32,
    /// One entry for so many bytes of a lane's blocks.
    pub bytes_per_entry: u32,
    /// Lines of 64 bytes in the ring of the namespace log, from 4096 on; 0: no such log.
    pub namespace_lines: u32,
}

impl PoolSpec {
    /// One lane for 256 files, commits of up to 16,384 blocks, an entry for each 4 KiB, a namespace
    /// log of 4 MiB.
    pub fn usual(uuid: [u8; 16]) -> PoolSpec {
        PoolSpec { uuid, lanes: 1, files: 256, ring_slots: 1 << 15, bytes_per_entry: 4096, namespace_lines: 1 << 16 }
    }
}

/// Why a region takes no pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolFormatError {
    /// A ring that is no power of two, or too small.
    #[error("{0} elements make no ring: a power of two from 4 on does")]
    RingSlots(u32),
    /// A namespace log without room for its largest record.
    #[error("{0} lines make no namespace log: none, or at least {NAMESPACE_LINES_MIN} do")]
    NamespaceLines(u32),
    /// Not a single chunk fits into each lane.
    #[error("{len} bytes are too few for {lanes} lanes of at least 1 MiB each, their records and rings")]
    TooSmall {
        /// Bytes in the region.
        len: u64,
        /// Lanes asked for.
        lanes: u32,
    },
    /// The region refused a store.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}

/// Why a lane cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolOpenError {
    /// Neither superblock counts.
    #[error("there is no pool for files: {0}")]
    NoPool(Corrupt),
    /// Another version of this program laid it out.
    #[error("the pool's format has version {version}, which this program does not know")]
    OtherVersion {
        /// The version found.
        version: u32,
    },
    /// The pool has no such lane.
    #[error("the pool has {lanes} lanes, and lane {lane} was asked for")]
    NoLane {
        /// The lane asked for.
        lane: u32,
        /// Lanes there are.
        lanes: u32,
    },
    /// The pool has features that this program may not write.
    #[error("the pool has features that this program may only read")]
    ReadOnlyFeatures,
    /// The memory.
    #[error(transparent)]
    Memory(#[from] Error),
    /// What the lane holds cannot be taken over.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<Sealed> for PoolOpenError {
    fn from(sealed: Sealed) -> PoolOpenError {
        PoolOpenError::Memory(sealed.into())
    }
}

impl From<Poison> for PoolOpenError {
    fn from(poison: Poison) -> PoolOpenError {
        PoolOpenError::Memory(poison.into())
    }
}

/// Lays out a fresh pool on the whole of `region`. Whatever lies there is gone.
pub fn format<R: Region + ?Sized>(region: &R, spec: &PoolSpec) -> Result<(), PoolFormatError> {
    let PoolSpec { uuid, lanes, files, ring_slots, bytes_per_entry, namespace_lines } = *spec;
    if !ring_slots.is_power_of_two() || ring_slots < 4 {
        return Err(PoolFormatError::RingSlots(ring_slots));
    }
    if (1..NAMESPACE_LINES_MIN).contains(&namespace_lines) {
        return Err(PoolFormatError::NamespaceLines(namespace_lines));
    }
    let too_small = PoolFormatError::TooSmall { len: region.len(), lanes };
    let plan = PoolPlan::fitting(region.len(), lanes, files, ring_slots, bytes_per_entry, namespace_lines);
    let plan = plan.ok_or(too_small)?;
    for at in SUPERBLOCK_COPIES_AT {
        zero(region, at, size_of::<PoolSuperblock>() as u64);
    }
    region.fence()?;
    if let Some(log) = plan.namespace() {
        // Records carry their places and checksums: the ring may hold anything.
        zero(region, log.cursors_at, 64);
    }
    for lane in (0..lanes).map(|lane| plan.lane(lane)) {
        zero(region, lane.cursors_at, 64);
        zero(region, lane.record_at(0), lane.chunks_at() - lane.record_at(0));
    }
    region.fence()?;
    let superblock = PoolSuperblock::new(&plan, uuid, 1);
    for at in SUPERBLOCK_COPIES_AT {
        region.write(at, superblock.as_bytes());
        region.flush(at, size_of::<PoolSuperblock>() as u64);
        region.fence()?;
    }
    Ok(())
}

/// Has the pool say, durably, that it may hold `contents`, in both superblocks: a program that does
/// not know these refuses it then. Until both say so, the pool is as it was for such a program, and
/// may hold no such thing. A copy that does not count is written first, so that one counts at any
/// time.
pub(crate) fn allow<R: Region + ?Sized>(region: &R, contents: PoolContents) -> Result<(), Error> {
    let copies = superblock_copies(region)?;
    let newest = copies.iter().flatten().max_by_key(|copy| copy.sequence).copied();
    let Some(TrustedPool { plan, uuid, sequence, .. }) = newest else {
        let [first, _] = copies;
        return first.map(drop).map_err(Error::from);
    };
    let says_so = |copy: &Result<TrustedPool, Corrupt>| copy.as_ref().is_ok_and(|copy| copy.contents >= contents);
    if copies.iter().all(says_so) {
        return Ok(());
    }
    let superblock = PoolSuperblock::holding(contents, &plan, uuid, sequence + 1);
    let mut order: Vec<_> = SUPERBLOCK_COPIES_AT.into_iter().zip(copies).collect();
    order.sort_by_key(|(_, copy)| copy.is_ok());
    for (at, _) in order {
        region.write(at, superblock.as_bytes());
        region.flush(at, size_of::<PoolSuperblock>() as u64);
        region.fence()?;
    }
    Ok(())
}

fn zero<R: Region + ?Sized>(region: &R, at: u64, len: u64) {
    let zeroes = [0; 4096];
    for offset in (0..len).step_by(zeroes.len()) {
        let bytes = usize::try_from(len - offset).unwrap_or(usize::MAX).min(zeroes.len());
        region.stream(at + offset, &zeroes[..bytes]);
    }
}

/// What the newest good superblock says.
pub fn identify<R: Region + ?Sized>(region: &R) -> Result<TrustedPool, PoolOpenError> {
    match superblock_copies(region)? {
        [Ok(first), Ok(second)] => Ok(if second.sequence > first.sequence { second } else { first }),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(first), Err(_)] => match other_version(region)? {
            Some(version) => Err(PoolOpenError::OtherVersion { version }),
            None => Err(PoolOpenError::NoPool(first)),
        },
    }
}

/// The version of a superblock that another version of this program wrote.
fn other_version<R: Region + ?Sized>(region: &R) -> Result<Option<u32>, Poison> {
    for at in SUPERBLOCK_COPIES_AT {
        if let Some(version) = raw_superblock(region, at)?.other_version() {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

fn raw_superblock<R: Region + ?Sized>(region: &R, at: u64) -> Result<PoolSuperblock, Poison> {
    let mut raw = PoolSuperblock::new_zeroed();
    if region.len() >= at + size_of::<PoolSuperblock>() as u64 {
        region.read(at, raw.as_mut_bytes())?;
    }
    Ok(raw)
}

/// Both copies of the superblock, each as it is or with the rule that it breaks.
pub(super) fn superblock_copies<R: Region + ?Sized>(region: &R) -> Result<[Result<TrustedPool, Corrupt>; 2], Poison> {
    let copy = |at| Ok(raw_superblock(region, at)?.check(region.len()).map_err(|broken| corrupt(at, broken)));
    let [first, second] = SUPERBLOCK_COPIES_AT;
    Ok([copy(first)?, copy(second)?])
}

/// Where a lane's parts lie.
pub(crate) fn lane_plan<R: Region + ?Sized>(region: &R, lane: u32) -> Result<LanePlan, PoolOpenError> {
    let pool = identify(region)?;
    if pool.read_only {
        return Err(PoolOpenError::ReadOnlyFeatures);
    }
    if lane >= pool.plan.lanes {
        return Err(PoolOpenError::NoLane { lane, lanes: pool.plan.lanes });
    }
    Ok(pool.plan.lane(lane))
}

/// Bytes of shared memory that each lane of the pool on `region` wants, so that the blocks of all
/// lanes have as many bytes as `data_bytes` has room for, and never more.
pub fn dram_bytes<R: Region + ?Sized>(region: &R, data_bytes: u64) -> Result<u64, PoolOpenError> {
    let PoolPlan { files, lanes, .. } = identify(region)?.plan;
    let blocks = data_bytes / u64::from(lanes) / VOLATILE_BLOCK_BYTES;
    Ok(VolatilePlan { files, blocks: u32::try_from(blocks).unwrap_or(u32::MAX) }.bytes())
}

/// The lane breaks a rule that no single record or entry can keep.
pub(crate) fn broken_rule(at: u64, rule: &'static str) -> PoolOpenError {
    PoolOpenError::Memory(Corrupt { rule, at, found: "another".to_owned() }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::SharedMemory;

    #[test]
    fn contents_are_allowed_in_both_superblocks_whatever_one_of_them_was() {
        for spoilt in [None, Some(0), Some(1)] {
            let region = SharedMemory::new(16 << 20);
            format(&region, &PoolSpec::usual([7; 16])).expect("laid out");
            let before = identify(&region).expect("a pool");
            if let Some(copy) = spoilt {
                region.write(SUPERBLOCK_COPIES_AT[copy], &[0xa5; 256]);
            }
            let steps = [(PoolContents::Leases, 2), (PoolContents::Leases, 2), (PoolContents::TimePages, 3)];
            for (contents, sequence) in steps {
                allow(&region, contents).expect("nothing refuses");
                let copies = superblock_copies(&region).expect("nothing refuses").map(|copy| copy.expect("it counts"));
                let wanted = TrustedPool { sequence, contents, ..before };
                assert_eq!(copies, [wanted; 2], "{spoilt:?}");
            }
            allow(&region, PoolContents::Leases).expect("nothing refuses");
            assert_eq!(identify(&region).expect("a pool").contents, PoolContents::TimePages, "it stays so");
        }
        let none = SharedMemory::new(1 << 16);
        assert!(matches!(allow(&none, PoolContents::Leases), Err(Error::Corrupt(_))));
    }
}
