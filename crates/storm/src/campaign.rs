//! Campaigns: many seeds on every processor there is, and what to do with one that fails.

use crate::marks::Marks;
use crate::script::{Failure, Only, Script, Step, Tally};
use crate::stack_base::Base;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Schedules tried of each script that is smaller than a failing one.
const SCHEDULES_PER_SHRINK: u64 = 60;
/// Schedules tried of each script that leaves out single operations, of which there are many.
const SCHEDULES_PER_STEP: u64 = 20;
/// How many of those are tried.
const RUNS_PER_SHRINK: u32 = 2000;

/// Which seeds to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The script of the first seed; the others differ from it in the seed only, and in what that
    /// chooses.
    pub first: Script,
    /// What all of them stand on, if the seeds do not choose that.
    pub base: Option<Base>,
    /// How many seeds at most.
    pub seeds: u64,
    /// For how long at most.
    pub time: Duration,
    /// Time between two lines about the progress; none are printed without.
    pub progress: Option<Duration>,
}

/// What a campaign did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What all its scripts did.
    pub tally: Tally,
    /// The rare paths they took.
    pub marks: Marks,
    /// Of the failures, the one with the lowest seed.
    pub failure: Option<Failure>,
    /// How long it took.
    pub took: Duration,
}

impl Campaign {
    /// Runs seeds until there are no more, the time is over, or one has failed.
    pub fn run(&self) -> Outcome {
        let began = Instant::now();
        let (next, ended) = (AtomicU64::new(self.first.seed), AtomicBool::new(false));
        let sum = Mutex::new(Outcome::default());
        let printed = Mutex::new(began);
        let work = || {
            while !ended.load(Ordering::Relaxed) && began.elapsed() < self.time {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed - self.first.seed >= self.seeds {
                    break;
                }
                let base = self.base.unwrap_or(Base::of(seed));
                let verdict = Script { seed, base, ..self.first.clone() }.run();
                let mut sum = locked(&sum);
                sum.tally.add(&verdict.tally);
                sum.marks.add(&verdict.marks);
                if let Some(failure) = verdict.failure {
                    ended.store(true, Ordering::Relaxed);
                    let lower = sum.failure.as_ref().is_none_or(|other| failure.script.seed < other.script.seed);
                    sum.failure = if lower { Some(failure) } else { sum.failure.take() };
                }
                self.print(&printed, began, &sum.tally);
            }
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
        let outcome = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
        Outcome { took: began.elapsed(), ..outcome }
    }

    fn print(&self, printed: &Mutex<Instant>, began: Instant, tally: &Tally) {
        let Some(every) = self.progress else { return };
        let mut printed = locked(printed);
        if printed.elapsed() >= every {
            *printed = Instant::now();
            let seconds = began.elapsed().as_secs_f64();
            eprintln!("storm: {seconds:.0} s, {:.1} seeds/s: {tally}", tally.scripts as f64 / seconds);
        }
    }
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Failure {
    /// The smallest script found that fails too: first fewer clients, drains and operations of
    /// each, then only single operations.
    pub fn shrunk(self) -> Failure {
        let mut least = self;
        while let Some(smaller) = smaller(&least.script).find_map(|script| failing(script, SCHEDULES_PER_SHRINK)) {
            least = smaller;
        }
        let mut parts = 2;
        let mut runs = RUNS_PER_SHRINK;
        loop {
            let steps = least.script.steps();
            parts = parts.min(steps.len());
            let fewer = (0..parts).map(|part| without(&steps, part, parts)).filter(|steps| !steps.is_empty());
            let script = |steps: Vec<Step>| Script { only: Some(Only(steps.into())), ..least.script.clone() };
            let mut tried = fewer.map(script).take_while(|_| runs.checked_sub(1).map(|left| runs = left).is_some());
            match tried.find_map(|script| failing(script, SCHEDULES_PER_STEP)) {
                Some(smaller) => {
                    least = smaller;
                    parts = parts.saturating_sub(1).max(2);
                }
                None if parts < steps.len() && runs > 0 => parts *= 2,
                None => return least,
            }
        }
    }
}

/// `steps` without the `part`-th of `parts` parts.
fn without(steps: &[Step], part: usize, parts: usize) -> Vec<Step> {
    let (from, until) = (steps.len() * part / parts, steps.len() * (part + 1) / parts);
    [&steps[..from], &steps[until..]].concat()
}

/// A failure of `script` under its own schedule or one of some others.
fn failing(script: Script, schedules: u64) -> Option<Failure> {
    let own = script.schedule;
    let others = (0..schedules).filter(|schedule| *schedule != own);
    std::iter::once(own).chain(others).find_map(|schedule| Script { schedule, ..script.clone() }.run().failure)
}

fn smaller(script: &Script) -> impl Iterator<Item = Script> + use<> {
    let script = script.clone();
    let fewer = [script.acts / 4, script.acts / 2, script.acts * 3 / 4, script.acts.saturating_sub(1)];
    let acts = fewer
        .into_iter()
        .filter(|acts| *acts > 1 && *acts < script.acts)
        .map(|acts| (acts, script.clients, script.drains));
    let clients = (1..script.clients).map(|clients| (script.acts, clients, script.drains));
    let drains = (0..script.drains).map(|drains| (script.acts, script.clients, drains));
    let all: Vec<_> = acts.chain(clients).chain(drains).collect();
    all.into_iter().map(move |(acts, clients, drains)| Script { acts, clients, drains, ..script.clone() })
}
