//! Why a request was refused or failed, with the error number the client reads; how a connection
//! ends.

use crate::limits::{PAYLOAD_BYTES_MAX, WHOLE_REPLY_BYTES_MAX};
use std::io;
use std::time::Duration;
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
pub(crate) enum RequestFailure {
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

impl RequestFailure {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            RequestFailure::ReadOnly | RequestFailure::Device(Error::Misuse(Misuse::ReadOnly)) => Errno::Perm,
            RequestFailure::Device(Error::Misuse(_)) => Errno::Inval,
            RequestFailure::Device(error) if error.is_for_want_of_room() => Errno::NoSpc,
            RequestFailure::Device(Error::Media(_) | Error::NoRoom(_) | Error::Corrupt(_) | Error::Sealed(_)) => {
                Errno::Io
            }
            RequestFailure::WritePastEnd { .. } => Errno::NoSpc,
            RequestFailure::LongChunk { .. } => Errno::Overflow,
            RequestFailure::SlowZeroes => Errno::NotSup,
            RequestFailure::ReadPastEnd { .. }
            | RequestFailure::LongPayload { .. }
            | RequestFailure::UnknownCommand { .. }
            | RequestFailure::ForeignFlags { .. }
            | RequestFailure::ForeignPayload { .. }
            | RequestFailure::NoContext
            | RequestFailure::StatusPayload { .. }
            | RequestFailure::ForeignContext { .. }
            | RequestFailure::NoContextNamed
            | RequestFailure::EmptyStatus
            | RequestFailure::FlushRange => Errno::Inval,
        }
    }
}

/// How a connection ended that ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client gave up the handshake in due form.
    Aborted,
    /// The client disconnected in due form.
    Disconnected,
    /// The stream ended between two messages.
    Closed,
}

/// Why a connection ended otherwise. Everything acknowledged before stands.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Stream(#[from] io::Error),
    /// The stream ended inside a message.
    #[error("the connection ended inside a message")]
    CutShort,
    /// No export was picked in time.
    #[error("no export was picked within {} s", limit.as_secs_f32())]
    SlowHandshake {
        /// How long there was.
        limit: Duration,
    },
    /// The rest of a request did not come in time.
    #[error("half a request, and not the rest of it within {} s", limit.as_secs_f32())]
    SlowRequest {
        /// How long there was.
        limit: Duration,
    },
    /// A read failed in the middle of a reply that has no room for errors.
    #[error("a read failed in the middle of its reply: {why}")]
    BrokenReply {
        /// Why it failed.
        why: String,
    },
    /// The client broke a rule that leaves nothing to say.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// Something a client must not send, after which its bytes cannot be understood or answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The client's first word has bits that no server here knows.
    #[error("the client's flags {flags:#x} are not known here")]
    ClientFlags {
        /// The word.
        flags: u32,
    },
    /// No option where one should be.
    #[error("an option begins with {found:#x} instead of IHAVEOPT")]
    OptionMagic {
        /// What is there.
        found: u64,
    },
    /// An option of fixed newstyle from a client that did not say it speaks it.
    #[error("option {option} from a client that does not speak fixed newstyle")]
    OptionUnannounced {
        /// Its number.
        option: u32,
    },
    /// An EXPORT_NAME longer than any name.
    #[error("an export name of {len} bytes")]
    LongExportName {
        /// Its length.
        len: u32,
    },
    /// An EXPORT_NAME of something that is not here.
    #[error("there is no export named {name:?}")]
    UnknownExport {
        /// The first 64 characters of the name.
        name: String,
    },
    /// No request where one should be.
    #[error("a request begins with {found:#x} instead of its magic")]
    RequestMagic {
        /// What is there.
        found: u32,
    },
    /// An EXPORT_NAME, which leaves no room for a refusal, where encryption is required.
    #[error("the client picked an export without encryption, which is required here")]
    NotEncrypted,
    /// Bytes that came with STARTTLS and were not encrypted: somebody in between may have put them
    /// there.
    #[error("{len} bytes that are not encrypted follow STARTTLS")]
    PlainBehindStartTls {
        /// How many had arrived.
        len: usize,
    },
    /// A payload that is too long even to be skipped.
    #[error("a payload of {len} bytes")]
    EndlessPayload {
        /// Its length.
        len: u64,
    },
}
