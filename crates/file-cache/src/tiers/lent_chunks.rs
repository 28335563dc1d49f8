//! Chunks that are lent: which lease has which.

use std::collections::BTreeMap;

/// No lease is named by this.
const NOBODY: u32 = u32::MAX;

/// The chunks of leases. Each chunk belongs to one lease at most, named by the entry of its log.
#[derive(Debug, Default)]
pub(crate) struct LentChunks {
    /// For each chunk up to the last that was ever lent, its lease.
    leases: Vec<u32>,
    /// For each lease, its chunks.
    of: BTreeMap<u32, Vec<u32>>,
    count: usize,
}

impl LentChunks {
    /// The lease that has a chunk.
    pub(crate) fn lease_of(&self, chunk: u32) -> Option<u32> {
        self.leases.get(chunk as usize).copied().filter(|lease| *lease != NOBODY)
    }

    /// The chunks of a lease.
    pub(crate) fn of(&self, lease: u32) -> &[u32] {
        self.of.get(&lease).map_or(&[], Vec::as_slice)
    }

    /// How many chunks leases have.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A lease gets a chunk that nobody has.
    pub(crate) fn insert(&mut self, lease: u32, chunk: u32) {
        let place = chunk as usize;
        if place >= self.leases.len() {
            self.leases.resize(place + 1, NOBODY);
        }
        self.leases[place] = lease;
        self.of.entry(lease).or_default().push(chunk);
        self.count += 1;
    }

    /// Takes all chunks from a lease.
    pub(crate) fn end(&mut self, lease: u32) -> Vec<u32> {
        let chunks = self.of.remove(&lease).unwrap_or_default();
        chunks.iter().for_each(|chunk| self.leases[*chunk as usize] = NOBODY);
        self.count -= chunks.len();
        chunks
    }
}
