//! A journal as JBD2 writes one for data: each transaction in a log of descriptor, data, revoke and
//! commit blocks, and later in its place.
//!
//! One transaction is written at a time. What was asked for meanwhile is committed together by
//! whoever comes next. Checkpoints go on beside that, in steps that somebody else calls; a commit
//! does one only if the log has no room.

use super::flash_cache::FlashCache;
use super::wait_a_little;
use std::collections::{BTreeMap, HashMap, VecDeque};
use tidegate_media::sync::Mutex;
use tidegate_media::{Region, Result};

/// Bytes of a block.
const BLOCK: usize = 4096;

/// What every block of the log begins with, but those of data.
const MAGIC: u32 = 0xc03b_3998;

/// Kinds of blocks.
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK: u32 = 4;
const REVOKE: u32 = 5;

/// Bytes of a header, and of what follows it once in a descriptor: the log's own name.
const HEADER: usize = 12;
const NAME: usize = 16;

/// Bytes that name a block in a descriptor, and in a block of revocations.
const TAG: usize = 8;

/// Blocks that one descriptor names.
const TAGS: usize = (BLOCK - HEADER - NAME) / TAG;

/// Between two looks at whether the next transaction has room.
const JOIN_AGAIN_NS: u64 = 50_000;

/// A block's bytes.
pub type Bytes = Box<[u8]>;

/// The journal of a file system, and the cache below both.
pub struct Journal<R> {
    cache: FlashCache<R>,
    /// The log's first block, which says where it begins, and its blocks.
    first: u64,
    blocks: u64,
    /// Held by the one who writes a transaction.
    committing: Mutex<()>,
    /// Held by the one who puts blocks in their place.
    checkpointing: Mutex<()>,
    log: Mutex<Log>,
    running: Mutex<Running>,
    /// Blocks not yet in their place: the transaction they were written by last, and their bytes.
    newest: Mutex<HashMap<u64, (u32, Bytes)>>,
}

/// Where the log is.
struct Log {
    /// Blocks written to it so far, and those of them that count no more.
    head: u64,
    tail: u64,
    sequence: u32,
    logged: VecDeque<Logged>,
}

/// A transaction in the log.
struct Logged {
    sequence: u32,
    lbas: Vec<u64>,
    /// Where the next one begins.
    end: u64,
}

/// What is to be committed next, and how many times that was done.
#[derive(Default)]
struct Running {
    writes: BTreeMap<u64, Bytes>,
    number: u64,
}

impl<R: Region> Journal<R> {
    /// An empty journal in `blocks` of the disk from `first` on.
    pub fn new(cache: FlashCache<R>, first: u64, blocks: u64) -> Journal<R> {
        Journal {
            cache,
            first,
            blocks,
            committing: Mutex::default(),
            checkpointing: Mutex::default(),
            log: Mutex::new(Log { head: 0, tail: 0, sequence: 1, logged: VecDeque::new() }),
            running: Mutex::default(),
            newest: Mutex::default(),
        }
    }

    /// The cache below.
    pub fn cache(&self) -> &FlashCache<R> {
        &self.cache
    }

    /// What was committed last.
    pub fn read(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        if let Some((_, data)) = self.newest.lock().get(&lba) {
            out.copy_from_slice(data);
            return Ok(());
        }
        self.cache.read(lba, out)
    }

    /// Commits `writes`, together with whatever others ask for while one transaction is written.
    /// Durable on return.
    pub fn commit_with_others(&self, writes: impl IntoIterator<Item = (u64, Bytes)>) -> Result<()> {
        let number = self.join(writes);
        let _one_at_a_time = self.committing.lock();
        let mut running = self.running.lock();
        if running.number > number {
            return Ok(());
        }
        running.number += 1;
        let all = std::mem::take(&mut running.writes);
        drop(running);
        let all: Vec<(u64, Bytes)> = all.into_iter().collect();
        self.write_out(&all, &[])
    }

    /// Adds `writes` to what is committed next, when that has room: a quarter of the log at most.
    /// Says the number of that.
    fn join(&self, writes: impl IntoIterator<Item = (u64, Bytes)>) -> u64 {
        let writes: Vec<(u64, Bytes)> = writes.into_iter().collect();
        loop {
            let mut running = self.running.lock();
            if running.writes.is_empty() || ((running.writes.len() + writes.len()) as u64) <= self.blocks / 4 {
                running.writes.extend(writes);
                return running.number;
            }
            drop(running);
            // Until the transaction under way is written: about what a sleeper's wake-up takes.
            wait_a_little(JOIN_AGAIN_NS);
        }
    }

    /// Commits `writes` together, and that `revoked` blocks of older transactions count no more.
    /// Durable on return.
    #[cfg(test)]
    pub fn commit(&self, writes: &[(u64, Bytes)], revoked: &[u64]) -> Result<()> {
        let _one_at_a_time = self.committing.lock();
        self.write_out(writes, revoked)
    }

