//! Every power cut of every short script on a pair of strips, beside a list of what was committed
//! in each filling.

use super::*;
use crate::strip::clear;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_media::Poison;
use tidegate_sim::Reduction;

const SESSION: u64 = 7;
const SLOT: u32 = 65;
/// Room for three short records, or two.
const BYTES: u64 = 256;

/// One of two strips in the same memory.
#[derive(Clone)]
struct Half(Arc<tidegate_sim::Region>, u64);

impl Region for Half {
    fn len(&self) -> u64 {
        BYTES
    }
    fn read(&self, at: u64, out: &mut [u8]) -> std::result::Result<(), Poison> {
        self.0.read(self.1 + at, out)
    }
    fn load_u64(&self, at: u64) -> std::result::Result<u64, Poison> {
        self.0.load_u64(self.1 + at)
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.0.write(self.1 + at, bytes);
    }
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.0.stream(self.1 + at, bytes);
    }
    fn store_u64(&self, at: u64, word: u64) {
        self.0.store_u64(self.1 + at, word);
    }
    fn flush(&self, at: u64, len: u64) {
        self.0.flush(self.1 + at, len);
    }
    fn fence(&self) -> std::result::Result<(), Sealed> {
        self.0.fence()
    }
}

fn halves(region: &Arc<tidegate_sim::Region>) -> [Half; 2] {
    [0, BYTES].map(|from| Half(region.clone(), from))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stage,
    Commit,
    Turn,
    /// The filling that was handed over is absorbed.
    AbsorbOlder,
    /// That one, and the one that is being filled.
    AbsorbBoth,
    Forget,
    Reopen,
    /// Mistakes: the program goes on as if the older filling were absorbed; the absorber takes the
    /// newer one first.
    TooSoon,
    NewerFirst,
}

const RIGHT: [Step; 7] =
    [Step::Stage, Step::Commit, Step::Turn, Step::AbsorbOlder, Step::AbsorbBoth, Step::Forget, Step::Reopen];

/// What the next reader may find, and what he leaves alone.
#[derive(Clone, Debug, Default)]
struct Model {
    staged: Vec<Record>,
    /// By filling.
    committed: BTreeMap<u32, Vec<Record>>,
    slot: u32,
    /// The last filling of each slot that was absorbed; a forgotten slot has all of them behind it.
    absorbed: BTreeMap<u32, u32>,
    /// The last filling whose records are elsewhere for certain.
    elsewhere: u32,
    byte: u8,
}

impl Model {
    fn leave(&mut self, slot: u32) {
        self.absorbed.insert(self.slot, u32::MAX);
        (self.slot, self.elsewhere) = (slot, 0);
        (self.staged, self.committed) = Default::default();
    }

    fn contents(&self) -> Vec<Record> {
        self.committed
            .iter()
            .filter(|(filling, _)| **filling > self.elsewhere)
            .flat_map(|(_, records)| records)
            .cloned()
            .collect()
    }
}

struct Player {
    pair: Pair<Half>,
    model: Model,
}

impl Player {
    fn new(region: &Arc<tidegate_sim::Region>) -> Player {
        let pair = Pair::open(halves(region), SESSION, SLOT).expect("sound");
        Player { pair, model: Model { slot: SLOT, ..Model::default() } }
    }

    fn is_one_handed_over(&self) -> bool {
        self.pair.other().filling() < self.pair.filling()
    }

    /// As the absorber and the program do it after each other.
    fn absorb(&mut self, region: &Arc<tidegate_sim::Region>, filling: u32) {
        self.model.absorbed.insert(self.model.slot, filling);
        self.model.elsewhere = filling;
        clear(&halves(region)[strip_of(filling)]).expect("sound");
        assert!(self.pair.absorbed(filling));
    }

