//! What is done with paged mappings: pages come when they are touched, and others go to make room.
//!
//! An extent that is not present is absent memory (`AbsentPages`): who touches it waits. The worker
//! asks the service for the extent's pages as `mmap` does, takes the locks, asks again, and only
//! then maps them there, as stores may come from that instant on. The kernel does not watch them
//! before the first `msync` of the extent, which flushes all of it.
//!
//! Where the service has no room, the extents that came first go, but for pinned ones; likewise
//! where it says that another program waits for room. Each has an open file of the pool of its own,
//! and so its own lock. It has other addresses first, then its own ones become absent in one act,
//! and then it is flushed by the other ones: no store is left out. The lock goes with the last
//! addresses. Children do not have them: see
//! [`after_fork_in_child`].

use crate::mappings::aliases::Aliases;
use crate::mappings::signals::HeldSignals;
use crate::mappings::touch_threads::{Files, NO_FILES, TOUCH_THREADS, TouchWork};
use crate::mappings::upgrades::{give_back_all, give_back_asked, give_back_restless, give_back_wanted};
use crate::mappings::{MAPPINGS, PAGE_BYTES, Table, UNASKED_BYTES, Wanted, any, errno_of, flush, pages, pause, with};
use crate::memory::PoolFile;
use crate::service::lends;
use libc::c_int;
use rustix::fd::BorrowedFd;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;
use tidegate_file_wire::{UPGRADES, WAITS_FOR_ROOM};
use tidegate_media::{AbsentPages, MappedRuns, OpenShared};
use tidegate_process_mappings::{
    Arrivals, COMES, EXTENT_BYTES, MappedPages, PAGED_MAX, Paged, PagedExtent, Pin, Times, Which,
};

/// How often the service is asked for pages for which it has no room, with a pause of 1 ms in
/// between, before who waits for them is told by `SIGBUS`.
const ROOM_TRIES: u32 = 10_000;

/// How often pages are asked for that moved before they were mapped.
const TRIES: u32 = 8;

/// The part of the extents that go at a time when there is no room: the service looks at all that
/// is mapped then.
const GOING_PART: usize = 8;

/// Stands for no extent of any mapping.
const NO_EXTENT: (u16, usize) = (u16::MAX, usize::MAX);

/// Files of paged mappings that ended, which the worker is to close.
const CLOSING_MAX: usize = 2 * PAGED_MAX;

/// What the threads do that bring pages.
pub(super) static WORK: TouchWork = TouchWork {
    serve,
    bring: bring_asked,
    give_back: give_back_asked,
    give_room,
    give_back_wanted,
    tidy_up: |absent| {
        give_back_restless(absent);
        close_unused();
    },
};

/// What a process has of paged mappings.
pub(super) struct AllPaged {
    pub(super) paged: [Option<Paged>; PAGED_MAX],
    pub(super) queue: Arrivals,
    /// As many extents as there was room for lately.
    room: usize,
    /// With [`WAITS_FOR_ROOM`] while somebody waits for a page for which there was no room, and
    /// with [`UPGRADES`] while pages of an upgraded mapping come.
    pub(super) asks_with: u32,
    closing: [i32; CLOSING_MAX],
    /// While a child is made: the files, by descriptors that it will have.
    copies: Files,
    /// While a child is made: whether its parent has the list of streams.
    has_streams: bool,
}

impl AllPaged {
    pub(super) const NONE: AllPaged = AllPaged {
        paged: [None; PAGED_MAX],
        queue: Arrivals::NONE,
        room: usize::MAX,
        asks_with: 0,
        closing: [-1; CLOSING_MAX],
        copies: NO_FILES,
        has_streams: false,
    };
}

fn access_of(pages: &MappedPages) -> ProtFlags {
    ProtFlags::from_bits_retain(pages.access.cast_unsigned())
}

