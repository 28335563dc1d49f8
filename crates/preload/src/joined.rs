//! Files that several processes write: common ones. Each process notes where it writes
//! ([`tidegate_preload_wire::notes`]), and the supervisor syncs the file for whoever asks.
//!
//! A write is noted before the kernel has it, as far as it is known then where it goes, and behind
//! it. If the process ends in between, the next sync has what the kernel took; and while a write is
//! under way, that is counted, so that the supervisor knows when one never ended.
//!
//! A sync may take the first note and come before the write; the second one is there when the write
//! returns. What a process wrote while it did not know that the file is common it puts in doubt
//! before its write returns, as the table had changed by then; and what was written before the
//! table changed the file's first sync brings to the disk, which is the kernel's.

use crate::asked::{appends, id, is_writable, position, stat};
use crate::descriptors::{self, Seen};
use crate::follow::{Aim, Asked, STANDARD, Source, both, place, sync_again};
use crate::held::Place;
use crate::process::Words;
use crate::{asked, follow, guarded, line, process};
use rustix::fs::Stat;
use std::sync::atomic::{Ordering, fence};
use tidegate_preload_wire::notes::{
    APPENDED, DOUBT, NOTED_BLOCK_BYTES, NOTED_BYTES_MAX, bits_at, flags_at, place_of, summary_at, turn_at, under_way,
    under_way_at,
};
use tidegate_preload_wire::{Answer, Request};

/// A common file, as a descriptor of it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// The file's mark.
    pub(crate) mark: u16,
    /// The table's epoch when it had this mark.
    pub(crate) epoch: u32,
    /// Whether each write through the descriptor is a sync (O_SYNC, O_DSYNC).
    pub(crate) loud: bool,
    /// Whether it was synced by the kernel since it is known so: the kernel tells it alone of
    /// writes of its that failed before.
    pub(crate) synced: bool,
}

/// Makes a call that writes a common file.
pub(crate) fn write(asked: Asked, common: Common, call: impl FnOnce() -> isize) -> isize {
    let Asked { descriptor, aim, source } = asked;
    // So that it is noted and counted where the file is now.
    if !guarded(|| is_still(descriptor, common, false)) {
        return follow::write(descriptor, aim, source, call);
    }
    let from = if aim == Aim::Position { position(descriptor) } else { None };
    let counted = guarded(|| begin(common.mark, intended(descriptor, aim, source, from)));
    let wrote = call();
    guarded(|| {
        if wrote != 0 {
            note(common.mark, place(descriptor, aim, from, wrote));
        }
        if counted {
            count(common.mark, u64::MAX);
        }
        is_still(descriptor, common, true);
    });
    // The disk has what a loud write brought, and nothing older may be kept.
    if wrote > 0 && common.loud && guarded(|| again(descriptor, common.mark)) != 0 { -1 } else { wrote }
}

/// Makes a call that syncs a common file, unless the supervisor does so. A descriptor's first one
/// is the kernel's, too.
pub(crate) fn sync(descriptor: i32, whole: bool, common: Common, call: impl FnOnce() -> i32) -> i32 {
    if !common.synced {
        return both(call(), || {
            // Another one may have another file by this number by now.
            if descriptors::seen(descriptor) == Seen::Common(common) {
                descriptors::learn(descriptor, Seen::Common(Common { synced: true, ..common }));
            }
            again(descriptor, common.mark)
        });
    }
    if guarded(|| is_synced(descriptor, common.mark, whole)) { 0 } else { both(call(), || sync_again(descriptor)) }
}

/// The disk has it, and what is kept of it is kept anew or forgotten.
pub(crate) fn again(descriptor: i32, mark: u16) -> i32 {
    if is_synced(descriptor, mark, false) { 0 } else { sync_again(descriptor) }
}

/// Has the supervisor sync the file behind `descriptor`. False: it is not common any more, and
/// nothing is kept of it.
pub(crate) fn is_synced(descriptor: i32, mark: u16, whole: bool) -> bool {
    let file = stat(descriptor).map(|stat| id(&stat));
    let answer = file.and_then(|file| line::ask(Request::Sync { file, mark, whole }, None));
    if answer != Some(Answer::Done) {
        descriptors::forget(descriptor);
    }
    answer == Some(Answer::Done)
}

