//! The steps of a script, and what a log may show after each: a vector of bytes.

use crate::checker::Failure;
use crate::script::block_of;
use std::ops::Range;
use std::sync::Arc;
use tidegate_append_log::{AppendLog, LogError, Making, OnDamage, create};
use tidegate_media::Region as Medium;
use tidegate_sim::{Disk, DiskFault, Image, Region, hash_of};

/// Bytes in a chunk: a sector.
pub(super) const CHUNK_BYTES: usize = 512;

/// Where the three chunks of the window lie.
pub(super) const WINDOW: Range<u64> = 12_288..12_288 + 3 * CHUNK_BYTES as u64;

/// Chunks that the disk has room for.
const BELOW_CHUNKS: u64 = 12;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// Appends so many bytes, if the window has room.
    Append(usize),
    /// Makes them durable.
    Sync,
    /// Moves a chunk below.
    WriteBack,
    /// Moves a chunk below, and the disk refuses the write.
    WriteRefused,
    /// Moves a chunk below, and the disk refuses the flush.
    FlushRefused,
    /// Moves everything below, the last chunk too.
    WriteAll,
    /// Makes a slot ready.
    Prepare,
    /// Drops all durable bytes but a few.
    Drop,
    /// The process ends, and the next one opens the log; the power stays.
    Reopen,
}

impl LogStep {
    /// Each step of a script: a short append, and one that reaches into two further chunks.
    pub const ALL: [LogStep; 10] = [
        LogStep::Append(20),
        LogStep::Append(600),
        LogStep::Sync,
        LogStep::WriteBack,
        LogStep::WriteRefused,
        LogStep::FlushRefused,
        LogStep::WriteAll,
        LogStep::Prepare,
        LogStep::Drop,
        LogStep::Reopen,
    ];
}

/// Where a script starts.
#[derive(Clone)]
pub struct LogStart {
    pub(super) region: Image,
    pub(super) disk: Image,
    pub(super) model: Model,
}

impl LogStart {
    /// A log without a byte.
    pub fn fresh() -> LogStart {
        LogStart::after(&[])
    }

    /// A log with a chunk below, and a second one that is full but for 24 bytes.
    pub fn used() -> LogStart {
        LogStart::after(&[LogStep::Append(1000), LogStep::Sync, LogStep::WriteBack])
    }

    /// A log whose window has been used more than once, all of it full and durable.
    pub fn full() -> LogStart {
        let [append, write] = [LogStep::Append(1024), LogStep::WriteBack];
        LogStart::after(&[append, LogStep::Sync, write, write, append, LogStep::Append(512), LogStep::Sync])
    }

    fn after(steps: &[LogStep]) -> LogStart {
        let region = Arc::new(Region::new(WINDOW.end));
        let disk = Arc::new(Disk::new(BELOW_CHUNKS, 512));
        let making = Making { chunk_bytes: CHUNK_BYTES as u64, uuid: [3; 16], below: [0; 32] };
        create(&region, &disk, &making).expect("it fits");
        let log = AppendLog::open(Arc::clone(&region), disk.clone(), OnDamage::Refuse).expect("it was just made");
        let mut model = Model::default();
        for step in steps {
            model.take(*step, &log, &disk).unwrap_or_else(|failure| panic!("{failure}"));
        }
        LogStart { region: region.cut().least().clone(), disk: disk.cut().least().clone(), model }
    }
}

/// The log as it is to be.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// All bytes from 0 on that were appended.
    bytes: Vec<u8>,
    durable: u64,
    begin: u64,
    /// Appends so far, which tells their bytes apart.
    appends: u64,
}

