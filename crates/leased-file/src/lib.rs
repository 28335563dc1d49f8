//! Writes to a leased file through shared memory, without a system call: the side of the processes
//! that have the lease, which needs nothing of the lane. The protocol is at the head of
//! `lanes/leases.rs` of `file-cache`.
//!
//! A write streams its bytes to blocks that were lent, and an element of the lease log for each.
//! **Fence.** The head's word `visible` is stored; a sequentially consistent fence; the lease is
//! looked at. A sync stores the word `committed`, flushes it, **fence**. So a write and its sync
//! take two fences, and the write alone one: whoever reads the file next may be another process.
//!
//! # Several processes
//!
//! They have one log. Whoever writes takes its [`WriteTurn`] first, a word of the head, and then
//! the elements of the others that it has not seen yet ([`Others`]). Nobody takes a turn away: if
//! its process is stopped or dead, the others use the file by requests, which end the lease.
//!
//! | read of | is believed if, after the copy |
//! | --- | --- |
//! | an element of others | its place was not given away: `lending` |
//! | a block of 4 KiB | no block was lent since, nor bytes left the lane: `lending`, `dropped` |
//! | a block of less | it was not taken over either: `taken` |
//! | a block that the service said the place of | nobody wrote since: `visible`, `dropped` |
//!
//! What cannot be done by lease says so as [`Wrote`], and the caller does it by its descriptor.
//!
//! One thread of a process at a time uses a [`LeasedFile`]. Whoever drops it touches its blocks no
//! more; then the lease is to be released.

#![forbid(unsafe_code)]

mod located_blocks;
mod written_index;

use crate::located_blocks::{BLOCK, LocatedBlocks};
use crate::written_index::{WrittenElement, WrittenIndex};
use std::ops::Range;
use tidegate_layout::file_cache::{LEASE_CLASS, LeaseElement, LeaseGrant, NOT_CLOSED, block_in};
use tidegate_media::sync::{Ordering, fence};
use tidegate_media::{ExchangeWords, Poison, Result};
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

/// What others that have the lease too did to the file since this process looked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They wrote these bytes, perhaps with bytes around them.
    Wrote {
        /// Offset of the first one.
        at: u64,
        /// How many.
        len: u32,
    },
    /// They wrote so much that it is not known what.
    WroteMuch,
}

/// What became of a read of bytes that the service said the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The bytes are the file's.
    All,
    /// They may not be: others have written since the last look.
    Outdated,
    /// It is not known where they lie.
    Unknown,
}

/// One in so many of a log's places is for what is lent while the others are looked at.
const SPARE_PART: u64 = 8;

/// The word of a turn that a process has, and of one that none has.
const TAKEN: u64 = 1;
const FREE: u64 = 0;

/// A file that this process has a lease of, by itself or with others.
pub struct LeasedFile<R> {
    memory: R,
    grant: LeaseGrant,
    /// Elements that are known to count, of whoever.
    seen: u64,
    /// Elements that this process has made durable.
    committed: u64,
    /// Elements that are known to have a block.
    lent: u64,
    size: u64,
    /// Whether `size` is the file's length with all elements that were seen.
    is_size_known: bool,
    index: WrittenIndex,
    located: LocatedBlocks,
    /// The words `lending` and `dropped` before the last look at the elements of others.
    lending: u64,
    dropped: u64,
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

impl<R: ExchangeWords> LeasedFile<R> {
    /// A lease of a file in the pool on `memory`, that was just granted, to this process or to
    /// others before.
    pub fn new(memory: R, grant: LeaseGrant) -> LeasedFile<R> {
        LeasedFile {
            memory,
            grant,
            seen: 0,
            committed: 0,
            lent: 0,
            size: grant.size,
            is_size_known: true,
            index: WrittenIndex::default(),
            located: LocatedBlocks::default(),
            lending: 0,
            dropped: 0,
            doubt: None,
        }
    }

    /// The file's length when this process looked last, as long as the lease was not revoked.
    /// `None`: others have written so much since that only a turn tells.
    pub fn size(&self) -> Option<u64> {
        self.is_size_known.then_some(self.size)
    }

