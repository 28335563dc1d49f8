//! Folders and names as paths say them.

use super::held::{Bytes, NAME_BYTES};
use crate::asked::{self, PATH_BYTES};
use libc::c_int;
use rustix::fs::{AtFlags, FileType, Stat};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use tidegate_preload_wire::FileId;

/// A path's folder and its last name. None: it ends with no name.
pub(super) fn divided(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = &path[..end];
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&b"/"[..], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b"."[..], path),
    };
    (name != b"." && name != b"..").then_some((above, name))
}

/// `name` as places have it, if it is short enough.
pub(super) fn packed(name: &[u8]) -> Option<Bytes> {
    let mut bytes = [0; NAME_BYTES];
    let len = u8::try_from(name.len()).ok().filter(|_| name.len() < NAME_BYTES)?;
    bytes[..name.len()].copy_from_slice(name);
    bytes[NAME_BYTES - 1] = len;
    Some(bytes)
}

/// What `act` makes of `path` with a zero byte behind it.
pub(super) fn with_end<T>(path: &[u8], act: impl FnOnce(&CStr) -> T) -> Option<T> {
    let mut room = [0; PATH_BYTES];
    room.get_mut(..path.len())?.copy_from_slice(path);
    Some(act(CStr::from_bytes_until_nul(&room).ok()?))
}

/// The folder `above`, as seen from `folder`.
pub(super) fn folder_at(folder: c_int, above: &[u8]) -> Option<FileId> {
    let stat = with_end(above, |above| rustix::fs::statat(borrowed(folder), above, AtFlags::empty()))?.ok()?;
    is_folder(&stat).then(|| asked::id(&stat))
}

/// `folder` for one call of the kernel.
pub(super) fn borrowed(folder: c_int) -> BorrowedFd<'static> {
    // SAFETY: a closed number is an error, not a danger; -100 stands for the current folder as it
    // does in libc.
    unsafe { BorrowedFd::borrow_raw(folder) }
}

/// Whether `stat` describes a folder.
pub(super) fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}
