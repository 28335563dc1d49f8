//! The superblock, the cursors, and where everything lies.

use crate::disk_cache::entry::{
    BlockSum, CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN, CacheEntry, LBA_BITS, RingElement, StartSum,
};
use crate::disk_cache::journal::JournalPlan;
use crate::on_media::{Broken, on_media, rule};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The first bytes of a superblock.
pub const DISK_CACHE_MAGIC: [u8; 16] = *b"tidegate-nvcache";

/// The disk of a cache that has none: it was detached.
pub const DETACHED: [u8; 32] = [0xff; 32];

/// The only version so far.
const VERSION: u32 = 1;

/// The bit of `ro_compat` of a cache that keeps a checksum of each block: whoever writes a block
/// without its sum spoils it.
const RO_COMPAT_SUMS: u32 = 1;

/// The bit of `ro_compat` of a cache whose blocks reach the disk by a journal: whoever writes them
/// there otherwise breaks the order of commits.
const RO_COMPAT_ORDER: u32 = 2;

/// The bit of `ro_compat` of a cache that keeps checksums of the disk's first blocks: whoever
/// writes to the disk without them makes it look like one that somebody else wrote to.
const RO_COMPAT_START: u32 = 4;
/// The bit of `incompat` of a cache whose entries carry a check: their flags mean more.
const INCOMPAT_CHECKED_ENTRIES: u32 = 1;

/// Bits of `ro_compat` that have a meaning.
const KNOWN: u32 = RO_COMPAT_SUMS | RO_COMPAT_ORDER | RO_COMPAT_START;

/// Bytes that each copy of the superblock has for itself.
pub const SUPERBLOCK_BYTES: u64 = 4096;

/// Where the two copies lie.
pub const SUPERBLOCK_COPIES_AT: [u64; 2] = [0, SUPERBLOCK_BYTES];

/// Where the cursors lie.
pub const CURSORS_AT: u64 = 2 * SUPERBLOCK_BYTES;

/// Where the checksums of the disk's first blocks lie, if there are any: in the page of the
/// cursors.
pub const START_SUMS_AT: u64 = CURSORS_AT + SUPERBLOCK_BYTES / 2;

/// Room for checksums of the disk's first blocks.
const START_SUMS: u64 = SUPERBLOCK_BYTES / 2 / size_of::<StartSum>() as u64;

/// Bytes of the disk that they are about at most: where file systems, partition tables and volume
/// managers keep what they change when they are used.
const START_BYTES: u64 = 1 << 20;

/// Where the ring of a fresh cache lies.
const RING_AT: u64 = 3 * SUPERBLOCK_BYTES;

on_media! {
    /// What the cache is and where its parts lie; of two copies the one with the greater sequence
    /// counts. Reserved bytes are zero.
    pub struct Superblock [256] {
        /// `tidegate-nvcache`
        0: magic: [u8; 16],
        /// the cache's own identity
        16: uuid: [u8; 16],
        /// the disk's identity, as whoever laid the cache out tells disks apart
        32: disk: [u8; 32],
        /// one more with each superblock written
        64: sequence: U64,
        /// 1
        72: version: U32,
        /// features that a reader may ignore
        76: compat: U32,
        /// features without which nothing may be written: bit 0, a checksum of each block; bit 1, a
        /// journal at the disk's end; bit 2, checksums of the disk's first blocks
        80: ro_compat: U32,
        /// features without which nothing may be read: bit 0, entries carry a check
        84: incompat: U32,
        /// bytes in a block
        88: block_size: U32,
        /// blocks that the cache holds, and entries
        92: blocks: U32,
        /// blocks of the disk
        96: disk_blocks: U64,
        /// elements in the ring, a power of two
        104: ring_slots: U32,
        /// zero
        108: reserved: U32,
        /// where the ring lies, in bytes
        112: ring_at: U64,
        /// where the entries lie, in bytes
        120: entries_at: U64,
        /// where the blocks lie, in bytes
        128: data_at: U64,
        /// where the checksums of the blocks lie, in bytes; 0: there are none
        136: sums_at: U64,
        /// blocks that the journal behind the disk's blocks has room for; 0: there is none
        144: journal_blocks: U32,
        /// zero
        148: reserved2: [u8; 104],
        /// CRC-32C of the first 252 bytes
        252: checksum: U32,
    }
}

