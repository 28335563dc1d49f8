//! Writes that are syncs themselves (O_SYNC, O_DSYNC). To a held file they go through a second
//! descriptor that does not wait for the disk, and a sync follows.
//!
//! The kernel's own *loud* write is made where that cannot be: where the library does not know
//! beforehand how far to move the position, where the program changed how the descriptor writes,
//! and for calls that are no plain writes. What was kept is older than what is on the disk then,
//! and is forgotten before the call returns.
//!
//! A call that says of itself that it is a sync (`pwritev2` with RWF_SYNC or RWF_DSYNC) is made
//! without saying so where its file is held, through the program's own descriptor, and a sync
//! follows.

use crate::asked::{appends, borrowed, position, seek};
use crate::descriptors::{self, Regular, Seen};
use crate::follow::{Aim, Asked, Source, Write, both, hold, look_again, sync_again, sync_held, synced_unheld, written};
use crate::held::{Held, Place};
use crate::quiet::{self, Quiet};
use crate::{files, follow, guarded, next, process};
use rustix::fs::SeekFrom;
use std::ffi::c_long;

/// A held file's place and which of the files it is that were held there.
type Hold = (u16, u32);

/// Makes a loud call to a file that this process does not hold. It is a sync: the file may come to
/// be held for it.
pub(crate) fn write_unheld(write: Asked, regular: Regular, call: impl FnOnce() -> isize) -> isize {
    if write.may_be_quiet()
        && guarded(|| hold(write.descriptor, regular))
        && let Seen::Held { index, generation, loud: true } = descriptors::seen(write.descriptor)
    {
        return self::write(write, (index, generation), call);
    }
    let wrote = call();
    if wrote > 0 {
        return ended(wrote, || synced_unheld(write.descriptor, regular));
    }
    guarded(|| look_again(write.descriptor, regular));
    wrote
}

/// Makes a call that alone is loud, or a quiet one and a sync where the file is followed.
pub(crate) fn write_once(
    asked: Asked,
    whole: bool,
    quiet: impl FnOnce() -> isize,
    loud: impl FnOnce() -> isize,
) -> isize {
    let Asked { descriptor, aim, source } = asked;
    if !process::is_followed() {
        return loud();
    }
    match follow::look(descriptor) {
        // It is a sync: the file may come to be held for it.
        Seen::Regular(regular) if !regular.loud && !guarded(|| hold(descriptor, regular)) => {
            let wrote = loud();
            if wrote > 0 {
                return ended(wrote, || synced_unheld(descriptor, regular));
            }
            guarded(|| look_again(descriptor, regular));
            wrote
        }
        Seen::Plain | Seen::Unknown => loud(),
        _ => {
            let wrote = follow::write(descriptor, aim, source, quiet);
            let sync = || follow::sync(descriptor, whole, || by_kernel(descriptor, whole));
            if wrote > 0 { ended(wrote, sync) } else { wrote }
        }
    }
}

/// Makes a loud call to a file that this process holds.
pub(crate) fn write(write: Asked, hold: Hold, call: impl FnOnce() -> isize) -> isize {
    // SAFETY: L1: the call may be the end of a cancelled thread, and nothing is begun.
    unsafe { next::pthread_testcancel() };
    let Some((quiet, way)) = guarded(|| way(write, hold)) else { return aloud(write.descriptor, hold, call) };
    let number = files::at(hold.0).map_or(0, Held::begin);
    // SAFETY: L1, and the quiet descriptor leads to the same file.
    let wrote = unsafe { put(write.source, quiet.number, way.at()) };
    guarded(|| {
        // SAFETY: L1.
        let bytes = unsafe { write.source.bytes(wrote) };
        written(write.descriptor, hold, way.place(quiet, wrote), Write { number, bytes });
        let synced = wrote <= 0 || sync(write.descriptor, hold, quiet.whole) == 0;
        let answer = if synced { wrote } else { -1 };
        way.leave(write.descriptor, quiet, answer);
        answer
    })
}

/// The kernel's own loud call, and what was kept is forgotten.
fn aloud(descriptor: i32, hold: Hold, call: impl FnOnce() -> isize) -> isize {
    let number = files::at(hold.0).map_or(0, Held::begin);
    let wrote = call();
    guarded(|| written(descriptor, hold, Place::Unknown, Write { number, bytes: None }));
    if wrote > 0 { ended(wrote, || sync_again(descriptor)) } else { wrote }
}

/// What a write answers that was followed by a sync.
fn ended(wrote: isize, sync: impl FnOnce() -> i32) -> isize {
    if guarded(sync) == 0 { wrote } else { -1 }
}

/// A sync of what was written quietly.
fn sync(descriptor: i32, (index, generation): Hold, whole: bool) -> i32 {
    let kept = sync_held(descriptor, index, generation, whole);
    // Another process may hold the file by then, or this one again.
    kept.unwrap_or_else(|| both(by_kernel(descriptor, whole), || sync_again(descriptor)))
}

