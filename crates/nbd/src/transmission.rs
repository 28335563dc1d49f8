//! Transmission: bytes in, requests out of them, replies out. No socket and no thread.
//!
//! A request is executed when all of it is there: on the spot, or as an [`OffloadedRequest`] if it
//! is likely to take long. Only a write longer than the input buffer is executed as it arrives, by
//! whole blocks, unless the export wants it in one piece: then it is gathered first. A request that
//! is refused still has its payload taken from the input, so that the next one is found.
//!
//! Offloaded and other requests of a connection overtake each other, which the protocol allows: a
//! client that wants an order waits for the first reply. A flush covers the writes answered before
//! it was sent, and these are all complete.

pub(crate) mod execution;
pub(crate) mod reply;

use crate::buffers::{Gathered, Output};
use crate::failure::{RequestFailure, Violation};
use crate::limits::{INPUT_BYTES, SKIPPED_BYTES_MAX, STATUS_PAYLOAD_BYTES_MAX};
use crate::transmission::execution::{Broken, Executor, LongRead, Taken};
use crate::wire::{Command, RequestHeader};

/// A client that uses an export.
pub(crate) struct Transmission<'e> {
    executor: Executor<'e>,
    /// The write whose payload is arriving.
    payload: Option<Box<Payload>>,
    /// The read whose reply is on its way.
    reading: Option<LongRead>,
}

/// A payload that is taken in pieces: written, or thrown away once the write failed.
struct Payload {
    whole: Taken,
    arrived: u64,
    fate: Result<(), RequestFailure>,
    /// What has arrived, if nothing is written before all of it is there.
    gathered: Option<Gathered>,
}

/// A request that may take long: it can be executed on any thread.
pub(crate) struct OffloadedRequest {
    taken: Taken,
    work: Work,
}

enum Work {
    /// All of it, with a copy of its payload.
    Whole(Vec<u8>),
    /// All of it, with the payload that was put together.
    Gathered(Gathered),
    /// The end of a write that was made in pieces.
    EndOfWrite,
}

impl OffloadedRequest {
    /// Bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        match &self.work {
            Work::Whole(data) => data.len(),
            Work::Gathered(payload) => payload.held_bytes(),
            Work::EndOfWrite => 0,
        }
    }

    /// Executes and answers it.
    pub(crate) fn run(self, executor: &mut Executor<'_>, out: &mut Output) {
        executor.wake();
        match self.work {
            Work::Whole(data) => executor.answer(self.taken, &data, out),
            Work::Gathered(payload) => executor.answer(self.taken, payload.bytes(), out),
            Work::EndOfWrite => executor.end_write(self.taken, Ok(()), out),
        }
    }
}

/// What became of the input.
pub(crate) enum RequestProgress {
    /// This many bytes were understood: none, where a reply goes on that is sent in pieces.
    Consumed(usize),
    /// These bytes were a request that may take long.
    Offload(usize, OffloadedRequest),
    /// It is the beginning of something longer.
    NeedMore,
    /// The client says good-bye.
    Disconnected,
    /// A reply cannot be finished.
    Broken(RequestFailure),
}

impl<'e> Transmission<'e> {
    pub(crate) fn new(executor: Executor<'e>) -> Transmission<'e> {
        Transmission { executor, payload: None, reading: None }
    }

    pub(crate) fn executor(&mut self) -> &mut Executor<'e> {
        &mut self.executor
    }

    /// Bytes of a payload that is put together here.
    pub(crate) fn held_bytes(&self) -> usize {
        let gathered = self.payload.as_ref().and_then(|payload| payload.gathered.as_ref());
        gathered.map_or(0, Gathered::held_bytes)
    }

