//! What happens beside each call: writes are noted, syncs are asked of the supervisor, and what
//! cannot be followed is abandoned or settled.

use crate::asked::{PATH_BYTES, appends, borrowed, file_of, flags, id, is_writable, path_of, position, stat};
use crate::descriptors::{self, Regular, SYNCS_MAX, Seen};
use crate::held::{Attributes, Dirty, Held, Place, Taken, attributes};
use crate::line::{Later, Wait};
use crate::{asked, files, guarded, joined, line, loud, names, process, quiet, recent};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use tidegate_preload_wire::{Answer, COMMON, FileId, RANGES_MAX, Range, Request};
use tidegate_wal::strip::{Left, RECORD_BYTES_MAX};

/// Where a call says that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Where the descriptor is.
    Position,
    /// At this offset, unless the descriptor appends.
    Offset(i64),
    /// Wherever.
    Anywhere,
}

/// What a call writes. Pieces are not looked at before the kernel has taken them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// So many bytes from here on.
    Bytes(*const u8, usize),
    /// Those of so many pieces.
    Pieces(*const libc::iovec, i32),
    /// Others.
    Unknown,
}

/// What a call is asked to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Through which descriptor.
    pub(crate) descriptor: i32,
    /// Where.
    pub(crate) aim: Aim,
    /// What.
    pub(crate) source: Source,
}

impl Source {
    /// The first `wrote` bytes, if they lie in one place and are few.
    ///
    /// # Safety
    /// L1: the call that wrote them read them here.
    pub(crate) unsafe fn bytes<'a>(self, wrote: isize) -> Option<&'a [u8]> {
        let len = usize::try_from(wrote).ok().filter(|len| (1..=RECORD_BYTES_MAX).contains(len))?;
        let from = match self {
            Source::Bytes(from, _) => from,
            // SAFETY: the caller's promise.
            Source::Pieces(piece, 1) => unsafe { (*piece).iov_base.cast() },
            Source::Pieces(..) | Source::Unknown => return None,
        };
        // SAFETY: the caller's promise.
        Some(unsafe { std::slice::from_raw_parts(from, len) })
    }
}

/// A file is held from this sync on: many files are synced once and never again.
const HOLD_AT_SYNC: u8 = 3;

/// Makes a call that writes up to as many bytes of `source` as it returns, and follows it.
pub(crate) fn write(descriptor: i32, aim: Aim, source: Source, call: impl FnOnce() -> isize) -> isize {
    if !process::is_followed() {
        return call();
    }
    match look(descriptor) {
        Seen::Held { index, generation, loud: true } => {
            loud::write(Asked { descriptor, aim, source }, (index, generation), call)
        }
        Seen::Held { index, generation, loud: false } => {
            let from = if aim == Aim::Position { position(descriptor) } else { None };
            let number = files::at(index).map_or(0, Held::begin);
            let wrote = call();
            // SAFETY: L1.
            let bytes = unsafe { source.bytes(wrote) };
            let write = Write { number, bytes };
            guarded(|| written(descriptor, (index, generation), place(descriptor, aim, from, wrote), write));
            wrote
        }
        Seen::Young { index, generation } => {
            let from = if aim == Aim::Position { position(descriptor) } else { None };
            let number = names::begin(index);
            let wrote = call();
            // SAFETY: L1.
            let bytes = unsafe { source.bytes(wrote) };
            let noted = || names::note((index, generation), number, place(descriptor, aim, from, wrote), bytes);
            guarded(|| {
                if !noted() {
                    _ = learn(descriptor, true)
                }
            });
            wrote
        }
        Seen::Common(common) => joined::write(Asked { descriptor, aim, source }, common, call),
        Seen::Regular(regular) if regular.loud => loud::write_unheld(Asked { descriptor, aim, source }, regular, call),
        Seen::Regular(regular) => {
            let wrote = call();
            guarded(|| look_again(descriptor, regular));
            wrote
        }
        _ => call(),
    }
}

/// A write of a held file.
pub(crate) struct Write<'a> {
    /// Its number.
    pub(crate) number: u64,
    /// Its bytes, if they are known.
    pub(crate) bytes: Option<&'a [u8]>,
}

/// Notes a write of a file that was held so when it began.
pub(crate) fn written(descriptor: i32, (index, generation): (u16, u32), place: Place, write: Write<'_>) {
    let noted = |held: &Held| held.note(generation, write.number, place, write.bytes);
    if !files::at(index).is_some_and(|held| noted(held) && held.is_in_force()) {
        // It is not held any more, or held anew, or by another process.
        learn(descriptor, true);
    }
}

