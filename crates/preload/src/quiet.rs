//! Second, *quiet* descriptors of files that were opened loudly (O_SYNC, O_DSYNC): what is written
//! through them does not wait for the disk.
//!
//! A process that closes any descriptor of a file drops its record locks on it. So a quiet
//! descriptor is closed only where the one that it stands for is closed too, which drops them
//! anyway, and otherwise stays open, needed or not. What closes it besides is exec and a program
//! that closes numbers that it never opened.

use crate::asked::{self, file_of, flags};
use crate::lock::Lock;
use crate::process::Copies;
use crate::{line, process};
use rustix::fs::{Mode, OFlags};
use std::ops::RangeInclusive;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tidegate_preload_wire::FileId;

/// Descriptors that one process has quiet ones for at most.
const PAIRS_MAX: usize = 64;

/// One more than a descriptor, and in the high half the number of its quiet one; 0: a free place.
static PAIRS: [AtomicU64; PAIRS_MAX] = [const { AtomicU64::new(0) }; PAIRS_MAX];
/// Places that were ever taken: the first ones.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Held while a quiet descriptor is opened: one too many could not be closed again.
static OPENING: Lock = Lock::new();

/// What decides where and how a write is made that must not wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quiet {
    /// The quiet descriptor.
    pub(crate) number: i32,
    /// Whether what is written goes to the end.
    pub(crate) appends: bool,
    /// Whether each write makes the file's attributes durable too.
    pub(crate) whole: bool,
}

/// Whether each write through a descriptor that was opened so is a sync.
pub(crate) fn is_loud(flags: OFlags) -> bool {
    asked::may_write(flags) && flags.intersects(OFlags::SYNC | OFlags::DSYNC)
}

#[derive(Clone, Copy)]
struct Pair {
    descriptor: i32,
    number: i32,
}

impl Pair {
    fn word(self) -> u64 {
        (u64::from(self.descriptor.unsigned_abs()) + 1) | u64::from(self.number.unsigned_abs()) << 32
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "the halves are cut out of the word"
    )]
    fn of(word: u64) -> Option<Pair> {
        (word != 0).then(|| Pair { descriptor: (word as u32 - 1) as i32, number: (word >> 32) as i32 })
    }

    /// What the kernel says of the quiet descriptor, if it may still stand for the other one: any
    /// number may have been closed behind our back, and mean something else by now.
    fn quiet(self, file: FileId) -> Option<Quiet> {
        let (loud, quiet) = (flags(self.descriptor), flags(self.number));
        let alike = loud.contains(OFlags::APPEND) == quiet.contains(OFlags::APPEND);
        let pair = is_loud(loud) && asked::may_write(quiet) && !is_loud(quiet) && alike;
        let buffered = !(loud | quiet).contains(OFlags::DIRECT);
        let same = pair && buffered && [self.descriptor, self.number].map(file_of) == [Some(file); 2];
        let appends = loud.contains(OFlags::APPEND);
        same.then_some(Quiet { number: self.number, appends, whole: loud.contains(OFlags::SYNC) })
    }

    /// Whether both numbers still lead to one file.
    fn is_one(self) -> bool {
        let file = file_of(self.descriptor);
        file.is_some() && file == file_of(self.number)
    }
}

fn pairs() -> impl Iterator<Item = (&'static AtomicU64, Pair)> {
    let used = &PAIRS[..USED.load(Ordering::Acquire).min(PAIRS_MAX)];
    used.iter().filter_map(|place| Pair::of(place.load(Ordering::Acquire)).map(|pair| (place, pair)))
}

/// The quiet descriptor of `descriptor`, which is one of `file`, if it has one and both are as they
/// were.
pub(crate) fn of(descriptor: i32, file: FileId) -> Option<Quiet> {
    pairs().find(|(_, pair)| pair.descriptor == descriptor)?.1.quiet(file)
}

/// The same, opened now if there is none. None besides: it cannot be had.
pub(crate) fn open(descriptor: i32, file: FileId) -> Option<Quiet> {
    if !process::owns_memory() {
        // A child that shares this memory may have the descriptors of its parent still, but what it
        // opens is not its parent's.
        return of(descriptor, file);
    }
    // Below a signal handler that came in between, none is opened.
    if !OPENING.take() {
        return None;
    }
    let quiet = of(descriptor, file).or_else(|| opened(descriptor, file));
    OPENING.give();
    quiet
}

