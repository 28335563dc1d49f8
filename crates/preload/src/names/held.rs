//! A name that this process holds, and the young file that it may have.

use super::change;
use super::paths::{borrowed, divided, with_end};
use crate::asked::{self, GivenPath, Named, PATH_BYTES, named, path_of};
use crate::held::Place;
use crate::lock::Lock;
use crate::{descriptors, line, process, strip};
use libc::{c_int, mode_t};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tidegate_media::MappedPart;
use tidegate_preload_wire::{FileId, Request};
use tidegate_wal::name::Name as Log;
use tidegate_wal::strip::Staged;

/// Names that one process holds at most.
pub(super) const NAMES_MAX: usize = 8;
/// Bytes of the longest name that is held, and one that says how many there are.
pub(super) const NAME_BYTES: usize = 64;
/// A name, with the number of its bytes at the end.
pub(super) type Bytes = [u8; NAME_BYTES];

/// A place for a name. All fields but those of changes are changed under the lock.
pub(super) struct Held {
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
    /// When the young file was born, in nanoseconds since 1970.
    born_ns: AtomicU64,
    /// Goes up when a change of the folder begins, and when it has ended.
    changes: AtomicU64,
    /// What that was when the kernel was asked to sync the folder last, and the folder's mode and
    /// owner then.
    settled: AtomicU64,
    attributes: [AtomicU64; 2],
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

/// What a sync of a folder makes durable.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    changes: Option<u64>,
    attributes: [u64; 2],
}

fn attributes(folder: &Stat) -> [u64; 2] {
    [u64::from(folder.st_mode) | u64::from(folder.st_uid) << 32, folder.st_gid.into()]
}

/// What is said instead of an inode while a file is being made.
pub(crate) const BEING_MADE: u64 = u64::MAX;

/// What the supervisor gave for a name.
pub(super) struct Grant {
    pub(super) holder: u64,
    pub(super) slot: u32,
    /// The name's row in the table.
    pub(super) row: u64,
    pub(super) log: Log<MappedPart>,
}

/// How a sync of a young file goes on.
pub(super) enum Way {
    Kept,
    /// By the kernel, and so is everything from then on.
    Outgrown,
    /// By the kernel: it is no young file, or no more.
    NotYoung,
}

pub(super) fn load(words: &[AtomicU64; 2]) -> FileId {
    FileId { device: words[0].load(Ordering::Acquire), inode: words[1].load(Ordering::Acquire) }
}

pub(super) fn store(words: &[AtomicU64; 2], file: FileId) {
    words[0].store(file.device, Ordering::Release);
    words[1].store(file.inode, Ordering::Release);
}

pub(super) const NOBODY: FileId = FileId { device: 0, inode: 0 };

