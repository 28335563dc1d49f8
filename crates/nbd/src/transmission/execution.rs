//! Requests executed: checked against the agreement and the export, done by the device, answered
//! and counted.

use crate::buffers::Output;
use crate::contexts::{Contexts, Topic};
use crate::failure::RequestFailure;
use crate::limits::{
    CACHE_BYTES_IN_LINE_MAX, PAYLOAD_BYTES_MAX, RANGE_BYTES_IN_LINE_MAX, REPLY_PIECE_BYTES, STATUS_EXTENTS_MAX,
    WHOLE_REPLY_BYTES_MAX,
};
use crate::transmission::reply::Replies;
use crate::wire::{self, Command, Headers, RequestHeader, allocation, command_flag};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_block_export::{ConnectionCounters, Export, RequestKind, Scratch, Zeroing};
use tidegate_media::{Durability, ExtentKind};

/// What handshake and transmission agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) replies: Replies,
    /// Those that the client chose.
    pub(crate) contexts: Contexts,
}

/// A request that is there, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) request: RequestHeader,
    pub(crate) since: Instant,
}

/// A read whose reply is sent as it is read.
pub(crate) struct LongRead {
    taken: Taken,
    done: u64,
}

/// A device failed in the middle of a reply that has no room for that.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) RequestFailure);

/// What one thread needs to execute requests of a connection.
pub(crate) struct Executor<'e> {
    export: &'e Export,
    agreement: Agreement,
    tally: Arc<ConnectionCounters<'e>>,
    /// For ranges that cover blocks in part.
    scratch: Scratch,
    /// When the clock was read last: at the end of a request, or when there was one again. The next
    /// begins then.
    now: Instant,
}

impl<'e> Executor<'e> {
    /// For a connection that uses `export` from now on.
    pub(crate) fn new(export: &'e Export, agreement: Agreement) -> Executor<'e> {
        let tally = Arc::new(export.count_connection());
        Executor { export, agreement, tally, scratch: Scratch::default(), now: Instant::now() }
    }

    /// For another thread of the same connection.
    pub(crate) fn another(&self) -> Executor<'e> {
        Executor { tally: Arc::clone(&self.tally), scratch: Scratch::default(), ..*self }
    }

    pub(crate) fn headers(&self) -> Headers {
        self.agreement.replies.headers()
    }

    /// Rounds `offset` down to the start of its block.
    pub(crate) fn block_start(&self, offset: u64) -> u64 {
        self.export.block_start(offset)
    }

    /// Whether a write has to be there whole before any of it is written.
    pub(crate) fn writes_whole(&self, request: &RequestHeader) -> bool {
        self.export.writes_whole(request.offset, request.len)
    }

    /// There is a request, after a wait.
    pub(crate) fn wake(&mut self) {
        self.now = Instant::now();
    }

    pub(crate) fn take(&self, request: RequestHeader) -> Taken {
        Taken { request, since: self.now }
    }

    /// Whether a request that passes the checks is likely to keep others waiting. Reads never are:
    /// their reply would keep the others waiting on its way out.
    pub(crate) fn is_long(&self, request: &RequestHeader) -> bool {
        let latency = self.export.flush_latency();
        let by_fua = request.asks(command_flag::FUA) && latency.fua_is_long();
        match request.command {
            Command::Flush => latency.flush_is_long(),
            Command::Write => by_fua,
            Command::Trim | Command::WriteZeroes => by_fua || request.len > RANGE_BYTES_IN_LINE_MAX,
            Command::Cache => request.len > CACHE_BYTES_IN_LINE_MAX,
            Command::Read | Command::BlockStatus | Command::Disconnect | Command::Unknown(_) => false,
        }
    }

    /// Executes and answers a request whose payload, if it has one, is `data`. What it put into the
    /// reply is taken back if it fails.
    pub(crate) fn answer(&mut self, taken: Taken, data: &[u8], out: &mut Output) {
        let before = out.len();
        let request = &taken.request;
        let fate = self.check(request).and_then(|()| match request.command {
            Command::Read => self.read(request, out),
            Command::BlockStatus => self.status(request, out),
            _ => self.execute(request, data).map(|()| self.agreement.replies.put_fate(request, Ok(()), out)),
        });
        let fate = fate.map_err(|failure| {
            out.truncate(before);
            self.agreement.replies.put_fate(request, Err(failure), out);
        });
        self.count(taken, fate.is_ok());
    }

    /// The read that a request begins whose reply is too long to be put together first.
    pub(crate) fn long_read(&self, request: &RequestHeader) -> Option<LongRead> {
        let long = request.command == Command::Read && request.len > WHOLE_REPLY_BYTES_MAX.into();
        (long && self.check(request).is_ok()).then(|| LongRead { taken: self.take(*request), done: 0 })
    }

    /// Whether other replies must not be sent before the end of one that is sent in pieces.
    pub(crate) fn has_unframed_reads(&self) -> bool {
        self.agreement.replies == Replies::Simple
    }

