//! The rivals over tiers small enough to be counted by hand.

use super::Rival;
use tidegate_measure::replay::costs::MemoryCosts;
use tidegate_measure::replay::tiers::{Counts, Replay};
use tidegate_policy::placement::{IoKind, IoRequest, PAGE_BYTES, TierSlots};

fn io(kind: IoKind, page: u64) -> IoRequest {
    let bytes = u32::try_from(PAGE_BYTES).expect("small");
    IoRequest { file: 1, offset: page * PAGE_BYTES, bytes, kind, context: 1, now_ms: 0 }
}

fn replayed(rival: Rival, slots: TierSlots, requests: impl IntoIterator<Item = IoRequest>) -> Counts {
    let mut replay = Replay::new(rival.over(slots), rival.tiers(slots), MemoryCosts::OPTANE);
    requests.into_iter().for_each(|request| replay.request(&request));
    replay.counts()
}

const SMALL: TierSlots = TierSlots { dram: 4, nvm: 4 };

#[test]
fn without_dirty_blocks_all_are_least_recently_used() {
    let cycle = |pages: u64| (0..pages).cycle().take(100).map(|page| io(IoKind::Read, page));
    for rival in Rival::ALL.into_iter().filter(|rival| *rival != Rival::Random) {
        assert_eq!(replayed(rival, SMALL, cycle(9)).hits(), 0, "{rival}: one more than fits");
        assert_eq!(replayed(rival, SMALL, cycle(8)).hits(), 92, "{rival}: all fit");
    }
}

#[test]
fn clean_blocks_go_first_within_the_window() {
    // Two dirty blocks are the oldest quarter of eight; a clean one is only past it.
    let filled =
        [0, 1].map(|page| io(IoKind::Write, page)).into_iter().chain((2..8).map(|page| io(IoKind::Read, page)));
    let counts = replayed(Rival::Cflru, SMALL, filled.clone().chain([io(IoKind::Read, 9)]));
    assert_eq!(counts.written_below, 1, "both in the window are dirty");
    let swapped =
        [io(IoKind::Write, 0), io(IoKind::Read, 1)].into_iter().chain((2..8).map(|page| io(IoKind::Read, page)));
    let counts = replayed(Rival::Cflru, SMALL, swapped.chain([io(IoKind::Read, 9)]));
    assert_eq!(counts.written_below, 0, "the clean one goes though it is newer");
}

#[test]
fn dirty_blocks_go_in_the_longest_run() {
    // Six dirty blocks, of which four are a run; then reads take their places.
    let dirty = [10, 20, 21, 22, 23, 30].map(|page| io(IoKind::Write, page));
    let reads = (100..106).map(|page| io(IoKind::Read, page));
    let again = [10, 30].map(|page| io(IoKind::Read, page));
    let counts = replayed(Rival::IoCache, SMALL, dirty.into_iter().chain(reads).chain(again));
    assert_eq!(counts.written_below, 4);
    assert_eq!(counts.hits(), 2, "the run went as a whole, the others stayed");
}

#[test]
fn a_synchronous_write_survives_in_nvm_alone() {
    let writes = || (0..4).map(|page| io(IoKind::SyncWrite, page));
    assert_eq!(replayed(Rival::NoNvm, SMALL, writes()).written_below, 4);
    for rival in [Rival::AllNvm, Rival::Cflru, Rival::IoCache] {
        assert_eq!(replayed(rival, SMALL, writes()).written_below, 0, "{rival}");
    }
}
