//! Names that this process holds: it makes files with them, syncs them, and removes them again.
//!
//! A program that makes a journal, syncs it and removes it for each of its transactions waits for
//! the disk each time, as no new file's name is durable. After some rounds this library holds the
//! *name*: what the name's strip tells is what the disk will have after a power cut, whatever a
//! file system made durable of the files that came and went. A file that is made with a held name
//! is *young*: each of its bytes goes to the strip, so that its first sync is a commit like any
//! other.
//!
//! 1. What the strip tells is durable before the call returns that it is about: a sync of the file,
//!    or of its folder, or its removal.
//! 2. A young file that cannot be followed byte by byte is *outgrown*: the kernel syncs it and its
//!    folder, then the strip tells nothing of the name.
//! 3. Whatever else makes, removes or renames something in the folder by libc's functions, or sets
//!    an attribute of it, is counted as a change of it; so is any `ioctl` of it, whatever that
//!    does. A sync of the folder ends here only if there was none since the kernel synced it, and a
//!    young file's first sync has the kernel sync the folder first if there was. If such a change
//!    is about the name itself, or is made by another process of the run, the supervisor brings the
//!    file and its folder to the disk before, and nobody holds the name any more. So it does if
//!    another process syncs the folder.
//! 4. Others know a young file as held: its number stands in the table's part that programs may
//!    write, before its first descriptor is given to the program.
//! 5. What is made past all that is born later than the last young file, which the strip tells:
//!    recovery leaves it alone.

mod candidates;
mod change;
mod held;
mod paths;

pub(crate) use candidates::{are_there, removing, synced};
pub(crate) use change::{
    Change, change, change_anywhere, change_by_opening, change_of_folder, during, settle_in, settle_made,
};
pub(crate) use held::BEING_MADE;

use crate::asked::{self, GivenPath};
use crate::descriptors::{self, Seen};
use crate::follow::{both, failed, sync_again};
use crate::held::Place;
use crate::lock::Lock;
use crate::{guarded, process};
use held::{Held, NAMES_MAX, Way};
use libc::{c_int, mode_t};
use paths::{borrowed, divided, folder_at, is_folder, packed};
use rustix::fs::OFlags;
use std::ffi::CStr;
use tidegate_preload_wire::FileId;

static NAMES: [Held; NAMES_MAX] = [const { Held::new() }; NAMES_MAX];
/// Held while a place is taken.
static ENTRY: Lock = Lock::new();

fn taken() -> impl Iterator<Item = (u16, &'static Held)> {
    (0..).zip(&NAMES).filter(|(_, held)| held.is_taken())
}

/// Where `file` is young.
pub(crate) fn find(file: FileId) -> Option<(u16, u32)> {
    taken().find_map(|(index, held)| {
        let generation = held.generation();
        // Another file may have the name by the time that it is looked at.
        (held.file() == Some(file) && held.generation() == generation).then_some((index, generation))
    })
}

fn at(index: u16) -> Option<&'static Held> {
    NAMES.get(usize::from(index))
}

/// Something was done to the file that nobody noted.
pub(crate) fn spoil(index: u16) {
    at(index).into_iter().for_each(Held::spoil);
}

/// A write of the young file begins; its number.
pub(crate) fn begin(index: u16) -> u64 {
    at(index).map_or(0, Held::begin)
}

/// Notes it when it has ended. False: the file is not young any more.
pub(crate) fn note((index, generation): (u16, u32), number: u64, place: Place, bytes: Option<&[u8]>) -> bool {
    at(index).is_some_and(|held| held.note(generation, number, place, bytes))
}

/// Syncs the young file behind `descriptor`.
pub(crate) fn sync(descriptor: i32, (index, generation): (u16, u32), call: impl FnOnce() -> i32) -> i32 {
    let held = at(index);
    match guarded(|| held.map_or(Way::NotYoung, |held| held.commit(descriptor, generation))) {
        Way::Kept => 0,
        Way::Outgrown => {
            let answer = call();
            if answer == 0 {
                guarded(|| held.into_iter().for_each(|held| held.outgrown(descriptor, generation)));
            }
            answer
        }
        Way::NotYoung => {
            descriptors::forget(descriptor);
            both(call(), || sync_again(descriptor))
        }
    }
}

