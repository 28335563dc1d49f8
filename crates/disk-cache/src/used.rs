//! Which of a cache's blocks are named by entries, one bit each.

/// A set of blocks below a fixed number.
pub(crate) struct UsedBlocks {
    words: Vec<u64>,
    blocks: u32,
}

impl UsedBlocks {
    pub(crate) fn new(blocks: u32) -> UsedBlocks {
        UsedBlocks { words: vec![0; blocks.div_ceil(64) as usize], blocks }
    }

    /// Adds `block`; whether it was new.
    pub(crate) fn insert(&mut self, block: u32) -> bool {
        let (word, bit) = (&mut self.words[block as usize / 64], 1 << (block % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// The blocks that no entry names, ascending.
    pub(crate) fn unused(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.blocks).filter(|block| self.words[*block as usize / 64] >> (block % 64) & 1 == 0)
    }
}
