//! The files that this process holds.

use crate::held::Held;
use crate::lock::Lock;
use rustix::fs::Stat;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidegate_preload_wire::FileId;

/// Files that one process holds at most; the others are synced by the kernel.
const FILES_MAX: usize = 256;

static FILES: [Held; FILES_MAX] = [const { Held::new() }; FILES_MAX];
/// Places that were ever taken: the first ones.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Held while a place is taken: a file is held in one place, whichever threads ask at once.
static ENTRY: Lock = Lock::new();
/// Calls under way that shorten, rename or replace files: nothing is held anew meanwhile.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// The place `index`.
pub(crate) fn at(index: u16) -> Option<&'static Held> {
    FILES.get(usize::from(index))
}

fn used() -> &'static [Held] {
    &FILES[..USED.load(Ordering::Acquire).min(FILES_MAX)]
}

/// Where `file` is held.
pub(crate) fn find(file: FileId) -> Option<(u16, &'static Held)> {
    let (index, held) = used().iter().enumerate().find(|(_, held)| held.is_taken() && held.file() == file)?;
    Some((u16::try_from(index).ok()?, held))
}

/// Takes a place for the file that `stat` describes, unless one has it.
pub(crate) fn occupy(stat: &Stat) -> Option<(u16, &'static Held)> {
    // Below a signal handler that came in between, nothing is held anew.
    if !ENTRY.take() {
        return None;
    }
    let occupied = occupy_alone(stat);
    ENTRY.give();
    occupied
}

fn occupy_alone(stat: &Stat) -> Option<(u16, &'static Held)> {
    let file = FileId { device: stat.st_dev, inode: stat.st_ino };
    if find(file).is_some() || is_changing() {
        return None;
    }
    let (index, held) = FILES.iter().enumerate().find(|(_, held)| held.occupy(stat))?;
    USED.fetch_max(index + 1, Ordering::AcqRel);
    Some((u16::try_from(index).ok()?, held))
}

/// A change begins. Every call is followed by one of [`changed`].
pub(crate) fn change() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

/// A change has ended.
pub(crate) fn changed() {
    CHANGES.fetch_sub(1, Ordering::SeqCst);
}

/// Whether one is under way.
pub(crate) fn is_changing() -> bool {
    CHANGES.load(Ordering::SeqCst) != 0
}

/// Those are left that the supervisor let go of.
pub(crate) fn leave_lost() {
    // It leaves the place itself.
    used().iter().filter(|held| held.is_taken()).for_each(|held| _ = held.is_in_force());
}

/// All are left: the supervisor let go of them.
pub(crate) fn leave_all() {
    used().iter().filter(|held| held.is_taken()).for_each(Held::leave);
}

/// They are the parent's, not this process's.
pub(crate) fn forget_all() {
    ENTRY.reset();
    used().iter().for_each(Held::leave_as_forked);
    CHANGES.store(0, Ordering::SeqCst);
}
