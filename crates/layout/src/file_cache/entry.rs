//! Entries, and the elements of a lane's ring.

use crate::file_cache::superblock::{CHUNK_BYTES, LanePlan, UNIT_BYTES, UNITS_PER_CHUNK};
use crate::on_media::{Broken, on_media, rule};
use zerocopy::little_endian::{U16, U32, U64};

/// Bits of an extent's length.
pub const LENGTH_BITS: u32 = 21;

/// The greatest version.
pub const VERSION_MAX: u64 = u64::MAX >> LENGTH_BITS;

/// Bytes of a file end here at the latest, as the kernel's `loff_t` wants it.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

on_media! {
    /// Which bytes of a file lie in a block. The last word is one aligned store and makes the entry
    /// count; the others are stored only while it says that the entry is free.
    pub struct FileEntry [32] {
        /// offset of the first byte in the file
        0: offset: U64,
        /// number of the file's record
        8: file: U32,
        /// where the block begins, in units of 256 bytes from the lane's first chunk
        12: unit: U32,
        /// class of the block: it has 256 · 4^class bytes
        16: class: U16,
        /// zero
        18: reserved: [u8; 6],
        /// length in bits 20..0, 0 in a free entry; version in bits 63..21
        24: state: U64,
    }
}

on_media! {
    /// What an entry or a record becomes. Durable before the head cursor passes it.
    pub struct FileElement [32] {
        /// number of the entry or of the record
        0: target: U32,
        /// 1: an entry; 2: a record
        4: kind: U16,
        /// class of the block; 0 for a record
        6: class: U16,
        /// the entry's offset; the record's size
        8: place: U64,
        /// the entry's file in bits 31..0 and unit in bits 63..32; up to which version entries of
        /// the record's file are void
        16: what: U64,
        /// the entry's last word; the record's version in bits 63..21
        24: state: U64,
    }
}

/// How large a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u16);

/// Bytes of a file in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of the file's record.
    pub file: u32,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Bytes, from 1 to the block's size.
    pub length: u32,
    /// Where the block begins, in units of [`UNIT_BYTES`] from the lane's first chunk.
    pub unit: u32,
    /// How large the block is.
    pub class: Class,
}

/// An entry that keeps the rules of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryState {
    /// When it was committed.
    pub version: u64,
    /// What it says; `None` if it is free.
    pub extent: Option<Extent>,
}

/// An element that keeps the rules of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An entry comes to say this.
    Entry {
        /// Number of the entry.
        slot: u32,
        /// What it says.
        extent: Extent,
        /// The commit's version.
        version: u64,
    },
    /// A record comes to say this.
    Record {
        /// Number of the record.
        file: u32,
        /// Length of the file.
        size: u64,
        /// Up to which version the file's entries are void.
        void: u64,
        /// The commit's version.
        version: u64,
    },
}

impl Class {
    /// Every class, the smallest first.
    pub const ALL: [Class; 7] = [Class(0), Class(1), Class(2), Class(3), Class(4), Class(5), Class(6)];

    /// The smallest class with blocks of at least `bytes` bytes, if there is one.
    pub fn holding(bytes: u64) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.bytes() >= bytes)
    }

    /// Bytes in a block.
    pub fn bytes(self) -> u64 {
        UNIT_BYTES << (2 * self.0)
    }

    /// Units in a block.
    pub fn units(self) -> u32 {
        1 << (2 * self.0)
    }

    /// Its number, from 0.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Bytes of the largest block.
    pub const fn bytes_max() -> u64 {
        CHUNK_BYTES
    }
}

const _: () = assert!(UNIT_BYTES << (2 * 6) == CHUNK_BYTES && CHUNK_BYTES < 1 << LENGTH_BITS);

