//! One connection, from the greeting to its end: the state machines driven over a stream.

use crate::aside::{Link, Turn};
use crate::buffers::{Input, Output};
use crate::execution::Executor;
use crate::failure::Failure;
use crate::handshake::{self, Handshake};
use crate::service::Service;
use crate::stream::Stream;
use crate::tls::{Encrypted, Tls};
use crate::transmission::{self, Job, Transmission};
use crate::waiting::Waiting;
use std::io::{self, ErrorKind};
use std::mem;
use std::thread::{self, Scope};
use std::time::Duration;
use tidegate_block_export::Poller;

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
pub(crate) enum Phase<'e> {
    Handshake(Handshake<'e>),
    Transmission(Transmission<'e>),
}

/// What became of the input.
pub(crate) enum Progress<'e> {
    Took(usize),
    Gave(usize, Job),
    Starved,
    /// The handshake ended with these bytes.
    Picked(usize),
    Upgrade(usize, &'e Tls),
    Ended(End),
    Broken(Failure),
}

impl<'e> Phase<'e> {
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Output) -> Result<Progress<'e>, Violation> {
        match self {
            Phase::Handshake(handshake) => match handshake.step(input, out)? {
                handshake::Progress::Took(len) => Ok(Progress::Took(len)),
                handshake::Progress::Starved => Ok(Progress::Starved),
                handshake::Progress::Aborted => Ok(Progress::Ended(End::Aborted)),
                handshake::Progress::Upgrade(len, tls) => Ok(Progress::Upgrade(len, tls)),
                handshake::Progress::Picked(len, export, agreement) => {
                    *self = Phase::Transmission(Transmission::new(Executor::new(export, agreement)));
                    Ok(Progress::Picked(len))
                }
            },
            Phase::Transmission(transmission) => Ok(match transmission.step(input, out)? {
                transmission::Progress::Took(len) => Progress::Took(len),
                transmission::Progress::Gave(len, job) => Progress::Gave(len, job),
                transmission::Progress::Starved => Progress::Starved,
                transmission::Progress::Disconnected => Progress::Ended(End::Disconnected),
                transmission::Progress::Broken(failure) => Progress::Broken(failure),
            }),
        }
    }

    pub(crate) fn is_between_messages(&self) -> bool {
        match self {
            Phase::Handshake(handshake) => handshake.is_between_messages(),
            Phase::Transmission(transmission) => transmission.is_between_messages(),
        }
    }

    /// Bytes of a request that is put together.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Phase::Handshake(_) => 0,
            Phase::Transmission(transmission) => transmission.held_bytes(),
        }
    }

    fn is_inside_row(&self) -> bool {
        matches!(self, Phase::Transmission(transmission) if transmission.is_inside_row())
    }

    /// What executes requests, once there can be some.
    pub(crate) fn executor(&mut self) -> Option<&mut Executor<'e>> {
        match self {
            Phase::Handshake(_) => None,
            Phase::Transmission(transmission) => Some(transmission.executor()),
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
    let (waiting, poller) = (Waiting::begin(service.patience), Poller::begin(&service.poll_budget));
    let mut connection = Connection { input: Input::new(), out, phase, waiting, poller, answered: 0 };
    stream.limit_sending(Some(service.patience.handshake))?;
    connection.run(stream).map_err(|error| match error {
        // Only in the handshake is sending limited in time.
        ConnectionError::Stream(error) if is_late(&error) => {
            ConnectionError::SlowHandshake { limit: service.patience.handshake }
        }
        error => error,
    })
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A connection between two calls of its stream.
struct Connection<'e> {
    input: Input,
    out: Output,
    phase: Phase<'e>,
    waiting: Waiting,
    poller: Poller<'e>,
    /// Requests since it last waited.
    answered: u32,
}

/// Why a conversation stopped.
enum Pause<'e> {
    Ended(End),
    /// It goes on over an encrypted stream.
    Upgrade(&'e Tls),
}

