//! Things in the order of their last use.

use std::collections::BTreeMap;

/// The order.
pub(super) struct Recency<K> {
    at: BTreeMap<K, u64>,
    order: BTreeMap<u64, K>,
    clock: u64,
}

impl<K: Copy + Ord> Recency<K> {
    pub(super) fn new() -> Recency<K> {
        Recency { at: BTreeMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    /// `thing` is used: it is the newest from now on.
    pub(super) fn touch(&mut self, thing: K) {
        self.remove(thing);
        self.clock += 1;
        self.at.insert(thing, self.clock);
        self.order.insert(self.clock, thing);
    }

    /// Forgets `thing`; returns whether it was there.
    pub(super) fn remove(&mut self, thing: K) -> bool {
        self.at.remove(&thing).is_some_and(|at| self.order.remove(&at).is_some())
    }

    pub(super) fn oldest_first(&self) -> impl Iterator<Item = K> {
        self.order.values().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.at.len()
    }
}
