//! Opens a volume: finds it, restores a lost first info block, and finishes the writes that a power
//! cut interrupted.
//!
//! Recovery looks at each lane by itself. If the newest flog entry says that a sector moved and the
//! map still names the block it moved from, the write was committed and its map store lost: it is
//! done again. If the map holds another block, the write was complete. Recovery may run twice or be
//! cut short.
//!
//! Before all this [`crate::survey`] decides whether the volume may be written.

use crate::flog::{NewestEntry, read_lanes, settle_flog};
use crate::identify::{OpenError, no_volume};
use crate::io::{Btt, LiveArena, Wear, Writes};
use crate::lanes::{Lane, Lanes};
use crate::locate::{CopyState, FirstCopy, Located, locate};
use crate::loss::StoreLoss;
use crate::map::Stripes;
use crate::survey::Survey;
use std::num::NonZeroU32;
use tidegate_layout::btt::{Arena, Version, sector_data_bytes};
use tidegate_media::Region;
use zerocopy::IntoBytes;

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
            loss: StoreLoss::default(),
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
    let lane = |(number, newest): (u32, &NewestEntry)| Lane::new(number, pair, newest.slot, newest.seq, newest.old);
    Ok((0..).zip(&newest).map(lane).collect())
}
