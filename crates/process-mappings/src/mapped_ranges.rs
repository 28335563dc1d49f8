//! Which addresses of this process have pages of files that lie in the pool.

use crate::times::Times;
use libc::c_int;
use std::ops::Range;

/// Mappings of a process, and parts of such that were cut in two.
const MAPPED_MAX: usize = 1024;

/// Whether a process may load from pages of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It may: their lines can be flushed.
    Readable,
    /// It may not, so it stores to none of them, and all that was stored before is flushed.
    Barred,
}

impl Reach {
    /// With an access as `mmap` and `mprotect` take it.
    pub fn of(access: c_int) -> Reach {
        if access & (libc::PROT_READ | libc::PROT_WRITE) != 0 { Reach::Readable } else { Reach::Barred }
    }
}

/// Whether pages may go from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// They may, if their mapping is paged.
    Loose,
    /// They may not: they are about to be pinned.
    Coming,
    /// They may not.
    Held,
}

/// Addresses that have pages of one file.
#[derive(Clone, Copy)]
pub struct MappedPages {
    /// The first address.
    pub base: usize,
    /// The address behind the last one.
    pub end: usize,
    /// Device and inode of the file.
    pub file: (u64, u64),
    /// Where it is said when they were stored to.
    pub times: Times,
    /// How the process may reach them, as `mmap` and `mprotect` take it.
    pub access: c_int,
    /// Which paged mapping they are of, if any: some of them may be absent.
    pub paged: Option<u16>,
    /// The number of the pool, for this process.
    pub pool: u8,
    /// Whether they may go.
    pub pin: Pin,
}

impl MappedPages {
    /// Pages of nothing.
    pub const NONE: MappedPages = MappedPages {
        base: 0,
        end: 0,
        file: (0, 0),
        times: Times::NONE,
        access: libc::PROT_READ,
        paged: None,
        pool: 0,
        pin: Pin::Loose,
    };

    /// Whether the process may load from them.
    pub fn reach(&self) -> Reach {
        Reach::of(self.access)
    }

    /// The part of them in a range of addresses.
    fn within(self, range: &Range<usize>) -> Option<MappedPages> {
        let (base, end) = (self.base.max(range.start), self.end.min(range.end));
        (base < end).then_some(MappedPages { base, end, ..self })
    }

    /// Whether the other ones go on where these end, in all respects.
    fn goes_on_in(&self, other: &MappedPages) -> bool {
        self.end == other.base && self.is_like(other)
    }

    fn is_like(&self, other: &MappedPages) -> bool {
        let of = |pages: &MappedPages| (pages.file, pages.access, pages.paged, pages.pool, pages.pin);
        self.times == other.times && of(self) == of(other)
    }

    /// Their addresses.
    pub fn addresses(&self) -> Range<usize> {
        self.base..self.end
    }
}

/// All of them, in no order.
pub struct MappedRanges {
    pages: [MappedPages; MAPPED_MAX],
    used: usize,
}

impl MappedRanges {
    #[expect(clippy::large_stack_arrays, reason = "it is what a static begins with")]
    /// Nothing is mapped.
    pub const NONE: MappedRanges = MappedRanges { pages: [MappedPages::NONE; MAPPED_MAX], used: 0 };

    /// How many pieces there are.
    pub fn count(&self) -> usize {
        self.used
    }

    /// Each piece.
    pub fn iter(&self) -> impl Iterator<Item = &MappedPages> {
        self.pages[..self.used].iter()
    }

