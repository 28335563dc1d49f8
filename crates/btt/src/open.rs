//! Opens a volume: finds it, restores a lost first info block, and finishes what a power cut
//! interrupted.
//!
//! Recovery looks at each lane by itself. If the newest flog entry says that a sector moved and the
//! map still names the block it moved from, the write was committed and its map store lost: it is
//! done again. Whatever else the map holds, the write was complete. Running it twice, or cutting it
//! short, changes nothing.
//!
//! Before all this [`crate::survey`] decides whether the volume may be written.

use crate::check::no_volume;
use crate::io::{Btt, LiveArena};
use crate::lanes::{Lane, Lanes};
use crate::locate::{CopyState, FirstCopy, Located, locate};
use crate::loss::Loss;
use crate::map::{MapWord, Stripes};
use crate::survey::Survey;
use crate::wear::Wear;
use std::num::NonZeroU32;
use tidegate_layout::Broken;
use tidegate_layout::btt::{Arena, FlogGroup, MapEntry, SlotPair, Version, newest_slot, sector_data_bytes};
use tidegate_media::{Corrupt, Poison, Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// How to open a volume.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Only a volume of this version; `None` takes what is there.
    pub version: Option<Version>,
    /// What to do with a damaged first info block.
    pub first_copy: FirstCopy,
    /// After one write in so many, on average, one more sector of the arena, any, moves to the
    /// lane's free block, so that its own block is the next one written. Without it a sector that
    /// is written over and over wears out two blocks while others are never written.
    pub level_wear_every: Option<NonZeroU32>,
    /// Whether the volume takes writes.
    pub writes: Writes,
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

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            version: None,
            first_copy: FirstCopy::RestoreIfOurs,
            level_wear_every: None,
            writes: Writes::Allowed,
        }
    }
}

/// Why a volume was not opened. Nothing on the medium was changed, but for info blocks and
/// interrupted writes that were already finished, where the medium failed amid that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The region is blank.
    #[error("the region holds no volume: it is blank")]
    Blank,
    /// The region holds something else.
    #[error("the region holds no volume of ours, but {what}")]
    Foreign {
        /// What its first bytes look like.
        what: &'static str,
    },
    /// The first info block is foreign, and the second good: perhaps the region was given to
    /// somebody else.
    #[error("the first info block at {at:#x} is overwritten with something else ({what}), the second one is intact")]
    FirstCopyForeign {
        /// Where the first info block should be.
        at: u64,
        /// What the region's first bytes look like.
        what: &'static str,
    },
    /// The region ends before the volume does.
    #[error("the volume needs {needs} bytes and the region has {has}: it was cut short")]
    CutShort {
        /// Bytes of region the volume needs.
        needs: u64,
        /// Bytes the region has.
        has: u64,
    },
    /// The volume can be opened with [`Writes::Refused`] only: a write could destroy what it holds.
    #[error("the volume can be read and not written: {0}")]
    Unwritable(Corrupt),
    /// The volume's structures break a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The medium cannot give the structures back.
    #[error(transparent)]
    Media(#[from] Poison),
    /// The medium refused a store.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}

impl<R: Region> Btt<R> {
    /// Opens the volume on `region`. Interrupted writes are finished, and durable, before this
    /// returns.
    pub fn open(region: R, options: &OpenOptions) -> Result<Btt<R>, OpenError> {
        let located = match locate(&region, options.version) {
            Ok(located) => located,
            Err(reason) => return Err(no_volume(&region, reason)?),
        };
        let survey = Survey::of(&region, &located, options.first_copy)?;
        if options.writes == Writes::Allowed {
            if let Some(why) = survey.unwritable {
                return Err(OpenError::Unwritable(why));
            }
            if options.first_copy == FirstCopy::RestoreIfOurs {
                restore_first_copies(&region, &located);
            }
        }
        let mut arenas: Vec<LiveArena> = Vec::new();
        let mut first = 0;
        for found in &located.arenas {
            let arena = found.arena;
            let lanes = recover(&region, &arena)?;
            arenas.push(LiveArena { arena, first, lanes: Lanes::new(lanes), map: Stripes::new() });
            first += u64::from(arena.geometry().external_nlba);
        }
        region.fence()?;
        let summary = survey.summary;
        let metadata = vec![0; (summary.sector_size - sector_data_bytes(summary.sector_size)) as usize];
        Ok(Btt {
            region,
            arenas,
            loss: Loss::default(),
            summary,
            metadata: metadata.into(),
            wear: Wear::new(options.level_wear_every),
            writes: options.writes,
            survey,
        })
    }
}

/// Writes first info blocks back from their second copies. Those of somebody else were refused by
/// the survey.
fn restore_first_copies<R: Region>(region: &R, located: &Located) {
    for found in &located.arenas {
        match found.first {
            // An unreadable copy stays: to store over bad memory is for a repair that somebody
            // asked for.
            CopyState::Good | CopyState::Differs | CopyState::Unreadable(_) => {}
            // `settle_flog` fences it: nothing before that rests on it.
            CopyState::Zero | CopyState::Damaged(_) | CopyState::Foreign => {
                region.stream(found.arena.start(), found.info.as_bytes());
            }
        }
    }
}

/// The lanes of `arena`, each after its interrupted write, if any, was finished (flushed, not
/// fenced).
fn recover<R: Region>(region: &R, arena: &Arena) -> Result<Vec<Lane>, OpenError> {
    let (pair, newest) = read_lanes(region, arena)?;
    settle_flog(region, arena)?;
    newest.iter().try_for_each(|entry| entry.finish(region, arena))?;
    let lane = |(number, newest): (u32, &Newest)| Lane::new(number, pair, newest.slot, newest.seq, newest.old);
    Ok((0..).zip(&newest).map(lane).collect())
}

/// The two slots that all lanes of `arena` use, and the newest entry of each.
pub(crate) fn read_lanes<R: Region + ?Sized>(region: &R, arena: &Arena) -> Result<(SlotPair, Vec<Newest>), OpenError> {
    let groups = read_flog(region, arena)?;
    let pair = SlotPair::detect(groups.iter()).map_err(|broken| at(broken, arena.flog_at(0)))?;
    let pair = pair.unwrap_or(SlotPair::Adjacent);
    let newest = (0..).zip(&groups).map(|(number, group)| newest_entry(arena, number, group, pair));
    Ok((pair, newest.collect::<Result<_, _>>()?))
}

/// Makes the flog durable as it is read. A process that was killed while the power stayed leaves
/// entries that only the processor's caches have; if one were acted on and a power cut then took
/// it, its block would have two owners.
fn settle_flog<R: Region + ?Sized>(region: &R, arena: &Arena) -> Result<(), Sealed> {
    region.flush(arena.flog_at(0), u64::from(arena.geometry().nfree) * size_of::<FlogGroup>() as u64);
    region.fence()
}

/// All flog groups of `arena`.
pub(crate) fn read_flog<R: Region + ?Sized>(region: &R, arena: &Arena) -> Result<Vec<FlogGroup>, Poison> {
    let mut groups = vec![FlogGroup::new_zeroed(); arena.geometry().nfree as usize];
    region.read(arena.flog_at(0), groups.as_mut_slice().as_mut_bytes())?;
    Ok(groups)
}

/// A broken rule of a struct that lies at `base`.
pub(crate) fn at(broken: Broken, base: u64) -> Corrupt {
    Corrupt { rule: broken.rule, at: base + broken.offset, found: broken.found }
}

/// What the newest flog entry of a lane says, its numbers checked and its flags stripped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    /// Which slot of the pair it lies in, 0 or 1.
    pub(crate) slot: usize,
    pub(crate) seq: u32,
    pub(crate) lba: u32,
    pub(crate) old: u32,
    pub(crate) new: u32,
}

