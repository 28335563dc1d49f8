//! Where the bytes lie that were written by a lease lately: which element has them, and which
//! earlier one touched the same page. It is no more than a hint: what it does not know is read by a
//! request, and what it says is looked at before it is believed.

use std::ops::Range;

use tidegate_media::OwnWords;

/// Elements that are known at a time, and words of each.
const ELEMENTS: usize = 8192;
const ELEMENT_WORDS: usize = 3;
/// Pages whose last element is known at a time, and words of each.
const PAGES: usize = 4096;
const PAGE_WORDS: usize = 2;
const WORDS: usize = ELEMENTS * ELEMENT_WORDS + PAGES * PAGE_WORDS;

/// So many elements are looked at for a page.
const STEPS_MAX: u32 = 64;

/// Bytes of a page, which no element is longer than.
const PAGE: u64 = 4096;

/// Elements of a lease, by the pages of the file that they touch.
#[derive(Default)]
pub(crate) struct WrittenIndex {
    /// `None`: there were none yet, or the kernel has no memory for them.
    words: Option<OwnWords>,
    /// The elements that are known are these: of the ones before, nothing is.
    first: u64,
    next: u64,
}

/// Where an element's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenElement {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) unit: u32,
}

impl WrittenElement {
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }

    /// The first page that it touches, and the last one.
    fn pages(&self) -> [u64; 2] {
        [self.offset / PAGE, self.end().saturating_sub(1) / PAGE]
    }
}

impl WrittenIndex {
    /// Nothing is known any more.
    pub(crate) fn clear(&mut self) {
        self.first = self.next;
    }

    /// Takes an element up, behind the one before.
    pub(crate) fn insert(&mut self, element: &WrittenElement) {
        if element.number != self.next {
            (self.first, self.next) = (element.number, element.number);
        }
        self.next += 1;
        if self.words.is_none() {
            self.words = OwnWords::zeroed(WORDS);
        }
        let pages = element.pages();
        let before = pages.map(|page| self.last_of(page));
        let Some(words) = &mut self.words else { return };
        for page in pages {
            words[page_at(page)..][..PAGE_WORDS].copy_from_slice(&[page + 1, element.number]);
        }
        // An element that lies further back than a word says is not known.
        let back = before.map(|last| last.and_then(|last| u32::try_from(element.number - last).ok()).unwrap_or(0));
        words[element_at(element.number)..][..ELEMENT_WORDS].copy_from_slice(&[
            element.offset,
            u64::from(element.unit) << 32 | u64::from(element.length),
            u64::from(back[1]) << 32 | u64::from(back[0]),
        ]);
    }

    /// The element that has all of these bytes, if none behind it has any of them.
    pub(crate) fn find(&self, range: &Range<u64>) -> Option<WrittenElement> {
        let last = range.end.checked_sub(1).filter(|last| range.start <= *last && last - range.start < PAGE)?;
        let [first, last] = [range.start / PAGE, last / PAGE].map(|page| self.newest(page, range));
        first.filter(|found| first == last && found.offset <= range.start && range.end <= found.end())
    }

    /// The newest element that touches a page and has any of these bytes.
    fn newest(&self, page: u64, range: &Range<u64>) -> Option<WrittenElement> {
        let mut number = self.last_of(page)?;
        for _ in 0..STEPS_MAX {
            let (element, back) = self.element(number)?;
            if element.offset < range.end && range.start < element.end() {
                return Some(element);
            }
            let which = usize::from(page != element.pages()[0]);
            number = number.checked_sub(u64::from(back[which])).filter(|before| *before != number)?;
        }
        None
    }

    /// The last element that touched a page, if that is known.
    fn last_of(&self, page: u64) -> Option<u64> {
        let words = self.words.as_ref()?;
        let [of, number] = words[page_at(page)..][..PAGE_WORDS] else { return None };
        (of == page + 1 && self.knows(number)).then_some(number)
    }

    /// An element, and how far the ones lie back that touched its first page before, and its last.
    fn element(&self, number: u64) -> Option<(WrittenElement, [u32; 2])> {
        let words = self.words.as_ref().filter(|_| self.knows(number))?;
        let [offset, place, back] = words[element_at(number)..][..ELEMENT_WORDS] else { return None };
        let halves = |word: u64| [low_half(word), low_half(word >> 32)];
        let ([length, unit], back) = (halves(place), halves(back));
        Some((WrittenElement { number, offset, length, unit }, back))
    }

