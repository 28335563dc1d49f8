//! Atomic groups of writes of a mount, by the `ioctl`s of F2FS.

use libc::{c_int, c_ulong};
use std::io::{Error, ErrorKind, Result};
use tidegate_file_cache::GroupWrite;

const GET_FEATURES: c_ulong = 0x8004_f50c;
const BEGIN: c_ulong = 0xf501;
const COMMIT: c_ulong = 0xf502;
const ABORT: c_ulong = 0xf505;
/// The feature: there are groups.
const FEATURE_GROUPS: u32 = 4;
/// File systems of processes, as `fstatfs` calls them.
const FUSE: libc::c_long = 0x6573_5546;

/// Whether writes to this descriptor can be a group: it is open for writing, and of a mount.
pub(crate) fn is_supported(descriptor: c_int) -> bool {
    let mut features = 0_u32;
    // SAFETY: all zeroes are a value of this type, and the call fills it in.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the place is this function's own; a number that is no descriptor is an error.
    let is_fuse = unsafe { libc::fstatfs(descriptor, &raw mut about) } == 0 && about.f_type == FUSE;
    // SAFETY: this call takes no pointer.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let is_writable = flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDWR;
    // SAFETY: the call writes four bytes to the place, which has them.
    is_fuse
        && is_writable
        && unsafe { libc::ioctl(descriptor, GET_FEATURES, &raw mut features) } == 0
        && features & FEATURE_GROUPS != 0
}

/// Writes all, durably, or nothing.
pub(crate) fn write(descriptor: c_int, writes: &[GroupWrite<'_>]) -> Result<()> {
    let _past = PastPageCache::begin(descriptor);
    control(descriptor, BEGIN)?;
    let committed = writes
        .iter()
        .try_for_each(|run| write_run(descriptor, run.at, run.data))
        .and_then(|()| control(descriptor, COMMIT));
    if committed.is_err() {
        // The error of before is told. A group that has ended already cannot be aborted.
        let _ = control(descriptor, ABORT);
    }
    committed
}

/// While it lives, writes go past the kernel's page cache, if the file can do so: a mount takes
/// each of them in one request then.
struct PastPageCache {
    descriptor: c_int,
    flags: c_int,
}

impl PastPageCache {
    fn begin(descriptor: c_int) -> Option<PastPageCache> {
        // SAFETY: this command takes no pointer.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        let is_set = flags >= 0 && flags & libc::O_DIRECT == 0 && set_flags(descriptor, flags | libc::O_DIRECT);
        is_set.then_some(PastPageCache { descriptor, flags })
    }
}

impl Drop for PastPageCache {
    fn drop(&mut self) {
        // What could be set can be cleared.
        set_flags(self.descriptor, self.flags);
    }
}

fn set_flags(descriptor: c_int, flags: c_int) -> bool {
    // SAFETY: this command takes no pointer.
    unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags) == 0 }
}

/// A mount answers writes through its page cache short, or interrupts them, and wants the rest.
fn write_run(descriptor: c_int, mut at: u64, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        let place = libc::off_t::try_from(at).map_err(|_| Error::from(ErrorKind::FileTooLarge))?;
        // SAFETY: the slice has so many bytes.
        let written = unsafe { libc::pwrite(descriptor, data.as_ptr().cast(), data.len(), place) };
        match usize::try_from(written) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => (at, data) = (at + written as u64, &data[written..]),
            Err(_) => match Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

fn control(descriptor: c_int, command: c_ulong) -> Result<()> {
    // SAFETY: these commands take no pointer.
    if unsafe { libc::ioctl(descriptor, command, 0) } == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn files_outside_a_mount_have_no_groups() {
        let file = tempfile::tempfile().unwrap();
        assert!(!is_supported(file.as_raw_fd()) && !is_supported(-1));
        assert!(write(file.as_raw_fd(), &[GroupWrite { at: 0, data: b"bytes" }]).is_err());
        assert_eq!(file.metadata().unwrap().len(), 0, "no group, no write");
    }

    #[test]
    fn a_run_is_written_at_its_place() {
        let file = tempfile::tempfile().unwrap();
        write_run(file.as_raw_fd(), 3, b"bytes").unwrap();
        let mut read = [0; 8];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"\0\0\0bytes");
        assert!(write_run(file.as_raw_fd(), u64::MAX, b"x").is_err());
    }
}
