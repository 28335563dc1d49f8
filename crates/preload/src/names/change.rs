//! Changes of folders that no strip is told of.

use super::held::Held;
use super::paths::{divided, folder_at, is_folder};
use super::{in_folder, leave_lost, taken};
use crate::asked::{self, GivenPath, PATH_BYTES, path_of};
use crate::{guarded, line, process};
use libc::c_int;
use rustix::fs::{AtFlags, FileType};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_preload_wire::{FileId, Request};

/// Changes that are under way in this process, of whatever folder.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);

/// Whether none is.
pub(super) fn quiet() -> bool {
    UNDER_WAY.load(Ordering::SeqCst) == 0
}

/// In a forked child, none is.
pub(super) fn forget_all() {
    UNDER_WAY.store(0, Ordering::SeqCst);
}

/// A change of a folder that is under way, until [`Change::end`]. No destructor ends it: the call
/// may be the end of a cancelled thread, and the kernel syncs the folder each time from then on.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    /// The table's epoch when it began; none: nothing is followed.
    epoch: Option<u32>,
    /// The folder, if any name was held then.
    folder: Option<FileId>,
    /// What stands for the name in it; without a folder, that of a file that is opened and there
    /// already.
    name: Option<FileId>,
}

/// Something is going to be made, removed or renamed at `path`.
pub(crate) fn change(folder: c_int, path: GivenPath) -> Change {
    let change = begun();
    if !process::names_are_held() {
        return change;
    }
    guarded(|| path.text().map_or(change, |path| changed(change, folder, path)))
}

/// The same if `path` is opened, and a file made if there is none.
pub(crate) fn change_by_opening(folder: c_int, path: GivenPath) -> Change {
    let change = begun();
    if !process::names_are_held() {
        return change;
    }
    guarded(|| {
        let found = path.stat(AtFlags::SYMLINK_NOFOLLOW);
        let Some(text) = path.text_behind(found.as_ref().err().copied()) else { return change };
        let Ok(stat) = found else { return changed(change, folder, text) };
        // Wherever it leads.
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            if path.stat(AtFlags::empty()).is_err() {
                settle_all();
            }
            return change;
        }
        // It is there now; who made it instead if it is not any more is looked for afterwards.
        let there = divided(text.to_bytes()).and_then(|(above, name)| Some(folder_at(folder, above)?.name(name)));
        Change { name: there.filter(|name| process::is_held(*name)), epoch: change.epoch, folder: change.folder }
    })
}

/// The same somewhere, where nobody can tell.
pub(crate) fn change_anywhere() -> Change {
    let change = begun();
    if process::names_are_held() {
        guarded(settle_all);
    }
    change
}

/// The attributes of `folder` itself are going to be set.
pub(crate) fn change_of_folder(folder: FileId) -> Change {
    let change = begun();
    if process::names_are_held() { touched(change, folder, None) } else { change }
}

fn begun() -> Change {
    let epoch = process::is_followed().then(process::epoch);
    epoch.into_iter().for_each(|_| _ = UNDER_WAY.fetch_add(1, Ordering::SeqCst));
    Change { epoch, folder: None, name: None }
}

fn changed(change: Change, folder: c_int, path: &CStr) -> Change {
    let place = divided(path.to_bytes()).and_then(|(above, name)| Some((folder_at(folder, above)?, name)));
    match place {
        Some((folder, name)) => touched(change, folder, Some(folder.name(name))),
        None => change,
    }
}

fn touched(mut change: Change, folder: FileId, name: Option<FileId>) -> Change {
    leave_lost();
    in_folder(folder).for_each(Held::change);
    settle_touched(folder, name);
    (change.folder, change.name) = (Some(folder), name);
    change
}

/// Those names in `folder` are settled that others hold.
pub(super) fn settle_others(folder: FileId) {
    let is_own =
        |name: FileId| process::owns_memory() && taken().any(|(_, held)| held.id() == name && held.is_allowed());
    process::names_in(folder).filter(|name| !is_own(*name)).for_each(|name| {
        let _ = line::ask(Request::Settle(name), None);
    });
}

/// What is told of names in `folder` that others hold, or of `name`, is not going to be true, or is
/// not already.
fn settle_touched(folder: FileId, name: Option<FileId>) {
    settle_others(folder);
    in_folder(folder).filter(|held| Some(held.id()) == name && held.may_tell()).for_each(Held::settle);
}

/// All names are settled, whoever holds them.
pub(crate) fn settle_all() {
    process::names().for_each(|name| {
        let _ = line::ask(Request::Settle(name), None);
    });
    super::leave_all();
}

/// The names in the folder behind `descriptor`, if it is one: it is going to be synced where nobody
/// looks.
pub(crate) fn settle_in(descriptor: i32) {
    let folder = if process::names_are_held() { asked::stat(descriptor).filter(is_folder) } else { None };
    let names = folder.map(|stat| asked::id(&stat)).into_iter().flat_map(process::names_in);
    names.for_each(|name| _ = line::ask(Request::Settle(name), None));
}

/// The name of the file behind `descriptor`, if its holder may be making it just now.
pub(crate) fn settle_made(descriptor: i32) {
    let mut room = [MaybeUninit::uninit(); PATH_BYTES];
    let place = path_of(descriptor, &mut room).and_then(divided);
    let name = place.and_then(|(above, name)| Some(folder_at(libc::AT_FDCWD, above)?.name(name)));
    name.filter(|name| process::is_held(*name)).into_iter().for_each(|name| _ = line::ask(Request::Settle(name), None));
}

impl Change {
    /// The file that was opened is behind `descriptor`.
    pub(crate) fn opened(&self, descriptor: i32) {
        let opened = self.name.filter(|_| descriptor >= 0 && self.folder.is_none());
        let Some(name) = opened else { return };
        guarded(|| {
            let file = asked::file_of(descriptor);
            if process::names_are_held() && process::young_of(name) != file {
                let _ = line::ask(Request::Settle(name), None);
                taken().filter(|(_, held)| held.id() == name).for_each(|(_, held)| held.leave());
            }
        });
    }

    /// It has ended.
    pub(crate) fn end(self) {
        let Some(epoch) = self.epoch else { return };
        // Some may have come to be held meanwhile, or a file been made young.
        guarded(|| match self.folder {
            Some(folder) => settle_touched(folder, self.name),
            None if process::epoch() != epoch && process::names_are_held() => settle_all(),
            None => {}
        });
        self.folder.into_iter().flat_map(in_folder).for_each(Held::change);
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes a call beside which `changes` are under way.
pub(crate) fn during<const N: usize, T>(changes: [Option<Change>; N], call: impl FnOnce() -> T) -> T {
    let answer = call();
    changes.into_iter().flatten().for_each(Change::end);
    answer
}
