//! Where blocks of the file lie in the pool, as the service told it: the lane's own blocks, which
//! this process reads and does not store to. A block that somebody wrote to since is not known any
//! more.

use std::ops::Range;
use tidegate_media::OwnWords;

/// Bytes of a block, which may begin anywhere in the file, and of a page.
pub(crate) const BLOCK: u64 = 4096;
/// Blocks that are known at a time, and words of each. Of those that begin in one page, the last
/// one is known.
const BLOCKS: usize = 16_384;
const BLOCK_WORDS: usize = 2;

/// Places of blocks, by the pages of the file that they begin in.
#[derive(Default)]
pub(crate) struct LocatedBlocks {
    /// For each, one more than its offset in the file, and where it lies. `None`: there were none
    /// yet, or the kernel has no memory for them.
    words: Option<OwnWords>,
}

impl LocatedBlocks {
    /// The block of the file that begins at `at` lies there.
    pub(crate) fn put(&mut self, at: u64, pool_at: u64) {
        if self.words.is_none() {
            self.words = OwnWords::zeroed(BLOCKS * BLOCK_WORDS);
        }
        if let Some(words) = &mut self.words {
            words[place_of(at)..][..BLOCK_WORDS].copy_from_slice(&[at.saturating_add(1), pool_at]);
        }
    }

    /// Where these bytes lie, if a block that is known has all of them.
    pub(crate) fn find(&self, range: &Range<u64>) -> Option<u64> {
        let words = self.words.as_ref()?;
        // It begins in the page of the first byte, or in the one before.
        [Some(range.start), range.start.checked_sub(BLOCK)].into_iter().flatten().find_map(|place| {
            let [begin, pool_at] = words[place_of(place)..][..BLOCK_WORDS] else { return None };
            let from = range.start.checked_sub(begin.checked_sub(1)?)?;
            (from + (range.end - range.start) <= BLOCK).then(|| pool_at + from)
        })
    }

    /// These bytes were written: no block that had any of them is known.
    pub(crate) fn forget(&mut self, written: &Range<u64>) {
        let Some(words) = &mut self.words else { return };
        let first = written.start.saturating_sub(BLOCK - 1) / BLOCK;
        for page in first..written.end.div_ceil(BLOCK) {
            let word = &mut words[place_of(page * BLOCK)];
            let begin = *word - (*word).min(1);
            if *word > 0 && begin < written.end && written.start < begin.saturating_add(BLOCK) {
                *word = 0;
            }
        }
    }

    /// Nothing is known any more.
    pub(crate) fn clear(&mut self) {
        self.words = None;
    }
}

fn place_of(at: u64) -> usize {
    usize::try_from(at / BLOCK % BLOCKS as u64).expect("a remainder is small") * BLOCK_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tidegate_sim::Rng;

    #[test]
    fn a_block_is_known_until_somebody_writes_to_it() {
        let mut blocks = LocatedBlocks::default();
        let page = |page: u64| page * BLOCK..(page + 1) * BLOCK;
        assert_eq!(blocks.find(&page(7)), None);
        (0..10).for_each(|page| blocks.put(page * BLOCK, page * 100_000));
        blocks.forget(&(4095..4097));
        blocks.forget(&(8 * BLOCK..9 * BLOCK));
        let known: Vec<u64> = (0..20).filter(|number| blocks.find(&page(*number)).is_some()).collect();
        assert_eq!(known, [2, 3, 4, 5, 6, 7, 9]);
        assert_eq!(blocks.find(&(9 * BLOCK + 5..9 * BLOCK + 6)), Some(900_005));
        assert_eq!(blocks.find(&(9 * BLOCK + 5..10 * BLOCK + 1)), None);
        // Another one has its place.
        let far = (9 + BLOCKS as u64) * BLOCK;
        blocks.put(far, 5);
        assert_eq!((blocks.find(&page(9)), blocks.find(&(far..far + 1))), (None, Some(5)));
        blocks.clear();
        assert_eq!(blocks.find(&(far..far + 1)), None);
    }

    /// What is found is what a map of all blocks has; blocks may begin anywhere.
    #[test]
    fn blocks_are_where_a_map_says_or_nowhere() {
        let (mut blocks, mut map, mut random) = (LocatedBlocks::default(), BTreeMap::new(), Rng::new(7));
        let mut found = 0;
        for step in 0..20_000 {
            let at = random.below(60_000);
            match random.below(4) {
                0 => {
                    let written = at..at + 1 + random.below(5000);
                    blocks.forget(&written);
                    map.retain(|begin: &u64, _| begin + BLOCK <= written.start || *begin >= written.end);
                }
                1 => {
                    // The service tells only of the newest bytes: no two blocks have the same.
                    map.retain(|begin: &u64, _| begin + BLOCK <= at || *begin >= at + BLOCK);
                    blocks.forget(&(at..at + BLOCK));
                    blocks.put(at, step * 10_000);
                    map.insert(at, step * 10_000);
                }
                _ => {
                    let range = at..at + 1 + random.below(BLOCK);
                    let Some(place) = blocks.find(&range) else { continue };
                    let (begin, pool_at) = map.range(..=at).next_back().expect("a block has it");
                    assert!(range.end <= begin + BLOCK, "{range:?}");
                    assert_eq!(place, pool_at + (at - begin));
                    found += 1;
                }
            }
        }
        assert!(found > 100, "{found}");
    }
}
