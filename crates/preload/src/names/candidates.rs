//! Names that are worth being held: files with them were made, synced and removed.

use super::held::{Bytes, Grant, Held, NOBODY, load, store};
use super::paths::{divided, folder_at, packed};
use super::{ENTRY, NAMES, taken};
use crate::asked::{self, PATH_BYTES, path_of};
use crate::{line, process, strip};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_preload_wire::{Answer, FileId, Request};

/// A name is held from this file on that was synced and is then removed.
const HOLD_AT_ROUND: u64 = 3;

/// A path at which files were synced that the kernel made durable, and how many of them were
/// removed again. Only a memory.
struct Candidate {
    path: AtomicU64,
    file: [AtomicU64; 2],
    rounds: AtomicU64,
}

static CANDIDATES: [Candidate; 16] = [const {
    Candidate { path: AtomicU64::new(0), file: [const { AtomicU64::new(0) }; 2], rounds: AtomicU64::new(0) }
}; 16];
/// Which one is forgotten next.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The kernel synced the regular file behind `descriptor`: its name may be one that is worth being
/// held.
pub(crate) fn synced(descriptor: i32) {
    if !process::owns_memory() || process::has_unseen_writer() {
        return;
    }
    let mut room = [MaybeUninit::uninit(); PATH_BYTES];
    let (Some(stat), Some(path)) = (asked::stat(descriptor), path_of(descriptor, &mut room)) else { return };
    if stat.st_nlink != 1 || !process::is_rooted(path) {
        return;
    }
    // Any number that is the same for the same path.
    let number = NOBODY.name(path).inode | 1;
    let known = CANDIDATES.iter().find(|candidate| candidate.path.load(Ordering::Relaxed) == number);
    let candidate = known.unwrap_or_else(|| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % CANDIDATES.len() as u64;
        let fresh = &CANDIDATES[usize::try_from(next).unwrap_or(0)];
        fresh.rounds.store(0, Ordering::Relaxed);
        fresh.path.store(number, Ordering::Relaxed);
        fresh
    });
    store(&candidate.file, asked::id(&stat));
    if candidate.rounds.load(Ordering::Relaxed) + 1 >= HOLD_AT_ROUND {
        candidate.rounds.store(0, Ordering::Relaxed);
        hold(descriptor, path);
    }
}

/// Whether `removing` wants to be told of anything.
pub(crate) fn are_there() -> bool {
    NEXT.load(Ordering::Relaxed) != 0
}

/// `file` is going to be removed.
pub(crate) fn removing(file: FileId) {
    let mut synced = CANDIDATES.iter().filter(|candidate| load(&candidate.file) == file);
    if let Some(candidate) = synced.next() {
        store(&candidate.file, NOBODY);
        candidate.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Asks for the name of the file behind `descriptor`, which is at `path`.
fn hold(descriptor: i32, path: &[u8]) {
    let Some((above, name)) = divided(path) else { return };
    let place = packed(name).zip(folder_at(libc::AT_FDCWD, above)).and_then(|(name, folder)| occupy(folder, name));
    let Some(held) = place else { return };
    line::reach();
    let answer = line::ask(Request::HoldName, Some(descriptor));
    let given = match answer {
        Some(Answer::Held { holder, slot, strip: Some(strip), .. }) => {
            let row = process::row_number_of(held.id()).filter(|row| process::young(*row, |_| ()).is_some());
            let log = row.and_then(|_| strip::open_name(strip, slot));
            row.zip(log).map(|(row, log)| Grant { holder, slot, row, log })
        }
        _ => None,
    };
    let unused = given.is_none() && answer.is_some_and(|answer| answer != Answer::Refused);
    let id = held.id();
    held.set_given(given);
    if unused {
        let _ = line::ask(Request::Settle(id), None);
    }
}

/// A free place for a name, with its lock taken.
fn occupy(folder: FileId, name: Bytes) -> Option<&'static Held> {
    if !ENTRY.take() {
        return None;
    }
    let known = taken().any(|(_, held)| held.folder() == folder && held.name() == name);
    let mut places = NAMES.iter().filter(|_| !known);
    let held = places.find(|held| held.occupy(folder, name));
    ENTRY.give();
    held
}

/// They are the parent's, not this process's.
pub(super) fn forget_all() {
    CANDIDATES.iter().for_each(|candidate| candidate.path.store(0, Ordering::Relaxed));
}
