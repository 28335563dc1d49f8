//! The running volume: reads, writes, discards. The order of a write is argued in the crate's
//! preamble.
//!
//! Invariants, all checked by [`crate::check`]:
//! 1. Every internal block is named exactly once: by a map entry, or by the newest flog entry of a
//!    lane as `old`.
//! 2. A map entry is stored to only under its stripe's lock.
//! 3. A lane is used by one write at a time, and the order lane, then stripe, is the only order of
//!    locks.

use crate::lanes::{Lane, Lanes};
use crate::locate::Summary;
use crate::loss::StoreLoss;
use crate::map::{LockedStripe, MapWord, Stripes};
use crate::survey::Survey;
use std::num::NonZeroU32;
use tidegate_layout::btt::{Arena, MapEntry, MapState};
use tidegate_media::sync::{AtomicU64, fence_after_lock, thread_token};
use tidegate_media::{
    BlockDevice, Corrupt, Durability, Extent, ExtentKind, Geometry, LINE_BYTES, Lba, LbaRange, Misuse, Poison, Region,
    Result,
};

/// How often a block is read anew because an entry beside its own, or its own, was replaced, before
/// writers have to wait for the reader.
const UNLOCKED_READS: u32 = 3;

/// A block translation table on a region: blocks that are written whole or not at all.
///
/// Durable when a write returns: the table has no volatile cache of its own, and a flush has
/// nothing to do.
pub struct Btt<R> {
    pub(crate) region: R,
    pub(crate) arenas: Vec<LiveArena>,
    pub(crate) loss: StoreLoss,
    pub(crate) summary: Summary,
    /// Zeroes for the per-sector metadata behind the data of a sector.
    pub(crate) metadata: Box<[u8]>,
    pub(crate) wear: Wear,
    pub(crate) writes: Writes,
    pub(crate) survey: Survey,
}

/// An open arena.
pub(crate) struct LiveArena {
    pub(crate) arena: Arena,
    /// The device's number of the arena's first sector.
    pub(crate) first: u64,
    pub(crate) lanes: Lanes,
    pub(crate) map: Stripes,
}

/// Whether an opened volume takes writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// It does. A volume that must not be written is not opened so.
    #[default]
    Allowed,
    /// It answers that it is read-only. Interrupted writes are finished all the same: if the region
    /// is not to be changed, give a private copy.
    Refused,
}

/// Levelling, as a volume has it.
#[derive(Debug)]
pub(crate) struct Wear {
    /// One write in so many is followed by a move; `None`: sectors do not move.
    pub(crate) every: Option<NonZeroU32>,
    pub(crate) moved: AtomicU64,
}

impl Wear {
    pub(crate) fn new(every: Option<NonZeroU32>) -> Wear {
        Wear { every, moved: AtomicU64::new(0) }
    }
}

impl<R: Region> Btt<R> {
    /// What the volume is.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What was found before the volume was opened. First info blocks that the opening restored are
    /// among the findings.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// The region the volume lies on.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// Streams `data`, one sector, into the free block of each lane of the first arena, and fences
    /// after each; returns how many there are. Nothing a user sees changes: no sector has these
    /// blocks, as the survey has seen. It is there for measuring what a write costs.
    pub fn rehearse(&self, data: &[u8]) -> Result<u32> {
        self.refuse_if_read_only()?;
        self.geometry().range(Lba(0), data.len())?;
        self.arenas.first().map_or(Ok(0), |live| {
            live.lanes.each(|lane| {
                self.loss.check()?;
                self.stream_data(live, lane.free(), data);
                Ok(lane.fence_data(&self.region, &live.lanes)?)
            })
        })
    }

    fn refuse_if_read_only(&self) -> Result<(), Misuse> {
        if self.writes == Writes::Refused { Err(Misuse::ReadOnly) } else { Ok(()) }
    }

    /// Gives the region back.
    pub fn into_region(self) -> R {
        self.region
    }

    fn write_block(&self, live: &LiveArena, lba: u32, data: &[u8]) -> Result<()> {
        let at = live.arena.map_at(lba);
        let mut lane = live.lanes.take(thread_token());
        let mut stripe = live.map.lock(at);
        self.loss.check()?;
        // Before the map is looked at, whose line is seldom cached: nothing of the data waits for
        // it.
        self.stream_data(live, lane.free(), data);
        let found = self.mapped(live, lba, at);
        if found.is_err() {
            lane.fence_data(&self.region, &live.lanes)?;
        }
        self.commit(live, &mut lane, &mut stripe, lba, found?)
    }

