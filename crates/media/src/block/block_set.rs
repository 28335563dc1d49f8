//! A set of blocks of a region, one bit each: the findings of checks and recoveries.

use std::ops::Range;

/// A set of blocks below a fixed number.
#[derive(Debug)]
pub struct BlockSet {
    words: Vec<u64>,
    blocks: u32,
}

impl BlockSet {
    /// No block, of `blocks`.
    pub fn new(blocks: u32) -> BlockSet {
        BlockSet { words: vec![0; blocks.div_ceil(64) as usize], blocks }
    }

    /// Adds `block`; whether it was new.
    pub fn insert(&mut self, block: u32) -> bool {
        let (word, bit) = (&mut self.words[block as usize / 64], 1 << (block % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Adds all of `range`, if no block of it is in the set; whether so.
    pub fn insert_range(&mut self, range: Range<u32>) -> bool {
        let parts = || {
            let (mut block, end) = (range.start, range.end);
            std::iter::from_fn(move || {
                let count = (64 - block % 64).min(end.saturating_sub(block));
                let part = (block as usize / 64, (u64::MAX >> (64 - count.max(1))) << (block % 64));
                block += count;
                (count > 0).then_some(part)
            })
        };
        let new = parts().all(|(word, bits)| self.words[word] & bits == 0);
        if new {
            parts().for_each(|(word, bits)| self.words[word] |= bits);
        }
        new
    }

    /// Whether `block` is in the set.
    pub fn contains(&self, block: u32) -> bool {
        self.words[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// The blocks not in the set, ascending.
    pub fn absent(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.blocks).filter(|block| !self.contains(*block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_new_once() {
        let mut set = BlockSet::new(130);
        assert!([0, 63, 64, 129].into_iter().all(|block| set.insert(block)));
        assert!(!set.insert(64) && set.contains(129) && !set.contains(128));
        assert_eq!((set.absent().count(), set.absent().next()), (126, Some(1)));
    }

    #[test]
    fn a_range_is_added_whole_or_not_at_all() {
        for (range, beside) in
            [(0..130, vec![]), (1..64, vec![0, 64]), (63..65, vec![62, 65]), (64..128, vec![63, 128])]
        {
            let mut set = BlockSet::new(130);
            assert!(set.insert_range(range.clone()) && !set.insert_range(range.clone()));
            assert!(range.clone().all(|block| set.contains(block)));
            assert!(!beside.into_iter().any(|block| set.contains(block)), "{range:?}");
        }
        let mut set = BlockSet::new(130);
        assert!(set.insert(100) && set.insert_range(7..7));
        assert!(!set.insert_range(60..101));
        assert_eq!(set.absent().count(), 129);
    }
}