/// Where the parts of a cache lie, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePlan {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks, and entries.
    pub blocks: u32,
    /// Blocks of the disk.
    pub disk_blocks: u64,
    /// Elements in the ring.
    pub ring_slots: u32,
    /// Where the ring lies.
    pub ring_at: u64,
    /// Where the entries lie.
    pub entries_at: u64,
    /// Where the checksums of the blocks lie, if there are any.
    pub sums_at: Option<u64>,
    /// Where the blocks lie.
    pub data_at: u64,
    /// Blocks of the largest group that the journal behind the disk's blocks holds; 0: there is no
    /// journal.
    pub journal_blocks: u32,
    /// Whether there are checksums of the disk's first blocks.
    pub start_sums: bool,
    /// Whether entries that hold blocks carry a check.
    pub entries_checked: bool,
}

/// Whether a cache keeps a checksum of each block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// None: whatever the memory gives back is taken for what was stored.
    #[default]
    Absent,
    /// One for each.
    Kept,
}

/// A superblock that keeps the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedSuperblock {
    /// Where everything lies.
    pub plan: CachePlan,
    /// The cache's identity.
    pub uuid: [u8; 16],
    /// The disk's identity.
    pub disk: [u8; 32],
    /// Of two superblocks the greater counts.
    pub sequence: u64,
    /// Whether it has features that forbid writing.
    pub read_only: bool,
}

impl CachePlan {
    /// The largest cache with blocks of `block_size` bytes that fits into a region of
    /// `region_bytes`; `None` if not even one block does.
    pub fn fitting(region_bytes: u64, block_size: u32, disk_blocks: u64, ring_slots: u32) -> Option<CachePlan> {
        CachePlan::fitting_with(Checksums::Absent, region_bytes, block_size, disk_blocks, ring_slots)
    }

    /// The largest cache, with or without checksums, that fits into a region of `region_bytes`;
    /// `None` if not even one block does.
    pub fn fitting_with(
        sums: Checksums,
        region_bytes: u64,
        block_size: u32,
        disk_blocks: u64,
        ring_slots: u32,
    ) -> Option<CachePlan> {
        let each = u64::from(block_size) + size_of::<CacheEntry>() as u64 + sums.bytes_of(1);
        let room = region_bytes.checked_sub(CachePlan::cut(0, block_size, disk_blocks, ring_slots).entries_at)?;
        let mut blocks = u32::try_from(room / each).unwrap_or(u32::MAX - 1);
        while blocks > 0 {
            let plan = CachePlan::cut_with(sums, blocks, block_size, disk_blocks, ring_slots);
            if plan.end() <= region_bytes {
                return Some(plan);
            }
            blocks -= 1;
        }
        None
    }

    /// A cache of exactly `blocks` blocks.
    pub fn cut(blocks: u32, block_size: u32, disk_blocks: u64, ring_slots: u32) -> CachePlan {
        CachePlan::cut_with(Checksums::Absent, blocks, block_size, disk_blocks, ring_slots)
    }

    /// A cache of exactly `blocks` blocks, with or without checksums.
    pub fn cut_with(sums: Checksums, blocks: u32, block_size: u32, disk_blocks: u64, ring_slots: u32) -> CachePlan {
        let entries_at = RING_AT + u64::from(ring_slots) * size_of::<RingElement>() as u64;
        let entries_at = entries_at.next_multiple_of(64);
        let entries_end = entries_at + u64::from(blocks) * size_of::<CacheEntry>() as u64;
        let sums_at = entries_end.next_multiple_of(64);
        let data_at = (sums_at + sums.bytes_of(blocks)).next_multiple_of(u64::from(block_size));
        let sums_at = (sums == Checksums::Kept).then_some(sums_at);
        CachePlan {
            block_size,
            blocks,
            disk_blocks,
            ring_slots,
            ring_at: RING_AT,
            entries_at,
            sums_at,
            data_at,
            journal_blocks: 0,
            start_sums: false,
            entries_checked: sums == Checksums::Kept,
        }
    }

    /// This cache with checksums of the disk's first blocks, if the ring leaves room for them.
    pub fn with_start_sums(self) -> CachePlan {
        let end = START_SUMS_AT + START_SUMS * size_of::<StartSum>() as u64;
        CachePlan { start_sums: self.ring_at >= end, ..self }
    }

