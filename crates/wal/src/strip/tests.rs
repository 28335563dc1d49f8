//! Every power cut of every short script on a strip, beside a list of what was committed.

use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_media::MappedRegion;
use tidegate_sim::{InterceptMemory, InterceptedMemory, Reduction};

const SESSION: u64 = 7;
const SLOT: u32 = 65;
/// Room for three short records, or two.
const BYTES: u64 = 256;

#[derive(Clone, Copy, Debug)]
enum Step {
    Stage,
    StageMuch,
    Commit,
    Absorb,
    Forget,
    Reopen,
}

const ALPHABET: [Step; 6] = [Step::Stage, Step::StageMuch, Step::Commit, Step::Absorb, Step::Forget, Step::Reopen];

/// What the next reader of the strip may find, and what he leaves alone.
#[derive(Clone, Debug, Default)]
struct Model {
    staged: Vec<Record>,
    committed: Vec<Record>,
    slot: u32,
    /// The last filling of each slot that was absorbed; a forgotten slot has all of them behind it.
    absorbed: BTreeMap<u32, u32>,
    byte: u8,
}

struct Player<R> {
    strip: Strip<R>,
    model: Model,
}

impl<R: Region + Clone> Player<R> {
    fn new(region: &R) -> Player<R> {
        let strip = Strip::open(region.clone(), SESSION, SLOT, 1).expect("sound");
        Player { strip, model: Model { slot: SLOT, ..Model::default() } }
    }

    fn step(&mut self, region: &R, step: Step) {
        let model = &mut self.model;
        match step {
            Step::Stage | Step::StageMuch => {
                model.byte += 1;
                let len = if let Step::Stage = step { 13 } else { 40 };
                let record = Record { at: 1000 * u64::from(model.byte), bytes: vec![model.byte; len] };
                if self.strip.stage(record.at, &record.bytes) == Ok(Staged::There) {
                    model.staged.push(record);
                }
            }
            Step::Commit => {
                self.strip.commit().expect("sound");
                model.committed.clone_from(&model.staged);
            }
            Step::Absorb => {
                // The absorber says so durably, elsewhere.
                model.absorbed.insert(model.slot, self.strip.filling());
                self.strip.begin(model.slot, self.strip.filling() + 1);
                (model.staged, model.committed) = Default::default();
            }
            Step::Forget => {
                model.absorbed.insert(model.slot, u32::MAX);
                model.slot += 1;
                self.strip.begin(model.slot, 1);
                (model.staged, model.committed) = Default::default();
            }
            Step::Reopen => {
                model.absorbed.insert(model.slot, u32::MAX);
                model.slot += 64;
                self.strip = Strip::open(region.clone(), SESSION, model.slot, 1).expect("sound");
                (model.staged, model.committed) = Default::default();
            }
        }
    }
}

fn found(region: &tidegate_sim::Region, model: &Model) -> Vec<Record> {
    let counts = |counting: Counting| model.absorbed.get(&counting.slot).is_none_or(|last| counting.filling > *last);
    records(region, SESSION, counts).expect("it is not damaged").map(|(_, records)| records).unwrap_or_default()
}

fn scripts(steps: u32) -> impl Iterator<Item = Vec<Step>> {
    let each = ALPHABET.len();
    (0..each.pow(steps)).map(move |number| (0..steps).map(|place| ALPHABET[number / each.pow(place) % each]).collect())
}

/// Judges every cut of the last step of `script`; the cuts and the images. `wrap` spoils the
/// memory, if anything does.
fn judge<R: Region + Clone>(
    script: &[Step],
    wrap: impl Fn(&Arc<tidegate_sim::Region>) -> R,
) -> Result<(u64, u64), String> {
    let (last, earlier) = script.split_last().expect("it has steps");
    // A strip that an older run left, which tells of the same slot and of the whole length.
    let old = Arc::new(tidegate_sim::Region::new(BYTES));
    let mut older = Strip::open(old.clone(), SESSION + 1, SLOT, 1).expect("sound");
    older.stage(3, &[0xee; 100]).and_then(|_| older.commit()).expect("sound");
    let memory = Arc::new(tidegate_sim::Region::from_image(old.visible()));
    let region = wrap(&memory);
    let mut player = Player::new(&region);
    earlier.iter().for_each(|step| player.step(&region, *step));
    let before = player.model.clone();
    memory.record_cuts();
    player.step(&region, *last);
    let after = player.model;
    let mut cuts = memory.take_cuts();
    cuts.push(memory.cut());
    let mut count = (0, 0);
    for (number, cut) in (1..).zip(&cuts) {
        count.0 += 1;
        // Who absorbs and who forgets is durable before the step.
        let during = Model { absorbed: after.absorbed.clone(), ..before.clone() };
        let allowed = if number == cuts.len() { vec![&after] } else { vec![&during, &after] };
        let mut images = cut.images(&Reduction::none());
        while let Some(image) = images.advance() {
            count.1 += 1;
            let region = tidegate_sim::Region::from_image(image.clone());
            let matches = |model: &&Model| found(&region, model) == model_contents(model);
            if !allowed.iter().any(matches) {
                return Err(format!("{script:?}: {:?}", found(&region, &after)));
            }
        }
    }
    Ok(count)
}

/// What counts of a model, unless it was absorbed.
fn model_contents(model: &Model) -> Vec<Record> {
    let gone = model.absorbed.get(&model.slot).is_some_and(|last| *last == u32::MAX);
    if gone { Vec::new() } else { model.committed.clone() }
}

#[test]
fn every_cut_of_every_short_script_leaves_whole_syncs() {
    let (mut cuts, mut images) = (0, 0);
    for steps in 1..=5 {
        for script in scripts(steps) {
            let (more_cuts, more_images) = judge(&script, Arc::clone).unwrap_or_else(|wrong| panic!("{wrong}"));
            (cuts, images) = (cuts + more_cuts, images + more_images);
        }
    }
    println!("{cuts} cuts, {images} images");
}

