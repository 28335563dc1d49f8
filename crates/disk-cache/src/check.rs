//! Every rule of a cache verified, by number:
//!
//! 1. At least one superblock keeps its rules; both do, unless one was damaged.
//! 2. The cursors span at most the ring, and every element between them names an entry, a block of
//!    the cache and one of the disk.
//! 3. Every entry is free, or names a block of the cache and one of the disk. (As it is after
//!    recovery, here and below.)
//! 4. No block of the cache is named twice.
//! 5. No block of the disk is named twice.

use crate::open::format::Identity;
use crate::open::poisoned_entries::PoisonedEntries;
use crate::open::scan::{self, NoSuperblock, Unusable};
use crate::region_io::ring_plan;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tidegate_layout::disk_cache::{CURSORS_AT, EntryState};
use tidegate_media::{BlockSet, Corrupt, Error, Poison, Region};
use tidegate_wal::Loaded;

/// What was found on a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// What the superblock says.
    pub identity: Identity,
    /// Blocks that only the cache has.
    pub dirty: u32,
    /// Blocks that the disk has too.
    pub clean: u32,
    /// Blocks not in use.
    pub free: u32,
    /// Elements of the ring that count.
    pub unretired: u32,
    /// Rules that are broken.
    pub findings: Vec<Finding>,
}

/// A broken rule, or bytes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// A rule that bytes break.
    #[error(transparent)]
    Broken(#[from] Corrupt),
    /// Bytes that the medium cannot give back.
    #[error(transparent)]
    Unreadable(#[from] Poison),
    /// Entries that the medium cannot give back. The cache opens without them.
    #[error("{0}")]
    Lost(PoisonedEntries),
}

impl CheckReport {
    /// Whether the cache opens: no rule is broken, and what is needed can be read.
    pub fn opens(&self) -> bool {
        self.findings.iter().all(|finding| matches!(finding, Finding::Lost(_)))
    }
}

/// Why there is nothing to check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no cache: {0}")]
pub struct NoCache(pub Finding);

/// Verifies every rule. Reads only; what recovery would do is done in DRAM.
pub fn check<R: Region + ?Sized>(region: &R) -> Result<CheckReport, NoCache> {
    if region.len() < CURSORS_AT {
        return Err(NoCache(Poison { at: 0, len: CURSORS_AT }.into()));
    }
    let newest = scan::superblocks(region).map_err(|wrong| NoCache(finding(wrong)))?;
    let plan = newest.superblock.plan;
    let mut findings: Vec<Finding> = newest.other.map(finding).into_iter().collect();
    let loaded = Loaded::read(region, ring_plan(&plan));
    let ring = match loaded.and_then(|loaded| Ok((scan::newest(&loaded, &plan)?, loaded.elements.len()))) {
        Ok(ring) => Some(ring),
        Err(error) => {
            findings.extend(broken(error));
            None
        }
    };
    let mut used = BlockSet::new(plan.blocks);
    let mut lbas: HashSet<u64> = HashSet::new();
    let mut unreadable = BTreeSet::new();
    let (mut dirty, mut clean_blocks) = (0, 0);
    let visited = scan::entries(region, &plan, |entry, own| {
        let own = match own {
            Ok(own) => own,
            Err(Unusable::Broken(corrupt)) => {
                findings.push(corrupt.into());
                return Ok(());
            }
            Err(Unusable::Unreadable) => {
                unreadable.insert(entry);
                return Ok(());
            }
        };
        let newest = ring.as_ref().and_then(|(newest, _)| newest.get(&entry));
        if let EntryState::Holds { lba, block, clean, .. } = scan::recovered(own, newest) {
            let at = plan.entry_at(entry);
            if !used.insert(block) {
                let rule = "no block is named by two entries";
                findings.push(Corrupt { rule, at, found: block.to_string() }.into());
            }
            if !lbas.insert(lba) {
                let rule = "no block of the disk is cached twice";
                findings.push(Corrupt { rule, at, found: lba.to_string() }.into());
            }
            *(if clean { &mut clean_blocks } else { &mut dirty }) += 1;
        }
        Ok(())
    });
    findings.extend(visited.err().and_then(broken));
    if !unreadable.is_empty() {
        let said = ring.as_ref().map(|(newest, _)| newest);
        findings.push(Finding::Lost(PoisonedEntries::of(&plan, &unreadable, said.unwrap_or(&BTreeMap::new()))));
    }
    let free = u32::try_from(used.absent().count()).expect("at most every block");
    let unretired = ring.map_or(0, |(_, elements)| u32::try_from(elements).expect("a ring has fewer"));
    let identity = Identity::from(&newest.superblock);
    Ok(CheckReport { identity, dirty, clean: clean_blocks, free, unretired, findings })
}

fn finding(wrong: NoSuperblock) -> Finding {
    match wrong {
        NoSuperblock::Unreadable(poison) => poison.into(),
        NoSuperblock::Broken(corrupt) => corrupt.into(),
    }
}

/// Reading meets no other errors than these.
fn broken(error: Error) -> Option<Finding> {
    match error {
        Error::Corrupt(corrupt) => Some(corrupt.into()),
        Error::Media(poison) => Some(poison.into()),
        Error::Misuse(_) | Error::NoRoom(_) | Error::Sealed(_) => None,
    }
}
