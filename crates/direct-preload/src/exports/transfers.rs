//! Functions that write, read and sync by descriptors.

use crate::exports::mappings::{answered, before_sync};
use crate::exports::set_errno;
use crate::files::{self, PositionTurn};
use crate::known::Descriptor;
use crate::{contexts, guarded, mappings, trace};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::slice;
use tidegate_file_direct::{Attempted, Until};
use tidegate_file_wire::AccessKind;
use tidegate_preload_common::next;
use tidegate_program_context::StackTop;

/// No program's memory lies below this, or from [`USER_END`] on: the kernel says what is wrong with
/// an address there.
const USER_BEGIN: usize = 1 << 16;
const USER_END: usize = 1 << 47;

/// Where a write or read is.
#[derive(Clone, Copy)]
enum Aim {
    /// At the descriptor's position, which moves.
    Position,
    /// Here.
    Offset(off_t),
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// What libc promises of these functions: a thread that is to be cancelled ends in them, before
/// anything is done.
fn may_be_cancelled() {
    // SAFETY: it has no conditions; nothing between here and the program is spoilt by unwinding.
    unsafe { pthread_testcancel() };
}

/// Whether these bytes may be copied while a file is locked.
fn is_usable(bytes: *const c_void, len: size_t) -> bool {
    let at = bytes.addr();
    at >= USER_BEGIN
        && at.checked_add(len).is_some_and(|end| end <= USER_END)
        && !guarded(|| mappings::may_wait(bytes, len))
}

fn position(fd: c_int, offset: off_t, whence: c_int) -> Option<u64> {
    // SAFETY: it has no conditions.
    let at = unsafe { libc::lseek(fd, offset, whence) };
    u64::try_from(at).ok()
}

/// Bytes behind the position of a descriptor, which has moved over them: whoever shares the
/// position, also another process, writes elsewhere. What is not written in the end is given back.
struct Reserved {
    fd: c_int,
    at: u64,
    bytes: off_t,
}

impl Reserved {
    fn new(fd: c_int, len: size_t) -> Option<Reserved> {
        let bytes = off_t::try_from(len).ok()?;
        let at = position(fd, bytes, libc::SEEK_CUR)?.checked_sub(len as u64)?;
        Some(Reserved { fd, at, bytes })
    }

    /// So many of the bytes were written.
    fn wrote(&mut self, written: ssize_t) {
        self.bytes -= written.max(0) as off_t;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.bytes > 0 {
            position(self.fd, -self.bytes, libc::SEEK_CUR);
        }
    }
}

/// Where a write goes.
enum Place {
    /// To the end of the file, behind which the position is then, if it counts.
    End { moves: bool },
    /// Here.
    Offset(u64),
    /// To what was reserved.
    Reserved(Reserved),
}

impl Place {
    /// `None`: the next definition is to say what is wrong with it.
    fn of(descriptor: Descriptor, fd: c_int, aim: Aim, len: size_t) -> Option<Place> {
        Some(match (aim, descriptor.appends()) {
            (Aim::Offset(at), false) => Place::Offset(u64::try_from(at).ok()?),
            (Aim::Offset(at), true) => {
                u64::try_from(at).ok()?;
                Place::End { moves: false }
            }
            (Aim::Position, false) => Place::Reserved(Reserved::new(fd, len)?),
            (Aim::Position, true) => Place::End { moves: true },
        })
    }

