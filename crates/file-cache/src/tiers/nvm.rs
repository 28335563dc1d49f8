//! Free blocks: chunks of 1 MiB, each cut into blocks of one class while any of them is in use.

use std::collections::BTreeSet;
use tidegate_layout::file_cache::{Class, UNITS_PER_CHUNK};

/// The free blocks of a lane.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Chunks none of whose blocks is in use.
    whole: Vec<u32>,
    /// For each chunk that is cut, its free blocks, by their first units.
    cut: Vec<Vec<u32>>,
    /// For each class, chunks cut into blocks of it that have a free one.
    open: [BTreeSet<u32>; Class::ALL.len()],
}

impl Blocks {
    /// All blocks of `chunks` chunks are free but `used` ones. `None` if two of those overlap, or
    /// two of different classes lie in one chunk.
    pub(crate) fn with_used(chunks: u32, used: impl Iterator<Item = (u32, Class)>) -> Option<Blocks> {
        let mut cut: Vec<Option<UsedBlocks>> = (0..chunks).map(|_| None).collect();
        for (unit, class) in used {
            let chunk = cut.get_mut((unit / UNITS_PER_CHUNK) as usize)?;
            if !chunk.get_or_insert_with(|| UsedBlocks::new(class)).insert(unit, class) {
                return None;
            }
        }
        let mut blocks = Blocks { whole: Vec::new(), cut: vec![Vec::new(); chunks as usize], open: Default::default() };
        for (chunk, used) in (0..chunks).zip(cut).rev() {
            let Some(used) = used else {
                blocks.whole.push(chunk);
                continue;
            };
            let free: Vec<u32> = units_of(chunk, used.class).filter(|unit| !used.contains(*unit)).collect();
            if !free.is_empty() {
                blocks.open[usize::from(used.class.number())].insert(chunk);
            }
            blocks.cut[chunk as usize] = free;
        }
        Some(blocks)
    }

    /// Takes a block.
    pub(crate) fn take(&mut self, class: Class) -> Option<u32> {
        let open = &mut self.open[usize::from(class.number())];
        if open.is_empty() {
            let chunk = self.whole.pop()?;
            self.cut[chunk as usize] = units_of(chunk, class).collect();
            open.insert(chunk);
        }
        let chunk = *open.first()?;
        let free = &mut self.cut[chunk as usize];
        let unit = free.pop();
        if free.is_empty() {
            open.remove(&chunk);
            // Most chunks of a full pool have none.
            free.shrink_to_fit();
        }
        unit
    }

    /// Takes this block, if it is free. A chunk none of whose blocks is in use is cut for that.
    pub(crate) fn take_this(&mut self, unit: u32, class: Class) -> bool {
        let chunk = unit / UNITS_PER_CHUNK;
        let open = &mut self.open[usize::from(class.number())];
        if let Some(place) = self.whole.iter().position(|whole| *whole == chunk) {
            self.whole.remove(place);
            self.cut[chunk as usize] = units_of(chunk, class).collect();
            open.insert(chunk);
        }
        let free = &mut self.cut[chunk as usize];
        let Some(place) = free.iter().position(|free| *free == unit).filter(|_| open.contains(&chunk)) else {
            return false;
        };
        free.remove(place);
        if free.is_empty() {
            open.remove(&chunk);
        }
        true
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, unit: u32, class: Class) {
        let chunk = unit / UNITS_PER_CHUNK;
        let open = &mut self.open[usize::from(class.number())];
        let free = &mut self.cut[chunk as usize];
        free.push(unit);
        if free.len() == (UNITS_PER_CHUNK / class.units()) as usize {
            *free = Vec::new();
            open.remove(&chunk);
            self.whole.push(chunk);
        } else {
            open.insert(chunk);
        }
    }
}

/// Which blocks of a chunk are in use, a bit for each.
struct UsedBlocks {
    class: Class,
    bits: Vec<u64>,
}

impl UsedBlocks {
    fn new(class: Class) -> UsedBlocks {
        UsedBlocks { class, bits: vec![0; (UNITS_PER_CHUNK / class.units()).div_ceil(u64::BITS) as usize] }
    }

