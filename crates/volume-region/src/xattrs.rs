//! Paths noted beside files, in extended attributes: which volume a cache's file is for, where a
//! volume's disk is. A convenience: where the file system keeps no attributes, no path is known.

use rustix::fs::XattrFlags;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// No path is longer.
const PATH_BYTES_MAX: usize = 4096;

/// What a path that is noted is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xattr {
    /// The volume of a write cache's file.
    Volume,
    /// The disk of a region that caches one.
    Disk,
}

impl Xattr {
    fn attribute(self) -> &'static str {
        match self {
            Xattr::Volume => "user.tidegate.volume",
            Xattr::Disk => "user.tidegate.disk",
        }
    }

    /// Notes `path` at `file`.
    pub fn write(self, file: &File, path: &Path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Without the note somebody has to be asked.
        let _ = rustix::fs::fsetxattr(file, self.attribute(), path.as_os_str().as_bytes(), XattrFlags::empty());
    }

    /// What was noted at the file `at`.
    pub fn read(self, at: &Path) -> Option<PathBuf> {
        let mut path = vec![0; PATH_BYTES_MAX];
        let len = rustix::fs::getxattr(at, self.attribute(), &mut path[..]).ok()?;
        path.truncate(len);
        Some(OsString::from_vec(path).into())
    }

    /// Nothing is noted at `file` any more.
    pub fn remove(self, file: &File) {
        // What stays is checked against the disk's identity.
        let _ = rustix::fs::fremovexattr(file, self.attribute());
    }
}
