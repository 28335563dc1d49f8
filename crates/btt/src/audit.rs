//! Audits one arena: reads its flog and its map, and notes the rules of [`crate::check`] that they
//! break.

use crate::flog::{NewestEntry, at, newest_entry, read_flog};
use crate::locate::{CopyState, LocatedArena};
use std::collections::BTreeMap;
use tidegate_layout::btt::{Arena, FlogGroup, InfoBlock, MapEntry, MapState, SlotPair};
use tidegate_media::{BlockSet, Corrupt, Poison, Region};

/// The rule that an arena breaks whose error flag is set. `Repair::Yes` checks the rest of the
/// arena, and clears the flag.
pub const ERROR_FLAG_RULE: &str = "the arena's error flag is clear";

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
    /// Writes that were committed and are still missing in the map. No damage: the next open
    /// finishes them.
    pub interrupted: u64,
}

/// Sectors whose block has another name too.
#[derive(Default)]
pub(crate) struct SharedBlocks {
    /// The first sector of each block that several sectors name. The others are bad sectors.
    pub(crate) first_of_several: Vec<(u32, MapEntry)>,
    /// Sectors whose block is a lane's free block.
    pub(crate) contested: Vec<u32>,
}

/// What one arena's flog and map say, and which rules they break.
pub(crate) struct Audit {
    pub(crate) arena: Arena,
    pub(crate) groups: Vec<FlogGroup>,
    /// The two slots all lanes use; `None` if they differ.
    pub(crate) pair: Option<SlotPair>,
    /// The newest entry of each lane whose entries are legal.
    pub(crate) lanes: Vec<Option<NewestEntry>>,
    /// Sectors whose committed move is missing in the map, and the entry each should have.
    pub(crate) interrupted: BTreeMap<u32, MapEntry>,
    /// Blocks named at least once.
    pub(crate) named: BlockSet,
    /// Blocks named by more than one map entry.
    pub(crate) doubled: BlockSet,
    /// Sectors whose entry names no block of the arena, one that another entry named before, or
    /// cannot be read.
    pub(crate) bad_sectors: Vec<u32>,
    /// Those of the bad sectors that were in the error state.
    lost_before: Vec<u32>,
    /// Free blocks of lanes that are named elsewhere.
    contested: Vec<u32>,
    /// The first broken rules.
    pub(crate) findings: Vec<Corrupt>,
    /// How many rules are broken.
    pub(crate) broken: u64,
    /// The first broken rule that makes writing dangerous: any, but for what the medium does not
    /// give back.
    pub(crate) contradiction: Option<Corrupt>,
    findings_max: usize,
    states: [u64; 4],
}

const CHUNK_SECTORS: u32 = 4096;

impl Audit {
    pub(crate) fn of<R: Region + ?Sized>(region: &R, arena: &Arena) -> Result<Audit, Poison> {
        Audit::of_at_most(usize::MAX, region, arena)
    }

