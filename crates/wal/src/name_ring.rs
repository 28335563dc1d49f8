//! The ring of a namespace log on its region: cursors, lines and records instead of bytes.

use crate::recovery::corrupt;
use tidegate_layout::file_cache::{LOG_LINE_BYTES, LogRecord, NameRecord, NamespacePlan};
use tidegate_layout::ring::Cursors;
use tidegate_media::{Region, Result, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// The ring of one log: records of whole lines, each at a *place* that counts lines.
pub struct NameRing<R> {
    region: R,
    plan: NamespacePlan,
}

impl<R: Region> NameRing<R> {
    /// The ring that lies where `plan` says.
    pub fn new(region: R, plan: NamespacePlan) -> NameRing<R> {
        NameRing { region, plan }
    }

    /// Lines in the ring.
    pub fn lines(&self) -> u64 {
        u64::from(self.plan.lines)
    }

    /// Head and tail, made durable: a killed process may have left them visible and no more.
    pub fn settled_cursors(&self) -> Result<(u64, u64)> {
        self.flush_cursors();
        self.fence()?;
        self.cursors()
    }

    /// Head and tail, as they are.
    pub fn cursors(&self) -> Result<(u64, u64)> {
        let mut cursors = Cursors::new_zeroed();
        self.region.read(self.plan.cursors_at, cursors.as_mut_bytes())?;
        cursors.check(self.plan.lines).map_err(|broken| corrupt(self.plan.cursors_at, broken))?;
        Ok((cursors.head.get(), cursors.tail.get()))
    }

    /// Stores and flushes the head. Durable after the next fence.
    pub fn store_head(&self, head: u64) {
        self.region.store_u64(self.plan.cursors_at, head);
        self.flush_cursors();
    }

    /// Stores and flushes the tail. Durable after the next fence.
    pub fn store_tail(&self, tail: u64) {
        self.region.store_u64(self.plan.cursors_at + Cursors::TAIL_AT, tail);
        self.flush_cursors();
    }

    /// Flushes the line of head and tail.
    pub fn flush_cursors(&self) {
        self.region.flush(self.plan.cursors_at, size_of::<Cursors>() as u64);
    }

    /// Makes durable what was streamed, and stored and flushed, before.
    pub fn fence(&self) -> Result<(), Sealed> {
        self.region.fence()
    }

    /// Streams a record to `place`, in two parts where the ring ends.
    pub fn stream(&self, place: u64, record: &[u8]) {
        let (here, begun_anew) = record.split_at(record.len().min(self.bytes_until_end(place)));
        self.region.stream(self.at(place), here);
        if !begun_anew.is_empty() {
            self.region.stream(self.plan.ring_at, begun_anew);
        }
    }

    /// The bytes of the record at `place`, which is whole.
    pub fn record(&self, place: u64) -> Result<Vec<u8>> {
        let mut head = NameRecord::new_zeroed();
        self.read(place, head.as_mut_bytes())?;
        let mut bytes = vec![0; head.bytes(place).map_err(|broken| corrupt(self.at(place), broken))?];
        self.read(place, &mut bytes)?;
        self.parse(place, &bytes)?;
        Ok(bytes)
    }

    /// The record that `bytes`, those of the record at `place`, hold, and the lines it fills.
    pub fn parse<'a>(&self, place: u64, bytes: &'a [u8]) -> Result<(LogRecord<'a>, u64)> {
        Ok(LogRecord::parse(bytes, place).map_err(|broken| corrupt(self.at(place), broken))?)
    }

    fn read(&self, place: u64, out: &mut [u8]) -> Result<()> {
        let (here, begun_anew) = out.split_at_mut(out.len().min(self.bytes_until_end(place)));
        self.region.read(self.at(place), here)?;
        Ok(self.region.read(self.plan.ring_at, begun_anew)?)
    }

    fn at(&self, place: u64) -> u64 {
        self.plan.ring_at + place % self.lines() * LOG_LINE_BYTES
    }

    fn bytes_until_end(&self, place: u64) -> usize {
        usize::try_from((self.lines() - place % self.lines()) * LOG_LINE_BYTES).unwrap_or(usize::MAX)
    }
}
