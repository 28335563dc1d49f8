//! Lease logs: what a process writes to a file that was handed over to it.
//!
//! A lease log is a block of the lane, named by an entry that says so. The service stores to the
//! head's first line and names a block in each element; the process that has the lease stores to
//! the head's second line and fills elements. Element `n` lies in place `n` modulo their number.

use crate::file_cache::entry::{Class, Extent, FileEntry, UNIT_BYTES, UNITS_PER_CHUNK, class_of, length_of};
use crate::file_cache::lease_mark::LeaseMark;
use crate::file_cache::superblock::LanePlan;
use crate::on_media::{Broken, on_media, rule};
use std::mem::offset_of;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

/// Blocks that a lease writes to have this size.
pub const LEASE_CLASS: Class = Class::ALL[2];

/// A whole chunk as a block.
const CHUNK_CLASS: Class = Class::ALL[6];

/// The head's word `closed` while the lease goes on.
pub const NOT_CLOSED: u64 = u64::MAX;

on_media! {
    /// The first two lines of a lease log. Each has one side that stores to it.
    pub struct LeaseHead [128] {
        /// number of the lease; 0: it was revoked
        0: lease: U64,
        /// how many elements have a block
        8: lent: U64,
        /// how many elements count, once the lease was revoked; all ones before
        16: closed: U64,
        /// elements that will have a block soon: the places of earlier ones are given away
        24: lending: U64,
        /// how often newest bytes of the file left their blocks since the lease began
        32: dropped: U64,
        /// how many elements were taken over, or are about to be
        40: taken: U64,
        /// zero
        48: reserved: [u8; 16],
        /// how many elements others see
        64: visible: U64,
        /// how many elements a power loss leaves
        72: committed: U64,
        /// program context that the process writes by; 0: not said
        80: context: U64,
        /// 1: one of the processes that have the lease writes
        88: writer: U64,
        /// the file's length, with all that others see
        96: size: U64,
        /// zero
        104: reserved2: [u8; 24],
    }
}

on_media! {
    /// What was written to one block. Durable before the head says that others see it.
    pub struct LeaseElement [32] {
        /// offset of the first byte in the file
        0: offset: U64,
        /// where the block begins, in units of 256 bytes from the lane's first chunk
        8: unit: U32,
        /// bytes, from 1 to 4096
        12: length: U32,
        /// which element it is, from 0
        16: number: U64,
        /// when the program changed the file, as the record has it; 0: not said
        24: modified: U64,
    }
}

/// Where the parts of a lease log lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePlan {
    /// Where the head lies.
    pub at: u64,
    /// How many elements have a place.
    pub elements: u32,
}

/// What an entry says that names a lease log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedLease {
    /// Number of the file's record.
    pub file: u32,
    /// Where the log begins.
    pub unit: u32,
    /// Size of the log.
    pub class: Class,
    /// What the service has taken over.
    pub mark: LeaseMark,
}

/// What an entry says that lends a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentChunk {
    /// Number of the record of the lease's file.
    pub file: u32,
    /// Number of the chunk.
    pub chunk: u32,
    /// Number of the entry that names the lease's log.
    pub log: u32,
}

/// What a process gets that is to have a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The lease's number.
    pub lease: u64,
    /// Its log.
    pub log: LeasePlan,
    /// Where the lane's blocks lie.
    pub blocks_at: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Offsets between which the file below has reserved room.
    pub room: [u64; 2],
}

impl LeasePlan {
    /// A log in a block of this class that lies at `at`.
    pub fn of(at: u64, class: Class) -> LeasePlan {
        let bytes = class.bytes() - size_of::<LeaseHead>() as u64;
        let elements = bytes / size_of::<LeaseElement>() as u64;
        LeasePlan { at, elements: u32::try_from(elements).expect("a block is small") }
    }

    /// Where the word lies that says the lease's number.
    pub fn lease_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, lease) as u64
    }

    /// Where the word lies that says how many elements have a block.
    pub fn lent_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, lent) as u64
    }

    /// Where the word lies that says how many elements count after a revocation.
    pub fn closed_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, closed) as u64
    }

    /// Where the word lies that says how many elements others see.
    pub fn visible_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, visible) as u64
    }

    /// Where the word lies that says how many elements a power loss leaves.
    pub fn committed_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, committed) as u64
    }

    /// Where the word lies that says by which program context the process writes. It is a hint,
    /// which need not last.
    pub fn context_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, context) as u64
    }

    /// Where the word lies that says how many elements will have a block soon.
    pub fn lending_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, lending) as u64
    }

    /// Where the word lies that counts how often newest bytes left the lane's blocks.
    pub fn dropped_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, dropped) as u64
    }

    /// Where the word lies that says how many elements were taken over, or are about to be.
    pub fn taken_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, taken) as u64
    }

    /// Where the word lies that is not 0 while a process writes. It need not last.
    pub fn writer_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, writer) as u64
    }

    /// Where the word lies that says the file's length. It need not last.
    pub fn size_at(&self) -> u64 {
        self.at + offset_of!(LeaseHead, size) as u64
    }

    /// Where element `number` lies.
    pub fn element_at(&self, number: u64) -> u64 {
        let place = number % u64::from(self.elements);
        self.at + size_of::<LeaseHead>() as u64 + place * size_of::<LeaseElement>() as u64
    }
}

