//! The dull model beside every device: which contents may a block show, now and after a power cut?
//!
//! 1. A block shows the content of one of its operations (or what it held at the start), never a
//!    mixture.
//! 2. A content is *gone* once an operation that replaces it, and began after it was acknowledged,
//!    was itself acknowledged. What is still in flight may show or not, and of two that overlapped
//!    either may stay.
//! 3. A content that was seen makes gone what was acknowledged before its operation began, for
//!    later reads.
//! 4. After a power cut the same holds, with *durable* in place of *acknowledged*: at once on a
//!    device without a volatile cache; on others by FUA, or by a flush that began after the
//!    acknowledgement.
//! 5. A discard leaves the old content or zeroes, and whichever a read has shown stays until the
//!    next write.

use std::fmt;
use tidegate_media::{Durability, Lba, LbaRange};
use tidegate_virtual_cores::mix;

/// The content of one block, by its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Content(pub u64);

impl Content {
    /// The content of a block that holds `bytes`.
    pub fn of(bytes: &[u8]) -> Content {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut digest = bytes.len() as u64;
        for word in words {
            digest = (digest.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9fb2_1c65_1e98_df25);
        }
        for byte in rest {
            digest = (digest.rotate_left(29) ^ u64::from(*byte)).wrapping_mul(0x9fb2_1c65_1e98_df25);
        }
        Content(mix(digest))
    }
}

/// When a device says that a completed operation is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// On completion: there is no volatile cache.
    OnCompletion,
    /// By a flush, or on completion with FUA.
    OnFlush,
}

/// A content that a block may show.
#[derive(Clone, Debug)]
struct Known {
    content: Content,
    operation: u64,
    began: u64,
    acknowledged: Option<u64>,
    durable: bool,
    /// Whether its acknowledgement makes older contents gone.
    replaces: bool,
    /// When reads could no longer show it.
    gone: Option<u64>,
    /// Whether a power cut can no longer bring it back.
    gone_for_ever: bool,
}

impl Known {
    fn at_rest(content: Content) -> Known {
        Known {
            content,
            operation: 0,
            began: 0,
            acknowledged: Some(0),
            durable: true,
            replaces: true,
            gone: None,
            gone_for_ever: false,
        }
    }
}

/// An operation that has begun and has not been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Pending {
    operation: u64,
    range: LbaRange,
    durability: Durability,
}

/// When a read, or a flush, began.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct ReadStart(u64);

/// A block that shows what it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The block.
    pub lba: Lba,
    /// What it showed.
    pub found: Content,
    /// What it might have shown.
    pub allowed: Vec<Content>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shows {:x?}, which is none of {:x?}", self.lba, self.found, self.allowed)
    }
}

impl std::error::Error for Wrong {}

/// Which contents each block of a device may show.
#[derive(Clone, Debug)]
pub struct Oracle {
    promise: Promise,
    zero: Content,
    blocks: Vec<Vec<Known>>,
    now: u64,
    /// Whether reads may still ask about the past.
    keep_past: bool,
    /// When the reads under way began.
    reading: Vec<u64>,
}

impl Oracle {
    /// A device of `blocks` blocks of `block_bytes` zeroes, all of them durable.
    pub fn zeroed(blocks: u64, block_bytes: usize, promise: Promise) -> Oracle {
        let zero = Content::of(&vec![0; block_bytes]);
        let blocks = (0..blocks).map(|_| vec![Known::at_rest(zero)]).collect();
        Oracle { promise, zero, blocks, now: 1, keep_past: false, reading: Vec::new() }
    }

    /// Keeps gone contents for reads that run beside writes ([`Oracle::read_began`]).
    pub fn with_concurrent_reads(mut self) -> Oracle {
        self.keep_past = true;
        self
    }

    /// A write of one block begins: it shows the old content or `content` from here on.
    pub fn write_began(&mut self, lba: Lba, content: Content, durability: Durability) -> Pending {
        self.began(LbaRange { first: lba, blocks: 1 }, content, durability, true)
    }

    /// A write of zeroes begins.
    pub fn write_zeroes_began(&mut self, range: LbaRange, durability: Durability) -> Pending {
        self.began(range, self.zero, durability, true)
    }

    /// A discard begins.
    pub fn discard_began(&mut self, range: LbaRange) -> Pending {
        self.began(range, self.zero, Durability::Volatile, false)
    }

