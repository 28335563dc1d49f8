//! Opening a set: which regions are its sides, whether both have every write, and how they are made
//! equal.
//!
//! Each opening has a generation of its own, so that a copy of a side from before it is not taken
//! for the side. Both are equal and durable first. Then, each step durable before the next:
//!
//! | step | side 0 | side 1 | side 1 replaced by its copy | side 0 replaced by its copy |
//! | --- | --- | --- | --- | --- |
//! | at rest | mirrored, g | mirrored, g | | |
//! | 1 | mirrored, g | opening, g+1 | equal | equal |
//! | 2 | mirrored, g+1 | opening, g+1 | stale | equal |
//! | 3 | mirrored, g+1 | mirrored, g+1 | stale | stale |
//!
//! The engine gets its first byte after step 3. So wherever a cut leaves a copy that is accepted,
//! no engine has stored since it was taken: side 0 is right then, as ever.
//!
//! Copies of both sides may be opened too, each time with a generation that the originals have as
//! well. Therefore each opening draws an [`OpeningId`], and a record names that of its generation
//! and part of that of the generation before: sides whose openings differ have diverged.

use crate::copy::{lines, pieces_that_differ, read_line};
use crate::error::MirrorError;
use crate::mirror::{Liveness, Mirror};
use crate::page::{self, Page, SyncSide};
use crate::redo::Redo;
use tidegate_layout::mirror::{MirrorSide, OpeningId, SideState};
use tidegate_media::{Region, Sealed};

/// What it took to make both sides equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resync {
    /// Lines of side 1 that got what side 0 holds.
    pub copied_lines: u64,
    /// Lines of side 0 that its memory did not give, and that got what side 1 holds.
    pub repaired_lines: u64,
}

/// Opens two regions, in any order, as the mirror that they are the sides of. They are equal
/// afterwards, durably. `opening` is to be a number that no other opening of a mirror has: one
/// drawn at random. `progress` is told the bytes compared and those to compare.
pub fn open<R: Region>(
    regions: [R; 2],
    opening: OpeningId,
    sync: SyncSide<R>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Mirror<R>, Resync), MirrorError> {
    let lengths = [regions[0].len(), regions[1].len()];
    if lengths[0] != lengths[1] {
        return Err(MirrorError::Lengths { lengths });
    }
    let [one, other] = [side_of(&regions[0], 0)?, side_of(&regions[1], 1)?];
    matching(&one, &other)?;
    let [one_region, other_region] = regions;
    let swapped = one.side == 1;
    let sides = if swapped { [other_region, one_region] } else { [one_region, other_region] };
    let len = page::page_at(lengths[0]).ok_or(MirrorError::TooShort { bytes: lengths[0] })?;
    let lost =
        |number: usize| move |sealed| MirrorError::Sealed { region: if swapped { 1 - number } else { number }, sealed };
    for (number, side) in sides.iter().enumerate() {
        Redo::finish(side).map_err(lost(number))?;
    }
    let resync = equalise(&sides, len, progress).map_err(|(number, sealed)| lost(number)(sealed))?;
    for (number, side) in sides.iter().enumerate() {
        page::settle(side, sync).map_err(lost(number))?;
    }
    let former = if swapped { other } else { one };
    let begun = begin(&sides, &former, opening, sync).map_err(|(number, sealed)| lost(number)(sealed))?;
    Ok((Mirror::new(sides.map(Some), begun, Liveness::Both, sync), resync))
}

/// Gives both sides the next generation after `former`, which side 0 has, and `opening`. Returns
/// what side 0 says then. Fails with the side that lost a store.
fn begin<R: Region>(
    sides: &[R; 2],
    former: &MirrorSide,
    opening: OpeningId,
    sync: SyncSide<R>,
) -> Result<MirrorSide, (usize, Sealed)> {
    let whole = MirrorSide {
        generation: former.generation + 1,
        side: 0,
        state: SideState::Mirrored,
        opening,
        former: former.opening.beginning(),
        ..*former
    };
    let second = MirrorSide { side: 1, ..whole };
    let steps = [(1, MirrorSide { state: SideState::Opening, ..second }), (0, whole), (1, second)];
    for (number, side) in steps {
        page::write(&sides[number], &side, sync).map_err(|sealed| (number, sealed))?;
    }
    Ok(whole)
}

/// Opens `region`, a side that has every write, without its twin.
///
/// If the twin was thought to have every write too, it is stale once the mirror says so: at
/// [`Mirror::go_alone`], or at the first store or fence after [`Mirror::engine_is_open`]. Until
/// then an engine may finish what a cut interrupted. That needs no record: the sides may differ in
/// it like after any cut, and an opening of both makes them equal.
pub fn open_alone<R: Region>(region: R, sync: SyncSide<R>) -> Result<Mirror<R>, MirrorError> {
    let side = source_side(&region, 0)?;
    let finished = Redo::finish(&region).and_then(|_| match side.state {
        SideState::Alone => page::go_alone(&region, side, sync),
        SideState::Mirrored | SideState::Copying | SideState::Opening => Ok(side),
    });
    let side = finished.map_err(|sealed| MirrorError::Sealed { region: 0, sealed })?;
    let mirror = lone(region, side, sync);
    Ok(if side.state == SideState::Alone { mirror } else { mirror.unsaid() })
}

