//! The flog of an arena, as an opening and a check read it: two slots that all lanes use, and the
//! newest entry of each lane.

use crate::identify::OpenError;
use crate::map::MapWord;
use tidegate_layout::Broken;
use tidegate_layout::btt::{Arena, FlogGroup, MapEntry, SlotPair, newest_slot};
use tidegate_media::{Corrupt, Poison, Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// The two slots that all lanes of `arena` use, and the newest entry of each.
pub(crate) fn read_lanes<R: Region + ?Sized>(
    region: &R,
    arena: &Arena,
) -> Result<(SlotPair, Vec<NewestEntry>), OpenError> {
    let groups = read_flog(region, arena)?;
    let pair = SlotPair::detect(groups.iter()).map_err(|broken| at(broken, arena.flog_at(0)))?;
    let pair = pair.unwrap_or(SlotPair::Adjacent);
    let newest = (0..).zip(&groups).map(|(number, group)| newest_entry(arena, number, group, pair));
    Ok((pair, newest.collect::<Result<_, _>>()?))
}

/// Makes the flog durable as it is read. A process that was killed while the power stayed leaves
/// entries that only the processor's caches have; if one were acted on and a power cut then took
/// it, its block would have two owners.
pub(crate) fn settle_flog<R: Region + ?Sized>(region: &R, arena: &Arena) -> Result<(), Sealed> {
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
pub(crate) struct NewestEntry {
    /// Which slot of the pair it lies in, 0 or 1.
    pub(crate) slot: usize,
    pub(crate) seq: u32,
    pub(crate) lba: u32,
    pub(crate) old: u32,
    pub(crate) new: u32,
}

/// The newest entry of the lane `number`.
pub(crate) fn newest_entry(
    arena: &Arena,
    number: u32,
    group: &FlogGroup,
    pair: SlotPair,
) -> Result<NewestEntry, Corrupt> {
    let base = arena.flog_at(number);
    let halves = pair.of(group);
    let slot = newest_slot(&halves).map_err(|broken| at(broken, base))?;
    let half = halves[slot];
    let newest = NewestEntry {
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

impl NewestEntry {
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