    /// More room was reserved for this lease.
    pub fn widen(&mut self, room: [u64; 2]) {
        self.grant.room = room;
    }

    /// How often the file was written by the lease, as far as this process has seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether the lease was revoked.
    pub fn is_revoked(&self) -> Result<bool> {
        Ok(self.memory.load_u64(self.grant.log.lease_at())? != self.grant.lease)
    }

    /// Looks at what others have written.
    pub fn look(&mut self, others: &mut dyn FnMut(Others)) -> Result<()> {
        let log = self.grant.log;
        // In this order: what is lent or dropped later changes them.
        self.lending = self.memory.load_u64(log.lending_at())?;
        let dropped = self.memory.load_u64(log.dropped_at())?;
        let visible = self.memory.load_u64(log.visible_at())?;
        let was_dropped = dropped != self.dropped;
        if was_dropped {
            self.forget_places();
            self.dropped = dropped;
        }
        if visible == self.seen {
            return Ok(());
        }
        let is_known = visible > self.seen && self.take_up(self.seen..visible, others)?;
        if !is_known {
            self.forget_places();
            self.is_size_known = false;
            others(Others::WroteMuch);
            // Those that are there yet, but for the oldest, whose places are given away meanwhile.
            let places = u64::from(self.grant.log.elements);
            let first = self.lending.saturating_sub(places - places / SPARE_PART);
            if first < visible && !self.take_up(first..visible, &mut |_| {})? {
                self.forget_places();
            }
        }
        if was_dropped {
            // Bytes of these too may be among those that were dropped.
            self.forget_places();
        }
        self.seen = visible;
        Ok(())
    }

    /// Nothing is known any more of where bytes lie.
    fn forget_places(&mut self) {
        self.index.clear();
        self.located.clear();
    }

    /// Takes up the elements of others of these numbers. False: they are not all there.
    fn take_up(&mut self, numbers: Range<u64>, others: &mut dyn FnMut(Others)) -> Result<bool> {
        let (log, places) = (self.grant.log, u64::from(self.grant.log.elements));
        let first = numbers.start;
        if numbers.end - first > places {
            return Ok(false);
        }
        for number in numbers {
            let element = self.element(number)?;
            if element.number.get() != number || u64::from(element.length.get()) > LEASE_CLASS.bytes() {
                return Ok(false);
            }
            let written = WrittenElement {
                number,
                offset: element.offset.get(),
                length: element.length.get(),
                unit: element.unit.get(),
            };
            others(Others::Wrote { at: written.offset, len: written.length });
            self.size = self.size.max(written.end());
            self.has_element(&written);
        }
        // Acquire: the elements were read before their places are looked at.
        fence(Ordering::Acquire);
        Ok(self.memory.load_u64(log.lending_at())? <= first.saturating_add(places))
    }

    /// An element has bytes of the file that are newer than all others.
    fn has_element(&mut self, element: &WrittenElement) {
        self.located.forget(&(element.offset..element.end()));
        self.index.insert(element);
    }

