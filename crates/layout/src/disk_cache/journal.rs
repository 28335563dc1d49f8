//! The journal at the end of a disk, for caches that keep the order of commits on the disk.

use crate::disk_cache::entry::{CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN, LBA_BITS};
use crate::on_media::{Broken, on_media, rule};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The first bytes of a journal's header.
pub const JOURNAL_MAGIC: [u8; 16] = *b"tidegate-journal";

/// The only version so far.
const VERSION: u32 = 1;

/// Blocks of a disk that hold a header each, at the journal's end.
pub const JOURNAL_HEADERS: u64 = 2;

on_media! {
    /// Whether a group of blocks is to be put in place on the disk. The last two blocks of the
    /// journal begin with one each; the one with the greater sequence counts. Reserved bytes are
    /// zero.
    pub struct JournalHeader [128] {
        /// `tidegate-journal`
        0: magic: [u8; 16],
        /// the identity of the cache in front of the disk
        16: uuid: [u8; 16],
        /// one more with each header written; even ones lie in the first of the two blocks
        32: sequence: U64,
        /// 1
        40: version: U32,
        /// bytes in a block
        44: block_size: U32,
        /// blocks of the disk before the journal
        48: disk_blocks: U64,
        /// blocks of the largest group
        56: capacity: U32,
        /// blocks of the group that is to be put in place; 0: there is none
        60: blocks: U32,
        /// CRC-32C of the group's records
        64: records_sum: U32,
        /// zero
        68: reserved: [u8; 56],
        /// CRC-32C of the first 124 bytes
        124: checksum: U32,
    }
}

on_media! {
    /// Where a block of the group belongs. Records lie one behind the other from the journal's
    /// first block on, in the order of the group's blocks.
    pub struct JournalRecord [16] {
        /// number of the block on the disk
        0: lba: U64,
        /// CRC-32C of the number of the block on the disk (8 bytes, little-endian) and the block
        8: sum: U32,
        /// zero
        12: reserved: U32,
    }
}

/// Where a journal lies on its disk, in blocks of the cache's size: records, blocks of the group,
/// headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPlan {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks of the disk before the journal: those that users see.
    pub disk_blocks: u64,
    /// Blocks of the largest group.
    pub capacity: u32,
}

/// A header that keeps the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedJournal {
    /// Where everything lies.
    pub plan: JournalPlan,
    /// The identity of the cache in front of the disk.
    pub uuid: [u8; 16],
    /// Of two headers the greater counts.
    pub sequence: u64,
    /// Blocks of the group that is to be put in place.
    pub blocks: u32,
    /// CRC-32C of the group's records.
    pub records_sum: u32,
}

impl JournalPlan {
    /// The journal for groups of up to `capacity` blocks at the end of a disk of `total_blocks`;
    /// `None` if nothing would be left before it.
    pub fn at_the_end(block_size: u32, total_blocks: u64, capacity: u32) -> Option<JournalPlan> {
        let plan = JournalPlan { block_size, disk_blocks: 0, capacity };
        let disk_blocks = total_blocks.checked_sub(plan.end()).filter(|blocks| *blocks > 0)?;
        Some(JournalPlan { disk_blocks, ..plan })
    }

    /// Records in a block.
    pub fn records_in_block(&self) -> u64 {
        u64::from(self.block_size) / size_of::<JournalRecord>() as u64
    }

    /// The first block of records.
    pub fn records_at(&self) -> u64 {
        self.disk_blocks
    }

    /// The first of the group's blocks.
    pub fn data_at(&self) -> u64 {
        self.records_at() + u64::from(self.capacity).div_ceil(self.records_in_block())
    }

    /// The block of the header with this sequence.
    pub fn header_at(&self, sequence: u64) -> u64 {
        self.data_at() + u64::from(self.capacity) + sequence % JOURNAL_HEADERS
    }

    /// One past the journal's last block.
    pub fn end(&self) -> u64 {
        self.header_at(0) + JOURNAL_HEADERS
    }

    fn check(&self) -> Result<(), Broken> {
        let sizes = CACHE_BLOCK_BYTES_MIN..=CACHE_BLOCK_BYTES_MAX;
        let size = self.block_size;
        rule(size.is_power_of_two() && sizes.contains(&size), "the block size is a power of two in range", 44, size)?;
        let disk = 1..=1 << LBA_BITS;
        rule(disk.contains(&self.disk_blocks), "the disk's size is in range", 48, self.disk_blocks)?;
        rule(self.capacity > 0, "the journal has room for blocks", 56, self.capacity)
    }
}

impl TrustedJournal {
    /// The next header, which tells of the same.
    pub fn again(self) -> TrustedJournal {
        TrustedJournal { sequence: self.sequence + 1, ..self }
    }

    /// The next header, which tells of no group.
    pub fn retired(self) -> TrustedJournal {
        TrustedJournal { sequence: self.sequence + 1, blocks: 0, ..self }
    }

