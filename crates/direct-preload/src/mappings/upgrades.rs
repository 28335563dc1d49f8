//! Mappings of programs that know nothing of direct ones. If `tidegate run` was told so, a shared
//! mapping of the kernel's pages that the program syncs again and again becomes a paged mapping of
//! the pool's, and comes back when somebody else wants to use the file.
//!
//! Both ways, other threads of the program load and store meanwhile, and none of that is lost: the
//! addresses become absent memory in one act, so who touches them waits. Then the pages that were
//! there are made the file's (by `fsync`, or by flushing them), and then the others come.
//!
//! The program's own descriptor has the kernel keep pages still, when it reads or writes. They are
//! dropped before each read of the file that this library sees.

use crate::mappings::touch_threads::{TOUCH_THREADS, opened_again};
use crate::mappings::{MAP_TYPE, Table, Wanted, pages, pause, with};
use crate::process::OwnFile;
use crate::service::{ask, lends};
use crate::{contexts, process};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fstat, fsync};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tidegate_file_wire::{Answer, UPGRADE, UPGRADE_MAPPINGS, Upgrade, UpgradeStep, VERSION};
use tidegate_media::AbsentPages;
use tidegate_process_mappings::{COMES, KernelMapping, MappedPages, Paged, PagedExtent, Pin, Times, is_mapped};

/// An upgraded mapping comes back if extents returned to it more often than this, for each extent
/// that is present: it has too little room.
const RETURNS_MAX: usize = 4;

/// How often the service is asked whether a mapping has ended.
const END_TRIES: u32 = 10;

/// Set before the program begins.
static ARE_WANTED: AtomicBool = AtomicBool::new(false);

/// Upgraded mappings that there are: nothing is looked at where there are none.
pub(super) static UPGRADED: AtomicUsize = AtomicUsize::new(0);

/// Looks whether mappings are to be upgraded. Before the program begins.
pub(crate) fn start() {
    ARE_WANTED.store(process::said(UPGRADE_MAPPINGS).is_some(), Ordering::Relaxed);
}

/// Whether a mapping that the program asks for is one to know of.
pub(crate) fn are_wanted() -> bool {
    ARE_WANTED.load(Ordering::Relaxed)
}

/// Whether anything is upgraded now.
pub(crate) fn any_upgraded() -> bool {
    UPGRADED.load(Ordering::Relaxed) > 0
}

/// The identity of a descriptor's file.
fn file_of(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: the program uses it; whether it is open, the kernel says.
    let about = (fd >= 0).then(|| fstat(unsafe { BorrowedFd::borrow_raw(fd) }))?.ok()?;
    Some((about.st_dev, about.st_ino))
}

/// Asks the service about a file.
fn asked(fd: i32, step: UpgradeStep) -> Answer {
    let mut upgrade = Upgrade { version: VERSION.into(), step: step.word().into(), ..Upgrade::default() };
    if ask(fd, UPGRADE, &mut upgrade) { Answer::of(upgrade.answer.get()) } else { Answer::Never }
}

impl Wanted {
    /// Calls `map`, which has the kernel map what is wanted, and knows of it then if it is of a
    /// file of a mount. Upgraded mappings of that file come back before.
    pub(crate) fn map_by_kernel(&self, map: impl Fn() -> *mut c_void) -> Result<*mut c_void, Errno> {
        let file = file_of(self.fd).filter(|(device, _)| contexts::is_device_of_mount(*device));
        file.inspect(|file| give_back_file(*file));
        let over = pages(self.at, if self.flags & libc::MAP_FIXED == 0 { 0 } else { self.len });
        let mapped = with(|table| {
            let at = table.replacing(&over, |at| *at != libc::MAP_FAILED, &map)?;
            if at == libc::MAP_FAILED {
                return Ok(at);
            }
            // Whoever unmapped what is known there was not seen.
            let range = pages(at, self.len);
            table.kernel.cut(&range);
            if let Some(file) = file {
                let from = u64::try_from(self.from).unwrap_or(0);
                let is_shared = self.flags & MAP_TYPE != libc::MAP_PRIVATE;
                table.kernel.add(KernelMapping::new(range, (file, from), self.fd).with(self.access, is_shared));
            }
            table.count();
            Ok(at)
        });
        // A signal handler that interrupted this library: its mapping is not known.
        mapped.unwrap_or_else(|_| Ok(map()))
    }
}

