//! Entries, and the elements of a lane's ring.

use crate::file_cache::lease_mark::LeaseMark;
use crate::on_media::{Broken, on_media, rule};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};

/// Bytes in a chunk.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// Bytes of the smallest block: what blocks are counted in.
pub(super) const UNIT_BYTES: u64 = 256;

/// Units in a chunk.
pub const UNITS_PER_CHUNK: u32 = 4096;

const _: () = assert!(UNITS_PER_CHUNK as u64 * UNIT_BYTES == CHUNK_BYTES);

/// Bits of an extent's length.
pub const LENGTH_BITS: u32 = 21;

/// The greatest version.
pub const VERSION_MAX: u64 = u64::MAX >> LENGTH_BITS;

on_media! {
    /// Which bytes of a file lie in a block. The last word is one aligned store and makes the entry
    /// count; the others are stored only while it says that the entry is free, but that an entry
    /// may become clean.
    pub struct FileEntry [32] {
        /// offset of the first byte in the file
        0: offset: U64,
        /// number of the file's record
        8: file: U32,
        /// where the block begins, in units of 256 bytes from the lane's first chunk
        12: unit: U32,
        /// class of the block: it has 256 · 4^class bytes
        16: class: U16,
        /// 1: the entry is clean, as the file below has its bytes too, durably; it counts although
        /// it may be void, as long as the file has the record's stamp; 2: the block is a lease log;
        /// 3: the chunk is lent to the lease whose log is named by the entry that `offset` says; 4:
        /// the block is a time page; 0: none of these
        18: clean: U16,
        /// zero
        20: reserved: [u8; 4],
        /// length in bits 20..0, 0 in a free entry; version in bits 63..21. The length of a lease
        /// log says how many elements were taken over, modulo 2^20, and one; 2^20 + 1 says that the
        /// lease was revoked
        24: state: U64,
    }
}

on_media! {
    /// What an entry or a record becomes. Durable before the head cursor passes it.
    pub struct FileElement [32] {
        /// number of the entry or of the record
        0: target: U32,
        /// 1: an entry; 2: a record; 3: an entry that names a lease log, of which only the last
        /// word changes
        4: kind: U16,
        /// class of the block; otherwise 0
        6: class: U16,
        /// the entry's offset; the record's size; otherwise 0
        8: place: U64,
        /// the entry's file in bits 31..0 and unit in bits 63..32; up to which version entries of
        /// the record's file are void; otherwise 0
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
    /// Where the block begins, in units of 256 bytes from the lane's first chunk.
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
    /// More of a lease log was taken over.
    Lease {
        /// Number of the entry that names the log.
        slot: u32,
        /// How much.
        mark: LeaseMark,
        /// The commit's version.
        version: u64,
    },
}

impl Change {
    /// The commit's version.
    pub fn version(&self) -> u64 {
        let (Change::Entry { version, .. } | Change::Record { version, .. } | Change::Lease { version, .. }) = *self;
        version
    }
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
}

fn state(version: u64, length: u32) -> u64 {
    version << LENGTH_BITS | u64::from(length)
}

pub(super) fn class_of(number: u16) -> Result<Class, Broken> {
    let known = usize::from(number) < Class::ALL.len();
    rule(known, "the class of a block is known", 16, number)?;
    Ok(Class(number))
}

pub(super) fn length_of(state: u64) -> u32 {
    u32::try_from(state & ((1 << LENGTH_BITS) - 1)).expect("a length has 21 bits")
}

impl FileEntry {
    /// What an entry says in the place of whether it is clean that names a lease log.
    pub(super) const LEASE: u16 = 2;

    /// Word `clean` of an entry that lends a chunk.
    pub(super) const LENT_CHUNK: u16 = 3;

    /// Word `clean` of an entry that names a time page.
    pub(super) const TIME_PAGE: u16 = 4;

    /// Where the last word lies, from the entry's beginning.
    pub const STATE_AT: u64 = offset_of!(FileEntry, state) as u64;

    /// Where the word with the class lies, from the entry's beginning.
    pub const CLASS_AT: u64 = offset_of!(FileEntry, class) as u64;

    /// The word with the class of a clean entry.
    pub fn clean_word(class: Class) -> u64 {
        1 << 16 | u64::from(class.0)
    }

    /// Whether the entry is clean, if its other words count.
    pub fn is_clean(&self) -> bool {
        self.clean.get() == 1 && length_of(self.state.get()) > 0
    }

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
            clean: U16::ZERO,
            reserved: [0; 4],
            state: U64::new(state(version, extent.length)),
        }
    }
}

impl FileElement {
    pub(super) const ENTRY: u16 = 1;
    pub(super) const RECORD: u16 = 2;
    pub(super) const LEASE: u16 = 3;

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
            Change::Lease { slot, mark, version } => FileElement {
                target: U32::new(slot),
                kind: U16::new(FileElement::LEASE),
                class: U16::ZERO,
                place: U64::ZERO,
                what: U64::ZERO,
                state: U64::new(FileEntry::lease_word(mark, version)),
            },
        }
    }

    /// Whether its target is a record.
    pub fn is_of_record(&self) -> bool {
        self.kind.get() == FileElement::RECORD
    }
}
