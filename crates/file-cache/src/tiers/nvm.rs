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
    /// All blocks of `chunks` chunks are free.
    pub(crate) fn new(chunks: u32) -> Blocks {
        Blocks { whole: (0..chunks).rev().collect(), cut: vec![Vec::new(); chunks as usize], open: Default::default() }
    }

    /// Takes a block.
    pub(crate) fn take(&mut self, class: Class) -> Option<u32> {
        let open = &mut self.open[usize::from(class.number())];
        if open.is_empty() {
            let chunk = self.whole.pop()?;
            let first = chunk * UNITS_PER_CHUNK;
            let units = (first..first + UNITS_PER_CHUNK).rev().step_by(class.units() as usize);
            self.cut[chunk as usize] = units.map(|last| last + 1 - class.units()).collect();
            open.insert(chunk);
        }
        let chunk = *open.first()?;
        let free = &mut self.cut[chunk as usize];
        let unit = free.pop();
        if free.is_empty() {
            open.remove(&chunk);
        }
        unit
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, unit: u32, class: Class) {
        let chunk = unit / UNITS_PER_CHUNK;
        let open = &mut self.open[usize::from(class.number())];
        let free = &mut self.cut[chunk as usize];
        free.push(unit);
        if free.len() == (UNITS_PER_CHUNK / class.units()) as usize {
            free.clear();
            open.remove(&chunk);
            self.whole.push(chunk);
        } else {
            open.insert(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_given_once_and_chunks_become_whole_again() {
        let mut blocks = Blocks::new(3);
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
        let mut blocks = Blocks::new(1);
        let small = blocks.take(Class::ALL[0]).unwrap();
        assert_eq!(blocks.take(Class::ALL[1]), None);
        blocks.give(small, Class::ALL[0]);
        assert!(blocks.take(Class::ALL[6]).is_some());
    }
}