    /// How many of the disk's first blocks have a checksum.
    pub fn start_blocks(&self) -> u64 {
        match self.start_sums {
            true => START_SUMS.min(START_BYTES / u64::from(self.block_size)).min(self.disk_blocks),
            false => 0,
        }
    }

    /// Where the checksum of block `lba` of the disk lies, if it is one of the first that have one.
    pub fn start_sum_at(&self, lba: u64) -> Option<u64> {
        (lba < self.start_blocks()).then_some(START_SUMS_AT + lba * size_of::<StartSum>() as u64)
    }

    /// This cache with a journal behind the disk's blocks, for groups of up to `journal_blocks`; 0:
    /// without.
    pub fn ordered(self, journal_blocks: u32) -> CachePlan {
        CachePlan { journal_blocks, ..self }
    }

    /// The journal behind the disk's blocks, if there is one.
    pub fn journal(&self) -> Option<JournalPlan> {
        let CachePlan { block_size, disk_blocks, journal_blocks: capacity, .. } = *self;
        (capacity > 0).then_some(JournalPlan { block_size, disk_blocks, capacity })
    }

    /// One past the cache's last byte.
    pub fn end(&self) -> u64 {
        self.data_at + u64::from(self.blocks) * u64::from(self.block_size)
    }

    /// Where entry `entry` lies.
    pub fn entry_at(&self, entry: u32) -> u64 {
        self.entries_at + u64::from(entry) * size_of::<CacheEntry>() as u64
    }

    /// Where element number `number` lies.
    pub fn element_at(&self, number: u64) -> u64 {
        self.ring_at + number % u64::from(self.ring_slots) * size_of::<RingElement>() as u64
    }

    /// Where block `block` of the cache lies.
    pub fn block_at(&self, block: u32) -> u64 {
        self.data_at + u64::from(block) * u64::from(self.block_size)
    }

    /// Where the checksum of block `block` of the cache lies, if there is one.
    pub fn sum_at(&self, block: u32) -> Option<u64> {
        Some(self.sums_at? + u64::from(block) * size_of::<BlockSum>() as u64)
    }

    /// Whether the cache keeps a checksum of each block.
    pub fn sums(&self) -> Checksums {
        if self.sums_at.is_some() { Checksums::Kept } else { Checksums::Absent }
    }

    /// The second word of an entry that holds `block` as block `lba` of the disk.
    pub fn holding_word(&self, lba: u64, block: u32, counter: u16, clean: bool) -> u64 {
        let word = CacheEntry::holding_word(block, counter, clean);
        if self.entries_checked { word | CacheEntry::checked_flags(lba, word) << 48 } else { word }
    }

    fn features(&self) -> u32 {
        let sums = if self.sums_at.is_some() { RO_COMPAT_SUMS } else { 0 };
        let order = if self.journal_blocks > 0 { RO_COMPAT_ORDER } else { 0 };
        let start = if self.start_sums { RO_COMPAT_START } else { 0 };
        sums | order | start
    }

