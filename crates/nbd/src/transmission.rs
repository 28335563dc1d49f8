//! Transmission: requests in, device operations, replies out. Bytes in, bytes out; no socket.
//!
//! A request is executed when all of it is there, on the spot. Only a write longer than the input buffer is executed
//! as it arrives, by whole blocks. A request that is refused still has its payload taken from the input, so that
//! the next one is found.

use crate::buffers::Output;
use crate::export::{Export, Zeroing};
use crate::failure::Failure;
use crate::limits::{INPUT_BYTES, PAYLOAD_BYTES_MAX, SKIPPED_BYTES_MAX, STATUS_EXTENTS_MAX};
use crate::reply::Replies;
use crate::serve::Violation;
use crate::wire::{Command, Headers, Request, command_flag};
use tidegate_media::Durability;

/// Whether the client chose the metadata context that tells holes from data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    Chosen,
    NotChosen,
}

/// What handshake and transmission agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) replies: Replies,
    pub(crate) allocation: Allocation,
}

/// A client that uses an export.
pub(crate) struct Transmission<'e> {
    export: &'e Export,
    agreement: Agreement,
    /// One block, for ranges that cover one in part.
    scratch: Box<[u8]>,
    /// The write whose payload is arriving.
    payload: Option<Payload>,
}

/// A payload that is taken in pieces: written, or thrown away once the write failed.
struct Payload {
    request: Request,
    taken: u64,
    fate: Result<(), Failure>,
}

/// What became of the input.
pub(crate) enum Progress {
    /// This many bytes were understood.
    Took(usize),
    /// It is the beginning of something longer.
    Starved,
    /// The client says good-bye.
    Disconnected,
}

impl<'e> Transmission<'e> {
    pub(crate) fn new(export: &'e Export, agreement: Agreement) -> Transmission<'e> {
        Transmission { export, agreement, scratch: export.scratch(), payload: None }
    }

    /// Whether the client may leave without having left something half said.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.payload.is_none()
    }