    /// Answers the next piece of a long read, and returns what is left to do.
    pub(crate) fn read_on(&mut self, reading: LongRead, out: &mut Output) -> Result<Option<LongRead>, Broken> {
        let LongRead { taken, done } = reading;
        let (request, replies, before) = (&taken.request, self.agreement.replies, out.len());
        let end = request.len.min(done + REPLY_PIECE_BYTES);
        replies.begin_piece(request, done..end, out);
        let piece = out.space(usize::try_from(end - done).expect("a piece fits in memory"));
        if let Err(failure) = self.export.read(request.offset + done, piece, &mut self.scratch) {
            out.truncate(before);
            if replies == Replies::Simple && done > 0 {
                self.count(taken, false);
                return Err(Broken(failure.into()));
            }
            replies.put_fate(request, Err(failure.into()), out);
            self.count(taken, false);
            return Ok(None);
        }
        if end < request.len {
            return Ok(Some(LongRead { taken, done: end }));
        }
        self.count(taken, true);
        Ok(None)
    }

    /// Writes a piece of a longer write.
    pub(crate) fn write_piece(&mut self, at: u64, data: &[u8]) -> Result<(), RequestFailure> {
        Ok(self.export.write(at, data, Durability::Volatile, &mut self.scratch)?)
    }

    /// Ends and answers a write that was made in pieces: they are made durable together.
    pub(crate) fn end_write(&mut self, taken: Taken, fate: Result<(), RequestFailure>, out: &mut Output) {
        let fate = fate.and_then(|()| match durability(&taken.request) {
            Durability::Fua => Ok(self.export.flush()?),
            Durability::Volatile => Ok(()),
        });
        let good = fate.is_ok();
        self.agreement.replies.put_fate(&taken.request, fate, out);
        self.count(taken, good);
    }

    /// Counts a request that ends now. The next one begins now.
    fn count(&mut self, taken: Taken, good: bool) {
        let now = Instant::now();
        let request = &taken.request;
        self.learn_latency(request, now - self.now);
        self.tally.answered(kind(request.command), good.then_some(request.len), now - taken.since);
        self.now = now;
    }

    fn learn_latency(&self, request: &RequestHeader, took: Duration) {
        if request.command == Command::Flush {
            self.export.flush_latency().learn_flush(took);
        } else if request.asks(command_flag::FUA) {
            self.export.flush_latency().learn_fua(request.len, took);
        }
    }

    /// Reads straight into the reply.
    fn read(&mut self, request: &RequestHeader, out: &mut Output) -> Result<(), RequestFailure> {
        self.agreement.replies.begin_data(request, out);
        let len = usize::try_from(request.len).expect("a payload fits in memory");
        Ok(self.export.read(request.offset, out.space(len), &mut self.scratch)?)
    }

    fn status(&self, request: &RequestHeader, out: &mut Output) -> Result<(), RequestFailure> {
        let extents_max = if request.asks(command_flag::REQ_ONE) { 1 } else { STATUS_EXTENTS_MAX };
        let asked = if request.contexts.is_empty() { self.agreement.contexts } else { request.contexts };
        let told = asked.each().map(|context| Ok((context, self.told(context, request, extents_max)?)));
        let told: Vec<(Topic, Vec<(u64, u32)>)> = told.collect::<Result<_, RequestFailure>>()?;
        self.agreement.replies.put_statuses(request, &told, out);
        Ok(())
    }

    /// What `context` tells of the range of `request`: so many bytes with this status, and so on.
    fn told(
        &self,
        context: Topic,
        request: &RequestHeader,
        extents_max: usize,
    ) -> Result<Vec<(u64, u32)>, RequestFailure> {
        let flags = |kind| match kind {
            ExtentKind::Data => 0,
            ExtentKind::Hole => allocation::HOLE | allocation::ZERO,
        };
        Ok(match context {
            Topic::Allocation => {
                let extents = self.export.extents(request.offset, request.len, extents_max)?;
                extents.into_iter().map(|(bytes, kind)| (bytes, flags(kind))).collect()
            }
            Topic::Atomic => vec![(request.len, self.export.atomic_bytes())],
        })
    }

    /// Executes a request whose answer has no data.
    fn execute(&mut self, request: &RequestHeader, data: &[u8]) -> Result<(), RequestFailure> {
        let (offset, len) = (request.offset, request.len);
        match request.command {
            Command::Write => self.export.write(offset, data, durability(request), &mut self.scratch)?,
            Command::Flush => self.export.flush()?,
            Command::Trim => self.export.trim(offset, len, durability(request))?,
            Command::WriteZeroes => self.write_zeroes(request)?,
            // As much as one READ may bring: the rest of a longer range would push out its own
            // beginning.
            Command::Cache => self.export.cache(offset, len.min(PAYLOAD_BYTES_MAX.into()), &mut self.scratch)?,
            Command::Unknown(number) => return Err(RequestFailure::UnknownCommand { number }),
            Command::Read | Command::BlockStatus | Command::Disconnect => {
                unreachable!("their answer has data, or none is due")
            }
        }
        Ok(())
    }

