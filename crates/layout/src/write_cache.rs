//! The slots of the transit cache, in memory that outlives the process.
//!
//! The memory begins with [`CacheHead`]; then come the slots' headers, 16 bytes each, then the
//! slots' blocks, each at a multiple of the block size. A header is two words. The second is stored
//! last when a slot is filled and first when it is freed, so a process killed anywhere leaves every
//! slot free or whole.

use crate::on_media::{Broken, on_media, rule};
use std::mem::offset_of;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The first bytes of the memory.
pub const CACHE_MAGIC: [u8; 16] = *b"tidegate-transit";

/// The only version so far.
const CACHE_VERSION: u32 = 1;

/// Bytes before the first slot's header.
pub(crate) const CACHE_HEAD_BYTES: u64 = 4096;

on_media! {
    /// The beginning of the cache's memory: whose blocks these are. The checksum covers the bytes
    /// before it.
    pub struct CacheHead [64] {
        /// `tidegate-transit`
        0: magic: [u8; 16],
        /// the volume whose blocks these are: its UUID
        16: volume: [u8; 16],
        /// 1
        32: version: U32,
        /// bytes in a block
        36: block_size: U32,
        /// slots
        40: slots: U32,
        /// zero
        44: reserved: U32,
        /// blocks in the volume
        48: blocks: U64,
        /// zero
        56: reserved2: U32,
        /// CRC-32C of the first 60 bytes
        60: checksum: U32,
    }
}

on_media! {
    /// The header of a slot.
    pub struct SlotHead [16] {
        /// number of the block in the volume
        0: lba: U64,
        /// 0: the slot is free. Otherwise the slot holds the block, and of two slots for one block
        /// the greater is newer
        8: version: U64,
    }
}

impl SlotHead {
    /// Where the version lies, from the header's beginning.
    pub const VERSION_AT: u64 = offset_of!(SlotHead, version) as u64;
}

impl CacheHead {
    /// The head of a cache of `slots` blocks of a volume.
    pub fn new(volume: [u8; 16], block_size: u32, blocks: u64, slots: u32) -> CacheHead {
        let mut head = CacheHead {
            magic: CACHE_MAGIC,
            volume,
            version: U32::new(CACHE_VERSION),
            block_size: U32::new(block_size),
            slots: U32::new(slots),
            reserved: U32::ZERO,
            blocks: U64::new(blocks),
            reserved2: U32::ZERO,
            checksum: U32::ZERO,
        };
        head.checksum = U32::new(head.digest());
        head
    }

    /// Where the slots lie, if these bytes are the head of a cache.
    pub fn check(&self) -> Result<SlotPlan, Broken> {
        rule(self.magic == CACHE_MAGIC, "the magic is `tidegate-transit`", 0, format_args!("{:02x?}", self.magic))?;
        rule(self.checksum.get() == self.digest(), "the checksum is that of the head", 60, self.checksum)?;
        rule(self.version.get() == CACHE_VERSION, "the version is known", 32, self.version)?;
        let block_size = self.block_size.get();
        rule(block_size.is_power_of_two() && block_size >= 512, "the block size is a power of two", 36, block_size)?;
        Ok(SlotPlan { slots: self.slots.get(), block_size })
    }

    fn digest(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..60])
    }
}

/// Where the slots of a cache lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlan {
    /// Slots.
    pub slots: u32,
    /// Bytes in a block.
    pub block_size: u32,
}

impl SlotPlan {
    /// Bytes that the cache takes.
    pub fn bytes(&self) -> u64 {
        self.block_at(self.slots)
    }

    /// Where the header of `slot` lies.
    pub fn head_at(&self, slot: u32) -> u64 {
        CACHE_HEAD_BYTES + u64::from(slot) * size_of::<SlotHead>() as u64
    }

    /// Where the block of `slot` lies.
    pub fn block_at(&self, slot: u32) -> u64 {
        let size = u64::from(self.block_size);
        self.head_at(self.slots).next_multiple_of(size.max(CACHE_HEAD_BYTES)) + u64::from(slot) * size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    #[test]
    fn a_head_to_the_byte() {
        let head = CacheHead::new([0xab; 16], 4096, 0x0102_0304, 1000);
        let bytes = head.as_bytes();
        assert_eq!(&bytes[..16], b"tidegate-transit");
        assert_eq!(&bytes[16..32], &[0xab; 16]);
        assert_eq!(&bytes[32..44], &[1, 0, 0, 0, 0, 16, 0, 0, 232, 3, 0, 0]);
        assert_eq!(&bytes[48..56], &[4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(head.check(), Ok(SlotPlan { slots: 1000, block_size: 4096 }));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let head = CacheHead::new([1; 16], 4096, 77, 9);
        for byte in 0..size_of::<CacheHead>() {
            let mut bytes = [0; size_of::<CacheHead>()];
            bytes.copy_from_slice(head.as_bytes());
            bytes[byte] ^= 4;
            assert!(CacheHead::read_from_bytes(&bytes).unwrap().check().is_err(), "byte {byte}");
        }
    }

    #[test]
    fn blocks_lie_behind_the_headers() {
        let plan = SlotPlan { slots: 1000, block_size: 4096 };
        assert_eq!((plan.head_at(0), plan.head_at(999)), (4096, 4096 + 999 * 16));
        assert_eq!((plan.block_at(0), plan.bytes()), (5 * 4096, 1005 * 4096));
        assert_eq!(SlotPlan { slots: 1, block_size: 512 }.block_at(0), 8192);
    }
}
