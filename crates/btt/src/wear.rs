//! Wear levelling: now and then a sector moves that was not written.
//!
//! A write takes its lane's free block and leaves the sector's old one in its place. So a sector
//! that is written over and over wears out two blocks, and a block whose sector is never written
//! stays as new. A *move* is a write of a sector with its own contents: it costs a write and a
//! read, and the block that it frees is the next to be written. The format does not know of moves,
//! nor how often a block was written; so the sector is drawn at random, which levels in the long
//! run.
//!
//! A move holds the sector's stripe of the map from before it reads until after it commits: a write
//! in between would be undone by it. For the rest it is a write, and right after a power cut for
//! the same reasons.

use crate::io::{Btt, LiveArena};
use crate::lanes::Lane;
use std::num::NonZeroU32;
use tidegate_layout::btt::MapState;
use tidegate_media::sync::{Ordering, thread_token};
use tidegate_media::{Region, Result};

impl<R: Region> Btt<R> {
    /// How many sectors were moved since the volume was opened, to level wear.
    pub fn moved(&self) -> u64 {
        // Relaxed: a count, and nothing else.
        self.wear.moved.load(Ordering::Relaxed)
    }

    /// After a write: moves a sector once in `every` times. What fails is no fault of the write
    /// before, which is done: a sector that cannot be read stays, and a region that lost a store
    /// tells the next write.
    #[cold]
    pub(crate) fn level_wear(&self, live: &LiveArena, every: NonZeroU32) {
        let mut lane = live.lanes.take(thread_token());
        let drawn = lane.draw();
        // By chance, not by count: of a sector's two blocks, the same one would be free after every
        // even number of writes.
        if !drawn.is_multiple_of(u64::from(every.get())) {
            return;
        }
        let sector = drawn / u64::from(every.get()) % u64::from(live.arena.geometry().external_nlba);
        let lba = u32::try_from(sector).expect("an arena has less than 2^32 sectors");
        if matches!(self.move_sector(live, &mut lane, lba), Ok(true)) {
            // Relaxed: a count, and nothing else.
            self.wear.moved.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves sector `lba` to the lane's free block, unless it has no data: recovery would make data
    /// of what a zero entry names.
    fn move_sector(&self, live: &LiveArena, lane: &mut Lane, lba: u32) -> Result<bool> {
        let at = live.arena.map_at(lba);
        let mut stripe = live.map.lock(at);
        self.loss.check()?;
        let (word, old) = self.mapped(live, lba, at)?;
        if !matches!(word.entry().state(), MapState::Initial | MapState::Normal) {
            return Ok(false);
        }
        let mut data = vec![0; self.summary.block_size as usize];
        self.region.read(live.arena.data_at(old), &mut data)?;
        self.stream_data(live, lane.free(), &data);
        self.commit(live, lane, &mut stripe, lba, (word, old))?;
        Ok(true)
    }
}
