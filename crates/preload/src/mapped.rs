//! Shared mappings through which nothing can be stored, of files that may be held: made for reading
//! only, through a descriptor that is open for writing. A database reads so what it writes by
//! `pwrite`.
//!
//! The page cache is what such a mapping shows, so nothing is to be done while it stays as it is.
//! But a program may have it made writable, as its descriptor is; stores through it are seen by
//! nobody then. So each is noted here before its address is known to the program, and what makes a
//! part of a noted one writable abandons its file before the kernel acts. That the file is not
//! held, or held by another process, makes no difference: an abandoned one is held by nobody while
//! it exists.
//!
//! 1. **Each way to write through such a mapping is watched**: `mprotect` and `pkey_mprotect`.
//!    `mremap` gives it another place or length, and that is noted as another mapping; the first
//!    one stays noted unless the kernel has taken it away whole. Where the kernel itself is asked
//!    to store (`/proc/self/mem`, `ptrace`, `process_vm_writev`), it refuses a shared mapping that
//!    is not writable.
//! 2. **A note is not missed**: whoever makes a mapping writable knows its address, so `mmap` has
//!    returned, and the note stands. A program that says itself where the mapping is to be would
//!    know it before; such a mapping (`MAP_FIXED`) has its file abandoned like one that is
//!    writable, and what is moved so by `mremap` is noted there before the kernel moves it.
//! 3. **A note is taken back** only behind a `munmap` or `mremap` that took all of its mapping
//!    away, and only if it is the very note that was there before the kernel acted: another
//!    thread's mapping may have the address by then, and a note of its own. A note that is left
//!    although its mapping is gone costs no more than a file abandoned in vain, if something else
//!    at that address is made writable.
//! 4. **A child of `fork`** has its parent's mappings, and the notes with the rest of the memory;
//!    they are kept there, and what it makes writable it abandons itself. If another thread of the
//!    parent was amid `mmap`, nobody in the child knows the address. A child that shares its
//!    parent's memory has the same notes of the same mappings. Behind `exec` there is neither.
//! 5. **If there is no room for a note**, the file is abandoned, before the mapping is known to the
//!    program.
//!
//! There is no lock: a place is free, taken or set, and each change of that gives it another
//! number, so a signal handler may come in between anywhere.

use crate::asked::{file_of, flags};
use crate::{follow, guarded, process};
use rustix::fs::OFlags;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use tidegate_preload_wire::FileId;

/// Mappings that are noted at most.
const PLACES_MAX: usize = 64;
/// Bytes of the largest page: what the kernel takes is rounded to whole ones.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the smallest.
const PAGE_BYTES_MIN: usize = 4 << 10;

static PLACES: [Place; PLACES_MAX] = [const { Place::new() }; PLACES_MAX];
/// Places that were ever taken: the first ones.
static USED: AtomicUsize = AtomicUsize::new(0);

struct Place {
    /// What it is, and above that how often it was freed.
    state: AtomicU64,
    start: AtomicUsize,
    len: AtomicUsize,
    device: AtomicU64,
    inode: AtomicU64,
    /// 0: unknown.
    born_ns: AtomicU64,
}

const FREE: u64 = 0;
const TAKEN: u64 = 1;
const SET: u64 = 2;
const STATE: u64 = 3;

/// A noted mapping.
#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    len: usize,
    file: FileId,
    born_ns: Option<u64>,
}

/// A note, as it was found.
#[derive(Clone, Copy)]
struct Note {
    place: &'static Place,
    state: u64,
    mapping: Mapping,
}

