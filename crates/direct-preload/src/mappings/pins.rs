//! Pins: what `mlock` and its like do with direct mappings.
//!
//! A pin is a mark in the table: pages that have one do not go. Of a paged mapping, the extents
//! that have a pinned page are pinned, as they go as a whole, and are charged so.
//!
//! A call pins all or nothing. Its pages are marked as about to be pinned first, and charged
//! (`PinCharge`); then those that are absent come, an extent at a time. If one does not, the marks
//! go again. Other threads have the table in between.
//!
//! A child of `fork` has no pins.

use crate::mappings::misses::WORK;
use crate::mappings::touch_threads::TOUCH_THREADS;
use crate::mappings::{PAGE_BYTES, Table, any, errno_of, pages, with};
use crate::memory::PoolFile;
use crate::service::NO_POOL;
use libc::c_int;
use rustix::io::Errno;
use rustix::mm::Advice;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;
use tidegate_file_wire::PoolDescription;
use tidegate_media::{Charged, OpenShared, PinCharge};
use tidegate_process_mappings::{MappedPages, Paged, Pin, Reach, Which};

/// Pools of which a process has pages mapped.
const POOLS_MAX: usize = 16;

/// Every address.
const ALL: Range<usize> = 0..usize::MAX;

/// When pages that are pinned come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Now,
    OnTouch,
}

/// A pool, and what this process is charged there.
struct KnownPool {
    description: PoolDescription,
    charge: PinCharge,
}

/// What a process has of pins, beside the marks of pages.
pub(super) struct AllPins {
    pools: [KnownPool; POOLS_MAX],
    /// How mappings are pinned that are made from now on.
    later: Option<Presence>,
}

impl AllPins {
    #[expect(clippy::large_stack_arrays, reason = "it is what a static begins with")]
    pub(super) const NONE: AllPins = AllPins {
        pools: [const { KnownPool { description: NO_POOL, charge: PinCharge::NONE } }; POOLS_MAX],
        later: None,
    };
}

impl Table {
    /// The number of the pool that was described last.
    pub(super) fn number_of_pool(&mut self) -> Result<u8, Errno> {
        let of = |pool: &PoolDescription| (pool.device, pool.inode);
        let pools = &self.pins.pools;
        let is_known = |known: &KnownPool| of(&known.description) == of(&self.pool);
        let is_unused = |number: usize| {
            pools[number].charge.bytes() == 0 && !self.mapped.iter().any(|pages| usize::from(pages.pool) == number)
        };
        let place = pools.iter().position(is_known).or_else(|| (0..POOLS_MAX).find(|number| is_unused(*number)));
        let place = place.ok_or(Errno::NOMEM)?;
        // Its limit may be another one by now.
        self.pins.pools[place].description = self.pool;
        u8::try_from(place).map_err(|_| Errno::NOMEM)
    }

    /// Whether any of these addresses of a paged mapping is pinned, or about to be.
    pub(super) fn is_pinned(&self, number: u16, range: &Range<usize>) -> bool {
        let is_such = |part: MappedPages| part.paged == Some(number) && part.pin != Pin::Loose;
        self.mapped.parts(range).any(is_such)
    }

    /// Bytes of a pool that are pinned, or about to be.
    fn pinned_bytes(&self, pool: usize) -> u64 {
        let is_such = |pages: &&MappedPages| usize::from(pages.pool) == pool && pages.pin != Pin::Loose;
        self.mapped.iter().filter(is_such).map(|pages| self.pinned_bytes_of(pages)).sum()
    }

    /// Bytes that stay for pages that are pinned. An extent that two of them have counts for the
    /// lower ones.
    fn pinned_bytes_of(&self, pages: &MappedPages) -> u64 {
        let Some(paged) = self.paged_of(pages) else { return pages.addresses().len() as u64 };
        let first = paged.addresses(paged.number(pages.base));
        let has_first = |other: &MappedPages| {
            other.paged == pages.paged && other.pin != Pin::Loose && other.base < pages.base && other.end > first.start
        };
        let start = if self.mapped.iter().any(has_first) { first.end } else { first.start };
        (paged.addresses(paged.number(pages.end - 1)).end - start) as u64
    }

