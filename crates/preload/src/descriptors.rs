//! What is known of each descriptor. It is only a memory: anybody may forget any of it at any time.

use crate::joined::Common;
use crate::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What stands behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nobody knows.
    Unknown,
    /// No regular file.
    Plain,
    /// A regular file that this process does not hold.
    Regular(Regular),
    /// The file that this process holds at this place.
    Held {
        /// The place.
        index: u16,
        /// Which of the files that were held there.
        generation: u32,
        /// Whether each write through the descriptor is a sync (O_SYNC, O_DSYNC).
        loud: bool,
    },
    /// A file that several processes write.
    Common(Common),
    /// The file that this process made with the name at this place.
    Young {
        /// The place.
        index: u16,
        /// Which of the files that had it.
        generation: u32,
    },
}

/// A regular file that this process does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regular {
    /// The table's epoch when nobody held it.
    pub(crate) epoch: u32,
    /// How often it was synced here.
    pub(crate) syncs: u8,
    /// Whether it is not to be held.
    pub(crate) refused: bool,
    /// Whether each of its writes is a sync (O_SYNC, O_DSYNC).
    pub(crate) loud: bool,
}

const DESCRIPTORS: usize = 65536;
static SEEN: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
/// One more than the highest that was ever learned.
static END: AtomicU64 = AtomicU64::new(0);

/// Whether there may be, or may have been, a process with this memory and descriptors of its own.
/// Only where its beginning is seen there was none so far.
static SHARED: AtomicBool = AtomicBool::new(cfg!(not(target_arch = "x86_64")));

/// Such a process is going to begin.
pub(crate) fn share() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Whether what is known is about this process's descriptors. Relaxed: the process that it is not
/// true for began behind [`share`].
pub(crate) fn are_own() -> bool {
    !SHARED.load(Ordering::Relaxed) || process::owns_memory()
}

/// Syncs that are told apart.
pub(crate) const SYNCS_MAX: u8 = 15;

impl Seen {
    fn word(self) -> u64 {
        match self {
            Seen::Unknown => 0,
            Seen::Plain => 1,
            Seen::Regular(Regular { epoch, syncs, refused, loud }) => {
                2 | u64::from(refused) << 2
                    | u64::from(loud) << 3
                    | u64::from(syncs.min(SYNCS_MAX)) << 4
                    | u64::from(epoch) << 32
            }
            Seen::Held { index, generation, loud } => {
                3 | u64::from(loud) << 2 | u64::from(index) << 8 | u64::from(generation) << 32
            }
            Seen::Common(Common { mark, epoch, loud, synced }) => {
                3 | 16 | u64::from(loud) << 2 | u64::from(synced) << 5 | u64::from(mark) << 8 | u64::from(epoch) << 32
            }
            Seen::Young { index, generation } => 3 | 8 | u64::from(index) << 8 | u64::from(generation) << 32,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields are cut out of the word")]
    fn of(word: u64) -> Seen {
        let high = (word >> 32) as u32;
        match word & 3 {
            0 => Seen::Unknown,
            1 => Seen::Plain,
            2 => Seen::Regular(Regular {
                epoch: high,
                syncs: (word >> 4 & 15) as u8,
                refused: word & 4 != 0,
                loud: word & 8 != 0,
            }),
            _ if word & 16 != 0 => {
                let (loud, synced) = (word & 4 != 0, word & 32 != 0);
                Seen::Common(Common { mark: (word >> 8) as u16, epoch: high, loud, synced })
            }
            _ if word & 8 != 0 => Seen::Young { index: (word >> 8) as u16, generation: high },
            _ => Seen::Held { index: (word >> 8) as u16, generation: high, loud: word & 4 != 0 },
        }
    }
}

fn place(descriptor: i32) -> Option<&'static AtomicU64> {
    SEEN.get(usize::try_from(descriptor).ok()?)
}

/// What is known of `descriptor`.
pub(crate) fn seen(descriptor: i32) -> Seen {
    place(descriptor).map_or(Seen::Unknown, |place| Seen::of(place.load(Ordering::Acquire)))
}

/// Remembers `seen`, if this process owns the descriptors that its memory is about.
pub(crate) fn learn(descriptor: i32, seen: Seen) -> Seen {
    if let Some(place) = place(descriptor).filter(|_| process::owns_memory()) {
        END.fetch_max(descriptor.unsigned_abs().into(), Ordering::Relaxed);
        place.store(seen.word(), Ordering::Release);
    }
    seen
}

/// The number means something else now, or may.
pub(crate) fn forget(descriptor: i32) {
    if let Some(place) = place(descriptor) {
        place.store(0, Ordering::Release);
    }
}

/// So may all numbers from `first` to `last`.
pub(crate) fn forget_range(first: u32, last: u32) {
    let last = u64::from(last).min(END.load(Ordering::Relaxed));
    (u64::from(first)..=last).filter_map(|number| i32::try_from(number).ok()).for_each(forget);
}

/// Nothing is known any more of files that are common.
pub(crate) fn forget_common() {
    let known = (0..=END.load(Ordering::Relaxed)).filter_map(|number| i32::try_from(number).ok());
    known.filter(|number| matches!(seen(*number), Seen::Common(_))).for_each(forget);
}

/// So may all.
pub(crate) fn forget_all() {
    forget_range(0, u32::MAX);
}