/// Where the block that begins at `unit` lies, if blocks lie from `blocks_at` on.
pub fn block_in(blocks_at: u64, unit: u32) -> u64 {
    blocks_at + u64::from(unit) * UNIT_BYTES
}

impl LeaseHead {
    /// The head of a lease that begins, of a file of `size` bytes.
    pub fn new(lease: u64, lent: u64, size: u64) -> LeaseHead {
        LeaseHead {
            lease: lease.into(),
            lent: lent.into(),
            closed: NOT_CLOSED.into(),
            lending: lent.into(),
            size: size.into(),
            ..LeaseHead::new_zeroed()
        }
    }
}

impl LeaseElement {
    /// The element that gives a block to whoever writes element `number`.
    pub fn lent(unit: u32, number: u64) -> LeaseElement {
        let [offset, modified] = [U64::ZERO; 2];
        LeaseElement { offset, unit: U32::new(unit), length: U32::ZERO, number: U64::new(number), modified }
    }

    /// Which block the element names, if that may be one in a lane of this plan.
    pub fn block(&self, plan: &LanePlan) -> Option<u32> {
        let unit = self.unit.get();
        (unit.is_multiple_of(LEASE_CLASS.units()) && unit / UNITS_PER_CHUNK < plan.chunks).then_some(unit)
    }

    /// This element after `length` bytes were written to its block, which belong at `offset`.
    pub fn filled(self, offset: u64, length: u32, modified: u64) -> LeaseElement {
        LeaseElement { offset: U64::new(offset), length: U32::new(length), modified: U64::new(modified), ..self }
    }

    /// What element `number` of a lease of `file` says, if it may say so in a lane of this plan.
    pub fn check(&self, number: u64, file: u32, plan: &LanePlan) -> Result<Extent, Broken> {
        rule(self.number.get() == number, "an element of a lease has its own number", 16, self.number)?;
        rule(self.length.get() > 0, "an element of a lease has bytes", 12, self.length)?;
        let (offset, unit, length) = (self.offset.get(), self.unit.get(), self.length.get());
        let extent = Extent { file, offset, length, unit, class: LEASE_CLASS };
        extent.check(plan)?;
        Ok(extent)
    }
}

impl FileEntry {
    /// Whether the entry names a lease log, if it counts.
    pub fn is_lease(&self) -> bool {
        self.clean.get() == FileEntry::LEASE && length_of(self.state.get()) > 0
    }

    /// The lease log that the entry names, if it may say so in a lane of this plan.
    pub fn lease(&self, plan: &LanePlan) -> Result<TrustedLease, Broken> {
        let class = class_of(self.class.get())?;
        let (file, unit) = (self.file.get(), self.unit.get());
        Extent { file, offset: 0, length: 1, unit, class }.check(plan)?;
        let mark = LeaseMark::of_bits(length_of(self.state.get()))?;
        Ok(TrustedLease { file, unit, class, mark })
    }

    /// The words of an entry that names a lease log, in the order in which they are stored.
    pub fn lease_words(lease: &TrustedLease, version: u64) -> [u64; 4] {
        [
            0,
            u64::from(lease.unit) << 32 | u64::from(lease.file),
            u64::from(FileEntry::LEASE) << 16 | u64::from(lease.class.number()),
            FileEntry::lease_word(lease.mark, version),
        ]
    }

    /// Whether the entry lends a chunk, if it counts.
    pub fn is_lent_chunk(&self) -> bool {
        self.clean.get() == FileEntry::LENT_CHUNK && length_of(self.state.get()) > 0
    }

    /// The chunk that the entry lends, if it may say so in a lane of this plan.
    pub fn lent_chunk(&self, plan: &LanePlan) -> Result<LentChunk, Broken> {
        let (class, file, unit, log) =
            (class_of(self.class.get())?, self.file.get(), self.unit.get(), self.offset.get());
        rule(class == CHUNK_CLASS, "an entry lends a whole chunk", 16, self.class)?;
        Extent { file, offset: 0, length: 1, unit, class }.check(plan)?;
        let log = u32::try_from(log).ok().filter(|log| *log < plan.entries);
        let log = rule(log.is_some(), "a lent chunk names the entry of a log", 0, self.offset).map(|()| log)?;
        Ok(LentChunk { file, chunk: unit / UNITS_PER_CHUNK, log: log.unwrap_or_default() })
    }

    /// The words of an entry that lends a chunk, in the order in which they are stored.
    pub fn lent_chunk_words(lent: &LentChunk, version: u64) -> [u64; 4] {
        [
            u64::from(lent.log),
            u64::from(lent.chunk * UNITS_PER_CHUNK) << 32 | u64::from(lent.file),
            u64::from(FileEntry::LENT_CHUNK) << 16 | u64::from(CHUNK_CLASS.number()),
            FileEntry::state_word(version, 1),
        ]
    }