impl Wanted {
    /// Maps pages that come when they are touched. `None`: this process cannot have such ones.
    pub(super) fn map_paged(&self, (from, len): (u64, usize), file: (u64, u64)) -> Option<Result<*mut c_void, Errno>> {
        let absent = TOUCH_THREADS.started(&WORK).ok()?;
        let (base, number) = match self.begun_paged(absent, (from, len), file) {
            Ok(begun) => begun,
            Err(errno) => return Some(Err(errno)),
        };
        // The worker's own: the program may close its descriptor.
        let opened = TOUCH_THREADS.open(self.fd);
        let done = with(|table| {
            if let (Ok(fd), Some(paged)) = (opened, &mut table.all.paged[usize::from(number)]) {
                paged.fd = fd;
                return Ok(base);
            }
            table.end_untold(&pages(base, len));
            Err(opened.err().unwrap_or(Errno::NOMEM))
        });
        Some(done.and_then(|done| done))
    }

    /// Reserves a paged mapping, with its first extent. If there is no room for a page of it, other
    /// programs are asked for some, unless it is to replace another mapping.
    fn begun_paged(
        &self,
        absent: AbsentPages,
        place: (u64, usize),
        file: (u64, u64),
    ) -> Result<(*mut c_void, u16), Errno> {
        let tries = if self.place_flags() & libc::MAP_FIXED == 0 { ROOM_TRIES } else { 1 };
        for number in 0..tries {
            let begin = |table: &mut Table| table.begin_paged(self, absent, place, file);
            match with(|table| table.asking(number, begin)).and_then(|begun| begun) {
                Err(Errno::AGAIN) => pause(),
                begun => return begun,
            }
        }
        Err(Errno::NOMEM)
    }
}

impl Table {
    /// Does what asks for pages, the first time or again: then it says that somebody waits.
    fn asking<T>(&mut self, number: u32, act: impl FnOnce(&mut Table) -> T) -> T {
        if number > 0 {
            self.all.asks_with |= WAITS_FOR_ROOM;
            TOUCH_THREADS.asks_for_room();
        }
        let done = act(self);
        self.all.asks_with &= !WAITS_FOR_ROOM;
        done
    }

    /// Reserves a paged mapping, with its first extent. The program is not told yet. `EAGAIN`: no
    /// room is there.
    fn begin_paged(
        &mut self,
        wanted: &Wanted,
        absent: AbsentPages,
        (from, len): (u64, usize),
        file: (u64, u64),
    ) -> Result<(*mut c_void, u16), Errno> {
        if !lends(wanted.fd, &mut self.pool) {
            return Err(Errno::OPNOTSUPP);
        }
        let number = self.unused_paged().filter(|_| self.mapped.has_room()).ok_or(Errno::NOMEM)?;
        let place = usize::from(number);
        let pool = self.number_of_pool()?;
        self.ask(wanted.fd, from, len.min(EXTENT_BYTES)).or_else(|errno| match errno {
            Errno::NOMEM => Ok(0),
            errno => Err(errno),
        })?;
        let how = MapFlags::from_bits_retain(wanted.place_flags().cast_unsigned());
        if how.contains(MapFlags::FIXED) {
            self.say(&pages(wanted.at, len));
        }
        // SAFETY: L1.
        let runs = unsafe { MappedRuns::reserve(wanted.at, len, how) }.map_err(errno_of)?;
        let (base, range) = (runs.base(), pages(runs.base(), len));
        let times = self.times_of(file);
        self.forget(&range, times);
        let (start, end, access) = (range.start, range.end, wanted.access);
        let (paged, pin) = (Some(number), Pin::Loose);
        self.mapped.add(MappedPages { base: start, end, file, times, access, paged, pool, pin });
        self.count();
        self.begin_to_watch();
        let access = ProtFlags::from_bits_retain(access.cast_unsigned());
        let begun = Paged::new(range.clone(), from, &self.pool).and_then(|mut paged| {
            paged.fd = wanted.fd;
            self.all.paged[place] = Some(paged);
            // SAFETY: the program was not told.
            unsafe { absent.make(base, len, access) }.map_err(errno_of)?;
            self.bring_page(absent, number, start)
        });
        let begun = begun.map_err(|errno| if errno == Errno::NOMEM { Errno::AGAIN } else { errno });
        // The descriptor is the program's.
        _ = self.all.paged[place].as_mut().map(|paged| paged.fd = -1);
        begun.map(|_| (base, number)).inspect_err(|_| self.end_untold(&range))
    }

    /// Unmaps a mapping of which the program was not told.
    pub(super) fn end_untold(&mut self, range: &Range<usize>) {
        // SAFETY: nobody uses it.
        let _ = unsafe { rustix::mm::munmap(with_exposed_provenance_mut(range.start), range.len()) };
        self.forget(range, Times::NONE);
    }

