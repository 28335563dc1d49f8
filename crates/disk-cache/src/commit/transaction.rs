//! Transactions under way: they live in DRAM until they are committed.
//!
//! Transactions do not lock each other out. Of two that wrote one block, the one that is committed
//! last wins the block; each is put in place as a whole. With [`Conflicts::Refuse`] a transaction
//! is refused instead if somebody committed a block that it read or wrote since it began: those
//! that are not refused could have run one after the other.

use crate::cache::DiskCache;
use crate::commit::conflicts::Conflicts;
use crate::mode::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use tidegate_media::{BlockDevice, Error, Lba, Misuse, Region, Result};

/// Writes that will be put in place together, or not at all. Dropping one is aborting it.
pub struct Transaction<'a, R> {
    cache: Whose<'a, R>,
    writes: BTreeMap<u64, Box<[u8]>>,
    /// If it refuses conflicts.
    watched: Option<Watched>,
}

/// A cache that outlives its transaction, or is kept open by it.
enum Whose<'a, R> {
    Lent(&'a DiskCache<R>),
    Shared(Arc<DiskCache<R>>),
}

impl<R> Deref for Whose<'_, R> {
    type Target = DiskCache<R>;

    fn deref(&self) -> &DiskCache<R> {
        match self {
            Whose::Lent(cache) => cache,
            Whose::Shared(cache) => cache,
        }
    }
}

/// What a transaction that refuses conflicts has seen.
struct Watched {
    began: u64,
    reads: BTreeSet<u64>,
}

/// Why a transaction was not committed, or a write not added to it. Nothing of the transaction is
/// in place, unless the error is a device's that is [`Sealed`](tidegate_media::Sealed): then the
/// next opening shows all or nothing of it. In modes that bring writes to the disk at once, an
/// error of the disk comes after the commit: then all of it is in place, and dirty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// More blocks than a transaction takes.
    #[error("a transaction of {blocks} blocks is too large: the cache's ring and size allow {max}")]
    TooLarge {
        /// Blocks it has.
        blocks: u64,
        /// Blocks it may have.
        max: u32,
    },
    /// Somebody else committed a block that the transaction read or wrote. It may be tried again
    /// from its beginning.
    #[error("{lba} was committed by somebody else since the transaction began")]
    Conflict {
        /// The block.
        lba: Lba,
    },
    /// What the cache or the disk answered.
    #[error(transparent)]
    Device(#[from] Error),
}

impl From<Misuse> for TransactionError {
    fn from(misuse: Misuse) -> TransactionError {
        TransactionError::Device(misuse.into())
    }
}

impl<R: Region> DiskCache<R> {
    /// Begins a transaction. It costs nothing until it is committed.
    pub fn begin(&self) -> Transaction<'_, R> {
        Transaction::on(Whose::Lent(self))
    }

    /// Begins a transaction that keeps the cache open until it is over.
    pub fn begin_shared(self: &Arc<DiskCache<R>>) -> Transaction<'static, R> {
        Transaction::on(Whose::Shared(Arc::clone(self)))
    }
}

impl<'a, R: Region> Transaction<'a, R> {
    fn on(cache: Whose<'a, R>) -> Transaction<'a, R> {
        let watched = match cache.committer.conflicts {
            Conflicts::LastWins => None,
            Conflicts::Refuse => Some(Watched { began: cache.committer.recent.begin(), reads: BTreeSet::new() }),
        };
        Transaction { cache, writes: BTreeMap::new(), watched }
    }

    /// Adds whole blocks from `at` on. A block written before is replaced. On an error nothing is
    /// added.
    pub fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), TransactionError> {
        let range = self.cache.geometry.range(at, data.len())?;
        let new = range.iter().filter(|lba| !self.writes.contains_key(&lba.0)).count();
        let (blocks, max) = ((self.writes.len() + new) as u64, self.cache.transaction_blocks_max());
        if blocks > u64::from(max) {
            return Err(TransactionError::TooLarge { blocks, max });
        }
        let size = self.cache.geometry.block_size as usize;
        for (lba, block) in range.iter().zip(data.chunks_exact(size)) {
            self.writes.insert(lba.0, block.into());
        }
        Ok(())
    }

    /// Reads blocks as the transaction sees them: what it wrote itself, and of the rest what is
    /// committed at that moment.
    pub fn read(&mut self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.cache.read(at, out)?;
        let range = self.cache.geometry.range(at, out.len())?;
        if let Some(watched) = &mut self.watched {
            watched.reads.extend(range.iter().map(|lba| lba.0));
        }
        let size = self.cache.geometry.block_size as usize;
        for (lba, block) in self.writes.range(range.first.0..range.end()) {
            let place = usize::try_from(lba - range.first.0).expect("a place in a buffer") * size;
            out[place..place + size].copy_from_slice(block);
        }
        Ok(())
    }

    /// Blocks written so far.
    pub fn blocks(&self) -> usize {
        self.writes.len()
    }

    /// Puts all of it in place at once, durably. In modes that send writes past the cache it is
    /// committed to the cache, and then brought to the disk.
    pub fn commit(self) -> Result<(), TransactionError> {
        let writes: Vec<_> = self.writes.iter().map(|(lba, block)| (*lba, &**block)).collect();
        let Some(watched) = &self.watched else { return Ok(self.cache.put_together(&writes)?) };
        if self.cache.mode() == Mode::ReadOnly {
            return Err(Misuse::ReadOnly.into());
        }
        match self.cache.commit_unless_conflicting(&writes, &watched.reads, watched.began)? {
            Some(lba) => Err(TransactionError::Conflict { lba: Lba(lba) }),
            None => Ok(self.cache.follow_up(&writes)?),
        }
    }

    /// Forgets all of it.
    pub fn abort(self) {}
}

impl<R> Drop for Transaction<'_, R> {
    fn drop(&mut self) {
        if self.watched.is_some() {
            self.cache.committer.recent.end();
        }
    }
}

impl<R> fmt::Debug for Transaction<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("blocks", &self.writes.keys()).finish_non_exhaustive()
    }
}