/// The newest entry of the lane `number`.
pub(crate) fn newest_entry(arena: &Arena, number: u32, group: &FlogGroup, pair: SlotPair) -> Result<Newest, Corrupt> {
    let base = arena.flog_at(number);
    let halves = pair.of(group);
    let slot = newest_slot(&halves).map_err(|broken| at(broken, base))?;
    let half = halves[slot];
    let newest = Newest {
        slot,
        seq: half.seq.get(),
        lba: half.lba.get(),
        old: MapEntry::strip(half.old.get()),
        new: MapEntry::strip(half.new.get()),
    };
    let geometry = arena.geometry();
    let broken = |rule, found: u32| Err(Corrupt { rule, at: base, found: found.to_string() });
    if newest.lba >= geometry.external_nlba {
        return broken("a flog entry names a sector of its arena", newest.lba);
    }
    if newest.old >= geometry.internal_nlba {
        return broken("a flog entry names the block it replaced", newest.old);
    }
    if newest.new >= geometry.internal_nlba {
        return broken("a flog entry names the block it wrote", newest.new);
    }
    Ok(newest)
}

impl Newest {
    /// The map word in which the write is still missing, if it was interrupted. A lane that wrote
    /// nothing yet needs no word, which may be one that cannot be read.
    pub(crate) fn interrupted<R: Region + ?Sized>(&self, region: &R, arena: &Arena) -> Result<Option<MapWord>, Poison> {
        if self.old == self.new {
            return Ok(None);
        }
        let word = MapWord::load(region, arena.map_at(self.lba))?;
        let holds = word.entry().block(self.lba);
        Ok((holds == self.old).then_some(word))
    }

    /// Finishes the write, if it was interrupted: flushed, not fenced. An entry that the map does
    /// hold may be in the caches only, as in [`settle_flog`], and is flushed too.
    pub(crate) fn finish<R: Region + ?Sized>(&self, region: &R, arena: &Arena) -> Result<(), Poison> {
        if let Some(word) = self.interrupted(region, arena)? {
            word.with(MapEntry::normal(self.new)).store_and_flush(region);
        } else if self.old != self.new {
            region.flush(arena.map_at(self.lba), size_of::<MapEntry>() as u64);
        }
        Ok(())
    }
}
