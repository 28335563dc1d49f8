//! Acts on a region in `/dev/shm`, near and far from the core's caches.
//!
//! Far places are drawn at random from far more memory than any cache holds, so what a load waits
//! for includes the processor's search for the page, as it does in an engine.

use super::{each, figure};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Instant;
use tidegate_measure::Estimate;
use tidegate_measure::medium;
use tidegate_measure::workload::{cores, stay_on};
use tidegate_media::{MappedRegion, Region};
use tidegate_sim::cost::Act;

const PAGE_BYTES: u64 = 4096;
const PAGE_LINES: f64 = 64.0;
const BYTES: u64 = medium::WALK_BYTES;
/// Turns of what takes tens of nanoseconds, and of what takes hundreds.
const SHORT: u32 = 20_000;
const LONG: u32 = 2000;

/// Memory to measure on, all of its pages there.
pub(super) struct Bench {
    region: MappedRegion,
}

/// Random pages.
struct Pages(u64);

impl Pages {
    /// The offset of the next one; `after` is something that has to be known before.
    fn next(&mut self, after: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16).wrapping_add(after) % (BYTES / PAGE_BYTES) * PAGE_BYTES
    }
}

impl Bench {
    pub(super) fn new() -> anyhow::Result<Bench> {
        let region = medium::region(BYTES)?;
        // No byte is set: what a load brings can be added to the next place without changing it.
        (0..BYTES / PAGE_BYTES).for_each(|page| region.store_u64(page * PAGE_BYTES, 0));
        Ok(Bench { region })
    }

    fn load(&self, at: u64) -> u64 {
        self.region.load_u64(at).expect("memory is readable")
    }

    fn fence(&self) {
        self.region.fence().expect("memory takes every store");
    }

    /// The acts of a core that need a region.
    pub(super) fn core(&self) -> Vec<(Act, Estimate)> {
        let mut page = vec![0; 4096];
        let word = || each(SHORT, |turn| self.load(u64::from(turn % 8) * 8));
        let copy = || each(LONG, |_| self.region.read(0, &mut page).expect("memory is readable")) / PAGE_LINES;
        let zeroes = vec![0; 4096];
        let store = || each(LONG, |_| self.region.write(0, &zeroes)) / PAGE_LINES;
        vec![
            (Act::Word, figure(word)),
            (Act::CopyLine, figure(copy)),
            (Act::StoreLine, figure(store)),
            (Act::StreamLine, self.slope(|at, bytes| self.region.stream(at, bytes))),
            (Act::FlushLine, self.flush_line()),
            (Act::Fence, figure(|| each(SHORT, |_| self.fence()))),
        ]
    }

    /// What each further line of `put`, fenced at the end, takes: a page less half a page.
    fn slope(&self, put: impl Fn(u64, &[u8])) -> Estimate {
        let zeroes = [0; 4096];
        let mut pages = Pages(7);
        let mut fenced = |bytes: &[u8]| {
            each(LONG, |_| {
                put(pages.next(0), bytes);
                self.fence();
            })
        };
        figure(|| ((fenced(&zeroes) - fenced(&zeroes[..2048])) / (PAGE_LINES / 2.0)).max(0.0))
    }

    /// The time that each further line takes which is near the core, stored to and flushed, less
    /// the store.
    fn flush_line(&self) -> Estimate {
        let zeroes = [0; 4096];
        let flushed = |bytes: &[u8]| {
            each(LONG, |_| {
                self.region.write(0, bytes);
                self.region.flush(0, bytes.len() as u64);
                self.fence();
            })
        };
        let stored = |bytes: &[u8]| each(LONG, |_| self.region.write(0, bytes));
        let line = || {
            let more = flushed(&zeroes) - flushed(&zeroes[..2048]);
            ((more - (stored(&zeroes) - stored(&zeroes[..2048]))) / (PAGE_LINES / 2.0)).max(0.0)
        };
        figure(line)
    }

    /// What memory costs beside the `core`.
    pub(super) fn memory(&self, core: &[(Act, Estimate)]) -> BTreeMap<String, Estimate> {
        let core = |act: Act| core.iter().find(|(known, _)| *known == act).expect("every act was measured").1.median;
        let fetch = self.fetch(core(Act::Word));
        let fenced_ns = core(Act::Fence);
        let figures = [
            ("fetch", fetch),
            ("fetch-next", self.fetch_next(fetch.median, core(Act::CopyLine))),
            ("arrival", self.arrival(core(Act::StreamLine) + fenced_ns)),
            ("write-back", self.write_back(core(Act::Word) + core(Act::FlushLine) + fenced_ns)),
            ("write-line", self.shared(|at| self.region.stream(at, &[0; 4096]))),
            ("read-line", self.shared(|at| self.region.read(at, &mut [0; 4096]).expect("memory is readable"))),
        ];
        figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect()
    }

    /// A load of a far word, each place known only by the last one's content.
    fn fetch(&self, word_ns: f64) -> Estimate {
        let mut pages = Pages(11);
        let mut after = 0;
        figure(|| (each(LONG, |_| after = self.load(pages.next(after))) - word_ns).max(0.0))
    }

    fn fetch_next(&self, fetch_ns: f64, copy_ns: f64) -> Estimate {
        let (mut page, mut pages) = (vec![0; 4096], Pages(13));
        let mut after = 0;
        let mut read = || {
            each(LONG, |_| {
                self.region.read(pages.next(after), &mut page).expect("memory is readable");
                after = u64::from(page[0]);
            })
        };
        figure(|| ((read() - fetch_ns - copy_ns * PAGE_LINES) / (PAGE_LINES - 1.0)).max(0.0))
    }

    fn arrival(&self, rest_ns: f64) -> Estimate {
        let mut pages = Pages(17);
        let mut one = || {
            each(LONG, |_| {
                self.region.stream(pages.next(0), &[0; 64]);
                self.fence();
            })
        };
        figure(|| (one() - rest_ns).max(0.0))
    }

    fn write_back(&self, rest_ns: f64) -> Estimate {
        let one = |turn: u32| {
            let at = u64::from(turn % 8) * 64;
            self.region.store_u64(at, 0);
            self.region.flush(at, 8);
            self.fence();
        };
        figure(|| (each(LONG, one) - rest_ns).max(0.0))
    }

    /// How long the memory is busy with one line when all cores keep it busy with whole pages.
    fn shared(&self, act: impl Fn(u64) + Sync) -> Estimate {
        figure(|| {
            let start = Barrier::new(cores().len());
            let work = |worker: usize| {
                stay_on(worker);
                let mut pages = Pages(19 + worker as u64);
                start.wait();
                let begin = Instant::now();
                each(LONG, |_| act(pages.next(0)));
                PAGE_LINES * f64::from(LONG) / begin.elapsed().as_nanos() as f64
            };
            let rates: Vec<f64> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..cores().len()).map(|worker| scope.spawn(move || work(worker))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect()
            });
            1.0 / rates.iter().sum::<f64>()
        })
    }

    /// Whether a line that was flushed is nearer than one that comes from afar.
    pub(super) fn flush_keeps(&self) -> bool {
        let far = self.fetch(0.0).median;
        let flushed = figure(|| {
            each(LONG, |_| {
                self.region.store_u64(0, 0);
                self.region.flush(0, 8);
                self.fence();
                self.load(0)
            })
        });
        let unread = figure(|| {
            each(LONG, |_| {
                self.region.store_u64(0, 0);
                self.region.flush(0, 8);
                self.fence();
            })
        });
        flushed.median - unread.median < far / 2.0
    }
}
