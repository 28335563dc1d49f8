//! A set of an arena's internal blocks, one bit each.

/// A set of blocks below a fixed number.
pub(crate) struct BlockSet {
    words: Vec<u64>,
    blocks: u32,
}

impl BlockSet {
    pub(crate) fn new(blocks: u32) -> BlockSet {
        BlockSet { words: vec![0; blocks.div_ceil(64) as usize], blocks }
    }

    /// Adds `block`; whether it was new.
    pub(crate) fn insert(&mut self, block: u32) -> bool {
        let (word, bit) = (&mut self.words[block as usize / 64], 1 << (block % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(crate) fn contains(&self, block: u32) -> bool {
        self.words[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// The blocks not in the set, ascending.
    pub(crate) fn absent(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.blocks).filter(|block| !self.contains(*block))
    }
}
