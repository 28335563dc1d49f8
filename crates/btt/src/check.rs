//! Verifies every invariant of a volume and names each rule that is broken, with its offset.
//!
//! 1. Both info blocks of each arena are good and identical, and the error flag is clear.
//! 2. All lanes use the same two flog slots; each lane's sequence numbers follow each other.
//! 3. Flog entries and map entries name sectors and blocks of their arena.
//! 4. Each internal block is named exactly once, by the map or as a lane's free block. An interrupted write counts as
//!    finished: it is no damage, and the next open finishes it.
//!
//! Repair is in [`crate::repair`].

use crate::identify::{Identity, identify};
use crate::locate::{CopyState, LocatedArena, NotLocated, Summary, locate};
use crate::open::{Newest, OpenError, at, newest_entry, read_flog};
use crate::repair;
use std::collections::BTreeMap;
use tidegate_layout::btt::{Arena, FlogGroup, MapEntry, MapState, SlotPair};
use tidegate_media::{BlockSet, Corrupt, Poison, Region};

/// Whether to repair what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only look. Nothing on the medium changes.
    No,
    /// Finish interrupted writes and put right whatever is broken. Where data cannot be told right from wrong, the sector
    /// is put in the error state: reads of it fail until it is written.
    Yes,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the volume is.
    pub summary: Summary,
    /// What its blocks are used for; after a repair, what they are used for now.
    pub counts: Counts,
    /// Sectors whose data the repair gave up: they are in the error state now and were not before.
    pub given_up: u64,
    /// Every broken rule.
    pub findings: Vec<Finding>,
}

/// Sectors by the state of their map entries, and what else was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sectors never written.
    pub initial: u64,
    /// Sectors that hold data.
    pub normal: u64,
    /// Sectors that read as zeroes.
    pub zero: u64,
    /// Sectors whose data was lost.
    pub error: u64,
    /// Free blocks of lanes.
    pub free: u64,
    /// Writes that were committed and are still missing in the map. No damage: the next open finishes them.
    pub interrupted: u64,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule, where it is broken and what was found there.
    pub corrupt: Corrupt,
    /// Whether it was repaired.
    pub repaired: bool,
}

impl Report {
    /// Whether the volume keeps every rule, by itself or after a repair.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.repaired)
    }
}

/// Checks the volume on `region`, and repairs it if asked. `Err` where there is no volume to check.
pub fn check<R: Region + ?Sized>(region: &R, repair: Repair) -> Result<Report, OpenError> {
    let located = match locate(region, None) {
        Ok(located) => located,
        Err(reason) => return Err(no_volume(region, reason)?),
    };
    let summary = located.summary();
    let mut report = Report { summary, counts: Counts::default(), given_up: 0, findings: Vec::new() };
    for found in &located.arenas {
        let audit = Audit::of(region, &found.arena)?;
        match repair {
            Repair::No => report.add(audit, info_findings(found), &[]),
            Repair::Yes => report.add_repaired(region, found, audit)?,
        }
    }
    Ok(report)
}

