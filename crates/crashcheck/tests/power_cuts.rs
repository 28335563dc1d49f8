//! Every power cut of every short script over small volumes; what is judged stands in
//! `tidegate_crashcheck::btt`. `TIDEGATE_SCRIPTS=all` judges scripts of one step more,
//! `TIDEGATE_STEPS` gives longer ones.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;
use tidegate_btt::{Btt, Contents, OpenOptions};
use tidegate_crashcheck::btt::{Campaign, SecondCuts, SmallVolume, Step, Tally, judge_scripts};
use tidegate_crashcheck::checker::Seen;
use tidegate_crashcheck::script::block_of;
use tidegate_media::{BlockDevice, Durability, Lba};
use tidegate_sim::{Content, Counters, Image, Oracle, Promise, Region, on_core};

fn plain(region: Arc<Region>) -> Arc<Region> {
    region
}

/// Judges every script of up to `steps_max` steps (or as many as the environment says).
fn every_script(name: &str, volume: &SmallVolume, alphabet: &[Step], steps_max: u32) -> Tally {
    let seen = Seen::default();
    let mut total = Tally::default();
    let steps_max = steps_max + u32::from(tidegate_crashcheck::is_long());
    let asked = std::env::var("TIDEGATE_STEPS").ok().map(|steps| steps.parse().expect("a number of steps"));
    let steps: RangeInclusive<u32> = 1..=asked.unwrap_or(steps_max);
    for steps in steps {
        let start = Instant::now();
        let second = if steps <= 2 { SecondCuts::All } else { SecondCuts::Sampled(1) };
        let judged = judge_scripts(volume, plain, alphabet, steps, &seen, second);
        let tally = judged.unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, scripts of {steps}: {tally}; {:.1} s", start.elapsed().as_secs_f64());
        total.add(&tally);
    }
    println!("{name}, all: {total}");
    total
}

#[test]
fn every_cut_of_every_script_with_four_free_blocks() {
    let volume = SmallVolume::four_free();
    let alphabet = Step::alphabet(&[0, 1, 4], volume.sectors(), false);
    let tally = every_script("4 free of 7 blocks", &volume, &alphabet, 3);
    assert_eq!(tally.cuts_sampled, 0, "every image but for the words of data");
}

#[test]
fn every_cut_of_every_script_while_wear_is_levelled() {
    let volume = SmallVolume::four_free().levelled();
    let alphabet = Step::alphabet(&[0, 1, 4], volume.sectors(), false);
    let tally = every_script("4 free of 7 blocks, levelled", &volume, &alphabet, 2);
    assert_eq!(tally.cuts_sampled, 0, "every image but for the words of data");
}

#[test]
fn every_cut_of_every_script_with_two_free_blocks() {
    let volume = SmallVolume::two_free();
    let alphabet = Step::alphabet(&[0, 1, 2], volume.sectors(), false);
    let tally = every_script("2 free of 5 blocks", &volume, &alphabet, 3);
    assert_eq!(tally.cuts_sampled, 0, "every image but for the words of data");
}

#[test]
fn every_cut_of_every_script_with_zeroes_in_the_map() {
    let volume = SmallVolume::whole_pages();
    let alphabet = Step::alphabet(&[0, 1, 4], volume.sectors(), true);
    let tally = every_script("4 free of 6 pages", &volume, &alphabet, 2);
    assert_eq!(tally.cuts_sampled, 0, "every image but for the words of data");
}

/// The volume after a few writes, and what it shows.
fn used(volume: &SmallVolume) -> (Image, Oracle) {
    let region = Arc::new(Region::from_image(volume.formatted()));
    let mut oracle = Oracle::zeroed(volume.sectors(), volume.block_bytes, Promise::OnCompletion);
    let device = Btt::open(region.clone(), &OpenOptions::default()).expect("a fresh volume opens");
    for (number, lba) in [0, 1, 0, 1, 1].into_iter().enumerate() {
        let bytes = block_of(1000 + number as u64, volume.block_bytes);
        let pending = oracle.write_began(Lba(lba), Content::of(&bytes), Durability::Volatile);
        device.write(Lba(lba), &bytes, Durability::Volatile).expect("the region is sound");
        oracle.acknowledged(pending);
    }
    device.flush().expect("the region is sound");
    (region.cut().least().clone(), oracle.after_cut())
}

#[test]
fn a_format_cut_short_leaves_no_volume_or_a_whole_one() {
    for volume in [SmallVolume::four_free(), SmallVolume::two_free(), SmallVolume::whole_pages()] {
        let seen = Seen::default();
        let mut campaign = Campaign::new(&volume, plain, &seen, SecondCuts::All);
        let (old_image, old) = used(&volume);
        let starts = [
            (Image::zeroed(volume.bytes()), Contents::Zeroed),
            (Image::filled(volume.bytes(), 0xa5), Contents::Unknown),
            (old_image, Contents::Unknown),
        ];
        for (start, contents) in starts {
            campaign.run_format(&start, contents, &old).unwrap_or_else(|failure| panic!("{contents:?}: {failure}"));
        }
        println!("formats of {} bytes: {}", volume.bytes(), campaign.tally());
    }
}

/// Each flush of a write is needed by the crash rules (the planted mistakes prove it one by one);
/// this one says that none is there twice, and how many fences there are.
#[test]
fn a_write_flushes_no_line_in_vain() {
    let volume = SmallVolume::four_free();
    let region = Arc::new(Region::from_image(volume.formatted()));
    let device = Btt::open(region.clone(), &OpenOptions::default()).expect("a fresh volume opens");
    let bytes = block_of(1, volume.block_bytes);
    let write = |core: u32, lba: u64| {
        let before = region.counters();
        on_core(core, || device.write(Lba(lba), &bytes, Durability::Volatile)).expect("the region is sound");
        let after = region.counters();
        let count = |of: fn(&Counters) -> u64| of(&after) - of(&before);
        [count(|all| all.fences), count(|all| all.lines_flushed), count(|all| all.lines_flushed_clean)]
    };
    assert_eq!(write(0, 0), [2, 0, 0], "a lane's first write: data and flog are streamed");
    assert_eq!(write(0, 1), [2, 1, 0], "the usual write: the map's line of the one before");
    assert_eq!(write(1, 1), [2, 1, 0], "another lane's map entry, not yet fenced, is settled by the same fence");
    assert_eq!(
        write(4, 2),
        [2, 1, 0],
        "lane 0 on another thread flushes its last map entry; sector 2 has another word"
    );
    // All sectors of so small a map share a line, so here settling lane 0's entry has written back
    // lane 1's too.
    assert_eq!(write(1, 2), [2, 2, 1], "lane 1 settles that of lane 0, then flushes its own last one");
}