    /// The header's bytes.
    pub fn header(&self) -> JournalHeader {
        let mut header = JournalHeader {
            magic: JOURNAL_MAGIC,
            uuid: self.uuid,
            sequence: U64::new(self.sequence),
            version: U32::new(VERSION),
            block_size: U32::new(self.plan.block_size),
            disk_blocks: U64::new(self.plan.disk_blocks),
            capacity: U32::new(self.plan.capacity),
            blocks: U32::new(self.blocks),
            records_sum: U32::new(self.records_sum),
            reserved: [0; 56],
            checksum: U32::ZERO,
        };
        header.checksum = U32::new(header.digest());
        header
    }
}

impl JournalHeader {
    /// What the header says, if it keeps the rules.
    pub fn check(&self) -> Result<TrustedJournal, Broken> {
        let magic = self.magic;
        rule(magic == JOURNAL_MAGIC, "the magic is `tidegate-journal`", 0, format_args!("{magic:02x?}"))?;
        rule(self.checksum.get() == self.digest(), "the checksum is that of the header", 124, self.checksum)?;
        rule(self.version.get() == VERSION, "the version is known", 40, self.version)?;
        let (block_size, disk_blocks) = (self.block_size.get(), self.disk_blocks.get());
        let plan = JournalPlan { block_size, disk_blocks, capacity: self.capacity.get() };
        plan.check()?;
        let blocks = self.blocks.get();
        rule(blocks <= plan.capacity, "the journal has room for the group", 60, blocks)?;
        let (sequence, records_sum) = (self.sequence.get(), self.records_sum.get());
        Ok(TrustedJournal { plan, uuid: self.uuid, sequence, blocks, records_sum })
    }

    fn digest(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..124])
    }
}

impl JournalRecord {
    /// The record of `block`, which belongs to block `lba` of the disk.
    pub fn of(lba: u64, block: &[u8]) -> JournalRecord {
        JournalRecord { lba: U64::new(lba), sum: U32::new(JournalRecord::sum_of(lba, block)), reserved: U32::ZERO }
    }

    /// The checksum of a group's records.
    pub fn sum_of_all(records: &[JournalRecord]) -> u32 {
        crc32c::crc32c(records.as_bytes())
    }

    /// Whether `block` is the one that this record is about.
    pub fn fits(&self, block: &[u8]) -> bool {
        self.sum.get() == JournalRecord::sum_of(self.lba.get(), block)
    }

    fn sum_of(lba: u64, block: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&lba.to_le_bytes()), block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    const PLAN: JournalPlan = JournalPlan { block_size: 512, disk_blocks: 1000, capacity: 33 };
    const IDLE: TrustedJournal =
        TrustedJournal { plan: PLAN, uuid: [0xab; 16], sequence: 7, blocks: 5, records_sum: 9 };

    #[test]
    fn a_header_to_the_byte() {
        let header = IDLE.header();
        let bytes = header.as_bytes();
        assert_eq!((&bytes[..16], &bytes[16..32]), (&b"tidegate-journal"[..], &[0xab; 16][..]));
        assert_eq!(&bytes[32..48], b"\x07\0\0\0\0\0\0\0\x01\0\0\0\0\x02\0\0");
        assert_eq!(&bytes[48..68], b"\xe8\x03\0\0\0\0\0\0\x21\0\0\0\x05\0\0\0\x09\0\0\0");
        assert_eq!(JournalHeader::read_from_bytes(bytes).unwrap().check().unwrap(), IDLE);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        for byte in 0..size_of::<JournalHeader>() {
            let mut bytes = [0; size_of::<JournalHeader>()];
            bytes.copy_from_slice(IDLE.header().as_bytes());
            bytes[byte] ^= 4;
            assert!(JournalHeader::read_from_bytes(&bytes).unwrap().check().is_err(), "byte {byte}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [
            TrustedJournal { blocks: 34, ..IDLE },
            TrustedJournal { plan: JournalPlan { capacity: 0, ..PLAN }, blocks: 0, ..IDLE },
            TrustedJournal { plan: JournalPlan { block_size: 1000, ..PLAN }, ..IDLE },
            TrustedJournal { plan: JournalPlan { disk_blocks: 0, ..PLAN }, ..IDLE },
        ] {
            assert!(wrong.header().check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_journal_takes_the_end_of_the_disk() {
        let plan = JournalPlan::at_the_end(512, 1000, 33).unwrap();
        assert_eq!((plan.disk_blocks, plan.data_at(), plan.header_at(6), plan.end()), (963, 965, 998, 1000));
        assert_eq!(JournalPlan::at_the_end(512, 37, 33), None);
        assert_eq!(JournalPlan::at_the_end(512, 38, 33).unwrap().disk_blocks, 1);
    }

    #[test]
    fn a_record_knows_its_block_and_its_place() {
        let record = JournalRecord::of(3, &[1; 512]);
        assert!(record.fits(&[1; 512]) && !record.fits(&[2; 512]));
        assert!(!JournalRecord { lba: U64::new(4), ..record }.fits(&[1; 512]));
    }
}
