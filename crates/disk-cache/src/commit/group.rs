//! Group commit: transactions that wait for the ring are committed together by the first of them
//! that gets it.
//!
//! A fence orders only its own thread's stores. So a thread that has to wait fences its data first,
//! and joins; a leader's two fences then commit its own transaction and all that joined, as one: a
//! power cut leaves all of them or none. A thread that finds the ring free pays its two fences and
//! no more. Members hold the stripes of their blocks while they wait, so no two of them move the
//! same entry, and a leader waits for no member.

use crate::cache::DiskCache;
use crate::commit::redo::{self, Move, Ring};
use tidegate_media::{Region, Sealed};

impl<R: Region> DiskCache<R> {
    /// Commits `moves`, whose data this thread has streamed: alone, with others that wait, or by
    /// another's hand.
    pub(crate) fn commit_moves(&self, moves: &[Move]) -> Result<(), Sealed> {
        if let Some(mut ring) = self.committer.ring.try_lock() {
            return self.lead(&mut ring, moves);
        }
        // Whoever leads has no part in what this thread streamed.
        self.medium.fence()?;
        let number = self.committer.waiting.lock().join(moves);
        let mut ring = self.committer.ring.lock();
        while self.committer.waiting.lock().committed < number {
            self.lead(&mut ring, &[])?;
        }
        Ok(())
    }

    /// Commits `own` and as many of those that wait as the ring takes at once.
    fn lead(&self, ring: &mut Ring, own: &[Move]) -> Result<(), Sealed> {
        let joined = self.committer.waiting.lock().take(ring.commit_max() - own.len())?;
        if joined.is_empty() {
            return redo::commit(ring, &self.medium, own);
        }
        let group: Vec<Move> = own.iter().chain(joined.iter().flatten()).copied().collect();
        let committed = redo::commit(ring, &self.medium, &group);
        let mut waiting = self.committer.waiting.lock();
        match committed {
            Ok(()) => waiting.committed += joined.len() as u64,
            Err(sealed) => waiting.failed = Some(sealed),
        }
        self.tally.joined.add(joined.len() as u64);
        committed
    }
}