    /// The device said that the operation is complete.
    pub fn acknowledged(&mut self, pending: Pending) {
        let now = self.tick();
        let durable = self.promise == Promise::OnCompletion || pending.durability == Durability::Fua;
        for lba in pending.range.iter() {
            let asked = self.oldest_asked();
            let block = self.block(lba);
            let known = block.iter_mut().find(|known| known.operation == pending.operation);
            let known = known.expect("an operation in flight shows its content");
            known.acknowledged = Some(now);
            known.durable = durable;
            let (began, replaces) = (known.began, known.replaces);
            if replaces {
                replace(block, began, now, durable);
                forget(block, asked);
            }
        }
    }

    /// The device said that nothing of the operation was done, and nothing will be.
    pub fn withdraw(&mut self, pending: Pending) {
        for lba in pending.range.iter() {
            self.block(lba).retain(|known| known.operation != pending.operation);
        }
    }

    /// The contents of `lba` that were acknowledged and that it may show now.
    pub fn acknowledged_of(&self, lba: Lba) -> Vec<Content> {
        let there = self.at(lba).iter().filter(|known| known.gone.is_none() && known.acknowledged.is_some());
        there.map(|known| known.content).collect()
    }

    /// A flush begins; give its answer to [`Oracle::flush_acknowledged`].
    pub fn flush_began(&mut self) -> ReadStart {
        ReadStart(self.tick())
    }

    /// What was acknowledged before the flush began is durable.
    pub fn flush_acknowledged(&mut self, start: ReadStart) {
        let asked = self.oldest_asked();
        for block in &mut self.blocks {
            let covered = |known: &Known| known.acknowledged.is_some_and(|at| at < start.0);
            block.iter_mut().filter(|known| covered(known)).for_each(|known| known.durable = true);
            let newest = block.iter().filter(|known| known.durable && known.replaces).map(|known| known.began).max();
            for known in block.iter_mut() {
                known.gone_for_ever |= newest.is_some_and(|began| known.acknowledged.is_some_and(|at| at < began));
            }
            forget(block, asked);
        }
    }

    /// A read begins beside other operations.
    pub fn read_began(&mut self) -> ReadStart {
        let start = self.tick();
        self.reading.push(start);
        ReadStart(start)
    }

    /// Nobody asks what the read that began at `start` found.
    pub fn read_abandoned(&mut self, start: ReadStart) {
        if let Some(index) = self.reading.iter().position(|began| *began == start.0) {
            self.reading.swap_remove(index);
        }
    }

    /// The read that began at `start` is over, and found `content` in `lba`.
    pub fn read_ended(&mut self, start: ReadStart, lba: Lba, content: Content) -> Result<(), Wrong> {
        let now = self.tick();
        self.read_abandoned(start);
        let block = self.block(lba);
        let showable = |known: &&Known| known.gone.is_none_or(|gone| gone > start.0);
        let allowed: Vec<&Known> = block.iter().filter(showable).collect();
        let Some(seen) = allowed.iter().filter(|known| known.content == content).map(|known| known.began).min() else {
            let allowed = allowed.iter().map(|known| known.content).collect();
            return Err(Wrong { lba, found: content, allowed });
        };
        for known in block.iter_mut() {
            let older = known.acknowledged.is_some_and(|at| at < seen);
            let undone =
                !known.replaces && known.acknowledged.is_some_and(|at| at < start.0) && known.content != content;
            if older || undone {
                known.gone.get_or_insert(now);
            }
        }
        Ok(())
    }

    /// Nothing else runs, and `lba` shows `content`: from here on it shows nothing else, after a
    /// power cut neither where the content is durable.
    pub fn observe(&mut self, lba: Lba, content: Content) -> Result<(), Wrong> {
        let block = self.block(lba);
        if !block.iter().any(|known| known.gone.is_none() && known.content == content) {
            let allowed = block.iter().filter(|known| known.gone.is_none()).map(|known| known.content).collect();
            return Err(Wrong { lba, found: content, allowed });
        }
        let durable = block.iter().any(|known| known.gone.is_none() && known.content == content && known.durable);
        for known in block.iter_mut().filter(|known| known.content != content) {
            known.gone.get_or_insert(0);
            known.gone_for_ever |= durable;
        }
        Ok(())
    }

    /// The medium tore `lba`, as it may: from here on the block holds `content`, for good.
    pub fn tore(&mut self, lba: Lba, content: Content) {
        *self.block(lba) = vec![Known::at_rest(content)];
    }

