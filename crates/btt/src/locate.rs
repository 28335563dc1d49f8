//! Finds the arenas of a volume by either copy of their info blocks.
//!
//! The first arena starts at byte 4096 (version 1.1) or at 0 (2.0). Where both places look like
//! one, both copies that agree win over one alone: a version-2.0 volume's data may hold the image
//! of a 1.1 volume, and a 1.1 volume leaves the first page, with whatever lay there, alone.

use std::fmt;
use tidegate_layout::Broken;
use tidegate_layout::btt::{ARENA_BYTES_MAX, Arena, InfoBlock, PAGE_BYTES, Version, sector_data_bytes};
use tidegate_media::{Corrupt, Poison, Region};
use zerocopy::{FromZeros, IntoBytes};

/// What a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The format's version.
    pub version: Version,
    /// The volume's identity.
    pub uuid: [u8; 16],
    /// The identity of the namespace around it, or zeroes.
    pub parent_uuid: [u8; 16],
    /// Bytes of a sector, per-sector metadata included.
    pub sector_size: u32,
    /// Bytes of data in a sector: the block size of the device.
    pub block_size: u32,
    /// Sectors in all arenas.
    pub blocks: u64,
    /// Arenas.
    pub arenas: u32,
    /// Free blocks in each arena.
    pub nfree: u32,
}

/// What to do with a first info block that is damaged, where the second copy is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstCopy {
    /// Write it back where it was clearly ours: it has the signature, or is all zero. Otherwise
    /// refuse.
    #[default]
    RestoreIfOurs,
    /// Go by the second copy and leave the first as it is.
    Leave,
}

/// The arenas of a volume.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) arenas: Vec<LocatedArena>,
}

/// One arena and the state of its two info blocks.
#[derive(Debug)]
pub(crate) struct LocatedArena {
    pub(crate) arena: Arena,
    /// The copy the arena was read from.
    pub(crate) info: InfoBlock,
    pub(crate) first: CopyState,
    pub(crate) second: CopyState,
}

/// The state of one copy of an info block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyState {
    Good,
    /// Good by itself, and different from the other copy.
    Differs,
    Damaged(Broken),
    Zero,
    /// Without the signature: perhaps somebody else's.
    Foreign,
    /// The medium does not give it back.
    Unreadable(Poison),
}

/// Why no volume was found.
#[derive(Debug)]
pub(crate) enum NotLocated {
    /// No info block, and nothing that was one.
    Absent,
    /// What was once an info block, or part of a volume, breaks a rule.
    Corrupt(Corrupt),
    /// The region ends before the volume does.
    CutShort { needs: u64, has: u64 },
    /// The medium gives neither info block back.
    Unreadable(Poison),
}

impl CopyState {
    fn of(info: &InfoBlock, broken: Broken) -> CopyState {
        match () {
            () if info.is_zero() => CopyState::Zero,
            () if info.has_signature() => CopyState::Damaged(broken),
            () => CopyState::Foreign,
        }
    }
}

/// One copy of an info block: its bytes, and the arena they describe or what is the matter with
/// them.
struct InfoCopy {
    info: InfoBlock,
    arena: Result<Arena, CopyState>,
}

impl fmt::Display for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyState::Good => f.write_str("good"),
            CopyState::Differs => f.write_str("different from the other copy"),
            CopyState::Damaged(broken) => write!(f, "damaged: {broken}"),
            CopyState::Zero => f.write_str("all zero"),
            CopyState::Foreign => f.write_str("not an info block"),
            CopyState::Unreadable(poison) => write!(f, "unreadable: {poison}"),
        }
    }
}

impl Located {
    pub(crate) fn summary(&self) -> Summary {
        let first = &self.arenas[0].arena;
        let sector_size = first.geometry().external_lbasize;
        Summary {
            version: first.version(),
            uuid: first.uuid(),
            parent_uuid: first.parent_uuid(),
            sector_size,
            block_size: sector_data_bytes(sector_size),
            blocks: self.arenas.iter().map(|found| u64::from(found.arena.geometry().external_nlba)).sum(),
            arenas: u32::try_from(self.arenas.len()).expect("a region has fewer than 2^25 arenas"),
            nfree: first.geometry().nfree,
        }
    }
}

/// Finds the volume on `region`, of `version` or of any.
pub(crate) fn locate<R: Region + ?Sized>(region: &R, version: Option<Version>) -> Result<Located, NotLocated> {
    let mut best: Option<LocatedArena> = None;
    let mut reason = NotLocated::Absent;
    for candidate in [Version::V2_0, Version::V1_1] {
        if version.is_some_and(|wanted| wanted != candidate) {
            continue;
        }
        match locate_arena(region, candidate.start(), Some(candidate)) {
            Ok(found) if best.as_ref().is_none_or(|best| trust(&found) > trust(best)) => best = Some(found),
            Ok(_) | Err(NotLocated::Absent) => {}
            Err(other) => reason = other,
        }
    }
    locate_rest(region, best.ok_or(reason)?)
}