    pub(super) fn paged_of(&self, pages: &MappedPages) -> Option<Paged> {
        self.paged(pages.paged?)
    }

    /// The paged mapping of this number.
    pub(super) fn paged(&self, number: u16) -> Option<Paged> {
        self.all.paged.get(usize::from(number)).copied().flatten()
    }

    /// Has the worker close one of its files, if it is one.
    pub(super) fn close_later(&mut self, fd: i32) {
        if fd >= 0
            && let Some(free) = self.all.closing.iter_mut().find(|place| **place < 0)
        {
            *free = fd;
            TOUCH_THREADS.ring();
        }
    }

    /// Brings a page, and its extent if there is room for that. The addresses that are present
    /// then.
    pub(super) fn bring_page(&mut self, absent: AbsentPages, number: u16, at: usize) -> Result<Range<usize>, Errno> {
        let paged = self.paged(number).ok_or(Errno::INVAL)?;
        let (extent, page) = (paged.number(at), at..at + PAGE_BYTES);
        let brought = self.bring_with_room(absent, number, at);
        if brought != Err(Errno::NOMEM) {
            return brought;
        }
        if paged.run(&page, Which::Present).is_some() {
            return Ok(page);
        }
        let alone = self.bring_part(&paged, number, page.clone());
        if alone != Err(Errno::NOMEM) || self.is_pinned(number, &paged.addresses(extent)) {
            return alone;
        }
        // The rest of its extent goes for it.
        self.give_back(absent, (number, &paged), extent)?;
        self.bring_part(&paged, number, page)
    }

    /// Brings the extent of an address. All others that this process can give back go for it, if
    /// they have to. The addresses that are present then; if there is no room, some may be.
    fn bring_with_room(&mut self, absent: AbsentPages, number: u16, at: usize) -> Result<Range<usize>, Errno> {
        let paged = self.paged(number).ok_or(Errno::INVAL)?;
        let extent = paged.number(at);
        if self.all.queue.present >= self.all.room || !self.all.queue.has_room() {
            self.make_room(absent, (number, extent));
            self.all.room = self.all.room.saturating_add(1);
        }
        loop {
            let brought = self.bring_part(&paged, number, paged.addresses(extent));
            if brought != Err(Errno::NOMEM) {
                // The file may end before this address.
                return brought.and_then(|part| if at < part.end { Ok(part) } else { Err(Errno::INVAL) });
            }
            self.all.room = self.all.queue.present;
            if !self.make_room(absent, (number, extent)) {
                return brought;
            }
        }
    }

    /// Brings what is missing of addresses of one extent, as far as the file goes: until where they
    /// are present then.
    fn bring_part(&mut self, paged: &Paged, number: u16, range: Range<usize>) -> Result<Range<usize>, Errno> {
        let extent = paged.number(range.start);
        let known = &paged.extents()[extent];
        let (was_present, has_come) = (known.is_present(), known.has_come());
        let mut until = range.end;
        if paged.upgraded_from.is_some() {
            self.all.asks_with |= UPGRADES;
        }
        let mut brought = self.bring_until(paged, number, range.start..until);
        if brought == Err(Errno::INVAL) {
            // The file may be shorter than the mapping.
            // SAFETY: it is the worker's, or the caller's.
            let size =
                fstat(unsafe { BorrowedFd::borrow_raw(paged.fd) }).map_or(0, |about| about.st_size.cast_unsigned());
            let left = size.saturating_sub(paged.offset(range.start)) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
            until = range.start + usize::try_from(left).unwrap_or(usize::MAX).min(range.len());
            brought = if range.start < until { self.bring_until(paged, number, range.start..until) } else { brought };
        }
        self.all.asks_with &= !UPGRADES;
        if known.is_present() {
            self.all.queue.present += usize::from(!was_present);
            if let Some(paged) = self.paged_mut(number).filter(|_| has_come && !was_present) {
                paged.returns += 1;
            }
            self.all.queue.add(number, extent, known);
        }
        brought.map(|()| range.start..until)
    }

