//! Entries and ring elements: two words each.

use crate::on_media::on_media;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};

/// Bits of a disk's block number: more blocks than this no cache has.
pub const LBA_BITS: u32 = 48;

/// Bytes of the smallest block.
pub const CACHE_BLOCK_BYTES_MIN: u32 = 512;

/// Bytes of the largest block.
pub const CACHE_BLOCK_BYTES_MAX: u32 = 65536;

/// The bit of an entry's flags that says that the disk holds the same bytes.
pub(super) const CLEAN: u16 = 1;

/// Bits of the flags before those of an entry's check.
const CHECK_SHIFT: u32 = 1;

on_media! {
    /// Where a block of the disk lies. The second word is one aligned store and makes the entry
    /// count; the first is stored only while the second says that the entry is free.
    pub struct CacheEntry [16] {
        /// number of the block on the disk
        0: lba: U64,
        /// number of the cached block, counted from 1; 0 in a free entry
        8: block: U32,
        /// one more with each store that changes `block`, modulo 2^16
        12: counter: U16,
        /// bit 0: the disk holds the same bytes, and has confirmed a flush since; bits 15..1: in a
        /// cache with checked entries, the check of an entry that holds a block, else zero. The
        /// check is `c ^ c >> 15 ^ c >> 30` in 15 bits, c being the CRC-32C of `lba` and of the
        /// other 8 bytes with a check of zero
        14: flags: U16,
    }
}

on_media! {
    /// What an entry becomes by a transaction. Durable before the head cursor passes it.
    pub struct RingElement [16] {
        /// number of the entry
        0: entry: U32,
        /// number of the cached block, counted from 1
        4: block: U32,
        /// number of the block on the disk in bits 47..0, the entry's counter in bits 63..48
        8: place: U64,
    }
}

on_media! {
    /// The checksum of a block of the cache. It is stored together with the block, so it is right
    /// wherever an entry names the block.
    pub struct BlockSum [8] {
        /// CRC-32C of the number of the block on the disk (8 bytes, little-endian) and the block
        0: sum: U32,
        /// zero
        4: reserved: U32,
    }
}

on_media! {
    /// What the disk is known to hold in one of its first blocks. All zeroes: nothing is known, as
    /// a write of it may be under way.
    pub struct StartSum [8] {
        /// FNV-1a of the block, 64 bits; 1 in the place of 0. No CRC: that of a block which ends in
        /// its own, as file systems have them, never changes
        0: hash: U64,
    }
}

/// An entry that keeps the rules of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// It holds nothing.
    Free {
        /// Its counter.
        counter: u16,
    },
    /// It holds a block.
    Holds {
        /// Number of the block on the disk.
        lba: u64,
        /// Number of the cached block, from 0.
        block: u32,
        /// Its counter.
        counter: u16,
        /// Whether the disk holds the same bytes.
        clean: bool,
    },
}

impl EntryState {
    /// The entry's counter.
    pub fn counter(self) -> u16 {
        match self {
            EntryState::Free { counter } | EntryState::Holds { counter, .. } => counter,
        }
    }

    /// The block of the disk that it is about.
    pub fn lba(self) -> Option<u64> {
        match self {
            EntryState::Free { .. } => None,
            EntryState::Holds { lba, .. } => Some(lba),
        }
    }
}

/// Whether counter `a` comes after `b`. Counters compared with each other are less than 2^15 steps
/// apart.
pub fn is_ahead(a: u16, b: u16) -> bool {
    matches!(a.wrapping_sub(b), 1..0x8000)
}

impl CacheEntry {
    /// Where the second word lies, from the entry's beginning.
    pub const STATE_AT: u64 = offset_of!(CacheEntry, block) as u64;

    /// The second word of a free entry.
    pub fn free_word(counter: u16) -> u64 {
        u64::from(counter) << 32
    }

    /// The second word of an entry without a check that holds `block`.
    pub(super) fn holding_word(block: u32, counter: u16, clean: bool) -> u64 {
        u64::from(u16::from(clean) * CLEAN) << 48 | u64::from(counter) << 32 | (u64::from(block) + 1)
    }

    /// The flags of an entry that holds a block, given its two words without a check.
    pub(super) fn checked_flags(lba: u64, word: u64) -> u64 {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&lba.to_le_bytes()), &word.to_le_bytes());
        u64::from((sum ^ sum >> 15 ^ sum >> 30) & 0x7fff) << CHECK_SHIFT
    }

    /// The entry of these two words.
    pub fn from_words([lba, state]: [u64; 2]) -> CacheEntry {
        let [b0, b1, b2, b3, c0, c1, f0, f1] = state.to_le_bytes();
        CacheEntry {
            lba: U64::new(lba),
            block: U32::from_bytes([b0, b1, b2, b3]),
            counter: U16::from_bytes([c0, c1]),
            flags: U16::from_bytes([f0, f1]),
        }
    }
}

impl StartSum {
    /// The word of a block of which nothing is known.
    pub const UNKNOWN: u64 = 0;

    /// The word of a block of the disk that holds `data`.
    pub fn word_of(data: &[u8]) -> u64 {
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        data.iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
    }
}

impl BlockSum {
    /// The word that stands for `data`, block `lba` of the disk.
    pub fn word_of(lba: u64, data: &[u8]) -> u64 {
        u64::from(crc32c::crc32c_append(crc32c::crc32c(&lba.to_le_bytes()), data))
    }
}

impl RingElement {
    /// `entry` comes to say that block `lba` of the disk lies in `block`.
    pub fn new(entry: u32, lba: u64, block: u32, counter: u16) -> RingElement {
        RingElement {
            entry: U32::new(entry),
            block: U32::new(block + 1),
            place: U64::new(u64::from(counter) << LBA_BITS | lba),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_the_place_and_the_bytes() {
        // CRC-32C of "123456789" is 0xe3069283, its published check value.
        assert_eq!(BlockSum::word_of(u64::from_le_bytes(*b"12345678"), b"9"), 0xe306_9283);
        assert_ne!(BlockSum::word_of(1, &[0; 512]), BlockSum::word_of(2, &[0; 512]));
    }

    #[test]
    fn a_block_of_the_disks_start_is_known_whatever_checksum_is_in_it() {
        // FNV-1a of "foobar" has 64 published bits.
        assert_eq!(StartSum::word_of(b"foobar"), 0x8594_4171_f739_67e8);
        let with_its_crc = |block: &[u8]| [block, &crc32c::crc32c(block).to_le_bytes()].concat();
        let [one, other] = [b"one", b"two"].map(|block| with_its_crc(block));
        assert_eq!(crc32c::crc32c(&one), crc32c::crc32c(&other), "a CRC does not see a change that mends its CRC");
        assert_ne!(StartSum::word_of(&one), StartSum::word_of(&other));
    }

    #[test]
    fn counters_go_round() {
        assert!(is_ahead(1, 0) && is_ahead(0, 0xffff) && is_ahead(0x7fff, 0));
        assert!(!is_ahead(0, 0) && !is_ahead(0, 1) && !is_ahead(0xffff, 0));
    }
}
