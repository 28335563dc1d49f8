//! What a pool of `tidegate run-log` has besides its cache: strips, to which programs commit by
//! themselves, and the sizes of files.

use crate::on_media::on_media;
use std::ops::RangeInclusive;
use zerocopy::little_endian::{U32, U64};

/// What the cache of a pool says that its disk is, before the version's digit.
const POOL_DISK: [u8; 31] = *b"files of programs below run, v ";

/// The version of new pools.
pub const POOL_VERSION: u8 = 5;

/// The versions of pools that can be read.
pub const POOL_VERSIONS: RangeInclusive<u8> = 2..=POOL_VERSION;

/// Returns what the cache of a pool of this version says that its disk is.
pub fn pool_disk(version: u8) -> [u8; 32] {
    let mut disk = [version.wrapping_add(b'0'); 32];
    disk[..POOL_DISK.len()].copy_from_slice(&POOL_DISK);
    disk
}

/// Returns the version of the pool whose cache says that its disk is `disk`, if it is a pool's.
pub fn pool_version(disk: &[u8; 32]) -> Option<u8> {
    let [kind @ .., digit] = disk;
    (*kind == POOL_DISK).then(|| digit.wrapping_sub(b'0'))
}

/// Whether a cache says with `disk` that it is a pool's, of a version that can be read.
pub fn is_pool_disk(disk: &[u8; 32]) -> bool {
    pool_version(disk).is_some_and(|version| POOL_VERSIONS.contains(&version))
}

/// Where the counts of a strip lie, behind its head.
pub const STRIP_COUNTS_AT: u64 = 64;

/// Where its records begin.
pub const STRIP_RECORDS_AT: u64 = 128;

/// Bytes of a strip; half as many in pools of a version before 5. Its records are counted in words,
/// by 16 bits.
pub const STRIP_BYTES: u64 = 512 << 10;

const _: () = assert!((STRIP_BYTES - STRIP_RECORDS_AT) / 8 <= u16::MAX as u64);

/// The greatest number that tells fillings of a strip apart.
pub const STRIP_FILLING_MAX: u32 = (1 << FILLING_BITS) - 1;

/// Where the first record of a strip says that its bytes lie if the strip is about a name of a
/// folder: by itself it says that nothing has this name.
pub const STRIP_NAME_AT: u64 = u64::MAX;

/// Where a record behind that one says so if its bytes are [`StripAttributes`].
pub const STRIP_ATTRIBUTES_AT: u64 = u64::MAX - 1;

const SLOT_BITS: u32 = 24;
const FILLING_BITS: u32 = 24;

on_media! {
    /// The beginning of a strip. One word says which records count, so that a power cut leaves all
    /// records of a sync or none.
    pub struct StripHead [8] {
        /// which records count: the slot in bits 40 to 63, the filling in 16 to 39, the words of
        /// its records in 0 to 15
        0: counting: U64,
    }
}

on_media! {
    /// What its process has done at a strip. Only counted, and never flushed.
    pub struct StripCounts [32] {
        /// syncs
        0: syncs: U64,
        /// bytes that were written between them
        8: bytes: U64,
        /// lines flushed
        16: lines: U64,
        /// fences
        24: fences: U64,
    }
}

on_media! {
    /// Bytes of a file; they follow at once, filled up to whole words.
    pub struct StripRecord [24] {
        /// the first half of the run's number: records of other runs count for nothing
        0: session: U64,
        /// where in the file they lie
        8: at: U64,
        /// how many they are
        16: len: U64,
    }
}

on_media! {
    /// What a file with a name is like besides its bytes.
    pub struct StripAttributes [16] {
        /// its mode, as of the file system
        0: mode: U32,
        /// its owner
        4: user: U32,
        /// its group
        8: group: U32,
        /// zero
        12: reserved: U32,
    }
}