    fn write_out(&self, writes: &[(u64, Bytes)], revoked: &[u64]) -> Result<()> {
        let descriptors = writes.len().div_ceil(TAGS);
        let needed = (descriptors + writes.len() + usize::from(!revoked.is_empty()) + 1) as u64;
        assert!(needed < self.blocks, "a transaction fits into the log");
        while self.used() + needed > self.blocks - 1 {
            let logged = self.log.lock().logged.len();
            self.checkpoint(logged.div_ceil(4))?;
        }
        let sequence = self.log.lock().sequence;
        let revocation = block(sequence, REVOKE, revoked.iter().copied(), 4);
        let describe =
            |together: &[(u64, Bytes)]| block(sequence, DESCRIPTOR, together.iter().map(|(lba, _)| *lba), NAME);
        let descriptors: Vec<[u8; BLOCK]> = writes.chunks(TAGS).map(describe).collect();
        let mut logged: Vec<&[u8]> = Vec::with_capacity(writes.len() + descriptors.len() + 1);
        logged.extend((!revoked.is_empty()).then_some(&revocation[..]));
        for (descriptor, together) in descriptors.iter().zip(writes.chunks(TAGS)) {
            logged.push(descriptor);
            logged.extend(together.iter().map(|(_, data)| &data[..]));
        }
        self.append(&logged)?;
        self.append(&[&block(sequence, COMMIT, std::iter::empty(), 0)])?;
        let mut newest = self.newest.lock();
        for (lba, data) in writes {
            newest.insert(*lba, (sequence, data.clone()));
        }
        drop(newest);
        let mut log = self.log.lock();
        let end = log.head;
        log.logged.push_back(Logged { sequence, lbas: writes.iter().map(|(lba, _)| *lba).collect(), end });
        log.sequence += 1;
        Ok(())
    }

    /// Blocks of the log that still count.
    fn used(&self) -> u64 {
        let log = self.log.lock();
        log.head - log.tail
    }

    /// Puts the oldest transaction's blocks in their place if more than half of the log counts.
    /// False if not.
    pub fn checkpoint_step(&self) -> Result<bool> {
        if self.used() <= self.blocks / 2 {
            return Ok(false);
        }
        self.checkpoint(1)?;
        Ok(true)
    }

    /// Puts the blocks of the oldest `transactions` in their place, but those that were logged
    /// again, and moves the log's beginning.
    pub fn checkpoint(&self, transactions: usize) -> Result<()> {
        let _one_at_a_time = self.checkpointing.lock();
        for _ in 0..transactions {
            let Some(oldest) = self.log.lock().logged.pop_front() else { break };
            self.put_in_place(&oldest)?;
            self.log.lock().tail = oldest.end;
        }
        let log = self.log.lock();
        let superblock = block(log.sequence, SUPERBLOCK, std::iter::once(log.tail), 0);
        drop(log);
        self.cache.write(self.first, &superblock)
    }

    /// Writes what a transaction logged, but blocks that a newer one did.
    fn put_in_place(&self, logged: &Logged) -> Result<()> {
        let newest = self.newest.lock();
        let of_it =
            |lba: &u64| newest.get(lba).filter(|(by, _)| *by == logged.sequence).map(|(_, data)| (*lba, data.clone()));
        let blocks: Vec<(u64, Bytes)> = logged.lbas.iter().filter_map(of_it).collect();
        drop(newest);
        let borrowed: Vec<(u64, &[u8])> = blocks.iter().map(|(lba, data)| (*lba, &data[..])).collect();
        self.cache.write_together(&borrowed)?;
        let mut newest = self.newest.lock();
        for (lba, _) in blocks {
            if newest.get(&lba).is_some_and(|(by, _)| *by == logged.sequence) {
                newest.remove(&lba);
            }
        }
        Ok(())
    }

    /// Writes the next blocks of the log.
    fn append(&self, blocks: &[&[u8]]) -> Result<()> {
        let mut log = self.log.lock();
        let places = (log.head..).map(|nth| self.first + 1 + nth % (self.blocks - 1));
        let placed: Vec<(u64, &[u8])> = places.zip(blocks.iter().copied()).collect();
        log.head += blocks.len() as u64;
        drop(log);
        self.cache.write_together(&placed)
    }
}

/// A block of transaction `sequence` that names `lbas` after its header and `skipped` bytes.
fn block(sequence: u32, kind: u32, lbas: impl Iterator<Item = u64>, skipped: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    for (word, value) in block.chunks_exact_mut(4).zip([MAGIC, kind, sequence]) {
        word.copy_from_slice(&value.to_be_bytes());
    }
    for (tag, lba) in block[HEADER + skipped..].chunks_exact_mut(TAG).zip(lbas) {
        tag.copy_from_slice(&lba.to_be_bytes());
    }
    block
}
