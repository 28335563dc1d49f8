//! Each placement over a dull cache: the promises they all make, and what each was made for.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Tiers as a plain map.
struct Tiers {
    placement: Box<dyn Placement>,
    slots: TierSlots,
    held: BTreeMap<u32, FilePage>,
    hits: u32,
    /// Whether synchronous writes may wait for the file below.
    syncs_may_wait: bool,
}

impl Tiers {
    fn new(named: NamedPlacement, dram: u32, nvm: u32) -> Tiers {
        let slots = TierSlots { dram, nvm };
        let syncs_may_wait = named == NamedPlacement::UhnvmPublished;
        Tiers { placement: named.over(slots), slots, held: BTreeMap::new(), hits: 0, syncs_may_wait }
    }

    fn free(&self) -> FreeSlots {
        let used =
            |tier| u32::try_from(self.held.keys().filter(|slot| self.slots.tier(**slot) == tier).count()).unwrap();
        FreeSlots { dram: self.slots.dram - used(Tier::Dram), nvm: self.slots.nvm - used(Tier::Nvm) }
    }

    fn slot_of(&self, page: FilePage) -> Option<u32> {
        self.held.iter().find(|(_, held)| **held == page).map(|(slot, _)| *slot)
    }

    fn tier_of(&self, page: FilePage) -> Option<Tier> {
        self.slot_of(page).map(|slot| self.slots.tier(slot))
    }

    fn request(&mut self, request: &IoRequest) {
        self.placement.begin(request);
        for (page, _) in request.pages() {
            let slot = self.slot_of(page);
            self.hits += u32::from(slot.is_some());
            let decision = self.placement.place(request, page, slot, self.free());
            match decision {
                Decision::Stay(_) => {}
                Decision::ToDram(_) => self.moved(page, slot, Tier::Dram),
                Decision::ToNvm(_) => self.moved(page, slot, Tier::Nvm),
                Decision::Below(_) => self.dropped(slot),
            }
            let survives = request.kind != IoKind::SyncWrite || self.slots.nvm == 0 || self.syncs_may_wait;
            assert!(survives || self.tier_of(page) != Some(Tier::Dram), "a power loss would take it");
        }
        self.work();
    }

    fn dropped(&mut self, slot: Option<u32>) {
        if let Some(slot) = slot {
            self.held.remove(&slot);
            self.placement.remove(slot);
        }
    }

    fn moved(&mut self, page: FilePage, from: Option<u32>, to: Tier) {
        assert!(from.is_none_or(|slot| self.slots.tier(slot) != to), "it is there already");
        let all = match to {
            Tier::Dram => 0..self.slots.dram,
            Tier::Nvm => self.slots.dram..self.slots.all(),
        };
        let free = all.clone().find(|slot| !self.held.contains_key(slot));
        let slot = free.unwrap_or_else(|| {
            let evicted = self.placement.evict(to, &mut |_| Condition::Dirty).unwrap().slot;
            assert!(all.contains(&evicted) && self.held.remove(&evicted).is_some(), "a known slot of the tier");
            evicted
        });
        self.placement.insert(slot, page);
        self.dropped(from);
        self.held.insert(slot, page);
    }

    fn work(&mut self) {
        for _ in 0..1000 {
            match self.placement.work(self.free()) {
                None => return,
                Some(Work::Reclaim { extent, from, .. }) => self.left(extent, from),
                Some(Work::Migrate { extent, .. }) => {
                    for page in extent.pages() {
                        let slot = self.slot_of(page).filter(|slot| self.slots.tier(*slot) == Tier::Nvm);
                        if slot.is_some() && self.free().dram > 0 {
                            self.moved(page, slot, Tier::Dram);
                        }
                    }
                }
            }
        }
        panic!("work never ends");
    }

    fn left(&mut self, extent: FileExtent, from: Tier) {
        for page in extent.pages() {
            match self.slot_of(page).filter(|slot| self.slots.tier(*slot) == from) {
                Some(slot) if from == Tier::Dram && self.slots.nvm > 0 => self.moved(page, Some(slot), Tier::Nvm),
                slot => self.dropped(slot),
            }
        }
    }
}

fn io(kind: IoKind, context: u64, page: u64, pages: u64) -> IoRequest {
    let bytes = u32::try_from(pages * PAGE_BYTES).unwrap();
    IoRequest { file: context, offset: page * PAGE_BYTES, bytes, kind, context, now_ms: 0 }
}