    fn check(&self, region_bytes: u64) -> Result<(), Broken> {
        let size = self.block_size;
        let sizes = CACHE_BLOCK_BYTES_MIN..=CACHE_BLOCK_BYTES_MAX;
        rule(size.is_power_of_two() && sizes.contains(&size), "the block size is a power of two in range", 88, size)?;
        rule((1..u32::MAX).contains(&self.blocks), "the cache has blocks", 92, self.blocks)?;
        let disk = 1..=1 << LBA_BITS;
        rule(disk.contains(&self.disk_blocks), "the disk's size is in range", 96, self.disk_blocks)?;
        rule(self.ring_slots.is_power_of_two(), "the ring's size is a power of two", 104, self.ring_slots)?;
        let ring_bytes = u64::from(self.ring_slots) * size_of::<RingElement>() as u64;
        let ring = self.ring_at >= CURSORS_AT + 64 && self.ring_at.is_multiple_of(64);
        rule(ring, "the ring lies behind the cursors", 112, self.ring_at)?;
        let start = !self.start_sums || self.with_start_sums().start_sums;
        rule(start, "the ring lies behind the checksums of the disk's first blocks", 112, self.ring_at)?;
        let behind = |at: u64, before: u64, bytes: u64| before.checked_add(bytes).is_some_and(|end| at >= end);
        let entries = behind(self.entries_at, self.ring_at, ring_bytes) && self.entries_at.is_multiple_of(64);
        rule(entries, "the entries lie behind the ring", 120, self.entries_at)?;
        let entry_bytes = u64::from(self.blocks) * size_of::<CacheEntry>() as u64;
        let (before, bytes) = match self.sums_at {
            None => (self.entries_at, entry_bytes),
            Some(sums_at) => {
                let sums = behind(sums_at, self.entries_at, entry_bytes) && sums_at.is_multiple_of(64);
                rule(sums, "the checksums lie behind the entries", 136, sums_at)?;
                (sums_at, Checksums::Kept.bytes_of(self.blocks))
            }
        };
        let data = behind(self.data_at, before, bytes) && self.data_at.is_multiple_of(64);
        rule(data, "the blocks lie behind the entries", 128, self.data_at)?;
        let data_bytes = u64::from(self.blocks) * u64::from(size);
        let fits = behind(region_bytes, self.data_at, data_bytes);
        rule(fits, "the region has room for every block", 92, self.blocks)?;
        let journal = self.journal_blocks == 0 || self.journal_blocks >= self.blocks;
        rule(journal, "the journal has room for every block", 144, self.journal_blocks)
    }
}

impl Checksums {
    /// Bytes of the sums of `blocks` blocks.
    fn bytes_of(self, blocks: u32) -> u64 {
        match self {
            Checksums::Absent => 0,
            Checksums::Kept => u64::from(blocks) * size_of::<BlockSum>() as u64,
        }
    }
}

impl Superblock {
    /// The superblock of a cache.
    pub fn new(plan: &CachePlan, uuid: [u8; 16], disk: [u8; 32], sequence: u64) -> Superblock {
        let mut superblock = Superblock {
            magic: DISK_CACHE_MAGIC,
            uuid,
            disk,
            sequence: U64::new(sequence),
            version: U32::new(VERSION),
            compat: U32::ZERO,
            ro_compat: U32::new(plan.features()),
            incompat: U32::new(if plan.entries_checked { INCOMPAT_CHECKED_ENTRIES } else { 0 }),
            block_size: U32::new(plan.block_size),
            blocks: U32::new(plan.blocks),
            disk_blocks: U64::new(plan.disk_blocks),
            ring_slots: U32::new(plan.ring_slots),
            reserved: U32::ZERO,
            ring_at: U64::new(plan.ring_at),
            entries_at: U64::new(plan.entries_at),
            data_at: U64::new(plan.data_at),
            sums_at: U64::new(plan.sums_at.unwrap_or(0)),
            journal_blocks: U32::new(plan.journal_blocks),
            reserved2: [0; 104],
            checksum: U32::ZERO,
        };
        superblock.checksum = U32::new(superblock.digest());
        superblock
    }

    /// What the superblock says of a region of `region_bytes`, if it keeps the rules.
    pub fn check(&self, region_bytes: u64) -> Result<TrustedSuperblock, Broken> {
        let magic = self.magic;
        rule(magic == DISK_CACHE_MAGIC, "the magic is `tidegate-nvcache`", 0, format_args!("{magic:02x?}"))?;
        rule(self.checksum.get() == self.digest(), "the checksum is that of the superblock", 252, self.checksum)?;
        rule(self.version.get() == VERSION, "the version is known", 72, self.version)?;
        let incompat = self.incompat.get();
        let is_known = incompat & !INCOMPAT_CHECKED_ENTRIES == 0;
        rule(is_known, "no feature is needed that is not known", 84, incompat)?;
        let features = self.ro_compat.get();
        let sums_at = (features & RO_COMPAT_SUMS != 0).then(|| self.sums_at.get());
        let plan = CachePlan {
            block_size: self.block_size.get(),
            blocks: self.blocks.get(),
            disk_blocks: self.disk_blocks.get(),
            ring_slots: self.ring_slots.get(),
            ring_at: self.ring_at.get(),
            entries_at: self.entries_at.get(),
            sums_at,
            data_at: self.data_at.get(),
            journal_blocks: if features & RO_COMPAT_ORDER != 0 { self.journal_blocks.get() } else { 0 },
            start_sums: features & RO_COMPAT_START != 0,
            entries_checked: incompat & INCOMPAT_CHECKED_ENTRIES != 0,
        };
        rule(
            features == plan.features() | features & !KNOWN,
            "an ordered cache has a journal",
            144,
            self.journal_blocks,
        )?;
        plan.check(region_bytes)?;
        Ok(TrustedSuperblock {
            plan,
            uuid: self.uuid,
            disk: self.disk,
            sequence: self.sequence.get(),
            read_only: features & !KNOWN != 0,
        })
    }