/// The fences behind records are left out.
#[derive(Default)]
struct Unfenced(AtomicBool);

impl InterceptMemory for Unfenced {
    fn stream<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        self.0.store(at > 0, Ordering::Relaxed);
        memory.stream(at, bytes);
    }

    fn fence<R: Region + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        if self.0.load(Ordering::Relaxed) { Ok(()) } else { memory.fence() }
    }
}

#[test]
fn a_word_that_is_stored_before_its_records_are_durable_is_noticed() {
    let wrap = |region: &Arc<tidegate_sim::Region>| {
        Arc::new(InterceptedMemory { memory: region.clone(), by: Unfenced::default() })
    };
    assert!(scripts(2).any(|script| judge(&script, wrap).is_err()));
}

#[test]
fn what_does_not_fit_is_refused_and_the_next_filling_has_room_again() {
    let region = Arc::new(tidegate_sim::Region::new(BYTES));
    let mut strip = Strip::open(region.clone(), SESSION, SLOT, 1).expect("sound");
    assert_eq!(strip.stage(0, &[1; 104]), Ok(Staged::There));
    assert_eq!(strip.left(), Left::HardlyAny);
    assert_eq!(strip.stage(0, &[1; 1]), Ok(Staged::NoRoom));
    strip.begin(SLOT, 2);
    assert_eq!(strip.left(), Left::Enough);
    assert_eq!(strip.stage(0, &[1; 1]), Ok(Staged::There));
    assert_eq!(strip.stage(0, &vec![1; RECORD_BYTES_MAX + 1]), Ok(Staged::NoRoom));
}

#[test]
fn room_is_little_where_records_as_long_as_before_hardly_fit() {
    let region = Arc::new(tidegate_sim::Region::new(STRIP_BYTES));
    let mut strip = Strip::open(region, SESSION, SLOT, 1).expect("sound");
    let mut left = || {
        assert_eq!(strip.stage(0, &vec![1; 110 << 10]), Ok(Staged::There));
        strip.left()
    };
    assert_eq!([left(), left(), left(), left()], [Left::Enough, Left::Enough, Left::Little, Left::HardlyAny]);
    // The next filling may have shorter ones.
    strip.begin(SLOT, 2);
    assert_eq!(strip.stage(0, &[1; 100]), Ok(Staged::There));
    assert_eq!(strip.left(), Left::Enough);
}

#[test]
fn ranges_that_touch_are_one() {
    let region = Arc::new(tidegate_sim::Region::new(STRIP_BYTES));
    let mut strip = Strip::open(region, SESSION, SLOT, 1).expect("sound");
    for at in [100, 300, 110, 95, 305] {
        strip.stage(at, &[1; 10]).expect("sound");
    }
    assert_eq!(strip.ranges(), [(95, 25), (300, 15)]);
    for number in 0..FILLING_RANGES_MAX as u64 {
        let _ = strip.stage(1000 + 100 * number, &[1]).expect("sound");
    }
    assert_eq!(strip.ranges().len(), FILLING_RANGES_MAX);
    assert_eq!(strip.stage(1 << 40, &[1]), Ok(Staged::NoRoom));
    assert_eq!(strip.stage(120, &[1]), Ok(Staged::There));
}

#[test]
fn lines_and_fences_are_counted_as_the_memory_counts_them() {
    let region = Arc::new(MappedRegion::anonymous(STRIP_BYTES).expect("memory"));
    let before = region.counters();
    let mut strip = Strip::open(region.clone(), SESSION, SLOT, 1).expect("sound");
    for len in [1, 8, 100, 463, 464, 465, 488, 489, 500, 4096, 4099] {
        strip.stage(0, &vec![1; len]).and_then(|_| strip.commit()).expect("sound");
    }
    let (counted, done) = (counts(&*region).expect("readable"), region.counters());
    assert_eq!(counted.syncs, 11);
    assert_eq!(counted.bytes, 11_173);
    assert_eq!(counted.fences, done.fences - before.fences);
    assert_eq!(counted.lines, done.lines_flushed - before.lines_flushed);
}

#[test]
fn a_damaged_strip_is_told_from_one_of_another_run() {
    let region = Arc::new(tidegate_sim::Region::new(STRIP_BYTES));
    let mut strip = Strip::open(region.clone(), SESSION, SLOT, 1).expect("sound");
    strip.stage(5, &[1; 3]).and_then(|_| strip.stage(9, &[2; 3])).and_then(|_| strip.commit()).expect("sound");
    assert_eq!(records(&*region, SESSION + 1, |_| true), Ok(None));
    let read = records(&*region, SESSION, |_| true).expect("whole").expect("it counts");
    assert_eq!(read.0, Counting { slot: SLOT, filling: 1, words: 8 });
    assert_eq!(read.1, [Record { at: 5, bytes: vec![1; 3] }, Record { at: 9, bytes: vec![2; 3] }]);
    for (place, word) in [(32, 9), (16, 1 << 40), (16, u64::MAX), (16, 30)] {
        let place = STRIP_RECORDS_AT + place;
        let good = region.load_u64(place).expect("readable");
        region.store_u64(place, word);
        assert!(records(&*region, SESSION, |_| true).is_err(), "{place} {word}");
        region.store_u64(place, good);
    }
    let counting = Counting { slot: SLOT, filling: 1, words: u16::MAX };
    region.store_u64(0, counting.word());
    let refused = records(&*region, SESSION, |_| true).expect_err("it says more than the strip has room for");
    assert!(refused.to_string().contains("65535 words"), "{refused}");
}