/// Where a call went that answered `wrote`, and was `from` here.
pub(crate) fn place(descriptor: i32, aim: Aim, from: Option<u64>, wrote: isize) -> Place {
    let Ok(len) = u64::try_from(wrote) else { return Place::Unknown };
    match aim {
        Aim::Position => {
            let begin = position(descriptor).and_then(|end| end.checked_sub(len));
            match begin {
                Some(at) if from == Some(at) => Place::Range((at, len)),
                _ if appends(descriptor) => Place::End,
                _ => Place::Unknown,
            }
        }
        Aim::Offset(_) if appends(descriptor) => Place::End,
        Aim::Offset(at) => u64::try_from(at).map_or(Place::Unknown, |at| Place::Range((at, len))),
        Aim::Anywhere => Place::Unknown,
    }
}

/// Makes a call that syncs a file and returns 0, or ends it in persistent memory instead.
pub(crate) fn sync(descriptor: i32, attributes_too: bool, call: impl FnOnce() -> i32) -> i32 {
    if !process::is_followed() {
        return call();
    }
    match look(descriptor) {
        Seen::Held { index, generation, .. } => {
            let kept = guarded(|| sync_held(descriptor, index, generation, attributes_too));
            // Another process may hold the file by then, or this one again.
            kept.unwrap_or_else(|| both(call(), || sync_again(descriptor)))
        }
        Seen::Regular(regular) => {
            let is_held = guarded(|| hold(descriptor, regular));
            both(call(), || if is_held { 0 } else { synced_unheld(descriptor, regular) })
        }
        Seen::Young { index, generation } => names::sync(descriptor, (index, generation), call),
        Seen::Common(common) => joined::sync(descriptor, attributes_too, common, call),
        Seen::Plain | Seen::Unknown => names::sync_other(descriptor, call),
    }
}

/// What a sync answers that was followed by something that may fail too.
pub(crate) fn both(answer: i32, then: impl FnOnce() -> i32) -> i32 {
    let then = guarded(then);
    if answer == 0 { then } else { answer }
}

/// The kernel synced a file that this process did not hold before. If it does now, another thread
/// may have had something kept that is older than what the disk has by now, or newer: the kernel
/// syncs once more, and what was kept is forgotten.
pub(crate) fn sync_again(descriptor: i32) -> i32 {
    match learn(descriptor, true) {
        Seen::Held { index, generation, .. } => sync_held(descriptor, index, generation, false).unwrap_or(0),
        // What is not common any more was brought to its disk when it ceased to be.
        Seen::Common(common) => {
            joined::is_synced(descriptor, common.mark, false);
            0
        }
        _ => 0,
    }
}

/// None: the file is not held, so that the sync is libc's own.
pub(crate) fn sync_held(descriptor: i32, index: u16, generation: u32, attributes_too: bool) -> Option<i32> {
    match keep(descriptor, index, generation, attributes_too) {
        Way::Kept => Some(0),
        Way::NotHeld => None,
        way => {
            // Past libc: a thread must not be cancelled while it has the line.
            let file = borrowed(descriptor)?;
            let end = if attributes_too { rustix::fs::fsync(file) } else { rustix::fs::fdatasync(file) };
            synced(way, end.is_ok());
            Some(end.map_or_else(failed, |()| 0))
        }
    }
}

/// What libc's functions return for `error`.
pub(crate) fn failed(error: Errno) -> i32 {
    asked::set_errno(error.raw_os_error());
    -1
}

/// How a sync goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It has ended.
    Kept,
    /// By the kernel; then what was kept is to be forgotten. The line's lock is held, if it could
    /// be taken.
    ByKernel {
        index: u16,
        generation: u32,
        size: u64,
        /// What the sync makes durable besides, if it is a whole one, as it was before.
        attributes: Option<Attributes>,
        locked: bool,
    },
    /// By the kernel, as the file is not held.
    NotHeld,
}

fn keep(descriptor: i32, index: u16, generation: u32, attributes_too: bool) -> Way {
    let locked = line::LINE.take();
    let way = keep_locked(descriptor, index, generation, attributes_too, locked);
    if locked && !matches!(way, Way::ByKernel { .. }) {
        line::LINE.give();
    }
    way
}