    /// Charges what is pinned, or about to be.
    fn charge(&mut self) -> Result<(), Errno> {
        for number in 0..POOLS_MAX {
            let bytes = self.pinned_bytes(number);
            let KnownPool { description, charge } = &mut self.pins.pools[number];
            if bytes == charge.bytes() {
                continue;
            }
            if bytes == 0 {
                charge.end();
                continue;
            }
            // SAFETY: L2: the description is the table's, which stays, and is not written before
            // this thread gives the lock.
            let description: &'static PoolDescription = unsafe { &*std::ptr::from_ref(description) };
            let mut charged = Err(Errno::AGAIN);
            PoolFile::new(description).open(&mut |file| {
                let limit = description.pinned_bytes_max.get();
                charged = charge.charge(file, bytes, limit).map_err(errno_of);
            });
            match charged {
                Ok(Charged::Done) => {}
                Ok(Charged::BeyondLimit) => return Err(Errno::NOMEM),
                Err(_) => return Err(Errno::AGAIN),
            }
        }
        Ok(())
    }

    /// Charges what is pinned still.
    pub(super) fn charge_less(&mut self) {
        if self.pins.pools.iter().any(|pool| pool.charge.bytes() > 0) {
            // What cannot be given back now is the next time.
            let _ = self.charge();
        }
    }

    /// Gives those of these addresses that have such a mark another one.
    fn mark(&mut self, range: &Range<usize>, is_such: impl Fn(Pin) -> bool, pin: Pin) {
        while let Some(pages) = self.mapped.take_if(range, |pages| is_such(pages.pin)) {
            self.mapped.add(MappedPages { pin, ..pages });
        }
        self.count();
    }

    /// Marks and charges these addresses, which are about to be pinned.
    fn begin_to_pin(&mut self, range: &Range<usize>) -> Result<(), Errno> {
        if !self.mapped.has_room() {
            return Err(Errno::NOMEM);
        }
        self.mark(range, |pin| pin == Pin::Loose, Pin::Coming);
        self.charge().inspect_err(|_| self.pin_no_more(range))
    }

    /// They are not pinned, but for those that were before.
    fn pin_no_more(&mut self, range: &Range<usize>) {
        self.mark(range, |pin| pin == Pin::Coming, Pin::Loose);
        self.charge_less();
    }

    /// Pins these addresses if all went well, and so many bytes of them are there still.
    fn end_to_pin(&mut self, range: &Range<usize>, bytes: usize, all: Result<(), Errno>) -> Result<(), Errno> {
        let marked = self.mapped.parts(range).filter(|part| part.pin != Pin::Loose);
        let marked: usize = marked.map(|part| part.addresses().len()).sum();
        let all = all.and(if marked < bytes { Err(Errno::AGAIN) } else { Ok(()) });
        match all {
            Ok(()) => self.mark(range, |pin| pin == Pin::Coming, Pin::Held),
            Err(_) => self.pin_no_more(range),
        }
        all
    }

    /// The first of these addresses whose page is absent.
    fn first_absent(&self, mut range: Range<usize>) -> Option<usize> {
        loop {
            let paged = self.mapped.parts(&range).filter(|part| part.paged.is_some());
            let part = paged.min_by_key(|part| part.base)?;
            let paged: Paged = self.paged_of(&part)?;
            let absent = |(_, range): (_, Range<usize>)| paged.run(&range, Which::Absent);
            if let Some(absent) = paged.cut(part.addresses()).find_map(absent) {
                return Some(absent.start);
            }
            range.start = part.end;
        }
    }

    /// Has the kernel enter the pages that are always present where it looks for them.
    fn enter(&self, range: &Range<usize>) {
        let parts = self.mapped.parts(range).filter(|part| part.paged.is_none() && part.reach() == Reach::Readable);
        for part in parts {
            let at = with_exposed_provenance_mut(part.base);
            // SAFETY: the pages keep their bytes. If the kernel does not do it, a load does.
            let _ = unsafe { rustix::mm::madvise(at, part.addresses().len(), Advice::LinuxPopulateRead) };
        }
    }

    /// In a child: its parent has pinned what is pinned.
    pub(super) fn forget_pins(&mut self) {
        self.mapped.iter_mut().for_each(|pages| pages.pin = Pin::Loose);
        self.pins.pools.iter_mut().for_each(|pool| pool.charge.forget());
        self.pins.later = None;
    }
}

/// Pins these addresses, of which so many bytes have to be ours.
fn pin(range: &Range<usize>, bytes: usize, presence: Presence) -> Result<(), Errno> {
    with(|table| table.begin_to_pin(range))??;
    let all = come(range, presence);
    with(|table| table.end_to_pin(range, bytes, all))?
}

