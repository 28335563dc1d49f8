//! Surveys a volume before an opening stores anything: which rules it breaks, and whether it may be
//! written.
//!
//! A write goes to the free block of a lane. If the map names this block too, the write destroys
//! the data of another sector, and no later check could tell. An opening therefore reads the whole
//! map and flog first. A volume in which a block is named twice, or whose arena carries the error
//! flag, can be read and not written.

use crate::audit::{Audit, info_findings};
use crate::flog::read_lanes;
use crate::identify::{Identity, OpenError, identify, no_volume};
use crate::locate::{CopyState, FirstCopy, Located, Summary, locate};
use tidegate_layout::btt::InfoBlock;
use tidegate_media::{Corrupt, Poison, Region};
use zerocopy::{FromZeros, IntoBytes};

/// A survey keeps so many findings of an arena, and counts the others.
const FINDINGS_MAX: usize = 8;

/// What an opening finds out about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// What the volume is.
    pub summary: Summary,
    /// The first broken rules of each arena.
    pub findings: Vec<Corrupt>,
    /// How many rules are broken in all.
    pub broken: u64,
    /// Why the volume may be read and not written, if so.
    pub unwritable: Option<Corrupt>,
}

/// Surveys the volume on `region`. Reads only. `Err` where no opening would succeed.
pub fn survey<R: Region + ?Sized>(region: &R) -> Result<Survey, OpenError> {
    let located = match locate(region, None) {
        Ok(located) => located,
        Err(reason) => return Err(no_volume(region, reason)?),
    };
    Survey::of(region, &located, FirstCopy::default())
}

impl Survey {
    pub(crate) fn of<R: Region + ?Sized>(
        region: &R,
        located: &Located,
        first_copy: FirstCopy,
    ) -> Result<Survey, OpenError> {
        if first_copy == FirstCopy::RestoreIfOurs {
            refuse_foreign_first_copies(region, located)?;
        }
        let mut survey = Survey { summary: located.summary(), findings: Vec::new(), broken: 0, unwritable: None };
        for found in &located.arenas {
            // Refuses what no recovery can act on.
            read_lanes(region, &found.arena)?;
            let audit = Audit::of_at_most(FINDINGS_MAX, region, &found.arena)?;
            let info_findings = info_findings(found);
            survey.broken += audit.broken + info_findings.len() as u64;
            let flag = info_findings.last().filter(|_| found.arena.in_error());
            let unwritable = audit.contradiction.or_else(|| flag.cloned());
            survey.unwritable = survey.unwritable.or(unwritable);
            survey.findings.extend(info_findings);
            survey.findings.extend(audit.findings);
        }
        Ok(survey)
    }
}

/// Refuses a volume whose first info block is overwritten with something that is not a part of one.
fn refuse_foreign_first_copies<R: Region + ?Sized>(region: &R, located: &Located) -> Result<(), OpenError> {
    for found in located.arenas.iter().filter(|found| found.first == CopyState::Foreign) {
        let at = found.arena.start();
        if is_half_written(region, at, &found.info)? {
            continue;
        }
        let what = match identify(region)? {
            Identity::Foreign { what } => what,
            Identity::Blank | Identity::Btt(_) | Identity::Damaged { .. } => "data that is not recognised",
        };
        return Err(OpenError::FirstCopyForeign { at, what });
    }
    Ok(())
}

/// Whether the info block at `at` is `whole` with some words still zero: a write of it was cut
/// short, by a power cut in a format or in the restoring of the first copy.
fn is_half_written<R: Region + ?Sized>(region: &R, at: u64, whole: &InfoBlock) -> Result<bool, Poison> {
    let mut words = InfoBlock::new_zeroed();
    region.read(at, words.as_mut_bytes())?;
    let mut pairs = words.as_bytes().chunks_exact(8).zip(whole.as_bytes().chunks_exact(8));
    Ok(pairs.all(|(word, whole)| word == whole || word == [0; 8]))
}
