//! One test per rule of `docs/media-model.md`, each against a set of images written down by hand;
//! then four mistakes in a small protocol, which the images must show.

use std::iter;
use tidegate_media::{LineOrder, Region as _, Sealed};
use tidegate_sim::{Cut, Image, PoisonedStore, Reduction, Region, Rng, on_core, power_cuts};

const ME: u32 = 100;
const YOU: u32 = 101;

/// Lines `A` and `B`, and words in them.
const A: u64 = 0;
const A2: u64 = 8;
const B: u64 = 64;

fn region() -> Region {
    Region::with_line_order(Image::zeroed(4096), LineOrder::Prefix)
}

/// What the words at `at` hold in each image of a cut: the set of rows, ascending.
fn rows(cut: &Cut, at: &[u64]) -> Vec<Vec<u64>> {
    let mut rows: Vec<Vec<u64>> =
        cut.images(&Reduction::none()).map(|image| at.iter().map(|at| image.load_u64(*at)).collect()).collect();
    rows.sort();
    let count = rows.len();
    rows.dedup();
    assert_eq!(rows.len(), count, "each image comes once");
    rows
}

fn word(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

#[test]
fn rule_1_an_aligned_word_is_never_torn_and_two_never_arrive_together() {
    let pm = region();
    let mut both = [0; 16];
    both[..8].copy_from_slice(&word(u64::MAX));
    both[8..].copy_from_slice(&word(u64::MAX));
    pm.write(A, &both);
    let max = u64::MAX;
    assert_eq!(rows(&pm.cut(), &[A, A2]), [[0, 0], [0, max], [max, 0], [max, max]]);
}

#[test]
fn rule_2_a_store_is_visible_at_once_and_pending_until_fenced() {
    let pm = region();
    pm.write(A, &word(1));
    assert_eq!(pm.load_u64(A).expect("readable"), 1);
    assert_eq!(on_core(YOU, || pm.load_u64(A)).expect("readable"), 1);
    assert_eq!(rows(&pm.cut(), &[A]), [[0], [1]]);
}

#[test]
fn rule_3_a_store_may_arrive_before_anybody_asks() {
    let pm = region();
    pm.store_u64(A, 1);
    pm.flush(A, 8);
    pm.store_u64(B, 2);
    let rows = rows(&pm.cut(), &[A, B]);
    assert!(rows.contains(&vec![0, 2]), "the unflushed store without the flushed one: {rows:?}");
}

#[test]
fn rule_4_lines_are_independent() {
    let pm = region();
    pm.store_u64(A, 1);
    pm.store_u64(B, 2);
    assert_eq!(rows(&pm.cut(), &[A, B]), [[0, 0], [0, 2], [1, 0], [1, 2]]);
}

#[test]
fn rule_5_of_copies_any_subset_of_words_arrives() {
    let pm = region();
    pm.write(A, &word(1));
    pm.stream(A2, &word(2));
    pm.write(A, &word(3));
    assert_eq!(rows(&pm.cut(), &[A, A2]), [[0, 0], [0, 2], [1, 0], [1, 2], [3, 0], [3, 2]]);
}

#[test]
fn rule_5_parts_of_one_word_arrive_each_whole_or_not_at_all() {
    let pm = region();
    pm.write(A, &[1; 4]);
    pm.write(A + 4, &[2; 4]);
    let (low, high) = (0x0101_0101, 0x0202_0202 << 32);
    assert_eq!(rows(&pm.cut(), &[A]), [[0], [low], [high], [high | low]]);
}

#[test]
fn rule_5_nothing_older_comes_back_in_place_of_a_durable_store() {
    let pm = region();
    on_core(YOU, || pm.write(A, &word(1)));
    on_core(ME, || {
        pm.stream(A, &word(2));
        pm.fence().expect("sound");
    });
    assert_eq!(rows(&pm.cut(), &[A]), [[2]]);
}

#[test]
fn rule_6_of_word_stores_to_a_line_a_prefix_arrives() {
    let pm = region();
    pm.store_u64(A, 1);
    on_core(YOU, || pm.store_u64(A2, 2));
    pm.store_u64(A, 3);
    assert_eq!(rows(&pm.cut(), &[A, A2]), [[0, 0], [1, 0], [1, 2], [3, 2]]);
}

#[test]
fn rule_6_on_aarch64_any_subset_arrives() {
    let pm = Region::with_line_order(Image::zeroed(4096), LineOrder::Any);
    pm.store_u64(A, 1);
    pm.store_u64(A2, 2);
    assert_eq!(rows(&pm.cut(), &[A, A2]), [[0, 0], [0, 2], [1, 0], [1, 2]]);
}

#[test]
fn rule_6_copies_and_word_stores_of_a_line_have_no_order() {
    let pm = region();
    pm.write(A, &word(1));
    pm.store_u64(A2, 2);
    assert_eq!(rows(&pm.cut(), &[A, A2]), [[0, 0], [0, 2], [1, 0], [1, 2]]);
}

#[test]
fn rule_7_a_flush_marks_what_the_line_holds_at_that_moment() {
    let pm = region();
    pm.store_u64(A, 1);
    pm.flush(A + 60, 1);
    pm.store_u64(A, 2);
    pm.store_u64(A2, 3);
    pm.fence().expect("sound");
    assert_eq!(rows(&pm.cut(), &[A, A2]), [[1, 0], [2, 0], [2, 3]]);
}

#[test]
fn rule_8_a_stream_marks_its_own_bytes_only() {
    let pm = region();
    pm.store_u64(A, 1);
    pm.stream(A2, &word(2));
    pm.fence().expect("sound");
    assert_eq!(rows(&pm.cut(), &[A, A2]), [[0, 2], [1, 2]]);
}

#[test]
fn rule_9_neither_a_flush_nor_a_fence_alone_makes_durable() {
    let pm = region();
    pm.store_u64(A, 1);
    pm.fence().expect("sound");
    assert_eq!(rows(&pm.cut(), &[A]), [[0], [1]]);
    pm.flush(A, 8);
    assert_eq!(rows(&pm.cut(), &[A]), [[0], [1]]);
    pm.fence().expect("sound");
    assert_eq!(rows(&pm.cut(), &[A]), [[1]]);
}

#[test]
fn rule_10_a_fence_covers_nothing_that_another_core_flushed() {
    let pm = region();
    on_core(YOU, || {
        pm.store_u64(A, 1);
        pm.flush(A, 8);
        pm.stream(B, &word(2));
    });
    on_core(ME, || pm.fence()).expect("sound");
    assert_eq!(rows(&pm.cut(), &[A, B]), [[0, 0], [0, 2], [1, 0], [1, 2]]);
    on_core(YOU, || pm.fence()).expect("sound");
    assert_eq!(rows(&pm.cut(), &[A, B]), [[1, 2]]);
}

#[test]
fn rule_10_flushing_a_line_that_another_core_stored_makes_it_durable() {
    let pm = region();
    on_core(YOU, || pm.store_u64(A, 1));
    on_core(ME, || {
        pm.flush(A, 8);
        pm.fence().expect("sound");
    });
    assert_eq!(rows(&pm.cut(), &[A]), [[1]]);
}

#[test]
fn rule_11_after_a_cut_nothing_is_pending() {
    let pm = region();
    pm.write(A, &word(1));
    pm.flush(A, 8);
    for image in pm.cut().images(&Reduction::none()) {
        let after = Region::from_image(image.clone());
        assert_eq!(after.cut().images(&Reduction::none()).collect::<Vec<_>>(), [image]);
    }
}

#[test]
fn rule_12_a_kill_leaves_everything_visible() {
    let pm = region();
    pm.write(A, &word(1));
    pm.store_u64(B, 2);
    let image = pm.visible();
    assert_eq!((image.load_u64(A), image.load_u64(B)), (1, 2));
}

#[test]
fn rule_12_what_was_pending_at_a_kill_is_pending_for_the_next_process() {
    let pm = region();
    pm.store_u64(A, 1);
    pm.flush(A, 8);
    let next = Region::after_kill(&pm.cut());
    assert_eq!(next.load_u64(A).expect("readable"), 1);
    next.fence().expect("sound");
    assert_eq!(rows(&next.cut(), &[A]), [[0], [1]]);
    next.flush(A, 8);
    next.fence().expect("sound");
    assert_eq!(rows(&next.cut(), &[A]), [[1]]);
}

#[test]
fn rule_13_a_poisoned_line_fails_to_load_and_its_neighbours_do_not() {
    let pm = region();
    pm.poison(A + 8, 1, PoisonedStore::Kept);
    pm.load_u64(A).expect_err("the whole line is bad");
    pm.read(A + 56, &mut [0; 16]).expect_err("it touches the line");
    pm.load_u64(B).expect("another line");
    pm.store_u64(A, 1);
    pm.load_u64(A).expect_err("still bad");
    pm.fence().expect("kept");
}

#[test]
fn rule_13_a_store_of_the_whole_line_may_heal_it() {
    let pm = region();
    pm.poison(A, 128, PoisonedStore::Heals);
    pm.write(A, &[1; 60]);
    pm.load_u64(A).expect_err("not the whole line");
    pm.write(A, &[1; 64]);
    pm.load_u64(A).expect("healed");
    pm.load_u64(B).expect_err("another line");
}

#[test]
fn rule_13_a_lost_store_seals_the_region() {
    let pm = region();
    pm.poison(A, 8, PoisonedStore::Lost);
    pm.store_u64(A2, 1);
    assert_eq!(pm.fence(), Err(Sealed::StoreLost { at: A2 }));
    assert_eq!(pm.fence(), Err(Sealed::StoreLost { at: A2 }), "for ever");
}

#[test]
fn rule_13_a_region_cut_short_is_poisoned_from_its_end() {
    let pm = region();
    pm.cut_short(64);
    pm.load_u64(56).expect("before the end");
    pm.load_u64(64).expect_err("past the end");
    pm.stream(56, &[1; 16]);
    assert_eq!(pm.fence(), Err(Sealed::StoreLost { at: 56 }));
}

#[test]
fn every_sample_is_an_image_of_the_cut() {
    let pm = region();
    pm.store_u64(A, 1);
    pm.write(A2, &word(2));
    pm.store_u64(A, 3);
    pm.stream(B, &[4; 16]);
    let cut = pm.cut();
    let all: Vec<u64> = cut.images(&Reduction::none()).map(|image| image.hash()).collect();
    let mut rng = Rng::new(1);
    let mut seen: Vec<u64> = (0..2000).map(|_| cut.sample(&mut rng).hash()).collect();
    assert!(seen.iter().all(|hash| all.contains(hash)));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), all.len(), "samples reach every image");
}

