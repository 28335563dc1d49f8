//! Where everything lies: a region cut into arenas, and an arena cut into its parts.

use std::fmt;

/// Structures of an arena start on multiples of this.
pub const PAGE_BYTES: u64 = 4096;
/// Largest arena.
pub const ARENA_BYTES_MAX: u64 = 1 << 39;
/// Smallest arena; a shorter rest of a region stays unused.
pub const ARENA_BYTES_MIN: u64 = 1 << 24;
/// Free blocks, and so lanes, of an arena formatted here. Linux refuses fewer.
pub const NFREE: u32 = 256;
/// Sector sizes of the format: data, or data and per-sector metadata.
pub const SECTOR_SIZES: [u32; 7] = [512, 520, 528, 4096, 4104, 4160, 4224];

const FLOG_GROUP_BYTES: u64 = 64;
const MAP_ENTRY_BYTES: u64 = 4;
const INTERNAL_BLOCK_MULTIPLE: u32 = 64;

/// The two versions. They differ in the version fields and in where the first arena starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.1: the first arena starts at byte 4096 (namespaces without labels).
    V1_1,
    /// 2.0: the first arena starts at byte 0.
    V2_0,
}

impl Version {
    /// Both versions.
    pub const ALL: [Version; 2] = [Version::V1_1, Version::V2_0];

    /// Where the first arena starts in the region, in bytes.
    pub const fn start(self) -> u64 {
        match self {
            Version::V1_1 => PAGE_BYTES,
            Version::V2_0 => 0,
        }
    }

    /// The numbers in the info block.
    pub const fn major_minor(self) -> (u16, u16) {
        match self {
            Version::V1_1 => (1, 1),
            Version::V2_0 => (2, 0),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.major_minor();
        write!(f, "{major}.{minor}")
    }
}

/// Bytes of data in a sector of `sector_size`; the rest is per-sector metadata.
pub const fn sector_data_bytes(sector_size: u32) -> u32 {
    if sector_size >= 4096 { 4096 } else { 512 }
}

/// Distance between blocks of `sector_size` in the data area, as Linux chooses it.
const fn internal_block_size(sector_size: u32) -> u32 {
    sector_size.next_multiple_of(INTERNAL_BLOCK_MULTIPLE)
}

/// How an arena of some size is cut. All offsets count from the start of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaGeometry {
    /// Bytes of a sector as users see it, metadata included.
    pub external_lbasize: u32,
    /// Sectors users see.
    pub external_nlba: u32,
    /// Distance between blocks in the data area.
    pub internal_lbasize: u32,
    /// Blocks in the data area.
    pub internal_nlba: u32,
    /// Free blocks, one for each lane.
    pub nfree: u32,
    /// Start of the data area.
    pub dataoff: u64,
    /// Start of the map.
    pub mapoff: u64,
    /// Start of the flog.
    pub logoff: u64,
    /// Start of the second info block, in the arena's last page.
    pub info2off: u64,
}

impl ArenaGeometry {
    /// The geometry Linux gives an arena of `bytes` with `nfree` free blocks, or `None` if not one
    /// block fits.
    ///
    /// Sizes from [`ARENA_BYTES_MIN`] on with [`NFREE`] are the format's; smaller ones serve tests.
    pub fn of(bytes: u64, sector_size: u32, nfree: u32) -> Option<ArenaGeometry> {
        let whole = bytes - bytes % PAGE_BYTES;
        let log_bytes = (u64::from(nfree) * FLOG_GROUP_BYTES).next_multiple_of(PAGE_BYTES);
        let avail = whole.checked_sub(2 * PAGE_BYTES + log_bytes)?;
        let internal_lbasize = internal_block_size(sector_size);
        let internal = avail.checked_sub(PAGE_BYTES)? / (u64::from(internal_lbasize) + MAP_ENTRY_BYTES);
        let internal_nlba = u32::try_from(internal).ok()?;
        let external_nlba = internal_nlba.checked_sub(nfree).filter(|blocks| *blocks > 0)?;
        let map_bytes = (u64::from(external_nlba) * MAP_ENTRY_BYTES).next_multiple_of(PAGE_BYTES);
        let mapoff = PAGE_BYTES + avail - map_bytes;
        let logoff = mapoff + map_bytes;
        let info2off = logoff + log_bytes;
        Some(ArenaGeometry {
            external_lbasize: sector_size,
            external_nlba,
            internal_lbasize,
            internal_nlba,
            nfree,
            dataoff: PAGE_BYTES,
            mapoff,
            logoff,
            info2off,
        })
    }

    /// Bytes from the start of the arena to its end.
    pub fn bytes(&self) -> u64 {
        self.info2off + PAGE_BYTES
    }
}

/// A region too small for even one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// Smallest region, in bytes.
    pub min: u64,
}