    /// Brings what is missing of addresses of one extent.
    fn bring_until(&mut self, paged: &Paged, number: u16, range: Range<usize>) -> Result<(), Errno> {
        let mut at = range.start;
        while let Some(part) = self.first_of(number, at..range.end) {
            while let Some(gap) = paged.run(&part.addresses(), Which::Absent) {
                self.put_gap(paged, number, &MappedPages { base: gap.start, end: gap.end, ..part })?;
            }
            at = part.end;
        }
        Ok(())
    }

    /// The first piece of a paged mapping in these addresses.
    pub(super) fn first_of(&self, number: u16, range: Range<usize>) -> Option<MappedPages> {
        self.mapped.parts(&range).filter(|part| part.paged == Some(number)).min_by_key(|part| part.base)
    }

    /// Maps the first pages of these, which are absent.
    fn put_gap(&mut self, paged: &Paged, number: u16, gap: &MappedPages) -> Result<(), Errno> {
        let (from, len) = (paged.offset(gap.base), gap.end - gap.base);
        for _ in 0..TRIES {
            let seen = self.ask(paged.fd, from, len)?;
            self.take_time_page(paged, (number, gap))?;
            let mut outcome = Err(Errno::IO);
            PoolFile::new(paged.pool()).open(&mut |file| outcome = self.put_seen(paged, gap, file, seen));
            if outcome? {
                return Ok(());
            }
        }
        Err(Errno::AGAIN)
    }

    /// Maps pages as the service told. False: they moved before they were locked.
    fn put_seen(&mut self, paged: &Paged, gap: &MappedPages, file: BorrowedFd<'_>, seen: u64) -> Result<bool, Errno> {
        let mut bytes = 0;
        for run in self.runs() {
            let len = usize::try_from(run.bytes.get()).map_err(|_| Errno::IO)?;
            bytes += len;
            if len == 0 || !len.is_multiple_of(PAGE_BYTES) || bytes > gap.end - gap.base {
                return Err(Errno::IO);
            }
            MappedRuns::lock(file, run.pool_at.get(), len).map_err(errno_of)?;
        }
        if bytes == 0 {
            return Err(Errno::IO);
        }
        if self.ask(paged.fd, paged.offset(gap.base), gap.end - gap.base)? != seen {
            return Ok(false);
        }
        let known = &paged.extents()[paged.number(gap.base)];
        let mut at = gap.base;
        for run in self.runs() {
            let len = usize::try_from(run.bytes.get()).map_err(|_| Errno::IO)?;
            let place = with_exposed_provenance_mut(at);
            // SAFETY: who touches the absent memory there waits for that, or is about to.
            let placed = unsafe { MappedRuns::place(place, file, (run.pool_at.get(), len), access_of(gap)) };
            let placed = placed.map_err(errno_of)?;
            // A child would keep the lock.
            // SAFETY: the mapping stays as it is.
            let _ = unsafe { rustix::mm::madvise(placed, len, Advice::LinuxDontFork) };
            known.has(paged.pages(&(at..at + len)));
            at += len;
        }
        Ok(true)
    }

    /// Maps the time page that the service told of, if it is not the one that the mapping has. By
    /// an open file of its own: it stays when extents go.
    fn take_time_page(&mut self, paged: &Paged, (number, gap): (u16, &MappedPages)) -> Result<(), Errno> {
        let (page, before) = (self.map.time_page.get(), gap.times);
        let now = self.times_of_paged(number).unwrap_or(before);
        if now.is_page(page) {
            return Ok(());
        }
        let mut mapped = Err(Errno::IO);
        PoolFile::new(paged.pool()).open(&mut |file| mapped = Times::map(file, page));
        let times = mapped?;
        let own = self.mapped.iter_mut().filter(|pages| pages.paged == Some(number));
        own.for_each(|pages| pages.times = times);
        self.end_unused(now);
        Ok(())
    }

    pub(super) fn times_of_paged(&self, number: u16) -> Option<Times> {
        self.mapped.iter().find(|pages| pages.paged == Some(number)).map(|pages| pages.times)
    }

