//! A small NBD client, for tests and trials: one that knows exactly which of its requests were
//! acknowledged.
//!
//! It is no client for use: it trusts its server, waits without a deadline, and allocates for each
//! read.

use crate::wire::{self, Command, Fields, Headers, Request, chunk, command_flag, handshake_flag, option, reply};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use tidegate_media::{Durability, ExtentKind};

/// A connection to one export, over any stream.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    bytes: u64,
    flags: u16,
    headers: Headers,
    next_cookie: u64,
    /// The requests without a reply.
    pending: BTreeMap<Cookie, Pending>,
}

/// A request without a reply, or with a part of one.
#[derive(Debug)]
struct Pending {
    /// Where it reads.
    offset: u64,
    /// How many bytes its reply will carry.
    len: u64,
    /// Those that came.
    data: Vec<u8>,
}

/// The name of a request, given by [`Client::submit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(pub u64);

/// How the server is to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Simple replies only.
    Simple,
    /// Structured replies, and the metadata context that tells holes from data. Both must be
    /// granted.
    Structured,
    /// Structured replies with extended headers, whose lengths have eight bytes.
    Extended,
}

/// How zeroes are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// In any way.
    AnyWay,
    /// As data, not as a hole.
    AsData,
    /// Faster than data, or not at all.
    Fast,
}

/// What to ask for. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Read a range.
    Read {
        /// First byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// Write some bytes.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
        /// Whether the reply promises durability.
        durability: Durability,
    },
    /// Make what was acknowledged durable.
    Flush,
    /// Give up a range.
    Trim {
        /// First byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// Make a range read as zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// How many.
        len: u32,
        /// Whether the reply promises durability.
        durability: Durability,
    },
    /// Make a range read as zeroes in a given way. Only extended headers carry more than 4 GiB.
    Zero {
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// The way.
        zeroes: Zeroes,
    },
    /// Announce reads of a range.
    Cache {
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Ask which bytes of a range are data and which holes.
    Status {
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// Whether one extent is enough.
        one: bool,
    },
}

/// The reply to one request.
#[derive(Debug)]
pub struct Completion {
    /// Which request.
    pub cookie: Cookie,
    /// The bytes read (of [`Operation::Status`] the descriptors as they came, none for other
    /// requests), or why not.
    pub outcome: Result<Vec<u8>, Refusal>,
}

/// An error that the server answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server answered error {code}: {message}")]
pub struct Refusal {
    /// The protocol's error number; of an option, its reply's kind.
    pub code: u32,
    /// The server's words, if it has any.
    pub message: String,
}

