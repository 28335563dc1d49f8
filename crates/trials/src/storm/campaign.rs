//! Campaigns: many seeds on every processor there is, and what to do with one that fails.

use crate::storm::marks::Marks;
use crate::storm::script::{Failure, Script, Tally};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Schedules tried of each script that is smaller than a failing one.
const SCHEDULES_PER_SHRINK: u64 = 60;

/// Which seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The script of the first seed; the others differ from it in the seed only.
    pub first: Script,
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
                let verdict = Script { seed, ..self.first }.run();
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
    /// The smallest script found that fails too.
    pub fn shrunk(self) -> Failure {
        let mut least = self;
        while let Some(smaller) = smaller(&least.script).find_map(failing) {
            least = smaller;
        }
        least
    }
}

/// A failure of `script` under some schedule.
fn failing(script: Script) -> Option<Failure> {
    (0..SCHEDULES_PER_SHRINK).find_map(|schedule| Script { schedule, ..script }.run().failure)
}

fn smaller(script: &Script) -> impl Iterator<Item = Script> + use<> {
    let script = *script;
    let fewer = [script.acts / 4, script.acts / 2, script.acts * 3 / 4, script.acts.saturating_sub(1)];
    let acts = fewer.into_iter().filter(move |acts| *acts > 1 && *acts < script.acts);
    let clients = (1..script.clients).map(move |clients| Script { clients, ..script });
    let drains = (0..script.drains).map(move |drains| Script { drains, ..script });
    acts.map(move |acts| Script { acts, ..script }).chain(clients).chain(drains)
}