    /// Executes one request, or a piece of one, at the front of `input`.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Output) -> Result<Progress, Violation> {
        if let Some(payload) = self.payload.take() {
            return Ok(self.take_piece(payload, input, out));
        }
        let headers = self.headers();
        let Some((header, rest)) = input.split_at_checked(headers.request_bytes()) else {
            return Ok(Progress::Starved);
        };
        let request = Request::decode(headers, header).map_err(|found| Violation::RequestMagic { found })?;
        let payload_bytes = request.payload_bytes(headers);
        if payload_bytes > SKIPPED_BYTES_MAX {
            return Err(Violation::EndlessPayload { len: payload_bytes });
        }
        match request.command {
            Command::Disconnect if payload_bytes == 0 => Ok(Progress::Disconnected),
            Command::Write => Ok(self.begin_write(request, rest, out)),
            _ if payload_bytes > 0 => {
                let fate = Err(Failure::ForeignPayload { len: payload_bytes });
                self.go_on(Payload { request, taken: 0, fate }, out);
                Ok(Progress::Took(headers.request_bytes()))
            }
            _ => {
                self.answer(&request, out);
                Ok(Progress::Took(headers.request_bytes()))
            }
        }
    }

    fn headers(&self) -> Headers {
        self.agreement.replies.headers()
    }

    /// Executes a write whose payload is here, waits for one that fits the buffer, and begins to take any other.
    fn begin_write(&mut self, request: Request, rest: &[u8], out: &mut Output) -> Progress {
        let header_bytes = self.headers().request_bytes();
        let fate = self.check(&request);
        if fate.is_ok()
            && let Ok(len) = usize::try_from(request.len)
            && header_bytes + len <= INPUT_BYTES
        {
            let Some(data) = rest.get(..len) else { return Progress::Starved };
            let fate = self.export.write(request.offset, data, durability(&request), &mut self.scratch);
            self.agreement.replies.put_fate(&request, fate, out);
            return Progress::Took(header_bytes + len);
        }
        self.go_on(Payload { request, taken: 0, fate }, out);
        Progress::Took(header_bytes)
    }

    /// Takes as much of a payload as makes whole blocks of the device, so that none is written in two pieces.
    fn take_piece(&mut self, mut payload: Payload, input: &[u8], out: &mut Output) -> Progress {
        let left = payload.request.len - payload.taken;
        let mut piece = (input.len() as u64).min(left);
        if payload.fate.is_ok() {
            let at = payload.request.offset + payload.taken;
            if piece < left {
                piece = self.export.block_start(at + piece).saturating_sub(at);
            }
            let data = &input[..piece_len(piece)];
            payload.fate = self.export.write(at, data, Durability::Volatile, &mut self.scratch);
        }
        payload.taken += piece;
        if piece == 0 {
            self.payload = Some(payload);
            return Progress::Starved;
        }
        self.go_on(payload, out);
        Progress::Took(piece_len(piece))
    }

    /// Waits for the rest of a payload, or ends its write: the pieces are made durable together.
    fn go_on(&mut self, payload: Payload, out: &mut Output) {
        if payload.taken < payload.request.len {
            self.payload = Some(payload);
            return;
        }
        let fate = payload.fate.and_then(|()| match durability(&payload.request) {
            Durability::Fua => self.export.flush(),
            Durability::Volatile => Ok(()),
        });
        self.agreement.replies.put_fate(&payload.request, fate, out);
    }

    /// Executes a request without payload. What it put into the reply is taken back if it fails.
    fn answer(&mut self, request: &Request, out: &mut Output) {
        let before = out.len();
        let replies = self.agreement.replies;
        let fate = self.check(request).and_then(|()| match request.command {
            Command::Read => self.read(request, out),
            Command::BlockStatus => self.status(request, out),
            _ => self.execute(request).map(|()| replies.put_fate(request, Ok(()), out)),
        });
        if let Err(failure) = fate {
            out.truncate(before);
            replies.put_fate(request, Err(failure), out);
        }
    }

    /// Reads straight into the reply.
    fn read(&mut self, request: &Request, out: &mut Output) -> Result<(), Failure> {
        self.agreement.replies.begin_data(request, out);
        self.export.read(request.offset, out.space(piece_len(request.len)), &mut self.scratch)
    }

    fn status(&self, request: &Request, out: &mut Output) -> Result<(), Failure> {
        let extents_max = if request.asks(command_flag::REQ_ONE) { 1 } else { STATUS_EXTENTS_MAX };
        let extents = self.export.extents(request.offset, request.len, extents_max)?;
        self.agreement.replies.put_extents(request, &extents, out);
        Ok(())
    }

    /// Executes a request that carries no data in either direction, and was checked.
    fn execute(&mut self, request: &Request) -> Result<(), Failure> {
        let (offset, len) = (request.offset, request.len);
        match request.command {
            Command::Flush => self.export.flush(),
            Command::Trim => self.export.trim(offset, len, durability(request)),
            Command::WriteZeroes => self.write_zeroes(request),
            // As much as one READ may bring: the rest of a longer range would push out its own beginning.
            Command::Cache => self.export.cache(offset, len.min(PAYLOAD_BYTES_MAX.into()), &mut self.scratch),
            Command::Unknown(number) => Err(Failure::UnknownCommand { number }),
            Command::Read | Command::Write | Command::BlockStatus | Command::Disconnect => {
                unreachable!("executed where their data is")
            }
        }
    }

    fn write_zeroes(&mut self, request: &Request) -> Result<(), Failure> {
        let (offset, len) = (request.offset, request.len);
        let zeroing = if request.asks(command_flag::NO_HOLE) { Zeroing::AsData } else { Zeroing::AnyWay };
        let fast = zeroing == Zeroing::AnyWay && self.export.zeroes_fast(offset, len);
        if request.asks(command_flag::FAST_ZERO) && !fast {
            return Err(Failure::SlowZeroes);
        }
        self.export.write_zeroes(offset, len, (zeroing, durability(request)), &mut self.scratch)
    }

    /// Why `request` cannot even be tried.
    fn check(&self, request: &Request) -> Result<(), Failure> {
        let fua = command_flag::FUA;
        let (flags, writes) = match request.command {
            Command::Read if self.agreement.replies == Replies::Simple => (fua, false),
            Command::Read => (fua | command_flag::DF, false),
            Command::BlockStatus => (fua | command_flag::REQ_ONE, false),
            Command::Cache | Command::Flush | Command::Disconnect => (fua, false),
            Command::Write if self.headers() == Headers::Extended => (fua | command_flag::PAYLOAD_LEN, true),
            Command::Write | Command::Trim => (fua, true),
            Command::WriteZeroes => (fua | command_flag::NO_HOLE | command_flag::FAST_ZERO, true),
            Command::Unknown(number) => return Err(Failure::UnknownCommand { number }),
        };
        if request.flags & !flags != 0 {
            return Err(Failure::ForeignFlags { flags: request.flags & !flags });
        }
        if writes && self.export.geometry().read_only {
            return Err(Failure::ReadOnly);
        }
        if request.command == Command::BlockStatus && self.agreement.allocation == Allocation::NotChosen {
            return Err(Failure::NoContext);
        }
        self.check_length(request)?;
        self.check_end(request)
    }

    fn check_length(&self, request: &Request) -> Result<(), Failure> {
        let len = request.len;
        match request.command {
            Command::Flush if request.offset != 0 || len != 0 => Err(Failure::FlushRange),
            Command::BlockStatus if len == 0 => Err(Failure::EmptyStatus),
            Command::Read if len > PAYLOAD_BYTES_MAX.into() && request.asks(command_flag::DF) => {
                Err(Failure::LongChunk { len })
            }
            Command::Read | Command::Write if len > PAYLOAD_BYTES_MAX.into() => Err(Failure::LongPayload { len }),
            _ => Ok(()),
        }
    }

    fn check_end(&self, request: &Request) -> Result<(), Failure> {
        let size = self.export.bytes();
        match (request.offset.checked_add(request.len), request.command) {
            (Some(end), _) if end <= size => Ok(()),
            (_, Command::Write | Command::WriteZeroes) => Err(Failure::WritePastEnd { size }),
            _ => Err(Failure::ReadPastEnd { size }),
        }
    }
}

fn durability(request: &Request) -> Durability {
    if request.asks(command_flag::FUA) { Durability::Fua } else { Durability::Volatile }
}

/// A length of something that lies in a buffer.
fn piece_len(len: u64) -> usize {
    usize::try_from(len).expect("a buffer of this length exists")
}