    /// Takes this process' turn to write, after a look at what others have written. While another
    /// one has it, `pause` waits a moment, for the time of its number, and says whether to go on
    /// waiting. `None`: it does not, or the lease was revoked.
    pub fn turn(
        &mut self,
        others: &mut dyn FnMut(Others),
        pause: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Option<WriteTurn<'_, R>>> {
        let mut rounds = 0..;
        while self.memory.exchange_u64(self.grant.log.writer_at(), FREE, TAKEN)? != FREE {
            if self.is_revoked()? || !rounds.next().is_some_and(&mut *pause) {
                return Ok(None);
            }
        }
        let turn = WriteTurn(self);
        turn.0.look(others)?;
        if !turn.0.is_size_known {
            turn.0.size = turn.0.memory.load_u64(turn.0.grant.log.size_at())?;
            turn.0.is_size_known = true;
        }
        Ok(Some(turn))
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

    /// Makes durable what anybody has written by this lease so far, each write as a whole or not at
    /// all; also if the lease was revoked meanwhile.
    pub fn sync(&mut self) -> Result<()> {
        let (log, visible) = (self.grant.log, self.memory.load_u64(self.grant.log.visible_at())?);
        if self.committed >= visible {
            return Ok(());
        }
        let word = log.committed_at();
        let mut committed = self.memory.load_u64(word)?;
        while committed < visible {
            let was = self.memory.exchange_u64(word, committed, visible)?;
            committed = if was == committed { visible } else { was };
        }
        // Whoever stored it may not have flushed it yet.
        self.memory.flush(word, size_of::<u64>() as u64);
        self.memory.fence()?;
        self.committed = committed;
        Ok(())
    }

    /// Reads what was written by the lease lately, if one write has all of the bytes, and none
    /// after it any. False: `out` is not what is to be read. It knows what the last look did.
    pub fn read_written(&self, at: u64, out: &mut [u8]) -> Result<bool> {
        let log = self.grant.log;
        let Some(end) = at.checked_add(out.len() as u64) else { return Ok(false) };
        let Some(found) = self.index.find(&(at..end)) else { return Ok(false) };
        self.memory.read(self.block(found.unit)? + (at - found.offset), out)?;
        // Acquire: the bytes were copied before this.
        fence(Ordering::Acquire);
        let is_whole = u64::from(found.length) == LEASE_CLASS.bytes();
        let is_there = self.memory.load_u64(log.lending_at())? == self.lending
            && self.memory.load_u64(log.dropped_at())? == self.dropped
            && (is_whole || found.number >= self.memory.load_u64(log.taken_at())?);
        // Others may have written since a lease ended.
        Ok(is_there && !self.is_revoked()?)
    }

    /// The service says that bytes of the file lie there, whole blocks of 4096 bytes from offset
    /// `at` on, with all that this process had seen when it asked.
    pub fn locate(&mut self, at: u64, pool_at: u64, bytes: u64) {
        let is_inside = pool_at.checked_add(bytes).is_some_and(|end| end <= self.memory.len());
        let blocks = if is_inside { bytes / BLOCK } else { 0 };
        (0..blocks).for_each(|block| self.located.put(at.saturating_add(block * BLOCK), pool_at + block * BLOCK));
    }

    /// Whether the service said where these bytes lie, and nobody has written them since.
    pub fn is_located(&self, range: &Range<u64>) -> bool {
        self.located.find(range).is_some()
    }

    /// Reads bytes from where the service said that they lie. It knows what the last look did.
    pub fn read_located(&self, at: u64, out: &mut [u8]) -> Result<Copied> {
        let (log, end) = (self.grant.log, at.saturating_add(out.len() as u64));
        let Some(pool_at) = self.located.find(&(at..end)) else { return Ok(Copied::Unknown) };
        self.memory.read(pool_at, out)?;
        // Acquire: the bytes were copied before this. Whoever stored others there has seen first
        // that these were written anew, or has said that they were dropped.
        fence(Ordering::Acquire);
        let is_there = self.memory.load_u64(log.visible_at())? == self.seen
            && self.memory.load_u64(log.dropped_at())? == self.dropped
            && !self.is_revoked()?;
        Ok(if is_there { Copied::All } else { Copied::Outdated })
    }

    fn has_written(&mut self, attempt: Attempt) {
        self.seen = attempt.elements;
        self.size = attempt.size;
    }

    /// Whether the elements before number `last` have blocks.
    fn has_blocks_until(&mut self, last: u64) -> Result<bool> {
        if last > self.lent {
            self.lent = self.memory.load_u64(self.grant.log.lent_at())?;
        }
        Ok(last <= self.lent)
    }

    fn element(&self, number: u64) -> Result<LeaseElement> {
        let mut element = LeaseElement::new_zeroed();
        self.memory.read(self.grant.log.element_at(number), element.as_mut_bytes())?;
        Ok(element)
    }

    /// Streams bytes to the blocks of these elements, and the elements.
    fn stream(&mut self, elements: Range<u64>, at: u64, data: &[u8], modified: u64) -> Result<()> {
        let places = (at..).step_by(block_bytes());
        for ((number, offset), piece) in elements.zip(places).zip(data.chunks(block_bytes())) {
            let (element, length) = (self.element(number)?, u32::try_from(piece.len()).expect("a block is small"));
            let unit = element.unit.get();
            self.memory.stream(self.block(unit)?, piece);
            let filled = element.filled(offset, length, modified);
            self.memory.stream(self.grant.log.element_at(number), filled.as_bytes());
            self.has_element(&WrittenElement { number, offset, length, unit });
        }
        Ok(())
    }

    /// Where the block lies that begins at `unit`: in the memory, whatever an element says.
    fn block(&self, unit: u32) -> Result<u64> {
        let (at, len) = (block_in(self.grant.blocks_at, unit), LEASE_CLASS.bytes());
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.memory.len());
        if is_inside { Ok(at) } else { Err(Poison { at, len }.into()) }
    }
}

/// The turn of a process to write by a lease, until this is dropped.
pub struct WriteTurn<'f, R: ExchangeWords>(&'f mut LeasedFile<R>);

