//! A file that this process holds: where it was written since its last sync.

use crate::lock::Lock;
use crate::process;
use crate::strip::{self, OwnStrips};
use rustix::fs::Stat;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tidegate_preload_wire::{COMMON, FileId, RANGES_MAX, Range};
use tidegate_wal::strip::{FILLING_RANGES_MAX, Left, Staged};

/// A place for a held file. All fields but `doubt` are changed under the lock.
pub(crate) struct Held {
    lock: Lock,
    state: AtomicU32,
    generation: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    hold: AtomicU64,
    /// The holder's number in the table; 0: the supervisor has not answered yet.
    holder: AtomicU64,
    /// The table's epoch when it last said that this process holds the file.
    epoch: AtomicU32,
    /// Where something was written that cannot be noted.
    doubt: AtomicBool,
    /// Whether anything was appended.
    appended: AtomicBool,
    /// The size at the last sync: appended bytes lie behind it.
    base: AtomicU64,
    /// Bytes that the file has by all that was noted: if it has more while no write is under way,
    /// something was appended that no export saw.
    end: AtomicU64,
    /// What a sync makes durable besides, as it was when it was last durable.
    attributes: [AtomicU64; 3],
    /// Writes that began, and those that ended: one that began last and ends next was alone. Both
    /// count one more at each take, so that no write is alone that was under way then: another one
    /// may have been made durable since.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The table's epoch when it last said that commits to the strips count.
    allowed_epoch: AtomicU32,
    /// The slot that the strips are about.
    slot: AtomicU32,
    /// What was kept or put on the strip reaches to here: a shorter file was cut by somebody else.
    top: AtomicU64,
    /// Whether nothing is put on either strip: what the one being filled is about is being made
    /// durable elsewhere, and a sync waits for that. It does not tell of a filling that was handed
    /// over.
    absorbing: AtomicBool,
    strip: UnsafeCell<Given>,
    count: AtomicUsize,
    ranges: [[AtomicU64; 2]; NOTES_MAX],
}

// SAFETY: L5; everything else is atomic.
unsafe impl Sync for Held {}

/// Ranges that are noted at most. What else a sync is about is what was appended, and what the
/// strip is about.
const NOTES_MAX: usize = RANGES_MAX - FILLING_RANGES_MAX - 1;

/// What the supervisor gave for a file. Nothing is all zeroes, so that places cost no bytes of the
/// library's file.
#[repr(u8)]
#[expect(clippy::large_enum_variant, reason = "nothing is allocated here")]
enum Given {
    Nothing = 0,
    Strips(OwnStrips) = 1,
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// A filling that was handed over.
pub(crate) struct Full {
    /// Its number.
    pub(crate) filling: u32,
    ranges: [Range; FILLING_RANGES_MAX],
    count: usize,
}

impl Full {
    /// What it is about.
    pub(crate) fn ranges(&self) -> &[Range] {
        &self.ranges[..self.count]
    }
}

/// What was written since the last sync.
pub(crate) struct Dirty {
    /// The ranges, as many as there are.
    pub(crate) ranges: [Range; RANGES_MAX],
    /// How many there are.
    pub(crate) count: usize,
    /// Where the appended bytes begin, if there are any. They go to the end of the file.
    pub(crate) appended_from: Option<u64>,
    /// Whether there is more than that.
    pub(crate) doubt: bool,
    /// The filling of the strip that is among the ranges; 0: none.
    pub(crate) filling: u32,
}

/// What [`Held::take`] found.
#[expect(clippy::large_enum_variant, reason = "nothing is allocated here, and it lives on the stack for a moment")]
pub(crate) enum Taken {
    /// Everything lay on the strip, and is durable there now; so much room is left.
    Committed(Left),
    /// It is to be made durable elsewhere; nothing is put on the strip until that is told.
    Dirty(Dirty),
}

impl Dirty {
    /// What nobody could note.
    pub(crate) fn in_doubt() -> Dirty {
        Dirty { ranges: [(0, 0); RANGES_MAX], count: 0, appended_from: None, doubt: true, filling: 0 }
    }
}

/// Where a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Here.
    Range(Range),
    /// To the end of the file, wherever that was.
    End,
    /// Nobody knows.
    Unknown,
}