/// A sync that is not a point where a thread is cancelled.
fn by_kernel(descriptor: i32, whole: bool) -> i32 {
    let file = borrowed(descriptor).ok_or(rustix::io::Errno::BADF);
    let end = file.and_then(|file| if whole { rustix::fs::fsync(file) } else { rustix::fs::fdatasync(file) });
    end.map_or_else(follow::failed, |()| 0)
}

/// How bytes reach their place through a quiet descriptor.
#[derive(Clone, Copy)]
enum Way {
    /// At this offset, which is the call's.
    At(i64),
    /// At this offset, which was the position; that has been moved by so many bytes.
    Reserved(i64, i64),
    /// At the end, by a call with this offset or, if it has none, one that moves the position. The
    /// quiet descriptor was there before.
    End { at: Option<i64>, from: Option<u64> },
}

impl Asked {
    /// Whether the call could go through a quiet descriptor.
    fn may_be_quiet(self) -> bool {
        match (self.aim, self.source) {
            (Aim::Anywhere, _) | (_, Source::Unknown) => false,
            (_, Source::Bytes(_, len)) => len > 0,
            (Aim::Offset(_), Source::Pieces(..)) => true,
            // Nobody knows yet how far the position is to be moved.
            (Aim::Position, Source::Pieces(..)) => appends(self.descriptor),
        }
    }
}

impl Aim {
    fn offset(self) -> Option<i64> {
        if let Aim::Offset(at) = self { Some(at) } else { None }
    }
}

/// The quiet descriptor and the way through it. The last step moves the position, if need be.
fn way(write: Asked, (index, generation): Hold) -> Option<(Quiet, Way)> {
    let held = files::at(index).filter(|held| held.is_taken() && held.generation() == generation);
    let held = held.filter(|_| write.may_be_quiet())?;
    let quiet = quiet::of(write.descriptor, held.file())?;
    let way = match (write.aim, write.source) {
        (aim, _) if quiet.appends => Way::End { at: aim.offset(), from: position(quiet.number) },
        (Aim::Offset(at), _) => Way::At(at),
        // The kernel moves a position at once, so those who share it write to different places.
        (Aim::Position, Source::Bytes(_, len)) => {
            let len = i64::try_from(len).ok()?;
            let end = seek(write.descriptor, SeekFrom::Current(len))?;
            Way::Reserved(i64::try_from(end).ok()? - len, len)
        }
        _ => return None,
    };
    Some((quiet, way))
}

impl Way {
    /// The offset of the call that writes; None: it writes at the position.
    fn at(self) -> Option<i64> {
        match self {
            Way::At(at) | Way::Reserved(at, _) => Some(at),
            Way::End { at, .. } => at,
        }
    }

    fn place(self, quiet: Quiet, wrote: isize) -> Place {
        let Ok(len) = u64::try_from(wrote) else { return Place::Unknown };
        match self {
            Way::At(at) | Way::Reserved(at, _) => {
                u64::try_from(at).map_or(Place::Unknown, |at| Place::Range((at, len)))
            }
            Way::End { at: None, from } => {
                let begin = position(quiet.number).and_then(|end| end.checked_sub(len));
                begin.filter(|_| begin == from).map_or(Place::End, |at| Place::Range((at, len)))
            }
            Way::End { .. } => Place::End,
        }
    }

    /// Leaves the position as the program's own call would have, which answered so.
    fn leave(self, descriptor: i32, quiet: Quiet, answer: isize) {
        let done = answer.max(0) as i64;
        match self {
            Way::Reserved(_, len) if done < len => {
                seek(descriptor, SeekFrom::Current(done - len));
            }
            Way::End { at: None, .. } if done > 0 => {
                position(quiet.number).and_then(|end| seek(descriptor, SeekFrom::Start(end)));
            }
            _ => {}
        }
    }
}

/// Writes `source` to `number` at `at`, or at its position; not a point where a thread is
/// cancelled.
///
/// # Safety
/// L1 for the call that says so.
unsafe fn put(source: Source, number: i32, at: Option<i64>) -> isize {
    let (from, count, calls) = match source {
        Source::Bytes(from, len) => (from as c_long, len as c_long, [libc::SYS_write, libc::SYS_pwrite64]),
        Source::Pieces(pieces, count) => (pieces as c_long, c_long::from(count), [libc::SYS_writev, libc::SYS_pwritev]),
        Source::Unknown => return 0,
    };
    let call = calls[usize::from(at.is_some())];
    // SAFETY: the caller's promise. On 64 bits the kernel takes an offset from one word.
    let wrote = unsafe { next::syscall(call, c_long::from(number), from, count, at.unwrap_or(0), 0, 0) };
    isize::try_from(wrote).unwrap_or(isize::MAX)
}