impl<'e> Connection<'e> {
    fn run<S: Stream>(&mut self, stream: &S) -> Result<End, ConnectionError> {
        let tls = match self.converse_over(stream)? {
            Pause::Ended(end) => return Ok(end),
            Pause::Upgrade(tls) => tls,
        };
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.encrypt();
        }
        let encrypted = Encrypted::over(stream, tls)?;
        let pause = self.converse_over(&encrypted);
        // However it ended, all answers that could be sent are sent.
        encrypted.close();
        match pause? {
            Pause::Ended(end) => Ok(end),
            Pause::Upgrade(_) => unreachable!("an encrypted connection is not encrypted again"),
        }
    }

    /// Answers what arrives on `stream` until the connection ends or is to be encrypted, and all its jobs are done.
    fn converse_over<S: Stream>(&mut self, stream: &S) -> Result<Pause<'e>, ConnectionError> {
        let link = Link::over(stream);
        thread::scope(|scope| {
            let pause = self.converse(&link, scope);
            link.close();
            pause
        })
    }

    fn converse<'scope, S: Stream>(
        &mut self,
        link: &'scope Link<'_, S>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Pause<'e>, ConnectionError>
    where
        'e: 'scope,
    {
        let mut turn = Turn::default();
        loop {
            match self.phase.step(self.input.unread(), &mut self.out) {
                Ok(Progress::Took(len)) => self.consume(len, link, &mut turn)?,
                Ok(Progress::Gave(len, job)) => {
                    self.give(job, link, scope)?;
                    self.consume(len, link, &mut turn)?;
                }
                Ok(Progress::Starved) => {
                    self.send(link, &mut turn)?;
                    self.poller.coalesce(mem::take(&mut self.answered));
                    if self.wait(link.stream)? == 0 {
                        let cut = self.is_inside_message();
                        return if cut { Err(ConnectionError::CutShort) } else { Ok(Pause::Ended(End::Closed)) };
                    }
                    self.phase.executor().into_iter().for_each(Executor::wake);
                }
                Ok(Progress::Picked(len)) => {
                    self.consume(len, link, &mut turn)?;
                    self.send(link, &mut turn)?;
                    self.waiting.handshake_ended();
                    link.stream.limit_sending(None)?;
                }
                Ok(Progress::Upgrade(len, tls)) => {
                    self.input.consume(len);
                    return self.upgrade(tls, link, &mut turn);
                }
                Ok(Progress::Ended(end)) => {
                    // A client may leave without waiting for the last replies: their loss is its own choice.
                    let _ = self.send(link, &mut turn);
                    return Ok(Pause::Ended(end));
                }
                Ok(Progress::Broken(failure)) => {
                    turn.silence();
                    return Err(ConnectionError::BrokenReply { why: failure.to_string() });
                }
                Err(violation) => {
                    let _ = self.send(link, &mut turn);
                    return Err(violation.into());
                }
            }
        }
    }

    /// Goes on behind `len` bytes that were understood.
    fn consume<'l, S: Stream>(&mut self, len: usize, link: &'l Link<'_, S>, turn: &mut Turn<'l>) -> io::Result<()> {
        self.input.consume(len);
        if self.phase.is_between_messages() {
            self.answered += 1;
            self.waiting.message_ended();
        }
        if self.out.is_full() || turn.is_kept() { self.send(link, turn) } else { Ok(()) }
    }

    fn send<'l, S: Stream>(&mut self, link: &'l Link<'_, S>, turn: &mut Turn<'l>) -> io::Result<()> {
        link.send_in_turn(&mut self.out, turn, self.phase.is_inside_row())
    }

    /// Has a job done beside the requests that follow, or else before them.
    fn give<'scope, S: Stream>(
        &mut self,
        job: Job,
        link: &'scope Link<'_, S>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<()>
    where
        'e: 'scope,
    {
        let executor = self.phase.executor().expect("jobs come from a phase that executes");
        match link.take_over(job, executor, scope)? {
            Ok(()) => Ok(()),
            Err(job) => {
                job.run(executor, &mut self.out);
                Ok(())
            }
        }
    }

    /// Tells the client to begin with TLS. It waits for that: whatever is here already was not encrypted.
    fn upgrade<'l, S: Stream>(
        &mut self,
        tls: &'e Tls,
        link: &'l Link<'_, S>,
        turn: &mut Turn<'l>,
    ) -> Result<Pause<'e>, ConnectionError> {
        match self.input.unread().len() {
            0 => {
                self.send(link, turn)?;
                Ok(Pause::Upgrade(tls))
            }
            len => Err(Violation::PlainBehindStartTls { len }.into()),
        }
    }

    /// Whether some of a message is here and some is not.
    fn is_inside_message(&self) -> bool {
        !self.input.unread().is_empty() || !self.phase.is_between_messages()
    }

    /// Waits until there is more input, as long as patience lasts.
    fn wait<S: Stream>(&mut self, stream: &S) -> Result<usize, ConnectionError> {
        let half = self.is_inside_message();
        self.waiting.due(half)?;
        let (len, arrival) = match self.poller.poll(|| look(&mut self.input, stream)) {
            Ok((found, arrival)) => (found?, arrival),
            Err(vain) => (self.sleep(stream, half)?, vain.ended()),
        };
        if !half {
            self.poller.learn(arrival);
        }
        Ok(len)
    }

    /// Sleeps until there is more input. A connection that turns out to be idle gives its memory back, and then waits for as
    /// long as it takes.
    fn sleep<S: Stream>(&mut self, stream: &S, half: bool) -> Result<usize, ConnectionError> {
        loop {
            let due = self.waiting.due(half)?;
            let large = self.input.is_large() || self.out.is_large();
            self.waiting.tick(stream, due || large)?;
            match self.poller.rest(|| self.input.fill_from(|out| stream.receive(out))) {
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_late(&error) => {
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

/// What there is to receive at this moment, if anything.
fn look(input: &mut Input, stream: &impl Stream) -> Option<io::Result<usize>> {
    match input.fill_from(|out| stream.receive_now(out)) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
        found => Some(found),
    }
}
