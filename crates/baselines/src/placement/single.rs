//! A tier by chance when a block enters, and least recently used in each. With one tier alone it is
//! LRU in that.

use super::recency::Recency;
use tidegate_policy::placement::{
    Condition, Decision, Eviction, FilePage, FreeSlots, IoRequest, Placement, Reason, Tier, TierSlots,
};
use tidegate_sim::Rng;

/// Places by chance, in proportion to the sizes of the tiers.
pub(super) struct ByChance {
    slots: TierSlots,
    used: Recency<u32>,
    random: Rng,
}

impl ByChance {
    pub(super) fn new(slots: TierSlots) -> ByChance {
        ByChance { slots, used: Recency::new(), random: Rng::new(1) }
    }
}

impl Placement for ByChance {
    fn begin(&mut self, _: &IoRequest) {}

    fn place(&mut self, _: &IoRequest, _: FilePage, slot: Option<u32>, _: FreeSlots) -> Decision {
        match slot {
            Some(slot) => {
                self.used.touch(slot);
                Decision::Stay(Reason::Cached)
            }
            None if self.slots.all() == 0 => Decision::Below(Reason::Rule),
            None => {
                let is_nvm = self.random.below(self.slots.all().into()) < u64::from(self.slots.nvm);
                Decision::to(if is_nvm { Tier::Nvm } else { Tier::Dram }, Reason::Rule)
            }
        }
    }

    fn insert(&mut self, slot: u32, _: FilePage) {
        self.used.touch(slot);
    }

    fn remove(&mut self, slot: u32) {
        self.used.remove(slot);
    }

    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction> {
        let mut may_go = |slot: &u32| self.slots.tier(*slot) == tier && condition(*slot) != Condition::Pinned;
        let slot = self.used.oldest_first().find(|slot| may_go(slot))?;
        self.used.remove(slot);
        Some(Eviction { slot, reason: Reason::Rule })
    }
}
