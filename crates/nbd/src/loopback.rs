//! Loopback: a whole connection without a socket, a second thread or a clock that matters, for
//! tests and fuzzing. The same bytes get the same answers, and the bytes that the connection holds
//! are measured at every step.

use crate::buffers::{Input, Output};
use crate::connection::{Phase, Progress};
use crate::failure::{ConnectionError, End};
use crate::handshake::Handshake;
use crate::limits::CONNECTION_BYTES_MAX;
use crate::service::Service;
use crate::stream::Stream;
use crate::transmission::execution::Executor;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

/// A finished conversation.
#[derive(Debug)]
pub struct Loopback {
    /// The bytes that the client got.
    pub answers: Vec<u8>,
    /// The most bytes that the connection's buffers held at any time.
    pub held_bytes_max: usize,
    /// How the conversation ended. A client that wants encryption ends there.
    pub end: Result<End, ConnectionError>,
}

impl Loopback {
    /// Serves a client that sends `sent` and leaves, in pieces of `piece_bytes`, each at least one.
    /// Requests that would be offloaded are executed in line.
    ///
    /// # Panics
    /// The connection holds more bytes than it may.
    pub fn run(service: &Service, sent: &[u8], piece_bytes: impl FnMut() -> usize + Send) -> Loopback {
        let mut out = Output::new();
        let phase = Phase::Handshake(Handshake::greet(service, &mut out));
        let client = Client(Mutex::new((sent, Box::new(piece_bytes))));
        let mut connection = Connection { input: Input::new(), out, phase, answers: Vec::new(), held_bytes_max: 0 };
        let end = connection.run(&client);
        connection.take_answers();
        let Connection { answers, held_bytes_max, .. } = connection;
        assert!(held_bytes_max <= CONNECTION_BYTES_MAX, "{held_bytes_max} bytes held");
        Loopback { answers, held_bytes_max, end }
    }
}

/// The state machines between two steps, and the measures taken so far.
struct Connection<'e> {
    input: Input,
    out: Output,
    phase: Phase<'e>,
    answers: Vec<u8>,
    held_bytes_max: usize,
}

impl Connection<'_> {
    fn run(&mut self, client: &Client<'_>) -> Result<End, ConnectionError> {
        loop {
            match self.phase.step(self.input.unread(), &mut self.out)? {
                Progress::Consumed(len) | Progress::ExportChosen(len) => self.consume(len, 0),
                Progress::Offload(len, request) => {
                    let offloaded_bytes = request.bytes();
                    request
                        .run(self.phase.executor().expect("requests come from a phase that executes"), &mut self.out);
                    self.consume(len, offloaded_bytes);
                }
                Progress::NeedMore => {
                    self.take_answers();
                    if self.input.fill_from(|out| client.receive(out))? == 0 {
                        let complete = self.input.unread().is_empty() && self.phase.is_between_messages();
                        return if complete { Ok(End::Closed) } else { Err(ConnectionError::CutShort) };
                    }
                    self.phase.executor().into_iter().for_each(Executor::wake);
                }
                Progress::Upgrade(..) => return Ok(End::Closed),
                Progress::Ended(end) => return Ok(end),
                Progress::Broken(failure) => return Err(ConnectionError::BrokenReply { why: failure.to_string() }),
            }
        }
    }

    fn consume(&mut self, len: usize, offloaded_bytes: usize) {
        assert!(len > 0 || self.out.len() > 0, "a step that does nothing would be taken for ever");
        let buffers = self.input.held_bytes() + self.out.held_bytes() + self.phase.held_bytes();
        self.held_bytes_max = self.held_bytes_max.max(buffers + offloaded_bytes);
        self.input.consume(len);
        if self.out.is_full() {
            self.take_answers();
        }
    }

    fn take_answers(&mut self) {
        self.answers.extend_from_slice(self.out.take());
    }
}

/// How long the next piece is.
type PieceBytes<'a> = Box<dyn FnMut() -> usize + Send + 'a>;

/// A client: the bytes that it has yet to send, and in which pieces.
struct Client<'a>(Mutex<(&'a [u8], PieceBytes<'a>)>);

impl Stream for Client<'_> {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock().expect("nothing that holds this lock panics");
        let (sent, piece_bytes) = &mut *state;
        let len = piece_bytes().clamp(1, out.len()).min(sent.len());
        let (now, later) = sent.split_at(len);
        out[..len].copy_from_slice(now);
        *sent = later;
        Ok(len)
    }

    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(out)
    }

    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn limit_waiting(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn limit_sending(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}
