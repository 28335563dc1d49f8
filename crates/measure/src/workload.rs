//! Random walks over blocks, timed as a whole and on cores of their own.
//!
//! One call is too short to time; a sample times a walk of many. The addresses are drawn before the
//! clock starts, and the buffer stays hot, so that the sample shows the cost of the medium. On
//! several cores the walk is cut into short legs that the threads take as they come: all of them
//! end together, and a slow core slows the sample by its share.
//!
//! The time of a sample is the time its threads had their cores: what they waited for others to
//! give them back, as the kernel counts it, is taken off. Waiting for anything else counts. Where
//! the subject's own threads are among those others, all of it does ([`Walk::take_in_all`]).

use crate::pairs::{PAIRS_MAX, PAIRS_MIN};
use crate::subject::{Block, Subject};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tidegate_media::sync::{AtomicU64, Ordering};
use tidegate_sim::Rng;

/// Steps a worker takes before it looks for its next leg.
const LEG_STEPS: usize = 256;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Effort {
    /// Pairs of samples in a ratio
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(PAIRS_MIN..=PAIRS_MAX))]
    pub pairs: u16,
    /// Operations in a sample
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
}

impl Effort {
    /// Samples of this size, and so many times twice the pairs, as far as pairs go.
    pub fn with_pairs_doubled(self, times: u32) -> Effort {
        let most = u16::try_from(PAIRS_MAX).unwrap_or(u16::MAX);
        let pairs = self.pairs.saturating_mul(1_u16.checked_shl(times).unwrap_or(u16::MAX));
        Effort { pairs: pairs.min(most), ..self }
    }
}

/// A source of random walks; every draw is a new one.
#[derive(Clone, Debug)]
pub struct Walk {
    random: Rng,
    steps: Vec<u32>,
}

impl Walk {
    /// Walks of `steps` steps.
    pub fn new(steps: u32) -> Walk {
        Walk { random: Rng::new(0), steps: vec![0; steps as usize] }
    }

    /// A fresh walk over blocks `0..blocks`.
    fn draw(&mut self, blocks: u32) -> &[u32] {
        for step in &mut self.steps {
            *step = u32::try_from(self.random.below(blocks.into())).expect("below a 32-bit number");
        }
        &self.steps
    }

    /// Times a fresh walk over `subject`, shared by `workers` threads, each on its own core.
    pub fn take(&mut self, subject: &dyn Subject, workers: usize) -> Sample {
        self.timed(subject, workers, CoreClock::nanoseconds)
    }

    /// Times a fresh walk by `workers` threads, and adds the time that they waited for their cores:
    /// threads of the subject itself had them.
    pub fn take_in_all(&mut self, subject: &dyn Subject, workers: usize) -> Sample {
        self.timed(subject, workers, CoreClock::nanoseconds_in_all)
    }

    fn timed(&mut self, subject: &dyn Subject, workers: usize, nanoseconds: fn(&CoreClock) -> f64) -> Sample {
        let blocks = subject.blocks();
        let walk = self.draw(blocks);
        let (next, start) = (AtomicU64::new(0), Barrier::new(workers));
        let work = |worker: usize| {
            stay_on(worker);
            let mut block = Block::filled(worker);
            walk.iter().take(LEG_STEPS).for_each(|step| subject.step(*step, &mut block));
            start.wait();
            let clock = CoreClock::start();
            let steps = take_legs(subject, walk, &next, &mut block);
            steps as f64 / nanoseconds(&clock)
        };
        let rates: Vec<f64> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a worker's panic ends the benchmark")).collect()
        });
        Sample {
            nanoseconds_per_step: 1.0 / rates.iter().sum::<f64>(),
            steps: (walk.len() + workers * walk.len().min(LEG_STEPS)) as u64,
        }
    }
}

/// A walk that was walked.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// By all workers together: the inverse of the sum of their rates.
    pub nanoseconds_per_step: f64,
    /// Operations done, with those that warmed the workers up before the clock started.
    pub steps: u64,
}

