//! Opening a log: recovery, and what is done with a damaged one.

use crate::error::{Damage, LogError, LogOpenError};
use crate::log::AppendLog;
use crate::superblock;
use crate::window::Window;
use std::sync::Arc;
use tidegate_layout::append_log::{LOG_HEADS_AT, LOG_SUPERBLOCKS_AT, LogFacts, LogHead, LogSuperblock};
use tidegate_media::{BlockDevice, Error, Region};

/// What is done with a log of which bytes are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// It is not opened.
    Refuse,
    /// It is opened for reading what is not damaged. Nothing is stored.
    ReadOnly,
}

/// What the log on `region` is; none if the region does not claim to hold one. Changes nothing.
pub fn identify<R: Region + ?Sized>(region: &R) -> Result<Option<LogFacts>, LogOpenError> {
    match superblock::read(region) {
        Ok((facts, _)) => Ok(Some(facts)),
        Err(LogOpenError::NoLog) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A log as opening it would find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSurvey {
    /// What the log is.
    pub facts: LogFacts,
    /// Bytes before this one are below, or were dropped.
    pub below: u64,
    /// Where the durable bytes end.
    pub end: u64,
    /// The damaged bytes, the lowest first.
    pub damage: Vec<Damage>,
}

/// Looks at every chunk that only the window has. Changes nothing. No process may append meanwhile.
///
/// # Errors
/// As [`AppendLog::open`], but for damaged bytes, which are in the answer.
pub fn survey<R: Region + ?Sized>(region: &R) -> Result<LogSurvey, LogOpenError> {
    let (facts, _) = superblock::read(region)?;
    fits_region(&facts, region)?;
    let window = read_window(region, &facts);
    let (begin, end) = (facts.begin, window.end);
    if window.damage.is_empty() && end < begin {
        return Err(LogOpenError::EndsBeforeBegin { begin, end });
    }
    Ok(LogSurvey { facts, below: window.below * facts.plan.chunk_bytes, end, damage: window.damage })
}

fn read_window<R: Region + ?Sized>(region: &R, facts: &LogFacts) -> Window {
    Window::read(region, &facts.plan, facts.plan.chunk_of(facts.begin))
}

impl<R: Region> AppendLog<R> {
    /// Opens the log on `region` in front of `below`, and ends what was interrupted. The log ends
    /// with the last sync that was answered, or with one that was under way.
    ///
    /// Reads every chunk that only the window has. The caller sees to it that `below` is the device
    /// that the log was made with ([`identify`] tells its identity).
    pub fn open(region: R, below: Arc<dyn BlockDevice>, on_damage: OnDamage) -> Result<AppendLog<R>, LogOpenError> {
        let (facts, copies_agree) = superblock::read(&region)?;
        fits(&facts, &region, &*below)?;
        // A killed process may have left these in the CPU's caches.
        LOG_SUPERBLOCKS_AT.iter().for_each(|at| region.flush(*at, size_of::<LogSuperblock>() as u64));
        region.flush(LOG_HEADS_AT, facts.plan.chunks_at() - LOG_HEADS_AT);
        region.fence().map_err(Error::from)?;
        let window = read_window(&region, &facts);
        match window.damage.first() {
            Some(damage) if on_damage == OnDamage::Refuse => return Err(LogOpenError::Damaged(damage.clone())),
            Some(_) => {}
            None if window.end < facts.begin => {
                return Err(LogOpenError::EndsBeforeBegin { begin: facts.begin, end: window.end });
            }
            None => {
                if !copies_agree {
                    superblock::write(&region, &facts).map_err(Error::from)?;
                }
                clear(&region, &facts, &window.unended)?;
            }
        }
        Ok(AppendLog::new(region, below, facts, window))
    }

    /// What is damaged, for a log that was opened with [`OnDamage::ReadOnly`].
    pub fn damage(&self) -> Vec<LogError> {
        self.state.lock().damage.iter().cloned().map(LogError::Damaged).collect()
    }
}

/// Has nothing count that a sync left behind the end of the log.
fn clear<R: Region + ?Sized>(region: &R, facts: &LogFacts, unended: &[u64]) -> Result<(), Error> {
    for number in unended {
        let at = facts.plan.head_at(*number) + LogHead::COMMITTED_AT;
        region.store_u64(at, 0);
        region.flush(at, 8);
    }
    if unended.is_empty() { Ok(()) } else { Ok(region.fence()?) }
}

fn fits_region<R: Region + ?Sized>(facts: &LogFacts, region: &R) -> Result<(), LogOpenError> {
    let (needs, has) = (facts.plan.region_bytes(), region.len());
    if has < needs { Err(LogOpenError::Region { needs, has }) } else { Ok(()) }
}

fn fits<R: Region + ?Sized>(facts: &LogFacts, region: &R, below: &dyn BlockDevice) -> Result<(), LogOpenError> {
    fits_region(facts, region)?;
    let (plan, geometry) = (&facts.plan, below.geometry());
    let (needs, has) = (plan.below_chunks.saturating_mul(plan.chunk_bytes), geometry.bytes());
    if has < needs || !plan.chunk_bytes.is_multiple_of(u64::from(geometry.block_size)) {
        return Err(LogOpenError::Below { needs, has, block_size: geometry.block_size });
    }
    Ok(())
}
