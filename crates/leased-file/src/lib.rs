//! Writes to a leased file through shared memory, without a system call: the side of the process
//! that has the lease, which needs nothing of the lane. The protocol is at the head of
//! `lanes/leases.rs` of `file-cache`.
//!
//! A write streams its bytes to blocks that were lent, and an element of the lease log for each.
//! **Fence.** The head's word `visible` is stored; a sequentially consistent fence; the lease is
//! looked at. A sync stores the word `committed`, flushes it, **fence**. So a write and its sync
//! take two fences, and the write alone one: whoever reads the file next may be another process.
//!
//! What cannot be done by lease says so as [`Wrote`], and the caller does it by its descriptor.
//!
//! One thread at a time writes by a lease. Whoever drops a [`LeasedFile`] touches its blocks no
//! more; then the lease is to be released.

#![forbid(unsafe_code)]

use std::ops::Range;
use tidegate_layout::file_cache::{LEASE_CLASS, LeaseElement, LeaseGrant, NOT_CLOSED, block_in};
use tidegate_media::sync::{Ordering, fence};
use tidegate_media::{Poison, Region, Result};
use zerocopy::{FromZeros, IntoBytes};

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// All of it is in the file, for everybody.
    Done,
    /// Nothing of it: the lease is to be extended first, or the write is longer than a log takes.
    OutOfBlocks,
    /// Nothing of it: the file below has reserved no room there by this lease.
    OutOfRoom,
    /// Nothing of it: the lease was revoked.
    Revoked,
    /// The lease is being revoked. The answer to any request about the file comes after that;
    /// [`LeasedFile::resolve`] tells then how the write ended.
    InDoubt,
}

/// How many of its last elements a read looks at.
const OWN_LOOKED_AT: usize = 64;

/// A file that this process has a lease of.
pub struct LeasedFile<R> {
    memory: R,
    grant: LeaseGrant,
    /// Elements that are known to count.
    written: u64,
    /// Elements that are durable.
    committed: u64,
    /// Elements that are known to have a block.
    lent: u64,
    size: u64,
    doubt: Option<Attempt>,
}

/// A write that is on its way.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Elements that are visible with it.
    elements: u64,
    /// The file's length with it.
    size: u64,
}

impl<R: Region> LeasedFile<R> {
    /// A lease that was just granted of a file in the pool on `memory`.
    pub fn new(memory: R, grant: LeaseGrant) -> LeasedFile<R> {
        LeasedFile { memory, grant, written: 0, committed: 0, lent: 0, size: grant.size, doubt: None }
    }

    /// The file's length, as long as the lease was not revoked.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the lease was revoked.
    pub fn is_revoked(&self) -> Result<bool> {
        Ok(self.memory.load_u64(self.grant.log.lease_at())? != self.grant.lease)
    }

    /// Writes bytes at the end of the file.
    pub fn append(&mut self, data: &[u8], modified: u64) -> Result<Wrote> {
        self.write(self.size, data, modified)
    }

    /// Writes bytes at offset `at`, all of them or none. `modified` is when the program changes the
    /// file, as its record has it, or 0.
    pub fn write(&mut self, at: u64, data: &[u8], modified: u64) -> Result<Wrote> {
        if self.doubt.is_some() {
            return Ok(Wrote::InDoubt);
        }
        if self.is_revoked()? {
            return Ok(Wrote::Revoked);
        }
        let [from, until] = self.grant.room;
        let Some(end) = at.checked_add(data.len() as u64).filter(|end| at >= from && *end <= until) else {
            return Ok(Wrote::OutOfRoom);
        };
        let blocks = data.len().div_ceil(block_bytes()) as u64;
        if !self.has_blocks(blocks)? {
            return Ok(Wrote::OutOfBlocks);
        }
        let elements = self.written..self.written + blocks;
        self.stream(elements.clone(), at, data, modified)?;
        self.memory.fence()?;
        self.memory.store_u64(self.grant.log.visible_at(), elements.end);
        // SeqCst pairs with the fence of a revocation, between its store of the lease's word and
        // its look at `visible`: one of the two sees the other's store.
        fence(Ordering::SeqCst);
        let attempt = Attempt { elements: elements.end, size: self.size.max(end) };
        // Others may have seen it already, so a lease that cannot be looked at is a doubt as well.
        if self.is_revoked().unwrap_or(true) {
            self.doubt = Some(attempt);
            return Ok(self.resolve().unwrap_or(Wrote::InDoubt));
        }
        self.has_written(attempt);
        Ok(Wrote::Done)
    }

    /// Says by which program context the file is written. It is a hint, for the placement of what
    /// was written.
    pub fn say_context(&mut self, context: u64) {
        self.memory.store_u64(self.grant.log.context_at(), context);
    }