impl Extent {
    /// One past the last byte in the file.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    fn check(&self, plan: &LanePlan) -> Result<(), Broken> {
        let fits = u64::from(self.length) <= self.class.bytes();
        rule(fits, "an extent fits into its block", 24, self.length)?;
        let end = self.offset.checked_add(u64::from(self.length)).is_some_and(|end| end <= FILE_BYTES_MAX);
        rule(end, "an extent ends within a file", 0, self.offset)?;
        rule(self.file < plan.files, "an extent names a record", 8, self.file)?;
        let aligned = self.unit.is_multiple_of(self.class.units());
        let inside = u64::from(self.unit) < u64::from(plan.chunks) * u64::from(UNITS_PER_CHUNK);
        rule(aligned && inside, "an extent names a block of the lane", 12, self.unit)
    }
}

fn state(version: u64, length: u32) -> u64 {
    version << LENGTH_BITS | u64::from(length)
}

fn class_of(number: u16) -> Result<Class, Broken> {
    let known = usize::from(number) < Class::ALL.len();
    rule(known, "the class of a block is known", 16, number)?;
    Ok(Class(number))
}

fn length_of(state: u64) -> u32 {
    u32::try_from(state & ((1 << LENGTH_BITS) - 1)).expect("a length has 21 bits")
}

impl FileEntry {
    /// The last word of an entry of this length; 0 frees it.
    pub fn state_word(version: u64, length: u32) -> u64 {
        state(version, length)
    }

    /// The words of an entry, in the order in which they are stored.
    pub fn words(extent: &Extent, version: u64) -> [u64; 4] {
        [
            extent.offset,
            u64::from(extent.unit) << 32 | u64::from(extent.file),
            u64::from(extent.class.0),
            state(version, extent.length),
        ]
    }

    /// Its version, which counts even where the other words do not.
    pub fn version(&self) -> u64 {
        self.state.get() >> LENGTH_BITS
    }

    /// The entry of this extent.
    pub fn new(extent: &Extent, version: u64) -> FileEntry {
        FileEntry {
            offset: U64::new(extent.offset),
            file: U32::new(extent.file),
            unit: U32::new(extent.unit),
            class: U16::new(extent.class.0),
            reserved: [0; 6],
            state: U64::new(state(version, extent.length)),
        }
    }

    /// What the entry says, if it may say so in a lane of this plan.
    pub fn check(&self, plan: &LanePlan) -> Result<EntryState, Broken> {
        let word = self.state.get();
        let (version, length) = (word >> LENGTH_BITS, length_of(word));
        if length == 0 {
            return Ok(EntryState { version, extent: None });
        }
        let class = class_of(self.class.get())?;
        let (file, unit) = (self.file.get(), self.unit.get());
        let extent = Extent { file, offset: self.offset.get(), length, unit, class };
        extent.check(plan)?;
        Ok(EntryState { version, extent: Some(extent) })
    }
}

impl FileElement {
    const ENTRY: u16 = 1;
    const RECORD: u16 = 2;

    /// The element that says so.
    pub fn new(change: &Change) -> FileElement {
        match *change {
            Change::Entry { slot, extent, version } => FileElement {
                target: U32::new(slot),
                kind: U16::new(FileElement::ENTRY),
                class: U16::new(extent.class.0),
                place: U64::new(extent.offset),
                what: U64::new(u64::from(extent.unit) << 32 | u64::from(extent.file)),
                state: U64::new(state(version, extent.length)),
            },
            Change::Record { file, size, void, version } => FileElement {
                target: U32::new(file),
                kind: U16::new(FileElement::RECORD),
                class: U16::ZERO,
                place: U64::new(size),
                what: U64::new(void),
                state: U64::new(state(version, 0)),
            },
        }
    }

    /// Whether its target is a record.
    pub fn is_of_record(&self) -> bool {
        self.kind.get() == FileElement::RECORD
    }

