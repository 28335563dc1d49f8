//! Checking a pool: every rule of its format, without a change.
//!
//! Records and entries are looked at as recovery would see them: an entry for which an element of
//! the ring stands in may be torn. An entry that counts for nothing may hold anything.

use crate::open::format::{PoolOpenError, identify, superblock_copies};
use crate::open::load::{Counted, Raw};
use crate::region_io::{LaneElement, Medium, ring_plan};
use crate::tiers::nvm::{Blocks, FILE_OF_LOGS};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_layout::file_cache::{NamespacePlan, TrustedRecord};
use tidegate_media::{Corrupt, Error, Poison, Region, Result};
use tidegate_wal::{Loaded, NameRing, corrupt};

/// What a pool has, and which rules it breaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolReport {
    /// Its lanes.
    pub lanes: u32,
    /// Files that may lack something.
    pub files: u64,
    /// Entries that files may lack.
    pub entries: u64,
    /// Bytes in these entries.
    pub bytes: u64,
    /// Bytes in clean entries: files have them too.
    pub clean_bytes: u64,
    /// Elements of the lanes' rings that recovery carries out.
    pub elements: u64,
    /// Records of operations on names that recovery repeats.
    pub names: u64,
    /// The broken rules.
    pub findings: Vec<Corrupt>,
}

/// Checks the pool on `region`.
///
/// # Errors
/// There is no pool, or neither of its superblocks can be trusted.
pub fn check<R: Region>(region: &Arc<R>) -> std::result::Result<PoolReport, PoolOpenError> {
    let pool = identify(&**region)?;
    let mut report = PoolReport { lanes: pool.plan.lanes, ..PoolReport::default() };
    report.findings.extend(superblock_copies(&**region)?.into_iter().filter_map(std::result::Result::err));
    for lane in 0..pool.plan.lanes {
        let medium = Medium { region: Arc::clone(region), plan: pool.plan.lane(lane) };
        let looked = look_at_lane(&medium, &mut report);
        report.note(looked);
    }
    if let Some(plan) = pool.plan.namespace() {
        let looked = look_at_names(region, plan, &mut report);
        report.note(looked);
    }
    Ok(report)
}

impl PoolReport {
    /// What ended a look at a part of the pool is a finding too.
    fn note(&mut self, looked: Result<()>) {
        match looked {
            Ok(()) => {}
            Err(Error::Corrupt(corrupt)) => self.findings.push(corrupt),
            Err(Error::Media(poison)) => self.findings.push(unreadable(&poison)),
            Err(other) => {
                self.findings.push(Corrupt { rule: "the memory can be read", at: 0, found: other.to_string() });
            }
        }
    }
}

fn unreadable(poison: &Poison) -> Corrupt {
    Corrupt { rule: "the medium gives back what was stored", at: poison.at, found: poison.to_string() }
}

fn look_at_lane<R: Region>(medium: &Medium<Arc<R>>, report: &mut PoolReport) -> Result<()> {
    let findings = &mut report.findings;
    let mut on_broken = |broken| {
        findings.push(broken);
        Ok(())
    };
    let loaded: Loaded<LaneElement> = Loaded::read(&*medium.region, ring_plan(&medium.plan))?;
    let mut raw = Raw::read(medium, &mut on_broken)?;
    for (at, element) in &loaded.elements {
        match element.0.check(&medium.plan) {
            Ok(change) => raw.carry_out(&change),
            Err(broken) => on_broken(corrupt(*at, broken))?,
        }
    }
    let entries = raw.counting(medium, &mut on_broken)?;
    let leases = raw.leases(&medium.plan, &mut on_broken)?;
    raw.chunks(&medium.plan, &mut on_broken)?;
    let times = raw.times(&medium.plan, &mut on_broken)?;
    let logs = leases.iter().map(|found| (found.lease.unit, found.lease.class, FILE_OF_LOGS));
    let logs = logs.chain(times.iter().map(|found| (found.page.unit, found.page.class, FILE_OF_LOGS)));
    let used = entries.iter().map(|Counted { extent, .. }| (extent.unit, extent.class, extent.file)).chain(logs);
    if Blocks::with_used(medium.plan.chunks, used).is_none() {
        let (rule, at) = ("no two entries have the same block", medium.plan.entry_at(0));
        findings.push(Corrupt { rule, at, found: "a block of two entries".to_owned() });
    }
    let bytes_of = |entries: &[Counted]| entries.iter().map(|entry| u64::from(entry.extent.length)).sum::<u64>();
    let (clean, lacking): (Vec<Counted>, Vec<Counted>) = entries.into_iter().partition(|entry| entry.is_clean);
    let lack: BTreeSet<u32> = lacking.iter().map(|entry| entry.extent.file).collect();
    let may_lack = |(file, record): &(&u32, &TrustedRecord)| record.stamp == 0 || lack.contains(file);
    report.files += raw.records.iter().filter(may_lack).count() as u64;
    report.entries += lacking.len() as u64;
    report.bytes += bytes_of(&lacking);
    report.clean_bytes += bytes_of(&clean);
    report.elements += loaded.elements.len() as u64;
    Ok(())
}

fn look_at_names<R: Region>(region: &Arc<R>, plan: NamespacePlan, report: &mut PoolReport) -> Result<()> {
    let ring = NameRing::new(Arc::clone(region), plan);
    let (head, mut place) = ring.cursors()?;
    while place < head {
        let record = ring.record(place)?;
        place += ring.parse(place, &record)?.1;
        report.names += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::format::{PoolSpec, format};
    use tidegate_layout::disk_cache::SUPERBLOCK_COPIES_AT;
    use tidegate_sim::SharedMemory;

    fn pool() -> Arc<SharedMemory> {
        let region = SharedMemory::new(16 << 20);
        format(&region, &PoolSpec { lanes: 2, ..PoolSpec::usual([7; 16]) }).expect("laid out");
        Arc::new(region)
    }

    #[test]
    fn a_fresh_pool_has_nothing_and_keeps_every_rule() {
        assert_eq!(check(&pool()).expect("a pool"), PoolReport { lanes: 2, ..PoolReport::default() });
    }

    #[test]
    fn every_broken_rule_is_told_and_the_rest_is_looked_at_all_the_same() {
        let region = pool();
        let lanes = identify(&*region).expect("a pool").plan;
        let (first, second) = (lanes.lane(0), lanes.lane(1));
        for at in [SUPERBLOCK_COPIES_AT[0], first.record_at(3)] {
            region.write(at, &[0xa5; 64]);
        }
        // A head so far in front of the tail that the ring has no room for what lies between.
        region.write(second.cursors_at, &[0xa5; 8]);
        let places: Vec<u64> = check(&region).expect("a pool").findings.iter().map(|broken| broken.at).collect();
        let near = |at: u64, place: u64| (at..at + 64).contains(&place);
        assert_eq!(places.len(), 3, "{places:?}");
        assert!(near(SUPERBLOCK_COPIES_AT[0], places[0]) && near(first.record_at(3), places[1]), "{places:?}");
        assert!(near(second.cursors_at, places[2]), "{places:?}");
    }

    #[test]
    fn without_a_superblock_there_is_no_pool() {
        let region = pool();
        SUPERBLOCK_COPIES_AT.iter().for_each(|at| region.write(*at, &[0xa5; 64]));
        assert!(matches!(check(&region), Err(PoolOpenError::NoPool(_))));
    }
}
