//! Blocks that were in a cache not long ago: their keys' fingerprints, without the blocks.
//!
//! A table of small rows; a key's row is found by its hash, and the oldest ghost of a full row
//! gives way, which happens to two in a hundred. A ghost that is not among the last `capacity` ones
//! has faded. Ages are counted in 32 bits: a ghost that was not asked for during four billion
//! others would seem young again, and cost one wrong guess.

/// Ghosts in a row.
const ROW: usize = 8;

/// Rows at least, so that small caches never lose a ghost to a full row.
const ROWS_MIN: usize = 64;

/// Bytes that a ghost of the capacity takes at most: places are twice as many, rounded up to a
/// power of two.
pub(super) const GHOST_BYTES_MAX: usize = 4 * size_of::<Ghost>();

#[derive(Clone, Copy, Default)]
struct Ghost {
    /// Never 0 for a ghost.
    fingerprint: u32,
    born: u32,
}

/// The ghosts of the last victims.
pub(crate) struct Ghosts {
    rows: Box<[[Ghost; ROW]]>,
    capacity: u32,
    /// Ghosts there ever were.
    born: u32,
}

impl Ghosts {
    /// None yet, and at most `capacity` at once.
    pub(crate) fn new(capacity: u32) -> Ghosts {
        let rows = (2 * capacity as usize).div_ceil(ROW).next_power_of_two().max(ROWS_MIN);
        Ghosts { rows: vec![[Ghost::default(); ROW]; rows].into(), capacity, born: 0 }
    }

    /// `key` becomes a ghost.
    pub(crate) fn add(&mut self, key: u64) {
        let (row, fingerprint) = self.place(key);
        let (born, capacity) = (self.born, self.capacity);
        self.born = born.wrapping_add(1);
        let age = |ghost: &Ghost| match ghost.fingerprint {
            0 => u32::MAX,
            same if same == fingerprint => u32::MAX,
            _ => born.wrapping_sub(ghost.born),
        };
        if capacity > 0 {
            let oldest = self.rows[row].iter_mut().max_by_key(|ghost| age(ghost)).expect("a row has places");
            *oldest = Ghost { fingerprint, born };
        }
    }

    /// Whether `key` is a ghost; it is none afterwards.
    pub(crate) fn take(&mut self, key: u64) -> bool {
        let (row, fingerprint) = self.place(key);
        let (born, capacity) = (self.born, self.capacity);
        let same = self.rows[row].iter_mut().find(|ghost| ghost.fingerprint == fingerprint);
        same.is_some_and(|ghost| born.wrapping_sub(std::mem::take(ghost).born) <= capacity)
    }

    /// The row of `key`, and its fingerprint.
    fn place(&self, key: u64) -> (usize, u32) {
        let hash = mixed(key);
        let fingerprint = u32::try_from(hash >> 32).expect("half of it");
        let low = usize::try_from(hash & u64::from(u32::MAX)).expect("half of it");
        (low & (self.rows.len() - 1), fingerprint.max(1))
    }
}

/// A number that each bit of `key` decides about (the finishing steps of splitmix64).
pub(crate) fn mixed(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known_once() {
        let mut ghosts = Ghosts::new(10);
        (0..20).for_each(|key| ghosts.add(key));
        let known: Vec<u64> = (0..20).filter(|key| ghosts.take(*key)).collect();
        assert_eq!(known, (10..20).collect::<Vec<_>>());
        assert!((0..20).all(|key| !ghosts.take(key)));
    }

    #[test]
    fn a_ghost_that_comes_again_is_young_again() {
        let mut ghosts = Ghosts::new(3);
        [1, 2, 1, 3, 4].into_iter().for_each(|key| ghosts.add(key));
        assert!(ghosts.take(1) && !ghosts.take(1) && !ghosts.take(2));
        let mut none = Ghosts::new(0);
        none.add(1);
        assert!(!none.take(1));
    }

    #[test]
    fn full_rows_lose_few_of_many() {
        let mut ghosts = Ghosts::new(1 << 16);
        (0..1 << 18).for_each(|key| ghosts.add(key));
        let known = ((1 << 18) - (1 << 16)..1 << 18).filter(|key| ghosts.take(*key)).count();
        assert!(known > (1 << 16) * 97 / 100, "{known}");
    }
}
