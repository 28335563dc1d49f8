//! The topic `placement`: which tier blocks lie in, replayed from synthetic traces.
//!
//! Rows read the figures of the experiments in their quick form. Counts and virtual times are exact
//! and come from seeds, so that a cell is lost by any difference that is no tie.

use crate::reproduction::{figure, value};
use crate::target::{Outcome, Row, Target, Topic};
use anyhow::Context;
use tidegate_measure::workload::Effort;
use tidegate_reproduction::figure::Figure;
use tidegate_reproduction::placement::uhnvm::UHNVM_ANEW;

const OURS: &str = "Tidegate";
const UHNVM: &str = "UHNVM";
const NO_NVM: &str = "no NVM";
const RANDOM: &str = "random placement";

/// How far a ratio may be from the paper's.
const OFF_MAX: f64 = 0.3;

/// Values that differ by less are a tie: chance decides which of equally likely blocks are met.
const TIE: f64 = 0.002;

const DD: Place = ["placement-dd", "uhnvm-fig-8"];
const DD_HITS: Place = ["placement-dd", "uhnvm-fig-9"];
const SHARES: [Place; 2] = [["placement-proportions", "uhnvm-fig-11a"], ["placement-proportions", "uhnvm-fig-11b"]];
const SHARES_HITS: [Place; 2] =
    [["placement-proportions", "uhnvm-fig-12a"], ["placement-proportions", "uhnvm-fig-12b"]];
const SIZES: Place = ["placement-sizes", "uhnvm-fig-13-time"];
const SIZES_HITS: Place = ["placement-sizes", "uhnvm-fig-13"];
const SYNCS: Place = ["placement-syncs", "uhnvm-syncs"];

const THRESHOLD: Place = ["placement-threshold", "cheetah-threshold-time"];
const AMPLIFICATION: Place = ["placement-blocks", "cheetah-amplification"];
const SHIFTS: Place = ["placement-shifts", "placement-shifts"];

/// The topic's table.
pub const TOPIC: Topic = Topic {
    name: "placement",
    about: "blocks of files in DRAM and NVM: UHNVM's experiments and its order, and Tidegate's placement beside all others",
    rows: &[
        Row::here("order-dd", "pairs in another order than UHNVM's", "Fig. 8 and 9", Target::AtMost(0.0), |_| {
            order_dd()
        }),
        Row::here(
            "order-shares",
            "shares of NVM at which UHNVM takes less time than at 0.3",
            "Fig. 11",
            Target::AtMost(0.0),
            |_| order_shares(),
        ),
        Row::here(
            "order-sizes",
            "sizes at which another of the paper hits more than UHNVM",
            "Fig. 13",
            Target::AtMost(0.0),
            |_| order_sizes(),
        ),
        Row::here("gain-dd", "time of UHNVM over no NVM", "the same in the paper", Target::Within(OFF_MAX), |_| {
            gain_dd()
        }),
        Row::here("units-reads", "reads of 8 KiB over 1 KiB", "the same in the paper", Target::Within(OFF_MAX), |_| {
            units("uhnvm-fig-10a", UHNVM)
        }),
        Row::here(
            "units-writes",
            "writes of 8 KiB over 1 KiB, blocks written to new places",
            "the same in the paper",
            Target::Within(OFF_MAX),
            |_| units("uhnvm-fig-10b", UHNVM_ANEW),
        ),
        lost("time-dd", SLOWER, "Fig. 8", |_| lost_cells(&[DD], Better::Less)),
        lost("hits-dd", FEWER, "Fig. 9", |_| lost_cells(&[DD_HITS], Better::More)),
        lost("time-shares", "the same among those with both tiers", "Fig. 11", |_| lost_time_shares()),
        Row::here("no-nvm-shares", "greatest time of Tidegate", "DRAM alone, Fig. 11a", Target::Shown, |_| {
            over_no_nvm()
        }),
        lost("hits-shares", FEWER, "Fig. 12", |_| lost_cells(&SHARES_HITS, Better::More)),
        lost("hits-sizes", FEWER, "Fig. 13", |_| lost_cells(&[SIZES_HITS], Better::More)),
        lost("time-sizes", SLOWER, "Fig. 13", |_| lost_cells(&[SIZES], Better::Less)),
        Row::here("threshold", "greatest time of Tidegate", "Cheetah, normalised", Target::AtMost(1.01), |_| {
            threshold()
        }),
        lost("amplification", "cells in which another placement writes fewer bytes to NVM", "Cheetah, blocks", |_| {
            lost_cells(&[AMPLIFICATION], Better::Less)
        }),
        Row::here("shifts", "least hits of Tidegate", "LRU, files that change", Target::AtLeast(0.97), |_| shifts()),
        lost("time-syncs", SLOWER, "figure of synchronous writes", |_| lost_cells(&[SYNCS], Better::Less)),
    ],
};