impl Held {
    /// A free place.
    pub(crate) const fn new() -> Held {
        Held {
            lock: Lock::new(),
            state: AtomicU32::new(FREE),
            generation: AtomicU32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            hold: AtomicU64::new(0),
            holder: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            doubt: AtomicBool::new(false),
            appended: AtomicBool::new(false),
            base: AtomicU64::new(0),
            end: AtomicU64::new(0),
            attributes: [const { AtomicU64::new(0) }; 3],
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            allowed_epoch: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            top: AtomicU64::new(0),
            absorbing: AtomicBool::new(false),
            strip: UnsafeCell::new(Given::Nothing),
            count: AtomicUsize::new(0),
            ranges: [const { [const { AtomicU64::new(0) }; 2] }; NOTES_MAX],
        }
    }

    /// Takes a free place for the file that `stat` describes.
    pub(crate) fn occupy(&self, stat: &Stat) -> bool {
        let free = self.state.load(Ordering::Acquire) == FREE;
        let taken = free && self.lock.take();
        if !taken {
            return false;
        }
        let still_free = self.state.load(Ordering::Relaxed) == FREE;
        if still_free {
            self.device.store(stat.st_dev, Ordering::Relaxed);
            self.inode.store(stat.st_ino, Ordering::Relaxed);
            self.base.store(stat.st_size.unsigned_abs(), Ordering::Relaxed);
            self.end.store(stat.st_size.unsigned_abs(), Ordering::Relaxed);
            self.remember(UNKNOWN);
            self.holder.store(0, Ordering::Relaxed);
            self.begun.store(0, Ordering::Relaxed);
            self.ended.store(0, Ordering::Relaxed);
            self.absorbing.store(false, Ordering::Relaxed);
            self.top.store(0, Ordering::Relaxed);
            // SAFETY: L5. What an older hold was given is unmapped here at the latest.
            unsafe { *self.strip.get() = Given::Nothing };
            self.count.store(0, Ordering::Relaxed);
            self.appended.store(false, Ordering::Relaxed);
            self.doubt.store(true, Ordering::Relaxed);
            // Release: whoever sees the place taken sees whose it is.
            self.state.store(TAKEN, Ordering::Release);
        }
        self.lock.give();
        still_free
    }

    /// Gives the place up. Descriptors that point to it will find another generation.
    pub(crate) fn leave(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.state.store(FREE, Ordering::Release);
        if self.lock.take() {
            // Nobody has come since: the strip is given back.
            if !self.is_taken() {
                // SAFETY: L5.
                unsafe { *self.strip.get() = Given::Nothing };
            }
            self.lock.give();
        }
    }

    /// The same in a forked child, whose other threads are gone.
    pub(crate) fn leave_as_forked(&self) {
        self.lock.reset();
        // SAFETY: L5; no other thread exists here. Nothing is dropped, as the parent's mapping is
        // not here; another thread of the parent may have been storing it.
        unsafe { self.strip.get().write(Given::Nothing) };
        if self.is_taken() {
            self.leave();
        }
    }

