//! Free blocks: chunks of 1 MiB, each cut into blocks of one class while any of them is in use.
//!
//! A chunk that is *lent* belongs to a lease until that is released, cut into blocks of
//! [`LEASE_CLASS`]: its free blocks are for that lease alone, also those that become free. Its
//! blocks in use are all the lease's file's own.

use crate::tiers::lent_chunks::LentChunks;
use std::collections::BTreeSet;
use tidegate_layout::file_cache::{Class, LEASE_CLASS, UNITS_PER_CHUNK};

/// The free blocks of a lane.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Chunks none of whose blocks is in use.
    whole: Vec<u32>,
    /// For each chunk that is cut, its free blocks, by their first units.
    cut: Vec<Vec<u32>>,
    /// For each class, chunks cut into blocks of it that have a free one.
    open: [BTreeSet<u32>; Class::ALL.len()],
    /// For each chunk that is cut, the file whose blocks all those are that are or were in use.
    owners: Vec<Owner>,
    /// Chunks that are lent, none of which is whole or open.
    lent: LentChunks,
}

/// Logs of leases are blocks of this file, which no file is: their chunks are not lent.
pub(crate) const FILE_OF_LOGS: u32 = u32::MAX;

/// Whose the blocks of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    /// The file of this number.
    One(u32),
    Several,
}

impl Owner {
    /// After one more block is this file's.
    fn and(self, file: u32) -> Owner {
        match self {
            Owner::Nobody => Owner::One(file),
            Owner::One(other) if other == file => self,
            Owner::One(_) | Owner::Several => Owner::Several,
        }
    }
}