const SLOWER: &str = "cells in which another placement takes less time than Tidegate's";
const FEWER: &str = "cells in which another placement hits more than Tidegate's";

type Measure = fn(Effort) -> anyhow::Result<Outcome>;

/// An experiment, and one of its figures.
type Place = [&'static str; 2];

const fn lost(name: &'static str, what: &'static str, under: &'static str, measure: Measure) -> Row {
    Row::here(name, what, under, Target::AtMost(0.0), measure)
}

/// Which of two values is the better one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Less,
    More,
}

impl Better {
    /// Whether `one` is better than `other` by more than a tie.
    fn holds(self, one: f64, other: f64) -> bool {
        match self {
            Better::Less => one < other * (1.0 - TIE),
            Better::More => one > other * (1.0 + TIE),
        }
    }
}

fn figures(places: &[Place]) -> anyhow::Result<Vec<Figure>> {
    places.iter().map(|[experiment, id]| figure(experiment, id)).collect()
}

/// Cells of the figures in which one of the others is better than Tidegate, each told on stderr.
fn lost_cells(places: &[Place], better: Better) -> anyhow::Result<Outcome> {
    let mut lost = Vec::new();
    for figure in figures(places)? {
        lost.extend(lost_of(&figure, better)?.into_iter().map(|cell| format!("{}: {cell}", figure.id)));
    }
    lost.iter().for_each(|cell| eprintln!("bench: {cell}"));
    Ok(Outcome::count(lost.len() as u64, 1))
}

/// All data fit the tiers here. DRAM alone, as large as both, is then quicker than any use of NVM,
/// and has a row of its own.
fn lost_time_shares() -> anyhow::Result<Outcome> {
    let mut lost = 0;
    for mut figure in figures(&SHARES)? {
        figure.series.retain(|series| series.label != NO_NVM);
        lost += lost_of(&figure, Better::Less)?.len() as u64;
    }
    Ok(Outcome::count(lost, 1))
}

fn over_no_nvm() -> anyhow::Result<Outcome> {
    let figure = figure(SHARES[0][0], SHARES[0][1])?;
    let mut greatest = 0.0_f64;
    for place in ["0.1", "0.2", "0.3", "0.4", "0.5"] {
        greatest = greatest.max(value(&figure, OURS, place)? / value(&figure, NO_NVM, place)?);
    }
    Ok(Outcome::figure(&[greatest], "×"))
}

/// All data fit NVM: what matters is which of them lie in DRAM.
fn threshold() -> anyhow::Result<Outcome> {
    let figure = figure(THRESHOLD[0], THRESHOLD[1])?;
    let ours = figure.series.iter().find(|series| series.label == OURS).context("Tidegate is in each figure")?;
    let mut greatest = 0.0_f64;
    for point in &ours.points {
        greatest = greatest.max(point.median / value(&figure, "Cheetah, normalised", &point.place)?);
    }
    Ok(Outcome::figure(&[greatest], "×"))
}

/// A placement that retains blocks has to forget those of files that are used no more.
fn shifts() -> anyhow::Result<Outcome> {
    let figure = figure(SHIFTS[0], SHIFTS[1])?;
    let ours = figure.series.iter().find(|series| series.label == OURS).context("Tidegate is in each figure")?;
    let mut least = f64::MAX;
    for point in &ours.points {
        least = least.min(point.median / value(&figure, "LRU", &point.place)?);
    }
    Ok(Outcome::figure(&[least], "×"))
}

fn lost_of(figure: &Figure, better: Better) -> anyhow::Result<Vec<String>> {
    let ours = figure.series.iter().find(|series| series.label == OURS).context("Tidegate is in each figure")?;
    let mut lost = Vec::new();
    for point in &ours.points {
        for other in figure.series.iter().filter(|series| series.label != OURS) {
            let theirs = value(figure, &other.label, &point.place)?;
            if better.holds(theirs, point.median) {
                lost.push(format!("{} at {}: {theirs:.3}, Tidegate {:.3}", other.label, point.place, point.median));
            }
        }
    }
    Ok(lost)
}