    fn at(&self) -> u64 {
        match self {
            Place::End { .. } => 0,
            Place::Offset(at) | Place::Reserved(Reserved { at, .. }) => *at,
        }
    }
}

/// Writes by a lease; `None`: the next definition is to do it.
///
/// # Safety
/// L1 of a write.
unsafe fn written(fd: c_int, aim: Aim, bytes: *const c_void, len: size_t, until: Until) -> Option<ssize_t> {
    let descriptor = files::written(fd)?;
    if !is_usable(bytes, len) {
        return None;
    }
    may_be_cancelled();
    let mut place = Place::of(descriptor, fd, aim, len)?;
    // SAFETY: L1: the program says that so many bytes are there.
    let data = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len) };
    // A thread may be cancelled within what is called below, which nothing may catch.
    let done = match guarded(|| descriptor.write(fd, place.at(), data, until)) {
        Attempted::ByDescriptor => {
            let Place::Reserved(reserved) = &mut place else { return None };
            // SAFETY: L1, and the bytes there are this write's own.
            let wrote = unsafe { next::pwrite(fd, bytes, len, off_t::try_from(reserved.at).ok()?) };
            reserved.wrote(wrote);
            return Some(wrote);
        }
        Attempted::Failed => return Some(failed(libc::EIO)),
        Attempted::Done(end) => Some(end),
        // SAFETY: it has no conditions.
        Attempted::Unsynced(end) => (unsafe { next::fdatasync(fd) } == 0).then_some(end),
    };
    match (&mut place, done) {
        (_, None) => return Some(-1),
        (Place::Reserved(reserved), _) => reserved.bytes = 0,
        (Place::End { moves: true }, Some(end)) => _ = position(fd, off_t::try_from(end).ok()?, libc::SEEK_SET),
        (Place::End { .. } | Place::Offset(_), _) => {}
    }
    ssize_t::try_from(len).ok()
}

fn failed(errno: c_int) -> ssize_t {
    set_errno(errno);
    -1
}

/// So often a read at the position is made again, as somebody else moved the position meanwhile.
const READS_AGAIN_MAX: u32 = 4;

/// Reads by a lease; `None`: the next definition is to do it.
///
/// # Safety
/// L1 of a read.
unsafe fn was_read(fd: c_int, aim: Aim, bytes: *mut c_void, len: size_t) -> Option<ssize_t> {
    let descriptor = files::read(fd)?;
    if !is_usable(bytes, len) || len == 0 {
        return None;
    }
    may_be_cancelled();
    // SAFETY: L1: the program says that there is room for so many bytes.
    let out = unsafe { slice::from_raw_parts_mut(bytes.cast::<u8>(), len) };
    let Aim::Position = aim else {
        let Aim::Offset(at) = aim else { return None };
        return read_at(descriptor, fd, u64::try_from(at).ok()?, out);
    };
    for _ in 0..READS_AGAIN_MAX {
        let at = position(fd, 0, libc::SEEK_CUR)?;
        let read = read_at(descriptor, fd, at, out)?;
        // Whoever shares the position may be another process.
        match position(fd, read as off_t, libc::SEEK_CUR)? {
            moved if moved == at + read as u64 => return Some(read),
            _ => position(fd, -(read as off_t), libc::SEEK_CUR)?,
        };
    }
    None
}

fn read_at(descriptor: Descriptor, fd: c_int, at: u64, out: &mut [u8]) -> Option<ssize_t> {
    let Attempted::Done(read) = guarded(|| descriptor.read(fd, at, out)) else { return None };
    ssize_t::try_from(read).ok()
}

/// Records what was read or written, if that is wanted; `done` as the call returns it.
#[inline]
fn traced(top: StackTop, fd: c_int, (aim, done): (Aim, ssize_t), kind: AccessKind) {
    let Some(bytes) = u64::try_from(done).ok().filter(|bytes| *bytes > 0 && trace::is_on()) else { return };
    guarded(|| {
        let Some(file) = files::identity_in_mount(fd) else { return };
        let at = match aim {
            Aim::Offset(at) => u64::try_from(at).unwrap_or(0),
            Aim::Position => trace::position(fd).saturating_sub(bytes),
        };
        let kind = if kind == AccessKind::Write && files::is_synchronous(fd) { AccessKind::SyncWrite } else { kind };
        trace::record(top, file, (at, bytes), kind);
    });
}

/// The one piece of a list, if it has no more, for a descriptor of a file that is leased or may be.
///
/// # Safety
/// L1: so many pieces are there.
unsafe fn only(_: Descriptor, pieces: *const iovec, count: c_int) -> Option<iovec> {
    // SAFETY: as above.
    (count == 1 && is_usable(pieces.cast(), size_of::<iovec>())).then(|| unsafe { *pieces })
}

