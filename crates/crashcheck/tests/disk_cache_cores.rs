//! The disk cache on virtual cores, under interleavings and power cuts that seeds choose.
//! `TIDEGATE_SEEDS` gives more of them.
//!
//! Compiled with `--cfg virtual_cores` only.
#![cfg(virtual_cores)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_crashcheck::disk_cache::{Fences, Way, judge_on_cores};
use tidegate_disk_cache::{
    Checksums, Conflicts, Contents, DiskCache, FormatSpec, Options, Reads, TransactionError, format, format_ordered,
    lay_out_journal,
};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::sync::yield_now;
use tidegate_media::{BlockDevice, InTurn, Lba};
use tidegate_sim::{Disk, Region};
use tidegate_virtual_cores::{Flaw, FlawKind, How, Machine, Order, Plan, Rng};

#[test]
fn groups_stay_whole_under_every_interleaving_and_cut() {
    let seeds = std::env::var("TIDEGATE_SEEDS").ok().map_or(400, |seeds| seeds.parse().expect("a number of seeds"));
    for reads in [Reads::Kept, Reads::Forgotten] {
        groups_stay_whole(seeds, Way { reads, ..Way::SOUND });
        groups_stay_whole(seeds, Way { reads, in_order: true, ..Way::SOUND });
    }
}

fn groups_stay_whole(seeds: u64, way: Way) {
    let (mut acts, mut cut_short, mut evictions) = (0, 0, 0);
    for seed in 0..seeds {
        let tally = judge_on_cores(seed, 8, way).unwrap_or_else(|failure| panic!("{way:?}: {failure}"));
        acts += tally.acts;
        cut_short += tally.cut_short;
        evictions += tally.evictions;
    }
    println!(
        "{way:?}, {seeds} seeds: {acts} operations, {cut_short} lives cut short, {evictions} blocks given up in whole lives"
    );
    assert!(cut_short > 0 && evictions > 0, "both were met");
}

#[test]
fn fences_left_out_are_noticed() {
    for reads in [Reads::Kept, Reads::Forgotten] {
        let way = Way { reads, fences: Fences::HalfOfThem, ..Way::SOUND };
        let noticed = (0..100).find_map(|seed| judge_on_cores(seed, 8, way).err());
        println!("{}", noticed.expect("they are"));
    }
}

/// Two blocks that lie in different stripes of a cache of four.
const PAIR: [u64; 2] = [0, 8];
const PAIRS: u8 = 12;

/// A client commits the same to two blocks, again and again, and a thread brings it to the disk in
/// order. How often the disk had them differ, or in the end something else than was committed last.
fn wrong_pairs(seed: u64, flaw: Option<Flaw>) -> u64 {
    let spec = FormatSpec { block_size: 512, disk_blocks: 16, ring_slots: 16, uuid: [1; 16], disk: [2; 32] };
    let plan = CachePlan::cut(256, 512, 16, 16).ordered(256);
    let journal = plan.journal().expect("it is ordered");
    let region = Arc::new(Region::new(plan.end().next_multiple_of(8)));
    format_ordered(256, Checksums::Absent, &*region, &spec, Contents::Zeroed).expect("the region is sound");
    let disk = Arc::new(Disk::new(journal.end(), 512));
    lay_out_journal(&InTurn(disk.clone()), journal, spec.uuid).expect("the disk is sound");
    let cache = DiskCache::open(region, Arc::new(InTurn(disk.clone())), Options::default());
    let cache = Arc::new(cache.expect("a fresh cache opens"));
    let mut rng = Rng::new(seed);
    let order = Order::any(&mut rng, 300);
    let mut machine = Machine::new(Plan { flaw, points_max: 1_000_000, ..Plan::new(rng.next_u64(), 2, order) });
    let wrong = Arc::new(AtomicU64::new(0));
    let busy = Arc::new(AtomicBool::new(true));
    {
        let (cache, busy) = (cache.clone(), busy.clone());
        machine.spawn(0, move || {
            for tag in 1..=PAIRS {
                let mut transaction = cache.begin();
                PAIR.into_iter().for_each(|lba| transaction.write(Lba(lba), &[tag; BLOCK]).expect("there is room"));
                transaction.commit().expect("the media are sound");
            }
            busy.store(false, Ordering::Relaxed);
        });
    }
    let of_disk = move || {
        let mut block = [0; BLOCK];
        PAIR.map(|lba| disk.read(Lba(lba), &mut block).map(|()| block[0]).expect("the disk is sound"))
    };
    let (its, seen) = (cache.clone(), wrong.clone());
    machine.spawn(1, move || {
        loop {
            let over = !busy.load(Ordering::Relaxed);
            while its.destage_step(1).more {}
            let [one, other] = of_disk();
            seen.fetch_add(u64::from(one != other || over && one != PAIRS), Ordering::Relaxed);
            if over {
                return;
            }
            yield_now();
        }
    });
    let ended = machine.run();
    let ended_well = matches!(ended.how, How::Finished) && cache.dirty_blocks() == 0;
    wrong.load(Ordering::Relaxed) + u64::from(!ended_well)
}