/// The paper has UHNVM before no NVM before random placement in time, and UHNVM first in hits.
fn order_dd() -> anyhow::Result<Outcome> {
    let [time, hits] = [DD, DD_HITS].map(|[experiment, id]| figure(experiment, id));
    let (time, hits) = (time?, hits?);
    let (time, hits) = (|label| value(&time, label, "dd"), |label| value(&hits, label, "dd"));
    let pairs = [
        Better::Less.holds(time(UHNVM)?, time(NO_NVM)?),
        Better::Less.holds(time(NO_NVM)?, time(RANDOM)?),
        Better::More.holds(hits(UHNVM)?, hits(NO_NVM)?),
        Better::More.holds(hits(UHNVM)?, hits(RANDOM)?),
    ];
    Ok(Outcome::count(pairs.iter().filter(|holds| !**holds).count() as u64, 1))
}

fn order_shares() -> anyhow::Result<Outcome> {
    let mut less = 0;
    for figure in figures(&SHARES)? {
        let best = value(&figure, UHNVM, "0.3")?;
        for place in ["0.1", "0.2", "0.4", "0.5"] {
            less += u64::from(value(&figure, UHNVM, place)? < best);
        }
    }
    Ok(Outcome::count(less, 1))
}

fn order_sizes() -> anyhow::Result<Outcome> {
    let figure = figure(SIZES_HITS[0], SIZES_HITS[1])?;
    let uhnvm = figure.series.iter().find(|series| series.label == UHNVM).context("UHNVM is in the figure")?;
    let mut beaten = 0;
    for point in &uhnvm.points {
        let others = ["LRU", "CFLRU", "I/O-Cache"].map(|label| value(&figure, label, &point.place));
        let best = others.into_iter().collect::<anyhow::Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
        beaten += u64::from(Better::More.holds(best, point.median));
    }
    Ok(Outcome::count(beaten, 1))
}

fn gain_dd() -> anyhow::Result<Outcome> {
    let figure = figure(DD[0], DD[1])?;
    let ratio = value(&figure, UHNVM, "dd")? / value(&figure, NO_NVM, "dd")?;
    Ok(Outcome::figure(&[ratio / published(&figure, "dd")?], "×"))
}

fn units(id: &str, label: &str) -> anyhow::Result<Outcome> {
    const PLACE: &str = "8 KiB over 1 KiB";
    let figure = figure("placement-units", id)?;
    Ok(Outcome::figure(&[value(&figure, label, PLACE)? / published(&figure, PLACE)?], "×"))
}

/// The paper's value of UHNVM.
fn published(figure: &Figure, place: &str) -> anyhow::Result<f64> {
    let uhnvm = figure.series.iter().find(|series| series.label == UHNVM);
    let point = uhnvm.and_then(|series| series.points.iter().find(|point| point.place == place));
    point.and_then(|point| point.published).with_context(|| format!("the paper has {} at {place}", figure.id))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::reproduction::tests::figure_of;
    use tidegate_reproduction::figure::{Point, Series};

    fn of(values: &[(&str, f64)]) -> Figure {
        let one = |(label, value): &(&str, f64)| Series {
            label: (*label).to_owned(),
            points: vec![Point::of("here", &[*value], None)],
        };
        figure_of(values.iter().map(one))
    }

    #[test]
    fn a_cell_is_lost_by_more_than_a_tie() {
        let lost = |values: &[(&str, f64)], better| lost_of(&of(values), better).unwrap().len();
        assert_eq!(lost(&[(OURS, 10.0), ("LRU", 9.9), (UHNVM, 11.0)], Better::Less), 1);
        assert_eq!(lost(&[(OURS, 10.0), ("LRU", 9.9), (UHNVM, 11.0)], Better::More), 1);
        assert_eq!(lost(&[(OURS, 10.0), ("LRU", 9.99), (UHNVM, 10.01)], Better::Less), 0);
        assert!(lost_of(&of(&[("LRU", 1.0)]), Better::Less).is_err(), "nothing to compare with");
    }
}
