//! The bytes of the NBD protocol: its numbers, and the records that carry them. All fields are
//! big-endian.
//!
//! Source: the protocol description of the NetworkBlockDevice project (`doc/proto.md`). Names
//! follow it, without their prefix.

use crate::contexts::Contexts;

/// First words of a server.
pub(crate) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second words of a server, and the first of every option.
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First words of every reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of every request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of every request once extended headers are agreed on.
pub(crate) const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First word of a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of each chunk of a structured reply.
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// First word of each chunk of a reply once extended headers are agreed on.
pub(crate) const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Header of an option: magic, number, length.
pub(crate) const OPTION_BYTES: usize = 16;
/// Header of a reply to an option: magic, option, kind, length.
pub(crate) const OPTION_REPLY_BYTES: usize = 20;
/// Header of a request: magic, flags, command, cookie, offset, length.
pub(crate) const REQUEST_BYTES: usize = 28;
/// Header of an extended request, whose length has eight bytes.
pub(crate) const EXTENDED_REQUEST_BYTES: usize = 32;
/// A simple reply: magic, error, cookie.
pub(crate) const SIMPLE_REPLY_BYTES: usize = 16;
/// Header of a chunk: magic, flags, kind, cookie, length.
pub(crate) const CHUNK_BYTES: usize = 20;
/// Header of an extended chunk: magic, flags, kind, cookie, offset of the request, length.
pub(crate) const EXTENDED_CHUNK_BYTES: usize = 32;
/// Longest header of a chunk of data: that of a chunk, and the offset of the data.
pub(crate) const DATA_CHUNK_BYTES: usize = EXTENDED_CHUNK_BYTES + 8;
/// Zeroes that end the answer to EXPORT_NAME unless both sides agreed to leave them out.
pub(crate) const EXPORT_NAME_ZEROES: usize = 124;

/// Flags of the server in the greeting, and of the client in its answer: the bits are the same.
pub(crate) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Numbers of options.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of replies to options.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = ERROR | 1;
    pub(crate) const ERR_POLICY: u32 = ERROR | 2;
    pub(crate) const ERR_INVALID: u32 = ERROR | 3;
    pub(crate) const ERR_TLS_REQD: u32 = ERROR | 5;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR | 6;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR | 9;
    pub(crate) const ERR_EXT_HEADER_REQD: u32 = ERROR | 10;
    /// The bit that all errors have.
    pub(crate) const ERROR: u32 = 1 << 31;
}

/// Kinds of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What the context `base:allocation` tells.
pub(crate) mod allocation {
    pub(crate) const HOLE: u32 = 1 << 0;
    pub(crate) const ZERO: u32 = 1 << 1;
}

/// What an export can do, as told at the end of the handshake.
pub(crate) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
    /// BLOCK_STATUS may name the contexts it is about.
    pub(crate) const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Flags of a request.
pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload; with extended headers every WRITE says so, and a
    /// BLOCK_STATUS that names contexts.
    pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Kinds of chunks, and the flag of a reply's last one.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const BLOCK_STATUS_EXT: u16 = 6;
    pub(crate) const ERROR: u16 = 1 << 15 | 1;
    pub(crate) const DONE: u16 = 1 << 0;
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    Unknown(u16),
}

impl Command {
    fn from_number(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            unknown => Command::Unknown(unknown),
        }
    }
}

/// Which headers the two sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Lengths of four bytes.
    Compact,
    /// Lengths of eight bytes.
    Extended,
}

