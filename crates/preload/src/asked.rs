//! What the kernel tells of a descriptor or a path. A closed number is an error here, not a danger.

use crate::next;
use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, Stat, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_long};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use tidegate_preload_wire::FileId;

/// Bytes of the longest path that is told.
pub(crate) const PATH_BYTES: usize = 4096;
/// Bytes of the longest name of a descriptor, and its end.
const NAME_BYTES: usize = b"/proc/self/fd/".len() + 12;

/// The file behind `descriptor`, if it is a regular one.
pub(crate) fn file_of(descriptor: i32) -> Option<FileId> {
    stat(descriptor).filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).map(|stat| id(&stat))
}

/// Bytes of the file behind `descriptor`.
pub(crate) fn size_of(descriptor: i32) -> Option<i64> {
    stat(descriptor).map(|stat| stat.st_size)
}

/// The path of the file behind `descriptor`, if it fits.
pub(crate) fn path_of(descriptor: i32, room: &mut [MaybeUninit<u8>; PATH_BYTES]) -> Option<&[u8]> {
    let (path, rest) =
        with_name(descriptor, |name| rustix::fs::readlinkat_raw(rustix::fs::CWD, name, &mut room[..]))?.ok()?;
    (!rest.is_empty()).then_some(&*path)
}

/// What `act` makes of the name by which the file behind `descriptor` can be opened anew.
pub(crate) fn with_name<T>(descriptor: i32, act: impl FnOnce(&CStr) -> T) -> Option<T> {
    let mut name = [0; NAME_BYTES];
    let (folder, number) = name.split_at_mut(b"/proc/self/fd/".len());
    folder.copy_from_slice(b"/proc/self/fd/");
    let mut digits = [0; 10];
    let mut rest = u32::try_from(descriptor).ok()?;
    let mut count = 0;
    for digit in &mut digits {
        *digit = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    for (place, digit) in number.iter_mut().zip(digits[..count].iter().rev()) {
        *place = *digit;
    }
    Some(act(CStr::from_bytes_until_nul(&name).ok()?))
}

/// What the kernel says of the file behind `descriptor`.
pub(crate) fn stat(descriptor: i32) -> Option<Stat> {
    rustix::fs::fstat(borrowed(descriptor)?).ok()
}

/// When the file behind `descriptor` was born, in nanoseconds since 1970, where the file system
/// knows.
pub(crate) fn born_ns(descriptor: i32) -> Option<u64> {
    born(descriptor)?.1
}

/// Which file is behind `descriptor`, and when it was born.
pub(crate) fn born(descriptor: i32) -> Option<(FileId, Option<u64>)> {
    let stat = rustix::fs::statx(borrowed(descriptor)?, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let file = FileId { device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino };
    Some((file, birth_ns(&stat)))
}

fn birth_ns(stat: &Statx) -> Option<u64> {
    let known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let seconds = u64::try_from(stat.stx_btime.tv_sec).ok().filter(|_| known)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(stat.stx_btime.tv_nsec.into())
}

/// Which file `stat` describes.
pub(crate) fn id(stat: &Stat) -> FileId {
    FileId { device: stat.st_dev, inode: stat.st_ino }
}

/// Where `descriptor` is.
pub(crate) fn position(descriptor: i32) -> Option<u64> {
    seek(descriptor, SeekFrom::Current(0))
}

/// Where `descriptor` is when it has been moved.
pub(crate) fn seek(descriptor: i32, to: SeekFrom) -> Option<u64> {
    rustix::fs::seek(borrowed(descriptor)?, to).ok()
}

/// How `descriptor` was opened; nothing, if it was not.
pub(crate) fn flags(descriptor: i32) -> OFlags {
    borrowed(descriptor).and_then(|file| rustix::fs::fcntl_getfl(file).ok()).unwrap_or(OFlags::empty())
}

/// Whether `descriptor` may be written.
pub(crate) fn is_writable(descriptor: i32) -> bool {
    may_write(flags(descriptor))
}

/// Whether one that was opened so may be.
pub(crate) fn may_write(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Whether what is written through `descriptor` goes to the end.
pub(crate) fn appends(descriptor: i32) -> bool {
    flags(descriptor).contains(OFlags::APPEND)
}

/// `descriptor` for one call of the kernel.
pub(crate) fn borrowed(descriptor: i32) -> Option<BorrowedFd<'static>> {
    // SAFETY: a closed number is an error, not a danger: it is only handed to the kernel, at once.
    (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// What a path names.
pub(crate) enum Named {
    /// A file of any kind but a folder, and how many names it has.
    File(FileId, u64),
    /// A folder.
    Folder(FileId),
    /// Nothing.
    Nothing,
}

/// A path that a caller of libc gave: an address that nobody has looked at, as seen from a folder.
#[derive(Clone, Copy)]
pub(crate) struct GivenPath {
    folder: i32,
    at: *const c_char,
}

impl GivenPath {
    /// # Safety
    /// L1: what lies at `at` is not changed by others before the call ends. It may be any address:
    /// who gives a bad one is answered by the kernel.
    pub(crate) unsafe fn new(folder: i32, at: *const c_char) -> GivenPath {
        GivenPath { folder, at }
    }

    /// One that this library has.
    pub(crate) fn of(folder: i32, path: &CStr) -> GivenPath {
        GivenPath { folder, at: path.as_ptr() }
    }

    /// What the kernel says of what it names: it reads the path, so a bad address is an error.
    pub(crate) fn stat(self, flags: AtFlags) -> Result<Stat, Errno> {
        let mut stat = MaybeUninit::<Stat>::uninit();
        let flags = flags.bits().cast_signed().into();
        let kept = errno();
        // SAFETY: the kernel reads no address that it may not read, and writes as many bytes as a
        // `Stat` has.
        let answer = unsafe {
            let (path, to) = (self.at as c_long, stat.as_mut_ptr() as c_long);
            next::syscall(libc::SYS_newfstatat, self.folder.into(), path, to, flags, 0, 0)
        };
        let error = errno();
        set_errno(kept);
        // SAFETY: the kernel has filled it.
        if answer == 0 { Ok(unsafe { stat.assume_init() }) } else { Err(Errno::from_raw_os_error(error)) }
    }

    /// The path, if it can be read.
    pub(crate) fn text<'a>(self) -> Option<&'a CStr> {
        self.text_behind(self.stat(AtFlags::SYMLINK_NOFOLLOW).err())
    }

    /// The same when [`GivenPath::stat`] has answered so.
    pub(crate) fn text_behind<'a>(self, error: Option<Errno>) -> Option<&'a CStr> {
        // Of one that is too long nobody knows whether its end can be read; and nothing is done to
        // what it names.
        let can_be_read = !matches!(error, Some(Errno::FAULT | Errno::NAMETOOLONG));
        // SAFETY: L1; the kernel has read it up to its end.
        can_be_read.then(|| unsafe { CStr::from_ptr(self.at) })
    }
}

/// This thread's `errno`: what is done beside a call leaves it as it was.
pub(crate) fn errno() -> i32 {
    // SAFETY: every thread has one of its own.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set_errno(number: i32) {
    // SAFETY: every thread has one of its own.
    unsafe { *libc::__errno_location() = number };
}

/// What `path` names.
pub(crate) fn named(path: GivenPath, follow: bool) -> Named {
    match path.stat(if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Named::Folder(id(&stat)),
        #[allow(clippy::useless_conversion, reason = "the count of names is narrower elsewhere")]
        Ok(stat) => Named::File(id(&stat), stat.st_nlink.into()),
        Err(_) => Named::Nothing,
    }
}
