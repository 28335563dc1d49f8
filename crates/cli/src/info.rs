//! `tidegate info`: what a volume is, whether it is in use, and what survives what. Nothing is changed, not even an
//! interrupted write is finished.

use crate::answer;
use crate::compose;
use crate::facts::{Facts, Memory};
use crate::failure::{Exit, Failure, VolumeFailure};
use crate::grammar::Info;
use crate::orphans::{self, Orphan};
use crate::places;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use tidegate_btt::{Identity, OpenError, identify};
use tidegate_media::{Access, MappedRegion, Region};

/// What `info` answers.
#[derive(Serialize)]
struct Answer {
    in_use: bool,
    volume: Facts,
    /// Of any volume.
    orphans: Vec<Orphan>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.volume)?;
        write!(f, "{:<10} {}", "in use", if self.in_use { "yes: another process may write to it" } else { "no" })?;
        self.orphans.iter().try_for_each(|orphan| write!(f, "\n{:<10} {orphan}", "orphan"))
    }
}

/// Runs `tidegate info`.
pub(crate) fn run(wish: &Info, json: bool) -> Result<Exit, Failure> {
    let path = wish.pmem.clone().unwrap_or_else(places::default_volume);
    let (region, in_use) = look(&path)?;
    let refused = |error| Failure::from(VolumeFailure::of_open(&path, region.len(), error));
    let volume = match identify(&region).map_err(|poison| refused(OpenError::Media(poison)))? {
        Identity::Btt(summary) => Facts::of(&path, Memory::of(&region), &summary),
        Identity::Blank => return Err(refused(OpenError::Blank)),
        Identity::Foreign { what } => return Err(refused(OpenError::Foreign { what })),
        Identity::Damaged { corrupt, .. } => {
            compose::refuse_unsound(&path, &region)?;
            // Damaged a moment ago, sound now: its server was writing just then.
            return Err(refused(OpenError::Corrupt(corrupt)));
        }
    };
    answer::give(&Answer { in_use, volume, orphans: orphans::list() }, json)?;
    Ok(Exit::Done)
}

/// The region as it is now, and whether another process may be writing to it.
fn look(path: &Path) -> Result<(MappedRegion, bool), Failure> {
    match compose::map(path, Access::Private) {
        Err(Failure::Volume(VolumeFailure::InUse { .. })) => Ok((compose::map(path, Access::PrivateUnlocked)?, true)),
        other => Ok((other?, false)),
    }
}