fn requests() -> impl Strategy<Value = Vec<IoRequest>> {
    let kind = prop_oneof![Just(IoKind::Read), Just(IoKind::Write), Just(IoKind::SyncWrite)];
    let one = (kind, 0_u64..3, 0_u64..40 * PAGE_BYTES, 1_u32..20_000, 0_u64..300);
    let request = |(kind, context, offset, bytes, ms)| IoRequest { file: 1, offset, bytes, kind, context, now_ms: ms };
    prop::collection::vec(one.prop_map(request), 1..300).prop_map(|mut all| {
        let mut now_ms = 0;
        for request in &mut all {
            now_ms += request.now_ms;
            request.now_ms = now_ms;
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A placement only names slots that are known, answers for a tier it can be in, and its work
    /// ends; a synchronous write that it keeps in memory lies in NVM.
    #[test]
    fn every_placement_agrees_with_a_plain_map(requests in requests(), dram in 0_u32..12, nvm in 0_u32..12) {
        for named in NamedPlacement::ALL {
            let mut tiers = Tiers::new(named, dram + 1, nvm);
            for request in &requests {
                tiers.request(request);
            }
        }
    }
}

#[test]
fn names_are_told_apart() {
    for named in NamedPlacement::ALL {
        assert_eq!(named.name().parse(), Ok(named));
    }
    assert_eq!("clock".parse::<NamedPlacement>(), Err(UnknownPlacement));
}

#[test]
fn a_slot_takes_little_memory() {
    for named in NamedPlacement::ALL {
        assert!(named.bytes_per_slot() <= 128, "{named}: {}", named.bytes_per_slot());
        assert!(named.bytes_of_contexts() <= 64 << 10, "{named}: {}", named.bytes_of_contexts());
    }
    assert!(NamedPlacement::Tidegate.bytes_per_slot() <= 40, "{}", NamedPlacement::Tidegate.bytes_per_slot());
}

#[test]
fn cheetah_splits_writes_by_synchronicity() {
    let mut tiers = Tiers::new(NamedPlacement::Cheetah, 100, 100);
    let page = |page| FilePage { file: 1, page };
    tiers.request(&io(IoKind::Write, 1, 0, 1));
    tiers.request(&io(IoKind::SyncWrite, 1, 1, 1));
    tiers.request(&io(IoKind::Read, 1, 2, 1));
    let lies = [0, 1, 2].map(|at| tiers.tier_of(page(at)));
    assert_eq!(lies, [Some(Tier::Dram), Some(Tier::Nvm), Some(Tier::Nvm)]);
    tiers.request(&io(IoKind::SyncWrite, 1, 0, 1));
    assert_eq!(tiers.tier_of(page(0)), Some(Tier::Nvm), "it has to survive from now on");
}

#[test]
fn cheetah_reclaims_a_fifth_when_nine_tenths_are_used() {
    let mut tiers = Tiers::new(NamedPlacement::Cheetah, 1000, 4000);
    // One block of each extent.
    (0..899).for_each(|nth| tiers.request(&io(IoKind::Write, 1, nth * 256, 1)));
    assert_eq!(tiers.free().dram, 101);
    tiers.request(&io(IoKind::Write, 1, 899 * 256, 1));
    assert_eq!(tiers.free().dram, 300, "a fifth was reclaimed");
    assert_eq!(tiers.tier_of(FilePage { file: 1, page: 0 }), Some(Tier::Nvm), "from the end of the list, to NVM");
    assert_eq!(tiers.tier_of(FilePage { file: 1, page: 899 * 256 }), Some(Tier::Dram));
}

#[test]
fn cheetah_migrates_what_reached_its_threshold() {
    let migrated = |named| {
        let mut tiers = Tiers::new(named, 1000, 1000);
        (0..10).for_each(|extent| tiers.request(&io(IoKind::Read, 1, extent * 256, 1)));
        let read = |tiers: &mut Tiers, extent: u64, times: u32| {
            (0..times).for_each(|_| tiers.request(&io(IoKind::Read, 1, extent * 256, 1)));
        };
        // Three warm extents, each a third of all heat.
        (0..30).for_each(|_| (0..3).for_each(|extent| read(&mut tiers, extent, 1)));
        (0..10).filter(|extent| tiers.tier_of(FilePage { file: 1, page: extent * 256 }) == Some(Tier::Dram)).count()
    };
    assert!(migrated(NamedPlacement::CheetahNormalised) >= 3);
    assert!(migrated(NamedPlacement::Cheetah) <= 2, "the first to be touched has all the heat");
}

/// A context that loops over 40 pages and one that reads at random, interleaved.
fn looping_and_random(tiers: &mut Tiers, rounds: u64) {
    for nth in 0..rounds {
        tiers.request(&io(IoKind::Read, 1, nth % 40, 1));
        tiers.request(&io(IoKind::Read, 2, mixed(nth) % 100_000, 1));
    }
}

#[test]
fn uhnvm_gives_nvm_to_loops_and_never_to_random_reads() {
    let mut tiers = Tiers::new(NamedPlacement::Uhnvm, 40, 100);
    looping_and_random(&mut tiers, 400);
    let in_nvm = |tiers: &Tiers, file| {
        tiers.held.iter().filter(|(slot, page)| tiers.slots.tier(**slot) == Tier::Nvm && page.file == file).count()
    };
    assert_eq!((in_nvm(&tiers, 1), in_nvm(&tiers, 2)), (40, 0), "though NVM has room");
    tiers.request(&io(IoKind::SyncWrite, 2, 77, 1));
    assert_eq!(in_nvm(&tiers, 2), 1, "a synchronous write enters all the same");
    tiers.request(&io(IoKind::Read, 2, 77, 1));
    assert_eq!(in_nvm(&tiers, 2), 0, "and is expelled when it is touched");
}

#[test]
fn uhnvm_as_published_has_synchronous_writes_stay_out() {
    let mut tiers = Tiers::new(NamedPlacement::UhnvmPublished, 40, 100);
    looping_and_random(&mut tiers, 400);
    tiers.request(&io(IoKind::SyncWrite, 2, 77, 1));
    assert_eq!(tiers.tier_of(FilePage { file: 2, page: 77 }), Some(Tier::Dram));
}

#[test]
fn uhnvm_has_an_undeserving_page_leave_first() {
    let mut tiers = Tiers::new(NamedPlacement::Uhnvm, 40, 41);
    looping_and_random(&mut tiers, 400);
    tiers.request(&io(IoKind::SyncWrite, 2, 77, 1));
    tiers.request(&io(IoKind::SyncWrite, 2, 99, 1));
    assert_eq!(tiers.tier_of(FilePage { file: 2, page: 77 }), None);
    assert_eq!(tiers.tier_of(FilePage { file: 2, page: 99 }), Some(Tier::Nvm));
}

#[test]
fn least_recently_used_is_one_list_over_both_tiers() {
    let mut tiers = Tiers::new(NamedPlacement::Lru, 3, 2);
    (0..5).for_each(|page| tiers.request(&io(IoKind::Read, 1, page, 1)));
    tiers.request(&io(IoKind::Read, 1, 0, 1));
    tiers.request(&io(IoKind::Read, 1, 9, 1));
    let held: Vec<u64> = [0, 1, 2, 3, 4, 9]
        .into_iter()
        .filter(|page| tiers.tier_of(FilePage { file: 1, page: *page }).is_some())
        .collect();
    assert_eq!(held, [0, 2, 3, 4, 9], "page 1 was used least lately");
}

#[test]
fn a_part_of_a_loop_that_does_not_fit_is_hit_in_each_pass() {
    let hits = |named| {
        let mut tiers = Tiers::new(named, 100, 100);
        (0..300).cycle().take(6000).for_each(|page| tiers.request(&io(IoKind::Read, 1, page, 1)));
        tiers.hits
    };
    assert_eq!(hits(NamedPlacement::Lru), 0);
    let ours = hits(NamedPlacement::Tidegate);
    assert!(ours >= 19 * 196, "200 of 300 in each of 19 passes: {ours}");
}

#[test]
fn a_loop_takes_the_room_of_what_is_read_once() {
    let mut tiers = Tiers::new(NamedPlacement::Tidegate, 60, 60);
    looping_and_random(&mut tiers, 4000);
    let looped = tiers.held.values().filter(|page| page.file == 1).count();
    assert_eq!(looped, 40);
    assert!(tiers.hits >= 40 * 98, "{}", tiers.hits);
}

#[test]
fn hot_pages_of_a_context_outlive_its_cold_ones() {
    let mut tiers = Tiers::new(NamedPlacement::Tidegate, 50, 50);
    let mut nth = 0;
    let mut draw = |below: u64| {
        nth += 1;
        mixed(nth) % below
    };
    for _ in 0..20_000 {
        // Nine of ten reads go to a tenth of the pages.
        let page = if draw(10) == 0 { draw(1000) } else { draw(80) };
        tiers.request(&io(IoKind::Read, 1, page, 1));
    }
    let hot = tiers.held.values().filter(|page| page.page < 80).count();
    assert!(hot >= 70, "{hot} of the 80 hot pages");
}