    /// An audit that keeps no more than `findings_max` findings.
    pub(crate) fn of_at_most<R: Region + ?Sized>(
        findings_max: usize,
        region: &R,
        arena: &Arena,
    ) -> Result<Audit, Poison> {
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
            lost_before: Vec::new(),
            contested: Vec::new(),
            findings: Vec::new(),
            broken: 0,
            contradiction: None,
            findings_max,
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
            Err(broken) => self.contradicts(at(broken, self.arena.flog_at(0))),
        }
        for number in 0..self.arena.geometry().nfree {
            let newest = self.newest_of(number, &self.groups[number as usize]);
            let newest = newest.map_err(|corrupt| self.contradicts(corrupt)).ok();
            self.lanes.push(newest);
        }
    }

    fn newest_of(&self, number: u32, group: &FlogGroup) -> Result<NewestEntry, Corrupt> {
        let pairs = match self.pair {
            Some(pair) => vec![pair],
            None => vec![SlotPair::Adjacent, SlotPair::Spread],
        };
        match pairs.into_iter().find(|pair| only_uses(group, *pair)) {
            Some(pair) => newest_entry(&self.arena, number, group, pair),
            None => {
                let (rule, at) = ("a lane uses two flog slots", self.arena.flog_at(number));
                Err(Corrupt { rule, at, found: "others".to_owned() })
            }
        }
    }

    /// What recovery would store, lane after lane. Where the map cannot be read nothing is known to
    /// be missing: such sectors are bad ones, as [`Audit::read_map`] finds.
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
        let arena = self.arena;
        each_chunk(region, &arena, |first, chunk| {
            if self.claim_untouched(first, &chunk) {
                return;
            }
            chunk.each_entry(region, &arena, first, |lba, raw| match raw {
                Ok(raw) => self.claim(lba, raw),
                Err(poison) => {
                    self.bad_sectors.push(lba);
                    let corrupt = self.of_entry(lba, "the medium gives the map entry back", &poison.to_string());
                    self.find(corrupt);
                }
            });
        });
    }

    /// Claims all sectors of `chunk` at once, if none was ever written and no block of theirs is
    /// named yet: the map of a large and young volume is zero almost everywhere.
    fn claim_untouched(&mut self, first: u32, chunk: &Chunk<'_>) -> bool {
        let Some(words) = chunk.readable else { return false };
        let sectors = chunk.sectors;
        let untouched = words.iter().fold(0, |all, word| all | u32::from_le_bytes(*word)) == 0
            && self.interrupted.range(first..first + sectors).next().is_none()
            && self.named.insert_range(first..first + sectors);
        if untouched {
            self.states[MapState::Initial as usize] += u64::from(sectors);
        }
        untouched
    }

    /// The entry of sector `lba` as recovery leaves it.
    fn entry(&self, lba: u32, raw: u32) -> MapEntry {
        self.interrupted.get(&lba).copied().unwrap_or(MapEntry::from_raw(raw))
    }

    fn claim(&mut self, lba: u32, raw: u32) {
        let entry = self.entry(lba, raw);
        let block = entry.block(lba);
        if block >= self.arena.geometry().internal_nlba {
            return self.bad_sector(lba, "a map entry names a block of its arena", &block.to_string());
        }
        self.states[entry.state() as usize] += 1;
        if !self.named.insert(block) {
            self.doubled.insert(block);
            if entry.state() == MapState::Error {
                self.lost_before.push(lba);
            }
            self.bad_sector(lba, "no two map entries name one block", &format!("block {block} again"));
        }
    }

    /// The sectors whose block has another name too, by another look at the map.
    pub(crate) fn shared<R: Region + ?Sized>(&self, region: &R) -> SharedBlocks {
        let mut shared = SharedBlocks::default();
        if self.bad_sectors.is_empty() && self.contested.is_empty() {
            return shared;
        }
        each_entry(region, &self.arena, |lba, raw| {
            let Ok(entry) = raw.map(|raw| self.entry(lba, raw)) else { return };
            let block = entry.block(lba);
            if block >= self.arena.geometry().internal_nlba || self.bad_sectors.binary_search(&lba).is_ok() {
                return;
            }
            if self.doubled.contains(block) {
                shared.first_of_several.push((lba, entry));
            } else if self.contested.contains(&block) {
                shared.contested.push(lba);
            }
        });
        shared
    }

    /// Sectors that a repair puts in the error state and that are not in it, ascending.
    pub(crate) fn given_up_with(&self, shared: &SharedBlocks) -> Vec<u32> {
        let bad = self.bad_sectors.iter().filter(|lba| self.lost_before.binary_search(lba).is_err());
        let first = shared.first_of_several.iter().filter(|(_, entry)| entry.state() != MapState::Error);
        let mut given_up: Vec<u32> = bad.chain(first.map(|(lba, _)| lba)).copied().collect();
        given_up.sort_unstable();
        given_up
    }

    fn bad_sector(&mut self, lba: u32, rule: &'static str, found: &str) {
        self.bad_sectors.push(lba);
        let corrupt = self.of_entry(lba, rule, found);
        self.contradicts(corrupt);
    }

    fn of_entry(&self, lba: u32, rule: &'static str, found: &str) -> Corrupt {
        let found = format!("{found}, in the entry of sector {lba} of the arena");
        Corrupt { rule, at: self.arena.map_at(lba), found }
    }

    fn find(&mut self, corrupt: Corrupt) {
        self.broken += 1;
        if self.findings.len() < self.findings_max {
            self.findings.push(corrupt);
        }
    }

    /// A finding that makes writing dangerous.
    fn contradicts(&mut self, corrupt: Corrupt) {
        self.contradiction.get_or_insert_with(|| corrupt.clone());
        self.find(corrupt);
    }

    /// Rule 4 for the lanes' free blocks.
    fn claim_free_blocks(&mut self) {
        for number in 0..self.arena.geometry().nfree {
            let Some(newest) = self.lanes[number as usize] else { continue };
            if !self.named.insert(newest.old) {
                self.lanes[number as usize] = None;
                self.contested.push(newest.old);
                self.contradicts(Corrupt {
                    rule: "a lane's free block is named nowhere else",
                    at: self.arena.flog_at(number),
                    found: format!("block {} of lane {number}", newest.old),
                });
            }
        }
    }

    pub(crate) fn count(&self, counts: &mut Counts) {
        counts.initial += self.states[MapState::Initial as usize];
        counts.normal += self.states[MapState::Normal as usize];
        counts.zero += self.states[MapState::Zero as usize];
        counts.error += self.states[MapState::Error as usize];
        counts.free += self.lanes.iter().flatten().count() as u64;
        counts.interrupted += self.interrupted.len() as u64;
    }
}

