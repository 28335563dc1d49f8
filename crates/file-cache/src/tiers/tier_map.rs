//! Where the newest bytes of a file lie, for people who ask.

use crate::below::FileIdentity;
use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::{File, FileId};
use crate::lanes::lane::Lane;
use crate::lanes::slots::Standing;
use crate::tiers::dram::touching;
use std::ops::Range;
use tidegate_media::Region;
use tidegate_policy::placement::AccessPattern;

/// So much of a file is looked at while others wait.
const WINDOW_BYTES: u64 = 64 << 20;

/// Where bytes lie that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// In DRAM: written, and not synced.
    Dram,
    /// In the pool, durably, and newer than the file below.
    OutOfSync,
    /// Likewise, and a program has it mapped.
    Mapped,
    /// In the pool, and below too.
    Clean,
    /// Below alone; or nowhere, where the file has a hole.
    Below,
}

/// Bytes of a file that lie in one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierExtent {
    /// Which bytes.
    pub range: Range<u64>,
    /// Where they lie.
    pub tier: Tier,
}

/// Where bytes of a file lie.
#[derive(Clone, Debug, PartialEq)]
pub struct TierMap {
    /// Bytes in the file, as programs see it.
    pub size: u64,
    /// Whether a program writes the file by a lease.
    pub is_leased: bool,
    /// How the file's last program reads and writes it, if the placement asks.
    pub pattern: Option<AccessPattern>,
    /// Extents of 1 MiB with clean bytes, by their offsets, each with its temperature, if the
    /// placement measures it.
    pub temperatures: Vec<(u64, f64)>,
    /// From where it was asked on, each behind the one before, and in another tier.
    pub extents: Vec<TierExtent>,
    /// From where on to ask for what follows, if there is more.
    pub next: Option<u64>,
}

impl<R: Region> FileCache<R> {
    /// Where the bytes of a file lie from `range.start` on, up to `range.end` or the file's end.
    /// What a process wrote by a lease is adopted first. `None`: the lane does not know the file,
    /// all of which is below. One answer has a part of a large file.
    pub fn tier_map(&self, identity: FileIdentity, range: Range<u64>) -> Result<Option<TierMap>, FileError> {
        let mut lane = self.lane();
        let Some(file) = lane.by_identity.get(&identity).copied() else { return Ok(None) };
        lane.adopt(file)?;
        lane.tier_map_of(file, range).map(Some)
    }
}

impl<R: Region> Lane<R> {
    fn tier_map_of(&self, file: FileId, range: Range<u64>) -> Result<TierMap, FileError> {
        let cached = self.file(file)?;
        let end = range.end.min(cached.size);
        let window = range.start..end.min(range.start.saturating_add(WINDOW_BYTES));
        let next = (window.end < end).then_some(window.end);
        let temperatures = self.temperatures(file, &window);
        let pattern = self.clean.pattern(cached.context);
        let extents = self.tier_extents(cached, window);
        let (size, is_leased) = (cached.size, cached.lease.is_some());
        Ok(TierMap { size, is_leased, pattern, temperatures, extents, next })
    }

    /// Where the bytes of a window lie: in DRAM, else in the newest entry that has them.
    fn tier_extents(&self, cached: &File, window: Range<u64>) -> Vec<TierExtent> {
        let mut entries = cached.newest.within(window.clone()).into_iter().peekable();
        let mut unsynced = touching(&cached.written, window.clone()).map(|(range, ..)| range).peekable();
        let (mut extents, mut at) = (Vec::<TierExtent>::new(), window.start);
        while at < window.end {
            while entries.next_if(|(range, _)| range.end <= at).is_some() {}
            while unsynced.next_if(|range| range.end <= at).is_some() {}
            let covered = unsynced.peek().map_or(window.end, |range| range.start);
            let (tier, until) = match (unsynced.peek(), entries.peek()) {
                (Some(range), _) if range.start <= at => (Tier::Dram, range.end),
                (_, Some((range, slot))) if range.start <= at => (self.tier_of(cached, *slot), range.end.min(covered)),
                (_, Some((range, _))) => (Tier::Below, range.start.min(covered)),
                (_, None) => (Tier::Below, covered),
            };
            let until = until.min(window.end);
            match extents.last_mut() {
                Some(last) if last.tier == tier => last.range.end = until,
                _ => extents.push(TierExtent { range: at..until, tier }),
            }
            at = until;
        }
        extents
    }

    fn tier_of(&self, file: &File, number: u32) -> Tier {
        let slot = self.slots.used(number);
        match slot.standing {
            Standing::OutOfSync if Lane::<R>::is_mapped(file, &(number, slot)) => Tier::Mapped,
            Standing::OutOfSync => Tier::OutOfSync,
            Standing::Clean | Standing::Marked => Tier::Clean,
            Standing::Free | Standing::Dying => Tier::Below,
        }
    }
}
