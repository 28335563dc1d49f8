//! What one seed does, and what came of it.

use crate::marks::Marks;
use crate::mutant::Mutant;
use crate::stack_base::Base;
use crate::writes::any_mode;
use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tidegate_crashcheck::btt::SmallVolume;
use tidegate_disk_cache::{Conflicts, Mode, Reads};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::LineOrder;
use tidegate_sim::Rng;
use tidegate_virtual_cores::Trace;
use tidegate_write_cache::{Fill, Options};

/// How the account of a run begins that does not end.
pub(crate) const ENDLESS: &str = "it did not end";

/// A run in full: the same script does the same again, bit for bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Chooses the volume, the cache, what clients do, every fault, and every end.
    pub seed: u64,
    /// What the stack stands on.
    pub base: Base,
    /// Chooses the interleavings on top; 0 as a rule.
    pub schedule: u64,
    /// Clients at once.
    pub clients: u32,
    /// What each of them does in all lives together.
    pub acts: u32,
    /// Threads that drain, if there is a cache.
    pub drains: u32,
    /// What is broken.
    pub mutant: Mutant,
    /// The operations that are done, if not all are.
    pub only: Option<Only>,
}

/// What a script meets in every life, or at every recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bent {
    /// Nothing in particular.
    None,
    /// A flush of the disk fails, if there is one.
    FlushesFail,
    /// The memory loses stores, if there is one.
    StoresAreLost,
    /// The disk cache is laid out anew, if there is one, and that is ended early.
    LaidOutAnew,
    /// Clients of a disk cache do hardly anything but transactions that refuse conflicts.
    Transactions,
}

/// Single operations of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only(pub Arc<[Step]>);

/// One operation: whose, and which of theirs from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The client.
    pub client: u32,
    /// The number of the operation among the client's.
    pub number: u32,
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.0.iter().map(|step| format!("{}.{}", step.client, step.number)).collect();
        f.write_str(&steps.join(","))
    }
}

impl FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Only, String> {
        let step = |text: &str| {
            let (client, number) = text.split_once('.')?;
            Some(Step { client: client.parse().ok()?, number: number.parse().ok()? })
        };
        let of = |text| step(text).ok_or(format!("{text:?} is no CLIENT.OPERATION"));
        text.split(',').map(of).collect::<Result<_, _>>().map(Only)
    }
}

impl Script {
    /// The usual script of a seed: 4 clients, 1,000 operations each, on what the seed chooses.
    pub fn of(seed: u64) -> Script {
        let base = Base::of(seed);
        Script { seed, base, schedule: 0, clients: 4, acts: 1000, drains: 2, mutant: Mutant::None, only: None }
    }

    /// What comes more often than chance would have it: some seeds are about one thing that few
    /// others meet.
    pub(crate) fn bent(&self) -> Bent {
        match self.seed % 16 {
            6 | 11 => Bent::FlushesFail,
            9 => Bent::StoresAreLost,
            12 => Bent::LaidOutAnew,
            8 => Bent::Transactions,
            _ => Bent::None,
        }
    }

    /// How often the thread whose flush of the disk failed gives way before it is told.
    pub(crate) fn turns_to_fail(&self) -> u64 {
        if self.bent() == Bent::FlushesFail { 100 } else { 0 }
    }

    /// What becomes of the blocks that a disk cache takes in by reads: one seed in eight has a
    /// cache that forgets them.
    pub(crate) fn reads(&self) -> Reads {
        match self.seed % 32 {
            21 | 25 | 27 | 30 => Reads::Forgotten,
            _ => Reads::Kept,
        }
    }

    /// The operations that are done.
    pub fn steps(&self) -> Vec<Step> {
        let all = (0..self.clients).flat_map(|client| (0..self.acts).map(move |number| Step { client, number }));
        all.filter(|step| self.does(*step)).collect()
    }

    /// Whether `step` is done.
    pub(crate) fn does(&self, step: Step) -> bool {
        self.only.as_ref().is_none_or(|only| only.0.contains(&step))
    }

    /// The next step of `client`, which has seen to `done` of its steps.
    pub(crate) fn next_step(&self, client: u32, done: &mut u32) -> Option<Step> {
        let next = (*done..self.acts).map(|number| Step { client, number }).find(|step| self.does(*step));
        *done = next.map_or(self.acts, |step| step.number + 1);
        next
    }