#[test]
fn a_reduction_gives_none_all_one_all_but_one_and_a_random_subset() {
    let pm = region();
    pm.stream(512, &[1; 512]);
    pm.store_u64(A, 7);
    let cut = pm.cut();
    let reduction = Reduction::of(iter::once(512..1024));
    let images = cut.images(&reduction);
    let counts = images.counts();
    assert!((counts.all_log2 - 65.0).abs() < 1e-9, "64 data words and one other: {counts:?}");
    assert_eq!((counts.given, counts.sampled), (10, false));
    let arrived = |image: &Image| (0..64).filter(|word| image.load_u64(512 + word * 8) != 0).count();
    let arrived: Vec<usize> = images.map(|image| arrived(&image)).collect();
    for count in [0, 1, 63, 64] {
        assert_eq!(arrived.iter().filter(|arrived| **arrived == count).count(), 2, "{count} of 64 words");
    }
}

#[test]
fn too_many_images_give_corners_and_samples() {
    let pm = region();
    pm.write(0, &[1; 4096]);
    let cut = pm.cut();
    let images = cut.images(&Reduction { samples: 100, ..Reduction::none() });
    assert!(images.counts().sampled);
    assert!((images.counts().all_log2 - 512.0).abs() < 1e-9);
    let images: Vec<Image> = images.collect();
    assert!(images.contains(&cut.most()) && images.contains(cut.least()));
    assert_eq!(images.len(), 2 + 2 * 64 + 100);
}