    fn step(&mut self, region: &Arc<tidegate_sim::Region>, step: Step) {
        let (slot, filling) = (self.model.slot, self.pair.filling());
        match step {
            Step::Stage => {
                self.model.byte += 1;
                let record = Record { at: 1000 * u64::from(self.model.byte), bytes: vec![self.model.byte; 40] };
                if self.pair.stage(record.at, &record.bytes) == Ok(Staged::There) {
                    self.model.staged.push(record);
                }
            }
            Step::Commit => {
                self.pair.commit().expect("sound");
                if !self.model.staged.is_empty() {
                    self.model.committed.insert(filling, self.model.staged.clone());
                }
            }
            Step::Turn => {
                if self.pair.turn() {
                    assert_eq!(self.pair.filling(), filling + 1);
                    self.model.staged.clear();
                }
            }
            Step::AbsorbOlder if self.is_one_handed_over() => self.absorb(region, filling - 1),
            Step::AbsorbBoth => {
                if self.is_one_handed_over() {
                    self.absorb(region, filling - 1);
                }
                self.absorb(region, filling);
                self.model.staged.clear();
            }
            Step::TooSoon if self.is_one_handed_over() => assert!(self.pair.absorbed(filling - 1)),
            Step::NewerFirst if self.is_one_handed_over() => {
                self.model.absorbed.insert(slot, filling);
            }
            Step::AbsorbOlder | Step::TooSoon | Step::NewerFirst => {}
            Step::Forget => {
                self.model.leave(slot + 1);
                self.pair.forgotten(slot + 1);
            }
            Step::Reopen => {
                self.model.leave(slot + 64);
                self.pair = Pair::open(halves(region), SESSION, slot + 64).expect("sound");
            }
        }
    }
}

/// What somebody finds who knows of `model` only what was absorbed.
fn found(region: &Arc<tidegate_sim::Region>, model: &Model) -> Vec<Record> {
    let counts = |counting: Counting| model.absorbed.get(&counting.slot).is_none_or(|last| counting.filling > *last);
    let found = records(&halves(region), SESSION, counts).expect("it is not damaged");
    found.into_iter().map(|(_, record)| record).collect()
}

fn scripts(alphabet: &[Step], steps: u32) -> impl Iterator<Item = Vec<Step>> {
    let each = alphabet.len();
    (0..each.pow(steps)).map(move |number| (0..steps).map(|place| alphabet[number / each.pow(place) % each]).collect())
}

/// Judges every cut of the last step of `script`; the images.
fn judge(script: &[Step]) -> std::result::Result<u64, String> {
    let (last, earlier) = script.split_last().expect("it has steps");
    // Strips that an older run left, which tell of the same slot.
    let old = Arc::new(tidegate_sim::Region::new(2 * BYTES));
    let mut older = Pair::open(halves(&old), SESSION + 1, SLOT).expect("sound");
    for _ in 0..2 {
        older.stage(3, &[0xee; 100]).and_then(|_| older.commit()).expect("sound");
        older.turn();
    }
    let region = Arc::new(tidegate_sim::Region::from_image(old.visible()));
    let mut player = Player::new(&region);
    earlier.iter().for_each(|step| player.step(&region, *step));
    let before = player.model.clone();
    region.record_cuts();
    player.step(&region, *last);
    let after = player.model;
    let mut cuts = region.take_cuts();
    cuts.push(region.cut());
    let mut count = 0;
    // Who absorbs and who forgets is durable before the step.
    let during = Model { absorbed: after.absorbed.clone(), elsewhere: after.elsewhere, ..before };
    for (number, cut) in (1..).zip(&cuts) {
        let allowed = if number == cuts.len() { vec![&after] } else { vec![&during, &after] };
        let mut images = cut.images(&Reduction::none());
        while let Some(image) = images.advance() {
            count += 1;
            let region = Arc::new(tidegate_sim::Region::from_image(image.clone()));
            if !allowed.iter().any(|model| found(&region, model) == model.contents()) {
                return Err(format!("{script:?}: {:?}", found(&region, &after)));
            }
        }
    }
    Ok(count)
}

