//! A file that this process holds: where it was written since its last sync.

use crate::lock::Lock;
use crate::process;
use rustix::fs::Stat;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tidegate_preload_wire::{FileId, RANGES_MAX, Range};

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
    /// What a sync makes durable besides, as it was when it was last durable.
    attributes: [AtomicU64; 3],
    count: AtomicUsize,
    ranges: [[AtomicU64; 2]; RANGES_MAX],
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;

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
}

impl Dirty {
    /// What nobody could note.
    pub(crate) fn in_doubt() -> Dirty {
        Dirty { ranges: [(0, 0); RANGES_MAX], count: 0, appended_from: None, doubt: true }
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
            attributes: [const { AtomicU64::new(0) }; 3],
            count: AtomicUsize::new(0),
            ranges: [const { [const { AtomicU64::new(0) }; 2] }; RANGES_MAX],
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
            self.remember(UNKNOWN);
            self.holder.store(0, Ordering::Relaxed);
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
    }

    /// The same in a forked child, whose other threads are gone.
    pub(crate) fn leave_as_forked(&self) {
        self.lock.reset();
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

    /// Whether this process still holds the file, as far as the table tells: the supervisor may have let go of it because somebody else asked. If not, the place
    /// is given up.
    pub(crate) fn is_in_force(&self) -> bool {
        let (holder, epoch) = (self.holder.load(Ordering::Acquire), process::epoch());
        if holder == 0 || self.epoch.load(Ordering::Relaxed) == epoch {
            return true;
        }
        let in_force = process::holder_of(self.file()) == Some(holder);
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

    /// Notes a write. False: the place is another file's by now.
    pub(crate) fn note(&self, generation: u32, place: Place) -> bool {
        if !self.lock.take() {
            // A signal handler, come between the lines of what it interrupted.
            self.put_in_doubt();
            return true;
        }
        let same = self.generation() == generation && self.is_taken();
        match place {
            Place::Range(range) if same => self.add(range),
            Place::End if same => self.appended.store(true, Ordering::Relaxed),
            _ => self.put_in_doubt(),
        }
        self.lock.give();
        same
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
            // One stays free for what was appended.
            Some([from, bytes]) if count + 1 < RANGES_MAX => {
                from.store(at, Ordering::Relaxed);
                bytes.store(len, Ordering::Relaxed);
                self.count.store(count + 1, Ordering::Relaxed);
            }
            _ => self.put_in_doubt(),
        }
    }

    /// Takes all notes; the place is as after a sync.
    pub(crate) fn take(&self) -> Dirty {
        let mut dirty = Dirty::in_doubt();
        if !self.lock.take() {
            return dirty;
        }
        dirty.doubt = self.doubt.swap(false, Ordering::SeqCst);
        dirty.count = self.count.swap(0, Ordering::Relaxed).min(RANGES_MAX - 1);
        for (range, [at, len]) in dirty.ranges.iter_mut().zip(&self.ranges).take(dirty.count) {
            *range = (at.load(Ordering::Relaxed), len.load(Ordering::Relaxed));
        }
        let appended = self.appended.swap(false, Ordering::Relaxed);
        dirty.appended_from = appended.then(|| self.base.load(Ordering::Relaxed));
        self.lock.give();
        dirty
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

    /// All that was appended before the file had `size` bytes was synced, noted or not. What is appended from now on lies behind it, unless
    /// somebody appended since and noted it.
    pub(crate) fn set_base(&self, size: u64) {
        if self.lock.take() {
            if !self.appended.load(Ordering::Relaxed) {
                self.base.store(size, Ordering::Relaxed);
            }
            self.lock.give();
        }
    }
}

/// What a whole sync makes durable besides contents and size: mode, owner, and how many names there are.
pub(crate) type Attributes = [u64; 3];

/// No file's.
const UNKNOWN: Attributes = [u64::MAX; 3];

/// What `stat` says of them.
pub(crate) fn attributes(stat: &Stat) -> Attributes {
    #[allow(clippy::useless_conversion, reason = "the count of names is narrower elsewhere")]
    let names = u64::from(stat.st_nlink);
    [u64::from(stat.st_mode), u64::from(stat.st_uid) << 32 | u64::from(stat.st_gid), names]
}