/// A taken place: free again if nothing is noted there.
struct Room(&'static Place);

impl Place {
    const fn new() -> Place {
        Place {
            state: AtomicU64::new(FREE),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            born_ns: AtomicU64::new(0),
        }
    }

    fn take(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let taken = |state| self.state.compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        state & STATE == FREE && taken(state).is_ok()
    }

    /// Frees it, unless that was done since its state was `state`.
    fn free(&self, state: u64) {
        let free = (state & !STATE) + STATE + 1;
        let _ = self.state.compare_exchange(state, free, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn note(&'static self) -> Option<Note> {
        // Acquire: pairs with `Room::note`.
        let state = self.state.load(Ordering::Acquire);
        if state & STATE != SET {
            return None;
        }
        let device = self.device.load(Ordering::Relaxed);
        let mapping = Mapping {
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            file: FileId { device, inode: self.inode.load(Ordering::Relaxed) },
            born_ns: Some(self.born_ns.load(Ordering::Relaxed)).filter(|born| *born != 0),
        };
        // Pairs with the one in `Room::note`: what was read is of that note, or the state is
        // another one by now.
        fence(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) == state).then_some(Note { place: self, state, mapping })
    }
}

impl Room {
    fn new() -> Option<Room> {
        let (index, place) = PLACES.iter().enumerate().find(|(_, place)| place.take())?;
        USED.fetch_max(index + 1, Ordering::AcqRel);
        Some(Room(place))
    }

    fn note(self, mapping: Mapping) {
        let Room(place) = self;
        std::mem::forget(self);
        fence(Ordering::Release);
        place.start.store(mapping.start, Ordering::Relaxed);
        place.len.store(mapping.len, Ordering::Relaxed);
        place.device.store(mapping.file.device, Ordering::Relaxed);
        place.inode.store(mapping.file.inode, Ordering::Relaxed);
        place.born_ns.store(mapping.born_ns.unwrap_or(0), Ordering::Relaxed);
        let state = place.state.load(Ordering::Relaxed);
        place.state.store(state - TAKEN + SET, Ordering::Release);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.free(self.0.state.load(Ordering::Relaxed));
    }
}

impl Note {
    /// Whether the kernel may change a part of it that is asked to change these bytes.
    fn meets(&self, start: usize, len: usize) -> bool {
        let down = |at: usize| at & !(PAGE_BYTES_MAX - 1);
        let up = |at: usize| down(at.saturating_add(PAGE_BYTES_MAX - 1));
        let Mapping { start: its, len: its_len, .. } = self.mapping;
        down(start) < up(its.saturating_add(its_len)) && down(its) < up(start.saturating_add(len))
    }

    /// Whether the kernel takes all of it away that takes away these bytes.
    fn is_within(&self, start: usize, len: usize) -> bool {
        let end = start.saturating_add(len).checked_next_multiple_of(PAGE_BYTES_MIN);
        let Mapping { start: its, len: its_len, .. } = self.mapping;
        start <= its && end.is_some_and(|end| its.saturating_add(its_len) <= end)
    }

    fn free(&self) {
        self.place.free(self.state);
    }
}

/// The notes of mappings that a change of these bytes may be about.
fn notes(start: usize, len: usize) -> impl Iterator<Item = Note> {
    let used = &PLACES[..USED.load(Ordering::Acquire).min(PLACES_MAX)];
    used.iter().filter_map(Place::note).filter(move |note| note.meets(start, len))
}

/// Whether any mapping was ever noted.
fn are_any() -> bool {
    USED.load(Ordering::Acquire) > 0
}

/// As many notes as there may be.
type Found = [Option<Note>; PLACES_MAX];

fn found(notes: impl Iterator<Item = Note>) -> Found {
    let mut found = [None; PLACES_MAX];
    found.iter_mut().zip(notes).for_each(|(place, note)| *place = Some(note));
    found
}

/// Makes a shared mapping of `descriptor`, of `len` bytes, as `call` does.
pub(crate) fn map(
    descriptor: i32,
    len: usize,
    (access, how): (c_int, c_int),
    call: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    // Otherwise it can never be made writable.
    if !process::is_followed() || !flags(descriptor).contains(OFlags::RDWR) {
        return call();
    }
    let quiet = access & libc::PROT_WRITE == 0 && how & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == 0;
    let file = if quiet { guarded(|| file_of(descriptor)) } else { None };
    let Some((file, room)) = file.zip(guarded(Room::new)) else {
        follow::abandon_unseen(descriptor);
        return call();
    };
    let born_ns = guarded(|| follow::birth_of(descriptor, file));
    let mapped = call();
    if mapped == libc::MAP_FAILED {
        drop(room);
    } else {
        room.note(Mapping { start: mapped.addr(), len, file, born_ns });
    }
    mapped
}

/// Gives these bytes the access that `call` gives them.
pub(crate) fn protect(at: *mut c_void, len: usize, access: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if access & libc::PROT_WRITE != 0 && are_any() && process::is_followed() {
        guarded(|| notes(at.addr(), len).for_each(|note| abandon(&note)));
    }
    call()
}

/// The mapping is going to be written through: its note is needed no more when its file is
/// abandoned.
fn abandon(note: &Note) {
    follow::abandon(note.mapping.file, note.mapping.born_ns);
    note.free();
}

/// Takes these bytes away as `call` does.
pub(crate) fn unmap(at: *mut c_void, len: usize, call: impl FnOnce() -> c_int) -> c_int {
    if !are_any() {
        return call();
    }
    let gone = found(notes(at.addr(), len).filter(|note| note.is_within(at.addr(), len)));
    let answer = call();
    if answer == 0 {
        gone.iter().flatten().for_each(Note::free);
    }
    answer
}

/// What `mremap` is asked to move, and where to.
pub(crate) struct Move {
    /// From here,
    pub(crate) from: *mut c_void,
    /// so many bytes,
    pub(crate) len: usize,
    /// which are so many then,
    pub(crate) new_len: usize,
    /// in this way,
    pub(crate) how: c_int,
    /// and here, if that says so.
    pub(crate) to: *mut c_void,
}

/// Moves bytes as `call` does.
pub(crate) fn remap(asked: &Move, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if !are_any() || !process::is_followed() {
        return call();
    }
    let Move { from, len, new_len, how, to } = *asked;
    let old = found(notes(from.addr(), len.max(1)));
    if old[0].is_none() {
        return call();
    }
    let moved = |note: &Note, to: *mut c_void| Mapping { start: to.addr(), len: new_len, ..note.mapping };
    let mut rooms = [const { None }; PLACES_MAX];
    for (room, note) in rooms.iter_mut().zip(old.iter().flatten()) {
        match guarded(Room::new) {
            None => guarded(|| abandon(note)),
            Some(free) if how & libc::MREMAP_FIXED != 0 => free.note(moved(note, to)),
            Some(free) => *room = Some(free),
        }
    }
    let mapped = call();
    if mapped == libc::MAP_FAILED {
        return mapped;
    }
    for (room, note) in rooms.into_iter().zip(old.iter().flatten()) {
        room.into_iter().for_each(|room| room.note(moved(note, mapped)));
        if how & libc::MREMAP_DONTUNMAP == 0 && note.is_within(from.addr(), len) {
            note.free();
        }
    }
    mapped
}
