//! The results of functions, and the sentence behind each.

use crate::options::NoOption;
use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::path::PathBuf;
use tidegate_append_log::{CreateError, LogError, LogOpenError};
use tidegate_disk_cache::{FormatError, NewLayoutError, OpenError, TransactionError};
use tidegate_media::{Claim, Error, MapError};
use uuid::Uuid;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// It did what it was asked.
    TidegateOk = 0,
    /// The caller asked for what is never possible: a null pointer, blocks past the end, a buffer
    /// that holds no whole blocks, a handle of the process that this one was forked from.
    TidegateMisuse = 1,
    /// The memory or the disk cannot give bytes back, or refuses them.
    TidegateMedia = 2,
    /// What lies in the region is damaged, no cache, or the cache of another disk; or something
    /// lies on the disk that may not be lost, or the disk was changed without its region, which has
    /// blocks for it.
    TidegateRefused = 3,
    /// Another program uses the region or the disk.
    TidegateInUse = 4,
    /// The system refused: permission, space, no such file.
    TidegateSystem = 5,
    /// An earlier store was lost: close the cache and open it anew.
    TidegateSealed = 6,
    /// The transaction has more blocks than the region's ring and size allow.
    TidegateTooLarge = 7,
    /// A mistake in the library itself. Close the cache and open it anew.
    TidegateBug = 8,
    /// Somebody else committed a block that the transaction read or wrote since it began. It may be
    /// tried again from its beginning.
    TidegateConflict = 9,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    #[error("a pointer is null that may not be")]
    Null,
    #[error(
        "the handle is of the process that this one was forked from, and only that one may use it: close it here, and open the region in the process that uses it"
    )]
    Forked,
    #[error("a path is empty, or a list of options is not UTF-8")]
    Text,
    #[error(transparent)]
    Option(#[from] NoOption),
    #[error("{0} is no size of a block: a power of two from 512 to 65536")]
    BlockSize(u32),
    #[error("{0} bytes are no capacity of a log: at least 4096, and less than 2^63; 0 for the default")]
    Capacity(u64),
    #[error("the disk is too small for a journal of {0} blocks: make the region smaller, or the disk larger")]
    NoRoom(u32),
    #[error("the disk's journal would lie from byte {0} on, which holds something; force=on writes over it")]
    EndHolds(u64),
    #[error("the disk's journal would lie from byte {0} on, and the disk holds {1}; force=on writes over it")]
    EndClaimed(u64, Claim),
    #[error(
        "the disk has the journal of another cache, uuid {0}: run `tidegate detach` on its region; if that is lost, run `tidegate replay` and try again with force=on"
    )]
    OfAnother(Uuid),
    #[error(
        "the disk belongs to the region {region} in {place:?}, which may have blocks that it lacks: run `tidegate detach` on that; if it is lost, create the region with force=on"
    )]
    Taken { region: Uuid, place: PathBuf },
    #[error(
        "{0} blocks were being put in place when the disk lost its region; run `tidegate replay`, and try again with force=on"
    )]
    UnderWay(u32),
    #[error("the region holds no cache of a disk")]
    NoCache,
    #[error("the cache breaks rules of its format; run `tidegate check`")]
    Damaged,
    #[error("the cache belongs to another disk")]
    AnotherDisk,
    #[error(
        "the disk was changed without its region, which has {0} blocks for it: see `tidegate salvage` and `tidegate flush --force`"
    )]
    DiskChanged(u64),
    #[error("the region holds no append-only log")]
    NoLog,
    #[error("the log belongs to another file or disk below")]
    AnotherBelow,
    #[error(
        "the file or disk below the log, {0:?}, is not there: name where it is, or bring it back; the region is as it was, and has the newest bytes"
    )]
    BelowAbsent(PathBuf),
    #[error(
        "the file below the log, {0:?}, is empty: the bytes that were moved there are gone from it; bring back a copy of its contents, and keep the region, which has the newest bytes"
    )]
    BelowEmpty(PathBuf),
    #[error(
        "the file or disk below the log, {below:?}, has {has} bytes, and the log needs {needs} bytes there: it was cut short; bring back its contents, and keep the region, which has the newest bytes"
    )]
    BelowShort { below: PathBuf, needs: u64, has: u64 },
    #[error("the file below has {0} bytes already: name one that is empty or not there")]
    BelowHolds(u64),
    #[error("the disk below holds {0}: erase it with `wipefs`, or name another one")]
    BelowClaimed(Claim),
    #[error("the file or disk below belongs to the region {region} in {place:?}: name another one")]
    BelowTaken { region: Uuid, place: PathBuf },
    #[error(transparent)]
    LogCreate(#[from] CreateError),
    #[error(transparent)]
    LogOpen(#[from] LogOpenError),
    #[error(transparent)]
    Log(LogError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Device(#[from] Error),
}

impl From<NewLayoutError> for CallFailure {
    fn from(error: NewLayoutError) -> CallFailure {
        match error {
            NewLayoutError::Open(error) => CallFailure::Open(error),
            NewLayoutError::Dirty(blocks) => CallFailure::DiskChanged(blocks),
            NewLayoutError::Format(error) => CallFailure::Format(error),
        }
    }
}

impl CallFailure {
    fn status(&self) -> Status {
        match self {
            CallFailure::Null
            | CallFailure::Forked
            | CallFailure::Text
            | CallFailure::BlockSize(_)
            | CallFailure::Capacity(_)
            | CallFailure::Option(_) => Status::TidegateMisuse,
            CallFailure::NoRoom(_) => Status::TidegateMisuse,
            CallFailure::NoCache | CallFailure::Damaged | CallFailure::AnotherDisk | CallFailure::DiskChanged(_) => {
                Status::TidegateRefused
            }
            CallFailure::EndHolds(_) | CallFailure::EndClaimed(..) => Status::TidegateRefused,
            CallFailure::OfAnother(_) | CallFailure::Taken { .. } | CallFailure::UnderWay(_) => Status::TidegateRefused,
            CallFailure::NoLog | CallFailure::AnotherBelow | CallFailure::BelowHolds(_) => Status::TidegateRefused,
            CallFailure::BelowClaimed(_) | CallFailure::BelowTaken { .. } => Status::TidegateRefused,
            CallFailure::BelowAbsent(_) | CallFailure::BelowEmpty(_) => Status::TidegateRefused,
            CallFailure::BelowShort { .. } => Status::TidegateRefused,
            CallFailure::LogCreate(CreateError::Sealed(_)) => Status::TidegateSealed,
            CallFailure::LogCreate(_) => Status::TidegateMisuse,
            CallFailure::LogOpen(LogOpenError::Medium(error)) => of_device(error),
            CallFailure::LogOpen(_) => Status::TidegateRefused,
            CallFailure::Log(error) => of_log(error),
            CallFailure::Map(MapError::InUse { .. }) => Status::TidegateInUse,
            CallFailure::Map(_) | CallFailure::Io(_) => Status::TidegateSystem,
            CallFailure::Format(FormatError::Sealed(_)) => Status::TidegateSealed,
            CallFailure::Format(_) => Status::TidegateMisuse,
            CallFailure::Open(OpenError::Device(error)) => of_device(error),
            CallFailure::Open(_) => Status::TidegateRefused,
            CallFailure::Transaction(TransactionError::TooLarge { .. }) => Status::TidegateTooLarge,
            CallFailure::Transaction(TransactionError::Conflict { .. }) => Status::TidegateConflict,
            CallFailure::Transaction(TransactionError::Device(error)) | CallFailure::Device(error) => of_device(error),
        }
    }
}

fn of_log(error: &LogError) -> Status {
    match error {
        LogError::TooLong { .. } | LogError::Dropped { .. } | LogError::Beyond { .. } => Status::TidegateMisuse,
        LogError::Full { .. } | LogError::BelowFull { .. } => Status::TidegateSystem,
        LogError::Below(error) if error.is_for_want_of_room() => Status::TidegateSystem,
        LogError::Below(_) => Status::TidegateMedia,
        LogError::Damaged(_) => Status::TidegateRefused,
        LogError::Sealed(_) => Status::TidegateSealed,
    }
}

fn of_device(error: &Error) -> Status {
    match error {
        Error::Misuse(_) => Status::TidegateMisuse,
        Error::Media(_) => Status::TidegateMedia,
        Error::NoRoom(_) => Status::TidegateSystem,
        Error::Corrupt(_) => Status::TidegateRefused,
        Error::Sealed(_) => Status::TidegateSealed,
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs `call`; neither an error nor a panic gets past this.
pub(crate) fn ended(call: impl FnOnce() -> Result<(), CallFailure>) -> Status {
    // What a panic leaves half done is behind locks, which refuse everyone who meets them after it.
    let (status, message) = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Status::TidegateOk,
        Ok(Err(failure)) => (failure.status(), failure.to_string()),
        Err(_) => (Status::TidegateBug, "a mistake in the library itself".to_owned()),
    };
    let message = CString::new(message.replace('\0', "")).unwrap_or_default();
    // A thread that is ending has nobody to read it.
    let _ = MESSAGE.try_with(|kept| *kept.borrow_mut() = message);
    status
}

/// The sentence behind the last failure of this thread; it stays where it is until the next one.
pub(crate) fn message() -> *const std::ffi::c_char {
    MESSAGE.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_a_status() {
        let status = ended(|| panic!("a test of what a caller sees"));
        assert_eq!(status, Status::TidegateBug);
        assert_eq!(ended(|| Err(CallFailure::Null)), Status::TidegateMisuse);
        MESSAGE.with(|kept| {
            let text: &CStr = &kept.borrow();
            assert_eq!(text.to_str(), Ok("a pointer is null that may not be"));
        });
        assert_eq!(ended(|| Ok(())), Status::TidegateOk);
    }
}