    /// This device after a power cut at this instant: a block shows any content that is not gone
    /// for ever.
    pub fn after_cut(&self) -> Oracle {
        let mut after = Oracle { now: 1, reading: Vec::new(), ..self.clone() };
        for block in &mut after.blocks {
            block.retain(|known| !known.gone_for_ever);
            let mut contents: Vec<Content> = block.iter().map(|known| known.content).collect();
            contents.sort_unstable();
            contents.dedup();
            *block = contents.into_iter().map(Known::at_rest).collect();
        }
        after
    }

    /// These contents for a device without a volatile cache, asked by reads that run beside writes.
    pub fn as_seen_by_reads(self) -> Oracle {
        Oracle { promise: Promise::OnCompletion, ..self }.with_concurrent_reads()
    }

    /// Whether `lba` may show `content` now.
    pub fn allows(&self, lba: Lba, content: Content) -> bool {
        self.at(lba).iter().any(|known| known.gone.is_none() && known.content == content)
    }

    /// What `lba` may show now.
    pub fn allowed(&self, lba: Lba) -> Vec<Content> {
        self.at(lba).iter().filter(|known| known.gone.is_none()).map(|known| known.content).collect()
    }

    /// Blocks in the device.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Whether the device has no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A number that oracles share which allow the same after a cut.
    pub fn hash(&self) -> u64 {
        let mut hash = 0;
        for (lba, block) in self.blocks.iter().enumerate() {
            let mut contents: Vec<u64> =
                block.iter().filter(|known| !known.gone_for_ever).map(|known| known.content.0).collect();
            contents.sort_unstable();
            contents.dedup();
            for content in contents {
                hash = mix(hash ^ content.wrapping_add(lba as u64));
            }
            hash = mix(hash.wrapping_add(1));
        }
        hash
    }

    fn began(&mut self, range: LbaRange, content: Content, durability: Durability, replaces: bool) -> Pending {
        let began = self.tick();
        for lba in range.iter() {
            let known = Known {
                operation: began,
                began,
                acknowledged: None,
                durable: false,
                replaces,
                ..Known::at_rest(content)
            };
            self.block(lba).push(known);
        }
        Pending { operation: began, range, durability }
    }