#[test]
fn transactions_reach_the_disk_whole_and_what_was_committed_last_is_there_in_the_end() {
    (0..4000).for_each(|seed| assert_eq!(wrong_pairs(seed, None), 0, "seed {seed}"));
    let (file, code) = ("crates/disk-cache/src/destage/ordered.rs", "let mut stripe = self.table.index.lock_for(lba);");
    let flaw = Flaw { kind: FlawKind::Lock, file, line: line_of(file, code) };
    let noticed = (0..20_000).find(|seed| wrong_pairs(*seed, Some(flaw)) > 0);
    println!("left out: {code}: {noticed:?}");
    assert!(noticed.is_some(), "{code}");
}

const BLOCK: usize = 512;
const CLIENTS: u32 = 3;
const INCREMENTS: u64 = 2;

/// Clients increment a number each in a transaction that refuses conflicts, again and again until
/// it goes well. How many increments are missing.
fn lost_increments(seed: u64, flaw: Option<Flaw>) -> u64 {
    let spec = FormatSpec { block_size: 512, disk_blocks: 8, ring_slots: 16, uuid: [1; 16], disk: [2; 32] };
    let region = Arc::new(Region::new(CachePlan::cut(8, 512, 8, 16).end().next_multiple_of(8)));
    format(&*region, &spec, Contents::Zeroed).expect("the region is sound");
    let disk = Arc::new(InTurn(Arc::new(Disk::new(8, 512))));
    let options = Options { conflicts: Conflicts::Refuse, ..Options::default() };
    let cache = Arc::new(DiskCache::open(region, disk, options).expect("a fresh cache opens"));
    let mut rng = Rng::new(seed);
    let order = Order::any(&mut rng, 150);
    let mut machine = Machine::new(Plan { flaw, ..Plan::new(rng.next_u64(), CLIENTS, order) });
    for client in 0..CLIENTS {
        let cache = cache.clone();
        machine.spawn(client, move || (0..INCREMENTS).for_each(|_| while !incremented(&cache) {}));
    }
    let ended = machine.run();
    assert!(matches!(ended.how, How::Finished), "seed {seed}: {:?}", ended.how);
    let mut block = [0; BLOCK];
    cache.read(Lba(0), &mut block).expect("the block is there");
    u64::from(CLIENTS) * INCREMENTS - u64::from(block[0])
}

fn incremented(cache: &DiskCache<Arc<Region>>) -> bool {
    let mut transaction = cache.begin();
    let mut block = [0; BLOCK];
    transaction.read(Lba(0), &mut block).expect("the block is there");
    transaction.write(Lba(0), &[block[0] + 1; BLOCK]).expect("there is room");
    match transaction.commit() {
        Ok(()) => true,
        Err(TransactionError::Conflict { .. }) => false,
        Err(error) => panic!("a transaction is committed: {error}"),
    }
}

/// Where `file` of the disk cache first has `code`.
fn line_of(file: &str, code: &str) -> u32 {
    let source = std::fs::read_to_string(format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"))).expect("the source");
    let at = source.lines().position(|line| line.contains(code)).expect("it is there");
    u32::try_from(at + 1).expect("a short file")
}

#[test]
fn no_increment_is_lost_that_did_not_conflict() {
    (0..400).for_each(|seed| assert_eq!(lost_increments(seed, None), 0, "seed {seed}"));
    let file = "crates/disk-cache/src/commit/conflicts.rs";
    for (kind, code) in
        [(FlawKind::Lock, "let mut commits = self.commits.lock();"), (FlawKind::Change, "self.running.fetch_sub(1")]
    {
        let flaw = Flaw { kind, file, line: line_of(file, code) };
        let noticed = (0..100_000).find(|seed| lost_increments(*seed, Some(flaw)) > 0);
        println!("left out: {code}: {noticed:?}");
        assert!(noticed.is_some(), "{code}");
    }
}
