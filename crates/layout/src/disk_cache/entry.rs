//! Entries and ring elements: two words each.

use crate::disk_cache::CachePlan;
use crate::on_media::{Broken, on_media, rule};
use zerocopy::little_endian::{U16, U32, U64};

/// Bits of a disk's block number: more blocks than this no cache has.
pub const LBA_BITS: u32 = 48;

const CLEAN: u16 = 1;

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
    /// The second word of a free entry.
    pub fn free_word(counter: u16) -> u64 {
        u64::from(counter) << 32
    }

    /// The second word of an entry without a check that holds `block`.
    fn holding_word(block: u32, counter: u16, clean: bool) -> u64 {
        u64::from(u16::from(clean) * CLEAN) << 48 | u64::from(counter) << 32 | (u64::from(block) + 1)
    }

    /// The flags of an entry that holds a block, given its two words without a check.
    fn checked_flags(lba: u64, word: u64) -> u64 {
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

    /// What the entry says, if it may say so in a cache of this plan.
    pub fn check(&self, plan: &CachePlan) -> Result<EntryState, Broken> {
        let counter = self.counter.get();
        let flags = self.flags.get();
        let Some(block) = self.block.get().checked_sub(1) else {
            rule(flags == 0, "a free entry has no flags", 14, flags)?;
            return Ok(EntryState::Free { counter });
        };
        rule(block < plan.blocks, "an entry names a block of the cache", 8, block)?;
        rule(self.lba.get() < plan.disk_blocks, "an entry names a block of the disk", 0, self.lba)?;
        let clean = flags & CLEAN == CLEAN;
        let known = plan.holding_word(self.lba.get(), block, counter, clean) >> 48;
        let law = if plan.entries_checked { "an entry fits its check" } else { "an entry's flags are known" };
        rule(u64::from(flags) == known, law, 14, flags)?;
        Ok(EntryState::Holds { lba: self.lba.get(), block, counter, clean })
    }
}

