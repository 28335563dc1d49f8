//! One connection, from the greeting to its end: the state machines driven over a stream.

mod offload;
mod timeouts;

use crate::buffers::{Input, Output};
use crate::failure::{ConnectionError, End, RequestFailure, Violation};
use crate::handshake::{self, Handshake};
use crate::service::Service;
use crate::stream::Stream;
use crate::tls::{Encrypted, Tls};
use crate::transmission::execution::Executor;
use crate::transmission::{OffloadedRequest, RequestProgress, Transmission};
use offload::{SharedStream, Turn};
use std::io::{self, ErrorKind};
use std::mem;
use std::thread::{self, Scope};
use tidegate_block_export::Poller;
use timeouts::Deadlines;

/// The two phases, as one machine: bytes in, bytes out.
pub(crate) enum Phase<'e> {
    Handshake(Handshake<'e>),
    Transmission(Transmission<'e>),
}

/// What a step did with the input.
pub(crate) enum Progress<'e> {
    Consumed(usize),
    Offload(usize, OffloadedRequest),
    NeedMore,
    /// The handshake ended with these bytes: the client chose an export.
    ExportChosen(usize),
    Upgrade(usize, &'e Tls),
    Ended(End),
    Broken(RequestFailure),
}

impl<'e> Phase<'e> {
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Output) -> Result<Progress<'e>, Violation> {
        match self {
            Phase::Handshake(handshake) => match handshake.step(input, out)? {
                handshake::Progress::Consumed(len) => Ok(Progress::Consumed(len)),
                handshake::Progress::NeedMore => Ok(Progress::NeedMore),
                handshake::Progress::Aborted => Ok(Progress::Ended(End::Aborted)),
                handshake::Progress::Upgrade(len, tls) => Ok(Progress::Upgrade(len, tls)),
                handshake::Progress::ExportChosen(len, export, agreement) => {
                    *self = Phase::Transmission(Transmission::new(Executor::new(export, agreement)));
                    Ok(Progress::ExportChosen(len))
                }
            },
            Phase::Transmission(transmission) => Ok(match transmission.step(input, out)? {
                RequestProgress::Consumed(len) => Progress::Consumed(len),
                RequestProgress::Offload(len, request) => Progress::Offload(len, request),
                RequestProgress::NeedMore => Progress::NeedMore,
                RequestProgress::Disconnected => Progress::Ended(End::Disconnected),
                RequestProgress::Broken(failure) => Progress::Broken(failure),
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

    fn is_inside_reply(&self) -> bool {
        matches!(self, Phase::Transmission(transmission) if transmission.is_inside_reply())
    }

    /// What executes requests, once there can be some.
    pub(crate) fn executor(&mut self) -> Option<&mut Executor<'e>> {
        match self {
            Phase::Handshake(_) => None,
            Phase::Transmission(transmission) => Some(transmission.executor()),
        }
    }
}

/// Serves one connection until it ends, on the calling thread. Any number of connections may share
/// `service`.
///
/// To end a connection from outside, shut its socket down: requests that arrived whole are still
/// answered if the way back is open.
///
/// # Errors
/// The stream failed or ended inside a message, or the client broke the protocol or was too slow.
/// What was acknowledged stands.
pub fn serve<S: Stream>(service: &Service, stream: &S) -> Result<End, ConnectionError> {
    let mut out = Output::new();
    let phase = Phase::Handshake(Handshake::greet(service, &mut out));
    let (deadlines, poller) = (Deadlines::begin(service.timeouts), Poller::begin(&service.poll_budget));
    let mut connection = Connection { input: Input::new(), out, phase, deadlines, poller, answered: 0 };
    stream.limit_sending(Some(service.timeouts.handshake))?;
    connection.run(stream).map_err(|error| match error {
        // Only in the handshake is sending limited in time.
        ConnectionError::Stream(error) if is_late(&error) => {
            ConnectionError::SlowHandshake { limit: service.timeouts.handshake }
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
    deadlines: Deadlines,
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

    /// Answers what arrives on `stream` until the connection ends or is to be encrypted, and all
    /// its offloaded requests are done.
    fn converse_over<S: Stream>(&mut self, stream: &S) -> Result<Pause<'e>, ConnectionError> {
        let shared = SharedStream::over(stream);
        thread::scope(|scope| {
            let pause = self.converse(&shared, scope);
            shared.close();
            pause
        })
    }

    fn converse<'scope, S: Stream>(
        &mut self,
        shared: &'scope SharedStream<'_, S>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Pause<'e>, ConnectionError>
    where
        'e: 'scope,
    {
        let mut turn = Turn::default();
        loop {
            match self.phase.step(self.input.unread(), &mut self.out) {
                Ok(Progress::Consumed(len)) => self.consume(len, shared, &mut turn)?,
                Ok(Progress::Offload(len, request)) => {
                    self.offload(request, shared, scope)?;
                    self.consume(len, shared, &mut turn)?;
                }
                Ok(Progress::NeedMore) => {
                    self.send(shared, &mut turn)?;
                    self.poller.coalesce(mem::take(&mut self.answered));
                    if self.wait(shared.stream)? == 0 {
                        let cut = self.is_inside_message();
                        return if cut { Err(ConnectionError::CutShort) } else { Ok(Pause::Ended(End::Closed)) };
                    }
                    self.phase.executor().into_iter().for_each(Executor::wake);
                }
                Ok(Progress::ExportChosen(len)) => {
                    self.consume(len, shared, &mut turn)?;
                    self.send(shared, &mut turn)?;
                    self.deadlines.handshake_ended();
                    shared.stream.limit_sending(None)?;
                }
                Ok(Progress::Upgrade(len, tls)) => {
                    self.input.consume(len);
                    return self.upgrade(tls, shared, &mut turn);
                }
                Ok(Progress::Ended(end)) => {
                    // A client may leave without waiting for the last replies: their loss is its
                    // own choice.
                    let _ = self.send(shared, &mut turn);
                    return Ok(Pause::Ended(end));
                }
                Ok(Progress::Broken(failure)) => {
                    turn.stop_sending();
                    return Err(ConnectionError::BrokenReply { why: failure.to_string() });
                }
                Err(violation) => {
                    let _ = self.send(shared, &mut turn);
                    return Err(violation.into());
                }
            }
        }
    }

    /// Goes on behind `len` bytes that were understood.
    fn consume<'l, S: Stream>(
        &mut self,
        len: usize,
        shared: &'l SharedStream<'_, S>,
        turn: &mut Turn<'l>,
    ) -> io::Result<()> {
        self.input.consume(len);
        if self.phase.is_between_messages() {
            self.answered += 1;
            self.deadlines.message_ended();
        }
        if self.out.is_full() || turn.is_held() { self.send(shared, turn) } else { Ok(()) }
    }

    fn send<'l, S: Stream>(&mut self, shared: &'l SharedStream<'_, S>, turn: &mut Turn<'l>) -> io::Result<()> {
        shared.send_in_turn(&mut self.out, turn, self.phase.is_inside_reply())
    }

    /// Offloads a request so that those that follow overtake it, or executes it before them.
    fn offload<'scope, S: Stream>(
        &mut self,
        request: OffloadedRequest,
        shared: &'scope SharedStream<'_, S>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<()>
    where
        'e: 'scope,
    {
        let executor = self.phase.executor().expect("requests come from a phase that executes");
        match shared.enqueue(request, executor, scope)? {
            Ok(()) => Ok(()),
            Err(request) => {
                request.run(executor, &mut self.out);
                Ok(())
            }
        }
    }

    /// Tells the client to begin with TLS. It waits for that: whatever is here already was not
    /// encrypted.
    fn upgrade<'l, S: Stream>(
        &mut self,
        tls: &'e Tls,
        shared: &'l SharedStream<'_, S>,
        turn: &mut Turn<'l>,
    ) -> Result<Pause<'e>, ConnectionError> {
        match self.input.unread().len() {
            0 => {
                self.send(shared, turn)?;
                Ok(Pause::Upgrade(tls))
            }
            len => Err(Violation::PlainBehindStartTls { len }.into()),
        }
    }

    /// Whether some of a message is here and some is not.
    fn is_inside_message(&self) -> bool {
        !self.input.unread().is_empty() || !self.phase.is_between_messages()
    }

    /// Waits until there is more input, within the timeouts.
    fn wait<S: Stream>(&mut self, stream: &S) -> Result<usize, ConnectionError> {
        let half = self.is_inside_message();
        self.deadlines.due(half)?;
        let (len, arrival) = match self.poller.poll(|| look(&mut self.input, stream)) {
            Ok((found, arrival)) => (found?, arrival),
            Err(vain) => (self.sleep(stream, half)?, vain.ended()),
        };
        if !half {
            self.poller.learn(arrival);
        }
        Ok(len)
    }

    /// Sleeps until there is more input. A connection that turns out to be idle gives its memory
    /// back, and then waits for as long as it takes.
    fn sleep<S: Stream>(&mut self, stream: &S, half: bool) -> Result<usize, ConnectionError> {
        loop {
            let due = self.deadlines.due(half)?;
            let large = self.input.is_large() || self.out.is_large();
            self.deadlines.tick(stream, due || large)?;
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
