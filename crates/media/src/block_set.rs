//! A set of blocks of a region, one bit each: what checks and recoveries find out.

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
}
