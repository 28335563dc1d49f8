//! Synthetic traces of the papers' workloads, from seeds.

use tidegate_policy::placement::{IoKind, IoRequest, PAGE_BYTES};
use tidegate_sim::Rng;

/// What a context does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Walk {
    /// Over a file of so many bytes, again and again.
    Loop(u64),
    /// On and on, never twice.
    Once,
    /// At random within so many bytes.
    Random(u64),
    /// At random, no unit twice, within so many bytes.
    RandomOnce(u64),
    /// At random within so many bytes; nine of ten go to a tenth of them.
    Skewed(u64),
}

/// A context: what it does, and how often in proportion to others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) walk: Walk,
    pub(super) weight: u64,
    pub(super) kind: IoKind,
    /// Bytes of a request.
    pub(super) unit: u32,
}

impl Thread {
    /// A thread whose requests are pages.
    pub(super) fn of_pages(walk: Walk, weight: u64, kind: IoKind) -> Thread {
        Thread { walk, weight, kind, unit: u32::try_from(PAGE_BYTES).expect("small") }
    }
}

/// The requests of threads that run at once, each with a context and a file of its own.
pub(super) struct Workload {
    threads: Vec<(Thread, u64)>,
    weights: u64,
    random: Rng,
    /// The threads' files are numbered from here.
    files: u64,
}

impl Workload {
    pub(super) fn new(seed: u64, threads: &[Thread]) -> Workload {
        let weights = threads.iter().map(|thread| thread.weight).sum();
        Workload {
            threads: threads.iter().map(|thread| (*thread, 0)).collect(),
            weights,
            random: Rng::new(seed),
            files: 1,
        }
    }

    /// Has the threads work on the files of this number, which no other number shares.
    pub(super) fn on_files(self, set: u64) -> Workload {
        Workload { files: 1 + set * self.threads.len() as u64, ..self }
    }
}

impl Iterator for Workload {
    type Item = IoRequest;

    fn next(&mut self) -> Option<IoRequest> {
        let mut drawn = self.random.below(self.weights);
        let nth = self.threads.iter().position(|(thread, _)| match drawn.checked_sub(thread.weight) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        })?;
        let (thread, done) = &mut self.threads[nth];
        let unit = u64::from(thread.unit);
        let at = match thread.walk {
            Walk::Loop(bytes) => *done % (bytes / unit),
            Walk::Once => *done,
            Walk::Random(bytes) => self.random.below(bytes / unit),
            Walk::RandomOnce(bytes) => scattered(*done, bytes / unit),
            Walk::Skewed(bytes) => {
                let units = bytes / unit;
                if self.random.one_in(10) { self.random.below(units) } else { self.random.below(units.div_ceil(10)) }
            }
        };
        *done += 1;
        let context = nth as u64 + 1;
        let (file, bytes, kind) = (self.files + nth as u64, thread.unit, thread.kind);
        Some(IoRequest { file, offset: at * unit, bytes, kind, context, now_ms: 0 })
    }
}

/// The `nth` of `0..units` in an order without order: steps of about the golden section, which
/// meet each once.
fn scattered(nth: u64, units: u64) -> u64 {
    let near = units * 618 / 1000;
    let step = (near..).find(|step| divisor(*step, units) == 1).expect("there is a next prime");
    nth % units * step % units
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn threads_share_requests_by_their_weights() {
        let threads =
            [Thread::of_pages(Walk::Loop(40 << 10), 1, IoKind::Read), Thread::of_pages(Walk::Once, 10, IoKind::Write)];
        let requests: Vec<_> = Workload::new(1, &threads).take(11_000).collect();
        let loops: Vec<_> = requests.iter().filter(|request| request.file == 1).collect();
        assert!((900..1100).contains(&loops.len()), "{}", loops.len());
        assert!(loops.iter().zip(0_u64..).all(|(request, nth)| request.offset == nth % 10 * 4096));
        assert_eq!(requests, Workload::new(1, &threads).take(11_000).collect::<Vec<_>>(), "a seed names one workload");
    }

    #[test]
    fn scattered_units_are_met_once_and_without_order() {
        for units in [1, 2, 7, 1000, 4096] {
            let all: Vec<u64> = (0..units).map(|nth| scattered(nth, units)).collect();
            assert_eq!(all.iter().collect::<HashSet<_>>().len() as u64, units);
            assert!(units < 10 || all.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1));
        }
    }
}
