//! Every power cut of every short script on the strip of a name, beside a list of what was
//! committed.

use super::*;
use crate::strip::records;
use std::sync::Arc;
use tidegate_sim::Reduction;

const SESSION: u64 = 7;
const SLOT: u32 = 65;
/// Room for the first record, attributes and four short ones.
const BYTES: u64 = 512;

type Memory = Arc<tidegate_sim::Region>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Stage,
    Commit,
    /// A commit for a file whose owner has changed.
    CommitOwned,
    Gone,
    Disclaim,
    Reopen,
    /// A mistake: the next file is made while the strip still tells of the one before.
    Forgetful,
}

const RIGHT: [Step; 7] =
    [Step::Begin, Step::Stage, Step::Commit, Step::CommitOwned, Step::Gone, Step::Disclaim, Step::Reopen];

/// What the next reader may find.
#[derive(Clone, Debug)]
struct Model {
    staged: Vec<Record>,
    told: Told,
    byte: u8,
    born_ns: u64,
}

struct Player {
    name: Name<Memory>,
    model: Model,
    session: u64,
}

impl Player {
    fn new(memory: &Memory) -> Player {
        let name = Name::open(memory.clone(), SESSION, SLOT).expect("sound");
        Player { name, model: Model { staged: Vec::new(), told: Told::Unknown, byte: 0, born_ns: 0 }, session: SESSION }
    }

    fn commit(&mut self, user: u32) {
        if self.name.commit([0o100_600, user, 3]) == Ok(Staged::There) {
            let attributes = StripAttributes::new(0o100_600, user, 3);
            let (born_ns, records) = (self.model.born_ns, self.model.staged.clone());
            self.model.told = Told::File { born_ns, attributes, records };
        }
    }

    fn leave(&mut self, told: Told) {
        (self.model.staged, self.model.told) = (Vec::new(), told);
    }

    fn step(&mut self, memory: &Memory, step: Step) {
        match step {
            Step::Begin => {
                self.model.born_ns += 1;
                self.name.begin(self.model.born_ns).expect("sound");
                match &mut self.model.told {
                    Told::Unknown => {}
                    Told::Gone(born_ns) | Told::File { born_ns, .. } => *born_ns = self.model.born_ns,
                }
            }
            Step::Stage => {
                self.model.byte += 1;
                let record = Record { at: 1000 * u64::from(self.model.byte), bytes: vec![self.model.byte; 40] };
                if self.name.stage(record.at, &record.bytes) == Ok(Staged::There) {
                    assert_eq!(self.name.end(), record.at + 40);
                    self.model.staged.push(record);
                }
            }
            Step::Commit => self.commit(1),
            Step::CommitOwned => self.commit(2),
            Step::Gone => {
                self.name.gone().expect("sound");
                self.leave(Told::Gone(self.model.born_ns));
            }
            Step::Disclaim => {
                self.name.disclaim().expect("sound");
                self.leave(Told::Unknown);
            }
            Step::Reopen => {
                (self.session, self.model.born_ns) = (self.session + 1, 0);
                self.name = Name::open(memory.clone(), self.session, SLOT).expect("sound");
                self.leave(Told::Unknown);
            }
            Step::Forgetful => {
                self.name.begin_anew();
                self.model.staged = Vec::new();
            }
        }
    }
}

fn found(memory: &Memory, session: u64) -> Result<Told> {
    let records = records(memory, session, |counting| counting.slot == SLOT)?;
    told(records.map(|(_, records)| records).unwrap_or_default())
}

fn scripts(steps: u32) -> impl Iterator<Item = Vec<Step>> {
    let each = RIGHT.len();
    (0..each.pow(steps)).map(move |number| (0..steps).map(|place| RIGHT[number / each.pow(place) % each]).collect())
}

/// Judges every cut of the last step of `script`; the images.
fn judge(script: &[Step]) -> std::result::Result<u64, String> {
    let (last, earlier) = script.split_last().expect("it has steps");
    let memory = Arc::new(tidegate_sim::Region::new(BYTES));
    let mut player = Player::new(&memory);
    earlier.iter().for_each(|step| player.step(&memory, *step));
    let before = player.model.told.clone();
    memory.record_cuts();
    player.step(&memory, *last);
    let mut cuts = memory.take_cuts();
    cuts.push(memory.cut());
    let mut count = 0;
    for (number, cut) in (1..).zip(&cuts) {
        let mut images = cut.images(&Reduction::none());
        while let Some(image) = images.advance() {
            count += 1;
            let memory = Arc::new(tidegate_sim::Region::from_image(image.clone()));
            let found = found(&memory, player.session);
            let is_old = number < cuts.len() && found.as_ref() == Ok(&before);
            // A strip that another run has opened tells that run nothing, as soon as it is asked.
            let is_empty = *last == Step::Reopen && found == Ok(Told::Unknown);
            if !is_old && !is_empty && found.as_ref() != Ok(&player.model.told) {
                return Err(format!("{script:?}: {found:?}"));
            }
        }
    }
    Ok(count)
}

#[test]
fn every_cut_of_every_short_script_leaves_a_whole_file_or_none() {
    use Step::{Begin, Commit, Gone, Stage};
    let mut images = 0;
    for before in [&[][..], &[Begin, Stage, Commit, Gone, Stage, Commit]] {
        for script in (1..=4).flat_map(scripts) {
            images += judge(&[before, &script].concat()).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }
    println!("{images} images");
}

#[test]
fn a_file_that_is_written_over_one_that_counts_is_noticed() {
    use Step::{Commit, Forgetful, Stage};
    println!("{}", judge(&[Stage, Commit, Forgetful, Stage]).expect_err("nobody noticed"));
}

#[test]
fn a_clock_that_is_set_back_makes_no_older_file_younger() {
    let memory = Arc::new(tidegate_sim::Region::new(BYTES));
    let mut name = Name::open(memory.clone(), SESSION, SLOT).expect("sound");
    for born_ns in [9, 5] {
        name.begin(born_ns).and_then(|()| name.commit([0; 3])).and_then(|_| name.gone()).expect("sound");
    }
    assert_eq!(found(&memory, SESSION), Ok(Told::Gone(9)));
}

#[test]
fn what_does_not_fit_is_refused_and_what_was_committed_stays() {
    let memory = Arc::new(tidegate_sim::Region::new(BYTES));
    let mut player = Player::new(&memory);
    player.step(&memory, Step::Stage);
    player.step(&memory, Step::Commit);
    assert_eq!(player.name.stage(0, &[1; 1000]), Ok(Staged::NoRoom));
    assert_eq!(player.name.stage(u64::MAX - 3, &[1; 4]), Ok(Staged::NoRoom));
    assert_eq!(found(&memory, SESSION), Ok(player.model.told));
}

#[test]
fn records_of_a_file_without_a_name_are_refused() {
    let memory = Arc::new(tidegate_sim::Region::new(BYTES));
    let mut strip = Strip::open(memory.clone(), SESSION, SLOT, 1).expect("sound");
    strip.stage(5, &[1; 8]).and_then(|_| strip.commit()).expect("sound");
    assert!(found(&memory, SESSION).is_err());
}