on_media! {
    /// The beginning of a block of the cache that tells of one file.
    pub struct KeptSize [24] {
        /// what tells it from a block that was never written
        0: mark: U64,
        /// the file's size in bytes
        8: size: U64,
        /// the last filling of the file's strips whose records are all in the cache, as are those
        /// of the fillings before it; 0: none
        16: absorbed: U64,
    }
}

impl StripAttributes {
    /// Of a file with this mode, owner and group.
    pub fn new(mode: u32, user: u32, group: u32) -> StripAttributes {
        let [mode, user, group] = [mode, user, group].map(U32::new);
        StripAttributes { mode, user, group, reserved: U32::ZERO }
    }
}

impl KeptSize {
    const MARK: u64 = 0x657a_6973_6574_6474;

    /// Of a file of `size` bytes, with the records of filling `absorbed` in the cache.
    pub fn new(size: u64, absorbed: u32) -> KeptSize {
        KeptSize { mark: U64::new(KeptSize::MARK), size: U64::new(size), absorbed: U64::new(absorbed.into()) }
    }

    /// Whether it was ever written.
    pub fn is_there(&self) -> bool {
        self.mark.get() == KeptSize::MARK
    }
}

/// Which records of a strip count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// The slot of the file that they are about.
    pub slot: u32,
    /// Which filling they are; never 0. Fillings of one slot follow each other: odd ones on the
    /// first strip of a pair, even ones on the second.
    pub filling: u32,
    /// Words of the records that count, from the first one on.
    pub words: u16,
}

impl Counting {
    /// As the word of a head. A slot or a filling of more bits is the caller's mistake: it is cut
    /// off.
    pub fn word(self) -> u64 {
        let slot = u64::from(self.slot & ((1 << SLOT_BITS) - 1));
        let filling = u64::from(self.filling & STRIP_FILLING_MAX);
        slot << (FILLING_BITS + u16::BITS) | filling << u16::BITS | u64::from(self.words)
    }

    /// What the word of a head says. None: nothing counts.
    pub fn of(word: u64) -> Option<Counting> {
        let field = |from: u32, bits: u32| word >> from & ((1 << bits) - 1);
        let narrow = |field: u64| u32::try_from(field).ok();
        let slot = narrow(field(FILLING_BITS + u16::BITS, SLOT_BITS))?;
        let filling = narrow(field(u16::BITS, FILLING_BITS)).filter(|filling| *filling > 0)?;
        let words = u16::try_from(field(0, u16::BITS)).ok().filter(|words| *words > 0)?;
        Some(Counting { slot, filling, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn heads_to_the_byte() {
        let counting = Counting { slot: 0x0a_0b_0c, filling: 0x01_02_03, words: 0x0405 };
        assert_eq!(counting.word().to_le_bytes(), *b"\x05\x04\x03\x02\x01\x0c\x0b\x0a");
        assert_eq!(Counting::of(counting.word()), Some(counting));
        let most = Counting { slot: (1 << SLOT_BITS) - 1, filling: STRIP_FILLING_MAX, words: u16::MAX };
        assert_eq!((most.word(), Counting::of(u64::MAX)), (u64::MAX, Some(most)));
        assert_eq!(Counting::of(0), None);
    }

    #[test]
    fn sizes_to_the_byte() {
        let size = KeptSize::new(0x0102, 3);
        assert_eq!(size.as_bytes(), b"tdtesize\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert!(size.is_there() && !KeptSize { mark: U64::ZERO, ..size }.is_there());
    }

    #[test]
    fn attributes_to_the_byte() {
        let attributes = StripAttributes::new(0o10_0644, 1, 2);
        assert_eq!(attributes.as_bytes(), b"\xa4\x81\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0");
    }

    #[test]
    fn records_to_the_byte() {
        let record = StripRecord { session: U64::new(1), at: U64::new(2), len: U64::new(3) };
        assert_eq!(record.as_bytes(), b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        let counts = StripCounts { syncs: U64::new(1), bytes: U64::new(2), lines: U64::new(3), fences: U64::new(4) };
        assert_eq!(counts.as_bytes()[24..], [4, 0, 0, 0, 0, 0, 0, 0]);
    }
}