/// Joins those who write the file behind `descriptor`, which another process holds or writes in
/// common with others. `late`: this one wrote it already. None: it may not, or not as one whose
/// writes can all be seen.
pub(crate) fn join(descriptor: i32, file: &Stat, loud: bool, late: bool) -> Option<Seen> {
    let followed = process::owns_memory() && !process::has_unseen_writer();
    let is_stream =
        || STANDARD.into_iter().any(|stream| is_writable(stream) && asked::file_of(stream) == Some(id(file)));
    if !followed || is_stream() || !process::has_notes() {
        return None;
    }
    for _ in 0..JOINS_MAX {
        let Some(Answer::Joined { mark }) = line::ask(Request::Join, Some(descriptor)) else { return None };
        let epoch = process::epoch();
        // If not, it came and went, and all of it is on its disk.
        if mark_of(file) == Some(mark) {
            if late {
                note(mark, Place::Unknown);
            }
            return Some(Seen::Common(Common { mark, epoch, loud, synced: false }));
        }
    }
    None
}

/// How often it is tried to join.
const JOINS_MAX: u32 = 8;

fn mark_of(file: &Stat) -> Option<u16> {
    process::row_of(id(file)).and_then(|row| row.mark())
}

/// If the table has changed, whether the file is the same there is asked; if not, what it is.
/// `late`: this process wrote it already.
fn is_still(descriptor: i32, common: Common, late: bool) -> bool {
    let epoch = process::epoch();
    if epoch == common.epoch {
        return true;
    }
    let same = stat(descriptor).and_then(|file| mark_of(&file)) == Some(common.mark);
    if same {
        descriptors::learn(descriptor, Seen::Common(Common { epoch, ..common }));
    } else {
        follow::learn(descriptor, late);
    }
    same
}

/// Where a write is going to go, as far as that is known.
fn intended(descriptor: i32, aim: Aim, source: Source, from: Option<u64>) -> Option<Place> {
    if aim != Aim::Anywhere && appends(descriptor) {
        return Some(Place::End);
    }
    let Source::Bytes(_, len) = source else { return None };
    let at = match aim {
        Aim::Offset(at) => u64::try_from(at).ok()?,
        Aim::Position => from?,
        Aim::Anywhere => return None,
    };
    let len = u64::try_from(len).ok().filter(|len| *len > 0)?;
    Some(Place::Range((at, len)))
}

/// A write begins that is going to go to `place`. Whether it is counted.
fn begin(mark: u16, place: Option<Place>) -> bool {
    let counted = count(mark, 1);
    place.into_iter().for_each(|place| note(mark, place));
    counted
}

/// Counts so many writes more as under way, unless another file has the place by now.
fn count(mark: u16, more: u64) -> bool {
    let mut counted = false;
    process::notes(|words| {
        let others = under_way(mark, 0);
        counted = words.add_beside(under_way_at(place_of(mark)), others, more);
    });
    counted
}

/// Notes that the file was written there.
fn note(mark: u16, place: Place) {
    process::notes(|words| {
        let turn_at = turn_at(place_of(mark));
        loop {
            let turn = words.load(turn_at);
            note_in(&words, mark, turn, place);
            // Whoever has ended the turn meanwhile may have been past it.
            fence(Ordering::SeqCst);
            if words.load(turn_at) == turn {
                return;
            }
        }
    });
}

fn note_in(words: &Words, mark: u16, turn: u64, written: Place) {
    let place = place_of(mark);
    let (from, end) = match written {
        Place::Range((at, len)) => (at, at.saturating_add(len)),
        Place::End => return words.set(flags_at(place, turn), APPENDED),
        Place::Unknown => return words.set(flags_at(place, turn), DOUBT),
    };
    if end > NOTED_BYTES_MAX {
        return words.set(flags_at(place, turn), DOUBT);
    }
    let (first, behind) = (from / NOTED_BLOCK_BYTES, end.div_ceil(NOTED_BLOCK_BYTES));
    for word in first / 64..behind.div_ceil(64) {
        let begin = first.max(word * 64) - word * 64;
        let count = behind.min(word * 64 + 64) - word * 64 - begin;
        // The blocks first: whoever finds the summary's bit finds them.
        words.set(bits_at(place, turn, word), (u64::MAX >> (64 - count)) << begin);
        words.set(summary_at(place, turn, word / 64), 1 << (word % 64));
    }
}
