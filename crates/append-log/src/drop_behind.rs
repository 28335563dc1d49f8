//! Dropping the oldest bytes of the log.

use crate::error::LogError;
use crate::log::AppendLog;
use crate::superblock;
use tidegate_layout::append_log::LogFacts;
use tidegate_media::Region;

impl<R: Region> AppendLog<R> {
    /// Drops all bytes before `offset`: the log begins there, durably, and whole chunks before it
    /// are discarded below. Bytes that were dropped before may be named again.
    ///
    /// # Errors
    /// [`LogError::Beyond`]: not all of those bytes are durable, and nothing is dropped.
    /// [`LogError::Below`]: the log begins there, and what lies below would not give up the room.
    pub fn drop_behind(&self, offset: u64) -> Result<(), LogError> {
        let _stepping = self.stepping.lock();
        let chunks = {
            let mut state = self.state.lock();
            state.may_change()?;
            if offset > state.durable {
                return Err(LogError::Beyond { at: offset, durable: state.durable });
            }
            let facts = state.facts;
            if offset <= facts.begin {
                return Ok(());
            }
            let facts = LogFacts { begin: offset, generation: facts.generation + 1, ..facts };
            let written = superblock::write(&self.region, &facts);
            state.kept(written)?;
            let old = std::mem::replace(&mut state.facts, facts);
            // The others are discarded in the place of their write-back.
            self.plan.chunk_of(old.begin)..self.plan.chunk_of(offset).min(state.below)
        };
        chunks.into_iter().try_for_each(|number| {
            let discarded = self.below.discard(self.below_range(number));
            self.noted(discarded)
        })
    }
}
