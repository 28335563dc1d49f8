//! Rows: the measured subject, its floor, and the target it has to meet.
//!
//! A topic is one table of [`Row`]s, kept in a module of its own beside the functions that measure
//! them. A new topic is a module with such a table and a line in the program's list of topics; a
//! new row is an entry of the table.

use serde::{Deserialize, Serialize};
use std::fmt;
use tidegate_measure::workload::Effort;
use tidegate_measure::{Estimate, Pairs};

/// A table of rows under one heading.
#[derive(Clone, Copy)]
pub struct Topic {
    /// What `bench targets NAME` calls it.
    pub name: &'static str,
    /// What the figures are about.
    pub about: &'static str,
    /// The table.
    pub rows: &'static [Row],
}

/// One figure.
#[derive(Clone, Copy)]
pub struct Row {
    /// Short and unique in its topic; `--only` selects by it.
    pub name: &'static str,
    /// What stands above the fraction bar.
    pub over: &'static str,
    /// What stands below it: the floor, the rival, or the unit a count or figure is per.
    pub under: &'static str,
    /// What the figure has to meet.
    pub target: Target,
    /// How it is found out.
    pub method: Method,
}

impl Row {
    /// A row that this process measures.
    pub const fn here(
        name: &'static str,
        over: &'static str,
        under: &'static str,
        target: Target,
        measure: fn(Effort) -> anyhow::Result<Outcome>,
    ) -> Row {
        Row { name, over, under, target, method: Method::Here(measure) }
    }
}

/// Where a row is measured.
#[derive(Clone, Copy)]
pub enum Method {
    /// In this process.
    Here(fn(Effort) -> anyhow::Result<Outcome>),
    /// In the program of the rivals, which knows the row by its name.
    Rivals,
}

/// A limit for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Smaller is better.
    AtMost(f64),
    /// Larger is better.
    AtLeast(f64),
    /// A ratio of 1 is best, and it may be off by this share.
    Within(f64),
    /// None: the figure is only shown.
    Shown,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::AtMost(limit) => write!(f, "≤ {limit}"),
            Target::AtLeast(limit) => write!(f, "≥ {limit}"),
            Target::Within(share) => write!(f, "{} … {}", 1.0 - share, 1.0 + share),
            Target::Shown => f.write_str("none"),
        }
    }
}

/// What measuring a row gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// A ratio of two subjects run in turn.
    Ratio {
        /// The figure.
        ratio: Estimate,
        /// The subject above the fraction bar.
        over: Estimate,
        /// The floor or rival below it.
        under: Estimate,
        /// Of both sides.
        unit: String,
    },
    /// A quantity sampled several times, with nothing beside it.
    Figure {
        /// The figure.
        figure: Estimate,
        /// Of the figure and its target.
        unit: String,
    },
    /// An exact count per operation.
    Count {
        /// The figure.
        per_operation: f64,
        /// Operations it was counted over.
        operations: u64,
    },
    /// Claims of a paper, judged by the figures of a run.
    Claims {
        /// How many the figures contradict, which is what has to meet the target.
        contradicted: u64,
        /// What that and the rest make of the row.
        verdict: String,
        /// The claims that were not as published, with both values.
        numbers: String,
        /// The claims that the run has no values for.
        not_run: String,
    },
    /// Not measurable on this machine as it is.
    Missing {
        /// What is not there.
        what: String,
        /// What brings it.
        remedy: String,
    },
}

impl Outcome {
    /// The ratio of pairs whose samples are in `unit`.
    pub fn ratio(pairs: &Pairs, unit: &str) -> Outcome {
        Outcome::Ratio { ratio: pairs.ratio(), over: pairs.over(), under: pairs.under(), unit: unit.to_owned() }
    }

    /// What at least one sample of a quantity in `unit` says about it.
    pub fn figure(samples: &[f64], unit: &str) -> Outcome {
        Outcome::Figure { figure: Estimate::of(samples), unit: unit.to_owned() }
    }

    /// `events` counted over `operations`.
    pub fn count(events: u64, operations: u64) -> Outcome {
        Outcome::Count { per_operation: events as f64 / operations as f64, operations }
    }

    /// Nothing, for want of `what`.
    pub fn missing(what: impl Into<String>, remedy: impl Into<String>) -> Outcome {
        Outcome::Missing { what: what.into(), remedy: remedy.into() }
    }
}

/// How a row did against its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The median meets the target, or the 95 % interval touches it and is narrow.
    Met,
    /// The whole interval lies on the wrong side.
    Short,
    /// The median is on the wrong side, and the interval touches the target only because it is
    /// wide: nothing is shown.
    TooNoisy,
    /// There is a figure, and no target.
    Shown,
    /// There is no figure.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Met => "met",
            Verdict::Short => "SHORT",
            Verdict::TooNoisy => "NOISY",
            Verdict::Shown => "shown",
            Verdict::Missing => "MISSING",
        })
    }
}

/// The widest 95 % interval that counts where it touches a target, as a share of that target.
const INTERVAL_SHARE_MAX: f64 = 0.15;