    /// The command that runs it again.
    pub fn command(&self) -> String {
        let Script { seed, base, schedule, clients, acts, drains, mutant, only } = self;
        let broken = match mutant {
            Mutant::None => String::new(),
            broken => format!(" --mistake '{broken}'"),
        };
        let only = only.as_ref().map_or(String::new(), |only| format!(" --only {only}"));
        format!(
            "cargo run -p tidegate-storm --release -- --seed {seed} --base {} --schedule {schedule} \
             --clients {clients} --acts {acts} --drains {drains}{only}{broken}",
            base.name()
        )
    }
}

/// What a seed has chosen.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) base: Base,
    /// The table's volume, if there is one.
    pub(crate) shape: SmallVolume,
    /// The disk cache's memory, if there is one, and what it does with reads and writes.
    pub(crate) plan: CachePlan,
    pub(crate) mode: Mode,
    pub(crate) conflicts: Conflicts,
    /// What users see: blocks, and bytes of each.
    pub(crate) blocks: u64,
    pub(crate) block_bytes: usize,
    pub(crate) order: LineOrder,
    /// The cache before the volume, if there is one.
    pub(crate) cache: Option<Options>,
}

impl Setting {
    pub(crate) fn any(rng: &mut Rng, base: Base, bent: Bent, volume: [u8; 16]) -> Setting {
        let shape = match rng.below(8) {
            0..2 => SmallVolume::whole_pages(),
            2..5 => SmallVolume::two_free(),
            _ => SmallVolume::four_free(),
        };
        // Many slots make more than one set, of which few are then used.
        let many = rng.one_in(6);
        let slots = if many { 64 << rng.below(2) } else { 2 + u32::try_from(rng.below(6)).expect("small") };
        let cache = Options {
            fill: if rng.one_in(2) { Fill::Copy } else { Fill::Stream },
            eager: !rng.one_in(4),
            bypass: !rng.one_in(4),
            ..Options::new(volume, slots)
        };
        let blocks = match base {
            Base::Table => shape.sectors(),
            Base::Disk | Base::Files => 1 + rng.below(6),
            Base::DiskCache | Base::OrderedDisk => 1 + rng.below(24),
        };
        let mode = if base.has_disk_cache() { any_mode(rng) } else { Mode::default() };
        let block_bytes = if base.has_disk_cache() { 512 } else { shape.block_bytes };
        Setting {
            base,
            blocks,
            plan: Setting::any_plan(rng, blocks, base),
            mode,
            conflicts: if rng.one_in(2) || bent == Bent::Transactions {
                Conflicts::Refuse
            } else {
                Conflicts::LastWins
            },
            block_bytes,
            shape,
            order: if rng.one_in(2) { LineOrder::Prefix } else { LineOrder::Any },
            cache: match base {
                Base::Table => (!rng.one_in(4)).then_some(cache),
                Base::Disk => Some(cache),
                Base::DiskCache | Base::OrderedDisk | Base::Files => None,
            },
        }
    }
}

impl Setting {
    /// Where things lie in a disk cache's memory, before a disk of `blocks` blocks: few of them are
    /// cached, and the ring is small.
    pub(crate) fn any_plan(rng: &mut Rng, blocks: u64, base: Base) -> CachePlan {
        // Many make four stripes; a disk of more than 8 blocks then uses two of them.
        let many = if rng.one_in(4) { 256 } else { 4 };
        let cached = many + u32::try_from(rng.below(7)).expect("small");
        CachePlan::cut(cached, 512, blocks, 4 << rng.below(3)).ordered(if base == Base::OrderedDisk {
            cached
        } else {
            0
        })
    }

    /// Blocks of the disk, the journal of an ordered one with them.
    pub(crate) fn disk_blocks(&self) -> u64 {
        self.plan.journal().map_or(self.blocks, |journal| journal.end())
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
    /// Power cuts, those in recoveries with them.
    pub fn all_cuts(&self) -> u64 {
        self.cuts + self.cuts_in_recovery
    }

    /// Whether there were as many operations and power cuts as in `floor`, of the latter also in
    /// recoveries.
    pub fn reaches(&self, floor: &Tally) -> bool {
        self.acts >= floor.acts
            && self.all_cuts() >= floor.all_cuts()
            && self.cuts_in_recovery >= floor.cuts_in_recovery
    }

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
        let Tally { scripts, acts, cuts: _, kills, cuts_in_recovery, kills_in_recovery, points, switches } = self;
        write!(
            f,
            "{scripts} scripts, {acts} operations, {} power cuts ({cuts_in_recovery} in recoveries), {} kills \
             ({kills_in_recovery} in recoveries), {switches} changes of threads at {points} points",
            self.all_cuts(),
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

impl Failure {
    /// Whether the run had to be ended, for it would not have.
    pub fn is_endless(&self) -> bool {
        self.what.starts_with(ENDLESS)
    }
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