    fn knows(&self, number: u64) -> bool {
        number >= self.first && number < self.next && self.next - number <= ELEMENTS as u64
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the other half is left out")]
fn low_half(word: u64) -> u32 {
    word as u32
}

fn element_at(number: u64) -> usize {
    place_of(number, ELEMENTS) * ELEMENT_WORDS
}

fn page_at(page: u64) -> usize {
    ELEMENTS * ELEMENT_WORDS + place_of(page, PAGES) * PAGE_WORDS
}

fn place_of(number: u64, places: usize) -> usize {
    usize::try_from(number % places as u64).expect("a remainder is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: u64, offset: u64, length: u32) -> WrittenElement {
        WrittenElement { number, offset, length, unit: u32::try_from(number).unwrap() * 16 }
    }

    fn index_of(elements: &[(u64, u32)]) -> WrittenIndex {
        let mut index = WrittenIndex::default();
        for (number, (offset, length)) in (0..).zip(elements) {
            index.insert(&written(number, *offset, *length));
        }
        index
    }

    fn found(index: &WrittenIndex, at: u64, len: u64) -> Option<u64> {
        index.find(&(at..at + len)).map(|element| element.number)
    }

    #[test]
    fn the_newest_element_with_all_of_the_bytes_is_found() {
        let index = index_of(&[(100, 60), (150, 60), (100, 60), (8192, 4096)]);
        assert_eq!(
            (found(&index, 110, 50), found(&index, 155, 5), found(&index, 160, 50)),
            (Some(2), Some(2), Some(1))
        );
        assert_eq!((found(&index, 155, 10), found(&index, 205, 10), found(&index, 90, 5)), (None, None, None));
        assert_eq!(
            (found(&index, 8192, 4096), found(&index, 8192, 4097), found(&index, 12_288, 1)),
            (Some(3), None, None)
        );
        assert_eq!((found(&index, 8191, 2), found(&index, 100, 0)), (None, None));
    }

    /// As the frames of a log that databases write: a header and a page, again and again.
    #[test]
    fn frames_that_follow_each_other_are_found_and_are_not_once_they_are_written_over() {
        let frames: Vec<(u64, u32)> =
            (0..40).flat_map(|frame| [(frame * 4120, 24), (frame * 4120 + 24, 4096)]).collect();
        let mut index = index_of(&frames);
        for frame in 0..40 {
            assert_eq!(found(&index, frame * 4120 + 24, 4096), Some(2 * frame + 1));
            assert_eq!(found(&index, frame * 4120, 24), Some(2 * frame));
        }
        index.insert(&written(80, 4120 * 3 + 200, 10));
        assert_eq!((found(&index, 4120 * 3 + 24, 4096), found(&index, 4120 * 3 + 24, 176)), (None, Some(7)));
        assert_eq!(found(&index, 4120 * 2 + 24, 4096), Some(5));
    }

    #[test]
    fn what_lies_too_far_back_or_before_a_gap_is_not_known() {
        let mut index = index_of(&[(0, 4096), (4096, 4096)]);
        for number in 2..ELEMENTS as u64 {
            index.insert(&written(number, 4096 * (number % 2 + 2), 4096));
        }
        assert_eq!((found(&index, 0, 9), found(&index, 4096, 9)), (Some(0), Some(1)));
        index.insert(&written(ELEMENTS as u64, 8192, 4096));
        assert_eq!((found(&index, 0, 9), found(&index, 4096, 9)), (None, Some(1)));
        index.insert(&written(ELEMENTS as u64 + 5, 8192, 10));
        assert_eq!((found(&index, 4096, 9), found(&index, 8192, 9), found(&index, 8192, 11)), (None, Some(8197), None));
        index.clear();
        assert_eq!(found(&index, 8192, 9), None);
    }

    /// Two pages have one place.
    #[test]
    fn a_page_that_lost_its_place_is_not_known_before_it_is_written_again() {
        let far = 4096 * PAGES as u64;
        let index = index_of(&[(0, 100), (far, 100), (200, 100)]);
        assert_eq!((found(&index, 200, 100), found(&index, 0, 100), found(&index, far, 100)), (Some(2), None, None));
    }
}
