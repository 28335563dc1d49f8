//! Which entry has the newest durable copy of each byte of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Ranges of a file, none overlapping another, each with the entry that has it.
#[derive(Debug, Default)]
pub(crate) struct Segments(BTreeMap<u64, Segment>);

#[derive(Clone, Copy, Debug)]
struct Segment {
    end: u64,
    slot: u32,
}

/// An entry that lost bytes to a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
}

impl Segments {
    /// From now on `slot` has `range`. Returns who had some of it before.
    pub(crate) fn put(&mut self, range: Range<u64>, slot: u32) -> Vec<Loss> {
        let losses = self.remove(range.clone());
        match self.0.range_mut(..range.start).next_back() {
            Some((_, before)) if before.end == range.start && before.slot == slot => before.end = range.end,
            _ => drop(self.0.insert(range.start, Segment { end: range.end, slot })),
        }
        losses
    }

    /// From now on nobody has any of `range`. Returns who had.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Vec<Loss> {
        let mut losses = Vec::new();
        for (start, Segment { end, slot }) in self.touching(&range) {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, Segment { end: range.start, slot });
            }
            if end > range.end {
                self.0.insert(range.end, Segment { end, slot });
            }
            losses.push(Loss { slot, bytes: end.min(range.end) - start.max(range.start) });
        }
        losses
    }

    /// Every entry that has bytes.
    pub(crate) fn slots(&self) -> BTreeSet<u32> {
        self.0.values().map(|segment| segment.slot).collect()
    }

    /// The parts of `range` that somebody has, ascending, each with its entry.
    pub(crate) fn within(&self, range: Range<u64>) -> Vec<(Range<u64>, u32)> {
        let cut = |(start, segment): (u64, Segment)| (start.max(range.start)..segment.end.min(range.end), segment.slot);
        self.touching(&range).into_iter().map(cut).collect()
    }

    /// The first bytes from `at` on that somebody has.
    pub(crate) fn first_from(&self, at: u64) -> Option<Range<u64>> {
        let before = self.0.range(..=at).next_back().filter(|(_, segment)| segment.end > at);
        let (start, segment) = before.or_else(|| self.0.range(at..).next())?;
        Some(at.max(*start)..segment.end)
    }

    fn touching(&self, range: &Range<u64>) -> Vec<(u64, Segment)> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.0.range(..range.start).next_back().filter(|(_, segment)| segment.end > range.start);
        before.into_iter().chain(self.0.range(range.clone())).map(|(start, segment)| (*start, *segment)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::Rng;

    /// A dull model beside it: one slot for each byte.
    #[test]
    fn segments_agree_with_a_slot_for_each_byte() {
        let mut rng = Rng::new(1);
        let (mut segments, mut dull) = (Segments::default(), [None; 64]);
        for slot in 0..2000 {
            let start = rng.below(64);
            let range = start..start + rng.below(65 - start);
            let bytes = &mut dull[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
            let lost = bytes.iter().flatten().count();
            let losses = if rng.one_in(4) || range.is_empty() {
                bytes.fill(None);
                segments.remove(range)
            } else {
                bytes.fill(Some(slot));
                segments.put(range, slot)
            };
            assert_eq!(losses.iter().map(|loss| loss.bytes).sum::<u64>(), lost as u64);
            let mut found = [None; 64];
            for (range, slot) in segments.within(0..64) {
                found[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].fill(Some(slot));
            }
            assert_eq!(found, dull);
        }
    }

    #[test]
    fn what_is_appended_to_the_same_entry_is_one_segment() {
        let mut segments = Segments::default();
        segments.put(0..10, 3);
        segments.put(10..20, 3);
        segments.put(20..30, 4);
        assert_eq!(segments.within(5..25), [(5..20, 3), (20..25, 4)]);
    }
}
