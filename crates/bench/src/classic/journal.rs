//! A journal as JBD2 writes one for data: each transaction in a log of descriptor, data, revoke and commit blocks, and later in its place.

use super::flash_cache::FlashCache;
use std::collections::{HashMap, VecDeque};
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

/// The journal of a file system, and the cache below both.
pub(super) struct Journal<R> {
    cache: FlashCache<R>,
    /// The log's first block, which says where it begins, and its blocks.
    first: u64,
    blocks: u64,
    /// Blocks written to the log so far, and those of them that count no more.
    head: u64,
    tail: u64,
    sequence: u32,
    logged: VecDeque<Logged>,
    /// Blocks not yet in their place: the transaction they were written by last, and their bytes.
    newest: HashMap<u64, (u32, Box<[u8]>)>,
}

/// A transaction in the log.
struct Logged {
    sequence: u32,
    lbas: Vec<u64>,
    /// Where the next one begins.
    end: u64,
}

impl<R: Region> Journal<R> {
    /// An empty journal in `blocks` of the disk from `first` on.
    pub(super) fn new(cache: FlashCache<R>, first: u64, blocks: u64) -> Journal<R> {
        Journal { cache, first, blocks, head: 0, tail: 0, sequence: 1, logged: VecDeque::new(), newest: HashMap::new() }
    }

    pub(super) fn cache(&self) -> &FlashCache<R> {
        &self.cache
    }

    /// What was committed last.
    pub(super) fn read(&mut self, lba: u64, out: &mut [u8]) -> Result<()> {
        match self.newest.get(&lba) {
            Some((_, data)) => out.copy_from_slice(data),
            None => self.cache.read(lba, out)?,
        }
        Ok(())
    }

    /// Commits `writes` together, and that `revoked` blocks of older transactions count no more. Durable on return.
    pub(super) fn commit(&mut self, writes: &[(u64, &[u8])], revoked: &[u64]) -> Result<()> {
        let descriptors = writes.len().div_ceil(TAGS);
        let needed = (descriptors + writes.len() + usize::from(!revoked.is_empty()) + 1) as u64;
        assert!(needed < self.blocks, "a transaction fits into the log");
        while self.head + needed - self.tail > self.blocks - 1 {
            self.checkpoint(self.logged.len().div_ceil(4))?;
        }
        if !revoked.is_empty() {
            self.append(&self.block(REVOKE, revoked.iter().copied(), 4))?;
        }
        for together in writes.chunks(TAGS) {
            self.append(&self.block(DESCRIPTOR, together.iter().map(|(lba, _)| *lba), NAME))?;
            together.iter().try_for_each(|(_, data)| self.append(data))?;
        }
        self.append(&self.block(COMMIT, std::iter::empty(), 0))?;
        for (lba, data) in writes {
            self.newest.insert(*lba, (self.sequence, Box::from(*data)));
        }
        let lbas = writes.iter().map(|(lba, _)| *lba).collect();
        self.logged.push_back(Logged { sequence: self.sequence, lbas, end: self.head });
        self.sequence += 1;
        Ok(())
    }

    /// Puts the blocks of the oldest `transactions` in their place, but those that were logged again, and moves the log's beginning.
    pub(super) fn checkpoint(&mut self, transactions: usize) -> Result<()> {
        for _ in 0..transactions {
            let Some(oldest) = self.logged.pop_front() else { break };
            for lba in oldest.lbas {
                if self.newest.get(&lba).is_some_and(|(sequence, _)| *sequence == oldest.sequence) {
                    let (_, data) = self.newest.remove(&lba).expect("just seen");
                    self.cache.write(lba, &data)?;
                }
            }
            self.tail = oldest.end;
        }
        let superblock = self.block(SUPERBLOCK, std::iter::once(self.tail), 0);
        self.cache.write(self.first, &superblock)
    }

    /// Writes the next block of the log.
    fn append(&mut self, block: &[u8]) -> Result<()> {
        let at = self.first + 1 + self.head % (self.blocks - 1);
        self.head += 1;
        self.cache.write(at, block)
    }

    /// A block that names `lbas` after its header and `skipped` bytes.
    fn block(&self, kind: u32, lbas: impl Iterator<Item = u64>, skipped: usize) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        for (word, value) in block.chunks_exact_mut(4).zip([MAGIC, kind, self.sequence]) {
            word.copy_from_slice(&value.to_be_bytes());
        }
        for (tag, lba) in block[HEADER + skipped..].chunks_exact_mut(TAG).zip(lbas) {
            tag.copy_from_slice(&lba.to_be_bytes());
        }
        block
    }
}
