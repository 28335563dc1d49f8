//! The info block: the description of an arena, twice in each arena. [`InfoBlock`] is the bytes,
//! [`Arena`] their meaning once every rule holds.

use super::checksum::Fletcher64;
use super::geometry::{ARENA_BYTES_MAX, ArenaGeometry, PAGE_BYTES, SECTOR_SIZES, Version};
use crate::on_media::{Broken, on_media, rule};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// First bytes of an info block.
const SIGNATURE: [u8; 16] = *b"BTT_ARENA_INFO\0\0";
/// Flag of an arena in error: it takes no writes.
const FLAG_ERROR: u32 = 1;

const INFO_BYTES: u32 = 4096;
const CHECKSUM_OFFSET: usize = 4088;
const INTERNAL_NLBA_MAX: u64 = 1 << 30;

on_media! {
    /// What an arena is. At the arena's start, and an identical copy in its last page. All offsets
    /// count from the start of the arena.
    pub struct InfoBlock [4096] {
        /// `BTT_ARENA_INFO` and two zero bytes
        0: signature: [u8; 16],
        /// of the volume, the same in all its arenas
        16: uuid: [u8; 16],
        /// of the namespace around it, or zeroes
        32: parent_uuid: [u8; 16],
        /// bit 0: the arena is in error and takes no writes
        48: flags: U32,
        /// 1 or 2
        52: version_major: U16,
        /// 1 with major 1, 0 with major 2
        54: version_minor: U16,
        /// bytes of a sector as users see it, metadata included
        56: external_lbasize: U32,
        /// sectors users see in this arena
        60: external_nlba: U32,
        /// distance between blocks in the data area
        64: internal_lbasize: U32,
        /// blocks in the data area: `external_nlba` + `nfree`
        68: internal_nlba: U32,
        /// free blocks, one for each lane
        72: nfree: U32,
        /// size of this struct
        76: infosize: U32,
        /// from the start of this arena to the start of the next; 0 in the last
        80: nextoff: U64,
        /// start of the data area
        88: dataoff: U64,
        /// start of the map
        96: mapoff: U64,
        /// start of the flog
        104: logoff: U64,
        /// start of the copy of this struct
        112: info2off: U64,
        /// zeroes
        120: padding: [u8; 3968],
        /// Fletcher-64 of this struct with this field taken as zero
        4088: checksum: U64,
    }
}

/// An arena whose info block keeps every rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    start: u64,
    geometry: ArenaGeometry,
    version: Version,
    uuid: [u8; 16],
    parent_uuid: [u8; 16],
    next: Option<u64>,
    in_error: bool,
}

impl InfoBlock {
    /// Where the flags lie, from the arena's start.
    pub const FLAGS_AT: u64 = offset_of!(InfoBlock, flags) as u64;

    /// The info block of an arena with this geometry. `next` is the distance to the next arena's
    /// start.
    pub fn new(
        geometry: &ArenaGeometry,
        version: Version,
        uuid: [u8; 16],
        parent_uuid: [u8; 16],
        next: Option<u64>,
    ) -> InfoBlock {
        let (major, minor) = version.major_minor();
        let mut info = InfoBlock::new_zeroed();
        info.signature = SIGNATURE;
        info.uuid = uuid;
        info.parent_uuid = parent_uuid;
        info.version_major = U16::new(major);
        info.version_minor = U16::new(minor);
        info.external_lbasize = U32::new(geometry.external_lbasize);
        info.external_nlba = U32::new(geometry.external_nlba);
        info.internal_lbasize = U32::new(geometry.internal_lbasize);
        info.internal_nlba = U32::new(geometry.internal_nlba);
        info.nfree = U32::new(geometry.nfree);
        info.infosize = U32::new(INFO_BYTES);
        info.nextoff = U64::new(next.unwrap_or(0));
        info.dataoff = U64::new(geometry.dataoff);
        info.mapoff = U64::new(geometry.mapoff);
        info.logoff = U64::new(geometry.logoff);
        info.info2off = U64::new(geometry.info2off);
        info.with_checksum()
    }

    /// This info block with the checksum that fits it.
    pub fn with_checksum(mut self) -> InfoBlock {
        self.checksum = U64::new(self.computed_checksum());
        self
    }

    /// This info block with the error flag set or cleared.
    pub fn with_error(mut self, in_error: bool) -> InfoBlock {
        let others = self.flags.get() & !FLAG_ERROR;
        self.flags = U32::new(others | if in_error { FLAG_ERROR } else { 0 });
        self.with_checksum()
    }

    fn computed_checksum(&self) -> u64 {
        Fletcher64::default().over(&self.as_bytes()[..CHECKSUM_OFFSET]).over(&[0; 8]).sum()
    }

    /// Whether the first bytes are those of an info block, damaged or not.
    pub fn has_signature(&self) -> bool {
        self.signature == SIGNATURE
    }

    /// Whether all bytes are zero.
    pub fn is_zero(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }

    /// The arena this block describes, if it starts at `start` in its region and `room` bytes
    /// follow there.
    pub fn check(&self, start: u64, room: u64) -> Result<Arena, Broken> {
        rule(self.has_signature(), "an info block starts with its signature", 0, "other bytes")?;
        let sum = self.computed_checksum();
        rule(self.checksum.get() == sum, "the checksum fits", 4088, format_args!("{:#x}", self.checksum))?;
        let version = self.check_version()?;
        self.check_blocks()?;
        self.check_places(room)?;
        Ok(Arena {
            start,
            geometry: self.geometry(),
            version,
            uuid: self.uuid,
            parent_uuid: self.parent_uuid,
            next: Some(self.nextoff.get()).filter(|distance| *distance != 0).map(|distance| start + distance),
            in_error: self.flags.get() & FLAG_ERROR != 0,
        })
    }

    fn check_version(&self) -> Result<Version, Broken> {
        let found = (self.version_major.get(), self.version_minor.get());
        Version::ALL.into_iter().find(|version| version.major_minor() == found).ok_or_else(|| Broken {
            rule: "the version is 1.1 or 2.0",
            offset: 52,
            found: format!("{}.{}", found.0, found.1),
        })
    }

    fn check_blocks(&self) -> Result<(), Broken> {
        let (external, internal) = (self.external_lbasize.get(), self.internal_lbasize.get());
        rule(SECTOR_SIZES.contains(&external), "the sector size is one of the format's seven", 56, external)?;
        let stride_holds = internal >= external && internal.is_multiple_of(8) && internal <= 4 * external.max(1024);
        rule(stride_holds, "the internal block size holds a sector and is a multiple of 8", 64, internal)?;
        rule(self.external_nlba.get() > 0, "an arena has sectors", 60, 0)?;
        rule(self.nfree.get() > 0, "an arena has free blocks", 72, 0)?;
        let blocks = u64::from(self.external_nlba.get()) + u64::from(self.nfree.get());
        let internal_nlba = u64::from(self.internal_nlba.get());
        rule(internal_nlba == blocks, "internal blocks are sectors and free blocks", 68, internal_nlba)?;
        rule(internal_nlba <= INTERNAL_NLBA_MAX, "block numbers fit 30 bits", 68, internal_nlba)?;
        rule(self.infosize.get() == INFO_BYTES, "the info block is 4096 bytes long", 76, self.infosize)
    }

    fn check_places(&self, room: u64) -> Result<(), Broken> {
        let next = self.nextoff.get();
        rule(next == 0 || next == ARENA_BYTES_MAX, "the next arena is 512 GiB away, or there is none", 80, next)?;
        let end = self.info2off.get();
        let fits = end.checked_add(PAGE_BYTES).is_some_and(|end| end <= room.min(ARENA_BYTES_MAX));
        rule(fits, "the arena lies inside its region", 112, format_args!("{end:#x} of {room:#x} bytes"))?;
        let stride = u64::from(self.internal_lbasize.get());
        let mut parts = [
            (self.dataoff.get(), u64::from(self.internal_nlba.get()) * stride, 88),
            (self.mapoff.get(), u64::from(self.external_nlba.get()) * 4, 96),
            (self.logoff.get(), u64::from(self.nfree.get()) * 64, 104),
            (end, PAGE_BYTES, 112),
        ];
        parts.sort_unstable();
        let mut taken = PAGE_BYTES;
        for (at, bytes, field) in parts {
            rule(at.is_multiple_of(PAGE_BYTES), "parts of an arena start on pages", field, format_args!("{at:#x}"))?;
            let apart = at >= taken && at <= end;
            rule(apart, "parts of an arena lie apart, before its last page", field, format_args!("{at:#x}"))?;
            taken = at + bytes;
        }
        Ok(())
    }

    fn geometry(&self) -> ArenaGeometry {
        ArenaGeometry {
            external_lbasize: self.external_lbasize.get(),
            external_nlba: self.external_nlba.get(),
            internal_lbasize: self.internal_lbasize.get(),
            internal_nlba: self.internal_nlba.get(),
            nfree: self.nfree.get(),
            dataoff: self.dataoff.get(),
            mapoff: self.mapoff.get(),
            logoff: self.logoff.get(),
            info2off: self.info2off.get(),
        }
    }
}

/// Places in a region, in bytes from its start.
impl Arena {
    /// Where the arena, and its first info block, starts.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where internal block `block` lies.
    pub fn data_at(&self, block: u32) -> u64 {
        debug_assert!(block < self.geometry.internal_nlba);
        self.start + self.geometry.dataoff + u64::from(block) * u64::from(self.geometry.internal_lbasize)
    }

    /// Where the map entry of sector `lba` lies.
    pub fn map_at(&self, lba: u32) -> u64 {
        debug_assert!(lba < self.geometry.external_nlba);
        self.start + self.geometry.mapoff + u64::from(lba) * 4
    }

    /// Where the flog group of `lane` lies.
    pub fn flog_at(&self, lane: u32) -> u64 {
        debug_assert!(lane < self.geometry.nfree);
        self.start + self.geometry.logoff + u64::from(lane) * 64
    }