/// The arenas of a region of `bytes`: where each starts in the region, and its size, in ascending
/// order.
pub fn arenas(bytes: u64, version: Version) -> Result<Vec<(u64, u64)>, TooSmall> {
    let mut start = version.start();
    let mut found = Vec::new();
    while bytes.saturating_sub(start) >= ARENA_BYTES_MIN {
        let size = (bytes - start).min(ARENA_BYTES_MAX);
        found.push((start, size));
        start += size;
    }
    if found.is_empty() { Err(TooSmall { min: version.start() + ARENA_BYTES_MIN }) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Namespace bytes, version, sector size; external and internal blocks, map, flog and second
    /// info block.
    type Golden = (u64, Version, u32, [u64; 5]);

    const MIB: u64 = 1 << 20;
    const GOLDEN: [Golden; 11] = [
        (32 * MIB, Version::V1_1, 4096, [7920, 8176, 0x1ff2000, 0x1ffa000, 0x1ffe000]),
        (32 * MIB, Version::V1_1, 512, [64708, 64964, 0x1fba000, 0x1ffa000, 0x1ffe000]),
        (32 * MIB, Version::V1_1, 520, [57539, 57795, 0x1fc1000, 0x1ffa000, 0x1ffe000]),
        (32 * MIB, Version::V1_1, 528, [57539, 57795, 0x1fc1000, 0x1ffa000, 0x1ffe000]),
        (32 * MIB, Version::V1_1, 4104, [7794, 8050, 0x1ff2000, 0x1ffa000, 0x1ffe000]),
        (32 * MIB, Version::V1_1, 4224, [7672, 7928, 0x1ff2000, 0x1ffa000, 0x1ffe000]),
        (32 * MIB, Version::V2_0, 4096, [7921, 8177, 0x1ff3000, 0x1ffb000, 0x1fff000]),
        (32 * MIB + 4096, Version::V1_1, 4096, [7921, 8177, 0x1ff3000, 0x1ffb000, 0x1fff000]),
        (16 * MIB + 4096, Version::V1_1, 4096, [3829, 4085, 0xff7000, 0xffb000, 0xfff000]),
        (64 * MIB, Version::V1_1, 4096, [16104, 16360, 0x3fea000, 0x3ffa000, 0x3ffe000]),
        (64 * MIB, Version::V2_0, 4096, [16105, 16361, 0x3feb000, 0x3ffb000, 0x3fff000]),
    ];

    fn numbers(geometry: &ArenaGeometry) -> [u64; 5] {
        let blocks = [geometry.external_nlba, geometry.internal_nlba].map(u64::from);
        [blocks[0], blocks[1], geometry.mapoff, geometry.logoff, geometry.info2off]
    }

    #[test]
    fn geometry_is_that_of_linux() {
        for (bytes, version, sector_size, expected) in GOLDEN {
            let arenas = arenas(bytes, version).unwrap();
            assert_eq!(arenas.len(), 1);
            let geometry = ArenaGeometry::of(arenas[0].1, sector_size, NFREE).unwrap();
            assert_eq!(numbers(&geometry), expected, "{bytes} bytes, {version}, {sector_size}");
            assert_eq!(geometry.bytes(), arenas[0].1);
        }
    }

    #[test]
    fn a_region_over_512_gib_has_two_arenas() {
        let arenas = arenas((512 << 30) + 32 * MIB, Version::V1_1).unwrap();
        assert_eq!(arenas, [(4096, ARENA_BYTES_MAX), (4096 + ARENA_BYTES_MAX, 32 * MIB - 4096)]);
        let first = ArenaGeometry::of(arenas[0].1, 4096, NFREE).unwrap();
        assert_eq!(numbers(&first), [134_086_520, 134_086_776, 0x7fe007b000, 0x7fffffb000, 0x7ffffff000]);
        let second = ArenaGeometry::of(arenas[1].1, 4096, NFREE).unwrap();
        assert_eq!(numbers(&second), [7920, 8176, 0x1ff2000, 0x1ffa000, 0x1ffe000]);
    }

    #[test]
    fn the_smallest_region() {
        assert_eq!(arenas(16 * MIB, Version::V1_1), Err(TooSmall { min: 16 * MIB + 4096 }));
        assert_eq!(arenas(16 * MIB, Version::V2_0), Ok(vec![(0, 16 * MIB)]));
        assert_eq!(arenas(0, Version::V2_0), Err(TooSmall { min: 16 * MIB }));
    }

    #[test]
    fn parts_never_overlap() {
        for bytes in (5 * PAGE_BYTES..40 * PAGE_BYTES).step_by(1000) {
            for sector_size in SECTOR_SIZES {
                let Some(geometry) = ArenaGeometry::of(bytes, sector_size, 4) else { continue };
                let data = u64::from(geometry.internal_nlba) * u64::from(geometry.internal_lbasize);
                assert!(geometry.dataoff + data <= geometry.mapoff, "{geometry:?}");
                assert!(geometry.mapoff + u64::from(geometry.external_nlba) * 4 <= geometry.logoff);
                assert!(geometry.bytes() <= bytes);
            }
        }
    }
}