/// The mirror of `region` alone, of which its page says `side`.
pub(crate) fn lone<R: Region>(region: R, side: MirrorSide, sync: SyncSide<R>) -> Mirror<R> {
    match side.side {
        0 => Mirror::new([Some(region), None], side, Liveness::First, sync),
        _ => Mirror::new([None, Some(region)], side, Liveness::Second, sync),
    }
}

/// What `region` says of itself, if it is a side. Errors name it as `argument`.
pub fn side_of<R: Region>(region: &R, argument: usize) -> Result<MirrorSide, MirrorError> {
    match page::read(region) {
        Page::Side(side) => Ok(side),
        Page::Damaged | Page::Unreadable => Err(MirrorError::DamagedPage { region: argument }),
        Page::Absent => Err(MirrorError::NotASide { region: argument }),
    }
}

/// What `region` says of itself, if it is a complete side.
pub(crate) fn source_side<R: Region>(region: &R, argument: usize) -> Result<MirrorSide, MirrorError> {
    let side = side_of(region, argument)?;
    if side.state == SideState::Copying {
        return Err(MirrorError::Incomplete { region: argument });
    }
    Ok(side)
}

/// Whether the two sides may be opened together.
fn matching(one: &MirrorSide, other: &MirrorSide) -> Result<(), MirrorError> {
    if one.set != other.set {
        return Err(MirrorError::OtherSet);
    }
    if one.side == other.side {
        return Err(MirrorError::SameSide { side: one.side });
    }
    match (one.state, other.state) {
        (SideState::Copying, _) => Err(MirrorError::Incomplete { region: 0 }),
        (_, SideState::Copying) => Err(MirrorError::Incomplete { region: 1 }),
        (SideState::Alone, SideState::Alone) => Err(MirrorError::Diverged),
        (SideState::Alone, _) => Err(behind(other, one, 1)),
        (_, SideState::Alone) => Err(behind(one, other, 0)),
        (_, SideState::Opening) if began_from(other, one) => Ok(()),
        (SideState::Opening, _) if began_from(one, other) => Ok(()),
        _ if one.generation < other.generation => Err(behind(one, other, 0)),
        _ if one.generation > other.generation => Err(behind(other, one, 1)),
        _ if one.opening != other.opening => Err(MirrorError::Diverged),
        _ => Ok(()),
    }
}

/// Whether a cut amid the opening that side 1 began may leave `first` on side 0.
fn began_from(second: &MirrorSide, first: &MirrorSide) -> bool {
    match second.generation.checked_sub(first.generation) {
        Some(0) => first.opening == second.opening,
        Some(1) => follows(second, first),
        _ => false,
    }
}

/// Whether `next` may have come from `former`, of the generation before it.
fn follows(next: &MirrorSide, former: &MirrorSide) -> bool {
    next.former == former.opening.beginning()
}

/// Why the side `old`, the argument `region`, is not opened with `new`, which has a greater
/// generation, or one as great and went on alone: it is stale, or was opened apart as well.
fn behind(old: &MirrorSide, new: &MirrorSide, region: usize) -> MirrorError {
    let is_before = match new.generation.checked_sub(old.generation) {
        None => false,
        // It went on alone from the generation before, which an opening meanwhile gave to both.
        Some(0) => new.former == old.former,
        Some(1) => follows(new, old),
        Some(_) => true,
    };
    if is_before { MirrorError::Stale { region } } else { MirrorError::Diverged }
}

/// Stores to side 1 what differs from side 0, and to side 0 what only side 1 gives. Lines that
/// neither gives stay bad in both. Fails with the side that lost a store.
fn equalise<R: Region>(
    sides: &[R; 2],
    len: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Resync, (usize, Sealed)> {
    let [first, second] = sides;
    let mut resync = Resync::default();
    let mut redo = [Redo::default(), Redo::default()];
    let of = |side: usize| move |sealed: Sealed| (side, sealed);
    pieces_that_differ(first, second, len, progress, |at, bytes| {
        for (at, bytes) in lines(at, bytes) {
            match (read_line(first, at, bytes), read_line(second, at, bytes)) {
                (Ok(right), Ok(found)) if right == found => {}
                (Ok(right), _) => {
                    redo[1].add(second, at, &right).map_err(of(1))?;
                    resync.copied_lines += 1;
                }
                (Err(_), Ok(right)) => {
                    redo[0].add(first, at, &right).map_err(of(0))?;
                    resync.repaired_lines += 1;
                }
                (Err(_), Err(_)) => {}
            }
        }
        Ok(())
    })?;
    redo[0].store(first).map_err(of(0))?;
    redo[1].store(second).map_err(of(1))?;
    Ok(resync)
}
