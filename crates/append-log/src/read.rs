//! Reading the log: from the window, or from below.

use crate::error::{Damage, DamageFound, LogError};
use crate::log::AppendLog;
use tidegate_media::{AlignedBytes, Lba, Poison, Region};

/// Bytes that a replay reads at a time.
const REPLAY_BYTES: usize = 256 << 10;

impl From<Poison> for DamageFound {
    fn from(poison: Poison) -> DamageFound {
        DamageFound::Unreadable(poison)
    }
}

impl<R: Region> AppendLog<R> {
    /// Copies durable bytes from byte `at` of the log on; says how many, which may be fewer than
    /// asked for: 0 only at the end.
    ///
    /// # Errors
    /// [`LogError::Dropped`], [`LogError::Beyond`], [`LogError::Damaged`] for those bytes alone, or
    /// [`LogError::Below`] if what lies below cannot give them.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, LogError> {
        let len = {
            let state = self.state.lock();
            if at < state.facts.begin {
                return Err(LogError::Dropped { begin: state.facts.begin });
            }
            let left = state.durable.checked_sub(at).ok_or(LogError::Beyond { at, durable: state.durable })?;
            let in_chunk = left.min(self.plan.chunk_bytes - at % self.plan.chunk_bytes);
            let len = usize::try_from(in_chunk).unwrap_or(usize::MAX).min(out.len());
            if let Some(damage) = state.damage.iter().find(|damage| damage.from <= at && at < damage.to) {
                return Err(LogError::Damaged(damage.clone()));
            }
            let number = self.plan.chunk_of(at);
            if number >= state.read_below && number + u64::from(self.plan.chunks) >= state.prepared {
                let read = self.region.read(self.plan.byte_at(at), &mut out[..len]);
                let damage = |poison: Poison| Damage { from: at, to: at + len as u64, found: poison.into() };
                return read.map(|()| len).map_err(|poison| LogError::Damaged(damage(poison)));
            }
            len
        };
        self.read_below(at, &mut out[..len])?;
        // Its place may have been used again if it was dropped meanwhile.
        let begin = self.begin();
        if at < begin { Err(LogError::Dropped { begin }) } else { Ok(len) }
    }

    /// Reads bytes of one chunk that lies below.
    fn read_below(&self, at: u64, out: &mut [u8]) -> Result<(), LogError> {
        let block = u64::from(self.below.geometry().block_size);
        let place = self.plan.below_at(at);
        let (first, before) = (place / block, usize::try_from(place % block).unwrap_or(0));
        let whole = (before + out.len()).next_multiple_of(usize::try_from(block).unwrap_or(1));
        let mut blocks = AlignedBytes::zeroed(whole);
        self.below.read(Lba(first), &mut blocks).map_err(LogError::Below)?;
        out.copy_from_slice(&blocks[before..before + out.len()]);
        Ok(())
    }

    /// Shows all durable bytes from byte `from` on, or from where the log begins, in their order:
    /// to `visit`, with the place of the first byte of each part. Says where they end. Bytes that
    /// become durable meanwhile may be shown too.
    ///
    /// # Errors
    /// Those of [`AppendLog::read`]; all bytes before the place of the error were shown.
    pub fn replay(&self, from: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<u64, LogError> {
        self.replay_while(from, &mut |at, bytes| {
            visit(at, bytes);
            true
        })
    }

    /// Shows durable bytes as [`AppendLog::replay`] does, until `visit` says no. Says where those
    /// end that it took.
    ///
    /// # Errors
    /// Those of [`AppendLog::replay`].
    pub fn replay_while(&self, from: u64, visit: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<u64, LogError> {
        let mut at = from.max(self.begin());
        let mut part = vec![0; REPLAY_BYTES];
        loop {
            match self.read(at, &mut part)? {
                0 => return Ok(at),
                len if !visit(at, &part[..len]) => return Ok(at),
                len => at += len as u64,
            }
        }
    }
}