/// Map entries that lie one behind the other.
struct Chunk<'a> {
    sectors: u32,
    /// As they lie there, if the medium gives all of them back.
    readable: Option<&'a [[u8; 4]]>,
}

impl Chunk<'_> {
    /// Calls `see` with each sector of the chunk, which begins with sector `first` of `arena`, and
    /// its map entry.
    fn each_entry<R: Region + ?Sized>(
        &self,
        region: &R,
        arena: &Arena,
        first: u32,
        mut see: impl FnMut(u32, Result<u32, Poison>),
    ) {
        match self.readable {
            Some(words) => (first..).zip(words).for_each(|(lba, word)| see(lba, Ok(u32::from_le_bytes(*word)))),
            // Not all of a chunk that cannot be read is lost.
            None => (first..first + self.sectors).for_each(|lba| {
                let mut word = [0; 4];
                see(lba, region.read(arena.map_at(lba), &mut word).map(|()| u32::from_le_bytes(word)));
            }),
        }
    }
}

/// Calls `see` with each chunk of the map of `arena` and its first sector.
fn each_chunk<R: Region + ?Sized>(region: &R, arena: &Arena, mut see: impl FnMut(u32, Chunk<'_>)) {
    let sectors = arena.geometry().external_nlba;
    let mut bytes = vec![0; CHUNK_SECTORS as usize * size_of::<MapEntry>()];
    for first in (0..sectors).step_by(CHUNK_SECTORS as usize) {
        let sectors = CHUNK_SECTORS.min(sectors - first);
        let chunk = &mut bytes[..sectors as usize * size_of::<MapEntry>()];
        let readable = region.read(arena.map_at(first), chunk).is_ok();
        see(first, Chunk { sectors, readable: readable.then_some(chunk.as_chunks::<4>().0) });
    }
}

/// Calls `see` with each sector of `arena` and its map entry, as it lies there.
fn each_entry<R: Region + ?Sized>(region: &R, arena: &Arena, mut see: impl FnMut(u32, Result<u32, Poison>)) {
    each_chunk(region, arena, |first, chunk| chunk.each_entry(region, arena, first, &mut see));
}

fn only_uses(group: &FlogGroup, pair: SlotPair) -> bool {
    (0..4).all(|slot| pair.slots().contains(&slot) || group.slots[slot].is_empty())
}

/// Rule 1: what is wrong with the info blocks of `found`.
pub(crate) fn info_findings(found: &LocatedArena) -> Vec<Corrupt> {
    let places = [(found.arena.start(), &found.first), (found.arena.info2_at(), &found.second)];
    let rules = ["the first info block is good", "the second info block is good"];
    let damaged = places.into_iter().zip(rules).filter(|((_, state), _)| **state != CopyState::Good);
    let mut findings: Vec<Corrupt> =
        damaged.map(|((at, state), rule)| Corrupt { rule, at, found: state.to_string() }).collect();
    if found.arena.in_error() {
        let at = found.arena.start() + InfoBlock::FLAGS_AT;
        findings.push(Corrupt { rule: ERROR_FLAG_RULE, at, found: "set".to_owned() });
    }
    findings
}