    /// Since when reads may ask what a block showed.
    fn oldest_asked(&self) -> u64 {
        if self.keep_past { self.reading.iter().copied().min().unwrap_or(self.now) } else { u64::MAX }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn block(&mut self, lba: Lba) -> &mut Vec<Known> {
        let index = usize::try_from(lba.0).expect("a block of the device");
        &mut self.blocks[index]
    }

    fn at(&self, lba: Lba) -> &[Known] {
        &self.blocks[usize::try_from(lba.0).expect("a block of the device")]
    }
}

/// The content of an operation that began at `began` takes the place of what was acknowledged
/// before.
fn replace(block: &mut [Known], began: u64, now: u64, durable: bool) {
    for known in block.iter_mut().filter(|known| known.acknowledged.is_some_and(|at| at < began)) {
        known.gone.get_or_insert(now);
        known.gone_for_ever |= durable;
    }
}

/// Drops what can show neither now nor after a cut, and could not since `asked`.
fn forget(block: &mut Vec<Known>, asked: u64) {
    block.retain(|known| !known.gone_for_ever || known.gone.is_none_or(|gone| gone > asked));
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Content = Content(0xa);
    const B: Content = Content(0xb);
    const LBA: Lba = Lba(1);
    const ONE: LbaRange = LbaRange { first: LBA, blocks: 1 };

    fn device(promise: Promise) -> Oracle {
        Oracle::zeroed(2, 512, promise)
    }

    fn write(oracle: &mut Oracle, content: Content, durability: Durability) {
        let pending = oracle.write_began(LBA, content, durability);
        oracle.acknowledged(pending);
    }

    fn after_cut(oracle: &Oracle) -> Vec<Content> {
        let mut allowed = oracle.after_cut().allowed(LBA);
        allowed.sort();
        allowed
    }

    fn sorted(mut contents: Vec<Content>) -> Vec<Content> {
        contents.sort();
        contents
    }

    #[test]
    fn a_write_in_flight_shows_or_not_and_an_acknowledged_one_does() {
        let mut oracle = device(Promise::OnCompletion);
        let zero = oracle.zero;
        let pending = oracle.write_began(LBA, A, Durability::Volatile);
        assert_eq!(after_cut(&oracle), sorted(vec![zero, A]));
        oracle.acknowledged(pending);
        assert_eq!(after_cut(&oracle), [A]);
        assert_eq!(oracle.after_cut().allowed(Lba(0)), [zero]);
    }

    #[test]
    fn a_withdrawn_write_shows_nowhere() {
        let mut oracle = device(Promise::OnCompletion);
        let zero = oracle.zero;
        let pending = oracle.write_began(LBA, A, Durability::Volatile);
        assert_eq!(oracle.acknowledged_of(LBA), [zero]);
        oracle.withdraw(pending);
        assert_eq!((oracle.allowed(LBA), after_cut(&oracle)), (vec![zero], vec![zero]));
    }

    #[test]
    fn a_volatile_cache_forgets_until_a_flush_that_began_later() {
        let mut oracle = device(Promise::OnFlush);
        let zero = oracle.zero;
        let early = oracle.flush_began();
        write(&mut oracle, A, Durability::Volatile);
        oracle.flush_acknowledged(early);
        assert_eq!(after_cut(&oracle), sorted(vec![zero, A]));
        let late = oracle.flush_began();
        oracle.flush_acknowledged(late);
        assert_eq!(after_cut(&oracle), [A]);
        write(&mut oracle, B, Durability::Volatile);
        assert_eq!(oracle.allowed(LBA), [B]);
        assert_eq!(after_cut(&oracle), [A, B]);
    }

    #[test]
    fn fua_is_durable_on_completion() {
        let mut oracle = device(Promise::OnFlush);
        write(&mut oracle, A, Durability::Volatile);
        write(&mut oracle, B, Durability::Fua);
        assert_eq!(after_cut(&oracle), [B]);
    }

    #[test]
    fn a_discard_leaves_old_or_zero_until_a_read_decides() {
        let mut oracle = device(Promise::OnCompletion);
        let zero = oracle.zero;
        write(&mut oracle, A, Durability::Volatile);
        let pending = oracle.discard_began(ONE);
        oracle.acknowledged(pending);
        assert_eq!(sorted(oracle.allowed(LBA)), sorted(vec![zero, A]));
        oracle.observe(LBA, zero).expect("zero is allowed");
        assert!(oracle.observe(LBA, A).is_err(), "the answer must stay the same");
        write(&mut oracle, B, Durability::Volatile);
        assert_eq!(after_cut(&oracle), [B]);
    }

    #[test]
    fn zeroes_written_replace() {
        let mut oracle = device(Promise::OnCompletion);
        write(&mut oracle, A, Durability::Volatile);
        let pending = oracle.write_zeroes_began(ONE, Durability::Volatile);
        oracle.acknowledged(pending);
        assert_eq!(after_cut(&oracle), [oracle.zero]);
    }

    #[test]
    fn of_two_overlapping_writes_either_may_stay() {
        let mut oracle = device(Promise::OnCompletion);
        let first = oracle.write_began(LBA, A, Durability::Volatile);
        let second = oracle.write_began(LBA, B, Durability::Volatile);
        oracle.acknowledged(first);
        oracle.acknowledged(second);
        assert_eq!(after_cut(&oracle), [A, B]);
        oracle.observe(LBA, A).expect("either");
        assert!(oracle.observe(LBA, B).is_err());
    }

    #[test]
    fn what_a_recovery_showed_stays() {
        let mut oracle = device(Promise::OnCompletion);
        let _ = oracle.write_began(LBA, A, Durability::Volatile);
        let mut after = oracle.after_cut();
        after.observe(LBA, A).expect("in flight");
        assert!(after.observe(LBA, oracle.zero).is_err());
        assert!(after.observe(LBA, B).is_err());
    }

    #[test]
    fn a_read_beside_a_write_is_never_older_than_one_that_ended_before_it_began() {
        let mut oracle = device(Promise::OnCompletion).with_concurrent_reads();
        let zero = oracle.zero;
        let early = oracle.read_began();
        let write = oracle.write_began(LBA, A, Durability::Volatile);
        let late = oracle.read_began();
        oracle.read_ended(late, LBA, A).expect("in flight");
        oracle.read_ended(early, LBA, zero).expect("it began before");
        let next = oracle.read_began();
        assert!(oracle.read_ended(next, LBA, zero).is_err(), "stale");
        oracle.acknowledged(write);
        let next = oracle.read_began();
        assert!(oracle.read_ended(next, LBA, zero).is_err(), "stale");
    }

    #[test]
    fn a_torn_block_is_none_of_its_contents() {
        let mut torn = [1u8; 512];
        torn[8..16].fill(2);
        assert_ne!(Content::of(&torn), Content::of(&[1; 512]));
        assert_ne!(Content::of(&torn), Content::of(&[2; 512]));
    }
}
