//! The strips of a held file: a part of the pool that this process alone stores to, and whether
//! what it commits there counts.

use crate::process::Places;
use crate::{asked, process};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering, fence};
use tidegate_media::MappedPart;
use tidegate_preload_wire::{FileId, OPEN, RUN, Range, Row, SHUT};
use tidegate_wal::name::Name;
use tidegate_wal::pair::{Pair, STRIPS};

/// The strips of a file.
pub(crate) type OwnStrips = Pair<MappedPart>;

/// The beginning of the journal of holds.
static JOURNAL: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Maps the strips that the supervisor gave for `slot`. None: they cannot be had, and syncs are the
/// supervisor's as without them.
pub(crate) fn open(given: Range, slot: u32) -> Option<OwnStrips> {
    let strips = map(given)?;
    Pair::open(strips, process::places()?.session_number, slot).ok()
}

/// The same for a name, which has the first of them.
pub(crate) fn open_name(given: Range, slot: u32) -> Option<Name<MappedPart>> {
    let [first, _] = map(given)?;
    Name::open(first, process::places()?.session_number, slot).ok()
}

fn map((at, len): Range) -> Option<[MappedPart; STRIPS]> {
    let places = process::places()?;
    is_journal_mapped(places).then_some(())?;
    let (path, id) = places.pool.as_ref()?;
    let pool = opened(path, OFlags::RDWR).ok()?;
    let is_it = rustix::fs::fstat(&pool).is_ok_and(|stat| asked::id(&stat) == *id);
    let each = len / STRIPS as u64;
    let map = |at| MappedPart::of(pool.as_fd(), at, usize::try_from(each).ok()?).ok();
    let parts = is_it.then(|| map(at).zip(map(at + each))).flatten();
    close(pool);
    parts.map(|(first, second)| [first, second])
}

/// Whether what `holder` commits for `slot` of `file`, which is a name or not, counts, by what the
/// table and the journal say now. The table is not asked again in the epoch that is `known`.
pub(crate) fn may_commit(file: impl FnOnce() -> FileId, (holder, slot): (u64, u32), known: &AtomicU32) -> bool {
    let epoch = process::epoch();
    let is_its = |row: Row| row.holder == holder && row.slot == u64::from(slot);
    let allowed = known.load(Ordering::Relaxed) == epoch || process::row_of(file()).is_some_and(is_its);
    if allowed {
        known.store(epoch, Ordering::Relaxed);
    }
    allowed && is_open()
}

/// Whether programs may commit by themselves, by what stands in the journal.
fn is_open() -> bool {
    // SeqCst: a program commits and then looks here; whoever shuts this syncs all files then.
    fence(Ordering::SeqCst);
    let journal = JOURNAL.load(Ordering::Acquire);
    // SAFETY: L3; the byte is only ever used as this atomic.
    !journal.is_null() && unsafe { AtomicU8::from_ptr(journal) }.load(Ordering::Acquire) == OPEN
}

/// Tells all programs of the run that what they commit by themselves counts no more.
pub(crate) fn shut() -> Result<(), Errno> {
    let places = process::places().ok_or(Errno::NOENT)?;
    let journal = opened(&places.holds, OFlags::RDWR)?;
    let shut = || rustix::io::retry_on_intr(|| rustix::io::pwrite(&journal, &[SHUT], 0));
    // Another run's is not this one's to shut, and this one's is gone.
    let written = if is_of_this_run(&journal, places) { shut() } else { Err(Errno::NOENT) };
    close(journal);
    written.and_then(|count| if count == 1 { Ok(()) } else { Err(Errno::NOSPC) })
}

/// Whether the second line of `journal` names this run.
fn is_of_this_run(journal: &OwnedFd, places: &Places) -> bool {
    let mut begin = [0; 64];
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(journal, &mut begin, 0));
    let line = begin.get(2..read.unwrap_or(0)).and_then(|line| line.strip_prefix(RUN.as_bytes()));
    line.is_some_and(|line| line.starts_with(places.session.as_bytes()))
}

fn opened(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty())
}

fn close(file: OwnedFd) {
    crate::line::close(file.into_raw_fd());
}

fn is_journal_mapped(places: &Places) -> bool {
    if JOURNAL.load(Ordering::Acquire).is_null() {
        let Ok(file) = opened(&places.holds, OFlags::RDONLY) else { return false };
        // SAFETY: a new mapping at a place that the kernel chooses.
        let map = || unsafe { rustix::mm::mmap(null_mut(), 1, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0) };
        let mapped = is_of_this_run(&file, places).then(map);
        close(file);
        let Some(Ok(mapped)) = mapped else { return false };
        // If another thread was first, both mappings stay: they are of the same page.
        JOURNAL.store(mapped.cast(), Ordering::Release);
    }
    true
}
