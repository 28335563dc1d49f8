//! The bounded steps of the background: chunks made ready ahead of the log's end, and full chunks
//! moved below.

use crate::AHEAD_CHUNKS;
use crate::error::{Damage, LogError};
use crate::log::{AppendLog, State};
use crate::window::read_chunk;
use tidegate_layout::append_log::LogHead;
use tidegate_media::{Durability, Error, Lba, LbaRange, Region};

/// What [`AppendLog::prepare_step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// A chunk is ready that was not.
    Chunk,
    /// Nothing: eight chunks are ready, or as many as the window and what lies below have room for.
    Nothing,
}

/// What [`AppendLog::write_back_step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBack {
    /// A chunk is below that was not.
    Chunk,
    /// Nothing: no full chunk is durable that is not below.
    Nothing,
}

impl<R: Region> AppendLog<R> {
    /// Where the bytes end that lie below, durably.
    pub fn written_back_to(&self) -> u64 {
        let state = self.state.lock();
        state.durable.min(state.below * self.plan.chunk_bytes)
    }

    /// Why no chunk could be moved below last, unless one was since. An append says it once the
    /// window has no room.
    pub fn stuck(&self) -> Option<LogError> {
        self.state.lock().stuck.clone()
    }

    fn full(&self, state: &State) -> u64 {
        self.plan.chunk_of(state.durable).saturating_sub(state.below)
    }

    fn free_slots(&self, state: &State) -> u64 {
        state.below + u64::from(self.plan.chunks) - state.prepared
    }

    fn ahead(&self, state: &State) -> u64 {
        state.prepared - state.appended.div_ceil(self.plan.chunk_bytes)
    }

    /// Makes the slot of one chunk ready, and asks for its room below where that is cheap: two
    /// fences. An append does the same, without room, when no chunk is ready.
    ///
    /// # Errors
    /// Those of what lies below; the slot was not made ready then.
    pub fn prepare_step(&self) -> Result<Prepared, LogError> {
        let _stepping = self.stepping.lock();
        let (number, room) = {
            let state = self.state.lock();
            state.may_change()?;
            if self.ahead(&state) >= AHEAD_CHUNKS || self.free_slots(&state) == 0 || self.is_below_full(&state) {
                return Ok(Prepared::Nothing);
            }
            (state.prepared, self.below_range(state.prepared))
        };
        if self.below.geometry().fast_zeroes {
            let zeroed = self.below.write_zeroes(room, Durability::Volatile);
            self.noted(zeroed)?;
        }
        let mut state = self.state.lock();
        // An append may have needed it meanwhile.
        if state.prepared == number {
            self.prepare(&mut state)?;
        }
        Ok(Prepared::Chunk)
    }

    /// Moves the oldest full, durable chunk below, and flushes what lies below; a chunk that was
    /// dropped is not written. Until the step has ended the chunk stays in the window.
    ///
    /// # Errors
    /// [`LogError::Below`]: nothing has changed, and the step may be taken again: it writes the
    /// chunk anew. [`LogError::Damaged`]: the chunk is not what was synced, and stays.
    pub fn write_back_step(&self) -> Result<WrittenBack, LogError> {
        let _stepping = self.stepping.lock();
        let (number, is_dropped) = {
            let state = self.state.lock();
            state.may_change()?;
            if self.full(&state) == 0 {
                return Ok(WrittenBack::Nothing);
            }
            (state.below, state.below < self.plan.chunk_of(state.facts.begin))
        };
        if is_dropped {
            let discarded = self.below.discard(self.below_range(number));
            self.noted(discarded)?;
        } else {
            self.write_below(number, self.plan.chunk_bytes)?;
        }
        let mut state = self.state.lock();
        let at = self.plan.head_at(number) + LogHead::BELOW_AT;
        self.region.store_u64(at, LogHead::below_word(number));
        self.region.flush(at, 8);
        let fenced = self.region.fence();
        state.kept(fenced)?;
        state.below = number + 1;
        state.stuck = None;
        Ok(WrittenBack::Chunk)
    }

    /// Moves everything that is durable below, the last chunk too though it is not full: what lies
    /// below then has the whole log, followed by zeroes up to the end of a block. The last chunk
    /// stays in the window.
    ///
    /// # Errors
    /// Those of [`AppendLog::write_back_step`].
    pub fn write_back_all(&self) -> Result<(), LogError> {
        while self.write_back_step()? == WrittenBack::Chunk {}
        let _stepping = self.stepping.lock();
        let (from, to) = {
            let state = self.state.lock();
            (state.below * self.plan.chunk_bytes, state.durable.min((state.below + 1) * self.plan.chunk_bytes))
        };
        if to <= from {
            return Ok(());
        }
        self.write_below(self.plan.chunk_of(from), to - from)
    }

    /// Writes the bytes of chunk `number` that count, the `durable` first ones among them, below,
    /// and flushes it.
    fn write_below(&self, number: u64, durable: u64) -> Result<(), LogError> {
        let from = number * self.plan.chunk_bytes;
        let block = self.below.geometry().block_size;
        let read = read_chunk(&self.region, &self.plan, (number, durable), block);
        let damage = |found| LogError::Damaged(Damage { from, to: from + durable, found });
        let bytes = read.map_err(|found| self.is_stuck(damage(found)))?;
        let written = self.below.write(self.below_range(number).first, &bytes, Durability::Volatile);
        self.noted(written.and_then(|()| self.below.flush()))
    }

    /// Remembers what lies below refused.
    pub(crate) fn noted(&self, answer: Result<(), Error>) -> Result<(), LogError> {
        answer.map_err(|error| self.is_stuck(LogError::Below(error)))
    }

    fn is_stuck(&self, error: LogError) -> LogError {
        self.state.lock().stuck = Some(error.clone());
        error
    }

    /// The place of chunk `number` below.
    pub(crate) fn below_range(&self, number: u64) -> LbaRange {
        let block = u64::from(self.below.geometry().block_size);
        let first = Lba(self.plan.below_at(number * self.plan.chunk_bytes) / block);
        LbaRange { first, blocks: self.plan.chunk_bytes / block }
    }

    fn is_below_full(&self, state: &State) -> bool {
        state.prepared - self.plan.chunk_of(state.facts.begin) >= self.plan.below_chunks
    }

    /// Makes the slot of the next chunk ready: no byte of it counts before it has its new number.
    pub(crate) fn prepare(&self, state: &mut State) -> Result<(), LogError> {
        if self.is_below_full(state) {
            return Err(LogError::BelowFull { chunks: self.plan.below_chunks });
        }
        if self.free_slots(state) == 0 {
            let room = state.prepared * self.plan.chunk_bytes - state.appended;
            return Err(state.stuck.clone().unwrap_or(LogError::Full { room }));
        }
        let (number, head) = (state.prepared, self.plan.head_at(state.prepared));
        self.region.store_u64(head + LogHead::COMMITTED_AT, 0);
        self.region.flush(head, size_of::<LogHead>() as u64);
        let fenced = self.region.fence();
        state.kept(fenced)?;
        self.region.store_u64(head + LogHead::NUMBER_AT, number);
        self.region.store_u64(head + LogHead::CHECK_AT, !number);
        self.region.flush(head, size_of::<LogHead>() as u64);
        let fenced = self.region.fence();
        state.kept(fenced)?;
        state.prepared += 1;
        Ok(())
    }
}
