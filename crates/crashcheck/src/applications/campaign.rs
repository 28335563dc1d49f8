//! The campaign over one protocol: lives that end by a cut or a kill, and what each leaves.

use crate::applications::files::{Files, found};
use crate::applications::found::Found;
use crate::applications::promise::{ProcessState, Protocol};
use crate::applications::step::{At, Step, Turn};
use crate::checker::Failure;
use crate::namespace::{DIRECTORY, JointCut, Machine, NamesBug, NamesPool, Tree, Watched, recover};
use std::fmt;
use std::sync::Arc;
use tidegate_file_cache::FilePool;
use tidegate_sim::{Region, Rng};

/// Lives of a machine. Each but the first begins with a recovery.
const LIVES: u64 = 3;
/// Acts of each process in one life.
const ACTS: u64 = 3;
/// Steps of a life that count as its first moments.
const FIRST_STEPS: usize = 4;

/// Where the protocol works, and where no protocol does.
const FOLDER: &str = "application";
const OUTSIDE: &str = "outside";

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProtocolTally {
    /// Steps done.
    pub steps: u64,
    /// Power cuts in steps: what each left was recovered and judged.
    pub cuts: u64,
    /// Those in the first steps after a recovery.
    pub early_cuts: u64,
    /// Power cuts in recoveries.
    pub recovery_cuts: u64,
    /// Kills of the service.
    pub kills: u64,
}

impl ProtocolTally {
    /// Adds what another campaign has done.
    pub fn add(&mut self, other: &ProtocolTally) {
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.early_cuts += other.early_cuts;
        self.recovery_cuts += other.recovery_cuts;
        self.kills += other.kills;
    }

    /// Cuts and kills of every kind.
    pub fn ends(&self) -> u64 {
        self.cuts + self.recovery_cuts + self.kills
    }
}

impl fmt::Display for ProtocolTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProtocolTally { steps, cuts, early_cuts, recovery_cuts, kills } = self;
        write!(
            f,
            "{steps} steps, {cuts} power cuts, {early_cuts} of them soon after a recovery, {recovery_cuts} in \
             recoveries, {kills} kills"
        )
    }
}

/// Judges a protocol, every choice from `seed`.
///
/// # Errors
/// The clause that is broken, or what kept the machine from being recovered, and where.
pub fn judge_protocol(protocol: &Protocol, seed: u64, bug: Option<NamesBug>) -> Result<ProtocolTally, Failure> {
    let judged = Campaign::begin(protocol, seed, bug).and_then(Campaign::run);
    judged.map_err(|failure| failure.within(format_args!("{}, seed {seed}", protocol.name)))
}

struct Campaign<'a> {
    protocol: &'a Protocol,
    pool: NamesPool,
    bug: Option<NamesBug>,
    rng: Rng,
    files: Files,
    /// What lies outside of the protocol's folder, from the beginning.
    outside: Found,
    /// How far each process came.
    done: Vec<ProcessState>,
    tally: ProtocolTally,
}

/// A machine that was recovered and judged.
type Recovered = (Arc<Machine>, FilePool<Watched>);

