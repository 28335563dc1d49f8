//! Placement by program context (UHNVM, Electronics 2021).
//!
//! Pages of contexts that loop or are hot belong in NVM, then those of sequential ones, which get a
//! free slot or another sequential page's. Random ones stay out of NVM even if it has room. A page
//! moves when it is touched: into NVM if its context deserves that, out of it if it does not. DRAM
//! replaces the page used least lately.
//!
//! The paper has no rule for synchronous writes. Here they win over patterns: an undeserving page
//! that has to survive a power loss enters NVM and is the first to leave it, written back. As
//! published it stays in DRAM, and its write waits for the file below.

use super::contexts::{AccessPattern, Contexts, LearntPattern};
use super::{
    Condition, Decision, Eviction, FilePage, FreeSlots, IoKind, IoRequest, Placement, Reason, Tier, TierSlots,
};
use crate::evict::queues::Queues;

/// Queues of slots: DRAM's, and NVM's in the order in which they make room.
const DRAM: usize = 0;
const UNDESERVING: usize = 1;
const SEQUENTIAL: usize = 2;
const DESERVING: usize = 3;

/// What becomes of synchronous writes of contexts that do not deserve NVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undeserving {
    /// They enter NVM for a while.
    Enter,
    /// They wait for the file below.
    StayOut,
}

/// Places by the access patterns of program contexts.
pub(super) struct Uhnvm {
    slots: TierSlots,
    undeserving: Undeserving,
    contexts: Contexts,
    used: Queues<4>,
    /// The queue of NVM in which a page of the current request belongs.
    queue: usize,
}

impl Uhnvm {
    pub(super) fn new(slots: TierSlots, undeserving: Undeserving) -> Uhnvm {
        let (contexts, used) = (Contexts::new(slots), Queues::new(slots.all()));
        Uhnvm { slots, undeserving, contexts, used, queue: DRAM }
    }

    /// The queue of NVM for a page of the current context, and whether NVM is for it at all.
    fn queue_of(&self, request: &IoRequest, free: FreeSlots) -> Option<usize> {
        let enters = request.kind == IoKind::SyncWrite && self.undeserving == Undeserving::Enter;
        match self.contexts.pattern() {
            AccessPattern::Looping | AccessPattern::ClusterHot => Some(DESERVING),
            AccessPattern::Sequential if enters => Some(SEQUENTIAL),
            AccessPattern::Sequential => {
                let has_room = free.nvm > 0 || self.used.len(SEQUENTIAL) + self.used.len(UNDESERVING) > 0;
                has_room.then_some(SEQUENTIAL)
            }
            AccessPattern::Random => enters.then_some(UNDESERVING),
        }
    }

    fn renew(&mut self, slot: u32) {
        let queue = if self.slots.tier(slot) == Tier::Dram { DRAM } else { self.queue };
        self.used.take(slot);
        self.used.push(queue, slot);
    }
}

impl Placement for Uhnvm {
    fn begin(&mut self, request: &IoRequest) {
        self.contexts.learn(request);
    }

    fn place(&mut self, request: &IoRequest, _: FilePage, slot: Option<u32>, free: FreeSlots) -> Decision {
        let reason = match request.kind {
            IoKind::SyncWrite if self.undeserving == Undeserving::Enter => Reason::Synchronous,
            _ => Reason::Pattern(self.contexts.pattern()),
        };
        let tier = slot.map(|slot| self.slots.tier(slot));
        let queue = self.queue_of(request, free).filter(|_| self.slots.nvm > 0);
        let is_sequential = self.contexts.pattern() == AccessPattern::Sequential;
        self.queue = queue.unwrap_or(if is_sequential { SEQUENTIAL } else { UNDESERVING });
        let stays = match (tier, queue) {
            (Some(Tier::Nvm), Some(_)) => true,
            (Some(Tier::Nvm), None) => is_sequential,
            (Some(Tier::Dram), queue) => queue.is_none(),
            (None, _) => false,
        };
        match (slot, queue) {
            (Some(slot), _) if stays => {
                self.renew(slot);
                Decision::Stay(reason)
            }
            (_, Some(_)) => Decision::ToNvm(reason),
            (Some(_), None) => Decision::Below(reason),
            (None, None) => Decision::ToDram(reason),
        }
    }

    fn insert(&mut self, slot: u32, _: FilePage) {
        self.renew(slot);
    }

    fn resume(&mut self, context: u64) {
        self.queue = match self.contexts.pattern_of(context) {
            Some(AccessPattern::Looping | AccessPattern::ClusterHot) => DESERVING,
            Some(AccessPattern::Sequential) => SEQUENTIAL,
            Some(AccessPattern::Random) | None => UNDESERVING,
        };
    }

    fn pattern(&self, context: u64) -> Option<AccessPattern> {
        self.contexts.pattern_of(context)
    }

    fn known_contexts(&self) -> Vec<LearntPattern> {
        self.contexts.known_contexts()
    }

    fn take_over(&mut self, known: &[LearntPattern]) {
        self.contexts.take_over(known);
    }

    fn remove(&mut self, slot: u32) {
        self.used.take(slot);
    }

    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction> {
        let queues: &[usize] = if tier == Tier::Dram { &[DRAM] } else { &[UNDESERVING, SEQUENTIAL, DESERVING] };
        let mut may_go = |slot| condition(slot) != Condition::Pinned;
        let slot = queues.iter().find_map(|queue| self.used.oldest_that(*queue, &mut may_go))?;
        self.used.take(slot);
        Some(Eviction { slot, reason: Reason::UsedLast })
    }

    /// NVM is read and written in blocks.
    fn nvm_bytes(&self, _: u32) -> u32 {
        u32::try_from(super::PAGE_BYTES).expect("small")
    }
}
