//! The strip of a held file: a part of the pool that this process alone stores to, and whether what it commits there counts.

use crate::process;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering, fence};
use tidegate_commit::strip::Strip;
use tidegate_media::MappedPart;
use tidegate_preload_wire::{OPEN, Range, SHUT};

/// The strip of a file.
pub(crate) type OwnStrip = Strip<MappedPart>;

/// The beginning of the journal of holds.
static JOURNAL: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Maps the strip that the supervisor gave for `slot`. None: it cannot be had, and syncs are the supervisor's as without one.
pub(crate) fn open((at, len): Range, slot: u32) -> Option<OwnStrip> {
    let places = process::places()?;
    is_journal_mapped(&places.holds).then_some(())?;
    let pool = opened(places.pool.as_deref()?, OFlags::RDWR).ok()?;
    let part = MappedPart::of(pool.as_fd(), at, usize::try_from(len).ok()?, places.instructions);
    close(pool);
    Strip::open(part.ok()?, places.session_number, slot).ok()
}

/// Whether programs may commit by themselves, by what stands in the journal.
pub(crate) fn may_commit() -> bool {
    // SeqCst: a program commits and then looks here; whoever shuts this syncs all files then.
    fence(Ordering::SeqCst);
    let journal = JOURNAL.load(Ordering::Acquire);
    // SAFETY: L3; the byte is only ever used as this atomic.
    !journal.is_null() && unsafe { AtomicU8::from_ptr(journal) }.load(Ordering::Acquire) == OPEN
}

/// Tells all programs of the run that what they commit by themselves counts no more.
pub(crate) fn shut() -> Result<(), Errno> {
    let places = process::places().ok_or(Errno::NOENT)?;
    let journal = opened(&places.holds, OFlags::WRONLY)?;
    let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(&journal, &[SHUT], 0));
    close(journal);
    written.and_then(|count| if count == 1 { Ok(()) } else { Err(Errno::NOSPC) })
}

fn opened(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

fn close(file: OwnedFd) {
    crate::line::close(file.into_raw_fd());
}

fn is_journal_mapped(path: &CStr) -> bool {
    if JOURNAL.load(Ordering::Acquire).is_null() {
        let Ok(file) = opened(path, OFlags::RDONLY) else { return false };
        // SAFETY: a new mapping at a place that the kernel chooses.
        let mapped = unsafe { rustix::mm::mmap(null_mut(), 1, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0) };
        close(file);
        let Ok(mapped) = mapped else { return false };
        // If another thread was first, both mappings stay: they are of the same page.
        JOURNAL.store(mapped.cast(), Ordering::Release);
    }
    true
}