impl<R: ExchangeWords> WriteTurn<'_, R> {
    /// The file's length.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// How often the file was written by the lease.
    pub fn seen(&self) -> u64 {
        self.0.seen
    }

    /// Writes bytes at offset `at`, all of them or none. `modified` is when the program changes the
    /// file, as its record has it, or 0.
    pub fn write(&mut self, at: u64, data: &[u8], modified: u64) -> Result<Wrote> {
        let file = &mut *self.0;
        if file.doubt.is_some() {
            return Ok(Wrote::InDoubt);
        }
        if file.is_revoked()? {
            return Ok(Wrote::Revoked);
        }
        let [from, until] = file.grant.room;
        let Some(end) = at.checked_add(data.len() as u64).filter(|end| at >= from && *end <= until) else {
            return Ok(Wrote::OutOfRoom);
        };
        let last = file.seen.checked_add(data.len().div_ceil(block_bytes()) as u64);
        // A head that was spoilt may count up to where no element is.
        let Some(last) = last else { return Ok(Wrote::OutOfBlocks) };
        if !file.has_blocks_until(last)? {
            return Ok(Wrote::OutOfBlocks);
        }
        let (log, elements) = (file.grant.log, file.seen..last);
        file.stream(elements.clone(), at, data, modified)?;
        // Of a write whose stores were lost nothing is to be seen.
        file.memory.fence()?;
        if end > file.size {
            // Whoever has the turn next needs it.
            file.memory.store_u64(log.size_at(), end);
        }
        file.memory.store_u64(log.visible_at(), elements.end);
        // SeqCst pairs with the fence of a revocation, between its store of the lease's word and
        // its look at `visible`: one of the two sees the other's store.
        fence(Ordering::SeqCst);
        let attempt = Attempt { elements: elements.end, size: file.size.max(end) };
        // Others may have seen it already, so a lease that cannot be looked at is a doubt as well.
        if file.is_revoked().unwrap_or(true) {
            file.doubt = Some(attempt);
            return Ok(file.resolve().unwrap_or(Wrote::InDoubt));
        }
        file.has_written(attempt);
        Ok(Wrote::Done)
    }
}

