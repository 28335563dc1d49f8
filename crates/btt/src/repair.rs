//! Repairs the damage that a check found.
//!
//! By rule 4 of the check there are exactly as many blocks named nowhere as there are sectors and
//! lanes without a block of their own, so each of them gets one. Repair does not guess: a sector
//! that shared its block with another, and that other, end in the error state.
//!
//! Where the map cannot be read, all entries of a line are lost together, and the line is stored
//! whole.
//!
//! After a power cut in any step, a further repair finishes the volume.

use crate::audit::Audit;
use crate::format::unused_lane;
use crate::identify::OpenError;
use crate::locate::{CopyState, LocatedArena};
use crate::map::MapWord;
use std::collections::BTreeMap;
use tidegate_layout::btt::{FlogGroup, FlogHalf, MapEntry, MapState, SlotPair};
use tidegate_media::{LINE_BYTES, Poison, Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of a line, which is what a medium loses and makes good at once.
const LINE: usize = 64;
const _: () = assert!(LINE as u64 == LINE_BYTES);

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
    let lost = audit.bad_sectors.iter().map(|lba| (*lba, MapEntry::new(MapState::Error, next()))).collect();
    lose(region, audit, &lost)?;
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

/// Makes map and flog durable as they were read: a process that was killed may have left them in
/// the caches only.
fn settle<R: Region + ?Sized>(region: &R, audit: &Audit) -> Result<(), Sealed> {
    let geometry = audit.arena.geometry();
    region.flush(audit.arena.map_at(0), u64::from(geometry.external_nlba) * size_of::<MapEntry>() as u64);
    region.flush(audit.arena.flog_at(0), u64::from(geometry.nfree) * size_of::<FlogGroup>() as u64);
    region.fence()
}

/// Puts the first sector of each shared block in the error state, on the block it has. The others
/// are the bad sectors.
fn lose_sharers<R: Region + ?Sized>(region: &R, audit: &Audit) -> Result<(), OpenError> {
    for (lba, entry) in audit.shared(region).first_of_several {
        store_entry(region, audit, lba, MapEntry::new(MapState::Error, entry.block(lba)))?;
    }
    Ok(region.fence()?)
}

/// Gives the `lost` sectors the entries that they are to have. Lines of the map that cannot be read
/// are stored whole, which makes memory good again if anything does, and are read back: a medium
/// that refuses that is not to be called repaired.
fn lose<R: Region + ?Sized>(region: &R, audit: &Audit, lost: &BTreeMap<u32, MapEntry>) -> Result<(), OpenError> {
    let mut stored_whole: Vec<u64> = Vec::new();
    for (lba, entry) in lost {
        let at = audit.arena.map_at(*lba);
        let line_at = at - at % LINE_BYTES;
        if stored_whole.last() == Some(&line_at) {
            continue;
        }
        if let Ok(word) = MapWord::load(region, at) {
            word.with(*entry).store_and_flush(region);
        } else {
            region.stream(line_at, &line_with(region, audit, lost, line_at)?);
            stored_whole.push(line_at);
        }
    }
    region.fence()?;
    Ok(stored_whole.into_iter().try_for_each(|at| region.read(at, &mut [0; LINE]))?)
}

/// The line at `at` with the entries of the `lost` sectors. What else of the map it has is kept, or
/// nothing is stored; what lies beyond the map's end means nothing.
fn line_with<R: Region + ?Sized>(
    region: &R,
    audit: &Audit,
    lost: &BTreeMap<u32, MapEntry>,
    at: u64,
) -> Result<[u8; LINE], Poison> {
    let mut line = [0; LINE];
    let (words, _) = line.as_chunks_mut::<4>();
    for (word, at) in words.iter_mut().zip((at..).step_by(size_of::<MapEntry>())) {
        let number = at.checked_sub(audit.arena.map_at(0)).map(|bytes| bytes / size_of::<MapEntry>() as u64);
        let lba = number.and_then(|number| u32::try_from(number).ok());
        match lba.filter(|lba| *lba < audit.arena.geometry().external_nlba) {
            Some(lba) => match lost.get(&lba) {
                Some(entry) => *word = entry.raw().to_le_bytes(),
                None => region.read(at, word)?,
            },
            None => *word = region.read(at, word).map_or([0; 4], |()| *word),
        }
    }
    Ok(line)
}

fn store_entry<R: Region + ?Sized>(region: &R, audit: &Audit, lba: u32, entry: MapEntry) -> Result<(), OpenError> {
    let word = MapWord::load(region, audit.arena.map_at(lba))?;
    word.with(entry).store_and_flush(region);
    Ok(())
}

/// Writes the group of one lane: zeroes first, so that no mixture of old and new looks legal, then
/// its only slot.
fn write_group<R: Region + ?Sized>(region: &R, audit: &Audit, number: u32, group: &FlogGroup) -> Result<(), Sealed> {
    let at = audit.arena.flog_at(number);
    region.stream(at, FlogGroup::new_zeroed().as_bytes());
    region.fence()?;
    let [first, second] = SlotPair::Adjacent.of(group)[0].words();
    region.store_u64(at, first);
    region.flush(at, 8);
    region.fence()?;
    region.store_u64(at + FlogHalf::SECOND_WORD_AT, second);
    region.flush(at + FlogHalf::SECOND_WORD_AT, 8);
    region.fence()
}

/// Makes both info blocks good and identical, and clears the error flag: the rest of the arena is
/// sound by now.
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
