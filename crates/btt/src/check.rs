//! Verifies every invariant of a volume and names each rule that is broken, with its offset.
//!
//! 1. Both info blocks of each arena are good and identical, and the error flag is clear.
//! 2. All lanes use the same two flog slots; each lane's sequence numbers follow each other.
//! 3. Flog entries and map entries name sectors and blocks of their arena.
//! 4. Each internal block is named exactly once, by the map or as a lane's free block. An
//!    interrupted write counts as finished: it is no damage, and the next open finishes it.
//!
//! Repair is in [`crate::repair`].

use crate::audit::{Audit, Counts, info_findings};
use crate::identify::{OpenError, no_volume};
use crate::locate::{LocatedArena, Summary, locate};
use crate::repair;
use tidegate_media::{Corrupt, Lba, LbaRange, Region};

/// Whether to repair what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only look. Nothing on the medium changes.
    No,
    /// Finish interrupted writes and put right whatever is broken. Where data cannot be told right
    /// from wrong, the sector is put in the error state: reads of it fail until it is written.
    Yes,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// What the volume is.
    pub summary: Summary,
    /// What its blocks are used for; after a repair, what they are used for now.
    pub counts: Counts,
    /// How many sectors the repair gave up: they are in the error state now and were not before.
    pub given_up: u64,
    /// Sectors whose data a repair gives up, or gave up.
    pub at_stake: Vec<LbaRange>,
    /// Sectors whose block was also the free block of a lane: a repair keeps what they hold, and a
    /// write may have destroyed it before.
    pub doubtful: Vec<LbaRange>,
    /// Every broken rule.
    pub findings: Vec<Finding>,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule, where it is broken and what was found there.
    pub corrupt: Corrupt,
    /// Whether it was repaired.
    pub repaired: bool,
}

impl CheckReport {
    /// Whether the volume keeps every rule, by itself or after a repair.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.repaired)
    }
}

/// Checks the volume on `region`, and repairs it if asked. `Err` where there is no volume to check.
pub fn check<R: Region + ?Sized>(region: &R, repair: Repair) -> Result<CheckReport, OpenError> {
    let located = match locate(region, None) {
        Ok(located) => located,
        Err(reason) => return Err(no_volume(region, reason)?),
    };
    let summary = located.summary();
    let mut report = CheckReport {
        summary,
        counts: Counts::default(),
        given_up: 0,
        at_stake: Vec::new(),
        doubtful: Vec::new(),
        findings: Vec::new(),
    };
    let mut first = 0;
    for found in &located.arenas {
        let audit = Audit::of(region, &found.arena)?;
        let shared = audit.shared(region);
        report.at_stake.extend(ranges(first, audit.given_up_with(&shared)));
        report.doubtful.extend(ranges(first, shared.contested));
        first += u64::from(found.arena.geometry().external_nlba);
        match repair {
            Repair::No => report.add(audit, info_findings(found), &[]),
            Repair::Yes => report.add_repaired(region, found, audit)?,
        }
    }
    if repair == Repair::Yes {
        report.given_up = report.at_stake.iter().map(|range| range.blocks).sum();
    }
    Ok(report)
}

impl CheckReport {
    /// Repairs the arena `found`, of which `before` is known, and looks at it again.
    fn add_repaired<R: Region + ?Sized>(
        &mut self,
        region: &R,
        found: &LocatedArena,
        before: Audit,
    ) -> Result<(), OpenError> {
        repair::arena(region, &before)?;
        repair::info_blocks(region, found)?;
        let repaired: Vec<Corrupt> = info_findings(found).into_iter().chain(before.findings).collect();
        let after = Audit::of(region, &found.arena)?;
        self.add(after, Vec::new(), &repaired);
        Ok(())
    }

    /// Adds what `audit` and `info_blocks` found in an arena, after `repaired` was put right.
    fn add(&mut self, audit: Audit, info_blocks: Vec<Corrupt>, repaired: &[Corrupt]) {
        audit.count(&mut self.counts);
        let broken: Vec<Corrupt> = info_blocks.into_iter().chain(audit.findings).collect();
        let repaired = repaired.iter().filter(|corrupt| !broken.contains(corrupt)).cloned();
        self.findings.extend(repaired.map(|corrupt| Finding { corrupt, repaired: true }));
        self.findings.extend(broken.into_iter().map(|corrupt| Finding { corrupt, repaired: false }));
    }
}

/// The sectors `of_arena`, ascending, as ranges of a device on which the arena begins at `first`.
fn ranges(first: u64, of_arena: Vec<u32>) -> Vec<LbaRange> {
    let mut ranges: Vec<LbaRange> = Vec::new();
    for lba in of_arena.into_iter().map(|lba| first + u64::from(lba)) {
        match ranges.last_mut() {
            Some(range) if range.end() == lba => range.blocks += 1,
            _ => ranges.push(LbaRange { first: Lba(lba), blocks: 1 }),
        }
    }
    ranges
}