impl<R: ExchangeWords> Drop for WriteTurn<'_, R> {
    fn drop(&mut self) {
        self.0.memory.store_u64(self.0.grant.log.writer_at(), FREE);
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
    use tidegate_media::Region;
    use tidegate_sim::{SharedMemory, on_core};

    const BLOCKS_AT: u64 = 4096;

    /// A lease with `lent` blocks in a log of four elements.
    fn leased(memory: &Arc<SharedMemory>, lent: u64) -> LeasedFile<Arc<SharedMemory>> {
        let log = LeasePlan::of(0, Class::ALL[0]);
        memory.write(0, LeaseHead::new(7, lent, 10).as_bytes());
        for number in 0..lent {
            let unit = 16 * u32::try_from(number).unwrap();
            memory.write(log.element_at(number), LeaseElement::lent(unit, number).as_bytes());
        }
        LeasedFile::new(memory.clone(), LeaseGrant { lease: 7, log, blocks_at: BLOCKS_AT, size: 10, room: [0, 20_000] })
    }

    /// Writes in a turn of its own.
    fn write(file: &mut LeasedFile<Arc<SharedMemory>>, at: u64, data: &[u8], modified: u64) -> Result<Wrote> {
        file.turn(&mut |_| {}, &mut |_| false)?.expect("nobody else has the turn").write(at, data, modified)
    }

    fn append(file: &mut LeasedFile<Arc<SharedMemory>>, data: &[u8]) -> Result<Wrote> {
        let mut turn = file.turn(&mut |_| {}, &mut |_| false)?.expect("nobody else has the turn");
        turn.write(turn.size(), data, 9)
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
        assert_eq!(write(&mut file, 100, &[1; 5000], 9), Ok(Wrote::Done));
        assert_eq!(append(&mut file, &[2; 3]), Ok(Wrote::Done));
        assert_eq!(file.size(), Some(5103));
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
            file.read_written(at, &mut bytes).unwrap().then_some(bytes)
        };
        assert_eq!(read(&file, 100, 1), None);
        for (at, byte) in [(100, 1), (150, 2), (100, 3)] {
            assert_eq!(write(&mut file, at, &[byte; 60], 0), Ok(Wrote::Done));
        }
        assert_eq!(read(&file, 110, 50), Some(vec![3; 50]));
        assert_eq!((read(&file, 155, 5), read(&file, 160, 50)), (Some(vec![3; 5]), Some(vec![2; 50])));
        assert_eq!((read(&file, 155, 10), read(&file, 205, 10), read(&file, 90, 5)), (None, None, None));
        // The second write's block is lent once more: it was taken over.
        let log = LeasePlan::of(0, Class::ALL[0]);
        memory.write(log.element_at(3), LeaseElement::lent(16, 3).as_bytes());
        memory.store_u64(log.taken_at(), 3);
        write(&mut file, 0, &[4; 10], 0).unwrap();
        assert_eq!((read(&file, 160, 50), read(&file, 0, 10)), (None, Some(vec![4; 10])));
        memory.store_u64(log.lease_at(), 0);
        assert_eq!(read(&file, 0, 10), None);
    }

    #[test]
    fn a_write_that_does_not_fit_leaves_nothing() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 1);
        assert_eq!(write(&mut file, 0, &[1; 4097], 0), Ok(Wrote::OutOfBlocks));
        assert_eq!(write(&mut file, 19_999, &[1; 2], 0), Ok(Wrote::OutOfRoom));
        assert_eq!(write(&mut file, u64::MAX, &[1; 2], 0), Ok(Wrote::OutOfRoom));
        assert_eq!((element(&memory, 0), file.size()), ((0, 0, 0), Some(10)));
        assert_eq!(write(&mut file, 0, &[1], 0), Ok(Wrote::Done));
        assert_eq!(write(&mut file, 0, &[1], 0), Ok(Wrote::OutOfBlocks));
    }

    #[test]
    fn a_block_outside_the_memory_is_not_written() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 1);
        let log = LeasePlan::of(0, Class::ALL[0]);
        memory.write(log.element_at(0), LeaseElement::lent(u32::MAX, 0).as_bytes());
        assert!(write(&mut file, 0, &[1], 0).is_err());
        assert_eq!((element(&memory, 0), memory.load_u64(log.visible_at())), ((0, 0, 0), Ok(0)));
    }

    #[test]
    fn a_revoked_lease_writes_nothing() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let mut file = leased(&memory, 1);
        memory.store_u64(LeasePlan::of(0, Class::ALL[0]).lease_at(), 0);
        assert_eq!((write(&mut file, 0, &[1], 0), file.is_revoked()), (Ok(Wrote::Revoked), Ok(true)));
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
            assert_eq!(write(&mut file, 0, &[1], 0), Ok(Wrote::InDoubt));
            memory.store_u64(LeasePlan::of(0, Class::ALL[0]).closed_at(), closed);
            assert_eq!(file.resolve(), Ok(ended));
            assert_eq!(file.size(), Some(10 + closed));
        }
    }

    /// What two processes that have one lease do, one after the other.
    #[test]
    fn a_process_sees_what_others_wrote_and_which_of_it_is_gone() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let (log, mut one) = (LeasePlan::of(0, Class::ALL[0]), leased(&memory, 4));
        write(&mut one, 0, &[1; 4096], 0).unwrap();
        let mut other = LeasedFile::new(memory.clone(), LeaseGrant { size: 4096, ..one.grant });
        let look = |file: &mut LeasedFile<_>| {
            let mut seen = Vec::new();
            file.look(&mut |others| seen.push(others)).unwrap();
            seen
        };
        let read = |file: &LeasedFile<_>, at| {
            let mut bytes = [0; 2];
            file.read_written(at, &mut bytes).unwrap().then_some(bytes[1])
        };
        assert_eq!(look(&mut other), [Others::Wrote { at: 0, len: 4096 }]);
        assert_eq!((append(&mut other, &[2; 9]), other.size()), (Ok(Wrote::Done), Some(4105)));
        assert_eq!((look(&mut one), one.size()), (vec![Others::Wrote { at: 4096, len: 9 }], Some(4105)));
        assert_eq!(
            (look(&mut one), read(&one, 9), read(&one, 4096), read(&other, 0)),
            (vec![], Some(1), Some(2), Some(1))
        );
        // The short one was taken over, and a place is given away.
        memory.store_u64(log.taken_at(), 2);
        assert_eq!((read(&one, 9), read(&one, 4096)), (Some(1), None));
        memory.store_u64(log.lending_at(), 5);
        assert_eq!((read(&one, 9), look(&mut one), read(&one, 9)), (None, vec![], Some(1)));
        memory.store_u64(log.dropped_at(), 1);
        assert_eq!((read(&one, 9), look(&mut one), read(&one, 9)), (None, vec![], None));
        // What another one syncs is durable for both.
        other.sync().unwrap();
        assert_eq!(memory.load_u64(log.committed_at()), Ok(2));
        // A third one comes too late to see each element.
        let mut third = LeasedFile::new(memory.clone(), LeaseGrant { size: 4105, ..one.grant });
        assert_eq!(
            (look(&mut third), third.size()),
            (vec![Others::Wrote { at: 0, len: 4096 }, Others::Wrote { at: 4096, len: 9 }, Others::WroteMuch], None)
        );
        assert_eq!(third.turn(&mut |_| {}, &mut |_| false).unwrap().expect("free").size(), 4105);
    }

    #[test]
    fn one_process_at_a_time_has_a_turn() {
        let memory = Arc::new(SharedMemory::new(1 << 16));
        let (mut one, mut other) = (leased(&memory, 4), leased(&memory, 4));
        let turn = one.turn(&mut |_| {}, &mut |_| false).unwrap();
        assert!(turn.is_some() && other.turn(&mut |_| {}, &mut |_| false).unwrap().is_none());
        drop(turn);
        assert!(other.turn(&mut |_| {}, &mut |_| false).unwrap().is_some());
    }

    /// One process stores what is durable, and is stopped before it flushes that; another one
    /// syncs.
    #[test]
    fn a_sync_flushes_what_another_process_stored() {
        let memory = Arc::new(tidegate_sim::Region::new(1 << 16));
        let log = LeasePlan::of(0, Class::ALL[0]);
        memory.write(0, LeaseHead::new(7, 4, 0).as_bytes());
        (0..4).for_each(|number| memory.write(log.element_at(number), LeaseElement::lent(0, number).as_bytes()));
        let grant = LeaseGrant { lease: 7, log, blocks_at: BLOCKS_AT, size: 0, room: [0, 20_000] };
        let [mut one, mut other] = [0, 1].map(|_| LeasedFile::new(memory.clone(), grant));
        on_core(1, || one.turn(&mut |_| {}, &mut |_| false).unwrap().expect("free").write(0, &[1; 10], 0)).unwrap();
        on_core(1, || memory.store_u64(log.committed_at(), 1));
        on_core(2, || other.sync()).unwrap();
        assert_eq!(memory.cut().least().load_u64(log.committed_at()), 1);
    }
}
