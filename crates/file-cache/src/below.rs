//! The seam below: a file of the kernel's, or of the simulator's.

use std::sync::Arc;

/// Which file a file is. A path may come to name another one; this does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdentity {
    /// Number of the file system's device.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// Which of the files that had this inode one after the other (`FS_IOC_GETVERSION`, or the time
    /// of birth; 0 where there is neither).
    pub generation: u64,
}

/// The file below refused. The program gets the same error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file below refused (errno {errno})")]
pub struct Refused {
    /// What the kernel said.
    pub errno: i32,
}

/// A file below the cache. While the cache has it open, nobody else changes it.
pub trait BackingFile: Send + Sync {
    /// Which file it is.
    fn identity(&self) -> FileIdentity;

    /// Its length in bytes, as it is visible, and a mark that changes whenever somebody changes the
    /// contents or the length, such as the time of modification.
    fn status(&self) -> Result<BackingStatus, Refused>;

    /// Copies bytes from offset `at`; says how many, which is fewer than asked for at the end of
    /// the file only.
    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused>;

    /// Stores bytes at offset `at`: visible, and durable after the next good [`BackingFile::sync`].
    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused>;

    /// Cuts the file, or extends it by a hole. Durable after the next good sync.
    fn set_len(&self, len: u64) -> Result<(), Refused>;

    /// Changes the room that a range has, and never the length. Durable after the next good sync.
    fn fallocate(&self, at: u64, len: u64, how: Fallocate) -> Result<(), Refused>;

    /// Whether the file system has so much room that none need be reserved for bytes up to `end`;
    /// up to where that is so. If others take all of it, a later write is refused.
    fn has_plenty_for(&self, end: u64) -> Option<u64> {
        let _ = end;
        None
    }

    /// Where data or a hole begins at `at` or later (`SEEK_DATA`, `SEEK_HOLE`); `None`: nowhere.
    /// The end of the file is a hole.
    fn seek(&self, at: u64, sought: Sought) -> Result<Option<u64>, Refused>;

    /// Gives the file the time at which its program changed it, if there is one, as a change of the
    /// file below. Durable after the next good sync.
    fn set_times(&self) -> Result<(), Refused> {
        Ok(())
    }

    /// Makes durable what was stored before: contents, length, the status's number, and the file's
    /// own existence. After a failure nobody knows which of it is, and a later success says nothing
    /// about it.
    fn sync(&self) -> Result<(), Refused>;

    /// Gives the file its program's time, and makes all of it durable.
    fn sync_with_times(&self) -> Result<(), Refused> {
        self.set_times()?;
        self.sync()
    }
}

/// What happens to the room of a range, as `fallocate` has it with `FALLOC_FL_KEEP_SIZE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Later writes find room. The contents stay.
    Reserve,
    /// The contents become zeroes, and later writes find room.
    Zero,
    /// The contents become a hole, which reads as zeroes.
    Punch,
}

/// What is looked for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Bytes that may be other than zero.
    Data,
    /// Bytes that are zero, and may have no room.
    Hole,
}

impl Refused {
    /// Whether the file system has no such operation (`EOPNOTSUPP`, `ENOSYS`).
    pub fn is_unsupported(self) -> bool {
        [95, 38].contains(&self.errno)
    }
}

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingStatus {
    /// Bytes in the file.
    pub len: u64,
    /// Changes with contents and length.
    pub stamp: Stamp,
    /// Whether others took its last name away: nobody can open it then.
    pub is_removed: bool,
}

/// A mark of the last change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// Bits that change with the time of the last change of any kind.
    const CHANGE_BITS: u32 = 24;

    /// No mark: of a file that is not told apart from a changed one.
    pub const NONE: Stamp = Stamp(0);

    /// The mark of no file: of one that is salvaged, so that the file in its place is never taken
    /// for it.
    pub(crate) const DISPLACED: Stamp = Stamp(u64::MAX);

    /// The mark of a file whose contents and length change `contents`, and any change at all, of
    /// its name or mode too, changes `change`.
    pub fn of(contents: u64, change: u64) -> Stamp {
        // Odd multipliers bring every bit to the upper ones.
        let contents = contents.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> Stamp::CHANGE_BITS;
        let change = change.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (64 - Stamp::CHANGE_BITS);
        Stamp(contents.max(1) << Stamp::CHANGE_BITS | change)
    }

    /// Whether contents and length are the same, whatever else was changed.
    pub fn has_contents_of(self, other: Stamp) -> bool {
        self.0 >> Stamp::CHANGE_BITS == other.0 >> Stamp::CHANGE_BITS
    }

    /// The mark that a record says, unless it is 0, which is none.
    pub(crate) fn of_word(word: u64) -> Option<Stamp> {
        (word != 0).then_some(Stamp(word))
    }

    /// The word that a record says; 0: it says no mark.
    pub(crate) fn word(self) -> u64 {
        self.0
    }
}

/// Where recovery finds files.
pub trait Below {
    /// The file of this identity, by the path it had when it was cached. `Ok(None)`: it is not
    /// there, or another one is in its place.
    fn find(&self, identity: FileIdentity, path_hint: &[u8]) -> Result<Option<Arc<dyn BackingFile>>, Refused>;

    /// Decides about bytes that cannot go where they belong.
    fn displaced(&self, identity: FileIdentity, path_hint: &[u8], why: Displaced) -> Result<Disposition, Refused>;
}

/// Why bytes cannot go where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// The file is not there, or another one is in its place.
    Missing,
    /// Somebody else changed it since.
    Changed,
    /// It is there, and refused.
    Refused(Refused),
}

/// What is done with bytes that cannot go where they belong.
pub enum Disposition {
    /// The pool retains them.
    Retain,
    /// They go to this fresh empty file.
    Salvage(Arc<dyn BackingFile>),
    /// They are given up.
    Discard,
}
