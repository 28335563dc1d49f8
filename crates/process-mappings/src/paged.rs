//! Paged mappings: direct mappings of which not all pages are present. See `misses.rs` for what is
//! done with them.
//!
//! A paged mapping is cut into extents. Those that are present are in a queue, in the order in
//! which they came. What is known of a mapping's extents lies in memory of its own, which costs
//! nothing where no extent came yet.

use crate::PAGE_BYTES;
use crate::kernel_mappings::KernelMapping;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tidegate_file_wire::PoolDescription;

/// Paged mappings of a process.
pub const PAGED_MAX: usize = 64;

/// Pages of an extent: as many as a word has bits.
const EXTENT_PAGES: usize = 64;
/// Bytes that come and go as one: most that a miss copies.
pub const EXTENT_BYTES: usize = EXTENT_PAGES * PAGE_BYTES;

/// Most extents that are present in a process: each takes two or more of the kernel's areas of
/// memory, of which there are 65530 by default.
pub(crate) const PRESENT_MAX: usize = 12_288;

/// Places in the queue: it has entries of extents, too, that went otherwise.
const QUEUE: usize = 2 * PRESENT_MAX;

/// What is known of an extent. Zeroes: it is absent, and its memory need not exist. Atomics for
/// what is changed by a reference: whoever does has the lock of the table.
#[derive(Default)]
pub struct PagedExtent {
    /// Which of all that came it is, from 1 on.
    came: AtomicU32,
    /// 1: it may have been stored to, and the kernel does not watch it yet.
    unwatched: AtomicU32,
    /// Its pages that are present, a bit each.
    present: AtomicU64,
    /// Its present pages that do not follow the one before in the pool.
    begins: AtomicU64,
}

/// Which pages a run is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Pages that are not present.
    Absent,
    /// Pages that are.
    Present,
    /// Present ones that follow each other in the pool.
    TogetherInPool,
}

fn bits(pages: Range<usize>) -> u64 {
    pages.fold(0, |bits, page| bits | 1 << page)
}

impl PagedExtent {
    /// Whether any page of it is.
    pub fn is_present(&self) -> bool {
        self.present.load(Ordering::Relaxed) != 0
    }

    /// Whether the kernel tells what is stored to it.
    pub fn is_watched(&self) -> bool {
        self.unwatched.load(Ordering::Relaxed) == 0
    }

    /// Whether it was present before, and may be still.
    pub fn has_come(&self) -> bool {
        self.came.load(Ordering::Relaxed) != 0
    }

    /// The kernel watches it from now on.
    pub fn watched(&self) {
        self.unwatched.store(0, Ordering::Relaxed);
    }

    /// These pages came, as one run of the pool.
    pub fn has(&self, pages: Range<usize>) {
        self.begins.fetch_or(1 << pages.start, Ordering::Relaxed);
        self.present.fetch_or(bits(pages), Ordering::Relaxed);
        self.unwatched.store(1, Ordering::Relaxed);
    }

    /// These pages are gone. True: it has none any more.
    pub fn has_not(&self, pages: Range<usize>) -> bool {
        let (behind, gone) = (pages.end, bits(pages));
        let had = self.present.fetch_and(!gone, Ordering::Relaxed);
        // What follows begins a run, if it is there.
        let begun = if behind < EXTENT_PAGES { 1 << behind } else { 0 };
        let begins = (self.begins.load(Ordering::Relaxed) | begun) & had & !gone;
        self.begins.store(begins, Ordering::Relaxed);
        had != 0 && had & !gone == 0
    }

    /// The first run of pages from `from` on and before `until` that are such.
    fn run(&self, (from, until): (usize, usize), which: Which) -> Option<Range<usize>> {
        let (present, begins) = (self.present.load(Ordering::Relaxed), self.begins.load(Ordering::Relaxed));
        let is_such = |page: usize| (present >> page & 1 == 1) == (which != Which::Absent);
        let start = (from..until).find(|page| is_such(*page))?;
        let ends = |page: &usize| !is_such(*page) || which == Which::TogetherInPool && begins >> *page & 1 == 1;
        Some(start..(start + 1..until).find(ends).unwrap_or(until))
    }
}

