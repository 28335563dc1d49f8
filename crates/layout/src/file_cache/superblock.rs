//! The superblock, and where everything lies.

use crate::disk_cache::{SUPERBLOCK_BYTES, SUPERBLOCK_COPIES_AT};
use crate::file_cache::entry::{CHUNK_BYTES, Class, FileElement, FileEntry, UNIT_BYTES, UNITS_PER_CHUNK};
use crate::file_cache::namespace::{NAMESPACE_LINES_MIN, NamespacePlan};
use crate::file_cache::record::FileRecord;
use crate::on_media::{Broken, on_media, rule};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The first bytes of a superblock.
const FILE_POOL_MAGIC: [u8; 16] = *b"tidegate-nvfiles";

/// The version of a fresh pool. Version 1 had records of 1024 bytes and no clean entries, version 2
/// no times of modification.
const VERSION: u32 = 3;

/// What a pool may hold beside files. A program that does not know it refuses the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolContents {
    /// Nothing: a fresh pool.
    Files,
    /// Leases: their logs, and chunks that are lent to them.
    Leases,
    /// Time pages of mapped files, and leases.
    TimePages,
}

impl PoolContents {
    const ALL: [PoolContents; 3] = [PoolContents::Files, PoolContents::Leases, PoolContents::TimePages];

    /// The version of a pool that may hold this.
    fn version(self) -> u32 {
        match self {
            PoolContents::Files => VERSION,
            PoolContents::Leases => 4,
            PoolContents::TimePages => 5,
        }
    }
}

/// Chunks of the largest lane: so many that every unit has a number.
const CHUNKS_MAX: u32 = u32::MAX / UNITS_PER_CHUNK;

/// Where the namespace log lies, or the first lane of a pool without one.
const NAMESPACE_AT: u64 = SUPERBLOCK_COPIES_AT[1] + SUPERBLOCK_BYTES;

/// Where a lane's ring lies, from the lane's beginning.
const RING_IN_LANE: u64 = 4096;

/// Lanes, chunks and the first chunk of each lane begin at multiples of this.
const ALIGNMENT: u64 = 4096;

on_media! {
    /// What the pool is and where its parts lie; of two copies the one with the greater sequence
    /// counts. Reserved bytes are zero.
    pub struct PoolSuperblock [256] {
        /// `tidegate-nvfiles`
        0: magic: [u8; 16],
        /// the pool's own identity
        16: uuid: [u8; 16],
        /// one more with each superblock written
        32: sequence: U64,
        /// 3; 4 if a file was ever lent; 5 if one was ever mapped
        40: version: U32,
        /// features that a reader may ignore
        44: compat: U32,
        /// features without which nothing may be written
        48: ro_compat: U32,
        /// features without which nothing may be read
        52: incompat: U32,
        /// lanes
        56: lanes: U32,
        /// records in a lane
        60: files: U32,
        /// entries in a lane
        64: entries: U32,
        /// elements in a lane's ring, a power of two
        68: ring_slots: U32,
        /// chunks of 1 MiB in a lane
        72: chunks: U32,
        /// lines of 64 bytes in the ring of the namespace log; 0: the pool has no such log
        76: namespace_lines: U32,
        /// zero
        80: reserved: [u8; 172],
        /// CRC-32C of the first 252 bytes
        252: checksum: U32,
    }
}

/// How a pool is divided. Where its parts lie follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Lanes.
    pub lanes: u32,
    /// Records in each lane.
    pub files: u32,
    /// Entries in each lane.
    pub entries: u32,
    /// Elements in each lane's ring.
    pub ring_slots: u32,
    /// Chunks in each lane.
    pub chunks: u32,
    /// Lines in the ring of the namespace log; 0 without one.
    pub namespace_lines: u32,
}

/// Where the parts of a lane lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePlan {
    /// Where its cursors lie.
    pub cursors_at: u64,
    /// Where its ring lies.
    pub ring_at: u64,
    /// Elements in its ring.
    pub ring_slots: u32,
    /// Records.
    pub files: u32,
    /// Entries.
    pub entries: u32,
    /// Chunks.
    pub chunks: u32,
    records_at: u64,
    entries_at: u64,
    chunks_at: u64,
}