    /// The word of the map that holds the entry of sector `lba`, at `at`, and the block that it
    /// names.
    #[inline(always)]
    pub(crate) fn mapped(&self, live: &LiveArena, lba: u32, at: u64) -> Result<(MapWord, u32)> {
        let word = MapWord::load(&self.region, at)?;
        Ok((word, live.block_of(word.entry(), lba)?))
    }

    /// Puts the lane's free block, to which the caller has streamed, in the place of `old`, the
    /// block that sector `lba` has by `word`. That becomes the lane's free block. Nothing fails
    /// before a fence was passed, see `lanes`.
    #[inline(always)]
    pub(crate) fn commit(
        &self,
        live: &LiveArena,
        lane: &mut Lane,
        stripe: &mut LockedStripe<'_>,
        lba: u32,
        (word, old): (MapWord, u32),
    ) -> Result<()> {
        lane.log_replaced(&self.region, &live.arena, lba, word.entry().as_replaced(lba));
        stripe.settle(&self.region, &live.lanes, lane.number());
        lane.fence_data(&self.region, &live.lanes)?;
        let logged = lane.log_new(&self.region, &live.arena);
        logged.map_err(|lost| self.loss.remember(lost))?;

        let stored = stripe.replace(&self.region, word.with(MapEntry::normal(lane.free())));
        stripe.remember(lane.advance(&live.lanes, old, stored));
        Ok(())
    }

    /// [`Self::write_block`], and what levelling wear takes.
    fn write_sector(&self, live: &LiveArena, lba: u32, data: &[u8]) -> Result<()> {
        self.write_block(live, lba, data)?;
        if let Some(every) = self.wear.every {
            self.level_wear(live, every);
        }
        Ok(())
    }

    /// Writes any number of sectors. Apart from the write of one: a loop around that costs it a
    /// tenth of its time.
    #[inline(never)]
    fn write_blocks(&self, range: LbaRange, data: &[u8]) -> Result<()> {
        let sectors = range.first.0..range.end();
        sectors.zip(data.chunks_exact(self.summary.block_size as usize)).try_for_each(|(number, sector)| {
            let (live, lba) = self.place(number);
            self.write_sector(live, lba, sector)
        })
    }

    /// Streams the data of a sector, and zeroes for its metadata, into `block`. The caller holds
    /// the lane whose free block it is, and took the lane's lock after the map entry that named it
    /// was replaced.
    pub(crate) fn stream_data(&self, live: &LiveArena, block: u32, data: &[u8]) {
        // A reader who sees one byte of this also sees that the entry was replaced.
        fence_after_lock();
        let at = live.arena.data_at(block);
        self.region.stream(at, data);
        if !self.metadata.is_empty() {
            self.region.stream(at + data.len() as u64, &self.metadata);
        }
    }

    /// Reads without a lock, and counts what was copied only if no entry of the stripe was replaced
    /// meanwhile; where writers never leave the time for that, with the stripe locked.
    fn read_block(&self, live: &LiveArena, lba: u32, out: &mut [u8]) -> Result<()> {
        let at = live.arena.map_at(lba);
        for _ in 0..UNLOCKED_READS {
            let before = live.map.replacements(at);
            let read = self.copy_out(live, lba, at, out);
            if live.map.unchanged_since(at, before) {
                return read;
            }
        }
        self.copy_out_locked(live, lba, at, out)
    }

    #[cold]
    fn copy_out_locked(&self, live: &LiveArena, lba: u32, at: u64, out: &mut [u8]) -> Result<()> {
        let _unchanging = live.map.lock(at);
        self.copy_out(live, lba, at, out)
    }

    /// Copies out what the map entry of sector `lba`, which lies at `at`, stands for.
    #[inline(always)]
    fn copy_out(&self, live: &LiveArena, lba: u32, at: u64, out: &mut [u8]) -> Result<()> {
        let entry = MapWord::load(&self.region, at)?.entry();
        if entry.state() == MapState::Zero {
            out.fill(0);
            return Ok(());
        }
        let block = live.block_of(entry, lba)?;
        if entry.state() == MapState::Error {
            return Err(lost(live.arena.data_at(block), out.len()).into());
        }
        Ok(self.region.read(live.arena.data_at(block), out)?)
    }

    /// Puts the map entries of sectors `first..end` into the zero state and begins their
    /// write-back. Also of those that are in it: another thread may have stored them, flushed them,
    /// and not passed its fence.
    fn map_zeroes(&self, live: &LiveArena, first: u32, end: u32) -> Result<()> {
        for lba in first..end {
            let at = live.arena.map_at(lba);
            self.map_zero(live, lba, at)?;
            if lba + 1 == end || live.arena.map_at(lba + 1).is_multiple_of(LINE_BYTES) {
                self.region.flush(at - at % LINE_BYTES, LINE_BYTES);
            }
        }
        Ok(())
    }