    /// Has extents that came first go, but for one. False: there are none.
    fn make_room(&mut self, absent: AbsentPages, but: (u16, usize)) -> bool {
        let mut wanted = (self.all.queue.present / GOING_PART).max(1);
        let mut any = false;
        for _ in 0..self.all.queue.count() {
            let Some((number, extent, turn)) = self.all.queue.take() else { break };
            let Some(paged) =
                self.paged(number).filter(|paged| paged.extents().get(extent).is_some_and(|known| known.is_of(turn)))
            else {
                continue;
            };
            let is_pinned = self.is_pinned(number, &paged.addresses(extent));
            if !is_pinned && (number, extent) != but && self.give_back(absent, (number, &paged), extent).is_ok() {
                (any, wanted) = (true, wanted - 1);
            } else {
                self.all.queue.add(number, extent, &paged.extents()[extent]);
            }
            if wanted == 0 {
                break;
            }
        }
        any
    }

    /// Has an extent go, with all that was stored to it durable.
    pub(super) fn give_back(
        &mut self,
        absent: AbsentPages,
        (number, paged): (u16, &Paged),
        extent: usize,
    ) -> Result<(), Errno> {
        let range = paged.addresses(extent);
        let mut aliases = Aliases::NONE;
        let mut at = range.start;
        while let Some(part) = self.first_of(number, at..range.end) {
            aliases.add_present(paged, &part)?;
            at = part.end;
        }
        let replaced = self.make_absent(absent, number, &range);
        aliases.flush();
        replaced
    }

    /// Makes addresses of an extent absent.
    fn make_absent(&mut self, absent: AbsentPages, number: u16, range: &Range<usize>) -> Result<(), Errno> {
        let mut at = range.start;
        while let Some(part) = self.first_of(number, at..range.end) {
            let place = with_exposed_provenance_mut(part.base);
            // SAFETY: who touches it waits until it comes again.
            unsafe { absent.replace(place, part.end - part.base, access_of(&part)) }.map_err(errno_of)?;
            self.is_gone(&part);
            part.times.say();
            at = part.end;
        }
        Ok(())
    }

    /// Nothing of these pages is present any more.
    pub(super) fn is_gone(&mut self, pages: &MappedPages) {
        let Some(paged) = self.paged_of(pages) else { return };
        for (extent, range) in paged.cut(pages.addresses()).filter(|(extent, _)| extent.is_present()) {
            self.all.queue.present -= usize::from(extent.has_not(paged.pages(&range)));
        }
    }

    /// Ends what is known of paged mappings of which no page is mapped.
    pub(super) fn end_unmapped(&mut self) {
        for place in 0..PAGED_MAX {
            let number = u16::try_from(place).ok();
            let Some(paged) = self.all.paged[place] else { continue };
            if self.mapped.iter().any(|pages| pages.paged == number) {
                continue;
            }
            self.all.paged[place] = None;
            self.close_later(paged.fd);
            paged.end();
        }
    }

    /// Whether any of these pages may have been stored to since the last look.
    pub(super) fn was_paged_stored(&self, paged: &Paged, range: Range<usize>) -> bool {
        let was = |(extent, range): (&PagedExtent, Range<usize>)| {
            extent.is_present()
                && (!extent.is_watched() || Runs { paged, left: range }.any(|run| self.was_stored_at(run)))
        };
        paged.cut(range).any(was)
    }

    /// Has what was stored to these pages written back. False: that was nothing.
    pub(super) fn flush_paged(&self, paged: &Paged, range: Range<usize>) -> bool {
        let (is_short, mut any) = (range.len() <= UNASKED_BYTES, false);
        let mut together = range.start..range.start;
        for (extent, part) in paged.cut(range).filter(|(extent, _)| extent.is_present()) {
            let is_new = !is_short && !extent.is_watched();
            let is_watched = is_new && self.watch_extent(paged, &part);
            for run in (Runs { paged, left: part }) {
                if is_new {
                    any |= flush(run);
                } else if run.start == together.end {
                    together.end = run.end;
                } else {
                    any |= self.flush_stored(std::mem::replace(&mut together, run));
                }
            }
            if is_watched {
                extent.watched();
            }
        }
        any | self.flush_stored(together)
    }

    /// Has the kernel watch an extent, of which these addresses are about to be flushed. False: it
    /// does not, or they are not all.
    fn watch_extent(&self, paged: &Paged, range: &Range<usize>) -> bool {
        let watch = |run: Range<usize>| {
            let at = with_exposed_provenance_mut(run.start);
            self.eye.as_ref().is_some_and(|eye| eye.watch(at, run.len()).is_ok())
        };
        *range == paged.addresses(paged.number(range.start)) && Runs { paged, left: range.clone() }.all(watch)
    }
}