    /// Whether the client may leave without having left something half said.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.payload.is_none()
    }

    /// Whether the next bytes sent have to follow the last ones: a reply without chunks goes on.
    pub(crate) fn is_inside_reply(&self) -> bool {
        self.reading.is_some() && self.executor.has_unframed_reads()
    }

    /// Executes one request, or a piece of one, at the front of `input`.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Output) -> Result<RequestProgress, Violation> {
        if let Some(payload) = self.payload.take() {
            return Ok(self.take_piece(payload, input, out));
        }
        if let Some(reading) = self.reading.take() {
            return Ok(self.read_on(reading, 0, out));
        }
        let headers = self.executor.headers();
        let header_bytes = headers.request_bytes();
        let Some((header, rest)) = input.split_at_checked(header_bytes) else { return Ok(RequestProgress::NeedMore) };
        let request = RequestHeader::decode(headers, header).map_err(|found| Violation::RequestMagic { found })?;
        let payload_bytes = request.payload_bytes(headers);
        if payload_bytes > SKIPPED_BYTES_MAX {
            return Err(Violation::EndlessPayload { len: payload_bytes });
        }
        Ok(match request.command {
            Command::Disconnect if payload_bytes == 0 => RequestProgress::Disconnected,
            Command::Write => self.begin_write(request, rest, out),
            Command::BlockStatus if (1..=STATUS_PAYLOAD_BYTES_MAX).contains(&payload_bytes) => {
                let Some(payload) = rest.get(..piece_len(payload_bytes)) else { return Ok(RequestProgress::NeedMore) };
                match self.executor.named_status(&request, payload) {
                    Ok(status) => self.execute(status, &[], header_bytes + payload.len(), out),
                    Err(failure) => self.skip(request, failure, out),
                }
            }
            Command::BlockStatus if payload_bytes > 0 => {
                self.skip(request, RequestFailure::StatusPayload { len: payload_bytes }, out)
            }
            _ if payload_bytes > 0 => self.skip(request, RequestFailure::ForeignPayload { len: payload_bytes }, out),
            _ => match self.executor.long_read(&request) {
                Some(reading) => self.read_on(reading, header_bytes, out),
                None => self.execute(request, &[], header_bytes, out),
            },
        })
    }

    /// Refuses a request and takes its payload from the input.
    fn skip(&mut self, request: RequestHeader, failure: RequestFailure, out: &mut Output) -> RequestProgress {
        let header_bytes = self.executor.headers().request_bytes();
        let whole = self.executor.take(request);
        self.go_on(Box::new(Payload { whole, arrived: 0, fate: Err(failure), gathered: None }), header_bytes, out)
    }

    fn read_on(&mut self, reading: LongRead, len: usize, out: &mut Output) -> RequestProgress {
        match self.executor.read_on(reading, out) {
            Ok(rest) => {
                self.reading = rest;
                RequestProgress::Consumed(len)
            }
            Err(Broken(failure)) => RequestProgress::Broken(failure),
        }
    }

    /// Executes a request that is all there, or offloads it.
    fn execute(&mut self, request: RequestHeader, data: &[u8], len: usize, out: &mut Output) -> RequestProgress {
        let taken = self.executor.take(request);
        if self.is_worth_offloading(&taken) {
            return RequestProgress::Offload(len, OffloadedRequest { taken, work: Work::Whole(data.to_vec()) });
        }
        self.executor.answer(taken, data, out);
        RequestProgress::Consumed(len)
    }

    /// Executes or offloads a request whose payload was put together. The payload goes with it: a
    /// copy would not be counted among the bytes that a connection holds.
    fn execute_gathered(&mut self, taken: Taken, payload: Gathered, len: usize, out: &mut Output) -> RequestProgress {
        if self.is_worth_offloading(&taken) {
            return RequestProgress::Offload(len, OffloadedRequest { taken, work: Work::Gathered(payload) });
        }
        self.executor.answer(taken, payload.bytes(), out);
        RequestProgress::Consumed(len)
    }

    fn is_worth_offloading(&self, taken: &Taken) -> bool {
        self.executor.is_long(&taken.request) && self.executor.check(&taken.request).is_ok()
    }

    /// Executes a write whose payload is here, waits for one that fits the buffer, and begins to
    /// take any other.
    fn begin_write(&mut self, request: RequestHeader, rest: &[u8], out: &mut Output) -> RequestProgress {
        let header_bytes = self.executor.headers().request_bytes();
        let fate = self.executor.check(&request);
        if fate.is_ok()
            && let Ok(len) = usize::try_from(request.len)
            && header_bytes + len <= INPUT_BYTES
        {
            let Some(data) = rest.get(..len) else { return RequestProgress::NeedMore };
            return self.execute(request, data, header_bytes + len, out);
        }
        let gathers = fate.is_ok() && self.executor.writes_whole(&request);
        let gathered = gathers.then(|| Gathered::of(piece_len(request.len)));
        let whole = self.executor.take(request);
        self.go_on(Box::new(Payload { whole, arrived: 0, fate, gathered }), header_bytes, out)
    }

    /// Takes as much of a payload as makes whole blocks of the device, so that none is written in
    /// two pieces.
    fn take_piece(&mut self, mut payload: Box<Payload>, input: &[u8], out: &mut Output) -> RequestProgress {
        let left = payload.whole.request.len - payload.arrived;
        let mut piece = (input.len() as u64).min(left);
        if let Some(gathered) = &mut payload.gathered {
            gathered.add(&input[..piece_len(piece)]);
        } else if payload.fate.is_ok() {
            let at = payload.whole.request.offset + payload.arrived;
            if piece < left {
                piece = self.executor.block_start(at + piece).saturating_sub(at);
            }
            payload.fate = self.executor.write_piece(at, &input[..piece_len(piece)]);
        }
        if piece == 0 {
            self.payload = Some(payload);
            return RequestProgress::NeedMore;
        }
        payload.arrived += piece;
        self.go_on(payload, piece_len(piece), out)
    }

    /// Waits for the rest of a payload, or ends its request.
    fn go_on(&mut self, payload: Box<Payload>, len: usize, out: &mut Output) -> RequestProgress {
        if payload.arrived < payload.whole.request.len {
            self.payload = Some(payload);
            return RequestProgress::Consumed(len);
        }
        let Payload { whole, arrived: _, fate, gathered } = *payload;
        if let Some(gathered) = gathered {
            return self.execute_gathered(whole, gathered, len, out);
        }
        if fate.is_ok() && self.executor.is_long(&whole.request) {
            return RequestProgress::Offload(len, OffloadedRequest { taken: whole, work: Work::EndOfWrite });
        }
        self.executor.end_write(whole, fate, out);
        RequestProgress::Consumed(len)
    }
}

/// A length of something that lies in a buffer.
fn piece_len(len: u64) -> usize {
    usize::try_from(len).expect("a buffer of this length exists")
}
