//! Checks entries and ring elements against the plan of their cache.

use crate::disk_cache::entry::{CLEAN, CacheEntry, EntryState, LBA_BITS, RingElement};
use crate::disk_cache::superblock::CachePlan;
use crate::on_media::{Broken, rule};

impl CacheEntry {
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

impl RingElement {
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
    use zerocopy::little_endian::{U32, U64};

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
}
