//! Lays out a fresh volume.
//!
//! A half-written layout must never be taken for a valid one, over any older contents:
//! 1. Every place where an info block could lie is zeroed: second copies first, then the first
//!    page, then the others, so that an old volume stays whole until its first copy goes (the
//!    second page holds data, where the first is its info block).
//! 2. Maps and flogs are written, and all other places that must read as zeroes.
//! 3. Info blocks are written last, from the highest arena to the lowest, the second copy before
//!    the first.
//!
//! A cut before the very last info block leaves either no volume, or a second copy whose volume is
//! complete.

use tidegate_layout::btt::{
    ARENA_BYTES_MAX, ARENA_BYTES_MIN, Arena, ArenaGeometry, FlogGroup, FlogHalf, InfoBlock, MapEntry, MapState, NFREE,
    PAGE_BYTES, SECTOR_SIZES, TooSmall, Version, arenas, sector_data_bytes,
};
use tidegate_media::{Contents, Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// What to lay out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatSpec {
    /// The format's version: 1.1 unless the region is a namespace with labels of version 1.2.
    pub version: Version,
    /// Bytes of a sector: one of [`SECTOR_SIZES`].
    pub sector_size: u32,
    /// The volume's identity.
    pub uuid: [u8; 16],
    /// The identity of the namespace around it, or zeroes.
    pub parent_uuid: [u8; 16],
}

/// Why a region was not formatted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The region has no room for one arena.
    #[error("{has} bytes are too few: a volume takes at least {min}")]
    TooSmall {
        /// Bytes in the region.
        has: u64,
        /// Bytes a volume takes at least.
        min: u64,
    },
    /// A sector size the format does not have.
    #[error("{0} is no sector size of the format, which has {SECTOR_SIZES:?}")]
    SectorSize(u32),
    /// The medium refused a store; the region holds no volume now.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}

/// An arena to be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedArena {
    /// Where it starts in the region, in bytes.
    pub start: u64,
    /// How it is cut.
    pub geometry: ArenaGeometry,
}

/// Lays out a fresh volume over all of `region`. What lay there is gone. If that was
/// [`Contents::Unknown`], the volume reads zeroes all the same: its map starts in the zero state,
/// or, for the 512-byte class whose zero state Linux misreads, its data area is zeroed.
pub fn format<R: Region + ?Sized>(region: &R, spec: &FormatSpec, contents: Contents) -> Result<(), FormatError> {
    let plan = plan(region.len(), spec.version, spec.sector_size)?;
    format_arenas(region, spec, &plan, contents)
}

/// How [`format()`] cuts a region of `bytes` into arenas.
pub fn plan(bytes: u64, version: Version, sector_size: u32) -> Result<Vec<PlannedArena>, FormatError> {
    if !SECTOR_SIZES.contains(&sector_size) {
        return Err(FormatError::SectorSize(sector_size));
    }
    let found = arenas(bytes, version).map_err(|TooSmall { min }| FormatError::TooSmall { has: bytes, min })?;
    Ok(found
        .into_iter()
        .map(|(start, size)| PlannedArena {
            start,
            geometry: ArenaGeometry::of(size, sector_size, NFREE).expect("an arena of the least size has blocks"),
        })
        .collect())
}

/// Lays out a fresh volume of exactly these arenas.
///
/// For tests: volumes of a few blocks. [`format()`] takes the arenas of [`plan`].
pub fn format_arenas<R: Region + ?Sized>(
    region: &R,
    spec: &FormatSpec,
    plan: &[PlannedArena],
    contents: Contents,
) -> Result<(), FormatError> {
    let infos = info_blocks(spec, plan);
    wipe_info_blocks(region, plan)?;
    for (planned, info) in plan.iter().zip(&infos) {
        let arena = info
            .check(planned.start, region.len() - planned.start)
            .expect("a planned arena keeps the rules of the format");
        if contents == Contents::Unknown {
            clear(region, &arena)?;
        }
        write_flog(region, &arena);
    }
    region.fence()?;
    for (planned, info) in plan.iter().zip(&infos).rev() {
        for at in [planned.start + planned.geometry.info2off, planned.start] {
            region.stream(at, info.as_bytes());
            region.fence()?;
        }
    }
    Ok(())
}