    /// Whether a file is held here.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Acquire) == TAKEN
    }

    /// Which of the files that were held here it is.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The file.
    pub(crate) fn file(&self) -> FileId {
        FileId { device: self.device.load(Ordering::Relaxed), inode: self.inode.load(Ordering::Relaxed) }
    }

    /// The number of the hold.
    pub(crate) fn hold(&self) -> u64 {
        self.hold.load(Ordering::Relaxed)
    }

    /// The supervisor gave it this number, and entered this process as `holder`.
    pub(crate) fn set_hold(&self, hold: u64, holder: u64) {
        self.hold.store(hold, Ordering::Relaxed);
        self.holder.store(holder, Ordering::Release);
    }

    /// Whether this process still holds the file, as far as the table tells: the supervisor may
    /// have let go of it because somebody else asked. If not, the place is given up.
    pub(crate) fn is_in_force(&self) -> bool {
        let (holder, epoch) = (self.holder.load(Ordering::Acquire), process::epoch());
        if holder == 0 {
            // The supervisor has not answered yet, and will not let it hold a file that others
            // write too.
            return process::row_of(self.file()).is_none_or(|row| row.holder != COMMON);
        }
        if self.epoch.load(Ordering::Relaxed) == epoch {
            return true;
        }
        let in_force = process::row_of(self.file()).is_some_and(|row| row.holder == holder);
        if in_force {
            self.epoch.store(epoch, Ordering::Relaxed);
        } else {
            self.leave();
        }
        in_force
    }

    /// The next sync is the kernel's.
    pub(crate) fn put_in_doubt(&self) {
        self.doubt.store(true, Ordering::SeqCst);
    }

    /// The supervisor gave these strips for `slot`.
    pub(crate) fn set_strip(&self, given: Range, slot: u32) {
        if self.lock.take() {
            // SAFETY: L5.
            unsafe { *self.strip.get() = strip::open(given, slot).map_or(Given::Nothing, Given::Strips) };
            self.slot.store(slot, Ordering::Relaxed);
            self.allowed_epoch.store(0, Ordering::Relaxed);
            self.lock.give();
        }
    }

    /// The strips, if there are any.
    ///
    /// # Safety
    /// L5: the lock is held as long as they are used.
    #[expect(clippy::mut_from_ref, reason = "the lock is what makes it one's own")]
    unsafe fn strips(&self) -> Option<&mut OwnStrips> {
        // SAFETY: the caller's promise.
        match unsafe { &mut *self.strip.get() } {
            Given::Nothing => None,
            Given::Strips(strips) => Some(strips),
        }
    }

    /// A write begins; its number.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel)
    }

    /// Notes write `number`, which has ended, of `bytes` if they are known. False: the place is
    /// another file's by now.
    pub(crate) fn note(&self, generation: u32, number: u64, place: Place, bytes: Option<&[u8]>) -> bool {
        if !self.lock.take() {
            // A signal handler, come between the lines of what it interrupted.
            self.put_in_doubt();
            self.ended.fetch_add(1, Ordering::AcqRel);
            return true;
        }
        let same = self.generation() == generation && self.is_taken();
        if let Place::Range((at, len)) = place {
            self.reaches(at.saturating_add(len));
        }
        match place {
            Place::Range(range) if same && self.is_staged(number, range, bytes) => {}
            Place::Range(range) if same => self.add(range),
            Place::End if same => self.appended.store(true, Ordering::Relaxed),
            _ => self.put_in_doubt(),
        }
        if same {
            self.ended.fetch_add(1, Ordering::AcqRel);
        }
        self.lock.give();
        same
    }

    /// It is known why the file has so many bytes. The lock is held.
    fn reaches(&self, end: u64) {
        self.end.store(self.end.load(Ordering::Relaxed).max(end), Ordering::Relaxed);
    }

    /// Looks at a size that the kernel told before the lock was taken, and puts the file in doubt
    /// if nobody noted how it came to be so long. What is being written is noted when it has ended.
    /// The lock is held.
    fn look_at(&self, size: u64) {
        let idle = self.begun.load(Ordering::Acquire) == self.ended.load(Ordering::Acquire);
        // What was appended lies between two ends.
        if idle && size > self.end.load(Ordering::Relaxed) && !self.appended.load(Ordering::Relaxed) {
            self.put_in_doubt();
            self.reaches(size);
        }
    }

    /// Somebody else cut the file to `size` bytes.
    pub(crate) fn is_cut(&self, size: u64) {
        if self.lock.take() {
            self.end.store(size, Ordering::Relaxed);
            self.lock.give();
        }
    }

    /// Puts a write on the strip, if it was alone and there is room. The lock is held.
    fn is_staged(&self, number: u64, (at, len): Range, bytes: Option<&[u8]>) -> bool {
        let alone = self.ended.load(Ordering::Acquire) == number && self.begun.load(Ordering::Acquire) == number + 1;
        let whole = bytes.filter(|bytes| bytes.len() as u64 == len && len > 0);
        // SAFETY: L5.
        let Some((strips, bytes)) = unsafe { self.strips() }.zip(whole) else { return false };
        let staged = alone && !self.absorbing.load(Ordering::Relaxed) && strips.stage(at, bytes) == Ok(Staged::There);
        if staged {
            self.top.fetch_max(at + len, Ordering::Relaxed);
        }
        staged
    }

    fn add(&self, (at, len): Range) {
        let count = self.count.load(Ordering::Relaxed);
        let last = count.checked_sub(1).and_then(|last| self.ranges.get(last));
        if let Some([from, bytes]) = last {
            let (from, known) = (from.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            let end = from.saturating_add(known);
            if (from..=end).contains(&at) {
                bytes.store(known.max(at - from + len), Ordering::Relaxed);
                return;
            }
        }
        match self.ranges.get(count) {
            Some([from, bytes]) => {
                from.store(at, Ordering::Relaxed);
                bytes.store(len, Ordering::Relaxed);
                self.count.store(count + 1, Ordering::Relaxed);
            }
            _ => self.put_in_doubt(),
        }
    }

    /// Takes all notes; the place is as after a sync. If the strip has everything, of a file of
    /// `size` bytes now, and `may_commit`, that is committed instead.
    pub(crate) fn take(&self, size: u64, may_commit: bool) -> Taken {
        if !self.lock.take() {
            return Taken::Dirty(Dirty::in_doubt());
        }
        self.look_at(size);
        let committed = if may_commit { self.committed(size) } else { None };
        let taken = committed.map_or_else(|| Taken::Dirty(self.dirty()), Taken::Committed);
        self.lock.give();
        taken
    }

    /// Commits what was staged, if that is everything; how much room is left.
    fn committed(&self, size: u64) -> Option<Left> {
        let noted = self.doubt.load(Ordering::SeqCst)
            || self.count.load(Ordering::Relaxed) > 0
            || self.appended.load(Ordering::Relaxed);
        // Somebody else cut the file.
        let cut = size < self.top.load(Ordering::Relaxed);
        // SAFETY: L5.
        let strips = unsafe { self.strips() }.filter(|_| !noted && !cut)?;
        strips.commit().ok().map(|()| strips.left())
    }

    /// Goes on with the other strip, if it is free and all that was staged is committed: the full
    /// filling is to be absorbed, of a file of `size` bytes, which is at least as long as when that
    /// was committed.
    pub(crate) fn turn(&self, generation: u32, size: u64) -> Option<Full> {
        self.lock.take().then_some(())?;
        let same = self.generation() == generation && self.is_taken() && !self.absorbing.load(Ordering::Relaxed);
        // SAFETY: L5.
        let full = unsafe { self.strips() }.filter(|_| same).and_then(|strips| {
            let mut full = Full { filling: strips.filling(), ranges: [(0, 0); FILLING_RANGES_MAX], count: 0 };
            full.count = strips.ranges().len();
            full.ranges[..full.count].copy_from_slice(strips.ranges());
            strips.turn().then_some(full)
        });
        if full.is_some() {
            // The pool will have a file that long.
            self.top.fetch_max(size, Ordering::Relaxed);
        }
        self.lock.give();
        full
    }

    fn dirty(&self) -> Dirty {
        let mut dirty = Dirty::in_doubt();
        dirty.doubt = self.doubt.swap(false, Ordering::SeqCst);
        dirty.count = self.count.swap(0, Ordering::Relaxed).min(NOTES_MAX);
        for (range, [at, len]) in dirty.ranges.iter_mut().zip(&self.ranges).take(dirty.count) {
            *range = (at.load(Ordering::Relaxed), len.load(Ordering::Relaxed));
        }
        let appended = self.appended.swap(false, Ordering::Relaxed);
        dirty.appended_from = appended.then(|| self.base.load(Ordering::Relaxed));
        self.absorbing.store(true, Ordering::Relaxed);
        // SAFETY: L5.
        if let Some(strips) = unsafe { self.strips() }.filter(|strips| !strips.ranges().is_empty()) {
            let room = dirty.ranges.iter_mut().skip(dirty.count);
            room.zip(strips.ranges()).for_each(|(range, known)| *range = *known);
            dirty.count += strips.ranges().len();
            dirty.filling = strips.filling();
        }
        // Behind the notes: whoever noted something since finds these.
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.ended.fetch_add(1, Ordering::AcqRel);
        dirty
    }

    /// Bytes that the file has at least, if nobody else cut it.
    pub(crate) fn top(&self) -> u64 {
        self.top.load(Ordering::Relaxed)
    }

    /// Whether the supervisor lets this process commit to the strip, and nobody said that nobody
    /// may. If not, what was committed just now may count for nothing.
    pub(crate) fn may_commit(&self) -> bool {
        let whose = (self.holder.load(Ordering::Acquire), self.slot.load(Ordering::Relaxed));
        strip::may_commit(|| self.file(), whose, &self.allowed_epoch)
    }

    /// What [`Held::take`] gave is durable, of a file of `size` bytes, and `filling` counts no
    /// more, if it is not 0.
    pub(crate) fn kept(&self, filling: u32, size: u64) {
        if self.lock.take() {
            self.top.fetch_max(size, Ordering::Relaxed);
            if filling > 0 {
                self.begin_behind(filling);
            }
            self.absorbing.store(false, Ordering::Relaxed);
            self.lock.give();
        }
    }

    /// Whether the answer about `filling`, which [`Held::turn`] gave, may be there: the supervisor
    /// clears its strip first. Without a system call.
    pub(crate) fn may_be_absorbed(&self, generation: u32, filling: u32) -> bool {
        if !self.lock.take() {
            return false;
        }
        let same = self.generation() == generation && self.is_taken();
        // SAFETY: L5.
        let clear = unsafe { self.strips() }.filter(|_| same).is_none_or(|strips| strips.is_clear(filling));
        self.lock.give();
        clear
    }

    /// What [`Held::turn`] gave is durable elsewhere, and `filling` counts no more. From a signal
    /// handler that interrupted the lock's holder this is left out: the strip stays taken until the
    /// next filling is absorbed, as that frees those before it too.
    pub(crate) fn absorbed(&self, generation: u32, filling: u32) {
        if self.lock.take() {
            if self.generation() == generation && self.is_taken() {
                self.begin_behind(filling);
            }
            self.lock.give();
        }
    }

    /// The strip of `filling` is free. The lock is held.
    fn begin_behind(&self, filling: u32) {
        // SAFETY: L5.
        let more = unsafe { self.strips() }.is_none_or(|strips| strips.absorbed(filling));
        if !more {
            // SAFETY: L5.
            unsafe { *self.strip.get() = Given::Nothing };
        }
    }

    /// What was kept is forgotten, and the file has `size` bytes: its slot is `slot` from now on.
    pub(crate) fn begin_anew(&self, slot: u32, size: u64) {
        if self.lock.take() {
            self.slot.store(slot, Ordering::Relaxed);
            self.allowed_epoch.store(0, Ordering::Relaxed);
            self.top.store(size, Ordering::Relaxed);
            // SAFETY: L5.
            unsafe { self.strips() }.into_iter().for_each(|strips| strips.forgotten(slot));
            self.absorbing.store(false, Ordering::Relaxed);
            self.lock.give();
        } else {
            self.put_in_doubt();
        }
    }

    /// The kernel could not sync: the next one is the kernel's too, and what lies on the strip
    /// stays.
    pub(crate) fn not_synced(&self) {
        self.put_in_doubt();
        self.absorbing.store(false, Ordering::Relaxed);
    }

    /// Whether what is now was durable last.
    pub(crate) fn knows(&self, now: Attributes) -> bool {
        self.attributes.iter().zip(now).all(|(known, now)| known.load(Ordering::Relaxed) == now)
    }

    /// All of this is durable.
    pub(crate) fn remember(&self, durable: Attributes) {
        for (known, now) in self.attributes.iter().zip(durable) {
            known.store(now, Ordering::Relaxed);
        }
    }

    /// All that was appended before the file had `size` bytes was synced, noted or not. What is
    /// appended from now on lies behind it, unless somebody appended since and noted it.
    pub(crate) fn set_base(&self, size: u64) {
        if self.lock.take() {
            if !self.appended.load(Ordering::Relaxed) {
                self.base.store(size, Ordering::Relaxed);
            }
            self.reaches(size);
            self.lock.give();
        }
    }
}

/// What a whole sync makes durable besides contents and size: mode, owner, and how many names there
/// are.
pub(crate) type Attributes = [u64; 3];

/// No file's.
const UNKNOWN: Attributes = [u64::MAX; 3];

/// What `stat` says of them.
pub(crate) fn attributes(stat: &Stat) -> Attributes {
    #[allow(clippy::useless_conversion, reason = "the count of names is narrower elsewhere")]
    let names = u64::from(stat.st_nlink);
    [u64::from(stat.st_mode), u64::from(stat.st_uid) << 32 | u64::from(stat.st_gid), names]
}