impl Held {
    pub(super) const fn new() -> Held {
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
            born_ns: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            attributes: [const { AtomicU64::new(0) }; 2],
            log: UnsafeCell::new(Given::Nothing),
        }
    }

    /// Takes the place, if it is free, for `name` in `folder`; its lock is taken then, and to be
    /// given by [`Held::set_given`].
    pub(super) fn occupy(&self, folder: FileId, name: Bytes) -> bool {
        if self.is_taken() || !self.lock.take() {
            return false;
        }
        if self.is_taken() {
            // Another thread was first.
            self.lock.give();
            return false;
        }
        store(&self.folder, folder);
        for (word, bytes) in self.name.iter().zip(name.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        store(&self.file, NOBODY);
        self.tells.store(false, Ordering::SeqCst);
        self.allowed_epoch.store(0, Ordering::Relaxed);
        // The folder has a file that the kernel has made.
        self.settled.store(u64::MAX, Ordering::SeqCst);
        // Whoever is syncing the folder took his mark for another name's place.
        self.change();
        true
    }

    /// What the supervisor gave for the name, whose place [`Held::occupy`] took.
    pub(super) fn set_given(&self, given: Option<Grant>) {
        if let Some(Grant { holder, slot, row, log }) = given {
            self.holder.store(holder, Ordering::Relaxed);
            self.slot.store(slot, Ordering::Relaxed);
            self.row.store(row, Ordering::Relaxed);
            // SAFETY: L5.
            unsafe { *self.log.get() = Given::Log(log) };
            self.is_taken.store(true, Ordering::Release);
        }
        self.lock.give();
    }

    /// Whether a name is held here.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// Whether it is `name` in `folder` that is held here.
    pub(super) fn is(&self, folder: FileId, name: &Bytes) -> bool {
        self.is_taken() && self.folder() == folder && self.name() == *name
    }

    /// Which of the files that had the name.
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Something was done to the file that the strip does not have.
    pub(super) fn spoil(&self) {
        self.spoiled.store(true, Ordering::SeqCst);
    }

    /// A write of the file begins; its number.
    pub(super) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel)
    }

    /// A change of the folder begins, or has ended.
    pub(super) fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the strip may tell anything, or there is a young file.
    pub(super) fn may_tell(&self) -> bool {
        self.tells.load(Ordering::SeqCst) || self.file().is_some()
    }

    /// What `act` does with the lock. None: this very thread has it already, below a signal
    /// handler.
    pub(super) fn locked<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        self.lock.take().then(|| {
            let done = act();
            self.lock.give();
            done
        })
    }

    /// In a forked child: the name is the parent's.
    pub(super) fn leave_as_forked(&self) {
        self.lock.reset();
        // SAFETY: L5; no other thread exists here. Nothing is dropped, as the parent's mapping is
        // not here; another thread of the parent may have been storing it.
        unsafe { self.log.get().write(Given::Nothing) };
        store(&self.file, NOBODY);
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.is_taken.store(false, Ordering::Release);
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

    pub(super) fn folder(&self) -> FileId {
        load(&self.folder)
    }

    pub(super) fn name(&self) -> Bytes {
        let mut bytes = [0; NAME_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    /// What stands for it in the table.
    pub(super) fn id(&self) -> FileId {
        let bytes = self.name();
        let (name, len) = bytes.split_at(NAME_BYTES - 1);
        self.folder().name(name.get(..usize::from(len[0])).unwrap_or_default())
    }

    pub(super) fn file(&self) -> Option<FileId> {
        Some(load(&self.file)).filter(|file| *file != NOBODY)
    }

    /// Says to others which file has the name now: `now` instead of `before`. False: it is not this
    /// process's to say any more.
    fn say(&self, before: u64, now: u64) -> bool {
        let said = |words: &[AtomicU64; 2]| {
            words[1].compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        process::young(self.row.load(Ordering::Relaxed), said).unwrap_or(false)
    }

    /// The file that was just made has the name, and was born then.
    fn set_file(&self, file: FileId, born_ns: u64) -> bool {
        process::young(self.row.load(Ordering::Relaxed), |words| words[0].store(file.device, Ordering::Release));
        if !self.say(BEING_MADE, file.inode) {
            return false;
        }
        self.counts.store(false, Ordering::Release);
        self.spoiled.store(false, Ordering::Release);
        self.born_ns.store(born_ns, Ordering::Release);
        self.ended.store(self.begun.load(Ordering::Acquire), Ordering::Release);
        store(&self.file, file);
        true
    }

    /// The young file has another life from now on, or none.
    fn lose_file(&self) {
        self.say(load(&self.file).inode, 0);
        store(&self.file, NOBODY);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether what is committed here counts, by what the table and the journal say now.
    pub(super) fn is_allowed(&self) -> bool {
        let whose = (self.holder.load(Ordering::Acquire), self.slot.load(Ordering::Relaxed));
        strip::may_commit(|| self.id(), whose, &self.allowed_epoch)
    }

    /// Gives the place up.
    pub(super) fn leave(&self) {
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

    /// Has the supervisor bring the file and its folder to the disk: nothing is told of the name
    /// any more.
    pub(super) fn settle(&self) {
        let _ = line::ask(Request::Settle(self.id()), None);
        self.leave();
    }

    /// What a sync of the folder that begins now makes durable; none, if any change may be under
    /// way.
    pub(super) fn mark(&self, folder: &Stat) -> Mark {
        // First: what begins behind it counts as another.
        let changes = self.changes.load(Ordering::SeqCst);
        Mark { changes: change::quiet().then_some(changes), attributes: attributes(folder) }
    }

    fn is_settled(&self) -> bool {
        self.changes.load(Ordering::SeqCst) == self.settled.load(Ordering::SeqCst)
    }

    /// The kernel has synced the folder.
    fn set_settled(&self, mark: Mark) {
        if let Some(changes) = mark.changes {
            self.attributes.iter().zip(mark.attributes).for_each(|(known, now)| known.store(now, Ordering::SeqCst));
            self.settled.store(changes, Ordering::SeqCst);
        }
    }

    /// Notes write `number` of the file, which has ended. False: another file has the name by now,
    /// or none.
    pub(super) fn note(&self, generation: u32, number: u64, place: Place, bytes: Option<&[u8]>) -> bool {
        if !self.lock.take() {
            // A signal handler, come between the lines of what it interrupted.
            self.spoil();
            self.ended.fetch_add(1, Ordering::AcqRel);
            return true;
        }
        let same = self.generation() == generation && self.is_taken();
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
                self.spoil();
            }
            self.ended.fetch_add(1, Ordering::AcqRel);
        }
        self.lock.give();
        same
    }

    /// Commits what the file of `descriptor` is now.
    pub(super) fn commit(&self, descriptor: i32, generation: u32) -> Way {
        let Some(stat) = asked::stat(descriptor).filter(|_| self.lock.take()) else { return Way::Outgrown };
        let same = self.generation() == generation && self.is_file(&stat, asked::born_ns(descriptor));
        let way = if same { self.commit_locked(descriptor, &stat) } else { Way::NotYoung };
        if matches!(way, Way::Outgrown) {
            // Another thread is not to commit what is older than what the kernel is going to
            // promise.
            self.spoil();
        }
        self.lock.give();
        way
    }

    /// Whether `stat` describes the young file: inodes are used again.
    fn is_file(&self, stat: &Stat, born_ns: Option<u64>) -> bool {
        self.file() == Some(asked::id(stat)) && born_ns == Some(self.born_ns.load(Ordering::Acquire))
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
        let mut room = [MaybeUninit::uninit(); PATH_BYTES];
        let Some((above, _)) = path_of(descriptor, &mut room).and_then(divided) else { return false };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = with_end(above, |above| rustix::fs::open(above, flags, Mode::empty()));
        let Some(Ok(folder)) = opened else { return false };
        let stat = rustix::fs::fstat(&folder).ok().filter(|stat| asked::id(stat) == self.folder());
        let mark = stat.map(|stat| self.mark(&stat));
        let synced = mark.filter(|_| rustix::fs::fsync(&folder).is_ok());
        line::close(folder.into_raw_fd());
        synced.into_iter().for_each(|mark| self.set_settled(mark));
        synced.is_some()
    }

    /// Whether nothing of the folder has to be made durable, as far as it is about this name.
    pub(super) fn is_told(&self, folder: &Stat) -> bool {
        let told = self.file().is_none() || self.counts.load(Ordering::Acquire);
        let known =
            self.attributes.iter().zip(attributes(folder)).all(|(known, now)| known.load(Ordering::SeqCst) == now);
        told && known && self.is_settled() && self.is_allowed()
    }

    /// Commits what the young file is now, if it has a name that is not durable, and can be
    /// followed: its folder is behind `descriptor`.
    pub(super) fn tell(&self, descriptor: i32) {
        let Some(file) = self.file().filter(|_| !self.counts.load(Ordering::Acquire) && self.lock.take()) else {
            return;
        };
        let bytes = self.name();
        let name = bytes.get(..usize::from(bytes[NAME_BYTES - 1])).unwrap_or_default();
        let stat = with_end(name, |name| rustix::fs::statat(borrowed(descriptor), name, AtFlags::SYMLINK_NOFOLLOW));
        // The kernel has it below this name, in a folder whose changes are all told of; and nobody
        // else removed what is young.
        if let Some(Ok(stat)) = stat
            && asked::id(&stat) == file
            && self.file() == Some(file)
        {
            self.commit_whole(&stat);
        }
        self.lock.give();
    }

    /// The kernel synced the folder, with these changes, and with the file of `generation`: if the
    /// strip does not tell of that, it tells nothing from now on.
    pub(super) fn folder_synced(&self, mark: Mark, generation: u32) {
        self.set_settled(mark);
        let same = || self.generation() == generation;
        let untold = || same() && self.file().is_some() && !self.counts.load(Ordering::Acquire);
        if untold() && self.locked(|| !untold() || self.disclaim()) != Some(true) {
            self.settle();
        }
    }

    /// The kernel synced the file behind `descriptor`: from now on it is like any other.
    pub(super) fn outgrown(&self, descriptor: i32, generation: u32) {
        let told = self.lock.take() && {
            let same = self.generation() == generation && self.file().is_some();
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
            // From now on it is a file that the folder got untold.
            self.change();
            self.lose_file();
        }
        disclaimed
    }

    /// Makes the young file that `open` asks for, unless there is one, or another file has the
    /// name. The lock is held. Its descriptor, and whether it is young: if not, it has a name of
    /// which the strip may tell something else.
    pub(super) fn create(
        &self,
        folder: BorrowedFd<'_>,
        path: &CStr,
        flags: OFlags,
        mode: mode_t,
    ) -> Option<(i32, bool)> {
        let fits = flags.intersects(OFlags::RDWR | OFlags::WRONLY)
            && !flags.intersects(OFlags::SYNC | OFlags::DSYNC | OFlags::DIRECT | OFlags::PATH | OFlags::APPEND);
        // Whoever gets to know the file before its number is told remembers nothing of it.
        if !fits || self.file().is_some() || !self.is_allowed() || !self.say(0, BEING_MADE) {
            return None;
        }
        // Not a point where a thread is cancelled.
        let made = rustix::fs::openat(folder, path, flags | OFlags::EXCL, Mode::from_raw_mode(mode & 0o7777));
        let Ok(made) = made else {
            self.say(BEING_MADE, 0);
            return None;
        };
        let descriptor = made.into_raw_fd();
        let file = asked::file_of(descriptor).zip(asked::born_ns(descriptor));
        // SAFETY: L5.
        let begun = file.filter(|(_, born)| unsafe { self.log() }.is_some_and(|log| log.begin(*born).is_ok()));
        let is_young = begun.is_some_and(|(file, born)| self.set_file(file, born));
        if !is_young {
            self.change();
            self.say(BEING_MADE, 0);
        }
        Some((descriptor, is_young))
    }

    /// Removes the young file by `path`, if that is its only name. The lock is held. What became of
    /// it, and whether the strip tells so.
    pub(super) fn remove(&self, folder: c_int, path: &CStr) -> Option<(Result<(), Errno>, bool)> {
        let file = self.file()?;
        let is_it = matches!(named(GivenPath::of(folder, path), false), Named::File(found, 1) if found == file);
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