    /// Where the second info block lies.
    pub fn info2_at(&self) -> u64 {
        self.start + self.geometry.info2off
    }

    /// Where the next arena starts, if there is one.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// How the arena is cut.
    pub fn geometry(&self) -> &ArenaGeometry {
        &self.geometry
    }

    /// The format's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The volume's identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The identity of the namespace around the volume, or zeroes.
    pub fn parent_uuid(&self) -> [u8; 16] {
        self.parent_uuid
    }

    /// Whether the arena is in error and takes no writes.
    pub fn in_error(&self) -> bool {
        self.in_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btt::{NFREE, arenas};

    const ROOM: u64 = (32 << 20) - 4096;
    const UUID: [u8; 16] = *b"\x5e\xc7\x04\x00\x00\x01\x4b\x77\xa1\x11\x00\x00\x00\x00\x00\x01";

    fn sample() -> InfoBlock {
        let geometry = ArenaGeometry::of(ROOM, 4096, NFREE).unwrap();
        InfoBlock::new(&geometry, Version::V1_1, UUID, [0; 16], None)
    }

    #[test]
    fn golden_bytes() {
        let info = sample();
        let bytes = info.as_bytes();
        assert_eq!(&bytes[..16], b"BTT_ARENA_INFO\0\0");
        assert_eq!(&bytes[16..32], &UUID);
        assert_eq!(&bytes[48..64], b"\0\0\0\0\x01\0\x01\0\0\x10\0\0\xf0\x1e\0\0");
        assert_eq!(&bytes[64..80], b"\0\x10\0\0\xf0\x1f\0\0\0\x01\0\0\0\x10\0\0");
        assert_eq!(&bytes[80..96], b"\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0");
        assert_eq!(&bytes[96..120], b"\0\x20\xff\x01\0\0\0\0\0\xa0\xff\x01\0\0\0\0\0\xe0\xff\x01\0\0\0\0");
        assert_eq!(info.checksum.get(), 0xeae4_ec20_7a33_4eea);
    }

    #[test]
    fn checksums_of_a_volume_of_two_arenas() {
        let arenas = arenas((512 << 30) + (32 << 20), Version::V1_1).unwrap();
        let sums: Vec<u64> = arenas
            .iter()
            .zip([Some(ARENA_BYTES_MAX), None])
            .map(|((_, bytes), next)| {
                let geometry = ArenaGeometry::of(*bytes, 4096, NFREE).unwrap();
                InfoBlock::new(&geometry, Version::V1_1, [0x11; 16], [0; 16], next).checksum.get()
            })
            .collect();
        assert_eq!(sums, [0x4de0_2539_302c_2c3c, 0xa0a1_14e8_4627_b92f]);
    }

    #[test]
    fn a_good_block_becomes_an_arena() {
        let arena = sample().check(4096, ROOM).unwrap();
        assert_eq!(arena.data_at(1), 0x3000);
        assert_eq!(arena.map_at(3), 0x1ff_3000 + 12);
        assert_eq!(arena.flog_at(2), 0x1ff_b000 + 128);
        assert_eq!(arena.info2_at(), 0x1ff_f000);
        assert_eq!((arena.next(), arena.in_error()), (None, false));
        assert!(sample().with_error(true).check(4096, ROOM).unwrap().in_error());
    }

    #[test]
    fn each_rule_is_named() {
        type Damage = fn(&mut InfoBlock);
        let cases: [(&str, Damage); 12] = [
            ("signature", |info| info.signature[3] = b'x'),
            ("version", |info| info.version_minor = U16::new(2)),
            ("seven", |info| info.external_lbasize = U32::new(1024)),
            ("internal block size", |info| info.internal_lbasize = U32::new(4092)),
            ("has sectors", |info| info.external_nlba = U32::new(0)),
            ("has free blocks", |info| info.nfree = U32::new(0)),
            ("sectors and free blocks", |info| info.nfree = U32::new(255)),
            ("4096 bytes long", |info| info.infosize = U32::new(4095)),
            ("512 GiB", |info| info.nextoff = U64::new(4096)),
            ("inside its region", |info| info.info2off = U64::new(ROOM)),
            ("on pages", |info| info.mapoff = U64::new(0x1ff2001)),
            ("lie apart", |info| info.logoff = info.mapoff),
        ];
        for (name, damage) in cases {
            let mut info = sample();
            damage(&mut info);
            let broken = info.with_checksum().check(4096, ROOM).unwrap_err();
            assert!(broken.rule.contains(name), "{name}: {broken}");
        }
        let mut info = sample();
        info.padding[77] = 1;
        assert_eq!(info.check(4096, ROOM).unwrap_err().rule, "the checksum fits");
    }

    #[test]
    fn every_damaged_bit_is_noticed() {
        let good = sample();
        for bit in 0..4096 * 8 {
            let mut info = good;
            info.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            assert!(info.check(4096, ROOM).is_err(), "bit {bit}");
        }
    }
}
