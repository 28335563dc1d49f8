//! Which entry has the newest durable copy of each byte of a file.
//!
//! A file may have millions of ranges, so they lie in sorted *runs* of up to [`RUN_MAX`], in
//! sixteen bytes each, and a tree finds the run.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges in a run.
const RUN_MAX: usize = 128;

/// A run that has fewer joins a neighbour if both have room in one.
const RUN_MIN: usize = RUN_MAX / 4;

/// A run grows by so many ranges at most.
const GROWTH_MAX: usize = 16;

/// Ranges of a file, none overlapping another, each with the entry that has it.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Runs by a number that no range in them begins before, and none of the run before reaches.
    runs: BTreeMap<u64, Vec<Segment>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    start: u64,
    length: u32,
    slot: u32,
}

/// An entry that lost bytes to a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
}

impl Segment {
    fn new(range: Range<u64>, slot: u32) -> Segment {
        let length = u32::try_from(range.end - range.start).expect("a range lies in a block");
        Segment { start: range.start, length, slot }
    }

    fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }
}

impl Segments {
    /// From now on `slot` has `range`. Returns who had some of it before.
    pub(crate) fn put(&mut self, range: Range<u64>, slot: u32) -> Vec<Loss> {
        if let Some(loss) = self.replace(&range, slot) {
            return vec![loss];
        }
        let losses = self.remove(range.clone());
        if let Some(before) = self.last_before(range.start)
            && before.end() == range.start
            && before.slot == slot
        {
            before.length += u32::try_from(range.end - range.start).expect("a range lies in a block");
        } else if !range.is_empty() {
            self.insert(Segment::new(range, slot));
        }
        losses
    }

    /// From now on `slot` has `range`, if one entry has it as one range: most writes are like that.
    fn replace(&mut self, range: &Range<u64>, slot: u32) -> Option<Loss> {
        let (_, run) = self.runs.range_mut(..=range.start).next_back()?;
        let place = run.binary_search_by_key(&range.start, |segment| segment.start).ok()?;
        let segment = run.get_mut(place).filter(|segment| segment.end() == range.end)?;
        Some(Loss { slot: std::mem::replace(&mut segment.slot, slot), bytes: range.end - range.start })
    }

