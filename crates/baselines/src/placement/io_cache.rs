//! I/O-Cache (Fan, He, Voigt, Du: MASCOTS 2015): clean and dirty blocks have a list each, and the
//! clean one's share adapts, up when a block is wanted that it gave up not long ago, down when the
//! dirty one did. Room among the dirty ones is made by the longest run of consecutive pages, which
//! a disk takes at once.

use super::recency::Recency;
use super::tier_with_room;
use std::collections::BTreeMap;
use tidegate_policy::placement::{
    Condition, Decision, Eviction, FilePage, FreeSlots, IoKind, IoRequest, Placement, Reason, Tier, TierSlots,
};

/// Evicts by two lists.
pub(super) struct IoCache {
    slots: TierSlots,
    clean: Recency<u32>,
    dirty: BTreeMap<FilePage, u32>,
    page_of: BTreeMap<u32, FilePage>,
    /// Dirty blocks of a run that goes.
    going: Vec<u32>,
    /// Blocks that the clean list should have.
    clean_share: usize,
    gone_clean: Recency<FilePage>,
    gone_dirty: Recency<FilePage>,
    enters_dirty: bool,
}

impl IoCache {
    pub(super) fn new(slots: TierSlots) -> IoCache {
        IoCache {
            slots,
            clean: Recency::new(),
            dirty: BTreeMap::new(),
            page_of: BTreeMap::new(),
            going: Vec::new(),
            clean_share: slots.all() as usize / 2,
            gone_clean: Recency::new(),
            gone_dirty: Recency::new(),
            enters_dirty: false,
        }
    }

    /// The clean share follows a block that is wanted and not there.
    fn adapt(&mut self, page: FilePage) {
        if self.gone_clean.remove(page) {
            self.clean_share = (self.clean_share + 1).min(self.slots.all() as usize);
        } else if self.gone_dirty.remove(page) {
            self.clean_share = self.clean_share.saturating_sub(1);
        }
    }

    /// The slots of the longest run of consecutive dirty pages, the last one first.
    fn longest_run(&self) -> Vec<u32> {
        let (mut longest, mut run, mut next) = (Vec::new(), Vec::new(), None);
        for (page, slot) in &self.dirty {
            if next != Some(*page) {
                run.clear();
            }
            run.push(*slot);
            next = Some(FilePage { page: page.page + 1, ..*page });
            if run.len() > longest.len() {
                longest.clone_from(&run);
            }
        }
        longest.reverse();
        longest
    }

    /// The block that goes next, among those that may.
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.going.retain(|slot| self.page_of.get(slot).is_some_and(|page| self.dirty.contains_key(page)));
        if let Some(slot) = self.going.iter().rev().copied().find(|slot| may_go(*slot)) {
            return Some(slot);
        }
        if self.clean.len() > self.clean_share || self.dirty.is_empty() {
            let slot = self.clean.oldest_first().find(|slot| may_go(*slot));
            if slot.is_some() {
                return slot;
            }
        }
        self.going = self.longest_run();
        let dirty = self.going.iter().rev().copied().find(|slot| may_go(*slot));
        let dirty = dirty.or_else(|| self.dirty.values().copied().find(|slot| may_go(*slot)));
        dirty.or_else(|| self.clean.oldest_first().find(|slot| may_go(*slot)))
    }

    fn enter(&mut self, slot: u32, page: FilePage) {
        self.page_of.insert(slot, page);
        if self.enters_dirty {
            self.clean.remove(slot);
            self.dirty.insert(page, slot);
        } else {
            self.clean.touch(slot);
        }
    }
}

impl Placement for IoCache {
    fn begin(&mut self, _: &IoRequest) {}

    fn place(&mut self, request: &IoRequest, page: FilePage, slot: Option<u32>, free: FreeSlots) -> Decision {
        self.enters_dirty = self.dirty.contains_key(&page) || request.kind != IoKind::Read;
        let tier = slot.map(|slot| self.slots.tier(slot));
        if slot.is_none() {
            self.adapt(page);
        }
        if request.kind == IoKind::SyncWrite && self.slots.nvm > 0 && tier != Some(Tier::Nvm) {
            return Decision::ToNvm(Reason::Synchronous);
        }
        let Some(slot) = slot else {
            return tier_with_room(self.slots, free, || self.victim(&mut |_| true));
        };
        self.enter(slot, page);
        Decision::Stay(Reason::Cached)
    }

    fn insert(&mut self, slot: u32, page: FilePage) {
        self.enter(slot, page);
    }

    fn remove(&mut self, slot: u32) {
        self.clean.remove(slot);
        if let Some(page) = self.page_of.remove(&slot).filter(|page| self.dirty.get(page) == Some(&slot)) {
            self.dirty.remove(&page);
        }
    }

    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction> {
        let slots = self.slots;
        let slot = self.victim(&mut |slot| slots.tier(slot) == tier && condition(slot) != Condition::Pinned)?;
        let page = self.page_of[&slot];
        let is_dirty = self.dirty.contains_key(&page);
        let gone = if is_dirty { &mut self.gone_dirty } else { &mut self.gone_clean };
        gone.touch(page);
        if gone.len() > slots.all() as usize {
            let oldest = gone.oldest_first().next().expect("it has one");
            gone.remove(oldest);
        }
        self.remove(slot);
        Some(Eviction { slot, reason: Reason::Rule })
    }
}
