//! The bytes of the NBD protocol as a client needs them. All fields are big-endian.
//!
//! Source: the protocol description of the NetworkBlockDevice project (`doc/proto.md`). Names
//! follow it, without their prefix.

/// First words of a server.
pub(crate) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second words of a server, and the first of every option.
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First words of every reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of each chunk of a structured reply.
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// First word of each chunk of a reply once extended headers are agreed on.
pub(crate) const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Greeting: two magics, handshake flags.
pub(crate) const GREETING_BYTES: usize = 18;
/// Header of a reply to an option: magic, option, kind, length.
pub(crate) const OPTION_REPLY_BYTES: usize = 20;
/// A simple reply: magic, error, cookie.
pub(crate) const SIMPLE_REPLY_BYTES: usize = 16;
/// Header of an extended chunk: magic, flags, kind, cookie, offset of the request, length.
pub(crate) const EXTENDED_CHUNK_BYTES: usize = 32;

/// The metadata context that tells holes from data.
pub(crate) const ALLOCATION_CONTEXT: &[u8] = b"base:allocation";

/// Flags of the client in its answer to the greeting.
pub(crate) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u32 = 1 << 0;
    pub(crate) const NO_ZEROES: u32 = 1 << 1;
}

/// Numbers of options.
pub(crate) mod option {
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of replies to options.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const INFO: u32 = 3;
    /// The bit that all errors have.
    pub(crate) const ERROR: u32 = 1 << 31;
}

/// The kind of information that carries an export's size and flags.
pub(crate) const INFO_EXPORT: u16 = 0;

/// Status of a range in the context `base:allocation`: a hole, which reads as zeroes.
pub(crate) const STATUS_HOLE_ZERO: u64 = 1 << 0 | 1 << 1;

/// Flags of a request.
pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload: with extended headers every WRITE says so.
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

/// What a request asks for, with the protocol's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    Cache = 5,
    WriteZeroes = 6,
    BlockStatus = 7,
}

/// Which headers the two sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Lengths of four bytes.
    Compact,
    /// Lengths of eight bytes.
    Extended,
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: Command,
    /// The client's name for the request, repeated in the reply.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Request {
    /// The header's bytes. A length that compact headers cannot carry is cut off: the caller has
    /// seen to that.
    pub(crate) fn encode(&self, headers: Headers) -> Vec<u8> {
        let (magic, len_from): (u32, usize) = match headers {
            Headers::Compact => (0x2560_9513, 4),
            Headers::Extended => (0x21e4_1c71, 0),
        };
        let flags = match (headers, self.command) {
            (Headers::Extended, Command::Write) => self.flags | command_flag::PAYLOAD_LEN,
            _ => self.flags,
        };
        let mut header = magic.to_be_bytes().to_vec();
        header.extend(flags.to_be_bytes());
        header.extend((self.command as u16).to_be_bytes());
        header.extend(self.cookie.to_be_bytes());
        header.extend(self.offset.to_be_bytes());
        header.extend(&self.len.to_be_bytes()[len_from..]);
        header
    }
}

/// The header of an option, with `len` bytes to follow.
pub(crate) fn option_header(option: u32, len: u32) -> Vec<u8> {
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &len.to_be_bytes()].concat()
}

/// Fields yet to be taken from the front of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
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
}