/// Stands for a descriptor that is about to be there: who waits for a page waits for that.
pub const COMES: i32 = -2;

/// A paged mapping. Its pages may be unmapped since, all or some.
#[derive(Clone, Copy)]
pub struct Paged {
    base: usize,
    end: usize,
    /// Where its first page lies in the file.
    pub from: u64,
    /// By which descriptor of the handler's table the service is asked.
    pub fd: i32,
    /// The mapping of the kernel's pages that was here, if it was upgraded, and may come back.
    pub upgraded_from: Option<KernelMapping>,
    /// How often an extent came that had been here before.
    pub returns: usize,
    extents: NonNull<PagedExtent>,
    pool: NonNull<PoolDescription>,
}

impl Paged {
    fn extents_bytes(len: usize) -> usize {
        (len.div_ceil(EXTENT_BYTES) * size_of::<PagedExtent>()).next_multiple_of(PAGE_BYTES)
    }

    /// At these addresses, of a file from `from` on, in this pool.
    pub fn new(at: Range<usize>, from: u64, pool: &PoolDescription) -> Result<Paged, Errno> {
        let extents_bytes = Paged::extents_bytes(at.len());
        let len = extents_bytes + size_of::<PoolDescription>();
        let (access, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping overlaps no other.
        let memory = unsafe { rustix::mm::mmap_anonymous(null_mut(), len, access, how) }?;
        let extents = NonNull::new(memory.cast()).ok_or(Errno::NOMEM)?;
        let described = NonNull::new(memory.wrapping_byte_add(extents_bytes).cast()).ok_or(Errno::NOMEM)?;
        // SAFETY: it is inside the memory that was just mapped, and aligned to pages.
        unsafe { described.write(*pool) };
        let (base, end, upgraded_from) = (at.start, at.end, None);
        Ok(Paged { base, end, from, fd: -1, upgraded_from, returns: 0, extents, pool: described })
    }

    /// Nothing of it is mapped, or known, any more.
    pub fn end(self) {
        let len = Paged::extents_bytes(self.end - self.base) + size_of::<PoolDescription>();
        let memory: *mut c_void = self.extents.as_ptr().cast();
        // SAFETY: nothing names it any more.
        let _ = unsafe { rustix::mm::munmap(memory, len) };
    }

    /// The pool that it is of.
    pub fn pool(&self) -> &'static PoolDescription {
        // SAFETY: it is as it was written, and `end` is called when nobody uses it.
        unsafe { self.pool.as_ref() }
    }

    /// What is known of its extents, by their numbers.
    pub fn extents(&self) -> &'static [PagedExtent] {
        // SAFETY: L5.
        unsafe { slice::from_raw_parts(self.extents.as_ptr(), (self.end - self.base).div_ceil(EXTENT_BYTES)) }
    }

    /// Which extent an address is in.
    pub fn number(&self, at: usize) -> usize {
        (at - self.base) / EXTENT_BYTES
    }

    /// The addresses of an extent.
    pub fn addresses(&self, number: usize) -> Range<usize> {
        let start = self.base + number * EXTENT_BYTES;
        start..self.end.min(start + EXTENT_BYTES)
    }

    /// Where an address lies in the file.
    pub fn offset(&self, at: usize) -> u64 {
        self.from + (at - self.base) as u64
    }

    /// The pages that addresses of one extent have there.
    pub fn pages(&self, range: &Range<usize>) -> Range<usize> {
        let extent = self.addresses(self.number(range.start)).start;
        (range.start - extent) / PAGE_BYTES..(range.end - extent) / PAGE_BYTES
    }

    /// The first run of such pages in a range of one extent.
    pub fn run(&self, range: &Range<usize>, which: Which) -> Option<Range<usize>> {
        if range.is_empty() {
            return None;
        }
        let number = self.number(range.start);
        let (extent, pages) = (self.addresses(number).start, self.pages(range));
        let run = self.extents()[number].run((pages.start, pages.end), which)?;
        Some(extent + run.start * PAGE_BYTES..extent + run.end * PAGE_BYTES)
    }

    /// The parts of a range that lie in one extent each.
    pub fn cut(&self, range: Range<usize>) -> impl Iterator<Item = (&'static PagedExtent, Range<usize>)> {
        let (extents, paged) = (self.extents(), *self);
        let numbers = if range.is_empty() { 0..0 } else { self.number(range.start)..self.number(range.end - 1) + 1 };
        numbers.map(move |number| {
            let whole = paged.addresses(number);
            (&extents[number], whole.start.max(range.start)..whole.end.min(range.end))
        })
    }
}