/// Why the client could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The stream failed, or ended.
    #[error("the connection failed: {0}")]
    Stream(#[from] io::Error),
    /// The server does not speak as expected.
    #[error("the server broke the protocol: {what}")]
    Protocol {
        /// What was wrong.
        what: &'static str,
    },
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

type Result<T, E = ClientError> = std::result::Result<T, E>;

/// A connection that has not picked an export.
#[derive(Debug)]
pub struct Greeted<S> {
    stream: S,
    bytes: u64,
    flags: u16,
}

impl<S: Read + Write> Greeted<S> {
    /// Exchanges greetings.
    pub fn meet(mut stream: S) -> Result<Greeted<S>> {
        let mut greeting = [0; wire::GREETING_BYTES];
        stream.read_exact(&mut greeting)?;
        let mut fields = Fields(&greeting);
        if fields.fixed_u64() != wire::GREETING_MAGIC || fields.fixed_u64() != wire::OPTION_MAGIC {
            return Err(ClientError::Protocol { what: "it does not greet as an NBD server" });
        }
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        stream.write_all(&flags.to_be_bytes())?;
        Ok(Greeted { stream, bytes: 0, flags: 0 })
    }

    /// Asks for encryption; `encrypt` makes of the stream one that encrypts.
    pub fn start_tls<T: Read + Write>(mut self, encrypt: impl FnOnce(S) -> T) -> Result<Greeted<T>> {
        self.negotiate(option::STARTTLS, &[])?;
        Ok(Greeted { stream: encrypt(self.stream), bytes: 0, flags: 0 })
    }

    /// Starts to use the export named `export`.
    pub fn pick(mut self, export: &str, dialect: Dialect) -> Result<Client<S>> {
        let name = [&payload_len(export.as_bytes())?.to_be_bytes(), export.as_bytes()].concat();
        match dialect {
            Dialect::Simple => {}
            Dialect::Structured => self.negotiate(option::STRUCTURED_REPLY, &[])?,
            Dialect::Extended => self.negotiate(option::EXTENDED_HEADERS, &[])?,
        }
        if dialect != Dialect::Simple {
            let query_len = payload_len(wire::ALLOCATION_CONTEXT)?.to_be_bytes();
            let one_query = [&1u32.to_be_bytes(), &query_len, wire::ALLOCATION_CONTEXT].concat();
            self.negotiate(option::SET_META_CONTEXT, &[name.clone(), one_query].concat())?;
        }
        self.negotiate(option::GO, &[&name[..], &[0, 0]].concat())?;
        let headers = if dialect == Dialect::Extended { Headers::Extended } else { Headers::Compact };
        let Greeted { stream, bytes, flags } = self;
        Ok(Client { stream, bytes, flags, headers, next_cookie: 1, pending: BTreeMap::new() })
    }

    /// Sends one option and takes its replies up to the last.
    fn negotiate(&mut self, number: u32, data: &[u8]) -> Result<()> {
        let len = payload_len(data)?;
        self.stream.write_all(&[&wire::option_header(number, len)[..], data].concat())?;
        loop {
            let header: [u8; wire::OPTION_REPLY_BYTES] = take(&mut self.stream)?;
            let mut fields = Fields(&header);
            if fields.fixed_u64() != wire::OPTION_REPLY_MAGIC || fields.fixed_u32() != number {
                return Err(ClientError::Protocol { what: "a reply to another option" });
            }
            let (kind, len) = (fields.fixed_u32(), fields.fixed_u32());
            let data = take_vec(&mut self.stream, len.into())?;
            match kind {
                reply::ACK => return Ok(()),
                reply::INFO => self.note_info(&data),
                error if error & reply::ERROR != 0 => return Err(refusal(error, &data).into()),
                _ => {}
            }
        }
    }

    fn note_info(&mut self, data: &[u8]) {
        let mut fields = Fields(data);
        if fields.u16() == Some(wire::INFO_EXPORT) && fields.0.len() == 10 {
            (self.bytes, self.flags) = (fields.fixed_u64(), fields.fixed_u16());
        }
    }
}

impl<S: Read + Write> Client<S> {
    /// Shakes hands and starts to use the export named `export`.
    pub fn connect(stream: S, export: &str, dialect: Dialect) -> Result<Client<S>> {
        Greeted::meet(stream)?.pick(export, dialect)
    }

    /// Bytes in the export.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The export's transmission flags, as the protocol numbers them.
    pub fn transmission_flags(&self) -> u16 {
        self.flags
    }

    /// The stream beneath.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Requests without a reply, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = Cookie> {
        self.pending.keys().copied()
    }

    /// Sends a request and does not wait.
    ///
    /// A server that waits for its replies to be taken takes no requests: keep what is pending well
    /// below the socket's buffers.
    pub fn submit(&mut self, operation: Operation<'_>) -> Result<Cookie> {
        let cookie = Cookie(self.next_cookie);
        self.next_cookie += 1;
        let (request, data) = encode(operation, cookie);
        self.stream.write_all(&request.encode(self.headers))?;
        self.stream.write_all(data)?;
        let len = if request.command == Command::Read { request.len } else { 0 };
        self.pending.insert(cookie, Pending { offset: request.offset, len, data: Vec::new() });
        Ok(cookie)
    }

    /// Waits for the next reply, to whichever request.
    pub fn complete(&mut self) -> Result<Completion> {
        loop {
            let magic = u32::from_be_bytes(take(&mut self.stream)?);
            let completion = match magic {
                wire::SIMPLE_REPLY_MAGIC => Some(self.complete_simple()?),
                wire::CHUNK_MAGIC if self.headers == Headers::Compact => self.take_chunk()?,
                wire::EXTENDED_CHUNK_MAGIC if self.headers == Headers::Extended => self.take_chunk()?,
                _ => return Err(ClientError::Protocol { what: "a reply without magic" }),
            };
            if let Some(completion) = completion {
                return Ok(completion);
            }
        }
    }

    /// Fills `out` with the bytes from `offset` on. Nothing else may be pending, here and in the
    /// calls below.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.call(Operation::Read { offset, len: payload_len(out)? })?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    /// Writes `data` from `offset` on.
    pub fn write(&mut self, offset: u64, data: &[u8], durability: Durability) -> Result<()> {
        payload_len(data)?;
        self.call(Operation::Write { offset, data, durability }).map(drop)
    }

    /// Makes durable what was acknowledged.
    pub fn flush(&mut self) -> Result<()> {
        self.call(Operation::Flush).map(drop)
    }

    /// Gives up `len` bytes from `offset` on.
    pub fn trim(&mut self, offset: u64, len: u32) -> Result<()> {
        self.call(Operation::Trim { offset, len }).map(drop)
    }

    /// Makes `len` bytes from `offset` on read as zeroes.
    pub fn write_zeroes(&mut self, offset: u64, len: u32, durability: Durability) -> Result<()> {
        self.call(Operation::WriteZeroes { offset, len, durability }).map(drop)
    }

    /// Which bytes from `offset` on are data and which holes, as far as one reply tells.
    pub fn status(&mut self, offset: u64, len: u64) -> Result<Vec<(u64, ExtentKind)>> {
        let descriptors = self.call(Operation::Status { offset, len, one: false })?;
        Ok(self.extents(&descriptors))
    }

    /// The extents in the outcome of an [`Operation::Status`].
    pub fn extents(&self, descriptors: &[u8]) -> Vec<(u64, ExtentKind)> {
        let half = if self.headers == Headers::Extended { 8 } else { 4 };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let kind = |flags| if flags == wire::STATUS_HOLE_ZERO { ExtentKind::Hole } else { ExtentKind::Data };
        let extent = |(len, flags)| (number(len), kind(number(flags)));
        descriptors.chunks_exact(2 * half).map(|both| extent(both.split_at(half))).collect()
    }

    /// Says good-bye, and returns the stream.
    pub fn disconnect(mut self) -> Result<S> {
        let request = Request { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, len: 0 };
        self.stream.write_all(&request.encode(self.headers))?;
        Ok(self.stream)
    }

    fn call(&mut self, operation: Operation<'_>) -> Result<Vec<u8>> {
        assert!(self.pending.is_empty(), "a reply is waited for while others are pending");
        self.submit(operation)?;
        Ok(self.complete()?.outcome?)
    }

    fn complete_simple(&mut self) -> Result<Completion> {
        let header: [u8; wire::SIMPLE_REPLY_BYTES - 4] = take(&mut self.stream)?;
        let mut fields = Fields(&header);
        let (error, cookie) = (fields.fixed_u32(), Cookie(fields.fixed_u64()));
        let pending = self.pending.remove(&cookie).ok_or(STRANGE_REPLY)?;
        let outcome = if error == 0 { Ok(take_vec(&mut self.stream, pending.len)?) } else { Err(refusal(error, &[])) };
        Ok(Completion { cookie, outcome })
    }

    /// Takes a chunk, and completes its request if it is the last one.
    fn take_chunk(&mut self) -> Result<Option<Completion>> {
        let mut header = [0; wire::EXTENDED_CHUNK_BYTES - 4];
        let len_bytes = if self.headers == Headers::Extended { 16 } else { 4 };
        self.stream.read_exact(&mut header[..12 + len_bytes])?;
        let mut fields = Fields(&header);
        let (flags, kind, cookie) = (fields.fixed_u16(), fields.fixed_u16(), Cookie(fields.fixed_u64()));
        let len = match self.headers {
            Headers::Compact => u64::from(fields.fixed_u32()),
            Headers::Extended => (fields.fixed_u64(), fields.fixed_u64()).1,
        };
        let payload = take_vec(&mut self.stream, len)?;
        let mut pending = self.pending.remove(&cookie).ok_or(STRANGE_REPLY)?;
        let misfit = ClientError::Protocol { what: "a chunk that does not fit its request" };
        let mut outcome = Ok(());
        match kind {
            chunk::NONE => {}
            chunk::OFFSET_DATA => pending.put(&payload).ok_or(misfit)?,
            chunk::BLOCK_STATUS if payload.len() >= 4 => pending.data = payload[4..].to_vec(),
            chunk::BLOCK_STATUS_EXT if payload.len() >= 8 => pending.data = payload[8..].to_vec(),
            chunk::ERROR if payload.len() >= 6 => outcome = Err(refusal(Fields(&payload).fixed_u32(), &payload[6..])),
            _ => return Err(misfit),
        }
        if flags & chunk::DONE != 0 {
            if outcome.is_ok() && (pending.data.len() as u64) < pending.len {
                return Err(ClientError::Protocol { what: "a reply with too few bytes" });
            }
            return Ok(Some(Completion { cookie, outcome: outcome.map(|()| pending.data) }));
        }
        self.pending.insert(cookie, pending);
        Ok(None)
    }
}

