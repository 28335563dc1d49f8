//! Names that this process holds: it makes files with them, syncs them, and removes them again.
//!
//! A program that makes a journal, syncs it and removes it for each of its transactions waits for the disk each time, as no new file's name is durable. After some rounds this library holds the
//! *name*: what the name's strip tells is what the disk will have after a power cut, whatever a file system made durable of the files that came and went. A file that is made with
//! a held name is *young*: each of its bytes goes to the strip, so that its first sync is a commit like any other.
//!
//! 1. What the strip tells is durable before the call returns that it is about: a sync of the file, or of its folder, or its removal.
//! 2. A young file that cannot be followed byte by byte is *outgrown*: the kernel syncs it and its folder, then the strip tells nothing of the name.
//! 3. Whatever else makes, removes or renames something in the folder is counted as a change of it. A sync of the folder ends here only if there was none since the kernel
//!    synced it, and a young file's first sync has the kernel sync the folder first if there was. If such a change is about the name itself, or is made by another process of the run, the supervisor
//!    brings the file and its folder to the disk before, and nobody holds the name any more.
//! 4. Others know a young file as held: its number stands in the table's part that programs may write, before its first descriptor is given to the program.

use crate::asked::{self, Named, PATH_BYTES, named, path_of};
use crate::descriptors::{self, Seen};
use crate::follow::{both, failed, sync_again};
use crate::held::Place;
use crate::lock::Lock;
use crate::{line, process, strip};
use libc::{c_int, mode_t};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tidegate_commit::name::Name as Log;
use tidegate_commit::strip::Staged;
use tidegate_media::MappedPart;
use tidegate_preload_wire::{Answer, FileId, Request, Row};

/// Names that one process holds at most.
const NAMES_MAX: usize = 8;
/// Bytes of the longest name that is held, and one that says how many there are.
const NAME_BYTES: usize = 64;
/// A name is held from this file on that was synced and is then removed.
const HOLD_AT_ROUND: u64 = 3;

/// A name, with the number of its bytes at the end.
type Bytes = [u8; NAME_BYTES];

/// A place for a name. All fields but those of changes are changed under the lock.
struct Held {
    lock: Lock,
    is_taken: AtomicBool,
    /// Which of the files that had the name.
    generation: AtomicU32,
    folder: [AtomicU64; 2],
    name: [AtomicU64; NAME_BYTES / 8],
    holder: AtomicU64,
    slot: AtomicU32,
    /// Its row in the table.
    row: AtomicU64,
    /// The table's epoch when it last said that what is committed counts.
    allowed_epoch: AtomicU32,
    /// The young file; zeroes: there is none.
    file: [AtomicU64; 2],
    /// Whether the strip tells of that file.
    counts: AtomicBool,
    /// Whether it may tell anything.
    tells: AtomicBool,
    /// Whether something was done to it that the strip does not have.
    spoiled: AtomicBool,
    /// Writes of it that began, and those that ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Changes of the folder that began, and those that ended.
    changes: [AtomicU64; 2],
    /// Those that had begun and ended when the kernel was asked to sync the folder last.
    settled: AtomicU64,
    log: UnsafeCell<Given>,
}

// SAFETY: L5; everything else is atomic.
unsafe impl Sync for Held {}

/// The strip of a name. Nothing is all zeroes, so that places cost no bytes of the library's file.
#[repr(u8)]
#[expect(clippy::large_enum_variant, reason = "nothing is allocated here")]
enum Given {
    Nothing = 0,
    Log(Log<MappedPart>) = 1,
}

static NAMES: [Held; NAMES_MAX] = [const { Held::new() }; NAMES_MAX];
/// Held while a place is taken.
static ENTRY: Lock = Lock::new();

/// How a sync of a young file goes on.
enum Way {
    Kept,
    /// By the kernel, and so is everything from then on.
    Outgrown,
    /// By the kernel: it is no young file, or no more.
    NotYoung,
}