/// Two good copies that agree, a good first copy, a good second copy.
fn trust(found: &LocatedArena) -> u32 {
    match (&found.first, &found.second) {
        (CopyState::Good, CopyState::Good) => 3,
        (CopyState::Good, _) => 2,
        _ => 1,
    }
}

fn locate_rest<R: Region + ?Sized>(region: &R, first: LocatedArena) -> Result<Located, NotLocated> {
    let mut arenas = vec![first];
    while let Some(start) = arenas.last().and_then(|found| found.arena.next()) {
        if start >= region.len() {
            return Err(NotLocated::CutShort { needs: start + PAGE_BYTES, has: region.len() });
        }
        match locate_arena(region, start, None) {
            Ok(found) if same_volume(&found.arena, &arenas[0].arena) => arenas.push(found),
            Ok(_) => return Err(corrupt("all arenas are of one volume", start, "another uuid, sector size or nfree")),
            Err(NotLocated::Absent) => return Err(corrupt("each arena has an info block", start, "none")),
            Err(other) => return Err(other),
        }
    }
    Ok(Located { arenas })
}

fn corrupt(rule: &'static str, at: u64, found: &str) -> NotLocated {
    NotLocated::Corrupt(Corrupt { rule, at, found: found.to_owned() })
}

fn same_volume(a: &Arena, b: &Arena) -> bool {
    let (ga, gb) = (a.geometry(), b.geometry());
    a.uuid() == b.uuid() && ga.external_lbasize == gb.external_lbasize && ga.nfree == gb.nfree
}

fn locate_arena<R: Region + ?Sized>(
    region: &R,
    start: u64,
    version: Option<Version>,
) -> Result<LocatedArena, NotLocated> {
    let twin_at = twin_place(start, region.len().saturating_sub(start)).ok_or(NotLocated::Absent)?;
    let InfoCopy { info, arena } = read_copy(region, start, start, version);
    match arena {
        Ok(arena) => {
            let twin = read_copy(region, arena.info2_at(), start, None);
            let second = match twin.arena {
                Ok(_) if twin.info == info => CopyState::Good,
                Ok(_) => CopyState::Differs,
                Err(state) => state,
            };
            Ok(LocatedArena { arena, info, first: CopyState::Good, second })
        }
        Err(first) => match read_copy(region, twin_at, start, version) {
            InfoCopy { info, arena: Ok(arena) } if arena.info2_at() == twin_at => {
                Ok(LocatedArena { arena, info, first, second: CopyState::Good })
            }
            _ => Err(why_not(&info, first, start, region.len())),
        },
    }
}

/// Reads the copy at `at` of the info block of an arena that starts at `start`.
fn read_copy<R: Region + ?Sized>(region: &R, at: u64, start: u64, version: Option<Version>) -> InfoCopy {
    let mut info = InfoBlock::new_zeroed();
    let arena = match region.read(at, info.as_mut_bytes()) {
        Err(poison) => Err(CopyState::Unreadable(poison)),
        Ok(()) => {
            check_version(&info, start, region.len() - start, version).map_err(|broken| CopyState::of(&info, broken))
        }
    };
    InfoCopy { info, arena }
}

/// Where the second copy lies in an arena that takes all it can, as every writer lays them out.
fn twin_place(start: u64, room: u64) -> Option<u64> {
    let whole = room.min(ARENA_BYTES_MAX);
    Some(start + (whole - whole % PAGE_BYTES).checked_sub(PAGE_BYTES).filter(|offset| *offset > 0)?)
}

fn check_version(info: &InfoBlock, start: u64, room: u64, version: Option<Version>) -> Result<Arena, Broken> {
    let arena = info.check(start, room)?;
    match version {
        Some(version) if version != arena.version() => Err(Broken {
            rule: "version 1.1 starts at byte 4096 and version 2.0 at byte 0",
            offset: 52,
            found: format!("version {} at byte {start}", arena.version()),
        }),
        _ => Ok(arena),
    }
}

fn why_not(info: &InfoBlock, first: CopyState, start: u64, has: u64) -> NotLocated {
    let broken = match first {
        CopyState::Damaged(broken) => broken,
        CopyState::Unreadable(poison) => return NotLocated::Unreadable(poison),
        CopyState::Good | CopyState::Differs | CopyState::Zero | CopyState::Foreign => return NotLocated::Absent,
    };
    let ends = info.info2off.get().saturating_add(start).saturating_add(PAGE_BYTES);
    let sound = info.with_checksum() == *info;
    if sound && ends > has && info.check(start, u64::MAX).is_ok() {
        return NotLocated::CutShort { needs: ends, has };
    }
    NotLocated::Corrupt(Corrupt { rule: broken.rule, at: start + broken.offset, found: broken.found })
}
