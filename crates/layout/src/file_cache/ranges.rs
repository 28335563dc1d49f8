//! Ranges of the bytes of a file.

use std::ops::Range;

/// Ranges in ascending order, neighbours and overlapping ones as one.
pub fn united(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|later, earlier| {
        let touch = earlier.end >= later.start;
        if touch {
            earlier.end = earlier.end.max(later.end);
        }
        touch
    });
    ranges
}

/// What `parts`, which are ascending and inside `range`, leave of it.
pub fn between(range: &Range<u64>, parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let starts = [range.start].into_iter().chain(parts.iter().map(|part| part.end));
    let ends = parts.iter().map(|part| part.start).chain([range.end]);
    starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty()).collect()
}

/// The bytes of `ranges` in ranges of which none is longer than `most`, which is not 0.
pub fn in_pieces(ranges: Vec<Range<u64>>, most: u64) -> Vec<Range<u64>> {
    let step = usize::try_from(most).unwrap_or(usize::MAX);
    let pieces = |range: Range<u64>| {
        let starts = range.clone().step_by(step);
        starts.map(move |start| start..range.end.min(start + most))
    };
    ranges.into_iter().flat_map(pieces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_parts_is_the_rest_of_the_range() {
        let rest = |parts: &[[u64; 2]]| {
            let parts: Vec<_> = parts.iter().map(|[start, end]| *start..*end).collect();
            between(&(5..20), &parts).into_iter().map(|gap| [gap.start, gap.end]).collect::<Vec<_>>()
        };
        assert_eq!(rest(&[]), [[5, 20]]);
        assert_eq!(rest(&[[5, 7], [7, 9], [12, 20]]), [[9, 12]]);
        assert_eq!(rest(&[[6, 7]]), [[5, 6], [7, 20]]);
    }

    #[test]
    fn united_ranges_are_ascending_and_their_pieces_no_longer_than_asked() {
        assert_eq!(in_pieces(united(vec![5..9, 0..2, 2..3, 8..12]), 100), [0..3, 5..12]);
        assert_eq!(in_pieces(united(vec![10..20, 20..31]), 10), [10..20, 20..30, 30..31]);
    }
}