/// Counts a sync of these addresses, which the kernel has made. If they were synced often, and
/// `begin` has absent pages for the descriptor, their mapping is upgraded. An error is one of the
/// file's.
pub(super) fn after_kernel_sync(
    at: *mut c_void,
    len: usize,
    begin: impl FnOnce(i32) -> Option<AbsentPages>,
) -> Result<(), Errno> {
    let range = pages(at, len);
    let Ok(Some(mapping)) = with(|table| table.kernel.sync(&range)) else { return Ok(()) };
    let Some(absent) = may_begin(&mapping, begin) else { return Ok(()) };
    let Ok(begun) = with(|table| table.begin_upgrade(absent, &mapping)) else { return Ok(()) };
    let Some(number) = begun? else { return Ok(()) };
    let opened = TOUCH_THREADS.open(mapping.fd);
    let is_here = with(|table| {
        let fd = opened.unwrap_or(-1);
        match table.paged_mut(number).filter(|paged| paged.fd == COMES && fd >= 0) {
            Some(paged) => {
                paged.fd = fd;
                return true;
            }
            None => table.close_later(fd),
        }
        table.end_upgrade(absent, number, By::Program(mapping.fd));
        false
    });
    if is_here == Ok(true) {
        asked(mapping.fd, UpgradeStep::Done);
    }
    Ok(())
}

/// Whether a mapping may be upgraded now, as far as can be seen without the table.
fn may_begin(mapping: &KernelMapping, begin: impl FnOnce(i32) -> Option<AbsentPages>) -> Option<AbsentPages> {
    if mapping.fd < 0 {
        return None;
    }
    // SAFETY: the program uses it; whether it is open, the kernel says.
    let file = unsafe { BorrowedFd::borrow_raw(mapping.fd) };
    let about = fstat(file).ok()?;
    let is_same = (about.st_dev, about.st_ino) == mapping.file;
    let len = (mapping.end - mapping.base) as u64;
    let is_within = about.st_size.cast_unsigned() >= mapping.from.saturating_add(len);
    let is_read_and_written = fcntl_getfl(file).ok()? & OFlags::RWMODE == OFlags::RDWR;
    if !is_same || !is_within || !is_read_and_written || !is_there(mapping) {
        return None;
    }
    let absent = begin(mapping.fd)?;
    (asked(mapping.fd, UpgradeStep::Begin) == Answer::Granted).then_some(absent)
}

/// Whether a mapping is what this library saw it made as: a program may unmap it by calls that no
/// library sees.
fn is_there(mapping: &KernelMapping) -> bool {
    let maps = OwnFile::open(c"/proc/self/maps", OFlags::RDONLY);
    maps.is_some_and(|maps| is_mapped(mapping, |part| rustix::io::read(&maps, part)))
}

/// Who has the kernel map its pages again, by a descriptor of which table.
#[derive(Clone, Copy)]
enum By {
    /// The program, by the one that had the mapping.
    Program(i32),
    /// The worker, by the one that the paged mapping has.
    Worker,
}

impl Table {
    /// Makes a mapping absent, what was stored there the file's, and has its first page come: the
    /// number of the paged mapping that is there then, for which the worker has no descriptor yet.
    /// `None`: it is as it was.
    fn begin_upgrade(&mut self, absent: AbsentPages, mapping: &KernelMapping) -> Result<Option<u16>, Errno> {
        let len = mapping.end - mapping.base;
        let is_known = self.kernel.is_alone(mapping) && lends(mapping.fd, &mut self.pool) && self.mapped.has_room();
        // More than half of the pool would come and go all the time.
        if !is_known || 2 * len as u64 > self.pool.bytes.get() {
            return Ok(None);
        }
        let (Some(number), Ok(pool)) = (self.unused_paged(), self.number_of_pool()) else { return Ok(None) };
        let Ok(mut paged) = Paged::new(mapping.addresses(), mapping.from, &self.pool) else { return Ok(None) };
        let access = ProtFlags::from_bits_retain(mapping.access.cast_unsigned());
        // SAFETY: it is the program's mapping, whose bytes come again when they are touched.
        let replaced = unsafe { absent.replace(with_exposed_provenance_mut(mapping.base), len, access) };
        if replaced.is_err() {
            paged.end();
            return Ok(None);
        }
        self.kernel.cut(&mapping.addresses());
        (paged.fd, paged.upgraded_from) = (mapping.fd, Some(*mapping));
        self.set_paged(number, paged);
        let KernelMapping { base, end, file, access, .. } = *mapping;
        let (times, paged, pin) = (self.times_of(file), Some(number), Pin::Loose);
        self.mapped.add(MappedPages { base, end, file, times, access, paged, pool, pin });
        self.count();
        self.begin_to_watch();
        // SAFETY: the program uses it, and it was the file's.
        let synced = fsync(unsafe { BorrowedFd::borrow_raw(mapping.fd) });
        if synced.is_ok() && self.bring_page(absent, number, base).is_ok() {
            let paged = self.paged_mut(number);
            return Ok(paged.map(|paged| paged.fd = COMES).map(|()| number));
        }
        self.end_upgrade(absent, number, By::Program(mapping.fd));
        synced.map(|()| None)
    }

