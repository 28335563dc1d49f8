//! Chunks that are lent: which lease has which, and how many free blocks lie there.

use std::collections::{BTreeMap, BTreeSet};

/// The chunks of leases. Each chunk belongs to one lease at most, named by the entry of its log.
#[derive(Debug, Default)]
pub(crate) struct LentChunks {
    leases: BTreeMap<u32, u32>,
    /// For each lease, its chunks with the numbers of their free blocks.
    of: BTreeMap<u32, BTreeSet<(usize, u32)>>,
}

impl LentChunks {
    /// The lease that has a chunk.
    pub(crate) fn lease_of(&self, chunk: u32) -> Option<u32> {
        self.leases.get(&chunk).copied()
    }

    /// How many chunks a lease has.
    pub(crate) fn count_of(&self, lease: u32) -> usize {
        self.of.get(&lease).map_or(0, BTreeSet::len)
    }

    /// How many chunks leases have.
    pub(crate) fn count(&self) -> usize {
        self.leases.len()
    }

    /// A lease gets a chunk with so many free blocks.
    pub(crate) fn insert(&mut self, lease: u32, chunk: u32, free: usize) {
        self.leases.insert(chunk, lease);
        self.of.entry(lease).or_default().insert((free, chunk));
    }

    /// The chunk of a lease that has most free blocks, if any has one.
    pub(crate) fn freest(&self, lease: u32) -> Option<u32> {
        self.of.get(&lease)?.last().filter(|(free, _)| *free > 0).map(|(_, chunk)| *chunk)
    }

    /// A lent chunk that had `before` free blocks has `after`.
    pub(crate) fn has_free(&mut self, chunk: u32, before: usize, after: usize) {
        let Some(chunks) = self.leases.get(&chunk).and_then(|lease| self.of.get_mut(lease)) else { return };
        chunks.remove(&(before, chunk));
        chunks.insert((after, chunk));
    }

    /// Takes all chunks from a lease.
    pub(crate) fn end(&mut self, lease: u32) -> Vec<u32> {
        let chunks: Vec<u32> = self.of.remove(&lease).unwrap_or_default().into_iter().map(|(_, chunk)| chunk).collect();
        self.leases.retain(|_, owner| *owner != lease);
        chunks
    }
}
