//! Functions that write files through descriptors.

use super::attributes::{attributing_open, settle_open};
use crate::follow::{Aim, Asked, Source, change, write as written};
use crate::{follow, loud, names, next};
use libc::{c_int, c_uint, c_ulong, c_void, iovec, off_t, size_t, ssize_t};

macro_rules! writes {
    ($($name:ident = $next:ident($fd:ident, $bytes:ident: $kind:ident, $len:ident: $count:ty $(, $at:ident)?);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($fd: c_int, $bytes: *const $kind, $len: $count $(, $at: off_t)?) -> ssize_t {
            // SAFETY: L1.
            written($fd, aim!($($at)?), source!($bytes: $kind, $len), || unsafe { next::$next($fd, $bytes, $len $(, $at)?) })
        }
    )* };
}

macro_rules! source {
    ($bytes:ident: c_void, $len:ident) => {
        Source::Bytes($bytes.cast(), $len)
    };
    ($pieces:ident: iovec, $count:ident) => {
        Source::Pieces($pieces, $count)
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

writes! {
    write = write(fd, bytes: c_void, len: size_t);
    __write = write(fd, bytes: c_void, len: size_t);
    pwrite = pwrite(fd, bytes: c_void, len: size_t, at);
    pwrite64 = pwrite(fd, bytes: c_void, len: size_t, at);
    __pwrite64 = pwrite(fd, bytes: c_void, len: size_t, at);
    writev = writev(fd, pieces: iovec, count: c_int);
    pwritev = pwritev(fd, pieces: iovec, count: c_int, at);
    pwritev64 = pwritev(fd, pieces: iovec, count: c_int, at);
}

/// As in libc. With any flag but those of a sync it is not told where the write goes.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    let syncs = flags & (libc::RWF_DSYNC | libc::RWF_SYNC);
    let aim = match (flags - syncs, at) {
        (0, -1) => Aim::Position,
        (0, _) => Aim::Offset(at),
        _ => Aim::Anywhere,
    };
    // SAFETY: L1.
    let call = |flags| unsafe { next::pwritev2(fd, pieces, count, at, flags) };
    let source = source!(pieces: iovec, count);
    if syncs == 0 {
        return written(fd, aim, source, || call(flags));
    }
    let asked = Asked { descriptor: fd, aim, source };
    loud::write_once(asked, flags & libc::RWF_SYNC != 0, || call(flags - syncs), || call(flags))
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: L1.
    unsafe { pwritev2(fd, pieces, count, at, flags) }
}

macro_rules! sends {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(out: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
            // SAFETY: L1.
            written(out, Aim::Anywhere, Source::Unknown, || unsafe { next::sendfile(out, from, at, len) })
        }
    )* };
}

sends!(sendfile, sendfile64);

macro_rules! moves {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(
            from: c_int,
            at: *mut off_t,
            out: c_int,
            to: *mut off_t,
            len: size_t,
            flags: c_uint,
        ) -> ssize_t {
            // SAFETY: L1.
            written(out, Aim::Anywhere, Source::Unknown, || unsafe { next::$name(from, at, out, to, len, flags) })
        }
    )* };
}

moves!(splice, copy_file_range);

/// `FICLONE`, `FICLONERANGE`, `FIDEDUPERANGE`: requests that put other files' blocks into a file.
pub(super) const CLONES: [c_ulong; 3] = [0x4004_9409, 0x4020_940d, 0xc018_9436];

/// `FS_IOC_SETFLAGS`, the same of a program of 32 bits, `FS_IOC_FSSETXATTR`, and two
/// `FS_IOC_SETVERSION`: requests that set attributes of a file.
const ATTRIBUTES: [c_ulong; 5] = [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4008_6604];

/// Whether a request says of itself that it only reads (as `FS_IOC_GETFLAGS` does), or is a
/// terminal's.
fn only_reads(number: c_ulong) -> bool {
    number >> 30 == 0b10 || number >> 8 == 0x54
}

/// As in libc. Of a folder any other request may change something, its own attributes or even what
/// it has.
///
/// # Safety
/// L1, L4.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let number = request & 0xffff_ffff;
    if CLONES.contains(&number) {
        follow::abandon_unseen(fd);
    }
    // SAFETY: L1, L4.
    let call = || unsafe { next::ioctl(fd, request, argument) };
    if only_reads(number) {
        return call();
    }
    names::during([attributing_open(fd)], || {
        if ATTRIBUTES.contains(&number) { change(|| settle_open(fd), call) } else { call() }
    })
}