/// Walks leg after leg until none is left, and says how many steps that were.
fn take_legs(subject: &dyn Subject, walk: &[u32], next: &AtomicU64, block: &mut Block) -> usize {
    let mut steps = 0;
    while let Some(leg) = Leg::take(next, walk.len()) {
        steps += leg.len();
        walk[leg].iter().for_each(|step| subject.step(*step, block));
    }
    steps
}

/// A part of a walk that one worker takes.
pub struct Leg;

impl Leg {
    /// The next part of a walk of `len` steps, if one is left.
    pub fn take(next: &AtomicU64, len: usize) -> Option<Range<usize>> {
        // Relaxed: a leg is handed out once, and orders nothing else.
        let first = usize::try_from(next.fetch_add(LEG_STEPS as u64, Ordering::Relaxed)).ok()?;
        let end = (first + LEG_STEPS).min(len);
        (first < end).then_some(first..end)
    }
}

/// The time for which the calling thread could have run and was not kept from it by others.
struct CoreClock {
    began: Instant,
    delayed: u64,
}

impl CoreClock {
    fn start() -> CoreClock {
        let began = Instant::now();
        CoreClock { began, delayed: nanoseconds_delayed() }
    }

    /// Since the start, whoever had the core.
    fn nanoseconds_in_all(&self) -> f64 {
        self.began.elapsed().as_nanos() as f64
    }

    /// Since the start.
    fn nanoseconds(&self) -> f64 {
        // Both delays are read within the time that is measured, so they never exceed it.
        let delayed = Duration::from_nanos(nanoseconds_delayed() - self.delayed);
        (self.began.elapsed() - delayed).as_nanos() as f64
    }
}

/// How long the calling thread was ready to run and another had its core. 0 where the kernel does
/// not count it.
fn nanoseconds_delayed() -> u64 {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    counted.split_ascii_whitespace().nth(1).and_then(|delay| delay.parse().ok()).unwrap_or(0)
}

/// The cores this process was allowed when it started.
pub fn cores() -> Vec<usize> {
    static ALLOWED: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let probe = || {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
    };
    ALLOWED.get_or_init(probe).clone()
}

/// Pins the calling thread to the n-th allowed core. A system that refuses leaves it where the
/// scheduler puts it.
pub fn stay_on(nth: usize) {
    let Some(core) = cores().get(nth).copied() else { return };
    let mut only = CpuSet::new();
    only.set(core);
    if let Err(refused) = sched_setaffinity(None, &only) {
        eprintln!("bench: not pinned to core {core}: {refused}");
    }
}

/// Acts on the n-th allowed core. Threads and processes stay where the thread that starts them is.
pub fn on_core<T: Send>(nth: usize, act: impl FnOnce() -> T + Send) -> T {
    let act = move || {
        stay_on(nth);
        act()
    };
    std::thread::scope(|scope| scope.spawn(act).join().expect("a panic here ends the benchmark"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tally {
        visits: Vec<AtomicU64>,
    }

    impl Subject for Tally {
        fn blocks(&self) -> u32 {
            u32::try_from(self.visits.len()).unwrap()
        }
        fn step(&self, at: u32, _: &mut Block) {
            self.visits[at as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn legs_cover_a_walk_once() {
        let next = AtomicU64::new(0);
        let legs: Vec<_> = std::iter::from_fn(|| Leg::take(&next, 600)).collect();
        assert_eq!(legs, [0..256, 256..512, 512..600]);
        assert_eq!(Leg::take(&next, 600), None);
    }

    #[test]
    fn a_walk_is_walked_once_whoever_shares_it() {
        for workers in [1, 2] {
            let tally = Tally { visits: (0..100).map(|_| AtomicU64::new(0)).collect() };
            let steps = 10 * LEG_STEPS + 7;
            let sample = Walk::new(u32::try_from(steps).unwrap()).take(&tally, workers);
            let visits: Vec<u64> = tally.visits.iter().map(|visits| visits.load(Ordering::Relaxed)).collect();
            assert_eq!(visits.iter().sum::<u64>(), sample.steps);
            assert_eq!(sample.steps, (steps + workers * LEG_STEPS) as u64);
            assert!(visits.iter().all(|visits| (5..80).contains(visits)), "far from even: {visits:?}");
        }
    }
}