fn keep_locked(descriptor: i32, index: u16, generation: u32, attributes_too: bool, locked: bool) -> Way {
    let held = files::at(index).filter(|held| held.is_taken() && held.generation() == generation);
    let Some((held, stat)) = held.zip(stat(descriptor)).filter(|(held, stat)| held.file() == id(stat)) else {
        descriptors::forget(descriptor);
        return Way::NotHeld;
    };
    // What others wrote since is theirs to follow only while this process holds the file.
    if !held.is_in_force() {
        descriptors::forget(descriptor);
        return Way::NotHeld;
    }
    let attributes = attributes_too.then(|| attributes(&stat));
    let known = attributes.is_none_or(|now| held.knows(now));
    // Below a signal handler the notes may be half written.
    let dirty = match locked.then(|| held.take(stat.st_size.unsigned_abs(), known)) {
        Some(Taken::Committed(left)) if held.may_commit() => {
            hand_over(held, (index, generation), left, stat.st_size.unsigned_abs());
            return Way::Kept;
        }
        Some(Taken::Committed(_)) => taken(held, stat.st_size.unsigned_abs()),
        Some(Taken::Dirty(dirty)) => dirty,
        None => Dirty::in_doubt(),
    };
    // Once more, behind the notes: what was appended and noted lies before the end.
    let size = self::stat(descriptor).unwrap_or(stat).st_size.unsigned_abs();
    let by_kernel = Way::ByKernel { index, generation, size, attributes, locked };
    let cut = size < held.top();
    if cut {
        held.is_cut(size);
    }
    if dirty.doubt || !known || cut {
        return by_kernel;
    }
    match ask_to_keep(held, &dirty, size) {
        Some(Answer::Done) => {
            held.kept(dirty.filling, size);
            if dirty.appended_from.is_some() {
                held.set_base(size);
            }
            Way::Kept
        }
        Some(Answer::ByKernel) => by_kernel,
        _ => {
            held.leave();
            descriptors::forget(descriptor);
            Way::NotHeld
        }
    }
}

/// What was committed may count for nothing: it is to be made durable elsewhere.
fn taken(held: &Held, size: u64) -> Dirty {
    match held.take(size, false) {
        Taken::Dirty(dirty) => dirty,
        Taken::Committed(_) => Dirty::in_doubt(),
    }
}

/// Behind a commit that counts, of a file of `size` bytes: has the supervisor absorb a strip that
/// is nearly full, and goes on with the other one. While that one is not absorbed there is nothing
/// to do, as long as this one has some room.
fn hand_over(held: &Held, (index, generation): (u16, u32), left: Left, size: u64) {
    let answered = match left {
        Left::Enough => false,
        Left::Little => line::is_free(Wait::No),
        Left::HardlyAny => line::is_free(Wait::Yes),
    };
    if let Some(full) = answered.then(|| held.turn(generation, size)).flatten() {
        let (filling, ranges) = (full.filling, full.ranges());
        let request = Request::Absorb { hold: held.hold(), size, filling, ranges };
        line::ask_later(request, Later { index, generation, filling });
    }
}

fn ask_to_keep(held: &Held, dirty: &Dirty, size: u64) -> Option<Answer> {
    let mut ranges: [Range; RANGES_MAX] = dirty.ranges;
    let mut count = dirty.count;
    if let Some(from) = dirty.appended_from.filter(|from| *from < size) {
        ranges[count] = (from, size - from);
        count += 1;
    }
    if count == 0 && dirty.appended_from.is_none() {
        return Some(Answer::Done);
    }
    line::ask_held(Request::Keep { hold: held.hold(), size, filling: dirty.filling, ranges: &ranges[..count] })
}

/// The kernel synced, or tried to.
fn synced(way: Way, well: bool) {
    let Way::ByKernel { index, generation, size, attributes, locked } = way else { return };
    let held = files::at(index).filter(|held| held.is_taken() && held.generation() == generation);
    if let Some(held) = held {
        let forgotten = locked && well;
        let answer = forgotten.then(|| line::ask_held(Request::Forget { hold: held.hold() })).flatten();
        if !well {
            held.not_synced();
        } else if let Some(Answer::Anew { slot }) = answer {
            held.begin_anew(slot, size);
            held.set_base(size);
            attributes.into_iter().for_each(|durable| held.remember(durable));
        } else {
            let _ = line::ask(Request::Settle(held.file()), None);
            held.leave();
        }
    }
    if locked {
        line::LINE.give();
    }
}