    fn digest(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..252])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    const PLAN: CachePlan = CachePlan {
        block_size: 4096,
        blocks: 1000,
        disk_blocks: 0x0102_0304,
        ring_slots: 64,
        ring_at: 12288,
        entries_at: 13312,
        sums_at: None,
        data_at: 32768,
        journal_blocks: 0,
        start_sums: false,
        entries_checked: false,
    };

    #[test]
    fn a_superblock_to_the_byte() {
        let bytes = Superblock::new(&PLAN, [0xab; 16], [0xcd; 32], 5);
        let bytes = bytes.as_bytes();
        assert_eq!(&bytes[..16], b"tidegate-nvcache");
        assert_eq!((&bytes[16..32], &bytes[32..64]), (&[0xab; 16][..], &[0xcd; 32][..]));
        assert_eq!(&bytes[64..88], b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&bytes[88..112], b"\0\x10\0\0\xe8\x03\0\0\x04\x03\x02\x01\0\0\0\0\x40\0\0\0\0\0\0\0");
        assert_eq!(&bytes[112..136], b"\0\x30\0\0\0\0\0\0\0\x34\0\0\0\0\0\0\0\x80\0\0\0\0\0\0");
        let trusted = Superblock::read_from_bytes(bytes).unwrap().check(PLAN.end()).unwrap();
        assert_eq!((trusted.plan, trusted.sequence, trusted.read_only), (PLAN, 5, false));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let whole = Superblock::new(&PLAN, [1; 16], [2; 32], 1);
        for byte in 0..size_of::<Superblock>() {
            let mut bytes = [0; size_of::<Superblock>()];
            bytes.copy_from_slice(whole.as_bytes());
            bytes[byte] ^= 4;
            assert!(Superblock::read_from_bytes(&bytes).unwrap().check(PLAN.end()).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn parts_that_overlap_are_refused() {
        let check = |plan: CachePlan| Superblock::new(&plan, [0; 16], [0; 32], 1).check(PLAN.end());
        assert!(check(PLAN).is_ok());
        for plan in [
            CachePlan { entries_at: 12352, ..PLAN },
            CachePlan { data_at: 16384, ..PLAN },
            CachePlan { ring_at: 8192, ..PLAN },
            CachePlan { blocks: 1001, ..PLAN },
            CachePlan { blocks: 0, ..PLAN },
            CachePlan { block_size: 1000, ..PLAN },
            CachePlan { ring_slots: 63, ..PLAN },
            CachePlan { disk_blocks: 0, ..PLAN },
            CachePlan { data_at: u64::MAX - 63, ..PLAN },
        ] {
            assert!(check(plan).is_err(), "{plan:?}");
        }
    }

    #[test]
    fn the_largest_cache_that_fits_is_found() {
        for bytes in [40_000, 1 << 20, (1 << 20) + 4112, 3 << 30] {
            let plan = CachePlan::fitting(bytes, 4096, 1 << 20, 64).unwrap();
            assert!(plan.end() <= bytes && plan.check(bytes).is_ok());
            assert!(CachePlan::cut(plan.blocks + 1, 4096, 1 << 20, 64).end() > bytes, "{bytes}");
        }
        assert_eq!(CachePlan::fitting(13_000, 4096, 1 << 20, 64), None);
        assert_eq!(CachePlan::fitting(20_000, 4096, 1 << 20, 65536), None);
    }

    #[test]
    fn checksums_are_a_feature_for_writers_and_lie_before_the_blocks() {
        let plan = CachePlan { sums_at: Some(29312), data_at: 40960, ..PLAN };
        let bytes = Superblock::new(&plan, [1; 16], [2; 32], 5);
        assert_eq!(
            (&bytes.as_bytes()[80..84], &bytes.as_bytes()[136..144]),
            (&[1, 0, 0, 0][..], &29312_u64.to_le_bytes()[..])
        );
        let trusted = bytes.check(plan.end()).unwrap();
        assert_eq!((trusted.plan, trusted.read_only), (plan, false));
        assert_eq!((plan.sum_at(3), PLAN.sum_at(3)), (Some(29336), None));
        for sums_at in [13312, 29310, 33024] {
            let plan = CachePlan { sums_at: Some(sums_at), ..plan };
            assert!(Superblock::new(&plan, [1; 16], [2; 32], 5).check(plan.end()).is_err(), "{sums_at}");
        }
        for bytes in [60_000, 1 << 20, 3 << 30] {
            let fitting = CachePlan::fitting_with(Checksums::Kept, bytes, 4096, 1 << 20, 64).unwrap();
            assert!(fitting.end() <= bytes && fitting.check(bytes).is_ok());
            assert!(CachePlan::cut_with(Checksums::Kept, fitting.blocks + 1, 4096, 1 << 20, 64).end() > bytes);
        }
    }

    #[test]
    fn checked_entries_are_a_feature_for_readers() {
        let plan = CachePlan::cut_with(Checksums::Kept, 10, 4096, 1 << 20, 64);
        let bytes = Superblock::new(&plan, [1; 16], [2; 32], 5);
        assert_eq!(&bytes.as_bytes()[84..88], &[1, 0, 0, 0]);
        assert_eq!(bytes.check(plan.end()).unwrap().plan, plan);
        let unchecked = CachePlan { entries_checked: false, ..plan };
        assert_eq!(Superblock::new(&unchecked, [1; 16], [2; 32], 5).check(plan.end()).unwrap().plan, unchecked);
    }

    #[test]
    fn a_journal_is_a_feature_for_writers_and_has_room_for_every_block() {
        let plan = PLAN.ordered(1000);
        let bytes = Superblock::new(&plan, [1; 16], [2; 32], 5);
        assert_eq!((&bytes.as_bytes()[80..84], &bytes.as_bytes()[144..148]), (&[2, 0, 0, 0][..], &[0xe8, 3, 0, 0][..]));
        let trusted = bytes.check(plan.end()).unwrap();
        assert_eq!((trusted.plan, trusted.read_only), (plan, false));
        assert_eq!(plan.journal().unwrap().disk_blocks, PLAN.disk_blocks);
        assert_eq!(PLAN.journal(), None);
        assert!(Superblock::new(&PLAN.ordered(999), [1; 16], [2; 32], 5).check(plan.end()).is_err());
        let mut without = Superblock::new(&PLAN, [1; 16], [2; 32], 5);
        without.ro_compat = U32::new(RO_COMPAT_ORDER);
        without.checksum = U32::new(without.digest());
        assert!(without.check(plan.end()).is_err(), "an order without a journal");
    }

    #[test]
    fn checksums_of_the_disks_start_are_a_feature_for_writers_and_lie_before_the_ring() {
        let plan = PLAN.with_start_sums();
        let bytes = Superblock::new(&plan, [1; 16], [2; 32], 5);
        assert_eq!(&bytes.as_bytes()[80..84], &[4, 0, 0, 0]);
        let trusted = bytes.check(plan.end()).unwrap();
        assert_eq!((trusted.plan, trusted.read_only), (plan, false));
        assert_eq!((plan.start_sum_at(0), plan.start_sum_at(255)), (Some(10240), Some(12280)));
        assert_eq!((plan.start_sum_at(256), PLAN.start_sum_at(0)), (None, None));
        let of = |block_size, disk_blocks| CachePlan { block_size, disk_blocks, ..plan }.start_blocks();
        assert_eq!([of(512, 1 << 30), of(65536, 1 << 30), of(4096, 9)], [256, 16, 9]);
        let near = CachePlan { ring_at: 12224, ..PLAN };
        assert!(!near.with_start_sums().start_sums && near.check(PLAN.end()).is_ok());
        assert!(CachePlan { start_sums: true, ..near }.check(PLAN.end()).is_err(), "no room before the ring");
    }
}