/// Syncs what is no regular file: a folder whose changes are all told is durable.
pub(crate) fn sync_other(descriptor: i32, call: impl FnOnce() -> i32) -> i32 {
    let stat = if process::names_are_held() { asked::stat(descriptor) } else { None };
    let Some(stat) = stat.filter(is_folder) else { return call() };
    let folder = asked::id(&stat);
    let own = || in_folder(folder).filter(|_| process::owns_memory() && !process::has_unseen_writer());
    let told = || {
        leave_lost();
        // What they have made and not told of is to be durable too.
        change::settle_others(folder);
        own().for_each(|held| held.tell(descriptor));
        own().next().is_some() && own().all(|held| held.is_told(&stat))
    };
    if guarded(told) {
        return 0;
    }
    let marks = NAMES.each_ref().map(|held| (held.mark(&stat), held.generation()));
    let answer = call();
    if answer == 0 && process::owns_memory() {
        let synced = NAMES.iter().zip(marks).filter(|(held, _)| held.is_taken() && held.folder() == folder);
        guarded(|| synced.for_each(|(held, (mark, generation))| held.folder_synced(mark, generation)));
    }
    answer
}

/// Those are left that the supervisor let go of.
fn leave_lost() {
    taken().filter(|(_, held)| !held.is_allowed()).for_each(|(_, held)| held.leave());
}

/// Opens a file that may be new, as a young one; `None`: it is to be opened as ever.
pub(crate) fn create(folder: c_int, path: GivenPath, flags: c_int, mode: mode_t) -> Option<i32> {
    if !process::names_are_held() || !process::owns_memory() || process::has_unseen_writer() {
        return None;
    }
    let path = path.text()?;
    let (held, is_it) = exact(folder, path)?;
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let (descriptor, is_young) =
        held.locked(|| if is_it() { held.create(borrowed(folder), path, flags, mode) } else { None }).flatten()?;
    if !is_young {
        held.settle();
    }
    Some(descriptor)
}

/// Removes the young file that `path` names; `None`: it is to be removed as ever.
pub(crate) fn remove(folder: c_int, path: GivenPath) -> Option<c_int> {
    if !process::names_are_held() || !process::owns_memory() {
        return None;
    }
    let path = path.text()?;
    let (held, is_it) = exact(folder, path)?;
    let (removed, is_told) = held.locked(|| if is_it() { held.remove(folder, path) } else { None }).flatten()?;
    if !is_told {
        // The memory takes no stores any more.
        held.settle();
    }
    Some(removed.map_or_else(failed, |()| 0))
}

/// The place of the name that `path` is; and whether it still is, to be asked with its lock.
fn exact(folder: c_int, path: &CStr) -> Option<(&'static Held, impl Fn() -> bool)> {
    let (above, name) = divided(path.to_bytes())?;
    let name = packed(name)?;
    leave_lost();
    let mut alike = taken().filter(|(_, held)| held.name() == name).peekable();
    alike.peek()?;
    let id = folder_at(folder, above)?;
    let (_, held) = alike.find(|(_, held)| held.folder() == id)?;
    Some((held, move || held.is(id, &name)))
}

fn in_folder(folder: FileId) -> impl Iterator<Item = &'static Held> {
    taken().map(|(_, held)| held).filter(move |held| held.folder() == folder)
}

/// Has the supervisor bring the young `file` to its disk. False: it is not young here.
pub(crate) fn settle(file: FileId) -> bool {
    let found = find(file).and_then(|(index, _)| at(index));
    found.into_iter().for_each(Held::settle);
    found.is_some()
}

/// The same of all young files, and all names of this process.
pub(crate) fn settle_own() {
    taken().for_each(|(_, held)| held.settle());
}

/// The supervisor let go of the name of `file`.
pub(crate) fn leave(file: FileId) {
    find(file).and_then(|(index, _)| at(index)).into_iter().for_each(Held::leave);
}

/// The supervisor let go of all names.
pub(crate) fn leave_all() {
    taken().for_each(|(_, held)| held.leave());
}

/// They are the parent's, not this process's.
pub(crate) fn forget_all() {
    ENTRY.reset();
    // All of them: another thread of the parent may have been asking for a name.
    NAMES.iter().for_each(Held::leave_as_forked);
    candidates::forget_all();
    change::forget_all();
}

/// What the young file behind `descriptor` is remembered as, now that it has one.
pub(crate) fn learn(descriptor: i32) {
    if let Some((index, generation)) = asked::file_of(descriptor).and_then(find) {
        descriptors::learn(descriptor, Seen::Young { index, generation });
    }
}