fn info_blocks(spec: &FormatSpec, plan: &[PlannedArena]) -> Vec<InfoBlock> {
    let starts = plan.iter().skip(1).map(|next| Some(next.start)).chain([None]);
    plan.iter()
        .zip(starts)
        .map(|(planned, next)| {
            let distance = next.map(|next| next - planned.start);
            InfoBlock::new(&planned.geometry, spec.version, spec.uuid, spec.parent_uuid, distance)
        })
        .collect()
}

/// Zeroes every place where an info block of any version could lie.
fn wipe_info_blocks<R: Region + ?Sized>(region: &R, plan: &[PlannedArena]) -> Result<(), Sealed> {
    let mut firsts = vec![PAGE_BYTES];
    let mut seconds = Vec::new();
    for version in Version::ALL {
        for (start, bytes) in arenas(region.len(), version).unwrap_or_default() {
            firsts.push(start);
            seconds.push(start + bytes - bytes % PAGE_BYTES - PAGE_BYTES);
        }
    }
    for planned in plan {
        firsts.push(planned.start);
        seconds.push(planned.start + planned.geometry.info2off);
    }
    for mut places in [seconds, vec![0], firsts] {
        places.sort_unstable();
        places.dedup();
        for at in places {
            region.stream(at, &[0; PAGE]);
        }
        region.fence()?;
    }
    Ok(())
}

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_BYTES && ARENA_BYTES_MIN >= 2 * PAGE_BYTES);
const _: () = assert!(ARENA_BYTES_MAX.is_multiple_of(PAGE_BYTES));

/// Makes every sector of `arena` read as zeroes, whatever its bytes are.
fn clear<R: Region + ?Sized>(region: &R, arena: &Arena) -> Result<(), Sealed> {
    let geometry = arena.geometry();
    let map = arena.map_at(0)..arena.start() + geometry.logoff;
    if sector_data_bytes(geometry.external_lbasize) == 512 {
        stream_pages(region, arena.data_at(0)..arena.start() + geometry.mapoff, |_| 0);
        stream_pages(region, map, |_| 0);
    } else {
        stream_pages(region, map, |lba| match u32::try_from(lba) {
            Ok(lba) if lba < geometry.external_nlba => MapEntry::new(MapState::Zero, lba).raw(),
            _ => 0,
        });
    }
    region.fence()
}

/// Streams pages of 32-bit words, each word a function of its number in `range`.
fn stream_pages<R: Region + ?Sized>(region: &R, range: std::ops::Range<u64>, word: impl Fn(u64) -> u32) {
    const WORDS: usize = PAGE / 4;
    let mut page = [0u32; WORDS];
    for at in range.clone().step_by(PAGE) {
        let first = (at - range.start) / 4;
        for (number, value) in (first..).zip(&mut page) {
            *value = word(number).to_le();
        }
        let bytes = usize::try_from((range.end - at).min(PAGE_BYTES)).expect("at most a page");
        region.stream(at, &page.as_bytes()[..bytes]);
    }
}

/// Writes the flog of lanes that never wrote: lane n owns block `external_nlba` + n.
fn write_flog<R: Region + ?Sized>(region: &R, arena: &Arena) {
    let geometry = arena.geometry();
    let table_bytes = (geometry.nfree as usize * size_of::<FlogGroup>()).next_multiple_of(PAGE);
    let mut table = vec![0; table_bytes];
    for (lane, bytes) in (0..geometry.nfree).zip(table.chunks_exact_mut(size_of::<FlogGroup>())) {
        bytes.copy_from_slice(unused_lane(arena, lane, geometry.external_nlba + lane).as_bytes());
    }
    region.stream(arena.flog_at(0), &table);
}

/// The flog group of a lane that owns `free` and never wrote.
pub(crate) fn unused_lane(arena: &Arena, lane: u32, free: u32) -> FlogGroup {
    let mut group = FlogGroup::new_zeroed();
    let lba = lane.min(arena.geometry().external_nlba - 1);
    group.slots[0] = FlogHalf::new(lba, free, free, 1);
    group
}