    /// Stores the zero state to the map entry of sector `lba`, which lies at `at`.
    fn map_zero(&self, live: &LiveArena, lba: u32, at: u64) -> Result<()> {
        let _stripe = live.map.lock(at);
        let (word, block) = self.mapped(live, lba, at)?;
        if word.entry().state() != MapState::Zero {
            word.with(MapEntry::new(MapState::Zero, block)).store(&self.region);
        }
        Ok(())
    }

    fn kind_of(&self, live: &LiveArena, lba: u32) -> Result<ExtentKind> {
        let entry = MapWord::load(&self.region, live.arena.map_at(lba))?.entry();
        Ok(if entry.state() == MapState::Zero { ExtentKind::Hole } else { ExtentKind::Data })
    }

    fn zeroes_by_map(&self) -> bool {
        self.summary.block_size == 4096
    }

    /// The arena of sector `number` of the device, and the sector's number in it.
    fn place(&self, number: u64) -> (&LiveArena, u32) {
        let after = self.arenas.partition_point(|live| live.first <= number);
        let live = &self.arenas[after - 1];
        (live, u32::try_from(number - live.first).expect("an arena has less than 2^32 sectors"))
    }

    /// Calls `act` on each arena's part of `range`: its first sector and one past its last, counted
    /// in the arena.
    fn by_arena(&self, range: LbaRange, mut act: impl FnMut(&LiveArena, u32, u32) -> Result<()>) -> Result<()> {
        for live in &self.arenas {
            let within = |lba: u64| lba.saturating_sub(live.first).min(u64::from(live.arena.geometry().external_nlba));
            let part = [within(range.first.0), within(range.end())].map(|lba| u32::try_from(lba).expect("capped"));
            if part[0] < part[1] {
                act(live, part[0], part[1])?;
            }
        }
        Ok(())
    }
}

impl LiveArena {
    /// The internal block that `entry`, of sector `lba`, occupies.
    pub(crate) fn block_of(&self, entry: MapEntry, lba: u32) -> Result<u32, Corrupt> {
        let block = entry.block(lba);
        if block < self.arena.geometry().internal_nlba {
            return Ok(block);
        }
        Err(Corrupt {
            rule: "a map entry names a block of its arena",
            at: self.arena.map_at(lba),
            found: format!("block {block}"),
        })
    }
}

fn lost(at: u64, len: usize) -> Poison {
    Poison { at, len: len as u64 }
}

impl<R: Region> BlockDevice for Btt<R> {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.summary.block_size,
            blocks: self.summary.blocks,
            atomic_blocks: 1,
            volatile_cache: false,
            read_only: self.writes == Writes::Refused,
            fast_zeroes: self.zeroes_by_map(),
        }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let range = self.geometry().range(at, out.len())?;
        let size = self.summary.block_size as usize;
        let sectors = range.first.0..range.end();
        sectors.zip(out.chunks_exact_mut(size)).try_for_each(|(number, sector)| {
            let (live, lba) = self.place(number);
            self.read_block(live, lba, sector)
        })
    }

    fn write(&self, at: Lba, data: &[u8], _durable_either_way: Durability) -> Result<()> {
        self.refuse_if_read_only()?;
        let range = self.geometry().range(at, data.len())?;
        if range.blocks != 1 {
            return self.write_blocks(range, data);
        }
        let (live, lba) = self.place(range.first.0);
        self.write_sector(live, lba, data)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.region.fence()?)
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.refuse_if_read_only()?;
        let range = self.geometry().within(range)?;
        if !self.zeroes_by_map() {
            return Ok(());
        }
        self.write_zeroes(range, Durability::Fua)
    }

    fn write_zeroes(&self, range: LbaRange, _durable_either_way: Durability) -> Result<()> {
        self.refuse_if_read_only()?;
        let range = self.geometry().within(range)?;
        if self.zeroes_by_map() {
            self.by_arena(range, |live, first, end| self.map_zeroes(live, first, end))?;
            return Ok(self.region.fence()?);
        }
        const ZEROES: [u8; 512] = [0; 512];
        self.by_arena(range, |live, first, end| (first..end).try_for_each(|lba| self.write_sector(live, lba, &ZEROES)))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        let range = self.geometry().within(range)?;
        let (mut blocks, mut kind, mut ended) = (0, ExtentKind::Data, false);
        self.by_arena(range, |live, first, end| {
            for lba in first..end {
                let found = self.kind_of(live, lba)?;
                kind = if blocks == 0 { found } else { kind };
                ended |= found != kind;
                if ended {
                    break;
                }
                blocks += 1;
            }
            Ok(())
        })?;
        Ok(Extent { blocks, kind })
    }
}
