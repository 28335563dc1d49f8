//! Each policy beside its dull model, and the promises they all make.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::models::model;
use super::{Evict, Replacement, UnknownReplacement};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What happens to a cache of a few slots.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Block `key` is wanted: found, or put into a free slot if there is one.
    Want(u64),
    /// One of the known slots is emptied.
    Remove(usize),
    /// A victim is asked for, while the slots of this mask may not go.
    Victim(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0_u64..40).prop_map(Act::Want),
        1 => (0_usize..16).prop_map(Act::Remove),
        4 => any::<u32>().prop_map(|mask| Act::Victim(mask & mask.rotate_left(7))),
        1 => Just(Act::Victim(u32::MAX)),
        2 => Just(Act::Victim(0)),
    ];
    prop::collection::vec(act, 1..400)
}

/// A policy, its model, and what is in the slots.
struct Pair {
    policy: Box<dyn Evict>,
    model: Box<dyn Evict>,
    held: BTreeMap<u32, u64>,
    slots: u32,
}

impl Pair {
    fn new(replacement: Replacement, slots: u32) -> Pair {
        let (policy, model) = (replacement.over(slots), model(replacement, slots));
        Pair { policy, model, held: BTreeMap::new(), slots }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Want(key) => self.want(key),
            Act::Remove(nth) => {
                // Sometimes a slot that is not known.
                let slot = u32::try_from(nth).unwrap() % self.slots;
                self.held.remove(&slot);
                self.policy.remove(slot);
                self.model.remove(slot);
            }
            Act::Victim(pinned) => self.victim(pinned),
        }
    }

    fn want(&mut self, key: u64) {
        let found = self.held.iter().find(|(_, held)| **held == key).map(|(slot, _)| *slot);
        if let Some(slot) = found {
            self.policy.touch(slot);
            self.model.touch(slot);
        } else if let Some(slot) = (0..self.slots).find(|slot| !self.held.contains_key(slot)) {
            // Not known: nothing happens.
            self.policy.touch(slot);
            self.model.touch(slot);
            self.policy.insert(slot, key);
            self.model.insert(slot, key);
            self.held.insert(slot, key);
        }
    }

    fn victim(&mut self, pinned: u32) {
        let mut asked = BTreeMap::new();
        let mut may_go = |slot: u32| {
            *asked.entry(slot).or_insert(0) += 1;
            pinned & (1 << slot) == 0
        };
        let victim = self.policy.victim(&mut may_go);
        assert!(asked.iter().all(|(slot, times)| *times <= 8 && self.held.contains_key(slot)), "{asked:?}");
        assert_eq!(victim, self.model.victim(&mut |slot| pinned & (1 << slot) == 0));
        let any_may_go = self.held.keys().any(|slot| pinned & (1 << slot) == 0);
        assert_eq!(victim.is_some(), any_may_go, "a victim is found exactly if there may be one");
        if let Some(slot) = victim {
            assert!(self.held.remove(&slot).is_some() && pinned & (1 << slot) == 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_policy_agrees_with_its_model(slots in 1_u32..24, acts in acts()) {
        for replacement in Replacement::ALL {
            let mut pair = Pair::new(replacement, slots);
            acts.iter().for_each(|act| pair.act(*act));
        }
    }
}

#[test]
fn names_lead_back_to_their_policies() {
    for replacement in Replacement::ALL {
        assert_eq!(replacement.name().parse(), Ok(replacement));
        assert_eq!(replacement.over(7).slots(), 7);
    }
    assert_eq!("arc".parse::<Replacement>(), Err(UnknownReplacement));
    assert_eq!(Replacement::default().to_string(), "lru");
}

#[test]
fn memory_per_slot_is_as_stated() {
    let stated = Replacement::ALL.map(Replacement::bytes_per_slot);
    assert_eq!(stated, [12, 1, 12, 36, 52]);
}