/// Asks for the file, if it has been synced often enough to be worth it. Its first sync from now on
/// is the kernel's again: another thread may sync before the one that holds it has done so.
pub(crate) fn hold(descriptor: i32, regular: Regular) -> bool {
    let followed = process::owns_memory() && !process::has_unseen_writer();
    // What is known of the file comes to be known of the descriptor with its first sync.
    let often =
        || regular.syncs >= HOLD_AT_SYNC || regular.syncs == 0 && recent::reached(descriptor, HOLD_AT_SYNC.into());
    let worth_it = !regular.refused && followed && often();
    let Some(stat) = stat(descriptor).filter(|_| worth_it) else { return false };
    recent::begin_anew(descriptor);
    if STANDARD.into_iter().any(|stream| is_writable(stream) && file_of(stream) == Some(id(&stat))) {
        abandon_behind(descriptor, id(&stat));
        return false;
    }
    if !path_of(descriptor, &mut [MaybeUninit::uninit(); PATH_BYTES]).is_some_and(process::is_rooted) {
        refuse(descriptor, regular);
        return false;
    }
    if regular.loud && quiet::open(descriptor, id(&stat)).is_none() {
        refuse(descriptor, regular);
        return false;
    }
    // Before the place is taken, which a new line would leave again.
    line::reach();
    files::leave_lost();
    let Some((index, held)) = files::occupy(&stat) else { return false };
    let answer = line::ask(Request::Hold, Some(descriptor));
    match answer {
        Some(Answer::Held { hold, holder, slot, strip }) if held.is_taken() && !files::is_changing() => {
            strip.into_iter().for_each(|strip| held.set_strip(strip, slot));
            held.set_hold(hold, holder);
            descriptors::learn(descriptor, Seen::Held { index, generation: held.generation(), loud: regular.loud });
            return true;
        }
        Some(Answer::Held { .. }) => {
            let _ = line::ask(Request::Settle(id(&stat)), None);
        }
        // It is common, and this process finds that out when it next looks.
        Some(Answer::NotHeld) => {}
        _ => refuse(descriptor, regular),
    }
    held.leave();
    false
}

fn refuse(descriptor: i32, regular: Regular) {
    descriptors::learn(descriptor, Seen::Regular(Regular { refused: true, ..regular }));
}

/// The kernel synced a file that this process did not hold then.
pub(crate) fn synced_unheld(descriptor: i32, regular: Regular) -> i32 {
    if descriptors::seen(descriptor) == Seen::Regular(regular) && regular.syncs < SYNCS_MAX {
        let counts = regular.syncs < HOLD_AT_SYNC && process::owns_memory();
        let of_file = if counts { u8::try_from(recent::count(descriptor)).unwrap_or(SYNCS_MAX) } else { 0 };
        let syncs = of_file.clamp(regular.syncs + 1, SYNCS_MAX);
        descriptors::learn(descriptor, Seen::Regular(Regular { syncs, ..regular }));
        if regular.syncs == 0 && !regular.loud {
            names::synced(descriptor);
        }
    }
    if process::epoch() == regular.epoch { 0 } else { sync_again(descriptor) }
}

/// What `descriptor` is, asked of the kernel if nobody remembers, or only a process with other
/// descriptors, whose memory this one shares.
pub(crate) fn look(descriptor: i32) -> Seen {
    let seen = descriptors::seen(descriptor);
    if seen != Seen::Unknown && descriptors::are_own() { seen } else { guarded(|| learn(descriptor, false)) }
}

/// The kernel was done with a file that nobody held before: whether somebody holds it now.
pub(crate) fn look_again(descriptor: i32, regular: Regular) {
    if process::epoch() != regular.epoch {
        learn(descriptor, true);
    }
}

/// Asks the kernel what `descriptor` is. `late`: it was written already.
pub(crate) fn learn(descriptor: i32, late: bool) -> Seen {
    let Some(stat) = stat(descriptor) else { return Seen::Plain };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return descriptors::learn(descriptor, Seen::Plain);
    }
    let loud = quiet::is_loud(flags(descriptor));
    let known = match descriptors::seen(descriptor) {
        Seen::Regular(regular) => regular,
        _ => Regular { refused: stat.st_nlink == 0, ..Regular::default() },
    };
    let epoch = process::epoch();
    let regular = Regular { epoch, loud, ..known };
    match files::find(id(&stat)).filter(|(_, held)| held.is_in_force()) {
        Some(_) if loud && quiet::open(descriptor, id(&stat)).is_none() => {
            abandon_behind(descriptor, id(&stat));
        }
        Some((index, held)) => {
            if late {
                held.put_in_doubt();
            }
            return descriptors::learn(descriptor, Seen::Held { index, generation: held.generation(), loud });
        }
        None => match names::find(id(&stat)) {
            Some(_) if loud => _ = names::settle(id(&stat)),
            Some((index, generation)) => {
                if late {
                    names::spoil(index);
                }
                return descriptors::learn(descriptor, Seen::Young { index, generation });
            }
            None if process::row_of(id(&stat)).is_some() => match joined::join(descriptor, &stat, loud, late) {
                Some(joined) => return descriptors::learn(descriptor, joined),
                None => abandon_behind(descriptor, id(&stat)),
            },
            None if process::is_held(id(&stat)) => abandon_behind(descriptor, id(&stat)),
            // It may be the one.
            None if process::is_making() => {
                names::settle_made(descriptor);
                descriptors::forget(descriptor);
                return Seen::Regular(regular);
            }
            None => {}
        },
    }
    descriptors::learn(descriptor, Seen::Regular(regular))
}