fn load(words: &[AtomicU64; 2]) -> FileId {
    FileId { device: words[0].load(Ordering::Acquire), inode: words[1].load(Ordering::Acquire) }
}

fn store(words: &[AtomicU64; 2], file: FileId) {
    words[0].store(file.device, Ordering::Release);
    words[1].store(file.inode, Ordering::Release);
}

const NOBODY: FileId = FileId { device: 0, inode: 0 };

impl Held {
    const fn new() -> Held {
        Held {
            lock: Lock::new(),
            is_taken: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            folder: [const { AtomicU64::new(0) }; 2],
            name: [const { AtomicU64::new(0) }; NAME_BYTES / 8],
            holder: AtomicU64::new(0),
            slot: AtomicU32::new(0),
            row: AtomicU64::new(0),
            allowed_epoch: AtomicU32::new(0),
            file: [const { AtomicU64::new(0) }; 2],
            counts: AtomicBool::new(false),
            tells: AtomicBool::new(false),
            spoiled: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            changes: [const { AtomicU64::new(0) }; 2],
            settled: AtomicU64::new(0),
            log: UnsafeCell::new(Given::Nothing),
        }
    }

    /// The strip, if there is one.
    ///
    /// # Safety
    /// L5: the lock is held as long as it is used.
    #[expect(clippy::mut_from_ref, reason = "the lock is what makes it one's own")]
    unsafe fn log(&self) -> Option<&mut Log<MappedPart>> {
        // SAFETY: the caller's promise.
        match unsafe { &mut *self.log.get() } {
            Given::Nothing => None,
            Given::Log(log) => Some(log),
        }
    }

    fn folder(&self) -> FileId {
        load(&self.folder)
    }

