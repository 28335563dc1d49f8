//! Room below: reserved before a write returns, so that write-back finds it.
//!
//! A file that is short gets little more than it needs, and one that grows is not asked for each
//! write: room is reserved in powers of two, from 4 KiB up to 1 MiB, of the file's length.

use std::collections::BTreeMap;
use std::ops::Range;
use tidegate_layout::file_cache::CHUNK_BYTES;

/// The least that is reserved, and what file systems have their blocks aligned to.
const PAGE_BYTES: u64 = 4096;

/// Ranges of a file for which room is reserved, none touching another.
#[derive(Debug, Default)]
pub(crate) struct ReservedRoom(BTreeMap<u64, u64>);

impl ReservedRoom {
    /// What is to be reserved for bytes of a file of `size` bytes, if it is not yet.
    pub(crate) fn lacking(&self, bytes: &Range<u64>, size: u64) -> Option<Range<u64>> {
        if self.0.range(..=bytes.start).next_back().is_some_and(|(_, end)| *end >= bytes.end) {
            return None;
        }
        let length = size.max(bytes.end);
        let piece = length.checked_next_power_of_two().unwrap_or(CHUNK_BYTES).clamp(PAGE_BYTES, CHUNK_BYTES);
        Some(bytes.start / piece * piece..bytes.end.div_ceil(piece) * piece)
    }

    /// Room for these bytes is reserved.
    pub(crate) fn reserve(&mut self, bytes: Range<u64>) {
        let mut all = bytes;
        while let Some((start, end)) = self.0.range(..=all.end).next_back().map(|(start, end)| (*start, *end))
            && end >= all.start
        {
            self.0.remove(&start);
            all = all.start.min(start)..all.end.max(end);
        }
        self.0.insert(all.start, all.end);
    }

    /// Room for these bytes may be gone.
    pub(crate) fn lose(&mut self, bytes: &Range<u64>) {
        let gone = bytes.start / PAGE_BYTES * PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
        while let Some((start, end)) = self.0.range(..gone.end).next_back().map(|(start, end)| (*start, *end))
            && end > gone.start
        {
            self.0.remove(&start);
            if end > gone.end {
                self.0.insert(gone.end, end);
            }
            if start < gone.start {
                self.0.insert(start, gone.start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::Rng;

    const PAGE: u64 = PAGE_BYTES;

    #[test]
    fn a_short_file_gets_little_and_a_long_one_whole_chunks() {
        let room = ReservedRoom::default();
        assert_eq!(room.lacking(&(0..100), 0), Some(0..PAGE));
        assert_eq!(room.lacking(&(4000..5000), 0), Some(0..2 * PAGE));
        assert_eq!(room.lacking(&(20_000..20_001), 0), Some(0..8 * PAGE));
        assert_eq!(room.lacking(&(0..1), 1 << 40), Some(0..CHUNK_BYTES));
        let far = 5 * CHUNK_BYTES;
        assert_eq!(room.lacking(&(far + 7..far + 8), 0), Some(far..far + CHUNK_BYTES));
        assert_eq!(room.lacking(&(far - 1..far + 1), 0), Some(far - CHUNK_BYTES..far + CHUNK_BYTES));
    }

    #[test]
    fn a_file_that_grows_to_a_chunk_by_pages_is_asked_nine_times() {
        let (mut room, mut asked) = (ReservedRoom::default(), 0);
        for page in 0..256 {
            let bytes = page * PAGE..(page + 1) * PAGE;
            if let Some(lacking) = room.lacking(&bytes, page * PAGE) {
                room.reserve(lacking);
                asked += 1;
            }
        }
        assert_eq!((asked, room.0.len()), (9, 1));
    }

    /// Beside it, a dull model: a flag for each page.
    #[test]
    fn ranges_agree_with_a_flag_for_each_page() {
        const PAGES: u64 = 64;
        let mut rng = Rng::new(5);
        let (mut room, mut dull) = (ReservedRoom::default(), [false; 64]);
        for _ in 0..3000 {
            let first = rng.below(PAGES);
            let end = first + 1 + rng.below(PAGES - first);
            let pages = usize::try_from(first).unwrap()..usize::try_from(end).unwrap();
            if rng.one_in(2) {
                room.lose(&(first * PAGE + 5..end * PAGE - 5));
                dull[pages].fill(false);
            } else {
                room.reserve(first * PAGE..end * PAGE);
                dull[pages].fill(true);
            }
            let lacks = |page: u64| room.lacking(&(page * PAGE + 1..page * PAGE + 2), 0).is_some();
            assert!((0..PAGES).all(|page| lacks(page) != dull[usize::try_from(page).unwrap()]));
            let apart = room.0.iter().zip(room.0.iter().skip(1)).all(|((_, end), (start, _))| end < start);
            assert!(apart, "{room:?}");
        }
    }
}