impl Pending {
    /// Takes the data of a chunk, which are behind those that came before.
    fn put(&mut self, payload: &[u8]) -> Option<()> {
        let mut fields = Fields(payload);
        let offset = fields.u64()?;
        let fits =
            offset == self.offset + self.data.len() as u64 && (self.data.len() + fields.0.len()) as u64 <= self.len;
        self.data.extend_from_slice(fields.0);
        fits.then_some(())
    }
}

const STRANGE_REPLY: ClientError = ClientError::Protocol { what: "a reply to nothing that is pending" };

fn encode(operation: Operation<'_>, cookie: Cookie) -> (Request, &[u8]) {
    let (command, flags, offset, len, data): (_, _, _, _, &[u8]) = match operation {
        Operation::Read { offset, len } => (Command::Read, 0, offset, len.into(), &[]),
        Operation::Write { offset, data, durability } => {
            (Command::Write, fua(durability), offset, data.len() as u64, data)
        }
        Operation::Flush => (Command::Flush, 0, 0, 0, &[]),
        Operation::Trim { offset, len } => (Command::Trim, 0, offset, len.into(), &[]),
        Operation::WriteZeroes { offset, len, durability } => {
            (Command::WriteZeroes, fua(durability), offset, len.into(), &[])
        }
        Operation::Zero { offset, len, zeroes } => (Command::WriteZeroes, zero_flags(zeroes), offset, len, &[]),
        Operation::Cache { offset, len } => (Command::Cache, 0, offset, len, &[]),
        Operation::Status { offset, len, one } => {
            (Command::BlockStatus, if one { command_flag::REQ_ONE } else { 0 }, offset, len, &[])
        }
    };
    (Request { flags, command, cookie: cookie.0, offset, len }, data)
}

fn zero_flags(zeroes: Zeroes) -> u16 {
    match zeroes {
        Zeroes::AnyWay => 0,
        Zeroes::AsData => command_flag::NO_HOLE,
        Zeroes::Fast => command_flag::FAST_ZERO,
    }
}

fn fua(durability: Durability) -> u16 {
    match durability {
        Durability::Fua => command_flag::FUA,
        Durability::Volatile => 0,
    }
}

fn take<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn take_vec(stream: &mut impl Read, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).expect("a reply fits in memory")];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn refusal(code: u32, message: &[u8]) -> Refusal {
    Refusal { code, message: String::from_utf8_lossy(message).into_owned() }
}

fn payload_len(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| ClientError::Protocol { what: "a payload too long" })
}