/// The runs of addresses of one extent that are present.
struct Runs<'p> {
    paged: &'p Paged,
    left: Range<usize>,
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let run = self.paged.run(&self.left, Which::Present)?;
        self.left.start = run.end;
        Some(run)
    }
}

/// Has whoever waits for this page go on. On the worker only.
fn serve(absent: AbsentPages, at: usize) {
    let page = at / PAGE_BYTES * PAGE_BYTES;
    let page = page..page + PAGE_BYTES;
    for number_of_try in 0..ROOM_TRIES {
        let brought = with(|table| {
            let paged = table.mapped.parts(&page).find_map(|part| part.paged);
            // It was unmapped meanwhile, or something else is there.
            let Some(number) = paged else { return Ok(page.clone()) };
            if table.paged(number).is_some_and(|paged| paged.fd == COMES) {
                return Err(Errno::AGAIN);
            }
            table.asking(number_of_try, |table| table.bring_page(absent, number, page.start))
        });
        match brought.and_then(|brought| brought) {
            Ok(present) => return absent.wake(present.start, present.len()),
            Err(Errno::NOMEM | Errno::AGAIN) => {
                TOUCH_THREADS.answer(absent, &WORK);
                pause();
            }
            Err(_) => break,
        }
    }
    // If that is refused, it was unmapped meanwhile.
    let _ = absent.refuse(page.start, page.len());
    absent.wake(page.start, page.len());
}

/// Brings the extent of this page, if it is in a paged mapping still. On the worker only.
fn bring_asked(absent: AbsentPages, at: usize) -> Result<(), Errno> {
    let brought = with(|table| {
        let paged = table.mapped.parts(&(at..at + PAGE_BYTES)).find_map(|part| part.paged);
        paged.map_or(Ok(()), |number| table.bring_with_room(absent, number, at).map(drop))
    });
    brought.and_then(|brought| brought)
}

/// Has a part of the extents go, for which another program waits. On the worker only.
fn give_room(absent: AbsentPages) {
    let _ = with(|table| {
        table.make_room(absent, NO_EXTENT);
        table.all.room = table.all.queue.present;
    });
}

/// Closes the files of mappings that ended. On the worker only.
fn close_unused() {
    let closing =
        with(|table| std::mem::replace(&mut table.all.closing, [-1; CLOSING_MAX])).unwrap_or([-1; CLOSING_MAX]);
    // SAFETY: they are the worker's, and nobody names them any more.
    closing.into_iter().filter(|fd| *fd >= 0).for_each(|fd| unsafe { rustix::io::close(fd) });
}

unsafe extern "C" {
    /// Takes libc's lock of its list of streams, which a thread may take as often as it likes.
    safe fn _IO_list_lock();
    /// Gives it back.
    safe fn _IO_list_unlock();
}

/// Before a child is made: nobody has the table meanwhile, nor the pool open to pin pages, and the
/// files are there for the child.
///
/// Libc's `fork` waits for its list of streams. Who flushes all of them has the list and waits for
/// a stream, which another thread may have that waits for an absent page. So the list is taken
/// before the table.
pub(crate) fn before_fork() {
    let has_absent = TOUCH_THREADS.is_started();
    if !has_absent && !any() {
        return;
    }
    if has_absent {
        // A child that has the file too may have pages of it when this process has none.
        give_back_all();
    }
    let held = HeldSignals::new();
    if has_absent {
        _IO_list_lock();
    }
    if !MAPPINGS.lock.take() {
        if has_absent {
            _IO_list_unlock();
        }
        return;
    }
    // SAFETY: L2.
    let table = unsafe { &mut *MAPPINGS.table.get() };
    table.all.has_streams = has_absent;
    // What was not given back stays for good.
    table.all.paged.iter_mut().flatten().for_each(|paged| paged.upgraded_from = None);
    table.count();
    for (copy, paged) in table.all.copies.iter_mut().zip(&table.all.paged) {
        *copy = paged.and_then(|paged| TOUCH_THREADS.open_for_program(paged.fd).ok()).unwrap_or(-1);
    }
    table.forking = Some(held);
}