    /// Each piece, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut MappedPages> {
        self.pages[..self.used].iter_mut()
    }

    /// The parts of these addresses that have pages.
    pub fn parts(&self, range: &Range<usize>) -> impl Iterator<Item = MappedPages> {
        let range = range.clone();
        self.iter().filter_map(move |pages| pages.within(&range))
    }

    /// Whether something can be cut out of what is there, and be added.
    pub fn has_room(&self) -> bool {
        self.used + 2 < MAPPED_MAX
    }

    /// Whether these addresses can be taken out for good: what is left of a piece may be two.
    pub fn has_room_without(&self, range: &Range<usize>) -> bool {
        let is_cut_in_two = |pages: &MappedPages| pages.base < range.start && range.end < pages.end;
        self.used < MAPPED_MAX || !self.iter().any(is_cut_in_two)
    }

    /// Adds pages, which are the same as those at their ends if all else is. Where there is no room
    /// they are not known.
    pub fn add(&mut self, mut pages: MappedPages) {
        let mut place = 0;
        while place < self.used {
            let other = self.pages[place];
            if other.goes_on_in(&pages) || pages.goes_on_in(&other) {
                (pages.base, pages.end) = (pages.base.min(other.base), pages.end.max(other.end));
                self.remove(place);
            } else {
                place += 1;
            }
        }
        if let Some(free) = self.pages.get_mut(self.used) {
            *free = pages;
            self.used += 1;
        }
    }

    fn remove(&mut self, place: usize) {
        self.used -= 1;
        self.pages[place] = self.pages[self.used];
    }

    /// Takes one piece of these addresses out, if they have any.
    pub fn take(&mut self, range: &Range<usize>) -> Option<MappedPages> {
        self.take_if(range, |_| true)
    }

    /// Takes one such piece of these addresses out, if they have any.
    pub fn take_if(&mut self, range: &Range<usize>, is_such: impl Fn(&MappedPages) -> bool) -> Option<MappedPages> {
        let place = self.iter().position(|pages| is_such(pages) && pages.within(range).is_some())?;
        let pages = self.pages[place];
        self.remove(place);
        let left = [(pages.base, range.start), (range.end, pages.end)];
        for (base, end) in left.into_iter().filter(|(base, end)| base < end) {
            self.add(MappedPages { base, end, ..pages });
        }
        pages.within(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(base: usize, end: usize) -> MappedPages {
        MappedPages { base, end, file: (1, 1), ..MappedPages::NONE }
    }

    fn all(ranges: &MappedRanges) -> Vec<(usize, usize, Reach)> {
        let mut all: Vec<_> = ranges.iter().map(|pages| (pages.base, pages.end, pages.reach())).collect();
        all.sort_by_key(|(base, ..)| *base);
        all
    }

    #[test]
    fn what_is_taken_out_leaves_the_rest_and_joins_it_again() {
        let mut ranges = Box::new(MappedRanges::NONE);
        ranges.add(pages(10, 20));
        ranges.add(MappedPages { file: (1, 2), ..pages(20, 30) });
        assert_eq!(ranges.count(), 2, "another file");
        let taken = ranges.take(&(12..25)).expect("there is some");
        let other = ranges.take(&(12..25)).expect("there is some more");
        let mut seen = [(taken.base, taken.end), (other.base, other.end)];
        seen.sort_unstable();
        assert_eq!((seen, ranges.take(&(12..25)).is_none()), ([(12, 20), (20, 25)], true));
        assert_eq!(all(&ranges), [(10, 12, Reach::Readable), (25, 30, Reach::Readable)]);
        ranges.add(MappedPages { access: libc::PROT_NONE, ..pages(12, 14) });
        ranges.add(pages(14, 20));
        assert_eq!(all(&ranges)[..3], [(10, 12, Reach::Readable), (12, 14, Reach::Barred), (14, 20, Reach::Readable)]);
        let barred = ranges.take(&(12..14)).expect("it is there");
        ranges.add(MappedPages { access: libc::PROT_READ, ..barred });
        assert_eq!(all(&ranges)[0], (10, 20, Reach::Readable));
        let parts: Vec<_> = ranges.parts(&(15..27)).map(|part| part.addresses()).collect();
        assert_eq!(parts.len(), 2);
        assert!(parts.contains(&(15..20)) && parts.contains(&(25..27)));
    }

    #[test]
    fn no_more_are_known_than_there_is_room_for() {
        let mut ranges = Box::new(MappedRanges::NONE);
        (0..MAPPED_MAX + 5).for_each(|number| ranges.add(pages(number * 4, number * 4 + 1)));
        assert_eq!((ranges.count(), ranges.has_room()), (MAPPED_MAX, false));
        assert!(ranges.take(&(0..1)).is_some());
        ranges.add(pages(0, 3));
        assert!(!ranges.has_room_without(&(1..2)), "two would be left");
        assert!([0..1, 1..3, 0..9].iter().all(|range| ranges.has_room_without(range)));
        assert!(ranges.take(&(0..3)).is_some() && ranges.take(&(4..5)).is_some() && ranges.take(&(8..9)).is_some());
        assert!(ranges.has_room());
    }

    #[test]
    fn stores_need_an_access_that_has_loads_too() {
        let of = |access| Reach::of(access);
        assert_eq!([libc::PROT_READ, libc::PROT_WRITE].map(of), [Reach::Readable; 2]);
        assert_eq!([libc::PROT_NONE, libc::PROT_EXEC].map(of), [Reach::Barred; 2]);
    }
}
