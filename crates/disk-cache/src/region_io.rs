//! The region as a cache sees it: blocks and entries instead of bytes.
//!
//! Nothing here flushes or fences by itself; the order of a commit is told where it is made.

use tidegate_layout::disk_cache::{CURSORS_AT, CacheEntry, CachePlan};
use tidegate_media::sync::{AtomicBool, Ordering};
use tidegate_media::{LineOrder, Poison, Region, Sealed};
use tidegate_wal::RingPlan;

/// A region with a cache on it.
pub(crate) struct Medium<R> {
    pub(crate) region: R,
    pub(crate) plan: CachePlan,
    /// Whether a fence has failed: all later ones do.
    failed: AtomicBool,
}

/// Where the ring of a cache of this plan lies.
pub(crate) fn ring_plan(plan: &CachePlan) -> RingPlan {
    RingPlan { cursors_at: CURSORS_AT, ring_at: plan.ring_at, slots: plan.ring_slots }
}

impl<R: Region> Medium<R> {
    pub(crate) fn new(region: R, plan: CachePlan) -> Medium<R> {
        Medium { region, plan, failed: AtomicBool::new(false) }
    }

    /// Whether two words stored to one line may arrive the second without the first.
    pub(crate) fn words_overtake(&self) -> bool {
        self.region.line_order() == LineOrder::Any
    }

    #[track_caller]
    pub(crate) fn fence(&self) -> Result<(), Sealed> {
        self.noted(self.region.fence())
    }

    /// An `answer` that rests on fences of the region.
    pub(crate) fn noted<T>(&self, answer: Result<T, Sealed>) -> Result<T, Sealed> {
        answer.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    /// Refuses to take a free entry for a block, or to free the entry of one, once a fence has
    /// failed. Whoever met that may have left an entry for the block that the table does not know,
    /// or elements that count and that a free entry would hide from a recovery. He had the stripe
    /// locked, and whoever asks has it now.
    pub(crate) fn refuse_after_failure(&self) -> Result<(), Sealed> {
        if self.failed.load(Ordering::Relaxed) { self.region.fence() } else { Ok(()) }
    }

    #[track_caller]
    pub(crate) fn stream_block(&self, block: u32, data: &[u8]) {
        self.region.stream(self.plan.block_at(block), data);
    }

    /// Stores a block without making it durable. Nothing durable names it.
    #[track_caller]
    pub(crate) fn store_block(&self, block: u32, data: &[u8]) {
        self.region.write(self.plan.block_at(block), data);
    }

    pub(crate) fn read_block(&self, block: u32, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(self.plan.block_at(block), out)
    }

    /// Stores an entry's first word. The entry is free, durably.
    #[track_caller]
    pub(crate) fn store_lba(&self, entry: u32, lba: u64) {
        self.region.store_u64(self.plan.entry_at(entry), lba);
    }

    /// Stores an entry's second word.
    #[track_caller]
    pub(crate) fn store_state(&self, entry: u32, word: u64) {
        self.region.store_u64(self.plan.entry_at(entry) + CacheEntry::STATE_AT, word);
    }

    /// Streams an entry's second word, which may arrive without what was stored to the first: that
    /// is durable.
    #[track_caller]
    pub(crate) fn stream_state(&self, entry: u32, word: u64) {
        self.region.stream(self.plan.entry_at(entry) + CacheEntry::STATE_AT, &word.to_le_bytes());
    }

    #[track_caller]
    pub(crate) fn flush_entry(&self, entry: u32) {
        self.region.flush(self.plan.entry_at(entry), size_of::<CacheEntry>() as u64);
    }

    /// An entry as it is visible.
    #[track_caller]
    pub(crate) fn entry(&self, entry: u32) -> Result<CacheEntry, Poison> {
        let at = self.plan.entry_at(entry);
        Ok(CacheEntry::from_words([self.region.load_u64(at)?, self.region.load_u64(at + CacheEntry::STATE_AT)?]))
    }
}