impl CachePlan {
    /// The second word of an entry that holds `block` as block `lba` of the disk.
    pub fn holding_word(&self, lba: u64, block: u32, counter: u16, clean: bool) -> u64 {
        let word = CacheEntry::holding_word(block, counter, clean);
        if self.entries_checked { word | CacheEntry::checked_flags(lba, word) << 48 } else { word }
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

    /// The entry, and what it becomes, if the element may say so in a cache of this plan.
    pub fn check(&self, plan: &CachePlan) -> Result<(u32, EntryState), Broken> {
        let place = self.place.get();
        let lba = place & ((1 << LBA_BITS) - 1);
        let [.., low, high] = place.to_le_bytes();
        rule(self.entry.get() < plan.blocks, "an element names an entry", 0, self.entry)?;
        rule((1..=plan.blocks).contains(&self.block.get()), "an element names a block of the cache", 4, self.block)?;
        rule(lba < plan.disk_blocks, "an element names a block of the disk", 8, lba)?;
        let becomes = EntryState::Holds {
            lba,
            block: self.block.get() - 1,
            counter: u16::from_le_bytes([low, high]),
            clean: false,
        };
        Ok((self.entry.get(), becomes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    const PLAN: CachePlan = CachePlan {
        block_size: 4096,
        blocks: 1000,
        disk_blocks: 1 << 30,
        ring_slots: 64,
        ring_at: 0,
        entries_at: 0,
        sums_at: None,
        data_at: 0,
        journal_blocks: 0,
        start_sums: false,
        entries_checked: false,
    };

    const CHECKED: CachePlan = CachePlan { entries_checked: true, ..PLAN };

    #[test]
    fn golden_bytes_of_an_entry() {
        let words = [0x0102_0304, PLAN.holding_word(0x0102_0304, 0x3e7, 0xbeef, true)];
        let entry = CacheEntry::from_words(words);
        assert_eq!(entry.as_bytes(), b"\x04\x03\x02\x01\0\0\0\0\xe8\x03\0\0\xef\xbe\x01\0");
        let holds = EntryState::Holds { lba: 0x0102_0304, block: 0x3e7, counter: 0xbeef, clean: true };
        assert_eq!(entry.check(&PLAN), Ok(holds));
    }

    #[test]
    fn golden_bytes_of_a_checked_entry() {
        let words = [0x0102_0304, CHECKED.holding_word(0x0102_0304, 0x3e7, 0xbeef, true)];
        let entry = CacheEntry::from_words(words);
        assert_eq!(entry.as_bytes(), b"\x04\x03\x02\x01\0\0\0\0\xe8\x03\0\0\xef\xbe\xc1\x16");
        let holds = EntryState::Holds { lba: 0x0102_0304, block: 0x3e7, counter: 0xbeef, clean: true };
        assert_eq!(entry.check(&CHECKED), Ok(holds));
        assert!(entry.check(&PLAN).is_err(), "a reader without checks does not know these flags");
    }

    #[test]
    fn one_or_two_flipped_bits_of_a_checked_entry_are_noticed() {
        let whole = [0x0a_1234_5678, CHECKED.holding_word(0x0a_1234_5678, 77, 0x1357, false)];
        let flipped = |bits: [usize; 2]| {
            let mut words = whole;
            bits.into_iter().for_each(|bit| words[bit / 64] ^= 1 << (bit % 64));
            CacheEntry::from_words(words)
        };
        let wide = CachePlan { blocks: u32::MAX - 1, disk_blocks: u64::MAX, ..CHECKED };
        assert!(CacheEntry::from_words(whole).check(&wide).is_ok());
        for one in 0..128 {
            let single = CacheEntry::from_words(std::array::from_fn(|word| {
                whole[word] ^ u64::from(one / 64 == word) << (one % 64)
            }));
            assert!(single.check(&wide).is_err(), "bit {one}");
            (0..one).for_each(|other| assert!(flipped([one, other]).check(&wide).is_err(), "bits {one} and {other}"));
        }
    }

    #[test]
    fn golden_bytes_of_an_element() {
        let element = RingElement::new(7, 0x0102_0304, 9, 0xbeef);
        assert_eq!(element.as_bytes(), b"\x07\0\0\0\x0a\0\0\0\x04\x03\x02\x01\0\0\xef\xbe");
        let becomes = EntryState::Holds { lba: 0x0102_0304, block: 9, counter: 0xbeef, clean: false };
        assert_eq!(element.check(&PLAN), Ok((7, becomes)));
    }

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
    fn zeroes_are_a_free_entry_and_no_element() {
        assert_eq!(CacheEntry::from_words([0, 0]).check(&PLAN), Ok(EntryState::Free { counter: 0 }));
        assert_eq!(CacheEntry::from_words([9, CacheEntry::free_word(3)]).check(&PLAN).unwrap().counter(), 3);
        assert!(RingElement { entry: U32::ZERO, block: U32::ZERO, place: U64::ZERO }.check(&PLAN).is_err());
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let entry = |lba, block| CacheEntry::from_words([lba, PLAN.holding_word(lba, block, 0, false)]).check(&PLAN);
        assert!(entry(0, 999).is_ok() && entry(0, 1000).is_err() && entry(1 << 30, 0).is_err());
        assert!(CacheEntry::from_words([0, 2 << 48 | 1]).check(&PLAN).is_err(), "an unknown flag");
        assert!(CacheEntry::from_words([0, 1 << 48]).check(&PLAN).is_err(), "a clean nothing");
        let element = |entry, lba, block| RingElement::new(entry, lba, block, 0).check(&PLAN);
        assert!(element(999, 0, 999).is_ok() && element(1000, 0, 0).is_err());
        assert!(element(0, 0, 1000).is_err() && element(0, 1 << 30, 0).is_err());
    }

    #[test]
    fn counters_go_round() {
        assert!(is_ahead(1, 0) && is_ahead(0, 0xffff) && is_ahead(0x7fff, 0));
        assert!(!is_ahead(0, 0) && !is_ahead(0, 1) && !is_ahead(0xffff, 0));
    }
}