    /// Has the kernel map its pages again where an upgraded mapping is, if nobody else has the file
    /// mapped directly. Otherwise it stays.
    fn end_upgrade(&mut self, absent: AbsentPages, number: u16, by: By) {
        let Some(paged) = self.paged(number) else { return };
        let Some(mapping) = paged.upgraded_from else { return };
        let range = mapping.addresses();
        if self.is_pinned(number, &range) || self.give_all_back(absent, number, &paged).is_err() {
            return;
        }
        self.has_no_time_page(number);
        let asks_by = if let By::Program(fd) = by { fd } else { paged.fd };
        if !is_ended(asks_by) {
            return;
        }
        let mut at = range.start;
        // The program may have unmapped parts of it.
        while let Some(part) = self.first_of(number, at..range.end) {
            let from = paged.offset(part.base);
            if map_again(&part, from, by, &paged, &mapping).is_err() {
                return;
            }
            self.forget(&part.addresses(), Times::NONE);
            self.kernel.add(mapping.later().part(part.addresses()).with(part.access, true));
            absent.wake(part.base, part.end - part.base);
            at = part.end;
        }
        self.count();
    }

    pub(super) fn paged_mut(&mut self, number: u16) -> Option<&mut Paged> {
        self.all.paged.get_mut(usize::from(number))?.as_mut()
    }

    /// A number that no paged mapping has.
    pub(super) fn unused_paged(&self) -> Option<u16> {
        u16::try_from(self.all.paged.iter().position(Option::is_none)?).ok()
    }

    pub(super) fn set_paged(&mut self, number: u16, paged: Paged) {
        self.all.paged[usize::from(number)] = Some(paged);
    }

    /// The mappings that were upgraded, and may come back.
    fn upgraded(&self) -> impl Iterator<Item = (u16, Paged, KernelMapping)> + '_ {
        let all = (0..).zip(&self.all.paged);
        let may_come_back = |(number, paged): (u16, &Option<Paged>)| {
            let paged = paged.filter(|paged| paged.fd >= 0)?;
            Some((number, paged, paged.upgraded_from?))
        };
        all.filter_map(may_come_back)
    }

    /// How many there are, with those that are about to be there.
    pub(super) fn count_upgraded(&self) -> usize {
        self.all.paged.iter().flatten().filter(|paged| paged.upgraded_from.is_some()).count()
    }

    /// One whose extents come and go all the time.
    fn restless(&self) -> Option<u16> {
        let most = RETURNS_MAX * self.all.queue.present.max(RETURNS_MAX);
        self.upgraded().find(|(_, paged, _)| paged.returns > most).map(|(number, ..)| number)
    }

    /// A paged mapping says its times nowhere any more, until its next page comes.
    fn has_no_time_page(&mut self, number: u16) {
        let Some(times) = self.times_of_paged(number) else { return };
        let own = self.mapped.iter_mut().filter(|pages| pages.paged == Some(number));
        own.for_each(|pages| pages.times = Times::NONE);
        self.end_unused(times);
    }

    /// No page of a paged mapping is present any more.
    fn give_all_back(&mut self, absent: AbsentPages, number: u16, paged: &Paged) -> Result<(), Errno> {
        let present = |known: &(usize, &PagedExtent)| known.1.is_present();
        for (extent, _) in paged.extents().iter().enumerate().filter(present) {
            self.give_back(absent, (number, paged), extent)?;
        }
        Ok(())
    }

    /// Has those upgraded mappings come back that `is_such` tells, by their descriptors too.
    fn end_upgrades(&mut self, absent: AbsentPages, is_such: impl Fn(&KernelMapping, i32) -> bool) {
        let mut from = 0;
        loop {
            let next = self.upgraded().find(|(number, ..)| *number >= from);
            let Some((number, paged, mapping)) = next else { return };
            if is_such(&mapping, paged.fd) {
                self.end_upgrade(absent, number, By::Worker);
            }
            from = number + 1;
        }
    }
}

