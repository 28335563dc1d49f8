//! Completed writes that a power loss may take although they were flushed: those that lie only in
//! the region in front of a disk, if the region's memory loses its contents. Such a volume is
//! served only if its user asks for it by name.
//!
//! One law for ordered disks and others: a flushed write must not be lost. An ordered disk
//! is left consistent; it lacks the last writes all the same.

use crate::failure::{DiskFailure, Step};
use std::path::Path;
use tidegate_disk_cache::{Identity, Mode};
use tidegate_media::Domain;
use tidegate_volume_region::VolumeRegion;

/// Whether completed writes may lie only in memory that a power loss empties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Volatile {
    /// They must not.
    #[default]
    Refused,
    /// They may: somebody asked for it by name.
    Accepted,
}

/// What a flag or a key says.
pub fn accepted(asked: bool) -> Volatile {
    if asked { Volatile::Accepted } else { Volatile::Refused }
}

/// A region in front of a disk, and what the power may take from it.
#[derive(Clone, Copy, Debug)]
pub struct Stake<'a> {
    /// The region.
    pub pmem: &'a Path,
    /// What its memory survives.
    pub domain: Domain,
    /// Whether the disk keeps the order of commits.
    pub ordered: bool,
}

impl Stake<'_> {
    /// That of the cache `identity` in `region`.
    pub fn of<'a>(pmem: &'a Path, region: &VolumeRegion, identity: &Identity) -> Stake<'a> {
        Stake { pmem, domain: region.reader().domain(), ordered: identity.journal_blocks > 0 }
    }

    /// Refuses `step` if it puts completed writes at stake that nobody put there by name.
    pub fn refuse(&self, step: Step, volatile: Volatile) -> Result<(), DiskFailure> {
        let loses = matches!(self.domain, Domain::ProcessCrash | Domain::Volatile);
        if !loses || volatile == Volatile::Accepted || !step.completes_before_the_disk() {
            return Ok(());
        }
        Err(DiskFailure::Volatile { pmem: self.pmem.to_owned(), ordered: self.ordered, step })
    }

    /// Refuses `step` like [`refuse`](Self::refuse), and warns of an accepted risk.
    pub fn admit(&self, step: Step, volatile: Volatile) -> Result<(), DiskFailure> {
        self.refuse(step, volatile)?;
        if step.completes_before_the_disk() {
            self.risk().iter().for_each(|risk| tracing::warn!("{}: {risk}", self.pmem.display()));
        }
        Ok(())
    }

    /// What a power loss takes while requests are treated by `mode`; None: nothing that was
    /// flushed.
    pub fn risk_by(&self, mode: Mode) -> Option<&'static str> {
        mode.completes_before_the_disk().then(|| self.risk()).flatten()
    }

    /// What a power loss takes in a mode that completes writes before the disk has them.
    pub fn risk(&self) -> Option<&'static str> {
        match (self.domain, self.ordered) {
            (Domain::PowerFail { .. }, _) => None,
            (Domain::DiskFile, false) => Some(
                "the region is an ordinary file: after a power loss or a crash of the kernel nothing is promised, not even of flushed writes, and the disk may be damaged",
            ),
            (Domain::DiskFile, true) => Some(
                "the region is an ordinary file: after a power loss or a crash of the kernel nothing is promised, not even of flushed writes",
            ),
            (Domain::ProcessCrash | Domain::Volatile, false) => Some(
                "a power loss or a crash of the kernel empties the region: completed writes that the disk lacks are lost then, flushed ones too, and a file system on the disk is damaged",
            ),
            (Domain::ProcessCrash | Domain::Volatile, true) => Some(
                "a power loss or a crash of the kernel empties the region: the last completed writes are lost then, flushed ones too; after `tidegate replay` the disk is as it was before them",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAINS: [Domain; 4] =
        [Domain::PowerFail { caches_included: false }, Domain::DiskFile, Domain::ProcessCrash, Domain::Volatile];

    fn refused(domain: Domain, step: Step, volatile: Volatile) -> bool {
        let stake = |ordered| Stake { pmem: Path::new("/v"), domain, ordered };
        let [plain, ordered] = [false, true].map(|ordered| stake(ordered).refuse(step, volatile).is_err());
        assert_eq!(plain, ordered, "flushed writes are lost either way");
        plain
    }

    #[test]
    fn memory_that_loses_its_contents_needs_to_be_asked_for_in_each_mode_that_is_ahead_of_the_disk() {
        let ahead = [Mode::WriteBack, Mode::WriteOnly];
        for mode in Mode::ALL {
            for step in [Step::Serve(mode), Step::GoOn(mode)] {
                let told = DOMAINS.map(|domain| refused(domain, step, Volatile::Refused));
                let is_ahead = ahead.contains(&mode);
                assert_eq!(told, [false, false, is_ahead, is_ahead], "{step:?}");
                assert!(DOMAINS.iter().all(|domain| !refused(*domain, step, Volatile::Accepted)));
            }
        }
        for step in [Step::Create, Step::Attach] {
            assert_eq!(DOMAINS.map(|domain| refused(domain, step, Volatile::Refused)), [false, false, true, true]);
        }
    }

    #[test]
    fn what_is_at_risk_is_told_of_all_memory_that_is_not_persistent() {
        for domain in DOMAINS {
            let stake = Stake { pmem: Path::new("/v"), domain, ordered: false };
            let persistent = matches!(domain, Domain::PowerFail { .. });
            assert_eq!(stake.risk_by(Mode::WriteBack).is_none(), persistent);
            assert_eq!(stake.risk_by(Mode::WriteThrough), None);
            let ordered = Stake { ordered: true, ..stake }.risk();
            assert_eq!(ordered == stake.risk(), persistent, "an ordered disk stays consistent");
        }
    }
}
