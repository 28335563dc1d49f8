//! One list over both tiers: what was used last stays, wherever it lies.
//!
//! Nothing moves between the tiers but a block of DRAM that is written synchronously. So the hits
//! are those of one cache as large as both tiers.

use super::{
    Condition, Decision, Eviction, FilePage, FreeSlots, IoKind, IoRequest, Placement, Reason, Tier, TierSlots,
};
use crate::evict::queues::{NONE, Queues};

/// Places by recency alone.
pub(super) struct LruPlacement {
    slots: TierSlots,
    used: Queues<1>,
}

impl LruPlacement {
    pub(super) fn new(slots: TierSlots) -> LruPlacement {
        LruPlacement { slots, used: Queues::new(slots.all()) }
    }

    /// The tier in which a block can be placed that is cached in none.
    fn tier_with_room(&self, free: FreeSlots) -> Decision {
        let oldest = self.used.oldest(0);
        match [Tier::Dram, Tier::Nvm].into_iter().find(|tier| free.of(*tier) > 0) {
            Some(tier) => Decision::to(tier, Reason::FreeSlot),
            None if oldest == NONE => Decision::Below(Reason::UsedLast),
            None => Decision::to(self.slots.tier(oldest), Reason::UsedLast),
        }
    }
}

impl Placement for LruPlacement {
    fn begin(&mut self, _: &IoRequest) {}

    fn place(&mut self, request: &IoRequest, _: FilePage, slot: Option<u32>, free: FreeSlots) -> Decision {
        let tier = slot.map(|slot| self.slots.tier(slot));
        if request.kind == IoKind::SyncWrite && self.slots.nvm > 0 && tier != Some(Tier::Nvm) {
            return Decision::ToNvm(Reason::Synchronous);
        }
        let Some(slot) = slot else { return self.tier_with_room(free) };
        self.used.take(slot);
        self.used.push(0, slot);
        Decision::Stay(Reason::Cached)
    }

    fn insert(&mut self, slot: u32, _: FilePage) {
        self.used.push(0, slot);
    }

    fn remove(&mut self, slot: u32) {
        self.used.take(slot);
    }

    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction> {
        let slots = self.slots;
        let mut may_go = |slot| slots.tier(slot) == tier && condition(slot) != Condition::Pinned;
        let slot = self.used.oldest_that(0, &mut may_go)?;
        self.used.take(slot);
        Some(Eviction { slot, reason: Reason::UsedLast })
    }
}
