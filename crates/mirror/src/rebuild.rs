//! New sets, and the copy of a side onto another region.
//!
//! A rebuild is safe at any cut. The source says that it goes on alone before the target changes.
//! The target says that it is incomplete before its first byte changes, and that it is a side when
//! all of them are durable. Until the source says so too, the two are refused together, and the
//! rebuild begins anew: it compares, and stores what differs.

use crate::copy::{lines, pieces_that_differ, read_line};
use crate::error::MirrorError;
use crate::mirror::{Liveness, Mirror};
use crate::open::source_side;
use crate::page::{self, SyncSide};
use crate::redo::Redo;
use tidegate_layout::mirror::{MirrorSide, OpeningId, SideState};
use tidegate_media::{Region, Sealed};

/// What a rebuild has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Bytes that each side has for the volume.
    pub bytes: u64,
    /// Lines of 64 bytes that differed and were copied.
    pub copied_lines: u64,
    /// The number of the side that was rebuilt.
    pub side: u32,
}

/// Makes two regions of equal contents the sides 0 and 1 of the new set `set`.
pub fn create<R: Region>(regions: [R; 2], set: [u8; 16], sync: SyncSide<R>) -> Result<Mirror<R>, MirrorError> {
    let lengths = [regions[0].len(), regions[1].len()];
    if lengths[0] != lengths[1] {
        return Err(MirrorError::Lengths { lengths });
    }
    page::page_at(lengths[0]).ok_or(MirrorError::TooShort { bytes: lengths[0] })?;
    let of_side = |side| MirrorSide {
        set,
        generation: 1,
        region_bytes: lengths[0],
        side,
        state: SideState::Mirrored,
        opening: OpeningId::ABSENT,
        former: [0; 3],
    };
    for (argument, (region, number)) in regions.iter().zip([0, 1]).enumerate() {
        page::erase(region, sync)
            .and_then(|()| page::write(region, &of_side(number), sync))
            .map_err(|sealed| MirrorError::Sealed { region: argument, sealed })?;
    }
    Ok(Mirror::new(regions.map(Some), of_side(0), Liveness::Both, sync))
}

/// Makes `source`, a side, and `target` the sides of the new set `set`: copies what differs. A new
/// set, as a third region may have gone on from the former one by itself. `progress` is told the
/// bytes compared and those to compare.
pub fn rebuild<R: Region>(
    [source, target]: [&R; 2],
    set: [u8; 16],
    sync: SyncSide<R>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Rebuilt, MirrorError> {
    let (former, len) = refuse_unfit([source, target])?;
    Redo::finish(source).map_err(|sealed| MirrorError::Sealed { region: 0, sealed })?;
    // No other set has that one's openings.
    let none = MirrorSide { opening: OpeningId::ABSENT, former: [0; 3], ..former };
    let side = MirrorSide { set, generation: former.generation + 1, state: SideState::Alone, ..none };
    page::write(source, &side, sync).map_err(|sealed| MirrorError::Sealed { region: 0, sealed })?;
    let lost = |sealed| MirrorError::Sealed { region: 1, sealed };
    let twin = MirrorSide { side: 1 - side.side, state: SideState::Copying, ..side };
    page::erase(target, sync).and_then(|()| page::write(target, &twin, sync)).map_err(lost)?;
    let copied_lines = copy(source, target, len, progress)?;
    page::settle(target, sync).map_err(lost)?;
    let whole = MirrorSide { generation: side.generation + 1, state: SideState::Mirrored, ..side };
    let both: [(&R, u32); 2] = [(target, twin.side), (source, side.side)];
    for (region, number) in both {
        let written: Result<(), Sealed> = page::write(region, &MirrorSide { side: number, ..whole }, sync);
        written.map_err(|sealed| MirrorError::Sealed { region: usize::from(number != side.side), sealed })?;
    }
    Ok(Rebuilt { bytes: len, copied_lines, side: twin.side })
}

/// Refuses two regions of which the second cannot become a copy of the first, and changes nothing.
/// Returns what the first says of itself, and the bytes that each has for the volume.
pub fn refuse_unfit<R: Region>([source, target]: [&R; 2]) -> Result<(MirrorSide, u64), MirrorError> {
    let lengths = [source.len(), target.len()];
    if lengths[0] != lengths[1] {
        return Err(MirrorError::Lengths { lengths });
    }
    let len = page::page_at(lengths[0]).ok_or(MirrorError::TooShort { bytes: lengths[0] })?;
    Ok((source_side(source, 0)?, len))
}

/// Stores to `target` what differs from `source`; not durable. Returns the lines stored.
fn copy<R: Region>(source: &R, target: &R, len: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<u64, MirrorError> {
    let mut copied_lines = 0;
    pieces_that_differ(source, target, len, progress, |at, bytes| {
        for (at, bytes) in lines(at, bytes) {
            let right = read_line(source, at, bytes)?;
            if !read_line(target, at, bytes).is_ok_and(|found| found == right) {
                target.stream(at, right.bytes());
                copied_lines += 1;
            }
        }
        Ok::<(), MirrorError>(())
    })?;
    Ok(copied_lines)
}