impl Report {
    /// Repairs the arena `found`, of which `before` is known, and looks at it again.
    fn add_repaired<R: Region + ?Sized>(
        &mut self,
        region: &R,
        found: &LocatedArena,
        before: Audit,
    ) -> Result<(), OpenError> {
        repair::arena(region, &before)?;
        repair::info_blocks(region, found)?;
        let lost = before.lost();
        let repaired: Vec<Corrupt> = info_findings(found).into_iter().chain(before.findings).collect();
        let after = Audit::of(region, &found.arena)?;
        self.given_up += after.lost().saturating_sub(lost);
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

/// Why there is no volume on `region`.
pub(crate) fn no_volume<R: Region + ?Sized>(region: &R, reason: NotLocated) -> Result<OpenError, Poison> {
    Ok(match reason {
        NotLocated::Corrupt(corrupt) => OpenError::Corrupt(corrupt),
        NotLocated::CutShort { needs, has } => OpenError::CutShort { needs, has },
        NotLocated::Unreadable(poison) => OpenError::Media(poison),
        NotLocated::Absent => match identify(region)? {
            Identity::Foreign { what } => OpenError::Foreign { what },
            Identity::Blank | Identity::Btt(_) | Identity::Damaged { .. } => OpenError::Blank,
        },
    })
}

fn info_findings(found: &LocatedArena) -> Vec<Corrupt> {
    let places = [(found.arena.start(), &found.first), (found.arena.info2_at(), &found.second)];
    let rules = ["the first info block is good", "the second info block is good"];
    let damaged = places.into_iter().zip(rules).filter(|((_, state), _)| **state != CopyState::Good);
    let mut findings: Vec<Corrupt> =
        damaged.map(|((at, state), rule)| Corrupt { rule, at, found: state.to_string() }).collect();
    if found.arena.in_error() {
        let at = found.arena.start() + 48;
        findings.push(Corrupt { rule: "the arena's error flag is clear", at, found: "set".to_owned() });
    }
    findings
}

/// What one arena's flog and map say, and which rules they break.
pub(crate) struct Audit {
    pub(crate) arena: Arena,
    pub(crate) groups: Vec<FlogGroup>,
    /// The two slots all lanes use; `None` if they differ.
    pub(crate) pair: Option<SlotPair>,
    /// The newest entry of each lane whose entries are legal.
    pub(crate) lanes: Vec<Option<Newest>>,
    /// Sectors whose committed move is missing in the map, and the entry each should have.
    pub(crate) interrupted: BTreeMap<u32, MapEntry>,
    /// Blocks named at least once.
    pub(crate) named: BlockSet,
    /// Blocks named by more than one map entry.
    pub(crate) doubled: BlockSet,
    /// Sectors whose entry names no block of the arena, one that another entry named before, or cannot be read.
    pub(crate) bad_sectors: Vec<u32>,
    pub(crate) findings: Vec<Corrupt>,
    states: [u64; 4],
}

const CHUNK_SECTORS: u32 = 4096;

impl Audit {
    pub(crate) fn of<R: Region + ?Sized>(region: &R, arena: &Arena) -> Result<Audit, Poison> {
        let blocks = arena.geometry().internal_nlba;
        let mut audit = Audit {
            arena: *arena,
            groups: read_flog(region, arena)?,
            pair: None,
            lanes: Vec::new(),
            interrupted: BTreeMap::new(),
            named: BlockSet::new(blocks),
            doubled: BlockSet::new(blocks),
            bad_sectors: Vec::new(),
            findings: Vec::new(),
            states: [0; 4],
        };
        audit.read_lanes();
        audit.find_interrupted(region);
        audit.read_map(region);
        audit.claim_free_blocks();
        Ok(audit)
    }

    /// Rules 2 and 3 for the flog.
    fn read_lanes(&mut self) {
        match SlotPair::detect(self.groups.iter()) {
            Ok(pair) => self.pair = Some(pair.unwrap_or(SlotPair::Adjacent)),
            Err(broken) => self.findings.push(at(broken, self.arena.flog_at(0))),
        }
        for (number, group) in (0..).zip(&self.groups) {
            let pairs = match self.pair {
                Some(pair) => vec![pair],
                None => vec![SlotPair::Adjacent, SlotPair::Spread],
            };
            let entries = pairs.into_iter().filter(|pair| only_uses(group, *pair));
            let newest = entries.map(|pair| newest_entry(&self.arena, number, group, pair)).next();
            self.lanes.push(match newest {
                Some(Ok(newest)) => Some(newest),
                Some(Err(corrupt)) => {
                    self.findings.push(corrupt);
                    None
                }
                None => {
                    let (rule, at) = ("a lane uses two flog slots", self.arena.flog_at(number));
                    self.findings.push(Corrupt { rule, at, found: "others".to_owned() });
                    None
                }
            });
        }
    }

    /// What recovery would store, lane after lane. Where the map cannot be read nothing is known to be missing: such sectors are bad ones, as
    /// [`Audit::read_map`] finds.
    fn find_interrupted<R: Region + ?Sized>(&mut self, region: &R) {
        for newest in self.lanes.iter().flatten() {
            let holds = match self.interrupted.get(&newest.lba) {
                Some(entry) => Some(entry.block(newest.lba)),
                None => newest.interrupted(region, &self.arena).unwrap_or_default().map(|_| newest.old),
            };
            if newest.old != newest.new && holds == Some(newest.old) {
                self.interrupted.insert(newest.lba, MapEntry::normal(newest.new));
            }
        }
    }

    /// Rules 3 and 4 for the map.
    fn read_map<R: Region + ?Sized>(&mut self, region: &R) {
        let sectors = self.arena.geometry().external_nlba;
        let mut bytes = vec![0; CHUNK_SECTORS as usize * 4];
        for first in (0..sectors).step_by(CHUNK_SECTORS as usize) {
            let end = sectors.min(first + CHUNK_SECTORS);
            let chunk = &mut bytes[..(end - first) as usize * 4];
            if region.read(self.arena.map_at(first), chunk).is_ok() {
                let (words, _) = chunk.as_chunks::<4>();
                (first..end).zip(words).for_each(|(lba, word)| self.claim(lba, u32::from_le_bytes(*word)));
            } else {
                (first..end).for_each(|lba| self.claim_or_lose(region, lba));
            }
        }
    }

    fn claim_or_lose<R: Region + ?Sized>(&mut self, region: &R, lba: u32) {
        let mut word = [0; 4];
        match region.read(self.arena.map_at(lba), &mut word) {
            Ok(()) => self.claim(lba, u32::from_le_bytes(word)),
            Err(poison) => self.bad_sector(lba, "the medium gives the map entry back", poison.to_string()),
        }
    }

    fn claim(&mut self, lba: u32, raw: u32) {
        let entry = self.interrupted.get(&lba).copied().unwrap_or(MapEntry::from_raw(raw));
        let block = entry.block(lba);
        if block >= self.arena.geometry().internal_nlba {
            return self.bad_sector(lba, "a map entry names a block of its arena", format!("{block}"));
        }
        self.states[entry.state() as usize] += 1;
        if !self.named.insert(block) {
            self.doubled.insert(block);
            self.bad_sector(lba, "no two map entries name one block", format!("block {block} again"));
        }
    }

    fn bad_sector(&mut self, lba: u32, rule: &'static str, found: String) {
        self.bad_sectors.push(lba);
        let found = format!("{found}, in the entry of sector {lba} of the arena");
        self.findings.push(Corrupt { rule, at: self.arena.map_at(lba), found });
    }

    /// Rule 4 for the lanes' free blocks.
    fn claim_free_blocks(&mut self) {
        for (number, lane) in (0..).zip(&mut self.lanes) {
            let Some(newest) = *lane else { continue };
            if !self.named.insert(newest.old) {
                *lane = None;
                self.findings.push(Corrupt {
                    rule: "a lane's free block is named nowhere else",
                    at: self.arena.flog_at(number),
                    found: format!("block {} of lane {number}", newest.old),
                });
            }
        }
    }

    /// Sectors in the error state.
    fn lost(&self) -> u64 {
        self.states[MapState::Error as usize]
    }

    fn count(&self, counts: &mut Counts) {
        counts.initial += self.states[MapState::Initial as usize];
        counts.normal += self.states[MapState::Normal as usize];
        counts.zero += self.states[MapState::Zero as usize];
        counts.error += self.states[MapState::Error as usize];
        counts.free += self.lanes.iter().flatten().count() as u64;
        counts.interrupted += self.interrupted.len() as u64;
    }
}

fn only_uses(group: &FlogGroup, pair: SlotPair) -> bool {
    (0..4).all(|slot| pair.slots().contains(&slot) || group.slots[slot].is_empty())
}
