//! The seam below a cache: a disk that several writes can be under way to at once.
//!
//! A disk is fast only while it has several requests. A cache moves whole runs of blocks to it,
//! sorted by address, and hands over many runs in one call; the outcome of each is answered by
//! itself, because a disk with some bad sectors is still a disk.

use crate::block::{BlockDevice, Durability, Lba};
use crate::error::Result;
use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A device that takes many writes in one call.
pub trait Backing: BlockDevice {
    /// Writes each run; all were tried when this returns, and each has its answer, in the order of
    /// the runs. What was written is durable after the next good flush. No two runs may share a
    /// block; which is written first is not promised.
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>>;
}

/// Blocks that follow each other on the device.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The first.
    pub at: Lba,
    /// Their bytes: whole blocks. [`AlignedBytes`] save a copy.
    pub data: &'a [u8],
}

/// Any device as a [`Backing`]: one write after the other.
///
/// For tests: it makes disks of simulated devices.
#[derive(Debug)]
pub struct InTurn<D>(pub D);

impl<D: BlockDevice> Backing for InTurn<D> {
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        runs.iter().map(|run| self.0.write(run.at, run.data, Durability::Volatile)).collect()
    }
}

impl<B: Backing + ?Sized> Backing for Arc<B> {
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        (**self).write_runs(runs)
    }
}

impl<D: BlockDevice> BlockDevice for InTurn<D> {
    crate::forward!(self => self.0; geometry, read, write, flush, discard, write_zeroes, extent);
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    crate::forward!(self => (**self); geometry, read, write, flush, discard, write_zeroes, extent);
}

/// What [`AlignedBytes`] begin at a multiple of: a page, which is enough for every disk.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Bytes that begin at a multiple of [`ALIGNMENT_BYTES`], so that a disk can move them without a
/// copy of its own.
#[derive(Debug)]
pub struct AlignedBytes {
    pages: Box<[Page]>,
    len: usize,
}

/// A page of bytes, and its alignment.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT_BYTES]);

const _: () =
    assert!(Layout::new::<Page>().size() == ALIGNMENT_BYTES && Layout::new::<Page>().align() == ALIGNMENT_BYTES);

impl AlignedBytes {
    /// `len` zeroes.
    pub fn zeroed(len: usize) -> AlignedBytes {
        AlignedBytes { pages: vec![Page([0; ALIGNMENT_BYTES]); len.div_ceil(ALIGNMENT_BYTES)].into(), len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a page is its bytes and nothing else (asserted above), pages of a slice lie
        // without gaps, and `len` is at most their number of bytes.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the pages are borrowed for change as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_bytes_are_aligned_and_have_their_length() {
        for len in [0, 1, 512, 4096, 4097, 1 << 20] {
            let mut bytes = AlignedBytes::zeroed(len);
            assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == 0));
            assert!(bytes.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES));
            bytes.fill(7);
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