impl Blocks {
    /// All blocks of `chunks` chunks are free but `used` ones, each of the file of that number.
    /// `None` if two of those overlap, or two of different classes lie in one chunk.
    pub(crate) fn with_used(chunks: u32, used: impl Iterator<Item = (u32, Class, u32)>) -> Option<Blocks> {
        let mut cut: Vec<Option<UsedBlocks>> = (0..chunks).map(|_| None).collect();
        let mut owners = vec![Owner::Nobody; chunks as usize];
        for (unit, class, file) in used {
            let number = (unit / UNITS_PER_CHUNK) as usize;
            let chunk = cut.get_mut(number)?;
            if !chunk.get_or_insert_with(|| UsedBlocks::new(class)).insert(unit, class) {
                return None;
            }
            owners[number] = owners[number].and(file);
        }
        let mut blocks = Blocks {
            whole: Vec::new(),
            cut: vec![Vec::new(); chunks as usize],
            open: Default::default(),
            owners,
            lent: LentChunks::default(),
        };
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

    /// Takes a block for the file of this number.
    pub(crate) fn take(&mut self, class: Class, file: u32) -> Option<u32> {
        let open = &mut self.open[usize::from(class.number())];
        if open.is_empty() {
            let chunk = self.whole.pop()?;
            self.cut[chunk as usize] = units_of(chunk, class).collect();
            self.owners[chunk as usize] = Owner::Nobody;
            open.insert(chunk);
        }
        let chunk = *open.first()?;
        self.owners[chunk as usize] = self.owners[chunk as usize].and(file);
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
        let is_lent = class == LEASE_CLASS && self.lent.lease_of(chunk).is_some();
        let Some(place) = free.iter().position(|free| *free == unit).filter(|_| is_lent || open.contains(&chunk))
        else {
            return false;
        };
        free.remove(place);
        if free.is_empty() && !is_lent {
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
        if self.lent.lease_of(chunk).is_some() {
            return;
        }
        if free.len() == (UNITS_PER_CHUNK / class.units()) as usize {
            *free = Vec::new();
            open.remove(&chunk);
            self.whole.push(chunk);
        } else {
            open.insert(chunk);
        }
    }
}

/// What is lent.
impl Blocks {
    /// Chunks that are lent.
    pub(crate) fn lent(&self) -> &LentChunks {
        &self.lent
    }

    /// How many chunks have no block in use and belong to nobody.
    pub(crate) fn whole(&self) -> usize {
        self.whole.len()
    }

    /// Whether a block lies in a chunk that is lent.
    pub(crate) fn is_lent(&self, unit: u32) -> bool {
        self.lent.lease_of(unit / UNITS_PER_CHUNK).is_some()
    }

    /// How many free blocks lie in the chunks of a lease.
    pub(crate) fn free_of(&self, lease: u32) -> usize {
        self.lent.of(lease).iter().map(|chunk| self.cut[*chunk as usize].len()).sum()
    }

    /// Takes up to `most` blocks of chunks of a lease: of those with most free blocks first.
    pub(crate) fn take_lent(&mut self, lease: u32, most: usize) -> Vec<u32> {
        let with_free = self.lent.of(lease).iter().map(|chunk| (self.cut[*chunk as usize].len(), *chunk));
        let mut chunks: Vec<(usize, u32)> = with_free.filter(|(free, _)| *free > 0).collect();
        chunks.sort_unstable();
        let mut units = Vec::new();
        while units.len() < most
            && let Some((free, chunk)) = chunks.pop()
        {
            let left = free.saturating_sub(most - units.len());
            units.extend(self.cut[chunk as usize].drain(left..).rev());
        }
        units
    }

    /// Lends a chunk to a lease of the file of this number, and says which: one none of whose
    /// blocks is in use, or one of that file that has more than a few free blocks.
    pub(crate) fn lend_chunk(&mut self, lease: u32, file: u32) -> Option<u32> {
        if let Some(chunk) = self.lend_own(lease, file, MANY) {
            return Some(chunk);
        }
        let Some(chunk) = self.whole.pop() else { return self.lend_own(lease, file, FEW) };
        self.owners[chunk as usize] = Owner::One(file);
        self.lend_whole(lease, chunk);
        Some(chunk)
    }

    /// Lends the chunk that has most free blocks of those whose blocks are all of the file of this
    /// number, if it has so many.
    fn lend_own(&mut self, lease: u32, file: u32, least: usize) -> Option<u32> {
        let open = &mut self.open[usize::from(LEASE_CLASS.number())];
        let own = open.iter().filter(|chunk| self.owners[**chunk as usize] == Owner::One(file));
        let chunk = *own.max_by_key(|chunk| self.cut[**chunk as usize].len())?;
        if self.cut[chunk as usize].len() < least {
            return None;
        }
        open.remove(&chunk);
        self.lent.insert(lease, chunk);
        Some(chunk)
    }

    /// Lends this chunk, which a lease had before the lane was opened, and all of whose blocks in
    /// use are of [`LEASE_CLASS`]. False: another lease has it.
    pub(crate) fn lend_chunk_again(&mut self, lease: u32, chunk: u32) -> bool {
        if self.lent.lease_of(chunk).is_some() {
            return false;
        }
        if let Some(place) = self.whole.iter().position(|whole| *whole == chunk) {
            self.whole.remove(place);
            self.lend_whole(lease, chunk);
            return true;
        }
        self.open[usize::from(LEASE_CLASS.number())].remove(&chunk);
        self.lent.insert(lease, chunk);
        true
    }

    fn lend_whole(&mut self, lease: u32, chunk: u32) {
        self.cut[chunk as usize] = units_of(chunk, LEASE_CLASS).collect();
        self.lent.insert(lease, chunk);
    }

    /// The chunks of a lease are everybody's.
    pub(crate) fn end_lease(&mut self, lease: u32) {
        for chunk in self.lent.end(lease) {
            let free = &mut self.cut[chunk as usize];
            if free.len() == (UNITS_PER_CHUNK / LEASE_CLASS.units()) as usize {
                *free = Vec::new();
                self.whole.push(chunk);
            } else if !free.is_empty() {
                self.open[usize::from(LEASE_CLASS.number())].insert(chunk);
            }
        }
    }
}

/// Free blocks of a chunk of the file's own that is lent before one that nobody has; and of one
/// that is lent at all.
const MANY: usize = 128;
const FEW: usize = 8;

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
    use std::collections::BTreeMap;
    use tidegate_sim::Rng;

    #[test]
    fn every_block_is_given_once_and_chunks_become_whole_again() {
        let mut blocks = Blocks::with_used(3, std::iter::empty()).unwrap();
        for class in Class::ALL {
            let mut taken = Vec::new();
            while let Some(unit) = blocks.take(class, 1) {
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
        let small = blocks.take(Class::ALL[0], 1).unwrap();
        assert_eq!(blocks.take(Class::ALL[1], 1), None);
        blocks.give(small, Class::ALL[0]);
        assert!(blocks.take(Class::ALL[6], 1).is_some());
    }

    #[test]
    fn blocks_in_use_are_not_given_again() {
        let (small, large) = (Class::ALL[3], Class::ALL[6]);
        let used = [UNITS_PER_CHUNK, UNITS_PER_CHUNK + small.units()];
        let mut blocks = Blocks::with_used(2, used.into_iter().map(|unit| (unit, small, 1))).unwrap();
        assert_eq!((blocks.take(large, 1), blocks.take(large, 1)), (Some(0), None));
        let free: Vec<u32> = std::iter::from_fn(|| blocks.take(small, 1)).collect();
        assert_eq!(free.len(), (UNITS_PER_CHUNK / small.units()) as usize - 2);
        assert!(!free.iter().any(|unit| used.contains(unit)));
        free.into_iter().chain(used).for_each(|unit| blocks.give(unit, small));
        assert_eq!(blocks.take(large, 1), Some(UNITS_PER_CHUNK));
    }

    #[test]
    fn a_certain_block_is_taken_once_and_only_as_one_of_its_class() {
        let (small, large) = (Class::ALL[2], Class::ALL[3]);
        let mut blocks = Blocks::with_used(2, [(0, large, 1)].into_iter()).unwrap();
        assert!(!blocks.take_this(0, large) && !blocks.take_this(64, small));
        assert!(blocks.take_this(64, large) && !blocks.take_this(64, large));
        let second = UNITS_PER_CHUNK + 16;
        assert!(blocks.take_this(second, small) && !blocks.take_this(second, small));
        let each = (UNITS_PER_CHUNK / small.units()) as usize;
        assert_eq!(std::iter::from_fn(|| blocks.take(small, 1)).filter(|unit| *unit != second).count(), each - 1);
        for unit in (UNITS_PER_CHUNK..2 * UNITS_PER_CHUNK).step_by(small.units() as usize) {
            blocks.give(unit, small);
        }
        assert_eq!(blocks.take(Class::ALL[6], 1), Some(UNITS_PER_CHUNK));
    }

    /// Beside it, a dull model: whose each block is, and whose each chunk. Files 0 and 1 have
    /// leases of the same numbers.
    #[test]
    fn blocks_of_lent_chunks_are_for_their_lease_alone() {
        const CHUNKS: u32 = 5;
        let chunk_of = |unit: &u32| unit / UNITS_PER_CHUNK;
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let mut blocks = Blocks::with_used(CHUNKS, std::iter::empty()).unwrap();
            let mut chunks: BTreeMap<u32, u32> = BTreeMap::new();
            let mut taken: Vec<(u32, Class, u32)> = Vec::new();
            for _ in 0..300 {
                let lease = u32::try_from(rng.below(2)).unwrap();
                match rng.below(12) {
                    0 => {
                        if let Some(chunk) = blocks.lend_chunk(lease, lease) {
                            let mut there = taken.iter().filter(|(unit, ..)| chunk_of(unit) == chunk);
                            assert!(
                                there.all(|(_, class, file)| (*class, *file) == (LEASE_CLASS, lease)),
                                "seed {seed}"
                            );
                            assert_eq!(chunks.insert(chunk, lease), None, "seed {seed}");
                        }
                    }
                    1 => {
                        blocks.end_lease(lease);
                        chunks.retain(|_, of| *of != lease);
                    }
                    2..=4 => {
                        let units = blocks.take_lent(lease, 1 + rng.index(300));
                        assert!(units.iter().all(|unit| chunks.get(&chunk_of(unit)) == Some(&lease)), "seed {seed}");
                        taken.extend(units.into_iter().map(|unit| (unit, LEASE_CLASS, lease)));
                    }
                    5..=7 => {
                        let (class, file) = (Class::ALL[2 + rng.index(2)], u32::try_from(rng.below(3)).unwrap());
                        let units: Vec<u32> = (0..60).map_while(|_| blocks.take(class, file)).collect();
                        assert!(units.iter().all(|unit| !chunks.contains_key(&chunk_of(unit))), "seed {seed}");
                        taken.extend(units.into_iter().map(|unit| (unit, class, file)));
                    }
                    _ => {
                        for _ in 0..rng.index(200).min(taken.len()) {
                            let (unit, class, _) = taken.swap_remove(rng.index(taken.len()));
                            blocks.give(unit, class);
                        }
                    }
                }
                let units: BTreeSet<u32> = taken.iter().map(|(unit, ..)| *unit).collect();
                assert_eq!(units.len(), taken.len(), "seed {seed}");
                assert_eq!((blocks.lent().of(0).len(), blocks.lent().count()), {
                    (chunks.values().filter(|of| **of == 0).count(), chunks.len())
                });
            }
            taken.into_iter().for_each(|(unit, class, _)| blocks.give(unit, class));
            (0..2).for_each(|lease| blocks.end_lease(lease));
            assert_eq!(std::iter::from_fn(|| blocks.take(Class::ALL[6], 1)).count(), CHUNKS as usize, "seed {seed}");
        }
    }

    #[test]
    fn a_chunk_is_lent_again_with_what_is_free_there() {
        let used = [0, 16].map(|unit| (unit, LEASE_CLASS, 1));
        let mut blocks = Blocks::with_used(2, used.into_iter()).unwrap();
        assert!(blocks.lend_chunk_again(7, 0) && blocks.lend_chunk_again(7, 1) && !blocks.lend_chunk_again(8, 1));
        assert_eq!((blocks.take(LEASE_CLASS, 1), blocks.take(Class::ALL[6], 1)), (None, None));
        assert!(!blocks.take_this(16, LEASE_CLASS) && blocks.take_this(32, LEASE_CLASS));
        blocks.give(0, LEASE_CLASS);
        let most = (UNITS_PER_CHUNK / LEASE_CLASS.units()) as usize;
        let units = blocks.take_lent(7, usize::MAX);
        assert_eq!((units.len(), units.contains(&32), units.contains(&0)), (2 * most - 2, false, true));
        assert!(units[..most].iter().all(|unit| *unit >= UNITS_PER_CHUNK), "the chunk with most free blocks first");
    }

    #[test]
    fn blocks_that_overlap_are_noticed() {
        let of = |used: [(u32, Class); 2]| {
            Blocks::with_used(1, used.into_iter().map(|(unit, class)| (unit, class, 1))).is_some()
        };
        assert!(of([(0, Class::ALL[1]), (4, Class::ALL[1])]));
        assert!(!of([(4, Class::ALL[1]), (4, Class::ALL[1])]));
        assert!(!of([(0, Class::ALL[1]), (4, Class::ALL[0])]));
    }
}
