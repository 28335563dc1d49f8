//! Why a request was refused or failed, and the error number the client reads for it.

use crate::limits::{PAYLOAD_BYTES_MAX, WHOLE_REPLY_BYTES_MAX};
use tidegate_media::{Error, Misuse};

/// The protocol's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Errno {
    Perm = 1,
    Io = 5,
    Inval = 22,
    NoSpc = 28,
    Overflow = 75,
    NotSup = 95,
}

/// A request that got no success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Device(#[from] Error),
    #[error("the export is read-only")]
    ReadOnly,
    #[error("the range ends past the end of the export, which has {size} bytes")]
    WritePastEnd { size: u64 },
    #[error("the range ends past the end of the export, which has {size} bytes")]
    ReadPastEnd { size: u64 },
    #[error("a payload of {len} bytes is more than the advertised {PAYLOAD_BYTES_MAX}")]
    LongPayload { len: u64 },
    #[error("{len} bytes are too many for one chunk; {WHOLE_REPLY_BYTES_MAX} is the most")]
    LongChunk { len: u64 },
    #[error("command {number} is not known here")]
    UnknownCommand { number: u16 },
    #[error("flags {flags:#06x} do not belong to this command")]
    ForeignFlags { flags: u16 },
    #[error("a payload of {len} bytes does not belong to this command")]
    ForeignPayload { len: u64 },
    #[error("writing these zeroes would not be faster than writing data")]
    SlowZeroes,
    #[error("no metadata context was chosen for this export")]
    NoContext,
    #[error("a payload of {len} bytes is not a length and a list of metadata contexts")]
    StatusPayload { len: u64 },
    #[error("metadata context {id} was not chosen for this export, or is named twice")]
    ForeignContext { id: u32 },
    #[error("no metadata context is named")]
    NoContextNamed,
    #[error("the status of no bytes was asked for")]
    EmptyStatus,
    #[error("a flush covers the whole export: offset and length must be 0")]
    FlushRange,
}

impl Failure {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Failure::ReadOnly | Failure::Device(Error::Misuse(Misuse::ReadOnly)) => Errno::Perm,
            Failure::Device(Error::Misuse(_)) => Errno::Inval,
            Failure::Device(error) if error.is_for_want_of_room() => Errno::NoSpc,
            Failure::Device(Error::Media(_) | Error::NoRoom(_) | Error::Corrupt(_) | Error::Sealed(_)) => Errno::Io,
            Failure::WritePastEnd { .. } => Errno::NoSpc,
            Failure::LongChunk { .. } => Errno::Overflow,
            Failure::SlowZeroes => Errno::NotSup,
            Failure::ReadPastEnd { .. }
            | Failure::LongPayload { .. }
            | Failure::UnknownCommand { .. }
            | Failure::ForeignFlags { .. }
            | Failure::ForeignPayload { .. }
            | Failure::NoContext
            | Failure::StatusPayload { .. }
            | Failure::ForeignContext { .. }
            | Failure::NoContextNamed
            | Failure::EmptyStatus
            | Failure::FlushRange => Errno::Inval,
        }
    }
}
