//! The disk cache on virtual cores, under interleavings and power cuts that seeds choose. `TIDEGATE_SEEDS` gives more of them.
//!
//! Compiled with `--cfg virtual_cores` only.
#![cfg(virtual_cores)]

use std::sync::Arc;
use tidegate_disk_cache::{Conflicts, Contents, DiskCache, FormatSpec, Options, Reads, TransactionError, format};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{BlockDevice, InTurn, Lba};
use tidegate_sim::{Disk, Region};
use tidegate_trials::disk_cache_cuts::{Fences, judge_on_cores};
use tidegate_virtual_cores::{Flaw, FlawKind, How, Machine, Order, Plan, Rng};

#[test]
fn groups_stay_whole_under_every_interleaving_and_cut() {
    let seeds = std::env::var("TIDEGATE_SEEDS").ok().map_or(400, |seeds| seeds.parse().expect("a number of seeds"));
    for reads in [Reads::Kept, Reads::Forgotten] {
        groups_stay_whole(seeds, reads);
    }
}

fn groups_stay_whole(seeds: u64, reads: Reads) {
    let (mut acts, mut cut_short, mut evictions) = (0, 0, 0);
    for seed in 0..seeds {
        let tally = judge_on_cores(seed, 8, reads, Fences::Made).unwrap_or_else(|failure| panic!("{failure}"));
        acts += tally.acts;
        cut_short += tally.cut_short;
        evictions += tally.evictions;
    }
    println!(
        "{reads:?}, {seeds} seeds: {acts} operations, {cut_short} lives cut short, {evictions} blocks given up in whole lives"
    );
    assert!(cut_short > 0 && evictions > 0, "both were met");
}

#[test]
fn fences_left_out_are_noticed() {
    for reads in [Reads::Kept, Reads::Forgotten] {
        let noticed = (0..100).find_map(|seed| judge_on_cores(seed, 8, reads, Fences::HalfOfThem).err());
        println!("{}", noticed.expect("they are"));
    }
}

const BLOCK: usize = 512;
const CLIENTS: u32 = 3;
const INCREMENTS: u64 = 2;

/// Clients increment a number each in a transaction that refuses conflicts, again and again until it goes well. How many increments are missing.
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
    let file = "crates/disk-cache/src/conflicts.rs";
    for (kind, code) in
        [(FlawKind::Lock, "let mut commits = self.commits.lock();"), (FlawKind::Change, "self.running.fetch_sub(1")]
    {
        let flaw = Flaw { kind, file, line: line_of(file, code) };
        let noticed = (0..100_000).find(|seed| lost_increments(*seed, Some(flaw)) > 0);
        println!("left out: {code}: {noticed:?}");
        assert!(noticed.is_some(), "{code}");
    }
}