/// What a call at the position takes, until it has returned, also where the next definition makes
/// it; with an offset, nothing.
macro_rules! turn {
    ($fd:ident) => {
        PositionTurn::at_position($fd)
    };
    ($fd:ident, $at:ident) => {
        ()
    };
}

macro_rules! aim {
    () => {
        Aim::Position
    };
    ($at:ident) => {
        Aim::Offset($at)
    };
}

macro_rules! writes {
    ($($name:ident = $next:ident($fd:ident, $bytes:ident, $len:ident $(, $at:ident)?);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($fd: c_int, $bytes: *const c_void, $len: size_t $(, $at: off_t)?) -> ssize_t {
            let _turn = turn!($fd $(, $at)?);
            let top = StackTop::here();
            let _saying = contexts::say(top, || files::is_in_mount($fd));
            // SAFETY: L1.
            let wrote = match unsafe { written($fd, aim!($($at)?), $bytes, $len, Until::PowerLoss) } {
                Some(wrote) => wrote,
                // SAFETY: L1.
                None => unsafe { next::$next($fd, $bytes, $len $(, $at)?) },
            };
            traced(top, $fd, (aim!($($at)?), wrote), AccessKind::Write);
            wrote
        }
    )* };
}

writes! {
    write = write(fd, bytes, len);
    __write = write(fd, bytes, len);
    pwrite = pwrite(fd, bytes, len, at);
    pwrite64 = pwrite(fd, bytes, len, at);
    __pwrite64 = pwrite(fd, bytes, len, at);
}

macro_rules! reads {
    ($($name:ident = $next:ident($fd:ident, $bytes:ident, $len:ident $(, $at:ident)?);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($fd: c_int, $bytes: *mut c_void, $len: size_t $(, $at: off_t)?) -> ssize_t {
            let _turn = turn!($fd $(, $at)?);
            let top = StackTop::here();
            let _saying = contexts::say(top, || files::is_in_mount($fd));
            // SAFETY: L1.
            let read = match unsafe { was_read($fd, aim!($($at)?), $bytes, $len) } {
                Some(read) => read,
                None => {
                    before_read_by_kernel($fd);
                    // SAFETY: L1.
                    unsafe { next::$next($fd, $bytes, $len $(, $at)?) }
                }
            };
            traced(top, $fd, (aim!($($at)?), read), AccessKind::Read);
            read
        }
    )* };
}

reads! {
    read = read(fd, bytes, len);
    __read = read(fd, bytes, len);
    pread = pread(fd, bytes, len, at);
    pread64 = pread(fd, bytes, len, at);
    __pread64 = pread(fd, bytes, len, at);
}

macro_rules! lists {
    ($($name:ident = $next:ident by $whole:ident of $known:ident as $kind:ty, $access:ident, ($fd:ident, $pieces:ident, $count:ident $(, $at:ident)?) ;)*) => { $(
        /// As in libc. Of a list with one piece the lease can make the whole.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($fd: c_int, $pieces: *const iovec, $count: c_int $(, $at: off_t)?) -> ssize_t {
            let _turn = turn!($fd $(, $at)?);
            let top = StackTop::here();
            let _saying = contexts::say(top, || files::is_in_mount($fd));
            // SAFETY: L1.
            let one = files::$known($fd).and_then(|descriptor| unsafe { only(descriptor, $pieces, $count) });
            // SAFETY: L1.
            let done = one.and_then(|one| unsafe { $whole($fd, aim!($($at)?), one.iov_base as $kind, one.iov_len) });
            match AccessKind::$access {
                AccessKind::Write if one.is_none() => before_write_by_kernel($fd),
                AccessKind::Read if done.is_none() => before_read_by_kernel($fd),
                _ => {}
            }
            // SAFETY: L1.
            let done = done.unwrap_or_else(|| unsafe { next::$next($fd, $pieces, $count $(, $at)?) });
            traced(top, $fd, (aim!($($at)?), done), AccessKind::$access);
            done
        }
    )* };
}