/// Whether the service says that nobody has a file mapped directly any more. It may have no time
/// for that at once.
fn is_ended(fd: i32) -> bool {
    for _ in 0..END_TRIES {
        match asked(fd, UpgradeStep::End) {
            Answer::Granted => return true,
            Answer::Later => pause(),
            Answer::Never => break,
        }
    }
    false
}

/// Has the kernel map its pages of a part of an upgraded mapping.
fn map_again(part: &MappedPages, from: u64, by: By, paged: &Paged, mapping: &KernelMapping) -> Result<(), Errno> {
    let map = |file: BorrowedFd<'_>| {
        let access = ProtFlags::from_bits_retain(part.access.cast_unsigned());
        let (place, len) = (with_exposed_provenance_mut(part.base), part.end - part.base);
        // SAFETY: absent memory is there, which has no bytes.
        unsafe { rustix::mm::mmap(place, len, access, MapFlags::SHARED | MapFlags::FIXED, file, from) }.map(drop)
    };
    if let By::Program(fd) = by {
        // SAFETY: the program uses it.
        return map(unsafe { BorrowedFd::borrow_raw(fd) });
    }
    // The program's own, if it is open still: then the mapping can be upgraded again.
    let is_own = |file: &OwnFile| file_of(file.as_fd().as_raw_fd()) == Some(mapping.file);
    let own = fetched(mapping.fd).ok().filter(is_own).map_or(Err(Errno::BADF), |own| map(own.as_fd()));
    own.or_else(|_| map(opened_again(paged.fd)?.as_fd()))
}

/// A copy of a descriptor of the program's. On the worker only.
fn fetched(fd: i32) -> Result<OwnFile, Errno> {
    let process = OwnFile::of(pidfd_open(getpid(), PidfdFlags::empty())?);
    pidfd_getfd(process.as_fd(), fd, PidfdGetfdFlags::empty()).map(OwnFile::of)
}

/// Has the upgraded mapping come back that has this address. On the worker only.
pub(super) fn give_back_asked(absent: AbsentPages, at: usize) {
    let _ = with(|table| table.end_upgrades(absent, |mapping, _| mapping.addresses().contains(&at)));
}

/// Has upgraded mappings come back of files that somebody wants. On the worker only.
pub(super) fn give_back_wanted(absent: AbsentPages) {
    let is_wanted = |_: &KernelMapping, fd| asked(fd, UpgradeStep::IsWanted) == Answer::Granted;
    let _ = with(|table| table.end_upgrades(absent, is_wanted));
}

/// Has upgraded mappings come back whose extents come and go all the time. On the worker only.
pub(super) fn give_back_restless(absent: AbsentPages) {
    if any_upgraded() {
        let _ = with(|table| {
            if let Some(number) = table.restless() {
                table.end_upgrade(absent, number, By::Worker);
            }
        });
    }
}

/// Has those upgraded mappings come back that `is_such` tells, if there are any.
fn give_back(is_such: impl Fn(&KernelMapping) -> bool) {
    let mut from = 0;
    while any_upgraded() {
        let next = with(|table| table.upgraded().find(|(number, _, mapping)| *number >= from && is_such(mapping)));
        let Ok(Some((number, _, mapping))) = next else { break };
        TOUCH_THREADS.give_back(mapping.base);
        from = number + 1;
    }
}

/// Has all upgraded mappings come back.
pub(crate) fn give_back_all() {
    give_back(|_| true);
}

fn give_back_file(file: (u64, u64)) {
    give_back(|mapping| mapping.file == file);
}

/// Has upgraded mappings come back of which the program does something with these addresses that
/// the kernel does otherwise with its own pages.
pub(crate) fn give_back_range(at: *mut c_void, len: usize) {
    let range = pages(at, len);
    give_back(|mapping| mapping.base < range.end && range.start < mapping.end);
}

/// The program has the kernel read a file: what it keeps of it may be older than what was stored by
/// upgraded mappings.
pub(crate) fn before_read_by_kernel(fd: i32) {
    if !any_upgraded() {
        return;
    }
    let Some(file) = file_of(fd) else { return };
    let is_upgraded = with(|table| table.upgraded().any(|(_, _, mapping)| mapping.file == file));
    if is_upgraded == Ok(true) {
        // SAFETY: the program uses it.
        let _ = fadvise(unsafe { BorrowedFd::borrow_raw(fd) }, 0, None, Advice::DontNeed);
    }
}