fn opened(descriptor: i32, file: FileId) -> Option<Quiet> {
    // What stands there is about a file that this number does not lead to any more, or not in this
    // way.
    forget(|pair| pair.descriptor == descriptor);
    let place = PAIRS.iter().position(|place| place.load(Ordering::Acquire) == 0)?;
    let loud = flags(descriptor);
    let fits = is_loud(loud) && !loud.contains(OFlags::DIRECT);
    if !fits || STREAMS.into_iter().any(|stream| asked::stat(stream).is_none()) {
        return None;
    }
    let how = OFlags::WRONLY | OFlags::CLOEXEC | loud & OFlags::APPEND;
    let open = |name: &_| rustix::fs::open(name, how, Mode::empty());
    let number = asked::with_name(descriptor, open)?.ok()?.into_raw_fd();
    if STREAMS.contains(&number) {
        // Another thread closed that number meanwhile, and streams write there without asking.
        line::close(number);
        return None;
    }
    let pair = Pair { descriptor, number };
    PAIRS[place].store(pair.word(), Ordering::Release);
    USED.fetch_max(place + 1, Ordering::AcqRel);
    pair.quiet(file)
}

/// The numbers of the standard streams: a quiet descriptor never gets one of them.
const STREAMS: RangeInclusive<i32> = 0..=2;

/// Whether `number` is a quiet descriptor, which the program did not open.
pub(crate) fn is_own(number: i32) -> bool {
    let found = pairs().find(|(_, pair)| pair.number == number);
    found.is_some_and(|(_, pair)| pair.is_one() || !process::owns_memory())
}

/// The descriptor is going to be closed, or another one to be copied over it: its quiet one is
/// returned and known no more.
pub(crate) fn take(descriptor: i32) -> Option<i32> {
    let (place, pair) = pairs().find(|(_, pair)| pair.descriptor == descriptor)?;
    // A child between vfork and exec closes numbers of its own.
    let ours = process::owns_memory() && is_removed(place, pair);
    (ours && pair.is_one()).then_some(pair.number)
}

/// What [`take`] returned, as `descriptor` was not closed.
pub(crate) fn put_back(descriptor: i32, number: i32) {
    let word = Pair { descriptor, number }.word();
    let taken = |place: &&AtomicU64| place.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // It was in one of the places that were ever taken. If none is free, it stays open for nothing.
    let _ = PAIRS[..USED.load(Ordering::Acquire).min(PAIRS_MAX)].iter().find(taken);
}

/// The descriptors from `first` to `last` are going to be closed: so are their quiet ones.
pub(crate) fn close_among(first: u32, last: u32) {
    let among = |number: i32| (first..=last).contains(&number.unsigned_abs());
    if pairs().any(|(_, pair)| among(pair.descriptor) || among(pair.number)) {
        pairs()
            .filter(|(_, pair)| among(pair.descriptor))
            .filter_map(|(_, pair)| take(pair.descriptor))
            .for_each(line::close);
        forget(|pair| among(pair.number));
    }
}

/// The program was given this number: it is no quiet descriptor, or no more.
pub(crate) fn lost(number: i32) {
    forget(|pair| pair.number == number);
}

fn forget(which: impl Fn(Pair) -> bool) {
    let mut found = pairs().filter(|(_, pair)| which(*pair)).peekable();
    if found.peek().is_some() && process::owns_memory() {
        found.for_each(|(place, pair)| {
            is_removed(place, pair);
        });
    }
}

fn is_removed(place: &AtomicU64, pair: Pair) -> bool {
    place.compare_exchange(pair.word(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// They are the parent's. A process that closes its copies has no record locks yet.
pub(crate) fn leave_to_parent(copies: Copies) {
    OPENING.reset();
    for (place, pair) in pairs() {
        if copies == Copies::Closed && pair.is_one() {
            line::close(pair.number);
        }
        is_removed(place, pair);
    }
}