    /// Where the bit of the block that begins at `unit` lies.
    fn place(&self, unit: u32) -> (usize, u64) {
        let block = unit % UNITS_PER_CHUNK / self.class.units();
        ((block / u64::BITS) as usize, 1 << (block % u64::BITS))
    }

    /// False: the block is in use, or of another class than the chunk.
    fn insert(&mut self, unit: u32, class: Class) -> bool {
        let (word, bit) = self.place(unit);
        let is_free = class == self.class && self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_free
    }

    fn contains(&self, unit: u32) -> bool {
        let (word, bit) = self.place(unit);
        self.bits[word] & bit != 0
    }
}

/// The first units of the blocks of a chunk, the last block first.
fn units_of(chunk: u32, class: Class) -> impl Iterator<Item = u32> {
    let first = chunk * UNITS_PER_CHUNK;
    (first..first + UNITS_PER_CHUNK).step_by(class.units() as usize).rev()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_given_once_and_chunks_become_whole_again() {
        let mut blocks = Blocks::with_used(3, std::iter::empty()).unwrap();
        for class in Class::ALL {
            let mut taken = Vec::new();
            while let Some(unit) = blocks.take(class) {
                assert!(unit.is_multiple_of(class.units()));
                taken.push(unit);
            }
            let each = (UNITS_PER_CHUNK / class.units()) as usize;
            assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 3 * each);
            taken.into_iter().for_each(|unit| blocks.give(unit, class));
        }
    }

    #[test]
    fn a_chunk_has_blocks_of_one_class() {
        let mut blocks = Blocks::with_used(1, std::iter::empty()).unwrap();
        let small = blocks.take(Class::ALL[0]).unwrap();
        assert_eq!(blocks.take(Class::ALL[1]), None);
        blocks.give(small, Class::ALL[0]);
        assert!(blocks.take(Class::ALL[6]).is_some());
    }

    #[test]
    fn blocks_in_use_are_not_given_again() {
        let (small, large) = (Class::ALL[3], Class::ALL[6]);
        let used = [UNITS_PER_CHUNK, UNITS_PER_CHUNK + small.units()];
        let mut blocks = Blocks::with_used(2, used.into_iter().map(|unit| (unit, small))).unwrap();
        assert_eq!((blocks.take(large), blocks.take(large)), (Some(0), None));
        let free: Vec<u32> = std::iter::from_fn(|| blocks.take(small)).collect();
        assert_eq!(free.len(), (UNITS_PER_CHUNK / small.units()) as usize - 2);
        assert!(!free.iter().any(|unit| used.contains(unit)));
        free.into_iter().chain(used).for_each(|unit| blocks.give(unit, small));
        assert_eq!(blocks.take(large), Some(UNITS_PER_CHUNK));
    }

    #[test]
    fn a_certain_block_is_taken_once_and_only_as_one_of_its_class() {
        let (small, large) = (Class::ALL[2], Class::ALL[3]);
        let mut blocks = Blocks::with_used(2, [(0, large)].into_iter()).unwrap();
        assert!(!blocks.take_this(0, large) && !blocks.take_this(64, small));
        assert!(blocks.take_this(64, large) && !blocks.take_this(64, large));
        let second = UNITS_PER_CHUNK + 16;
        assert!(blocks.take_this(second, small) && !blocks.take_this(second, small));
        let each = (UNITS_PER_CHUNK / small.units()) as usize;
        assert_eq!(std::iter::from_fn(|| blocks.take(small)).filter(|unit| *unit != second).count(), each - 1);
        for unit in (UNITS_PER_CHUNK..2 * UNITS_PER_CHUNK).step_by(small.units() as usize) {
            blocks.give(unit, small);
        }
        assert_eq!(blocks.take(Class::ALL[6]), Some(UNITS_PER_CHUNK));
    }

    #[test]
    fn blocks_that_overlap_are_noticed() {
        let of = |used: [(u32, Class); 2]| Blocks::with_used(1, used.into_iter()).is_some();
        assert!(of([(0, Class::ALL[1]), (4, Class::ALL[1])]));
        assert!(!of([(4, Class::ALL[1]), (4, Class::ALL[1])]));
        assert!(!of([(0, Class::ALL[1]), (4, Class::ALL[0])]));
    }
}
