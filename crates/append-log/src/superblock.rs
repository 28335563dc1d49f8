//! The two copies of the superblock: read, chosen from, and written one after the other.

use crate::error::LogOpenError;
use tidegate_layout::Broken;
use tidegate_layout::append_log::{LOG_SUPERBLOCKS_AT, LogFacts, LogSuperblock};
use tidegate_media::{Corrupt, Error, Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// A broken rule of a record at byte `at` of a region.
pub(crate) fn corrupt(at: u64, broken: Broken) -> Corrupt {
    Corrupt { rule: broken.rule, at: at + broken.offset, found: broken.found }
}

/// Writes `facts` to both copies, each durable before the next thing is stored: two fences.
pub(crate) fn write<R: Region + ?Sized>(region: &R, facts: &LogFacts) -> Result<(), Sealed> {
    let superblock = facts.superblock();
    LOG_SUPERBLOCKS_AT.iter().try_for_each(|at| {
        region.stream(*at, superblock.as_bytes());
        region.fence()
    })
}

/// What the newer valid copy says, and whether both say it.
pub(crate) fn read<R: Region + ?Sized>(region: &R) -> Result<(LogFacts, bool), LogOpenError> {
    if region.len() < LOG_SUPERBLOCKS_AT[1] + size_of::<LogSuperblock>() as u64 {
        return Err(LogOpenError::NoLog);
    }
    let [first, second] = LOG_SUPERBLOCKS_AT.map(|at| read_copy(region, at));
    match (first, second) {
        (Ok(first), Ok(second)) if second.generation > first.generation => Ok((second, false)),
        (Ok(first), second) => Ok((first, second == Ok(first))),
        (Err(_), Ok(second)) => Ok((second, false)),
        (Err(LogOpenError::NoLog), Err(second)) => Err(second),
        (Err(first), Err(_)) => Err(first),
    }
}

fn read_copy<R: Region + ?Sized>(region: &R, at: u64) -> Result<LogFacts, LogOpenError> {
    let mut superblock = LogSuperblock::new_zeroed();
    region.read(at, superblock.as_mut_bytes()).map_err(Error::from)?;
    if !superblock.has_magic() {
        return Err(LogOpenError::NoLog);
    }
    superblock.check().map_err(|broken| LogOpenError::Superblock(corrupt(at, broken)))
}
