//! A file system that is soon full, for tests.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::PathBuf;

/// A file system of 1 MiB in memory, unmounted and removed at the end.
pub(crate) struct Tiny(pub(crate) tempfile::TempDir);

/// Bytes of it.
pub(crate) const TINY_BYTES: u64 = 1 << 20;

impl Tiny {
    /// Mounts one; None without root's powers.
    pub(crate) fn mounted() -> Option<Tiny> {
        let folder = tempfile::tempdir().expect("a folder");
        mount("tidegate-test", folder.path(), "tmpfs", MountFlags::NODEV, Some(c"size=1M")).ok()?;
        Some(Tiny(folder))
    }

    /// A place for a file on it.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("region")
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // Detached, as a failed assertion may have left a region mapped.
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}