impl<'a> Campaign<'a> {
    fn begin(protocol: &'a Protocol, seed: u64, bug: Option<NamesBug>) -> Result<Campaign<'a>, Failure> {
        let pool = NamesPool::roomy();
        let machine = Machine::new(&pool, pool.memory(), Tree::new(), None, bug);
        machine.tree(lay_out);
        let opened = machine.open().map_err(Failure::new)?;
        let mut files = Files::start(&machine, opened, OUTSIDE)?;
        make_outside(&mut files)?;
        files = files.in_folder(FOLDER);
        let done: Vec<_> = (0..protocol.processes).map(|process| ProcessState { process, done: 0 }).collect();
        for state in &done {
            let turn = Turn { act: 0, process: state.process };
            protocol.steps(0).into_iter().try_for_each(|step| files.step(turn, step))?;
        }
        files.settle()?;
        // One file outside is in the pool alone.
        files = files.in_folder(OUTSIDE);
        let turn = Turn { act: 2, process: 0 };
        [Step::Create("pool"), Step::Write("pool", At::Byte(0), 320), Step::Sync("pool")]
            .into_iter()
            .try_for_each(|step| files.step(turn, step))?;
        files = files.in_folder(FOLDER);
        let outside = files.found()?.below(OUTSIDE);
        Ok(Campaign { protocol, pool, bug, rng: Rng::new(seed), files, outside, done, tally: ProtocolTally::default() })
    }

    fn run(mut self) -> Result<ProtocolTally, Failure> {
        for life in 0..LIVES {
            let (cut, done) = self.live(life)?;
            self.done = done;
            let (machine, pool) = self.end(&cut)?;
            self.files = Files::start(&machine, pool, FOLDER)?;
        }
        Ok(self.tally)
    }

    /// Steps of all processes, one at a time, and of the background between them; each is cut at an
    /// instant of the step. Returns the cut that ends this life.
    fn live(&mut self, life: u64) -> Result<(JointCut, Vec<ProcessState>), Failure> {
        let mut todo: Vec<(usize, Turn, Vec<Step>)> = Vec::new();
        for (place, state) in self.done.iter().enumerate() {
            for act in (state.done + 1..=state.done + ACTS).rev() {
                todo.push((place, Turn { act, process: state.process }, self.protocol.steps(act)));
            }
        }
        let count: usize = todo.iter().map(|(_, _, steps)| steps.len()).sum();
        let (last, mut number) = (self.rng.index(count.max(1)), 0);
        let mut done = self.done.clone();
        loop {
            let process = self.rng.index(done.len());
            let Some(at) = todo.iter().rposition(|(place, _, _)| *place == process) else { continue };
            let (turn, steps) = (todo[at].1, &mut todo[at].2);
            let step = steps.remove(0);
            let completes = steps.is_empty();
            if completes {
                todo.remove(at);
            }
            let cut = self.cut_in(turn, step).map_err(|failure| failure.within(format_args!("life {life}")))?;
            let is_early = life > 0 && number < FIRST_STEPS;
            if number == last || todo.is_empty() {
                self.tally.early_cuts += u64::from(is_early);
                return Ok((cut, done));
            }
            self.tally.cuts += 1;
            self.tally.early_cuts += u64::from(is_early);
            let judged = self.judge_power_cut(&cut, &done);
            judged.map_err(|failure| failure.within(format_args!("life {life}, act {}, {step:?}", turn.act)))?;
            done[process].done += u64::from(completes);
            number += 1;
        }
    }

    /// Does a step, and maybe something in the background; returns a cut at an instant of it.
    fn cut_in(&mut self, turn: Turn, step: Step) -> Result<JointCut, Failure> {
        self.tally.steps += 1;
        self.files.machine().record();
        if self.rng.one_in(2) {
            self.files.background(&mut self.rng)?;
        }
        let place = |failure: Failure| failure.within(format_args!("act {}, {step:?}", turn.act));
        self.files.step(turn, step).map_err(place)?;
        let mut cuts = self.files.machine().take();
        // The last one is of the end, before the next step begins.
        Ok(cuts.swap_remove(self.rng.index(cuts.len())))
    }

    /// The power fails in a copy of the machine.
    fn judge_power_cut(&mut self, cut: &JointCut, done: &[ProcessState]) -> Result<Recovered, Failure> {
        let (region, tree) = (cut.region.sample(&mut self.rng), cut.tree.sample(&mut self.rng));
        let machine = Machine::new(&self.pool, self.pool.memory_of(&region), tree, None, self.bug);
        self.judge(machine, done)
    }

    fn judge(&self, machine: Arc<Machine>, done: &[ProcessState]) -> Result<Recovered, Failure> {
        let pool = recover(&machine)?;
        let found = found(&machine, &pool)?;
        self.protocol.judge(&found.below(FOLDER), done).map_err(Failure::new)?;
        if found.below(OUTSIDE) != self.outside {
            return Err(Failure::new(format_args!("files outside of the protocol's folder are {:?}", found.0.keys())));
        }
        Ok((machine, pool))
    }

    /// A life ends by a power cut or a kill. Its recovery is cut too, and in half of the cases
    /// the next life begins from there.
    fn end(&mut self, cut: &JointCut) -> Result<Recovered, Failure> {
        let done = self.done.clone();
        let machine = if self.rng.one_in(4) {
            self.tally.kills += 1;
            let (region, dram) = (Region::after_kill(&cut.region), Some(cut.dram.clone()));
            Machine::new(&self.pool, region, cut.tree.clone(), dram, self.bug)
        } else {
            self.tally.cuts += 1;
            let (region, tree) = (cut.region.sample(&mut self.rng), cut.tree.sample(&mut self.rng));
            Machine::new(&self.pool, self.pool.memory_of(&region), tree, None, self.bug)
        };
        machine.record();
        let recovered = self.judge(machine, &done)?;
        let cuts = recovered.0.take();
        let mut recovered = recovered;
        for _ in 0..2 {
            self.tally.recovery_cuts += 1;
            let cut = self.rng.index(cuts.len());
            let second = self.judge_power_cut(&cuts[cut], &done);
            let second = second.map_err(|failure| failure.within("a second cut, in the recovery"))?;
            if self.rng.one_in(4) {
                recovered = second;
            }
        }
        Ok(recovered)
    }
}

/// Folders that are durable from the beginning.
fn lay_out(tree: &mut Tree) {
    for folder in [FOLDER, OUTSIDE] {
        tree.make(folder.as_bytes(), DIRECTORY | 0o755).expect("an empty directory");
    }
    tree.sync_all();
}

/// Files that no protocol touches: one that is below, with an attribute and two names.
fn make_outside(files: &mut Files) -> Result<(), Failure> {
    let turn = Turn { act: 1, process: 0 };
    let steps = [
        Step::Create("below"),
        Step::Write("below", At::Byte(0), 640),
        Step::SetXattr("below"),
        Step::MakeDirectory("d"),
        Step::Link("below", "d/link"),
    ];
    steps.into_iter().try_for_each(|step| files.step(turn, step))
}
