//! Clean-first LRU (Park and others, CASES 2006): within a window at the old end of the list, a
//! clean block goes before a dirty one, because a dirty one costs a write. The paper adapts the
//! window or fixes it; here it is the oldest quarter.

use super::recency::Recency;
use super::tier_with_room;
use tidegate_policy::placement::{
    Condition, Decision, Eviction, FilePage, FreeSlots, IoKind, IoRequest, Placement, Reason, Tier, TierSlots,
};

/// The window is this part of the list.
const WINDOW_PART: usize = 4;

/// Evicts clean blocks first.
pub(super) struct Cflru {
    slots: TierSlots,
    used: Recency<u32>,
    is_dirty: Vec<bool>,
    /// Whether the block that enters next is dirty.
    enters_dirty: bool,
}

impl Cflru {
    pub(super) fn new(slots: TierSlots) -> Cflru {
        Cflru { slots, used: Recency::new(), is_dirty: vec![false; slots.all() as usize], enters_dirty: false }
    }

    fn victim(&self, mut may_go: impl FnMut(u32) -> bool) -> Option<u32> {
        let window = self.used.len().div_ceil(WINDOW_PART);
        let in_window = self.used.oldest_first().take(window);
        let clean = in_window.filter(|slot| !self.is_dirty[*slot as usize]).find(|slot| may_go(*slot));
        clean.or_else(|| self.used.oldest_first().find(|slot| may_go(*slot)))
    }
}

impl Placement for Cflru {
    fn begin(&mut self, _: &IoRequest) {}

    fn place(&mut self, request: &IoRequest, _: FilePage, slot: Option<u32>, free: FreeSlots) -> Decision {
        let was_dirty = slot.is_some_and(|slot| self.is_dirty[slot as usize]);
        self.enters_dirty = was_dirty || request.kind != IoKind::Read;
        let tier = slot.map(|slot| self.slots.tier(slot));
        if request.kind == IoKind::SyncWrite && self.slots.nvm > 0 && tier != Some(Tier::Nvm) {
            return Decision::ToNvm(Reason::Synchronous);
        }
        let Some(slot) = slot else { return tier_with_room(self.slots, free, || self.victim(|_| true)) };
        self.is_dirty[slot as usize] = self.enters_dirty;
        self.used.touch(slot);
        Decision::Stay(Reason::Cached)
    }

    fn insert(&mut self, slot: u32, _: FilePage) {
        self.is_dirty[slot as usize] = self.enters_dirty;
        self.used.touch(slot);
    }

    fn remove(&mut self, slot: u32) {
        self.used.remove(slot);
    }

    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction> {
        let slots = self.slots;
        let slot = self.victim(|slot| slots.tier(slot) == tier && condition(slot) != Condition::Pinned)?;
        self.used.remove(slot);
        Some(Eviction { slot, reason: Reason::Rule })
    }
}