impl Target {
    /// Judges by the median, and by the interval where that is narrow.
    pub fn judge(self, outcome: &Outcome) -> Verdict {
        let estimate = match outcome {
            Outcome::Missing { .. } => return Verdict::Missing,
            _ if self == Target::Shown => return Verdict::Shown,
            Outcome::Ratio { ratio: estimate, .. } | Outcome::Figure { figure: estimate, .. } => estimate,
            Outcome::Count { per_operation, .. } if self.is_met_by(*per_operation) => return Verdict::Met,
            Outcome::Claims { contradicted, .. } if self.is_met_by(*contradicted as f64) => return Verdict::Met,
            Outcome::Count { .. } | Outcome::Claims { .. } => return Verdict::Short,
        };
        let touches = match self {
            Target::AtMost(limit) => estimate.low <= limit,
            Target::AtLeast(limit) => estimate.high >= limit,
            Target::Within(share) => estimate.low <= 1.0 + share && estimate.high >= 1.0 - share,
            Target::Shown => true,
        };
        let is_narrow = estimate.high - estimate.low <= INTERVAL_SHARE_MAX * self.scale();
        match touches {
            _ if self.is_met_by(estimate.median) => Verdict::Met,
            true if is_narrow => Verdict::Met,
            true => Verdict::TooNoisy,
            false => Verdict::Short,
        }
    }

    fn is_met_by(self, value: f64) -> bool {
        match self {
            Target::AtMost(limit) => value <= limit,
            Target::AtLeast(limit) => value >= limit,
            Target::Within(share) => (1.0 - share..=1.0 + share).contains(&value),
            Target::Shown => true,
        }
    }

    /// What an interval's width is compared with.
    fn scale(self) -> f64 {
        match self {
            Target::AtMost(limit) | Target::AtLeast(limit) => limit,
            Target::Within(_) | Target::Shown => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(median: f64, low: f64, high: f64) -> Outcome {
        let ratio = Estimate { median, low, high, least: low, greatest: high, samples: 9 };
        Outcome::Ratio { ratio, over: ratio, under: ratio, unit: "ns".to_owned() }
    }

    #[test]
    fn a_median_that_meets_the_target_is_enough() {
        assert_eq!(Target::AtMost(1.4).judge(&measured(1.4, 1.0, 9.0)), Verdict::Met);
        assert_eq!(Target::AtLeast(1.6).judge(&measured(1.6, 0.1, 1.7)), Verdict::Met);
        assert_eq!(Target::Within(0.25).judge(&measured(0.75, 0.1, 2.0)), Verdict::Met);
    }

    #[test]
    fn an_interval_that_touches_the_target_meets_it_if_it_is_narrow() {
        assert_eq!(Target::AtMost(1.4).judge(&measured(1.5, 1.4, 1.6)), Verdict::Met);
        assert_eq!(Target::AtMost(1.4).judge(&measured(1.5, 1.39, 1.61)), Verdict::TooNoisy);
        assert_eq!(Target::AtMost(1.4).judge(&measured(1.5, 1.41, 1.6)), Verdict::Short);
        assert_eq!(Target::AtLeast(1.6).judge(&measured(1.5, 1.4, 1.6)), Verdict::Met);
        assert_eq!(Target::AtLeast(1.2).judge(&measured(0.87, 0.5, 1.3)), Verdict::TooNoisy);
        assert_eq!(Target::AtLeast(1.6).judge(&measured(1.5, 1.4, 1.59)), Verdict::Short);
        assert_eq!(Target::Within(0.25).judge(&measured(1.3, 1.2, 1.34)), Verdict::Met);
        assert_eq!(Target::Within(0.25).judge(&measured(0.6, 0.5, 0.75)), Verdict::TooNoisy);
        assert_eq!(Target::Within(0.25).judge(&measured(1.4, 1.26, 1.6)), Verdict::Short);
    }

    /// The sign test leaves one of nine samples out at either end.
    #[test]
    fn a_figure_is_judged_by_its_interval() {
        let outcome = Outcome::figure(&[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0], "µs");
        assert_eq!(Target::AtMost(5.0).judge(&outcome), Verdict::Met);
        assert_eq!(Target::AtMost(2.0).judge(&outcome), Verdict::TooNoisy);
        assert_eq!(Target::AtMost(1.9).judge(&outcome), Verdict::Short);
        assert_eq!(Target::AtLeast(8.0).judge(&outcome), Verdict::TooNoisy);
        assert_eq!(Target::AtLeast(8.1).judge(&outcome), Verdict::Short);
    }

    #[test]
    fn a_count_has_no_interval_to_hide_behind() {
        assert_eq!(Target::AtMost(2.0).judge(&Outcome::count(2000, 1000)), Verdict::Met);
        assert_eq!(Target::AtMost(2.0).judge(&Outcome::count(2001, 1000)), Verdict::Short);
    }

    #[test]
    fn a_figure_without_a_target_is_shown() {
        assert_eq!(Target::Shown.judge(&measured(7.0, 1.0, 9.0)), Verdict::Shown);
        assert_eq!(Target::Shown.judge(&Outcome::missing("a rival", "a package")), Verdict::Missing);
    }

    #[test]
    fn a_missing_rival_is_never_met() {
        assert_eq!(Target::AtLeast(0.0).judge(&Outcome::missing("a rival", "a package")), Verdict::Missing);
    }
}