/// A superblock that keeps the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedPool {
    /// How the pool is divided.
    pub plan: PoolPlan,
    /// The pool's identity.
    pub uuid: [u8; 16],
    /// Of two superblocks the greater counts.
    pub sequence: u64,
    /// Whether it has features that forbid writing.
    pub read_only: bool,
    /// What it may hold beside files.
    pub contents: PoolContents,
}

impl PoolPlan {
    /// A pool of `lanes` lanes, without a namespace log.
    pub fn cut(lanes: u32, files: u32, entries: u32, ring_slots: u32, chunks: u32) -> PoolPlan {
        PoolPlan { lanes, files, entries, ring_slots, chunks, namespace_lines: 0 }
    }

    /// The largest pool of so many lanes that fits into `region_bytes`, with an entry for each
    /// `bytes_per_entry` bytes; `None` if no lane would have a chunk.
    pub fn fitting(
        region_bytes: u64,
        lanes: u32,
        files: u32,
        ring_slots: u32,
        bytes_per_entry: u32,
        namespace_lines: u32,
    ) -> Option<PoolPlan> {
        let per_chunk = u32::try_from(CHUNK_BYTES).expect("a chunk is small") / bytes_per_entry.clamp(256, 1 << 20);
        let of = |chunks: u32| PoolPlan {
            namespace_lines,
            ..PoolPlan::cut(lanes, files, per_chunk * chunks, ring_slots, chunks)
        };
        let fits = |chunks: u32| of(chunks).end() <= region_bytes;
        // A lane's entries are numbered by 32 bits too.
        let chunks_max = CHUNKS_MAX.min(u32::MAX / per_chunk);
        let (mut least, mut most) = (0, chunks_max + 1);
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            if fits(middle) { least = middle } else { most = middle }
        }
        (least > 0 && lanes > 0).then(|| of(least))
    }

    /// Where lane `lane` has its parts.
    pub fn lane(&self, lane: u32) -> LanePlan {
        self.lane_from(self.lanes_at() + u64::from(lane) * self.lane_bytes())
    }

    /// Where the namespace log has its parts, if the pool has one.
    pub fn namespace(&self) -> Option<NamespacePlan> {
        (self.namespace_lines > 0).then(|| NamespacePlan::at(NAMESPACE_AT, self.namespace_lines))
    }

    fn lanes_at(&self) -> u64 {
        self.namespace().map_or(NAMESPACE_AT, |log| log.end().next_multiple_of(ALIGNMENT))
    }

    /// One past the pool's last byte.
    pub fn end(&self) -> u64 {
        self.lanes_at() + u64::from(self.lanes) * self.lane_bytes()
    }

    fn lane_bytes(&self) -> u64 {
        let lane = self.lane_from(0);
        lane.chunks_at + u64::from(self.chunks) * CHUNK_BYTES
    }

    fn lane_from(&self, at: u64) -> LanePlan {
        let ring_at = at + RING_IN_LANE;
        let ring_bytes = u64::from(self.ring_slots) * size_of::<FileElement>() as u64;
        let records_at = (ring_at + ring_bytes).next_multiple_of(size_of::<FileRecord>() as u64);
        let entries_at = records_at + u64::from(self.files) * size_of::<FileRecord>() as u64;
        let entries_end = entries_at + u64::from(self.entries) * size_of::<FileEntry>() as u64;
        LanePlan {
            cursors_at: at,
            ring_at,
            ring_slots: self.ring_slots,
            files: self.files,
            entries: self.entries,
            chunks: self.chunks,
            records_at,
            entries_at,
            chunks_at: entries_end.next_multiple_of(ALIGNMENT),
        }
    }

    fn check(&self, region_bytes: u64) -> Result<(), Broken> {
        rule(self.lanes > 0, "the pool has lanes", 56, self.lanes)?;
        rule(self.files > 0, "a lane has records", 60, self.files)?;
        rule(self.entries > 0, "a lane has entries", 64, self.entries)?;
        let ring = self.ring_slots.is_power_of_two() && self.ring_slots >= 4;
        rule(ring, "the ring's size is a power of two from 4 on", 68, self.ring_slots)?;
        rule((1..=CHUNKS_MAX).contains(&self.chunks), "a lane has chunks", 72, self.chunks)?;
        let log = self.namespace_lines == 0 || self.namespace_lines >= NAMESPACE_LINES_MIN;
        rule(log, "the namespace log has room for its largest record", 76, self.namespace_lines)?;
        let bytes = u128::from(self.lane_bytes()) * u128::from(self.lanes) + u128::from(self.lanes_at());
        rule(bytes <= u128::from(region_bytes), "the region has room for every lane", 56, self.lanes)
    }
}

