//! Transmission: requests in, device operations, replies out. Bytes in, bytes out; no socket.
//!
//! A request is executed when all of it is there, on the spot. Only a write longer than the input buffer is executed
//! as it arrives, by whole blocks. A request that is refused still has its payload taken from the input, so that
//! the next one is found.
//!
//! CACHE and BLOCK_STATUS, which no handshake here offers, get the answer of every unknown command.

use crate::buffers::Output;
use crate::export::Export;
use crate::failure::Failure;
use crate::limits::{INPUT_BYTES, PAYLOAD_BYTES_MAX, STRING_BYTES_MAX};
use crate::serve::Violation;
use crate::wire::{self, Command, Request, chunk, command_flag};
use tidegate_media::Durability;

/// How the server answers, as agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    Simple,
    Structured,
}

/// A client that uses an export.
pub(crate) struct Transmission<'e> {
    export: &'e Export,
    replies: Replies,
    /// One block, for ranges that cover one in part.
    scratch: Box<[u8]>,
    /// The write whose payload is arriving.
    payload: Option<Payload>,
}

/// A payload that is taken in pieces: written, or thrown away once the write failed.
struct Payload {
    request: Request,
    taken: u32,
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
    pub(crate) fn new(export: &'e Export, replies: Replies) -> Transmission<'e> {
        Transmission { export, replies, scratch: export.scratch(), payload: None }
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
        let Some((header, rest)) = input.split_first_chunk() else { return Ok(Progress::Starved) };
        let request = Request::decode(header).map_err(|found| Violation::RequestMagic { found })?;
        match request.command {
            Command::Disconnect => Ok(Progress::Disconnected),
            Command::Write => Ok(self.begin_write(request, rest, out)),
            Command::Read => Ok(self.read(request, out)),
            _ => {
                let fate = self.check(&request).and_then(|()| self.execute(&request));
                self.put_reply(request.cookie, fate, out);
                Ok(Progress::Took(wire::REQUEST_BYTES))
            }
        }
    }

    /// Executes a write whose payload is here, waits for one that fits the buffer, and begins to take any other.
    fn begin_write(&mut self, request: Request, rest: &[u8], out: &mut Output) -> Progress {
        let len = request.len as usize;
        let fate = self.check(&request);
        if fate.is_ok() && wire::REQUEST_BYTES + len <= INPUT_BYTES {
            let Some(data) = rest.get(..len) else { return Progress::Starved };
            let fate = self.export.write(request.offset, data, durability(&request), &mut self.scratch);
            self.put_reply(request.cookie, fate, out);
            return Progress::Took(wire::REQUEST_BYTES + len);
        }
        self.go_on(Payload { request, taken: 0, fate }, out);
        Progress::Took(wire::REQUEST_BYTES)
    }

    /// Takes as much of a payload as makes whole blocks of the device, so that none is written in two pieces.
    fn take_piece(&mut self, mut payload: Payload, input: &[u8], out: &mut Output) -> Progress {
        let left = payload.request.len - payload.taken;
        let at = payload.request.offset + u64::from(payload.taken);
        let mut piece = u32::try_from(input.len()).unwrap_or(u32::MAX).min(left);
        if payload.fate.is_ok() && piece < left {
            let end = self.export.block_start(at + u64::from(piece));
            piece = u32::try_from(end.saturating_sub(at)).expect("a piece is no longer than the input");
        }
        if piece == 0 {
            self.payload = Some(payload);
            return Progress::Starved;
        }
        if payload.fate.is_ok() {
            let data = &input[..piece as usize];
            payload.fate = self.export.write(at, data, Durability::Volatile, &mut self.scratch);
        }
        payload.taken += piece;
        self.go_on(payload, out);
        Progress::Took(piece as usize)
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
        self.put_reply(payload.request.cookie, fate, out);
    }

    /// Reads straight into the reply, which is taken back if the device fails.
    fn read(&mut self, request: Request, out: &mut Output) -> Progress {
        let before = out.len();
        let fate = self.check(&request).and_then(|()| self.put_data(&request, out));
        if let Err(failure) = fate {
            out.truncate(before);
            self.put_reply(request.cookie, Err(failure), out);
        }
        Progress::Took(wire::REQUEST_BYTES)
    }

    fn put_data(&mut self, request: &Request, out: &mut Output) -> Result<(), Failure> {
        match self.replies {
            Replies::Simple => out.put(&wire::simple_reply(0, request.cookie)),
            // A chunk of data has at least one byte.
            Replies::Structured if request.len == 0 => out.put(&wire::last_chunk(chunk::NONE, request.cookie, 0)),
            Replies::Structured => {
                out.put(&wire::last_chunk(chunk::OFFSET_DATA, request.cookie, 8 + request.len));
                out.put(&request.offset.to_be_bytes());
            }
        }
        self.export.read(request.offset, out.space(request.len as usize), &mut self.scratch)
    }

    /// Executes a request that carries no data in either direction, and was checked.
    fn execute(&mut self, request: &Request) -> Result<(), Failure> {
        let (offset, len) = (request.offset, u64::from(request.len));
        match request.command {
            Command::Flush => self.export.flush(),
            Command::Trim => self.export.trim(offset, len, durability(request)),
            // NO_HOLE needs nothing: no device here gives the place of a zeroed block away.
            Command::WriteZeroes => self.export.write_zeroes(offset, len, durability(request), &mut self.scratch),
            Command::Read | Command::Write | Command::Disconnect => unreachable!("executed where they are parsed"),
            Command::Unknown(number) => Err(Failure::UnknownCommand { number }),
        }
    }

    /// Why `request` cannot even be tried.
    fn check(&self, request: &Request) -> Result<(), Failure> {
        let fua = command_flag::FUA;
        let (flags, writes) = match request.command {
            Command::Read if self.replies == Replies::Structured => (fua | command_flag::DF, false),
            Command::Read | Command::Flush | Command::Disconnect => (fua, false),
            Command::Write | Command::Trim => (fua, true),
            Command::WriteZeroes => (fua | command_flag::NO_HOLE, true),
            Command::Unknown(number) => return Err(Failure::UnknownCommand { number }),
        };
        if request.flags & !flags != 0 {
            return Err(Failure::ForeignFlags { flags: request.flags & !flags });
        }
        if writes && self.export.geometry().read_only {
            return Err(Failure::ReadOnly);
        }
        self.check_length(request)?;
        self.check_end(request)
    }

    fn check_length(&self, request: &Request) -> Result<(), Failure> {
        let len = request.len;
        match request.command {
            Command::Flush if request.offset != 0 || len != 0 => Err(Failure::FlushRange),
            Command::Read if len > PAYLOAD_BYTES_MAX && request.flags & command_flag::DF != 0 => {
                Err(Failure::LongChunk { len })
            }
            Command::Read | Command::Write if len > PAYLOAD_BYTES_MAX => Err(Failure::LongPayload { len }),
            _ => Ok(()),
        }
    }

    fn check_end(&self, request: &Request) -> Result<(), Failure> {
        let size = self.export.bytes();
        let end = request.offset.checked_add(u64::from(request.len));
        match (end, request.command) {
            (Some(end), _) if end <= size => Ok(()),
            (_, Command::Write | Command::WriteZeroes) => Err(Failure::WritePastEnd { size }),
            _ => Err(Failure::ReadPastEnd { size }),
        }
    }

    /// Answers a request without data. Success has the same short answer under both agreements.
    fn put_reply(&self, cookie: u64, fate: Result<(), Failure>, out: &mut Output) {
        match (fate, self.replies) {
            (Ok(()), _) => out.put(&wire::simple_reply(0, cookie)),
            (Err(failure), Replies::Simple) => out.put(&wire::simple_reply(failure.errno() as u32, cookie)),
            (Err(failure), Replies::Structured) => put_error_chunk(cookie, &failure, out),
        }
    }
}

fn put_error_chunk(cookie: u64, failure: &Failure, out: &mut Output) {
    let text = failure.to_string();
    let shown = &text[..text.floor_char_boundary(STRING_BYTES_MAX)];
    let shown_len = u16::try_from(shown.len()).expect("a message is at most 4096 bytes long");
    out.put(&wire::last_chunk(chunk::ERROR, cookie, 6 + u32::from(shown_len)));
    out.put(&(failure.errno() as u32).to_be_bytes());
    out.put(&shown_len.to_be_bytes());
    out.put(shown.as_bytes());
}

fn durability(request: &Request) -> Durability {
    if request.flags & command_flag::FUA != 0 { Durability::Fua } else { Durability::Volatile }
}