    /// Tells how the last write ended, if it was in doubt.
    pub fn resolve(&mut self) -> Result<Wrote> {
        let Some(attempt) = self.doubt else { return Ok(Wrote::Done) };
        let closed = self.memory.load_u64(self.grant.log.closed_at())?;
        if closed == NOT_CLOSED {
            return Ok(Wrote::InDoubt);
        }
        self.doubt = None;
        if closed < attempt.elements {
            return Ok(Wrote::Revoked);
        }
        self.has_written(attempt);
        Ok(Wrote::Done)
    }

    /// Makes durable what was written by this lease, all of it or nothing; also if the lease was
    /// revoked meanwhile.
    pub fn sync(&mut self) -> Result<()> {
        if self.committed == self.written {
            return Ok(());
        }
        let word = self.grant.log.committed_at();
        self.memory.store_u64(word, self.written);
        self.memory.flush(word, size_of::<u64>() as u64);
        self.memory.fence()?;
        self.committed = self.written;
        Ok(())
    }

    /// Reads what this lease wrote lately, if one such write has all of the bytes, and none after
    /// it any. False: `out` is not what is to be read.
    pub fn read_own(&self, at: u64, out: &mut [u8]) -> Result<bool> {
        let (end, mut newer) = (at + out.len() as u64, [0; OWN_LOOKED_AT]);
        let least = self.written.saturating_sub(u64::from(self.grant.log.elements).min(OWN_LOOKED_AT as u64));
        for (place, number) in (least..self.written).rev().enumerate() {
            let mut element = LeaseElement::new_zeroed();
            self.memory.read(self.grant.log.element_at(number), element.as_mut_bytes())?;
            let (offset, length, unit) = (element.offset.get(), u64::from(element.length.get()), element.unit.get());
            // It was taken over, and its place is another one's.
            if element.number.get() != number {
                return Ok(false);
            }
            if offset <= at && end <= offset + length {
                // The block may have been lent once more, and written since.
                if newer[..place].contains(&unit) {
                    return Ok(false);
                }
                self.memory.read(self.block(&element)? + (at - offset), out)?;
                // Others may have written since a lease ended.
                return Ok(!self.is_revoked()?);
            }
            if offset < end && at < offset + length {
                return Ok(false);
            }
            newer[place] = unit;
        }
        Ok(false)
    }

    fn has_written(&mut self, attempt: Attempt) {
        self.written = attempt.elements;
        self.size = attempt.size;
    }

    /// Whether so many more elements have blocks.
    fn has_blocks(&mut self, blocks: u64) -> Result<bool> {
        if self.written + blocks > self.lent {
            self.lent = self.memory.load_u64(self.grant.log.lent_at())?;
        }
        Ok(self.written + blocks <= self.lent)
    }

    /// Streams bytes to the blocks of these elements, and the elements.
    fn stream(&self, elements: Range<u64>, at: u64, data: &[u8], modified: u64) -> Result<()> {
        let places = (at..).step_by(block_bytes());
        for ((number, offset), piece) in elements.zip(places).zip(data.chunks(block_bytes())) {
            let element_at = self.grant.log.element_at(number);
            let mut element = LeaseElement::new_zeroed();
            self.memory.read(element_at, element.as_mut_bytes())?;
            let length = u32::try_from(piece.len()).expect("a block is small");
            self.memory.stream(self.block(&element)?, piece);
            self.memory.stream(element_at, element.filled(offset, length, modified).as_bytes());
        }
        Ok(())
    }

    /// Where the block of an element lies: in the memory, whatever the element says.
    fn block(&self, element: &LeaseElement) -> Result<u64> {
        let (at, len) = (block_in(self.grant.blocks_at, element.unit.get()), LEASE_CLASS.bytes());
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.memory.len());
        if is_inside { Ok(at) } else { Err(Poison { at, len }.into()) }
    }
}

