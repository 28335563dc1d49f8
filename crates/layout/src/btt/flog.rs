//! The flog: for each lane, a pair of slots that remember its last two writes.

use crate::on_media::{Broken, on_media, rule};
use std::mem::offset_of;
use zerocopy::little_endian::U32;

on_media! {
    /// One slot of a lane: block `lba` moved from `old` to `new`. The slot with the newer `seq` is
    /// the live one, and its `old` block is the lane's free block. Written as two 8-byte words,
    /// (lba, old) first, then (new, seq).
    pub struct FlogHalf [16] {
        /// the block the user sees, counted from the arena's first
        0: lba: U32,
        /// internal block it lay in before, now the lane's free block; flags of other writers are
        /// ignored
        4: old: U32,
        /// internal block it lies in now; equal to `old` in a lane that never wrote
        8: new: U32,
        /// 1 → 2 → 3 → 1; 0 in a slot never written
        12: seq: U32,
    }
}

on_media! {
    /// The slots of one lane. Two are in use, 0 and 1 (or 0 and 2 in volumes of Linux before 4.15);
    /// the others are zero.
    pub struct FlogGroup [64] {
        /// the four slots of 16 bytes
        0: slots: [FlogHalf; 4],
    }
}

impl FlogHalf {
    /// Where the second word lies, from the slot's beginning.
    pub const SECOND_WORD_AT: u64 = offset_of!(FlogHalf, new) as u64;

    /// A slot with these numbers.
    pub fn new(lba: u32, old: u32, new: u32, seq: u32) -> FlogHalf {
        FlogHalf { lba: U32::new(lba), old: U32::new(old), new: U32::new(new), seq: U32::new(seq) }
    }

    /// Whether the slot was never written.
    pub fn is_empty(&self) -> bool {
        *self == FlogHalf::new(0, 0, 0, 0)
    }

    /// The two words of the slot in the order in which they are stored.
    pub fn words(&self) -> [u64; 2] {
        let word = |low: U32, high: U32| u64::from(high.get()) << 32 | u64::from(low.get());
        [word(self.lba, self.old), word(self.new, self.seq)]
    }
}

/// Which two slots of each group a volume uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPair {
    /// Slots 0 and 1: everybody's.
    Adjacent,
    /// Slots 0 and 2: Linux before 4.15.
    Spread,
}

impl SlotPair {
    /// The numbers of the two slots.
    pub fn slots(self) -> [usize; 2] {
        match self {
            SlotPair::Adjacent => [0, 1],
            SlotPair::Spread => [0, 2],
        }
    }

    /// The two slots of `group` in use.
    pub fn of(self, group: &FlogGroup) -> [FlogHalf; 2] {
        self.slots().map(|slot| group.slots[slot])
    }

    /// Which pair a flog uses; `None` while no lane has filled a second slot, which both pairs
    /// allow. The error's offset counts from the start of the flog.
    pub fn detect<'a>(groups: impl Iterator<Item = &'a FlogGroup>) -> Result<Option<SlotPair>, Broken> {
        let mut found = None;
        for (lane, group) in groups.enumerate() {
            let at = lane as u64 * size_of::<FlogGroup>() as u64;
            rule(!group.slots[0].is_empty(), "slot 0 of each lane was written", at, "zeroes")?;
            rule(group.slots[3].is_empty(), "slot 3 of each lane is zero", at + 48, "data")?;
            let pair = match (group.slots[1].is_empty(), group.slots[2].is_empty()) {
                (true, true) => continue,
                (false, true) => SlotPair::Adjacent,
                (true, false) => SlotPair::Spread,
                (false, false) => {
                    return Err(Broken { rule: "a lane uses two slots", offset: at, found: "three".into() });
                }
            };
            rule(found.is_none_or(|other| other == pair), "all lanes use the same two slots", at, "a mixture")?;
            found = Some(pair);
        }
        Ok(found)
    }
}

/// The index, 0 or 1, of the live slot of a pair.
pub fn newest_slot(pair: &[FlogHalf; 2]) -> Result<usize, Broken> {
    match [pair[0].seq.get(), pair[1].seq.get()] {
        [1..=3, 0] | [1, 3] | [2, 1] | [3, 2] => Ok(0),
        [0, 1..=3] | [1, 2] | [2, 3] | [3, 1] => Ok(1),
        [a, b] => Err(Broken {
            rule: "the two sequence numbers follow each other",
            offset: 12,
            found: format!("{a} and {b}"),
        }),
    }
}

/// The sequence number after `seq`.
pub fn next_seq(seq: u32) -> u32 {
    if seq >= 3 { 1 } else { seq + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn golden_bytes() {
        let half = FlogHalf::new(0x1eef, 0x1eef, 0x3e8, 1);
        assert_eq!(half.as_bytes(), b"\xef\x1e\0\0\xef\x1e\0\0\xe8\x03\0\0\x01\0\0\0");
        assert_eq!(half.words(), [0x0000_1eef_0000_1eef, 0x0000_0001_0000_03e8]);
    }

    #[test]
    fn the_successor_is_newest() {
        let pair = |a, b| newest_slot(&[FlogHalf::new(0, 0, 0, a), FlogHalf::new(0, 0, 0, b)]);
        for seq in 1..=3 {
            assert_eq!(pair(seq, next_seq(seq)), Ok(1));
            assert_eq!(pair(next_seq(seq), seq), Ok(0));
            assert_eq!(pair(seq, 0), Ok(0));
            assert_eq!(pair(0, seq), Ok(1));
            assert!(pair(seq, seq).is_err());
            assert!(pair(seq, 4).is_err());
        }
        assert!(pair(0, 0).is_err());
    }

    fn group(used: [bool; 4]) -> FlogGroup {
        FlogGroup { slots: used.map(|used| FlogHalf::new(0, 0, 0, u32::from(used))) }
    }

    #[test]
    fn both_styles_are_told_apart_and_mixtures_refused() {
        let fresh = group([true, false, false, false]);
        let adjacent = group([true, true, false, false]);
        let spread = group([true, false, true, false]);
        assert_eq!(SlotPair::detect([fresh, fresh].iter()), Ok(None));
        assert_eq!(SlotPair::detect([fresh, adjacent].iter()), Ok(Some(SlotPair::Adjacent)));
        assert_eq!(SlotPair::detect([spread, fresh].iter()), Ok(Some(SlotPair::Spread)));
        assert_eq!(SlotPair::detect([spread, adjacent].iter()).unwrap_err().offset, 64);
        for bad in [[false; 4], [true, true, true, false], [true, false, false, true], [false, true, false, false]] {
            assert!(SlotPair::detect([group(bad)].iter()).is_err(), "{bad:?}");
        }
    }
}
