//! Unsynced writes in shared memory, which outlives the process and not the machine.
//!
//! The memory begins with [`VolatileHead`], [`VolatileWrite`] and the bytes of the write that it
//! speaks of; then come one [`VolatileFile`] for each record of the lane, the blocks' headers, and
//! the blocks. A header's second word is stored last when a block is filled and first when it is
//! freed.

use crate::file_cache::entry_check::FILE_BYTES_MAX;
use crate::file_cache::record::PATH_HINT_BYTES_MAX;
use crate::on_media::{Broken, on_media, rule};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};

/// The first bytes of the memory.
const FILES_MAGIC: [u8; 16] = *b"tidegate-unsync2";

/// Bytes in a block.
pub const VOLATILE_BLOCK_BYTES: u64 = 4096;

/// Bytes of the longest write that a kill leaves whole. No database has a longer page.
pub const VOLATILE_WHOLE_BYTES: u64 = 64 << 10;

/// Bytes before those of the write under way.
const HEAD_BYTES: u64 = 4096;

on_media! {
    /// The beginning: what there is. Written once, `magic` last.
    pub struct VolatileHead [32] {
        /// `tidegate-unsync2`
        0: magic: [u8; 16],
        /// files
        16: files: U32,
        /// blocks
        20: blocks: U32,
        /// zero
        24: reserved: U64,
    }
}

on_media! {
    /// The write under way: whoever finds one after a kill carries it out again.
    pub struct VolatileWrite [32] {
        /// 1: its bytes are here, and some of them may be where they belong; 0: there is none
        0: state: U64,
        /// offset of its first byte in the file
        8: offset: U64,
        /// number of the file
        16: file: U32,
        /// bytes
        20: length: U32,
        /// zero
        24: reserved: U64,
    }
}

on_media! {
    /// A file with unsynced writes.
    pub struct VolatileFile [256] {
        /// bytes in the file, as the program sees it
        0: size: U64,
        /// 1: the file is open; 0: it is not
        8: state: U64,
        /// number of the file system's device
        16: device: U64,
        /// number of the inode
        24: inode: U64,
        /// which of the files that had this inode
        32: generation: U64,
        /// bytes in the path hint
        40: hint_length: U32,
        /// zero
        44: reserved: U32,
        /// the length that a synchronous write under way gives the file, or gave it; 0 since the
        /// file was last cut
        48: grows_to: U64,
        /// when a program changed the contents last, as the record has it; 0: the file below says
        56: modified: U64,
        /// the file's own mark of its last change, where nothing but reserved room has changed it
        /// since and the record says none; otherwise 0
        64: room_stamp: U64,
        /// zero
        72: reserved2: U64,
        /// where the file was when it was opened
        80: hint: [u8; 176],
    }
}

on_media! {
    /// The header of a block.
    pub struct VolatileSlot [16] {
        /// offset of the first byte in the file
        0: offset: U64,
        /// number of the file
        8: file: U32,
        /// bytes of the block that hold something; 0: the block is free
        12: length: U32,
    }
}

/// Where things lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolatilePlan {
    /// Files.
    pub files: u32,
    /// Blocks.
    pub blocks: u32,
}

impl VolatilePlan {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.block_at(self.blocks)
    }

    /// The largest plan for so many files that fits into `bytes`.
    pub fn fitting(bytes: u64, files: u32) -> VolatilePlan {
        let blocks = |blocks| VolatilePlan { files, blocks };
        let each = VOLATILE_BLOCK_BYTES + size_of::<VolatileSlot>() as u64;
        let room = bytes.saturating_sub(blocks(0).slot_at(0));
        let mut most = u32::try_from(room / each).unwrap_or(u32::MAX);
        while most > 0 && blocks(most).bytes() > bytes {
            most -= 1;
        }
        blocks(most)
    }

    /// Where the bytes of the write under way lie.
    pub fn write_bytes_at(&self) -> u64 {
        HEAD_BYTES
    }

    /// Where file `file` lies.
    pub fn file_at(&self, file: u32) -> u64 {
        HEAD_BYTES + VOLATILE_WHOLE_BYTES + u64::from(file) * size_of::<VolatileFile>() as u64
    }

    /// Where the header of block `block` lies.
    pub fn slot_at(&self, block: u32) -> u64 {
        self.file_at(self.files) + u64::from(block) * size_of::<VolatileSlot>() as u64
    }

    /// Where block `block` lies.
    pub fn block_at(&self, block: u32) -> u64 {
        self.slot_at(self.blocks).next_multiple_of(VOLATILE_BLOCK_BYTES) + u64::from(block) * VOLATILE_BLOCK_BYTES
    }
}

impl VolatileHead {
    /// The head of memory of this plan.
    pub fn new(plan: &VolatilePlan) -> VolatileHead {
        VolatileHead {
            magic: FILES_MAGIC,
            files: U32::new(plan.files),
            blocks: U32::new(plan.blocks),
            reserved: U64::ZERO,
        }
    }

    /// What there is in `memory_bytes` bytes; `None` where nothing was ever made.
    pub fn check(&self, memory_bytes: u64) -> Result<Option<VolatilePlan>, Broken> {
        if self.magic == [0; 16] {
            return Ok(None);
        }
        rule(self.magic == FILES_MAGIC, "the magic is `tidegate-unsync2`", 0, format_args!("{:02x?}", self.magic))?;
        let plan = VolatilePlan { files: self.files.get(), blocks: self.blocks.get() };
        rule(plan.bytes() <= memory_bytes, "the memory has room for every block", 20, self.blocks)?;
        Ok(Some(plan))
    }
}