    fn name(&self) -> Bytes {
        let mut bytes = [0; NAME_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    /// What stands for it in the table.
    fn id(&self) -> FileId {
        let bytes = self.name();
        let (name, len) = bytes.split_at(NAME_BYTES - 1);
        self.folder().name(name.get(..usize::from(len[0])).unwrap_or_default())
    }

    fn file(&self) -> Option<FileId> {
        Some(load(&self.file)).filter(|file| *file != NOBODY)
    }

    /// Says which file has the name now.
    fn set_file(&self, file: FileId) {
        if let Some(words) = process::young(self.row.load(Ordering::Relaxed)) {
            store(words, file);
        }
        store(&self.file, file);
        self.counts.store(false, Ordering::Release);
        self.spoiled.store(false, Ordering::Release);
        self.ended.store(self.begun.load(Ordering::Acquire), Ordering::Release);
    }

    /// The young file has another life from now on, or none.
    fn lose_file(&self) {
        self.set_file(NOBODY);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether what is committed here counts, by what the table and the journal say now.
    fn is_allowed(&self) -> bool {
        let epoch = process::epoch();
        let known = self.allowed_epoch.load(Ordering::Relaxed) == epoch;
        let (holder, slot) = (self.holder.load(Ordering::Acquire), self.slot.load(Ordering::Relaxed));
        let is_ours = |row: Row| row.holder == holder && row.slot == u64::from(slot);
        let allowed = known || process::row_of(self.id()).is_some_and(is_ours);
        if allowed {
            self.allowed_epoch.store(epoch, Ordering::Relaxed);
        }
        allowed && strip::may_commit()
    }

    /// Gives the place up.
    fn leave(&self) {
        if self.lock.take() {
            self.leave_locked();
            self.lock.give();
        }
    }

    fn leave_locked(&self) {
        store(&self.file, NOBODY);
        self.generation.fetch_add(1, Ordering::AcqRel);
        // SAFETY: L5.
        unsafe { *self.log.get() = Given::Nothing };
        self.is_taken.store(false, Ordering::Release);
    }

    /// Has the supervisor bring the file and its folder to the disk: nothing is told of the name any more.
    fn settle(&self) {
        let _ = line::ask(Request::Settle(self.id()), None);
        self.leave();
    }

    /// What changed of the folder, if nothing is under way.
    fn quiet(&self) -> Option<u64> {
        let [begun, ended] = [&self.changes[0], &self.changes[1]].map(|count| count.load(Ordering::SeqCst));
        (begun == ended).then_some(begun)
    }

    fn is_settled(&self) -> bool {
        self.changes[0].load(Ordering::SeqCst) == self.settled.load(Ordering::SeqCst)
    }

    /// The kernel has synced the folder, which had these changes before.
    fn set_settled(&self, changes: Option<u64>) {
        changes.into_iter().for_each(|changes| self.settled.store(changes, Ordering::SeqCst));
    }

    /// Notes write `number` of the file, which has ended. False: another file has the name by now, or none.
    fn note(&self, generation: u32, number: u64, place: Place, bytes: Option<&[u8]>) -> bool {
        if !self.lock.take() {
            // A signal handler, come between the lines of what it interrupted.
            self.spoiled.store(true, Ordering::SeqCst);
            self.ended.fetch_add(1, Ordering::AcqRel);
            return true;
        }
        let same = self.generation.load(Ordering::Acquire) == generation && self.is_taken.load(Ordering::Acquire);
        if same {
            let alone =
                self.ended.load(Ordering::Acquire) == number && self.begun.load(Ordering::Acquire) == number + 1;
            // SAFETY: L5.
            let log = unsafe { self.log() };
            let staged = match (place, bytes, log) {
                (Place::Range((_, 0)), ..) => true,
                (Place::Range((at, len)), Some(bytes), Some(log)) if alone && bytes.len() as u64 == len => {
                    log.stage(at, bytes) == Ok(Staged::There)
                }
                _ => false,
            };
            if !staged {
                self.spoiled.store(true, Ordering::SeqCst);
            }
            self.ended.fetch_add(1, Ordering::AcqRel);
        }
        self.lock.give();
        same
    }

    /// Commits what the file of `descriptor` is now.
    fn commit(&self, descriptor: i32, generation: u32) -> Way {
        let Some(stat) = asked::stat(descriptor).filter(|_| self.lock.take()) else { return Way::Outgrown };
        let same = self.generation.load(Ordering::Acquire) == generation && self.file() == Some(asked::id(&stat));
        let way = if same { self.commit_locked(descriptor, &stat) } else { Way::NotYoung };
        if matches!(way, Way::Outgrown) {
            // Another thread is not to commit what is older than what the kernel is going to promise.
            self.spoiled.store(true, Ordering::SeqCst);
        }
        self.lock.give();
        way
    }

    fn commit_locked(&self, descriptor: i32, stat: &Stat) -> Way {
        if !self.is_settled() && !self.sync_folder(descriptor) || !self.commit_whole(stat) {
            return Way::Outgrown;
        }
        if self.is_allowed() {
            Way::Kept
        } else {
            self.leave_locked();
            Way::NotYoung
        }
    }

    /// Commits the young file that `stat` describes, if the strip has all of it.
    fn commit_whole(&self, stat: &Stat) -> bool {
        // SAFETY: L5.
        let log = unsafe { self.log() }.filter(|log| stat.st_size.unsigned_abs() == log.end());
        let whole = !self.spoiled.load(Ordering::SeqCst) && stat.st_nlink == 1;
        let Some(log) = log.filter(|_| whole) else { return false };
        self.tells.store(true, Ordering::SeqCst);
        let committed = log.commit([stat.st_mode, stat.st_uid, stat.st_gid]) == Ok(Staged::There);
        if committed {
            self.counts.store(true, Ordering::Release);
        }
        committed
    }

    /// Has the kernel sync the folder of the file behind `descriptor`, if that is the name's.
    fn sync_folder(&self, descriptor: i32) -> bool {
        let changes = self.quiet();
        let mut room = [MaybeUninit::uninit(); PATH_BYTES];
        let Some((above, _)) = path_of(descriptor, &mut room).and_then(divided) else { return false };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = with_end(above, |above| rustix::fs::open(above, flags, Mode::empty()));
        let Some(Ok(folder)) = opened else { return false };
        let is_it = rustix::fs::fstat(&folder).is_ok_and(|stat| asked::id(&stat) == self.folder());
        let synced = is_it && rustix::fs::fsync(&folder).is_ok();
        line::close(folder.into_raw_fd());
        if synced {
            self.set_settled(changes);
        }
        synced
    }

    /// Whether nothing of the folder behind `descriptor` has to be made durable, as far as it is about this name.
    fn is_told(&self, descriptor: i32) -> bool {
        self.tell(descriptor);
        let told = self.file().is_none() || self.counts.load(Ordering::Acquire);
        told && self.is_settled() && self.is_allowed()
    }

    /// Commits what the young file is now, if it has a name that is not durable, and can be followed: its folder is behind `descriptor`.
    fn tell(&self, descriptor: i32) {
        let Some(file) = self.file().filter(|_| !self.counts.load(Ordering::Acquire) && self.lock.take()) else { return };
        let bytes = self.name();
        let name = bytes.get(..usize::from(bytes[NAME_BYTES - 1])).unwrap_or_default();
        let stat = with_end(name, |name| rustix::fs::statat(borrowed(descriptor), name, AtFlags::SYMLINK_NOFOLLOW));
        if let Some(Ok(stat)) = stat
            && asked::id(&stat) == file
            && self.file() == Some(file)
        {
            self.commit_whole(&stat);
        }
        self.lock.give();
    }

    /// The kernel synced the folder, with these changes, and with the file of `generation`: if the strip does not tell of that, it tells nothing from now on.
    fn folder_synced(&self, changes: Option<u64>, generation: u32) {
        self.set_settled(changes);
        let same = || self.generation.load(Ordering::Acquire) == generation;
        let untold = || same() && self.file().is_some() && !self.counts.load(Ordering::Acquire);
        if untold() && self.lock.take() {
            let told = !untold() || self.disclaim();
            self.lock.give();
            if !told {
                self.settle();
            }
        }
    }

    /// The kernel synced the file behind `descriptor`: from now on it is like any other.
    fn outgrown(&self, descriptor: i32, generation: u32) {
        let told = self.lock.take() && {
            let same = self.generation.load(Ordering::Acquire) == generation && self.file().is_some();
            let told = !same || self.sync_folder(descriptor) && self.disclaim();
            self.lock.give();
            told
        };
        if !told {
            self.settle();
        }
        descriptors::forget(descriptor);
    }

    /// The disk has what is true of the name. The lock is held.
    fn disclaim(&self) -> bool {
        // SAFETY: L5.
        let disclaimed = unsafe { self.log() }.is_some_and(|log| log.disclaim().is_ok());
        if disclaimed {
            self.tells.store(false, Ordering::SeqCst);
            self.lose_file();
        }
        disclaimed
    }

    /// Makes the young file that `open` asks for, unless there is one, or another file has the name. The lock is held.
    fn create(&self, folder: BorrowedFd<'_>, path: &CStr, flags: OFlags, mode: mode_t) -> Option<i32> {
        let fits = flags.intersects(OFlags::RDWR | OFlags::WRONLY)
            && !flags.intersects(OFlags::SYNC | OFlags::DSYNC | OFlags::DIRECT | OFlags::PATH | OFlags::APPEND);
        if !fits || self.file().is_some() || !self.is_allowed() {
            return None;
        }
        // Not a point where a thread is cancelled.
        let made = rustix::fs::openat(folder, path, flags | OFlags::EXCL, Mode::from_raw_mode(mode & 0o7777));
        let descriptor = made.ok()?.into_raw_fd();
        asked::file_of(descriptor).into_iter().for_each(|file| self.set_file(file));
        Some(descriptor)
    }

    /// Removes the young file by `path`, if that is its only name. The lock is held. What became of it, and whether the strip tells so.
    fn remove(&self, folder: c_int, path: &CStr) -> Option<(Result<(), Errno>, bool)> {
        let file = self.file()?;
        let is_it = matches!(named(folder, path, false), Named::File(found, 1) if found == file);
        if !is_it || !self.is_allowed() {
            return None;
        }
        let removed = rustix::fs::unlinkat(borrowed(folder), path, AtFlags::empty());
        let mut is_told = true;
        if removed.is_ok() {
            self.tells.store(true, Ordering::SeqCst);
            // SAFETY: L5.
            is_told = unsafe { self.log() }.is_some_and(|log| log.gone().is_ok());
            self.lose_file();
        }
        Some((removed, is_told))
    }
}

fn taken() -> impl Iterator<Item = (u16, &'static Held)> {
    (0..).zip(&NAMES).filter(|(_, held)| held.is_taken.load(Ordering::Acquire))
}

/// Where `file` is young.
pub(crate) fn find(file: FileId) -> Option<(u16, u32)> {
    let (index, held) = taken().find(|(_, held)| held.file() == Some(file))?;
    Some((index, held.generation.load(Ordering::Acquire)))
}

fn at(index: u16) -> Option<&'static Held> {
    NAMES.get(usize::from(index))
}

/// Something was done to the file that nobody noted.
pub(crate) fn spoil(index: u16) {
    at(index).into_iter().for_each(|held| held.spoiled.store(true, Ordering::SeqCst));
}

/// A write of the young file begins; its number.
pub(crate) fn begin(index: u16) -> u64 {
    at(index).map_or(0, |held| held.begun.fetch_add(1, Ordering::AcqRel))
}

/// Notes it when it has ended. False: the file is not young any more.
pub(crate) fn note((index, generation): (u16, u32), number: u64, place: Place, bytes: Option<&[u8]>) -> bool {
    at(index).is_some_and(|held| held.note(generation, number, place, bytes))
}

/// Syncs the young file behind `descriptor`.
pub(crate) fn sync(descriptor: i32, (index, generation): (u16, u32), call: impl FnOnce() -> i32) -> i32 {
    let held = at(index);
    match crate::guarded(|| held.map_or(Way::NotYoung, |held| held.commit(descriptor, generation))) {
        Way::Kept => 0,
        Way::Outgrown => {
            let answer = call();
            if answer == 0 {
                crate::guarded(|| held.into_iter().for_each(|held| held.outgrown(descriptor, generation)));
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
    if !process::names_are_held() || !process::owns_memory() {
        return call();
    }
    let folder = asked::stat(descriptor).filter(|stat| is_folder(stat)).map(|stat| asked::id(&stat));
    let Some(folder) = folder.filter(|folder| in_folder(*folder).next().is_some()) else { return call() };
    if crate::guarded(|| in_folder(folder).fold(true, |told, held| held.is_told(descriptor) && told)) {
        return 0;
    }
    let marks = NAMES.each_ref().map(|held| (held.quiet(), held.generation.load(Ordering::Acquire)));
    let answer = call();
    if answer == 0 {
        let synced = NAMES.iter().zip(marks).filter(|(held, _)| held.folder() == folder);
        crate::guarded(|| synced.for_each(|(held, (changes, generation))| held.folder_synced(changes, generation)));
    }
    answer
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Opens a file that may be new, as a young one; `None`: it is to be opened as ever.
pub(crate) fn create(folder: c_int, path: &CStr, flags: c_int, mode: mode_t) -> Option<i32> {
    if !process::names_are_held() || !process::owns_memory() {
        return None;
    }
    let (_, held) = exact(folder, path)?;
    if !held.lock.take() {
        return None;
    }
    let made = held.create(borrowed(folder), path, OFlags::from_bits_retain(flags.cast_unsigned()), mode);
    held.lock.give();
    made
}

/// Removes the young file that `path` names; `None`: it is to be removed as ever.
pub(crate) fn remove(folder: c_int, path: &CStr) -> Option<c_int> {
    if !process::names_are_held() || !process::owns_memory() {
        return None;
    }
    let (_, held) = exact(folder, path)?;
    if !held.lock.take() {
        return None;
    }
    let removed = held.remove(folder, path);
    held.lock.give();
    let (removed, is_told) = removed?;
    if !is_told {
        // The memory takes no stores any more.
        held.settle();
    }
    Some(removed.map_or_else(failed, |()| 0))
}

/// The place of the name that `path` is.
fn exact(folder: c_int, path: &CStr) -> Option<(u16, &'static Held)> {
    let (above, name) = divided(path.to_bytes())?;
    let name = packed(name)?;
    let mut alike = taken().filter(|(_, held)| held.name() == name).peekable();
    alike.peek()?;
    let id = folder_at(folder, above)?;
    alike.find(|(_, held)| held.folder() == id)
}

/// A path's folder and its last name. None: it ends with no name.
fn divided(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = &path[..end];
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&b"/"[..], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b"."[..], path),
    };
    (name != b"." && name != b"..").then_some((above, name))
}

fn packed(name: &[u8]) -> Option<Bytes> {
    let mut bytes = [0; NAME_BYTES];
    let len = u8::try_from(name.len()).ok().filter(|_| name.len() < NAME_BYTES)?;
    bytes[..name.len()].copy_from_slice(name);
    bytes[NAME_BYTES - 1] = len;
    Some(bytes)
}

/// What `act` makes of `path` with a zero byte behind it.
fn with_end<T>(path: &[u8], act: impl FnOnce(&CStr) -> T) -> Option<T> {
    let mut room = [0; PATH_BYTES];
    room.get_mut(..path.len())?.copy_from_slice(path);
    Some(act(CStr::from_bytes_until_nul(&room).ok()?))
}

fn folder_at(folder: c_int, above: &[u8]) -> Option<FileId> {
    let stat = with_end(above, |above| rustix::fs::statat(borrowed(folder), above, AtFlags::empty()))?.ok()?;
    is_folder(&stat).then(|| asked::id(&stat))
}

fn borrowed(folder: c_int) -> BorrowedFd<'static> {
    // SAFETY: a closed number is an error, not a danger; -100 stands for the current folder as it does in libc.
    unsafe { BorrowedFd::borrow_raw(folder) }
}

/// A change of a folder that is under way; it has ended when this is dropped.
pub(crate) struct Change {
    folder: Option<FileId>,
    /// What stands for its name; without a folder, that of a file that is opened and there already.
    name: Option<FileId>,
}

/// Something is going to be made, removed or renamed at `path`.
pub(crate) fn change(folder: c_int, path: &CStr) -> Change {
    if process::names_are_held() { crate::guarded(|| changed(folder, path)) } else { NO_CHANGE }
}

/// The same if `path` is opened, and a file made if there is none.
pub(crate) fn change_by_opening(folder: c_int, path: &CStr) -> Change {
    if !process::names_are_held() {
        return NO_CHANGE;
    }
    crate::guarded(|| match rustix::fs::statat(borrowed(folder), path, AtFlags::SYMLINK_NOFOLLOW) {
        // Wherever it leads.
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            if rustix::fs::statat(borrowed(folder), path, AtFlags::empty()).is_err() {
                crate::follow::settle_all();
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
    in_folder(id).for_each(|held| _ = held.changes[0].fetch_add(1, Ordering::SeqCst));
    let name = id.name(name);
    settle_touched(id, name);
    Change { folder: Some(id), name: Some(name) }
}

fn in_folder(folder: FileId) -> impl Iterator<Item = &'static Held> {
    taken().map(|(_, held)| held).filter(move |held| held.folder() == folder)
}

/// What is told of names in `folder` that others hold, or of `name`, is not going to be true, or is not already.
fn settle_touched(folder: FileId, name: FileId) {
    let is_own = |name: FileId| taken().any(|(_, held)| held.id() == name);
    process::names_in(folder).filter(|name| !is_own(*name)).for_each(|name| {
        let _ = line::ask(Request::Settle(name), None);
    });
    let tells = |held: &&Held| held.tells.load(Ordering::SeqCst) || held.file().is_some();
    in_folder(folder).filter(|held| held.id() == name).filter(tells).for_each(Held::settle);
}

impl Change {
    /// The file that was opened is behind `descriptor`.
    pub(crate) fn opened(&self, descriptor: i32) {
        let opened = self.name.filter(|_| descriptor >= 0 && self.folder.is_none());
        let Some(name) = opened else { return };
        crate::guarded(|| {
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
        crate::guarded(|| settle_touched(folder, name));
        in_folder(folder).for_each(|held| _ = held.changes[1].fetch_add(1, Ordering::SeqCst));
    }
}

/// Has the supervisor bring the young `file` to its disk. False: it is not young here.
pub(crate) fn settle(file: FileId) -> bool {
    let found = find(file).and_then(|(index, _)| at(index));
    found.into_iter().for_each(Held::settle);
    found.is_some()
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
    for (_, held) in taken() {
        held.lock.reset();
        // SAFETY: L5; no other thread exists here. Nothing is dropped, as the parent's mapping is not here; another thread of the parent may have been storing it.
        unsafe { held.log.get().write(Given::Nothing) };
        store(&held.file, NOBODY);
        held.generation.fetch_add(1, Ordering::AcqRel);
        held.is_taken.store(false, Ordering::Release);
    }
    CANDIDATES.iter().for_each(|candidate| candidate.path.store(0, Ordering::Relaxed));
}

/// A path at which files were synced that the kernel made durable, and how many of them were removed again. Only a memory.
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

/// The kernel synced the regular file behind `descriptor`: its name may be one that is worth being held.
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
            let row = process::row_number_of(held.id());
            let log = strip::open_name(strip, slot).filter(|_| row.is_some_and(|row| process::young(row).is_some()));
            row.zip(log).map(|(row, log)| (holder, slot, row, log))
        }
        _ => None,
    };
    match given {
        Some((holder, slot, row, log)) => {
            held.holder.store(holder, Ordering::Relaxed);
            held.slot.store(slot, Ordering::Relaxed);
            held.row.store(row, Ordering::Relaxed);
            // SAFETY: L5: `occupy` took it.
            unsafe { *held.log.get() = Given::Log(log) };
            held.is_taken.store(true, Ordering::Release);
        }
        None if answer.is_some_and(|answer| answer != Answer::Refused) => {
            let _ = line::ask(Request::Settle(held.id()), None);
        }
        None => {}
    }
    held.lock.give();
}

/// A free place for a name, with its lock taken.
fn occupy(folder: FileId, name: Bytes) -> Option<&'static Held> {
    if !ENTRY.take() {
        return None;
    }
    let known = taken().any(|(_, held)| held.folder() == folder && held.name() == name);
    let mut free = NAMES.iter().filter(|held| !known && !held.is_taken.load(Ordering::Acquire));
    let held = free.next().filter(|held| held.lock.take());
    if let Some(held) = held {
        store(&held.folder, folder);
        for (word, bytes) in held.name.iter().zip(name.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        store(&held.file, NOBODY);
        held.tells.store(false, Ordering::SeqCst);
        held.allowed_epoch.store(0, Ordering::Relaxed);
        // The folder has a file that the kernel has made.
        held.changes[0].fetch_add(1, Ordering::SeqCst);
        held.changes[1].store(held.changes[0].load(Ordering::SeqCst), Ordering::SeqCst);
        held.settled.store(u64::MAX, Ordering::SeqCst);
    }
    ENTRY.give();
    held
}

/// What the young file behind `descriptor` is remembered as, now that it has one.
pub(crate) fn learn(descriptor: i32) {
    if let Some((index, generation)) = asked::file_of(descriptor).and_then(find) {
        descriptors::learn(descriptor, Seen::Young { index, generation });
    }
}
