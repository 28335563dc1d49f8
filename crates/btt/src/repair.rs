//! Puts right what a check found.
//!
//! By rule 4 of the check there are exactly as many blocks named nowhere as there are sectors and lanes without a
//! block of their own, so each of them gets one. What cannot be known is not guessed: a sector that shared its block with another,
//! and that other, end in the error state.
//!
//! Each step leaves a volume that a further repair finishes, whatever a power cut keeps of it.

use crate::check::Audit;
use crate::format::unused_lane;
use crate::locate::{CopyState, LocatedArena};
use crate::map::MapWord;
use crate::open::OpenError;
use tidegate_layout::btt::{FlogGroup, FlogHalf, MapEntry, MapState, SlotPair};
use tidegate_media::{Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// Repairs the map and the flog of an arena, interrupted writes first.
pub(crate) fn arena<R: Region + ?Sized>(region: &R, audit: &Audit) -> Result<(), OpenError> {
    settle(region, audit)?;
    for (lba, entry) in &audit.interrupted {
        MapWord::load(region, audit.arena.map_at(*lba))?.with(*entry).store_and_flush(region);
    }
    region.fence()?;
    let mut spare = audit.named.absent();
    let mut next = || spare.next().expect("as many blocks are unnamed as sectors and lanes lack one");
    lose_sharers(region, audit)?;
    for lba in &audit.bad_sectors {
        store_entry(region, audit, *lba, MapEntry::new(MapState::Error, next()))?;
    }
    region.fence()?;
    for (number, lane) in (0..).zip(&audit.lanes) {
        match lane {
            None => write_group(region, audit, number, &unused_lane(&audit.arena, number, next()))?,
            Some(newest) if audit.pair.is_none() => {
                let mut group = FlogGroup::new_zeroed();
                group.slots[0] = FlogHalf::new(newest.lba, newest.old, newest.new, 1);
                write_group(region, audit, number, &group)?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Makes map and flog durable as they were read: a process that was killed may have left them in the caches only.
fn settle<R: Region + ?Sized>(region: &R, audit: &Audit) -> Result<(), Sealed> {
    let geometry = audit.arena.geometry();
    region.flush(audit.arena.map_at(0), u64::from(geometry.external_nlba) * size_of::<MapEntry>() as u64);
    region.flush(audit.arena.flog_at(0), u64::from(geometry.nfree) * size_of::<FlogGroup>() as u64);
    region.fence()
}

/// Puts the first sector of each shared block in the error state, on the block it has. The others are the bad sectors.
fn lose_sharers<R: Region + ?Sized>(region: &R, audit: &Audit) -> Result<(), OpenError> {
    if audit.bad_sectors.is_empty() {
        return Ok(());
    }
    for lba in 0..audit.arena.geometry().external_nlba {
        if audit.bad_sectors.binary_search(&lba).is_ok() {
            continue;
        }
        let block = MapWord::load(region, audit.arena.map_at(lba))?.entry().block(lba);
        if audit.doubled.contains(block) {
            store_entry(region, audit, lba, MapEntry::new(MapState::Error, block))?;
        }
    }
    Ok(region.fence()?)
}

fn store_entry<R: Region + ?Sized>(region: &R, audit: &Audit, lba: u32, entry: MapEntry) -> Result<(), OpenError> {
    let word = MapWord::load(region, audit.arena.map_at(lba))?;
    word.with(entry).store_and_flush(region);
    Ok(())
}

/// Writes the group of one lane: zeroes first, so that no mixture of old and new looks legal, then its only slot.
fn write_group<R: Region + ?Sized>(region: &R, audit: &Audit, number: u32, group: &FlogGroup) -> Result<(), Sealed> {
    let at = audit.arena.flog_at(number);
    region.stream(at, FlogGroup::new_zeroed().as_bytes());
    region.fence()?;
    let [first, second] = SlotPair::Adjacent.of(group)[0].words();
    region.store_u64(at, first);
    region.flush(at, 8);
    region.fence()?;
    region.store_u64(at + 8, second);
    region.flush(at + 8, 8);
    region.fence()
}

/// Makes both info blocks good and identical, and clears the error flag: the rest of the arena is sound by now.
pub(crate) fn info_blocks<R: Region + ?Sized>(region: &R, found: &LocatedArena) -> Result<(), Sealed> {
    let sound = found.first == CopyState::Good && found.second == CopyState::Good && !found.arena.in_error();
    if sound {
        return Ok(());
    }
    let info = found.info.with_error(false);
    let places = match found.first {
        CopyState::Good => [found.arena.info2_at(), found.arena.start()],
        _ => [found.arena.start(), found.arena.info2_at()],
    };
    for at in places {
        region.stream(at, info.as_bytes());
        region.fence()?;
    }
    Ok(())
}
