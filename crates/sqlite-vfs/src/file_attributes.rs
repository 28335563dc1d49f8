//! Single attributes of a file of a mount, by `statx`: the kernel asks the mount only for those of
//! them that it does not know any more. For `fstat` it asks whenever a page was read, as the time
//! of the last access may be another one.

use libc::{c_int, c_uint};
use std::ffi::{CStr, c_char};

/// The length of an open file in bytes. `None`: the kernel does not tell.
pub(crate) fn len(descriptor: c_int) -> Option<u64> {
    let about = ask(descriptor, c"".as_ptr(), libc::STATX_SIZE)?;
    (about.stx_mask & libc::STATX_SIZE != 0).then_some(about.stx_size)
}

/// Whether `path` leads to another file than `descriptor` by now, or to none. `None`: the kernel
/// does not tell.
pub(crate) fn has_moved(descriptor: c_int, path: &CStr) -> Option<bool> {
    let file = |about: libc::statx| (about.stx_dev_major, about.stx_dev_minor, about.stx_ino);
    let opened = file(ask(descriptor, c"".as_ptr(), libc::STATX_INO)?);
    Some(ask(libc::AT_FDCWD, path.as_ptr(), libc::STATX_INO).map(file) != Some(opened))
}

/// Asks about `path`, or about the file of `descriptor` if that is empty. `path` ends with a zero
/// byte.
fn ask(descriptor: c_int, path: *const c_char, attributes: c_uint) -> Option<libc::statx> {
    // SAFETY: all zeroes are a value of this type, and the call fills it in.
    let mut about: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's text, and the place is this function's own.
    let code = unsafe { libc::statx(descriptor, path, libc::AT_EMPTY_PATH, attributes, &raw mut about) };
    (code == 0).then_some(about)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn text(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    #[test]
    fn the_length_is_that_of_the_open_file() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(len(file.as_raw_fd()), Some(0));
        file.set_len(12345).unwrap();
        assert_eq!((len(file.as_raw_fd()), len(-1)), (Some(12345), None));
    }

    #[test]
    fn a_file_that_was_renamed_replaced_or_removed_has_moved() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["a", "b"].map(|name| folder.path().join(name));
        let file = std::fs::File::create(&path).unwrap();
        let moved = || has_moved(file.as_raw_fd(), &text(&path));
        assert_eq!(moved(), Some(false));
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(moved(), Some(true));
        std::fs::write(&path, "another").unwrap();
        assert_eq!(moved(), Some(true));
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(moved(), Some(false));
        assert_eq!(has_moved(-1, &text(&path)), None);
    }
}
