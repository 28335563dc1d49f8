//! The path of a region that is about to be made: what is there before, and how that is left if the
//! region is refused.

use std::fs::File;
use std::io;
use std::path::Path;

/// What is at a path before a region is made there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundAtPath {
    /// No file.
    Nothing,
    /// A file without a byte.
    Empty,
    /// A file with bytes, a device, or what cannot be looked at.
    Bytes,
}

impl FoundAtPath {
    /// Looks at `path`.
    pub fn of(path: &Path) -> FoundAtPath {
        match path.metadata() {
            Ok(there) if there.is_file() && there.len() == 0 => FoundAtPath::Empty,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FoundAtPath::Nothing,
            _ => FoundAtPath::Bytes,
        }
    }

    /// Leaves `path`, where a region was made and is refused, as it was found. The failure that led
    /// here is told; an empty region that stays is in the way of no other.
    pub fn leave(self, path: &Path) {
        let _ = match self {
            FoundAtPath::Nothing => std::fs::remove_file(path),
            FoundAtPath::Empty => File::options().write(true).open(path).and_then(|file| file.set_len(0)),
            FoundAtPath::Bytes => Ok(()),
        };
    }
}