#[test]
fn counters_are_exact() {
    let pm = region();
    pm.stream(B, &[1; 65]);
    pm.store_u64(A, 1);
    pm.flush(A, 64);
    pm.flush(A2, 8);
    pm.fence().expect("sound");
    pm.flush(A, 8);
    pm.fence().expect("sound");
    let counters = pm.counters();
    assert_eq!((counters.bytes_stored, counters.lines_flushed, counters.lines_flushed_clean), (73, 3, 2));
    assert_eq!((counters.fences, counters.fences_idle), (2, 1));
}

/// A value of four words and a word that says it counts, in another line.
const VALUE: u64 = 128;
const VALID: u64 = 256;

/// Whether in some image the value counts and is not whole, or was promised and does not count.
fn caught(script: impl Fn(&Region)) -> bool {
    let cuts = power_cuts(&Image::zeroed(4096), |pm| script(pm));
    let last = cuts.len() - 1;
    cuts.iter().enumerate().any(|(index, cut)| {
        cut.images(&Reduction::none()).any(|image| {
            let whole = (0..4).all(|word| image.load_u64(VALUE + word * 8) == u64::MAX);
            let counts = image.load_u64(VALID) == 1;
            (counts && !whole) || (index == last && !counts)
        })
    })
}

fn put_value(pm: &Region) {
    pm.write(VALUE, &[0xff; 32]);
    pm.flush(VALUE, 32);
}

fn make_valid(pm: &Region) {
    pm.store_u64(VALID, 1);
    pm.flush(VALID, 8);
}

#[test]
fn the_right_protocol_survives_every_cut() {
    assert!(!caught(|pm| {
        put_value(pm);
        pm.fence().expect("sound");
        make_valid(pm);
        pm.fence().expect("sound");
    }));
}

#[test]
fn a_missing_flush_is_caught() {
    assert!(caught(|pm| {
        pm.write(VALUE, &[0xff; 32]);
        pm.fence().expect("sound");
        make_valid(pm);
        pm.fence().expect("sound");
    }));
}

#[test]
fn a_missing_fence_is_caught() {
    assert!(caught(|pm| {
        put_value(pm);
        make_valid(pm);
        pm.fence().expect("sound");
    }));
    assert!(caught(|pm| {
        put_value(pm);
        pm.fence().expect("sound");
        make_valid(pm);
    }));
}

#[test]
fn another_threads_fence_is_caught() {
    assert!(caught(|pm| {
        on_core(YOU, || put_value(pm));
        on_core(ME, || {
            pm.fence().expect("sound");
            make_valid(pm);
            pm.fence().expect("sound");
        });
    }));
}

#[test]
fn the_wrong_order_of_stores_is_caught() {
    assert!(caught(|pm| {
        make_valid(pm);
        pm.fence().expect("sound");
        put_value(pm);
        pm.fence().expect("sound");
    }));
}