/// Has the absent pages of these addresses come, if they are to be there now.
fn come(range: &Range<usize>, presence: Presence) -> Result<(), Errno> {
    if presence == Presence::OnTouch {
        return Ok(());
    }
    let mut at = range.start;
    while let Some(absent) = with(|table| table.first_absent(at..range.end))? {
        TOUCH_THREADS.bring(&WORK, absent).map_err(|errno| match errno {
            // There is no room, or the file ends before it.
            Errno::NOMEM | Errno::INVAL => Errno::NOMEM,
            _ => Errno::AGAIN,
        })?;
        at = absent;
        if with(|table| table.first_absent(at..at + PAGE_BYTES))?.is_some() {
            // The file ends amid its extent.
            return Err(Errno::NOMEM);
        }
    }
    with(|table| table.enter(range))
}

/// `mlock` has no `EBUSY`: a signal handler that interrupted the library gets `EAGAIN`.
fn told<T>(outcome: Result<T, Errno>) -> Result<T, Errno> {
    outcome.map_err(|errno| if errno == Errno::BUSY { Errno::AGAIN } else { errno })
}

/// The pages that these bytes lie in, as `mlock` takes them. `None`: there are none, or not so many
/// addresses.
fn around(at: *const c_void, len: usize) -> Option<Range<usize>> {
    let start = at.addr() / PAGE_BYTES * PAGE_BYTES;
    let end = at.addr().checked_add(len)?.checked_next_multiple_of(PAGE_BYTES)?;
    (len > 0).then_some(start..end)
}

/// Pins the pages of these bytes. False: none of them is ours.
pub(crate) fn lock((at, len): (*const c_void, usize), presence: Presence) -> Result<bool, Errno> {
    let Some(range) = around(at, len) else { return Ok(false) };
    let ours = told(with(|table| table.mapped.parts(&range).map(|part| part.addresses().len()).sum::<usize>()))?;
    if ours == 0 {
        return Ok(false);
    }
    if ours < range.len() {
        return Err(Errno::INVAL);
    }
    told(pin(&range, range.len(), presence)).map(|()| true)
}

/// Those pages of these bytes that are ours may go again.
pub(crate) fn unlock(at: *const c_void, len: usize) {
    if let Some(range) = around(at, len) {
        let _ = with(|table| table.unpin(&range));
    }
}

impl Table {
    fn unpin(&mut self, range: &Range<usize>) {
        self.mark(range, |pin| pin != Pin::Loose, Pin::Loose);
        self.charge_less();
    }
}

/// Pins what `mlockall` with these flags asks for. `kernel` does so with all other memory.
pub(crate) fn lock_all(flags: c_int, kernel: impl FnOnce() -> c_int) -> Result<c_int, Errno> {
    let kernel = || match kernel() {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    };
    if flags & !(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) != 0 {
        return kernel().map(|()| 0);
    }
    let presence = if flags & libc::MCL_ONFAULT == 0 { Presence::Now } else { Presence::OnTouch };
    if flags & libc::MCL_CURRENT != 0 && any() {
        told(with(|table| table.begin_to_pin(&ALL)).and_then(|begun| begun))?;
        // Before the kernel touches all that there is.
        let all = come(&ALL, presence).and_then(|()| kernel());
        told(with(|table| table.end_to_pin(&ALL, 0, all).inspect(|()| table.release())).and_then(|ended| ended))?;
    } else {
        kernel()?;
    }
    let later = (flags & libc::MCL_FUTURE != 0).then_some(presence);
    told(with(|table| table.pins.later = later)).map(|()| 0)
}

impl Table {
    /// The kernel has no pages of ours locked any more: it would count them once more.
    fn release(&self) {
        for pages in self.mapped.iter() {
            let at = with_exposed_provenance_mut(pages.base);
            // SAFETY: the pages keep their bytes.
            let _ = unsafe { rustix::mm::munlock(at, pages.addresses().len()) };
        }
    }
}

/// All pages may go again, and mappings that are made later are not pinned.
pub(crate) fn unlock_all() {
    let _ = with(|table| {
        table.pins.later = None;
        table.unpin(&ALL);
    });
}

/// Pins what was just mapped, if `mlockall` has asked for that. An error: it is mapped no more.
pub(super) fn pin_new(base: *mut c_void, len: usize) -> Result<(), Errno> {
    let Some(presence) = with(|table| table.pins.later)? else { return Ok(()) };
    let range = pages(base, len);
    pin(&range, range.len(), presence).map_err(|_| {
        let _ = with(|table| table.end_untold(&range));
        Errno::AGAIN
    })
}
