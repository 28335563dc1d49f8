//! Blocks of a file that are to be kept, and how they are read.

use super::kept::BLOCK_BYTES;
use std::collections::BTreeSet;
use tidegate_wal::strip::Range;

/// Blocks that are read at once.
const RUN_BLOCKS_MAX: u64 = 64;

/// Blocks of a file.
#[derive(Debug)]
pub(super) struct Blocks(BTreeSet<u64>);

/// Consecutive blocks, read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first one.
    pub(super) first: u64,
    /// How many they are.
    blocks: u64,
}

impl Run {
    /// Where they lie in the file.
    pub(super) fn at(&self) -> u64 {
        self.first * BLOCK_BYTES
    }

    /// How many bytes they are.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.blocks * BLOCK_BYTES).expect("a run is short")
    }
}

impl Blocks {
    /// Those that `ranges` touch in a file of `size` bytes.
    pub(super) fn of(size: u64, ranges: &[Range]) -> Blocks {
        let inside = ranges.iter().map(|(at, len)| (*at, at.saturating_add(*len).min(size)));
        let touched = inside.filter(|(at, end)| at < end);
        Blocks(touched.flat_map(|(at, end)| at / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).collect())
    }

    /// How many they are.
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// All of them, in order.
    pub(super) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for number in &self.0 {
            let goes_on = |run: &&mut Run| run.first + run.blocks == *number && run.blocks < RUN_BLOCKS_MAX;
            match runs.last_mut().filter(goes_on) {
                Some(run) => run.blocks += 1,
                None => runs.push(Run { first: *number, blocks: 1 }),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(size: u64, ranges: &[Range]) -> Vec<(u64, u64)> {
        Blocks::of(size, ranges).runs().iter().map(|run| (run.first, run.blocks)).collect()
    }

    #[test]
    fn ranges_become_blocks_inside_the_file() {
        assert_eq!(runs(10_000, &[(0, 1), (4095, 2), (9999, 50)]), [(0, 3)]);
        assert_eq!(runs(4096, &[(4096, 10), (0, 0)]), []);
    }

    #[test]
    fn neighbours_are_read_at_once_and_not_too_many() {
        let ranges = [(4096 * 80, 1), (0, 4096 * 70)];
        assert_eq!(runs(1 << 20, &ranges), [(0, 64), (64, 6), (80, 1)]);
        assert_eq!(Blocks::of(1 << 20, &ranges).count(), 71);
    }
}