impl Model {
    /// A log that was found.
    pub(super) fn of(found: &Expected) -> Model {
        let (begin, durable) = (found.begins[0], found.ends[0]);
        // Other bytes than any step of a script appends.
        Model { bytes: found.bytes[..in_memory(durable)].to_vec(), durable, begin, appends: 1000 }
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// What a cut at this moment may leave.
    pub(super) fn expected(&self) -> Expected {
        Expected { bytes: self.bytes.clone(), begins: vec![self.begin], ends: vec![self.durable] }
    }

    /// The process has ended: what was not durable is gone.
    pub(super) fn reopened(&mut self) {
        self.bytes.truncate(in_memory(self.durable));
    }

    /// Takes a step, which the log takes too.
    pub(super) fn take<R: Medium>(&mut self, step: LogStep, log: &AppendLog<R>, disk: &Disk) -> Result<(), Failure> {
        let failed = |error: LogError| Failure::new(format_args!("{step:?}: {error}"));
        let refused = |answer: Result<(), LogError>| match answer {
            Err(LogError::Below(_)) | Ok(()) => {
                disk.mend();
                Ok(())
            }
            Err(error) => Err(failed(error)),
        };
        match step {
            LogStep::Append(len) => {
                self.appends += 1;
                let data = block_of(self.appends, len.next_multiple_of(8));
                match log.append(&data[..len]) {
                    Ok(end) if end == (self.bytes.len() + len) as u64 => self.bytes.extend_from_slice(&data[..len]),
                    Ok(end) => return Err(Failure::new(format_args!("{step:?} ends at {end}"))),
                    Err(LogError::Full { .. } | LogError::BelowFull { .. } | LogError::Below(_)) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            LogStep::Sync => self.durable = log.sync().map_err(failed)?,
            LogStep::WriteBack => drop(log.write_back_step().map_err(failed)?),
            LogStep::WriteRefused => {
                disk.fail(DiskFault::WriteFails(0..BELOW_CHUNKS));
                refused(log.write_back_step().map(drop))?;
            }
            LogStep::FlushRefused => {
                disk.fail(DiskFault::NextFlushFails);
                refused(log.write_back_step().map(drop))?;
            }
            LogStep::WriteAll => log.write_back_all().map_err(failed)?,
            LogStep::Prepare => drop(log.prepare_step().map_err(failed)?),
            LogStep::Drop => {
                let begin = self.durable.saturating_sub(8);
                log.drop_behind(begin).map_err(failed)?;
                self.begin = self.begin.max(begin);
            }
            LogStep::Reopen => self.reopened(),
        }
        Ok(())
    }

    /// Whether the running log is what it is to be.
    pub(super) fn compare<R: Medium>(&self, log: &AppendLog<R>) -> Result<(), Failure> {
        self.expected().check(log).map(drop).map_err(|failure| failure.within("the running log"))
    }
}

/// What a log may show.
#[derive(Clone, Debug, Hash)]
pub(super) struct Expected {
    bytes: Vec<u8>,
    /// Where it may begin.
    begins: Vec<u64>,
    /// Where it may end; first where the last answered sync left it.
    ends: Vec<u64>,
}

impl Expected {
    /// Either of both, the second one being later.
    pub(super) fn or(&self, later: &Expected) -> Expected {
        let bytes = if later.bytes.len() > self.bytes.len() { &later.bytes } else { &self.bytes };
        let begins = [self.begins.clone(), later.begins.clone()].concat();
        Expected { bytes: bytes.clone(), begins, ends: [self.ends.clone(), later.ends.clone()].concat() }
    }

    pub(super) fn hash(&self) -> u64 {
        hash_of(self)
    }

    /// Whether the log ends behind the last sync that was answered before the cut.
    pub(super) fn is_ahead_of(&self, before: &Expected) -> bool {
        self.ends[0] > before.ends[0]
    }

    /// What the log shows, if that is allowed.
    pub(super) fn check<R: Medium>(&self, log: &AppendLog<R>) -> Result<Expected, Failure> {
        let (begin, end) = (log.begin(), log.durable_to());
        if !self.begins.contains(&begin) || !self.ends.contains(&end) {
            let Expected { begins, ends, .. } = self;
            return Err(Failure::new(format_args!(
                "the log has bytes {begin}..{end}, not from {begins:?} to {ends:?}"
            )));
        }
        let mut found = Vec::new();
        let shown = log.replay(0, &mut |_, part| found.extend_from_slice(part)).map_err(Failure::new)?;
        let bytes = &self.bytes[in_memory(begin)..in_memory(end)];
        if shown != end || found != bytes {
            let first = found.iter().zip(bytes).position(|(found, byte)| found != byte);
            let at = begin + first.unwrap_or(found.len()) as u64;
            return Err(Failure::new(format_args!("byte {at} of bytes {begin}..{end} is not the one appended")));
        }
        Ok(Expected { bytes: self.bytes.clone(), begins: vec![begin], ends: vec![end] })
    }
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a short log")
}