/// The file's writers cannot all be seen: nobody holds it any more. What later has its number is
/// another file, if it is known when this one was born.
pub(crate) fn abandon(file: FileId, born_ns: Option<u64>) {
    let _ = line::ask(Request::Abandon { file, born_ns }, None);
    files::find(file).iter().for_each(|(_, held)| held.leave());
    names::leave(file);
}

/// The same of `file`, which is behind `descriptor` as long as that is not closed.
fn abandon_behind(descriptor: i32, file: FileId) {
    abandon(file, birth_of(descriptor, file));
}

/// When `file` was born, which is behind `descriptor` as long as that is not closed.
pub(crate) fn birth_of(descriptor: i32, file: FileId) -> Option<u64> {
    asked::born(descriptor).filter(|(found, _)| *found == file)?.1
}

/// What was kept of the file is brought to its disk.
fn settle(file: FileId) {
    let _ = line::ask(Request::Settle(file), None);
    files::find(file).iter().for_each(|(_, held)| held.leave());
}

/// Something is going to write the file behind `descriptor` that no export sees.
pub(crate) fn abandon_unseen(descriptor: i32) {
    if !process::is_followed() {
        return;
    }
    guarded(|| {
        // Wherever it is: it may be renamed to a place below a root.
        let regular = stat(descriptor)
            .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink > 0);
        if let Some(stat) = regular {
            abandon_behind(descriptor, id(&stat));
            descriptors::forget(descriptor);
        }
    });
}

/// All files, now and later: the process has a way to write that no export sees.
pub(crate) fn abandon_process() {
    if process::is_followed() {
        process::set_unseen_writer();
        (0..UNSEEN_DESCRIPTORS).filter(|descriptor| is_writable(*descriptor)).for_each(abandon_unseen);
        guarded(names::settle_own);
    }
}

const UNSEEN_DESCRIPTORS: i32 = 65536;

/// The numbers of the standard streams, which write past `write`.
pub(crate) const STANDARD: RangeInclusive<i32> = 0..=2;

/// A descriptor was opened.
pub(crate) fn opened(descriptor: i32) {
    descriptors::forget(descriptor);
    quiet::lost(descriptor);
    let unseen = STANDARD.contains(&descriptor) || process::has_unseen_writer();
    if unseen && is_writable(descriptor) {
        abandon_unseen(descriptor);
    }
}

/// Makes a call that shortens, renames or replaces files, after `prepare` settled those that are
/// held.
pub(crate) fn change<T>(prepare: impl Fn(), call: impl FnOnce() -> T) -> T {
    if !process::is_followed() {
        return call();
    }
    files::change();
    let prepared = guarded(|| prepared(prepare));
    let answer = call();
    if process::epoch() != prepared && process::anything_is_held() {
        // Another process came to hold a file meanwhile, and it may be one of these.
        guarded(settle_all);
    }
    files::changed();
    answer
}

/// How often it is looked again whether another process came to hold something meanwhile.
const LOOKS_MAX: u32 = 8;

/// The epoch at which nothing was left for `prepare` to settle.
fn prepared(prepare: impl Fn()) -> u32 {
    let mut epoch = process::epoch();
    for _ in 0..LOOKS_MAX {
        if process::anything_is_held() {
            prepare();
        }
        let before = std::mem::replace(&mut epoch, process::epoch());
        if before == epoch {
            break;
        }
    }
    epoch
}

/// Has what is kept of `file` brought to its disk, if anybody holds it.
pub(crate) fn settle_held(file: FileId) {
    if files::find(file).is_some() || process::row_of(file).is_some_and(|row| row.holder == COMMON) {
        settle(file);
    } else if !names::settle(file) && process::is_held(file) {
        // Whoever holds it knows when it was born.
        abandon(file, None);
    }
}

/// A folder gets another name: so do all files below it.
pub(crate) fn settle_all() {
    let _ = line::ask(Request::SettleAll, None);
    files::leave_all();
    names::leave_all();
}

/// Everything in the system was synced by the kernel.
pub(crate) fn synced_all() {
    if process::is_followed() && process::anything_is_held() {
        guarded(settle_all);
    }
}