    /// What the element says, if it may say so in a lane of this plan.
    pub fn check(&self, plan: &LanePlan) -> Result<Change, Broken> {
        let (target, word, what) = (self.target.get(), self.state.get(), self.what.get());
        let version = word >> LENGTH_BITS;
        if self.is_of_record() {
            rule(target < plan.files, "an element names a record", 0, target)?;
            rule(self.place.get() <= FILE_BYTES_MAX, "a file's length is in range", 8, self.place)?;
            return Ok(Change::Record { file: target, size: self.place.get(), void: what, version });
        }
        rule(self.kind.get() == FileElement::ENTRY, "an element's kind is known", 4, self.kind)?;
        rule(target < plan.entries, "an element names an entry", 0, target)?;
        rule(length_of(word) > 0, "an element's extent has bytes", 24, word)?;
        let [f0, f1, f2, f3, u0, u1, u2, u3] = what.to_le_bytes();
        let extent = Extent {
            file: u32::from_le_bytes([f0, f1, f2, f3]),
            offset: self.place.get(),
            length: length_of(word),
            unit: u32::from_le_bytes([u0, u1, u2, u3]),
            class: class_of(self.class.get())?,
        };
        extent.check(plan)?;
        Ok(Change::Entry { slot: target, extent, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_cache::PoolPlan;
    use zerocopy::{FromBytes, IntoBytes};

    fn plan() -> LanePlan {
        PoolPlan::cut(1, 4, 16, 8, 2).lane(0)
    }

    const EXTENT: Extent = Extent { file: 3, offset: 0x0102, length: 100, unit: 0x1004, class: Class(1) };

    #[test]
    fn golden_bytes_of_an_entry() {
        assert_eq!(FileEntry::new(&EXTENT, 5).version(), 5);
        let words: Vec<u8> = FileEntry::words(&EXTENT, 5).iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut golden = [0; 32];
        golden[..2].copy_from_slice(b"\x02\x01");
        golden[8..18].copy_from_slice(b"\x03\0\0\0\x04\x10\0\0\x01\0");
        golden[24..28].copy_from_slice(b"\x64\0\xa0\0");
        assert_eq!((&words[..], FileEntry::new(&EXTENT, 5).as_bytes()), (&golden[..], &golden[..]));
        let entry = FileEntry::read_from_bytes(&golden).unwrap();
        assert_eq!(entry.check(&plan()), Ok(EntryState { version: 5, extent: Some(EXTENT) }));
    }

    #[test]
    fn golden_bytes_of_an_element() {
        let change = Change::Entry { slot: 7, extent: EXTENT, version: 5 };
        let element = FileElement::new(&change);
        assert_eq!(&element.as_bytes()[..16], b"\x07\0\0\0\x01\0\x01\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(&element.as_bytes()[16..], b"\x03\0\0\0\x04\x10\0\0\x64\0\xa0\0\0\0\0\0");
        assert_eq!(element.check(&plan()), Ok(change));
        let change = Change::Record { file: 2, size: 9, void: 4, version: 6 };
        let element = FileElement::new(&change);
        assert_eq!(&element.as_bytes()[..16], b"\x02\0\0\0\x02\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(&element.as_bytes()[16..], b"\x04\0\0\0\0\0\0\0\0\0\xc0\0\0\0\0\0");
        assert_eq!(element.check(&plan()), Ok(change));
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let check = |extent: Extent| FileElement::new(&Change::Entry { slot: 0, extent, version: 1 }).check(&plan());
        assert!(check(EXTENT).is_ok());
        for extent in [
            Extent { file: 4, ..EXTENT },
            Extent { unit: 0x1002, ..EXTENT },
            Extent { unit: 0x2000, ..EXTENT },
            Extent { length: 1025, ..EXTENT },
            Extent { length: 0, ..EXTENT },
            Extent { offset: u64::MAX - 5, ..EXTENT },
        ] {
            assert!(check(extent).is_err(), "{extent:?}");
        }
        assert!(FileElement::new(&Change::Entry { slot: 16, extent: EXTENT, version: 1 }).check(&plan()).is_err());
        assert!(FileElement::new(&Change::Record { file: 4, size: 0, void: 0, version: 1 }).check(&plan()).is_err());
    }

    #[test]
    fn classes_go_from_256_bytes_to_a_chunk() {
        assert_eq!(Class::ALL.map(Class::bytes), [256, 1024, 4096, 16384, 65536, 262_144, 1 << 20]);
        assert_eq!(Class::holding(257), Some(Class(1)));
        assert_eq!(Class::holding((1 << 20) + 1), None);
    }
}