    /// From now on nobody has any of `range`. Returns who had.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Vec<Loss> {
        let mut losses = Vec::new();
        for Segment { start, length, slot } in self.touching(&range) {
            let end = start + u64::from(length);
            self.take(start);
            if start < range.start {
                self.insert(Segment::new(start..range.start, slot));
            }
            if end > range.end {
                self.insert(Segment::new(range.end..end, slot));
            }
            losses.push(Loss { slot, bytes: end.min(range.end) - start.max(range.start) });
        }
        losses
    }

    /// Whether nobody has anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Every entry that has bytes, as often as it has a range.
    pub(crate) fn into_slots(self) -> impl Iterator<Item = u32> {
        self.runs.into_values().flatten().map(|segment| segment.slot)
    }

    /// The parts of `range` that somebody has, ascending, each with its entry.
    pub(crate) fn within(&self, range: Range<u64>) -> Vec<(Range<u64>, u32)> {
        let cut = |segment: Segment| (segment.start.max(range.start)..segment.end().min(range.end), segment.slot);
        self.touching(&range).into_iter().map(cut).collect()
    }

    /// The first bytes from `at` on that somebody has.
    pub(crate) fn first_from(&self, at: u64) -> Option<Range<u64>> {
        let first = self.from(at).next()?;
        Some(at.max(first.start)..first.end())
    }

    fn touching(&self, range: &Range<u64>) -> Vec<Segment> {
        if range.is_empty() {
            return Vec::new();
        }
        self.from(range.start).take_while(|segment| segment.start < range.end).collect()
    }

    /// The ranges that end behind `at`.
    fn from(&self, at: u64) -> impl Iterator<Item = Segment> + '_ {
        // A range of the run before may reach over a number that no range begins at any more.
        let key = self.runs.range(..=at).rev().take(2).last().map_or(at, |(key, _)| *key);
        let behind = move |(_, run): (&u64, &'_ Vec<Segment>)| run.partition_point(|segment| segment.end() <= at);
        self.runs.range(key..).flat_map(move |(key, run)| &run[behind((key, run))..]).copied()
    }

    /// The last range that begins before `at`.
    fn last_before(&mut self, at: u64) -> Option<&mut Segment> {
        let before = self.runs.range_mut(..at).rev();
        before.take(2).find_map(|(_, run)| {
            let place = run.partition_point(|segment| segment.start < at);
            run[..place].last_mut()
        })
    }

    /// Takes the range that begins at `start`.
    fn take(&mut self, start: u64) {
        let Some((key, run)) = self.runs.range_mut(..=start).next_back() else { return };
        let Ok(place) = run.binary_search_by_key(&start, |segment| segment.start) else { return };
        run.remove(place);
        let (key, left) = (*key, run.len());
        if left < RUN_MIN {
            run.shrink_to(RUN_MIN + GROWTH_MAX);
            self.join(key);
        }
    }

    /// A run that became short goes, or joins the one before it.
    fn join(&mut self, key: u64) {
        let Some(left) = self.runs.get(&key).map(Vec::len) else { return };
        if left == 0 {
            self.runs.remove(&key);
            return;
        }
        let before = self.runs.range_mut(..key).next_back().filter(|(_, run)| run.len() + left <= RUN_MAX / 2);
        if before.is_some()
            && let Some(short) = self.runs.remove(&key)
            && let Some((_, before)) = self.runs.range_mut(..key).next_back()
        {
            before.extend(short);
        }
    }

    /// Inserts a range where nobody has any.
    fn insert(&mut self, segment: Segment) {
        let Some((key, run)) = self.runs.range_mut(..=segment.start).next_back() else {
            self.runs.insert(segment.start, vec![segment]);
            return;
        };
        let place = run.partition_point(|other| other.start < segment.start);
        if run.len() < RUN_MAX {
            if run.len() == run.capacity() {
                run.reserve_exact(run.len().clamp(1, GROWTH_MAX));
            }
            run.insert(place, segment);
        } else if place == RUN_MAX {
            // A file that grows: the run before stays full.
            self.runs.insert(segment.start, vec![segment]);
        } else {
            let behind = run.split_off(RUN_MAX / 2);
            run.shrink_to(RUN_MAX / 2 + GROWTH_MAX);
            debug_assert!(behind[0].start > *key);
            self.runs.insert(behind[0].start, behind);
            self.insert(segment);
        }
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

    /// Many runs come to be and go, with every range where it belongs, and few bytes beside them.
    #[test]
    fn many_segments_lie_in_runs_that_are_at_least_half_full() {
        const SEGMENTS: u32 = 8_000;
        let mut rng = Rng::new(7);
        let mut order: Vec<u32> = (0..SEGMENTS).collect();
        (0..order.len()).for_each(|at| order.swap(at, rng.index(SEGMENTS as usize)));
        let mut segments = Segments::default();
        let place = |slot: u32| u64::from(slot) * 4096..u64::from(slot) * 4096 + 4096;
        order.iter().for_each(|slot| assert_eq!(segments.put(place(*slot), *slot), []));
        let room = segments.runs.values().map(|run| run.capacity() * size_of::<Segment>()).sum::<usize>();
        assert!(room < SEGMENTS as usize * 20, "{} bytes each", room / SEGMENTS as usize);
        let all = segments.within(0..u64::MAX);
        assert!((0..SEGMENTS).map(|slot| (place(slot), slot)).eq(all));
        order.iter().skip(100).for_each(|slot| assert_eq!(segments.remove(place(*slot)).len(), 1));
        assert!(segments.runs.len() < 30, "{} runs of 100 ranges", segments.runs.len());
        order.iter().take(100).for_each(|slot| assert_eq!(segments.first_from(place(*slot).start), Some(place(*slot))));
        order.iter().take(100).for_each(|slot| assert_eq!(segments.remove(place(*slot)).len(), 1));
        assert!(segments.runs.is_empty());
    }

    #[test]
    fn ranges_of_a_growing_file_fill_their_runs() {
        let mut segments = Segments::default();
        (0..1000).for_each(|slot| drop(segments.put(u64::from(slot) * 10..u64::from(slot) * 10 + 9, slot)));
        assert_eq!(segments.runs.len(), 1000_usize.div_ceil(RUN_MAX));
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