impl Headers {
    pub(crate) fn request_bytes(self) -> usize {
        match self {
            Headers::Compact => REQUEST_BYTES,
            Headers::Extended => EXTENDED_REQUEST_BYTES,
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) flags: u16,
    pub(crate) command: Command,
    /// The client's name for the request, repeated in the reply.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The contexts that a BLOCK_STATUS names; none: all that were chosen.
    pub(crate) contexts: Contexts,
}

impl RequestHeader {
    /// The request in `header`, which is as long as `headers` says, or the number found where its
    /// magic should be.
    pub(crate) fn decode(headers: Headers, header: &[u8]) -> Result<RequestHeader, u32> {
        let mut fields = Fields(header);
        let (magic, flags, command) = (fields.fixed_u32(), fields.fixed_u16(), fields.fixed_u16());
        let expected = match headers {
            Headers::Compact => REQUEST_MAGIC,
            Headers::Extended => EXTENDED_REQUEST_MAGIC,
        };
        if magic != expected {
            return Err(magic);
        }
        Ok(RequestHeader {
            flags,
            command: Command::from_number(command),
            cookie: fields.fixed_u64(),
            offset: fields.fixed_u64(),
            len: match headers {
                Headers::Compact => u64::from(fields.fixed_u32()),
                Headers::Extended => fields.fixed_u64(),
            },
            contexts: Contexts::default(),
        })
    }

    /// Bytes that follow the header.
    pub(crate) fn payload_bytes(&self, headers: Headers) -> u64 {
        let announced = headers == Headers::Extended && self.flags & command_flag::PAYLOAD_LEN != 0;
        if announced || self.command == Command::Write { self.len } else { 0 }
    }

    pub(crate) fn asks(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The payload of a BLOCK_STATUS that names contexts: the length that the header's is not, and the
/// contexts' numbers.
pub(crate) fn status_payload(payload: &[u8]) -> Option<(u64, impl Iterator<Item = u32>)> {
    let mut fields = Fields(payload);
    let len = fields.u64()?;
    let numbers = fields.0.chunks_exact(4);
    numbers.remainder().is_empty().then(|| (len, numbers.map(|number| Fields(number).fixed_u32())))
}

pub(crate) fn simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut reply = [0; SIMPLE_REPLY_BYTES];
    reply[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply[4..8].copy_from_slice(&error.to_be_bytes());
    reply[8..16].copy_from_slice(&cookie.to_be_bytes());
    reply
}

/// The header of a chunk, with `len` bytes to follow.
pub(crate) fn chunk_header(flags: u16, kind: u16, cookie: u64, len: u32) -> [u8; CHUNK_BYTES] {
    let mut header = [0; CHUNK_BYTES];
    header[0..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&flags.to_be_bytes());
    header[6..8].copy_from_slice(&kind.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..20].copy_from_slice(&len.to_be_bytes());
    header
}

/// The header of an extended chunk, which names the request's offset.
pub(crate) fn extended_chunk_header(
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    len: u64,
) -> [u8; EXTENDED_CHUNK_BYTES] {
    let mut header = [0; EXTENDED_CHUNK_BYTES];
    header[0..4].copy_from_slice(&EXTENDED_CHUNK_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&flags.to_be_bytes());
    header[6..8].copy_from_slice(&kind.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..24].copy_from_slice(&offset.to_be_bytes());
    header[24..32].copy_from_slice(&len.to_be_bytes());
    header
}

/// The header of a reply to an option, with `len` bytes to follow.
pub(crate) fn option_reply(option: u32, kind: u32, len: u32) -> [u8; OPTION_REPLY_BYTES] {
    let mut header = [0; OPTION_REPLY_BYTES];
    header[0..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    header[8..12].copy_from_slice(&option.to_be_bytes());
    header[12..16].copy_from_slice(&kind.to_be_bytes());
    header[16..20].copy_from_slice(&len.to_be_bytes());
    header
}

/// Fields yet to be taken from the front of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next field of a header whose length is fixed.
    pub(crate) fn fixed_u16(&mut self) -> u16 {
        self.u16().expect("a header has all of its fields")
    }

    /// The next field of a header whose length is fixed.
    pub(crate) fn fixed_u32(&mut self) -> u32 {
        self.u32().expect("a header has all of its fields")
    }

    /// The next field of a header whose length is fixed.
    pub(crate) fn fixed_u64(&mut self) -> u64 {
        self.u64().expect("a header has all of its fields")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
