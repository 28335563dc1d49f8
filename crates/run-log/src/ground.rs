//! What a run needs of the files below and of the system: the seam between its protocol and the
//! kernel, so that every power cut of the protocol can be tried without one.

use super::file_system::FileSystem;
use super::journal::Named;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use tidegate_layout::kept::StripAttributes;
use tidegate_preload_wire::FileId;

/// What a whole sync makes durable besides contents and size: mode, owner, and how many names there
/// are.
pub(super) type Attributes = [u64; 3];

/// A file that is held: read and synced, and never written.
pub(super) trait Below: Debug + Send + Sync {
    /// Which one.
    fn id(&self) -> FileId;
    /// Where it was when it was opened.
    fn path(&self) -> &Path;
    /// As the journal has it, without a strip.
    fn named(&self, family: u32) -> Named;
    /// Whether it has no name any more.
    fn is_removed(&self) -> bool;
    /// Its bytes.
    fn size(&self) -> io::Result<u64>;
    /// Its attributes, where they can be told.
    fn attributes(&self) -> io::Result<Attributes> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Fills `block` from byte `at` on; behind the end of the file with zeroes.
    fn read(&self, at: u64, block: &mut [u8]) -> io::Result<()>;
    /// Brings the file to its disk.
    fn sync(&self) -> io::Result<()>;
    /// Makes durable that the file is where it was when it was opened, and recovery will look for
    /// it: a sync of the file alone may leave it to a power cut to take back that it, or a folder
    /// above it, was renamed. Whether it is still there.
    fn sync_in_place(&self) -> io::Result<bool>;
}

/// The journal's file: what is appended is durable on return.
pub(super) trait Log: Debug + Send {
    /// Appends `bytes`, durably.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// What stands in it from byte `at` on; others append too.
    fn since(&self, at: u64) -> io::Result<Vec<u8>>;
    /// Removes it, durably.
    fn remove(&mut self) -> io::Result<()>;
}

/// A file that recovery writes.
pub(super) trait Target {
    /// Its bytes.
    fn len(&self) -> io::Result<u64>;
    /// Makes it longer; or shorter, if it was made by recovery.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Writes all of `data` at byte `at`.
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()>;
    /// Gives the file this mode and owner.
    fn set_attributes(&self, attributes: StripAttributes) -> io::Result<()>;
    /// Brings the file, and the way to it, to its disk.
    fn sync(&self) -> io::Result<()>;
}

/// What recovery finds where a held file was.
pub(super) enum Found {
    /// The file as it was held.
    Same(Box<dyn Target>),
    /// It is not what it was.
    Unlike(Unlike),
}

/// Why nothing is written to what lies where a held file was.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Unlike {
    /// There is nothing.
    Missing,
    /// It is another file.
    Replaced,
    /// It was written since the system came up, so somebody has begun to use what the power cut
    /// left.
    Changed,
    /// It could not be written back, and the program was told, or has ended.
    Failed,
    /// It lies beside a file that was written since the system came up.
    Beside,
    /// It was changed before it was held, as it says of itself: by a clock that was behind, so
    /// nobody knows whether that was since the system came up.
    ClockBehind,
    /// A power cut may have left less of the pool than of the file: the pool was no memory that
    /// keeps what is fenced.
    Newer,
}

impl Unlike {
    /// In a sentence that begins with the file.
    pub fn told(self) -> &'static str {
        match self {
            Unlike::Missing => "is missing",
            Unlike::Replaced => "is another file now",
            Unlike::Changed => "was written since the power came back",
            Unlike::Failed => "could not be written back",
            Unlike::Beside => "lies beside a file that was written since the power came back",
            Unlike::ClockBehind => {
                "is doubtful: it was last changed before it was held, by a clock that was behind, so it may have been written since the power came back"
            }
            Unlike::Newer => "may be newer than what the pool has of it, as that is no persistent memory",
        }
    }
}

/// What became of what only the pool had of a file or a name.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) enum Brought {
    /// The file has it.
    Written,
    /// It was put aside.
    Aside {
        /// Why.
        unlike: Unlike,
        /// Where.
        #[serde(with = "tidegate_host::json_path")]
        to: PathBuf,
    },
    /// Nothing was to have the name, and nothing has it.
    Gone,
    /// Nothing was to have the name; what has it was left alone.
    Left(Unlike),
    /// The same, and what the power cut left of a removed file went there.
    Removed(#[serde(with = "tidegate_host::json_path")] PathBuf),
}

/// Files as recovery finds them.
pub(super) trait Ground {
    /// The file system on which `named` lies, if that is not mounted where it was: nothing that is
    /// found there is what was held.
    fn missing(&self, named: &Named) -> io::Result<Option<FileSystem>>;
    /// What lies where `named` was. `resumed`: a recovery of this boot has begun to write it
    /// already.
    fn find(&self, named: &Named, resumed: bool) -> io::Result<Found>;
    /// The name `named`, for a new file: the first change of its length makes it, in the place of
    /// whatever has the name. Not if a file has it that was born later than `born_ns`: that is
    /// another one's.
    fn find_name(&self, named: &Named, resumed: bool, born_ns: u64) -> io::Result<Found>;
    /// Whether anything has the name `named`, as far as that can be seen: what nobody can look at
    /// may be there.
    fn has_name(&self, named: &Named) -> bool;
    /// Removes what has the name `named`, which nothing is to have that was born at `born_ns` or
    /// before: its bytes go aside. What has become of it.
    fn remove_name(&self, named: &Named, born_ns: u64) -> io::Result<Brought>;
    /// Brings what lies where `named` was to its disk, as far as it can be opened.
    fn sync(&self, named: &Named) -> io::Result<()>;
    /// A new file for what was kept of `named`, and where it is.
    fn salvage(&self, named: &Named) -> io::Result<(Box<dyn Target>, PathBuf)>;
}
