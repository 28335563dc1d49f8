//! The experiments about placement of blocks in DRAM and NVM: UHNVM's and Cheetah's, as replays of
//! synthetic traces.
//!
//! Counts are exact and come from seeds. Times are virtual and follow from them
//! ([`MemoryCosts::OPTANE`]). Tiers, files and requests are as many times smaller than the papers'
//! as [`Scale`] says; where a paper does not tell a size, the note of its figure says which one was
//! chosen.

pub mod cheetah;
pub mod programs;
pub mod redis;
pub mod uhnvm;
mod workloads;

use super::Scale;
use super::figure::{Chart, Figure, Point, Series};
use tidegate_baselines::placement::Rival;
use tidegate_measure::replay::costs::MemoryCosts;
use tidegate_measure::replay::tiers::{Counts, Replay};
use tidegate_policy::placement::{IoRequest, NamedPlacement, TierSlots};

/// A placement or a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A placement of the product.
    Named(NamedPlacement),
    /// A rival.
    Rival(Rival),
}

impl Subject {
    /// Tidegate's own.
    pub const TIDEGATE: Subject = Subject::Named(NamedPlacement::Tidegate);
    /// UHNVM.
    pub const UHNVM: Subject = Subject::Named(NamedPlacement::Uhnvm);
    /// Least recently used.
    pub const LRU: Subject = Subject::Named(NamedPlacement::Lru);

    /// Everything that is compared. UHNVM as published differs by synchronous writes alone.
    pub const ALL: [Subject; 10] = [
        Subject::TIDEGATE,
        Subject::UHNVM,
        Subject::Named(NamedPlacement::Cheetah),
        Subject::Named(NamedPlacement::CheetahNormalised),
        Subject::LRU,
        Subject::Rival(Rival::NoNvm),
        Subject::Rival(Rival::AllNvm),
        Subject::Rival(Rival::Random),
        Subject::Rival(Rival::Cflru),
        Subject::Rival(Rival::IoCache),
    ];

    /// Returns its name in a figure.
    pub fn label(self) -> &'static str {
        match self {
            Subject::Named(NamedPlacement::Tidegate) => "Tidegate",
            Subject::Named(NamedPlacement::Cheetah) => "Cheetah",
            Subject::Named(NamedPlacement::CheetahNormalised) => "Cheetah, normalised",
            Subject::Named(NamedPlacement::Uhnvm) => "UHNVM",
            Subject::Named(NamedPlacement::UhnvmPublished) => "UHNVM, syncs as published",
            Subject::Named(NamedPlacement::Lru) => "LRU",
            Subject::Rival(rival) => rival.name(),
        }
    }

    /// Replays `requests` over tiers of these sizes; counts all but the first `warm` of them.
    pub fn replayed(self, slots: TierSlots, warm: usize, requests: impl IntoIterator<Item = IoRequest>) -> Counts {
        self.replayed_at(MemoryCosts::OPTANE, slots, warm, requests)
    }

    /// Replays as [`Subject::replayed`] does, at other costs.
    fn replayed_at(
        self,
        costs: MemoryCosts,
        slots: TierSlots,
        warm: usize,
        requests: impl IntoIterator<Item = IoRequest>,
    ) -> Counts {
        let (placement, tiers) = match self {
            Subject::Named(named) => (named.over(slots), slots),
            Subject::Rival(rival) => (rival.over(slots), rival.tiers(slots)),
        };
        let mut replay = Replay::new(placement, tiers, costs);
        let mut before = Counts::default();
        for (nth, request) in requests.into_iter().enumerate() {
            if nth == warm {
                before = replay.counts();
            }
            replay.request(&request);
        }
        replay.counts().since(&before)
    }
}

/// Pages that stand for a GiB of the paper.
fn gib(scale: Scale) -> u64 {
    match scale {
        Scale::FULL => 2048,
        Scale::SMOKE => 64,
        _ => 512,
    }
}

fn slots(dram_pages: u64, nvm_pages: u64) -> TierSlots {
    let slots = |pages| u32::try_from(pages).expect("some thousands");
    TierSlots { dram: slots(dram_pages), nvm: slots(nvm_pages) }
}

/// Counts have no noise, nor has virtual time.
fn point(place: impl Into<String>, value: f64, published: Option<f64>) -> Point {
    Point::exact(place, value, published)
}

fn series(label: &str, points: Vec<Point>) -> Series {
    Series { label: label.to_owned(), points }
}

/// A figure without series; `baseline` is what the paper's ratios are over.
fn frame(id: &str, paper: &str, title: &str, unit: &str, baseline: Option<Subject>) -> Figure {
    Figure {
        id: id.to_owned(),
        paper: paper.to_owned(),
        title: title.to_owned(),
        chart: Chart::Bars,
        unit: unit.to_owned(),
        baseline: baseline.map(|subject| subject.label().to_owned()),
        notes: vec![
            "A replay in virtual time: one Optane DIMM, out of order twice as slow to read and four times to write, and a solid-state disk on which each \
             block is a request. Every design has as many slots in all; one without NVM has them in DRAM. Work in the background takes time as \
             any other."
                .to_owned(),
        ],
        series: Vec::new(),
        run: None,
    }
}

fn milliseconds(counts: &Counts) -> f64 {
    counts.ps as f64 / 1e9
}

fn percent(counts: &Counts) -> f64 {
    100.0 * counts.hit_ratio()
}