/// In the parent, after that.
pub(crate) fn after_fork() {
    if MAPPINGS.lock.take() {
        // There was nothing mapped before that.
        return MAPPINGS.lock.give();
    }
    // SAFETY: L2: this thread has the lock since `before_fork`.
    let table = unsafe { &mut *MAPPINGS.table.get() };
    let Some(held) = table.forking.take() else { return };
    close_copies(&mut table.all.copies);
    let has_streams = table.all.has_streams;
    MAPPINGS.lock.give();
    if has_streams {
        _IO_list_unlock();
    }
    drop(held);
}

fn close_copies(copies: &mut Files) {
    // SAFETY: they were opened for this.
    copies.iter().filter(|fd| **fd >= 0).for_each(|fd| unsafe { rustix::io::close(*fd) });
    *copies = NO_FILES;
}

/// In a child: all paged mappings are holes of its memory. They are made absent, and it has threads
/// of its own that bring them. Without those who touches them has `SIGSEGV`. As its parent had
/// several threads, libc has freed its list of streams.
pub(crate) fn after_fork_in_child() {
    let taken = with(|table| (table.forking.take(), table.all.copies));
    let Ok((Some(held), mut copies)) = taken else { return };
    let has_any = with(|table| table.all.paged.iter().any(Option::is_some));
    let mut files = copies;
    // A file that could not be opened has its absent pages refused.
    if has_any == Ok(true)
        && let Ok(absent) = TOUCH_THREADS.start(&WORK, &mut files)
    {
        let _ = with(|table| {
            for (paged, fd) in table.all.paged.iter_mut().zip(files) {
                _ = paged.as_mut().map(|paged| paged.fd = fd);
            }
            for part in table.mapped.iter().filter(|pages| pages.paged.is_some()) {
                let place = with_exposed_provenance_mut(part.base);
                // SAFETY: nothing is there, and this process has one other thread, which does not
                // touch it.
                let _ = unsafe { absent.make(place, part.end - part.base, access_of(part)) };
            }
        });
    }
    close_copies(&mut copies);
    let _ = with(|table| table.all.copies = NO_FILES);
    drop(held);
}

impl Table {
    /// In a child: no extent is present, and the files are the parent's.
    pub(super) fn forget_present(&mut self) {
        for place in 0..self.mapped.count() {
            let Some(pages) = self.mapped.iter().nth(place).copied() else { break };
            self.is_gone(&pages);
        }
        self.all.queue.clear();
        self.all.closing = [-1; CLOSING_MAX];
        self.all.paged.iter_mut().flatten().for_each(|paged| paged.fd = -1);
    }
}

/// Has the extents of these addresses go, which come again when they are touched. What was stored
/// is durable then.
pub(crate) fn drop_cache(at: *mut c_void, len: usize) -> Result<c_int, Errno> {
    let range = pages(at, len);
    let is_writable = |part: &MappedPages| part.access & libc::PROT_WRITE != 0;
    let absent = TOUCH_THREADS.started(&WORK)?;
    with(|table| {
        let all: usize = table.mapped.parts(&range).map(|part| part.addresses().len()).sum();
        if all != range.len() {
            return Err(Errno::NOMEM);
        }
        if !table.mapped.parts(&range).all(|part| is_writable(&part)) {
            return Err(Errno::INVAL);
        }
        if table.mapped.parts(&range).any(|part| part.paged.is_none()) {
            return Err(Errno::OPNOTSUPP);
        }
        let is_pinned = |part: &MappedPages| {
            let Some((number, paged)) = part.paged.zip(table.paged_of(part)) else { return false };
            let [first, last] = [part.base, part.end - 1].map(|at| paged.addresses(paged.number(at)));
            table.is_pinned(number, &(first.start..last.end))
        };
        if table.mapped.parts(&range).any(|part| is_pinned(&part)) {
            return Err(Errno::INVAL);
        }
        let mut at = range.start;
        while at < range.end {
            let Some(part) = table.mapped.parts(&(at..at + PAGE_BYTES)).next() else { return Err(Errno::NOMEM) };
            let Some((number, paged)) = part.paged.zip(table.paged_of(&part)) else { return Err(Errno::OPNOTSUPP) };
            let extent = paged.number(at);
            if paged.extents()[extent].is_present() {
                table.give_back(absent, (number, &paged), extent)?;
            }
            at = paged.addresses(extent).end;
        }
        Ok(0)
    })?
}