    fn write_zeroes(&mut self, request: &RequestHeader) -> Result<(), RequestFailure> {
        let (offset, len) = (request.offset, request.len);
        let zeroing = if request.asks(command_flag::NO_HOLE) { Zeroing::AsData } else { Zeroing::AnyWay };
        let fast = zeroing == Zeroing::AnyWay && self.export.zeroes_fast(offset, len);
        if request.asks(command_flag::FAST_ZERO) && !fast {
            return Err(RequestFailure::SlowZeroes);
        }
        Ok(self.export.write_zeroes(offset, len, (zeroing, durability(request)), &mut self.scratch)?)
    }

    /// The BLOCK_STATUS without payload that means the same as `request` with this one.
    pub(crate) fn named_status(
        &self,
        request: &RequestHeader,
        payload: &[u8],
    ) -> Result<RequestHeader, RequestFailure> {
        let Some((len, named)) = wire::status_payload(payload) else {
            return Err(RequestFailure::StatusPayload { len: request.len });
        };
        let mut contexts = Contexts::default();
        for id in named {
            let fits = |context: &Topic| self.agreement.contexts.has(*context) && !contexts.has(*context);
            let context = Topic::numbered(id).filter(fits);
            contexts = contexts.with(context.ok_or(RequestFailure::ForeignContext { id })?);
        }
        if contexts.is_empty() {
            return Err(RequestFailure::NoContextNamed);
        }
        Ok(RequestHeader { flags: request.flags & !command_flag::PAYLOAD_LEN, len, contexts, ..*request })
    }

    /// Why `request` cannot even be tried.
    pub(crate) fn check(&self, request: &RequestHeader) -> Result<(), RequestFailure> {
        let fua = command_flag::FUA;
        let (flags, writes) = match request.command {
            Command::Read if self.agreement.replies == Replies::Simple => (fua, false),
            Command::Read => (fua | command_flag::DF, false),
            Command::BlockStatus => (fua | command_flag::REQ_ONE, false),
            Command::Cache | Command::Flush | Command::Disconnect => (fua, false),
            Command::Write if self.headers() == Headers::Extended => (fua | command_flag::PAYLOAD_LEN, true),
            Command::Write | Command::Trim => (fua, true),
            Command::WriteZeroes => (fua | command_flag::NO_HOLE | command_flag::FAST_ZERO, true),
            Command::Unknown(number) => return Err(RequestFailure::UnknownCommand { number }),
        };
        if request.flags & !flags != 0 {
            return Err(RequestFailure::ForeignFlags { flags: request.flags & !flags });
        }
        if writes && self.export.refuses_changes() {
            return Err(RequestFailure::ReadOnly);
        }
        if request.command == Command::BlockStatus && self.agreement.contexts.is_empty() {
            return Err(RequestFailure::NoContext);
        }
        self.check_length(request)?;
        self.check_end(request)
    }

    fn check_length(&self, request: &RequestHeader) -> Result<(), RequestFailure> {
        let len = request.len;
        match request.command {
            Command::Flush if request.offset != 0 || len != 0 => Err(RequestFailure::FlushRange),
            Command::BlockStatus if len == 0 => Err(RequestFailure::EmptyStatus),
            Command::Read if len > WHOLE_REPLY_BYTES_MAX.into() && request.asks(command_flag::DF) => {
                Err(RequestFailure::LongChunk { len })
            }
            Command::Read | Command::Write if len > PAYLOAD_BYTES_MAX.into() => {
                Err(RequestFailure::LongPayload { len })
            }
            _ => Ok(()),
        }
    }

    fn check_end(&self, request: &RequestHeader) -> Result<(), RequestFailure> {
        let size = self.export.bytes();
        match (request.offset.checked_add(request.len), request.command) {
            (Some(end), _) if end <= size => Ok(()),
            (_, Command::Write | Command::WriteZeroes) => Err(RequestFailure::WritePastEnd { size }),
            _ => Err(RequestFailure::ReadPastEnd { size }),
        }
    }
}

fn durability(request: &RequestHeader) -> Durability {
    if request.asks(command_flag::FUA) { Durability::Fua } else { Durability::Volatile }
}

fn kind(command: Command) -> RequestKind {
    match command {
        Command::Read => RequestKind::Read,
        Command::Write => RequestKind::Write,
        Command::Flush => RequestKind::Flush,
        Command::Trim => RequestKind::Trim,
        Command::Cache => RequestKind::Cache,
        Command::WriteZeroes => RequestKind::WriteZeroes,
        Command::BlockStatus => RequestKind::BlockStatus,
        Command::Disconnect | Command::Unknown(_) => RequestKind::Unknown,
    }
}