#[test]
fn every_cut_of_every_short_script_leaves_whole_syncs_of_both_strips() {
    // The second script begins where records of two fillings count.
    use Step::{Commit, Stage, Turn};
    let mut images = 0;
    for before in [&[][..], &[Stage, Commit, Turn, Stage, Commit]] {
        for script in (1..=4).flat_map(|steps| scripts(&RIGHT, steps)) {
            images += judge(&[before, &script].concat()).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }
    println!("{images} images");
}

#[test]
fn mistakes_are_noticed() {
    use Step::{Commit, NewerFirst, Stage, TooSoon, Turn};
    let two = [Stage, Commit, Turn, Stage, Commit];
    let shown: [&[Step]; 2] = [&[TooSoon, Turn, Stage], &[NewerFirst]];
    for mistake in shown {
        println!("{}", judge(&[&two, mistake].concat()).expect_err("nobody noticed"));
    }
}

#[test]
fn records_of_the_older_filling_come_first_whichever_strip_has_it() {
    let region = Arc::new(tidegate_sim::Region::new(2 * BYTES));
    let mut player = Player::new(&region);
    for (round, step) in (0..3).flat_map(|round| [Step::Stage, Step::Commit, Step::Turn].map(|step| (round, step))) {
        player.step(&region, step);
        if round > 0 && step == Step::Turn {
            player.step(&region, Step::AbsorbOlder);
            player.step(&region, Step::Turn);
        }
    }
    player.step(&region, Step::Stage);
    player.step(&region, Step::Commit);
    let found = records(&halves(&region), SESSION, |_| true).expect("whole");
    let fillings: Vec<_> = found.iter().map(|(counting, _)| counting.filling).collect();
    assert!(fillings.is_sorted() && fillings.len() > 1, "{fillings:?}");
}

#[test]
fn nothing_is_handed_over_that_does_not_count_and_no_strip_twice() {
    let region = Arc::new(tidegate_sim::Region::new(2 * BYTES));
    let mut pair = Pair::open(halves(&region), SESSION, SLOT).expect("sound");
    let put = |pair: &mut Pair<Half>| pair.stage(0, &[1; 9]).and_then(|_| pair.commit()).expect("sound");
    assert!(!pair.turn(), "nothing is there");
    pair.stage(0, &[1; 9]).expect("sound");
    assert!(!pair.turn(), "it does not count");
    pair.commit().expect("sound");
    assert!(pair.turn());
    put(&mut pair);
    assert!(!pair.turn(), "the other one is not absorbed");
    assert!(pair.absorbed(1) && pair.filling() == 2 && pair.ranges() == [(0, 9)]);
    assert!(pair.turn() && pair.filling() == 3 && pair.ranges().is_empty());
    put(&mut pair);
    assert!(pair.absorbed(3) && pair.filling() == 4, "both at once");
    pair.forgotten(SLOT + 1);
    assert_eq!(pair.filling(), 1);
    for (filling, strip) in (STRIP_FILLING_MAX..).zip(&mut pair.strips) {
        strip.begin(SLOT, filling);
    }
    put(&mut pair);
    assert!(!pair.turn() && !pair.absorbed(STRIP_FILLING_MAX), "there is no further one");
}

#[test]
fn a_look_at_a_strip_tells_that_its_filling_was_absorbed() {
    let region = Arc::new(tidegate_sim::Region::new(2 * BYTES));
    let mut pair = Pair::open(halves(&region), SESSION, SLOT).expect("the memory is sound");
    let committed = |pair: &mut Pair<Half>| {
        assert_eq!(pair.stage(0, &[1; 8]), Ok(Staged::There));
        pair.commit().expect("the memory is sound");
    };
    assert!(pair.is_clear(1) && pair.is_clear(2));
    committed(&mut pair);
    assert!(pair.turn() && !pair.is_clear(1));
    committed(&mut pair);
    clear(&halves(&region)[0]).expect("the memory is sound");
    assert!(pair.is_clear(1) && !pair.is_clear(2), "one of the two was absorbed");
}