impl LanePlan {
    /// Where record `file` lies.
    pub fn record_at(&self, file: u32) -> u64 {
        self.records_at + u64::from(file) * size_of::<FileRecord>() as u64
    }

    /// Where entry `slot` lies.
    pub fn entry_at(&self, slot: u32) -> u64 {
        self.entries_at + u64::from(slot) * size_of::<FileEntry>() as u64
    }

    /// Where the block that begins at `unit` lies.
    pub fn block_at(&self, unit: u32) -> u64 {
        self.chunks_at + u64::from(unit) * UNIT_BYTES
    }

    /// Where the lane's first chunk lies: everything before it, from the cursors on, is records,
    /// entries and the ring.
    pub fn chunks_at(&self) -> u64 {
        self.chunks_at
    }

    /// Most bytes of a commit's elements, in elements.
    pub fn commit_elements_max(&self) -> usize {
        self.ring_slots as usize / 2
    }

    /// Bytes of the lane's blocks.
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.chunks) * Class::bytes_max()
    }
}

impl PoolSuperblock {
    /// The superblock of a pool.
    pub fn new(plan: &PoolPlan, uuid: [u8; 16], sequence: u64) -> PoolSuperblock {
        let mut superblock = PoolSuperblock {
            magic: FILE_POOL_MAGIC,
            uuid,
            sequence: U64::new(sequence),
            version: U32::new(VERSION),
            compat: U32::ZERO,
            ro_compat: U32::ZERO,
            incompat: U32::ZERO,
            lanes: U32::new(plan.lanes),
            files: U32::new(plan.files),
            entries: U32::new(plan.entries),
            ring_slots: U32::new(plan.ring_slots),
            chunks: U32::new(plan.chunks),
            namespace_lines: U32::new(plan.namespace_lines),
            reserved: [0; 172],
            checksum: U32::ZERO,
        };
        superblock.checksum = U32::new(superblock.digest());
        superblock
    }

    /// The superblock of a pool that may hold this.
    pub fn holding(contents: PoolContents, plan: &PoolPlan, uuid: [u8; 16], sequence: u64) -> PoolSuperblock {
        let mut superblock = PoolSuperblock::new(plan, uuid, sequence);
        superblock.version = U32::new(contents.version());
        superblock.checksum = U32::new(superblock.digest());
        superblock
    }

    /// What the superblock says of a region of `region_bytes`, if it keeps the rules.
    pub fn check(&self, region_bytes: u64) -> Result<TrustedPool, Broken> {
        let magic = self.magic;
        rule(magic == FILE_POOL_MAGIC, "the magic is `tidegate-nvfiles`", 0, format_args!("{magic:02x?}"))?;
        rule(self.checksum.get() == self.digest(), "the checksum is that of the superblock", 252, self.checksum)?;
        let contents = self.contents();
        rule(contents.is_some(), "the version is known", 40, self.version)?;
        rule(self.incompat.get() == 0, "no feature is needed that is not known", 52, self.incompat)?;
        let plan = PoolPlan {
            lanes: self.lanes.get(),
            files: self.files.get(),
            entries: self.entries.get(),
            ring_slots: self.ring_slots.get(),
            chunks: self.chunks.get(),
            namespace_lines: self.namespace_lines.get(),
        };
        plan.check(region_bytes)?;
        let read_only = self.ro_compat.get() != 0;
        let contents = contents.unwrap_or(PoolContents::Files);
        Ok(TrustedPool { plan, uuid: self.uuid, sequence: self.sequence.get(), read_only, contents })
    }

    fn contents(&self) -> Option<PoolContents> {
        PoolContents::ALL.into_iter().find(|contents| contents.version() == self.version.get())
    }

    /// The version of a whole superblock that is not a known one.
    pub fn other_version(&self) -> Option<u32> {
        let is_whole = self.magic == FILE_POOL_MAGIC && self.checksum.get() == self.digest();
        (is_whole && self.contents().is_none()).then_some(self.version.get())
    }