/// An extent that came.
#[derive(Clone, Copy)]
struct Came {
    paged: u16,
    extent: u32,
    turn: u32,
}

/// Extents in the order in which they came.
pub struct Arrivals {
    entries: [Came; QUEUE],
    first: usize,
    len: usize,
    turn: u32,
    /// Extents that are present.
    pub present: usize,
}

impl Arrivals {
    #[expect(clippy::large_stack_arrays, reason = "it is what a static begins with")]
    /// None came.
    pub const NONE: Arrivals =
        Arrivals { entries: [Came { paged: 0, extent: 0, turn: 0 }; QUEUE], first: 0, len: 0, turn: 0, present: 0 };

    /// None is present.
    pub fn clear(&mut self) {
        (self.first, self.len, self.present) = (0, 0, 0);
    }

    /// An extent is about to come.
    pub fn add(&mut self, paged: u16, number: usize, extent: &PagedExtent) {
        self.turn = self.turn.checked_add(1).unwrap_or(1);
        extent.came.store(self.turn, Ordering::Relaxed);
        let entry = Came { paged, extent: u32::try_from(number).unwrap_or(u32::MAX), turn: self.turn };
        self.entries[(self.first + self.len) % QUEUE] = entry;
        self.len += 1;
    }

    /// Whether one more may come.
    pub fn has_room(&self) -> bool {
        self.len < QUEUE && self.present < PRESENT_MAX
    }

    /// Takes the extent out that came first, if there is any; whether it is present still, the
    /// caller looks by its turn.
    pub fn take(&mut self) -> Option<(u16, usize, u32)> {
        let entry = (self.len > 0).then(|| self.entries[self.first])?;
        (self.first, self.len) = ((self.first + 1) % QUEUE, self.len - 1);
        Some((entry.paged, entry.extent as usize, entry.turn))
    }

    /// How many entries there are.
    pub fn count(&self) -> usize {
        self.len
    }
}

impl PagedExtent {
    /// Whether it came in this turn, and is present still.
    pub fn is_of(&self, turn: u32) -> bool {
        self.is_present() && self.came.load(Ordering::Relaxed) == turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_knows_its_runs_and_when_its_last_page_is_gone() {
        let extent = PagedExtent::default();
        extent.has(3..8);
        extent.has(8..64);
        let run = |from, which| extent.run((from, 64), which);
        assert_eq!([run(0, Which::Absent), run(0, Which::Present)], [Some(0..3), Some(3..64)]);
        assert_eq!([run(0, Which::TogetherInPool), run(8, Which::TogetherInPool)], [Some(3..8), Some(8..64)]);
        assert!(!extent.is_watched() && !extent.has_not(0..5));
        assert_eq!([run(0, Which::Present), run(5, Which::TogetherInPool)], [Some(5..64), Some(5..8)]);
        assert!(!extent.has_not(20..30), "some are left");
        assert_eq!(run(8, Which::TogetherInPool), Some(8..20));
        assert_eq!((run(20, Which::Absent), run(25, Which::TogetherInPool)), (Some(20..30), Some(30..64)));
        assert!(extent.has_not(0..64) && !extent.is_present() && !extent.has_not(0..64));
    }

    #[test]
    fn extents_are_taken_in_the_order_in_which_they_came() {
        let (mut arrivals, extents) = (Box::new(Arrivals::NONE), [(); 3].map(|()| PagedExtent::default()));
        extents.iter().for_each(|extent| extent.has(0..1));
        [0, 1, 2, 0].iter().for_each(|number| arrivals.add(7, *number, &extents[*number]));
        let mut taken = || arrivals.take().map(|(_, number, turn)| (number, extents[number].is_of(turn)));
        assert_eq!([taken(), taken(), taken(), taken()], [(0, false), (1, true), (2, true), (0, true)].map(Some));
        assert_eq!(taken(), None);
    }
}
