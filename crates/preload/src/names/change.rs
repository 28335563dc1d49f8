//! Changes of folders that no strip is told of.

use super::held::Held;
use super::paths::{borrowed, divided, folder_at};
use super::{in_folder, taken};
use crate::{asked, follow, guarded, line, process};
use libc::c_int;
use rustix::fs::{AtFlags, FileType};
use std::ffi::CStr;
use tidegate_preload_wire::{FileId, Request};

/// A change of a folder that is under way; it has ended when this is dropped.
pub(crate) struct Change {
    folder: Option<FileId>,
    /// What stands for its name; without a folder, that of a file that is opened and there already.
    name: Option<FileId>,
}

/// Something is going to be made, removed or renamed at `path`.
pub(crate) fn change(folder: c_int, path: &CStr) -> Change {
    if process::names_are_held() { guarded(|| changed(folder, path)) } else { NO_CHANGE }
}

/// The same if `path` is opened, and a file made if there is none.
pub(crate) fn change_by_opening(folder: c_int, path: &CStr) -> Change {
    if !process::names_are_held() {
        return NO_CHANGE;
    }
    guarded(|| match rustix::fs::statat(borrowed(folder), path, AtFlags::SYMLINK_NOFOLLOW) {
        // Wherever it leads.
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            if rustix::fs::statat(borrowed(folder), path, AtFlags::empty()).is_err() {
                follow::settle_all();
            }
            NO_CHANGE
        }
        // It is there now; who made it instead if it is not any more is looked for afterwards.
        Ok(_) => {
            let there = divided(path.to_bytes()).and_then(|(above, name)| Some(folder_at(folder, above)?.name(name)));
            Change { name: there.filter(|name| process::is_held(*name)), ..NO_CHANGE }
        }
        Err(_) => changed(folder, path),
    })
}

const NO_CHANGE: Change = Change { folder: None, name: None };

fn changed(folder: c_int, path: &CStr) -> Change {
    let Some((above, name)) = divided(path.to_bytes()) else { return NO_CHANGE };
    let Some(id) = folder_at(folder, above) else { return NO_CHANGE };
    in_folder(id).for_each(Held::change);
    let name = id.name(name);
    settle_touched(id, name);
    Change { folder: Some(id), name: Some(name) }
}

/// What is told of names in `folder` that others hold, or of `name`, is not going to be true, or is not already.
fn settle_touched(folder: FileId, name: FileId) {
    let is_own = |name: FileId| taken().any(|(_, held)| held.id() == name);
    process::names_in(folder).filter(|name| !is_own(*name)).for_each(|name| {
        let _ = line::ask(Request::Settle(name), None);
    });
    in_folder(folder).filter(|held| held.id() == name && held.may_tell()).for_each(Held::settle);
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
}

impl Drop for Change {
    fn drop(&mut self) {
        let (Some(folder), Some(name)) = (self.folder, self.name) else { return };
        // Some may have come to be held meanwhile, or a file been made young.
        guarded(|| settle_touched(folder, name));
        in_folder(folder).for_each(Held::changed);
    }
}