    /// The last word of an entry that names a lease log.
    pub fn lease_word(mark: LeaseMark, version: u64) -> u64 {
        FileEntry::state_word(version, mark.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_cache::{Change, FileElement, PoolPlan};
    use zerocopy::{FromBytes, IntoBytes};

    fn plan() -> LanePlan {
        PoolPlan::cut(1, 4, 16, 8, 2).lane(0)
    }

    #[test]
    fn golden_bytes_of_a_log() {
        let head = LeaseHead::new(7, 3, 5);
        assert_eq!(&head.as_bytes()[..24], b"\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!((head.as_bytes()[24], head.as_bytes()[96]), (3, 5));
        assert_eq!(head.as_bytes()[25..].iter().filter(|byte| **byte != 0).count(), 1);
        let log = LeasePlan::of(4096, Class::ALL[0]);
        assert_eq!((log.elements, log.lease_at(), log.lent_at(), log.closed_at()), (4, 4096, 4104, 4112));
        assert_eq!((log.lending_at(), log.dropped_at(), log.taken_at()), (4120, 4128, 4136));
        assert_eq!((log.visible_at(), log.committed_at()), (4160, 4168));
        assert_eq!((log.writer_at(), log.size_at()), (4184, 4192));
        assert_eq!((log.element_at(0), log.element_at(7)), (4224, 4320));
        assert_eq!(LeasePlan::of(0, Class::ALL[3]).elements, 508);
        let element = LeaseElement::lent(0x1010, 9).filled(0x0102, 100, 5);
        assert_eq!(&element.as_bytes()[..16], b"\x02\x01\0\0\0\0\0\0\x10\x10\0\0\x64\0\0\0");
        assert_eq!(&element.as_bytes()[16..], b"\x09\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0");
        let extent = Extent { file: 3, offset: 0x0102, length: 100, unit: 0x1010, class: LEASE_CLASS };
        assert_eq!(element.check(9, 3, &plan()), Ok(extent));
    }

    #[test]
    fn golden_bytes_of_the_entry_of_a_log() {
        let lease = TrustedLease { file: 3, unit: 0x1004, class: Class::ALL[1], mark: LeaseMark::open(9) };
        let bytes: Vec<u8> = FileEntry::lease_words(&lease, 5).iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(&bytes[..24], b"\0\0\0\0\0\0\0\0\x03\0\0\0\x04\x10\0\0\x01\0\x02\0\0\0\0\0");
        assert_eq!(&bytes[24..], b"\x0a\0\xa0\0\0\0\0\0");
        let entry = FileEntry::read_from_bytes(&bytes).unwrap();
        assert_eq!((entry.is_lease(), entry.is_clean(), entry.version()), (true, false, 5));
        assert_eq!(entry.lease(&plan()), Ok(lease));
        let change = Change::Lease { slot: 7, mark: LeaseMark::Closed, version: 6 };
        let element = FileElement::new(&change);
        assert_eq!(&element.as_bytes()[..8], b"\x07\0\0\0\x03\0\0\0");
        assert_eq!(&element.as_bytes()[8..24], [0; 16]);
        assert_eq!(&element.as_bytes()[24..], b"\x01\0\xd0\0\0\0\0\0");
        assert_eq!(element.check(&plan()), Ok(change));
    }

    #[test]
    fn golden_bytes_of_the_entry_of_a_lent_chunk() {
        let lent = LentChunk { file: 3, chunk: 1, log: 7 };
        let bytes: Vec<u8> = FileEntry::lent_chunk_words(&lent, 5).iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(&bytes[..24], b"\x07\0\0\0\0\0\0\0\x03\0\0\0\0\x10\0\0\x06\0\x03\0\0\0\0\0");
        assert_eq!(&bytes[24..], b"\x01\0\xa0\0\0\0\0\0");
        let entry = FileEntry::read_from_bytes(&bytes).unwrap();
        assert_eq!((entry.is_lent_chunk(), entry.is_lease(), entry.is_clean()), (true, false, false));
        assert_eq!(entry.lent_chunk(&plan()), Ok(lent));
        for (word, wrong) in [(0, 16), (8, 4), (12, 0x2000), (12, 0x800), (16, 5 | 3 << 16)] {
            let mut bytes = bytes.clone();
            bytes[word..word + 4].copy_from_slice(&u32::to_le_bytes(wrong));
            assert!(FileEntry::read_from_bytes(&bytes).unwrap().lent_chunk(&plan()).is_err(), "{word}");
        }
    }

    #[test]
    fn what_a_lease_may_not_say_is_refused() {
        let good = LeaseElement::lent(0x1010, 9).filled(0, 4096, 0);
        assert!(good.check(9, 3, &plan()).is_ok());
        for (element, number) in [
            (good, 8),
            (good.filled(0, 4097, 0), 9),
            (good.filled(0, 0, 0), 9),
            (good.filled(u64::MAX, 1, 0), 9),
            (LeaseElement { unit: 0x1008.into(), ..good }, 9),
            (LeaseElement { unit: 0x2000.into(), ..good }, 9),
        ] {
            assert!(element.check(number, 3, &plan()).is_err(), "{element:?}");
        }
    }
}