/// The kernel is about to read a file.
#[inline]
pub(in crate::exports) fn before_read_by_kernel(fd: c_int) {
    if mappings::any_upgraded() {
        guarded(|| mappings::before_read_by_kernel(fd));
    }
}

fn before_write_by_kernel(fd: c_int) {
    if let Some(descriptor) = files::known(fd) {
        guarded(|| descriptor.before_write_by_kernel(fd));
    }
}

/// A piece of a list that is written.
///
/// # Safety
/// L1 of a write.
unsafe fn written_piece(fd: c_int, aim: Aim, bytes: *const c_void, len: size_t) -> Option<ssize_t> {
    // SAFETY: L1.
    unsafe { written(fd, aim, bytes, len, Until::PowerLoss) }
}

lists! {
    writev = writev by written_piece of written as *const c_void, Write, (fd, pieces, count);
    pwritev = pwritev by written_piece of written as *const c_void, Write, (fd, pieces, count, at);
    pwritev64 = pwritev by written_piece of written as *const c_void, Write, (fd, pieces, count, at);
    readv = readv by was_read of read as *mut c_void, Read, (fd, pieces, count);
    preadv = preadv by was_read of read as *mut c_void, Read, (fd, pieces, count, at);
    preadv64 = preadv by was_read of read as *mut c_void, Read, (fd, pieces, count, at);
}

macro_rules! flagged {
    ($($name:ident),*) => { $(
        /// As in libc. Of the flags, those of a sync are known.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, pieces: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
            let syncs = flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
            let until = if syncs { Until::Erased } else { Until::PowerLoss };
            let is_known = flags & !(libc::RWF_DSYNC | libc::RWF_SYNC) == 0;
            let aim = if at == -1 { Aim::Position } else { Aim::Offset(at) };
            let _turn = if at == -1 { PositionTurn::at_position(fd) } else { None };
            let top = StackTop::here();
            let _saying = contexts::say(top, || files::is_in_mount(fd));
            // SAFETY: L1.
            let one = files::written(fd).and_then(|descriptor| unsafe { only(descriptor, pieces, count) });
            let one = one.filter(|_| is_known);
            // SAFETY: L1.
            let wrote = one.and_then(|one| unsafe { written(fd, aim, one.iov_base, one.iov_len, until) });
            let wrote = wrote.unwrap_or_else(|| {
                match files::known(fd) {
                    Some(descriptor) if !is_known => guarded(|| descriptor.hand_over(fd)),
                    Some(descriptor) => guarded(|| descriptor.before_write_by_kernel(fd)),
                    // The kernel writes at the end that it knows.
                    None if flags & libc::RWF_APPEND != 0 => guarded(|| files::have_kernel_ask(fd)),
                    None => {}
                }
                // SAFETY: L1.
                unsafe { next::pwritev2(fd, pieces, count, at, flags) }
            });
            traced(top, fd, (aim, wrote), if syncs { AccessKind::SyncWrite } else { AccessKind::Write });
            wrote
        }
    )* };
}

flagged!(pwritev2, pwritev64v2);

macro_rules! syncs {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            let top = StackTop::here();
            if let Err(errno) = guarded(|| before_sync(fd)) {
                return answered(Err(errno));
            }
            let by_lease = |descriptor: Descriptor| {
                may_be_cancelled();
                guarded(|| descriptor.sync(fd))
            };
            let synced = match files::synced(fd).map_or(Attempted::ByDescriptor, by_lease) {
                Attempted::Done(_) => 0,
                // SAFETY: L1.
                _ => unsafe { next::$name(fd) },
            };
            if synced == 0 && trace::is_on() {
                guarded(|| {
                    if let Some(file) = files::identity_in_mount(fd) {
                        trace::record(top, file, (0, 0), AccessKind::Sync);
                    }
                });
            }
            synced
        }
    )* };
}

syncs!(fsync, fdatasync);