    fn digest(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..252])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_cache::namespace::LOG_LINE_BYTES;
    use zerocopy::FromBytes;

    const PLAN: PoolPlan =
        PoolPlan { lanes: 2, files: 3, entries: 500, ring_slots: 64, chunks: 5, namespace_lines: 0x4000 };

    #[test]
    fn a_superblock_to_the_byte() {
        let superblock = PoolSuperblock::new(&PLAN, [0xab; 16], 5);
        let bytes = superblock.as_bytes();
        assert_eq!((&bytes[..16], &bytes[16..32]), (&b"tidegate-nvfiles"[..], &[0xab; 16][..]));
        assert_eq!(&bytes[32..56], b"\x05\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&bytes[56..76], b"\x02\0\0\0\x03\0\0\0\xf4\x01\0\0\x40\0\0\0\x05\0\0\0");
        assert_eq!(&bytes[76..82], b"\0\x40\0\0\0\0");
        let trusted = superblock.check(PLAN.end()).unwrap();
        assert_eq!((trusted.plan, trusted.sequence, trusted.read_only), (PLAN, 5, false));
        assert!(superblock.check(PLAN.end() - 1).is_err());
        assert_eq!(superblock.other_version(), None);
        let mut other = PoolSuperblock { version: U32::new(1), ..superblock };
        assert_eq!(other.other_version(), None, "the checksum is not its own");
        other.checksum = U32::new(other.digest());
        assert_eq!((other.other_version(), other.check(PLAN.end()).is_err()), (Some(1), true));
    }

    #[test]
    fn a_pool_with_leases_or_time_pages_has_another_version() {
        for (contents, version) in PoolContents::ALL.into_iter().zip(3..) {
            let superblock = PoolSuperblock::holding(contents, &PLAN, [0xab; 16], 6);
            assert_eq!((superblock.version.get(), superblock.other_version()), (version, None));
            let trusted = superblock.check(PLAN.end()).unwrap();
            assert_eq!((trusted.plan, trusted.sequence, trusted.contents), (PLAN, 6, contents));
        }
        assert_eq!(PoolSuperblock::new(&PLAN, [0; 16], 6).check(PLAN.end()).unwrap().contents, PoolContents::Files);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let whole = PoolSuperblock::new(&PLAN, [1; 16], 1);
        for byte in 0..size_of::<PoolSuperblock>() {
            let mut bytes = [0; size_of::<PoolSuperblock>()];
            bytes.copy_from_slice(whole.as_bytes());
            bytes[byte] ^= 4;
            assert!(PoolSuperblock::read_from_bytes(&bytes).unwrap().check(PLAN.end()).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn parts_of_lanes_do_not_overlap() {
        let log = PLAN.namespace().unwrap();
        assert!(NAMESPACE_AT + 16 <= log.ring_at && log.end() <= PLAN.lane(0).cursors_at);
        assert_eq!(log.end() - log.ring_at, 0x4000 * LOG_LINE_BYTES);
        let (first, second) = (PLAN.lane(0), PLAN.lane(1));
        let parts = [first.cursors_at, first.ring_at, first.record_at(0), first.entry_at(0), first.chunks_at()];
        assert!(parts.is_sorted_by(|one, next| one < next), "{parts:?}");
        assert!(first.ring_at + 64 * 32 <= first.record_at(0) && first.record_at(3) <= first.entry_at(0));
        assert!(first.entry_at(500) <= first.chunks_at());
        assert_eq!(first.block_at(5 * UNITS_PER_CHUNK), second.cursors_at);
        assert_eq!(second.block_at(5 * UNITS_PER_CHUNK), PLAN.end());
    }

    #[test]
    fn the_largest_pool_that_fits_is_found() {
        for bytes in [3 << 20, 100 << 20, (1 << 40) + 5] {
            let plan = PoolPlan::fitting(bytes, 1, 64, 1024, 4096, 0x2000).unwrap();
            let larger = PoolPlan { chunks: plan.chunks + 1, entries: plan.entries + 256, ..plan };
            assert!(plan.end() <= bytes && larger.end() > bytes && plan.check(bytes).is_ok(), "{bytes}");
        }
        assert_eq!(PoolPlan::fitting(1 << 20, 1, 64, 1024, 4096, 0), None);
        assert_eq!(PoolPlan::fitting(1 << 30, 0, 64, 1024, 4096, 0), None);
    }
}
