//! What one seed does, and what came of it.

use crate::power_cuts::SmallVolume;
use crate::storm::life::Scene;
use crate::storm::marks::Marks;
use crate::storm::sabotage::Sabotage;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidegate_media::LineOrder;
use tidegate_sim::Rng;
use tidegate_virtual_cores::Trace;
use tidegate_write_cache::{Fill, Options};

/// A run in full: the same script does the same again, bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Chooses the volume, the cache, what clients do, and every end.
    pub seed: u64,
    /// Chooses the interleavings on top; 0 as a rule.
    pub schedule: u64,
    /// Clients at once.
    pub clients: u32,
    /// What each of them does in all lives together.
    pub acts: u32,
    /// Threads that drain, if there is a cache.
    pub drains: u32,
    /// What is broken.
    pub sabotage: Sabotage,
}

impl Script {
    /// The usual script of a seed: 4 clients, 1,000 operations each.
    pub fn of(seed: u64) -> Script {
        Script { seed, schedule: 0, clients: 4, acts: 1000, drains: 2, sabotage: Sabotage::None }
    }

    /// Runs it.
    pub fn run(&self) -> Verdict {
        if !cfg!(virtual_cores) {
            panic!("storms need `--cfg virtual_cores`; the program `storm` sees to it");
        }
        let mut scene = Scene::new(*self);
        // What is broken may break an assertion of an engine in a recovery's verdict too.
        let played = catch_unwind(AssertUnwindSafe(|| scene.play()));
        let failure = played.unwrap_or_else(|panic| Err(text_of(&*panic))).err();
        let failure = failure.map(|what| Failure { what, script: *self });
        scene.verdict(failure)
    }

    /// The command that runs it again.
    pub fn command(&self) -> String {
        let Script { seed, schedule, clients, acts, drains, sabotage } = self;
        let broken = match sabotage {
            Sabotage::None => String::new(),
            broken => format!(" --mistake '{broken}'"),
        };
        format!(
            "cargo run -p tidegate-trials --release --bin storm -- --seed {seed} --schedule {schedule} --clients {clients} \
             --acts {acts} --drains {drains}{broken}"
        )
    }
}

/// What a seed has chosen.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) shape: SmallVolume,
    pub(crate) order: LineOrder,
    /// The cache before the volume, if there is one.
    pub(crate) cache: Option<Options>,
    pub(crate) readers: u32,
}

impl Setting {
    pub(crate) fn any(rng: &mut Rng, volume: [u8; 16]) -> Setting {
        let shape = match rng.below(8) {
            0..2 => SmallVolume::whole_pages(),
            2..5 => SmallVolume::two_free(),
            _ => SmallVolume::four_free(),
        };
        let slots = 2 + u32::try_from(rng.below(6)).expect("small");
        let cache = Options {
            fill: if rng.one_in(2) { Fill::Copy } else { Fill::Stream },
            eager: !rng.one_in(4),
            bypass: !rng.one_in(4),
            ..Options::new(volume, slots)
        };
        Setting {
            shape,
            order: if rng.one_in(2) { LineOrder::Prefix } else { LineOrder::Any },
            cache: (!rng.one_in(4)).then_some(cache),
            readers: 1 + u32::try_from(rng.below(4)).expect("small"),
        }
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Scripts run.
    pub scripts: u64,
    /// Operations of clients that ended and were judged.
    pub acts: u64,
    /// Lives ended by a power cut.
    pub cuts: u64,
    /// Lives ended by a kill.
    pub kills: u64,
    /// Recoveries ended by a power cut.
    pub cuts_in_recovery: u64,
    /// Recoveries ended by a kill.
    pub kills_in_recovery: u64,
    /// Points passed, at each of which another thread might have gone on.
    pub points: u64,
    /// Times that another one did.
    pub switches: u64,
}

impl Tally {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Tally) {
        self.scripts += other.scripts;
        self.acts += other.acts;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.cuts_in_recovery += other.cuts_in_recovery;
        self.kills_in_recovery += other.kills_in_recovery;
        self.points += other.points;
        self.switches += other.switches;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { scripts, acts, cuts, kills, cuts_in_recovery, kills_in_recovery, points, switches } = self;
        write!(
            f,
            "{scripts} scripts, {acts} operations, {} power cuts ({cuts_in_recovery} in recoveries), {} kills \
             ({kills_in_recovery} in recoveries), {switches} changes of threads at {points} points",
            cuts + cuts_in_recovery,
            kills + kills_in_recovery
        )
    }
}

/// Why a run is not right.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// The run.
    pub script: Script,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  again: {}", self.what, self.script.command())
    }
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// A digest of all it did.
    pub hash: u64,
    /// What it did.
    pub tally: Tally,
    /// Rare paths it took.
    pub marks: Marks,
    /// What is wrong, if anything is.
    pub failure: Option<Failure>,
}

/// A digest that grows with each part of a run.
pub(crate) fn digest(trace: &mut Trace, words: impl IntoIterator<Item = u64>) {
    words.into_iter().for_each(|word| trace.add(word));
}

/// What a panic said.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
