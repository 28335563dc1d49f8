//! One connection, from the greeting to its end: the state machines driven over a stream.

use crate::buffers::{Input, Output};
use crate::export::Exports;
use crate::handshake::{self, Handshake};
use crate::transmission::{self, Transmission};
use std::io::{self, Read, Write};

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
    /// A payload that is too long even to be skipped.
    #[error("a payload of {len} bytes")]
    EndlessPayload {
        /// Its length.
        len: u64,
    },
}

/// The two phases, as one machine: bytes in, bytes out.
enum Phase<'e> {
    Handshake(Handshake<'e>),
    Transmission(Transmission<'e>),
}

/// What became of the input.
enum Progress {
    Took(usize),
    Starved,
    Ended(End),
}

impl Phase<'_> {
    fn step(&mut self, input: &[u8], out: &mut Output) -> Result<Progress, Violation> {
        match self {
            Phase::Handshake(handshake) => match handshake.step(input, out)? {
                handshake::Progress::Took(len) => Ok(Progress::Took(len)),
                handshake::Progress::Starved => Ok(Progress::Starved),
                handshake::Progress::Aborted => Ok(Progress::Ended(End::Aborted)),
                handshake::Progress::Picked(len, export, agreement) => {
                    *self = Phase::Transmission(Transmission::new(export, agreement));
                    Ok(Progress::Took(len))
                }
            },
            Phase::Transmission(transmission) => Ok(match transmission.step(input, out)? {
                transmission::Progress::Took(len) => Progress::Took(len),
                transmission::Progress::Starved => Progress::Starved,
                transmission::Progress::Disconnected => Progress::Ended(End::Disconnected),
            }),
        }
    }

    fn is_between_messages(&self) -> bool {
        match self {
            Phase::Handshake(handshake) => handshake.is_between_messages(),
            Phase::Transmission(transmission) => transmission.is_between_messages(),
        }
    }
}

/// Serves one connection until it ends, on the calling thread. Any number of connections may share `exports`.
///
/// To end a connection from outside, shut its socket down: requests that arrived whole are still answered if the way
/// back is open.
///
/// # Errors
/// The stream failed or ended inside a message, or the client broke the protocol. What was acknowledged stands.
pub fn serve<S: Read + Write>(exports: &Exports, stream: S) -> Result<End, ConnectionError> {
    serve_and_tell(exports, stream, || {})
}

/// Like [`serve`]; calls `picked` once, when the client has picked an export, before its first request is understood.
///
/// # Errors
/// As [`serve`].
pub fn serve_and_tell<S: Read + Write>(
    exports: &Exports,
    mut stream: S,
    picked: impl FnOnce(),
) -> Result<End, ConnectionError> {
    let mut picked = Some(picked);
    let (mut input, mut out) = (Input::new(), Output::new());
    let mut phase = Phase::Handshake(Handshake::greet(exports, &mut out));
    loop {
        match phase.step(input.unread(), &mut out) {
            Ok(Progress::Took(len)) => {
                input.consume(len);
                if let Phase::Transmission(_) = phase
                    && let Some(picked) = picked.take()
                {
                    picked();
                }
                if out.is_full() {
                    out.send_to(&mut stream)?;
                }
            }
            Ok(Progress::Starved) => {
                out.send_to(&mut stream)?;
                if input.fill_from(&mut stream)? == 0 {
                    let complete = input.unread().is_empty() && phase.is_between_messages();
                    return if complete { Ok(End::Closed) } else { Err(ConnectionError::CutShort) };
                }
            }
            Ok(Progress::Ended(end)) => {
                // A client may leave without waiting for the last replies: their loss is its own choice.
                let _ = out.send_to(&mut stream);
                return Ok(end);
            }
            Err(violation) => {
                let _ = out.send_to(&mut stream);
                return Err(violation.into());
            }
        }
    }
}