fn block_bytes() -> usize {
    usize::try_from(LEASE_CLASS.bytes()).expect("a block is small")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidegate_layout::file_cache::{Class, LeaseHead, LeasePlan};
    use tidegate_sim::SharedMemory;

    const BLOCKS_AT: u64 = 4096;

    /// A lease with `lent` blocks in a log of four elements.
    fn leased(memory: &Arc<SharedMemory>, lent: u64) -> LeasedFile<Arc<SharedMemory>> {
        let log = LeasePlan::of(0, Class::ALL[0]);
        memory.write(0, LeaseHead::new(7, lent).as_bytes());
        for number in 0..lent {
            let unit = 16 * u32::try_from(number).unwrap();
            memory.write(log.element_at(number), LeaseElement::lent(unit, number).as_bytes());
        }
        LeasedFile::new(memory.clone(), LeaseGrant { lease: 7, log, blocks_at: BLOCKS_AT, size: 10, room: [0, 20_000] })
    }

    fn element(memory: &SharedMemory, number: u64) -> (u64, u32, u64) {
        let mut raw = LeaseElement::new_zeroed();
        memory.read(LeasePlan::of(0, Class::ALL[0]).element_at(number), raw.as_mut_bytes()).unwrap();
        (raw.offset.get(), raw.length.get(), raw.number.get())
    }

    #[test]
    fn a_write_fills_an_element_for_each_block_and_a_sync_commits_them() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 4);
        assert_eq!(file.write(100, &[1; 5000], 9), Ok(Wrote::Done));
        assert_eq!(file.append(&[2; 3], 9), Ok(Wrote::Done));
        assert_eq!(file.size(), 5103);
        let elements = [0, 1, 2].map(|number| element(&memory, number));
        assert_eq!(elements, [(100, 4096, 0), (4196, 904, 1), (5100, 3, 2)]);
        let log = LeasePlan::of(0, Class::ALL[0]);
        let words = || [log.visible_at(), log.committed_at()].map(|at| memory.load_u64(at).unwrap());
        assert_eq!(words(), [3, 0]);
        file.sync().unwrap();
        assert_eq!(words(), [3, 3]);
        let mut bytes = [0; 3];
        memory.read(BLOCKS_AT + 2 * 4096, &mut bytes).unwrap();
        assert_eq!(bytes, [2; 3]);
    }

    #[test]
    fn a_read_finds_the_last_write_if_that_has_all_of_the_bytes() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 4);
        let read = |file: &LeasedFile<_>, at, len| {
            let mut bytes = vec![0; len];
            file.read_own(at, &mut bytes).unwrap().then_some(bytes)
        };
        assert_eq!(read(&file, 100, 1), None);
        for (at, byte) in [(100, 1), (150, 2), (100, 3)] {
            assert_eq!(file.write(at, &[byte; 60], 0), Ok(Wrote::Done));
        }
        assert_eq!(read(&file, 110, 50), Some(vec![3; 50]));
        assert_eq!((read(&file, 155, 5), read(&file, 160, 50)), (Some(vec![3; 5]), Some(vec![2; 50])));
        assert_eq!((read(&file, 155, 10), read(&file, 205, 10), read(&file, 90, 5)), (None, None, None));
        // The second write's block is lent once more.
        let log = LeasePlan::of(0, Class::ALL[0]);
        memory.write(log.element_at(3), LeaseElement::lent(16, 3).as_bytes());
        file.write(0, &[4; 10], 0).unwrap();
        assert_eq!((read(&file, 160, 50), read(&file, 0, 10)), (None, Some(vec![4; 10])));
        memory.store_u64(log.lease_at(), 0);
        assert_eq!(read(&file, 0, 10), None);
    }

    #[test]
    fn a_write_that_does_not_fit_leaves_nothing() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 1);
        assert_eq!(file.write(0, &[1; 4097], 0), Ok(Wrote::OutOfBlocks));
        assert_eq!(file.write(19_999, &[1; 2], 0), Ok(Wrote::OutOfRoom));
        assert_eq!(file.write(u64::MAX, &[1; 2], 0), Ok(Wrote::OutOfRoom));
        assert_eq!((element(&memory, 0), file.size()), ((0, 0, 0), 10));
        assert_eq!(file.write(0, &[1], 0), Ok(Wrote::Done));
        assert_eq!(file.write(0, &[1], 0), Ok(Wrote::OutOfBlocks));
    }

    #[test]
    fn a_block_outside_the_memory_is_not_written() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 1);
        let log = LeasePlan::of(0, Class::ALL[0]);
        memory.write(log.element_at(0), LeaseElement::lent(u32::MAX, 0).as_bytes());
        assert!(file.write(0, &[1], 0).is_err());
        assert_eq!((element(&memory, 0), memory.load_u64(log.visible_at())), ((0, 0, 0), Ok(0)));
    }

    #[test]
    fn a_revoked_lease_writes_nothing() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 1);
        memory.store_u64(LeasePlan::of(0, Class::ALL[0]).lease_at(), 0);
        assert_eq!((file.write(0, &[1], 0), file.is_revoked()), (Ok(Wrote::Revoked), Ok(true)));
        assert_eq!(element(&memory, 0), (0, 0, 0));
    }

    /// The lease is revoked between the two looks at it.
    #[test]
    fn a_write_in_doubt_counts_if_the_closed_log_has_it() {
        for (closed, ended) in [(0, Wrote::Revoked), (1, Wrote::Done)] {
            let memory = Arc::new(SharedMemory::new(1 << 16));
            let mut file = leased(&memory, 1);
            file.doubt = Some(Attempt { elements: 1, size: 11 });
            assert_eq!(file.resolve(), Ok(Wrote::InDoubt));
            assert_eq!(file.write(0, &[1], 0), Ok(Wrote::InDoubt));
            memory.store_u64(LeasePlan::of(0, Class::ALL[0]).closed_at(), closed);
            assert_eq!(file.resolve(), Ok(ended));
            assert_eq!(file.size(), 10 + closed);
        }
    }
}