impl VolatileWrite {
    /// Where it lies in the memory. Its first word is `state`.
    pub const AT: u64 = 64;

    /// A write that is under way once its state says so.
    pub fn new(file: u32, offset: u64, length: u32) -> VolatileWrite {
        let (offset, reserved) = (U64::new(offset), U64::ZERO);
        VolatileWrite { state: U64::ZERO, offset, file: U32::new(file), length: U32::new(length), reserved }
    }

    /// Whether a write under way may say so.
    pub fn check(&self) -> Result<(), Broken> {
        let length = u64::from(self.length.get());
        rule(length <= VOLATILE_WHOLE_BYTES, "the write under way fits into its room", 20, self.length)?;
        let end = self.offset.get().checked_add(length);
        rule(end.is_some_and(|end| end <= FILE_BYTES_MAX), "the write under way ends within a file", 8, self.offset)
    }
}

impl VolatileFile {
    /// Where the words that change lie, from the file's beginning.
    pub const SIZE_AT: u64 = 0;
    /// See the field.
    pub const STATE_AT: u64 = 8;
    /// See the field.
    pub const GROWS_TO_AT: u64 = 48;
    /// See the field.
    pub const MODIFIED_AT: u64 = 56;
    /// See the field.
    pub const ROOM_STAMP_AT: u64 = 64;

    /// A file, not open yet.
    pub fn new(identity: [u64; 3], hint: &[u8], size: u64) -> VolatileFile {
        let [device, inode, generation] = identity.map(U64::new);
        let mut bytes = [0; PATH_HINT_BYTES_MAX];
        bytes[..hint.len()].copy_from_slice(hint);
        VolatileFile {
            size: U64::new(size),
            state: U64::ZERO,
            device,
            inode,
            generation,
            hint_length: U32::new(u32::try_from(hint.len()).expect("a hint is short")),
            reserved: U32::ZERO,
            grows_to: U64::ZERO,
            modified: U64::ZERO,
            room_stamp: U64::ZERO,
            reserved2: U64::ZERO,
            hint: bytes,
        }
    }

    /// Device, inode and generation.
    pub fn identity(&self) -> [u64; 3] {
        [self.device.get(), self.inode.get(), self.generation.get()]
    }

    /// Where the file was.
    pub fn path_hint(&self) -> &[u8] {
        let length = usize::try_from(self.hint_length.get()).unwrap_or(usize::MAX).min(self.hint.len());
        &self.hint[..length]
    }
}

impl VolatileSlot {
    /// Where the second word lies, from the header's beginning.
    pub const SECOND_WORD_AT: u64 = offset_of!(VolatileSlot, file) as u64;

    /// Whether a block in use may say so.
    pub fn check(&self) -> Result<(), Broken> {
        let fits = u64::from(self.length.get()) <= VOLATILE_BLOCK_BYTES;
        rule(fits, "unsynced bytes fit into their block", 12, self.length)?;
        let end = self.offset.get().checked_add(u64::from(self.length.get()));
        rule(end.is_some_and(|end| end <= FILE_BYTES_MAX), "unsynced bytes end within a file", 0, self.offset)
    }

    /// The second word of a header.
    pub fn word(file: u32, length: u32) -> u64 {
        u64::from(length) << 32 | u64::from(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromBytes, IntoBytes};

    #[test]
    fn golden_bytes() {
        let plan = VolatilePlan { files: 2, blocks: 3 };
        let head = VolatileHead::new(&plan);
        assert_eq!(&head.as_bytes()[..24], b"tidegate-unsync2\x02\0\0\0\x03\0\0\0");
        assert_eq!(head.check(plan.bytes()), Ok(Some(plan)));
        assert!(head.check(plan.bytes() - 1).is_err());
        assert_eq!(VolatileHead::read_from_bytes(&[0; 32]).unwrap().check(0), Ok(None));
        let slot = VolatileSlot::read_from_bytes(b"\x05\0\0\0\0\0\0\0\x02\0\0\0\x64\0\0\0").unwrap();
        assert_eq!((slot.offset.get(), slot.file.get(), slot.length.get()), (5, 2, 100));
        assert_eq!(VolatileSlot::word(2, 100).to_le_bytes(), slot.as_bytes()[8..]);
        let write = VolatileWrite::new(7, 5, 100);
        assert_eq!(write.as_bytes()[8..24], *b"\x05\0\0\0\0\0\0\0\x07\0\0\0\x64\0\0\0");
        assert!(write.check().is_ok() && VolatileWrite::new(7, 5, 65_537).check().is_err());
        assert!(VolatileWrite::new(7, u64::MAX, 1).check().is_err());
        assert!(VolatileWrite::AT + size_of::<VolatileWrite>() as u64 <= plan.write_bytes_at());
        let file = VolatileFile::new([1, 2, 3], b"/a", 9);
        for (at, byte) in [(0, 9), (8, 0), (16, 1), (24, 2), (32, 3), (40, 2), (80, b'/')] {
            assert_eq!(file.as_bytes()[at], byte, "byte {at}");
        }
        assert_eq!((file.identity(), file.path_hint()), ([1, 2, 3], &b"/a"[..]));
    }

    #[test]
    fn the_largest_plan_that_fits_is_found() {
        for bytes in [0, 20_000, 1 << 20, 1 << 30] {
            let plan = VolatilePlan::fitting(bytes, 8);
            assert!(plan.blocks == 0 || plan.bytes() <= bytes);
            assert!(VolatilePlan { blocks: plan.blocks + 1, ..plan }.bytes() > bytes);
        }
    }
}
