//! One connection, from the greeting to its end: the state machines driven over a stream.

use crate::buffers::{Input, Output};
use crate::handshake::{self, Handshake};
use crate::service::Service;
use crate::stream::Stream;
use crate::tls::{Encrypted, Tls};
use crate::transmission::{self, Transmission};
use crate::waiting::Waiting;
use std::io::{self, ErrorKind};
use std::time::Duration;

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
    /// Bytes that came with STARTTLS and were not encrypted: somebody in between may have put them there.
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

/// The two phases, as one machine: bytes in, bytes out.
enum Phase<'e> {
    Handshake(Handshake<'e>),
    Transmission(Transmission<'e>),
}

/// What became of the input.
enum Progress<'e> {
    Took(usize),
    Starved,
    /// The handshake ended with these bytes.
    Picked(usize),
    Upgrade(usize, &'e Tls),
    Ended(End),
}

impl<'e> Phase<'e> {
    fn step(&mut self, input: &[u8], out: &mut Output) -> Result<Progress<'e>, Violation> {
        match self {
            Phase::Handshake(handshake) => match handshake.step(input, out)? {
                handshake::Progress::Took(len) => Ok(Progress::Took(len)),
                handshake::Progress::Starved => Ok(Progress::Starved),
                handshake::Progress::Aborted => Ok(Progress::Ended(End::Aborted)),
                handshake::Progress::Upgrade(len, tls) => Ok(Progress::Upgrade(len, tls)),
                handshake::Progress::Picked(len, export, agreement) => {
                    *self = Phase::Transmission(Transmission::new(export, agreement));
                    Ok(Progress::Picked(len))
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

    /// The same, encrypted from now on. Only a handshake asks for that.
    fn encrypted(self) -> Phase<'e> {
        match self {
            Phase::Handshake(handshake) => Phase::Handshake(handshake.encrypted()),
            transmission => transmission,
        }
    }
}

/// Serves one connection until it ends, on the calling thread. Any number of connections may share `service`.
///
/// To end a connection from outside, shut its socket down: requests that arrived whole are still answered if the way
/// back is open.
///
/// # Errors
/// The stream failed or ended inside a message, or the client broke the protocol or was too slow. What was acknowledged
/// stands.
pub fn serve<S: Stream>(service: &Service, stream: &S) -> Result<End, ConnectionError> {
    let mut out = Output::new();
    let phase = Phase::Handshake(Handshake::greet(service, &mut out));
    let mut connection = Connection { input: Input::new(), out, phase, waiting: Waiting::begin(service.patience) };
    stream.limit_sending(Some(service.patience.handshake))?;
    match connection.converse(stream)? {
        Pause::Ended(end) => Ok(end),
        Pause::Upgrade(tls) => {
            connection.phase = connection.phase.encrypted();
            match connection.converse(&Encrypted::over(stream, tls)?)? {
                Pause::Ended(end) => Ok(end),
                Pause::Upgrade(_) => unreachable!("an encrypted connection is not encrypted again"),
            }
        }
    }
}

/// A connection between two calls of its stream.
struct Connection<'e> {
    input: Input,
    out: Output,
    phase: Phase<'e>,
    waiting: Waiting,
}

/// Why a conversation stopped.
enum Pause<'e> {
    Ended(End),
    /// It goes on over an encrypted stream.
    Upgrade(&'e Tls),
}

impl<'e> Connection<'e> {
    /// Answers what arrives on `stream` until the connection ends or is to be encrypted.
    fn converse<S: Stream>(&mut self, stream: &S) -> Result<Pause<'e>, ConnectionError> {
        loop {
            match self.phase.step(self.input.unread(), &mut self.out) {
                Ok(Progress::Took(len)) => {
                    self.input.consume(len);
                    if self.phase.is_between_messages() {
                        self.waiting.message_ended();
                    }
                    if self.out.is_full() {
                        self.out.send_to(stream)?;
                    }
                }
                Ok(Progress::Starved) => {
                    self.out.send_to(stream)?;
                    if self.wait(stream)? == 0 {
                        let complete = self.input.unread().is_empty() && self.phase.is_between_messages();
                        return if complete { Ok(Pause::Ended(End::Closed)) } else { Err(ConnectionError::CutShort) };
                    }
                }
                Ok(Progress::Picked(len)) => {
                    self.input.consume(len);
                    self.out.send_to(stream)?;
                    self.waiting.handshake_ended();
                    stream.limit_sending(None)?;
                }
                Ok(Progress::Upgrade(len, tls)) => {
                    self.input.consume(len);
                    return self.upgrade(tls, stream);
                }
                Ok(Progress::Ended(end)) => {
                    // A client may leave without waiting for the last replies: their loss is its own choice.
                    let _ = self.out.send_to(stream);
                    return Ok(Pause::Ended(end));
                }
                Err(violation) => {
                    let _ = self.out.send_to(stream);
                    return Err(violation.into());
                }
            }
        }
    }

    /// Tells the client to begin with TLS. It waits for that: whatever is here already was not encrypted.
    fn upgrade<S: Stream>(&mut self, tls: &'e Tls, stream: &S) -> Result<Pause<'e>, ConnectionError> {
        match self.input.unread().len() {
            0 => {
                self.out.send_to(stream)?;
                Ok(Pause::Upgrade(tls))
            }
            len => Err(Violation::PlainBehindStartTls { len }.into()),
        }
    }

    /// Waits until there is more input, as long as patience lasts. A connection that turns out to be idle gives its memory
    /// back, and then waits for as long as it takes.
    fn wait<S: Stream>(&mut self, stream: &S) -> Result<usize, ConnectionError> {
        let half = !self.input.unread().is_empty() || !self.phase.is_between_messages();
        loop {
            let due = self.waiting.due(half)?;
            let large = self.input.is_large() || self.out.is_large();
            self.waiting.tick(stream, due || large)?;
            match self.input.fill_from(stream) {
                Ok(len) => return Ok(len),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if !due {
                        self.input.shrink();
                        self.out.shrink();
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
