//! Devices of blocks: engines offer them, caches stand on them, fronts serve them.

pub(crate) mod backing;
pub(crate) mod block_set;
pub(crate) mod contents;
mod forward;

use crate::error::{Misuse, Result};
use std::fmt;

/// A row of blocks of one size, each written as a whole or not at all.
///
/// Buffers hold whole blocks. Blocks of one request are independent of each other: a cut may leave
/// some old and some new. Requests may run at once; a read that overlaps a write sees each block
/// old or new.
pub trait BlockDevice: Send + Sync {
    /// Size, and what the device promises.
    fn geometry(&self) -> Geometry;

    /// Fills `out` with the blocks from `at` on.
    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()>;

    /// Writes the blocks in `data` from `at` on. With [`Durability::Fua`] they are durable on
    /// return.
    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()>;

    /// Everything that completed before this call is durable on return.
    fn flush(&self) -> Result<()>;

    /// The contents of `range` are no longer needed; reads may return the old bytes or zeroes. Each
    /// block's answer stays the same until it is written.
    fn discard(&self, range: LbaRange) -> Result<()>;

    /// Makes `range` read as zeroes.
    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()>;

    /// What the blocks from the start of `range` on are: the longest run of one kind that is cheap
    /// to find, at least one block and at most all of `range`, which is not empty.
    fn extent(&self, range: LbaRange) -> Result<Extent>;
}

/// What a device is and promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a block: a power of two, 512 or more.
    pub block_size: u32,
    /// Blocks in the device.
    pub blocks: u64,
    /// Blocks that one write puts in place together, over a power cut too. 0: not even one.
    pub atomic_blocks: u32,
    /// Whether a completed write may be lost to a power cut until the next flush.
    pub volatile_cache: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether writing zeroes costs less than writing data.
    pub fast_zeroes: bool,
}

impl Geometry {
    /// Bytes in the device.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }

    /// The blocks a buffer of `len` bytes at `at` covers, or why it covers none.
    pub fn range(&self, at: Lba, len: usize) -> Result<LbaRange, Misuse> {
        if !(len as u64).is_multiple_of(u64::from(self.block_size)) {
            return Err(Misuse::PartialBlock { len, block_size: self.block_size });
        }
        self.within(LbaRange { first: at, blocks: len as u64 / u64::from(self.block_size) })
    }

    /// `range` itself if the device has all of it.
    pub fn within(&self, range: LbaRange) -> Result<LbaRange, Misuse> {
        match range.first.0.checked_add(range.blocks) {
            Some(end) if end <= self.blocks => Ok(range),
            end => Err(Misuse::OutOfRange { first: range.first.0, end: end.unwrap_or(u64::MAX), blocks: self.blocks }),
        }
    }
}

/// The number of a block in a device, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRange {
    /// The first block.
    pub first: Lba,
    /// How many.
    pub blocks: u64,
}

impl LbaRange {
    /// One past the last block.
    pub fn end(&self) -> u64 {
        self.first.0 + self.blocks
    }

    /// Each block in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Lba> + use<> {
        (self.first.0..self.end()).map(Lba)
    }
}

/// The blocks at the start of a range that are of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many.
    pub blocks: u64,
    /// Whether they hold data.
    pub kind: ExtentKind,
}

/// What blocks hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Bytes, whatever they are.
    Data,
    /// Nothing: they read as zeroes because the device remembers that.
    Hole,
}

/// When a write has to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// By the next flush.
    Volatile,
    /// Before it completes.
    Fua,
}
