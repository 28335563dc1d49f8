//! Group commit: transactions that wait for the ring are committed together by the first of them that gets it.
//!
//! A fence orders only its own thread's stores. So whoever has to wait fences its data first, and joins; a leader's two fences then commit its own
//! transaction and all that joined, as one: a power cut leaves all of them or none. Whoever finds the ring free pays its two fences and nothing
//! else. Members hold the stripes of their blocks while they wait, so no two of them move the same entry, and a leader waits for no member.

use crate::cache::DiskCache;
use crate::ring::{self, Move, Ring};
use std::collections::VecDeque;
use tidegate_media::{Region, Sealed};

/// Transactions that wait for the ring.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Their moves, in the order in which they came.
    moves: VecDeque<Vec<Move>>,
    /// Transactions that ever joined.
    joined: u64,
    /// Transactions of those that are committed.
    committed: u64,
    /// Why no more can be.
    failed: Option<Sealed>,
}

impl Waiting {
    /// Adds a transaction, whose data is durable. Returns its number.
    fn join(&mut self, moves: &[Move]) -> u64 {
        self.moves.push_back(moves.to_vec());
        self.joined += 1;
        self.joined
    }

    /// Takes the first of those that wait, as far as they go into a group of `room` moves more.
    fn take(&mut self, room: usize) -> Result<Vec<Vec<Move>>, Sealed> {
        if let Some(sealed) = self.failed {
            return Err(sealed);
        }
        let sizes = self.moves.iter().scan(0, |sum, moves| {
            *sum += moves.len();
            Some(*sum)
        });
        let fitting = sizes.take_while(|sum| *sum <= room).count();
        Ok(self.moves.drain(..fitting).collect())
    }
}

impl<R: Region> DiskCache<R> {
    /// Commits `moves`, whose data this thread has streamed: alone, with others that wait, or by another's hand.
    pub(crate) fn commit_moves(&self, moves: &[Move]) -> Result<(), Sealed> {
        if let Some(mut ring) = self.ring.try_lock() {
            return self.lead(&mut ring, moves);
        }
        // Whoever leads has no part in what this thread streamed.
        self.medium.fence()?;
        let number = self.waiting.lock().join(moves);
        let mut ring = self.ring.lock();
        while self.waiting.lock().committed < number {
            self.lead(&mut ring, &[])?;
        }
        Ok(())
    }

    /// Commits `own` and as many of those that wait as the ring takes at once.
    fn lead(&self, ring: &mut Ring, own: &[Move]) -> Result<(), Sealed> {
        let joined = self.waiting.lock().take(ring.commit_max() - own.len())?;
        if joined.is_empty() {
            return ring::commit(ring, &self.medium, own);
        }
        let group: Vec<Move> = own.iter().chain(joined.iter().flatten()).copied().collect();
        let committed = ring::commit(ring, &self.medium, &group);
        let mut waiting = self.waiting.lock();
        match committed {
            Ok(()) => waiting.committed += joined.len() as u64,
            Err(sealed) => waiting.failed = Some(sealed),
        }
        self.tally.joined.add(joined.len() as u64);
        committed
    }
}
