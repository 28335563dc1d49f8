//! Rows: what is measured, over what, and the target it has to meet.
//!
//! A topic is one table of [`Row`]s, kept in a module of its own beside the functions that measure them. A new
//! topic is a module with such a table and its name in [`TOPICS`]; a new row is an entry of the table.

use crate::measure::{Estimate, Pairs};
use crate::workload::Effort;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Every topic, in the order in which `bench targets` runs them.
pub const TOPICS: &[Topic] = &[
    crate::blocks::TOPIC,
    crate::disk_cache::TOPIC,
    crate::transit::TOPIC,
    crate::served::TOPIC,
    crate::files::TOPIC,
    crate::rivalry::TOPIC,
    crate::simulator::TOPIC,
    crate::repetition::TOPIC,
];

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
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::AtMost(limit) => write!(f, "≤ {limit}"),
            Target::AtLeast(limit) => write!(f, "≥ {limit}"),
            Target::Within(share) => write!(f, "{} … {}", 1.0 - share, 1.0 + share),
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
    /// The target is met, or the 95 % interval touches it.
    Met,
    /// The whole interval lies on the wrong side.
    Short,
    /// There is no figure.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Met => "met",
            Verdict::Short => "SHORT",
            Verdict::Missing => "MISSING",
        })
    }
}

impl Target {
    /// Judges by the end of the interval that is nearer to the target.
    pub fn judge(self, outcome: &Outcome) -> Verdict {
        let (low, high) = match outcome {
            Outcome::Ratio { ratio, .. } => (ratio.low, ratio.high),
            Outcome::Figure { figure, .. } => (figure.low, figure.high),
            Outcome::Count { per_operation, .. } => (*per_operation, *per_operation),
            Outcome::Missing { .. } => return Verdict::Missing,
        };
        let met = match self {
            Target::AtMost(limit) => low <= limit,
            Target::AtLeast(limit) => high >= limit,
            Target::Within(share) => low <= 1.0 + share && high >= 1.0 - share,
        };
        if met { Verdict::Met } else { Verdict::Short }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(low: f64, high: f64) -> Outcome {
        let ratio = Estimate { median: 1.5, low, high, least: 1.0, greatest: 3.0, samples: 9 };
        Outcome::Ratio { ratio, over: ratio, under: ratio, unit: "ns".to_owned() }
    }

    #[test]
    fn an_interval_that_touches_the_target_meets_it() {
        assert_eq!(Target::AtMost(1.4).judge(&between(1.4, 1.6)), Verdict::Met);
        assert_eq!(Target::AtMost(1.4).judge(&between(1.41, 1.6)), Verdict::Short);
        assert_eq!(Target::AtLeast(1.6).judge(&between(1.4, 1.6)), Verdict::Met);
        assert_eq!(Target::AtLeast(1.6).judge(&between(1.4, 1.59)), Verdict::Short);
        assert_eq!(Target::Within(0.25).judge(&between(1.2, 1.6)), Verdict::Met);
        assert_eq!(Target::Within(0.25).judge(&between(0.5, 0.75)), Verdict::Met);
        assert_eq!(Target::Within(0.25).judge(&between(1.26, 1.6)), Verdict::Short);
        assert_eq!(Target::Within(0.25).judge(&between(0.5, 0.74)), Verdict::Short);
    }

    /// The sign test leaves one of nine samples out at either end.
    #[test]
    fn a_figure_is_judged_by_its_interval() {
        let outcome = Outcome::figure(&[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0], "µs");
        assert_eq!(Target::AtMost(2.0).judge(&outcome), Verdict::Met);
        assert_eq!(Target::AtMost(1.9).judge(&outcome), Verdict::Short);
        assert_eq!(Target::AtLeast(8.0).judge(&outcome), Verdict::Met);
        assert_eq!(Target::AtLeast(8.1).judge(&outcome), Verdict::Short);
    }

    #[test]
    fn a_count_has_no_interval_to_hide_behind() {
        assert_eq!(Target::AtMost(2.0).judge(&Outcome::count(2000, 1000)), Verdict::Met);
        assert_eq!(Target::AtMost(2.0).judge(&Outcome::count(2001, 1000)), Verdict::Short);
    }

    #[test]
    fn a_missing_rival_is_never_met() {
        assert_eq!(Target::AtLeast(0.0).judge(&Outcome::missing("a rival", "a package")), Verdict::Missing);
    }

    #[test]
    fn names_are_unique() {
        for (at, topic) in TOPICS.iter().enumerate() {
            assert!(TOPICS[..at].iter().all(|other| other.name != topic.name), "topic {} twice", topic.name);
            for (at, row) in topic.rows.iter().enumerate() {
                assert!(topic.rows[..at].iter().all(|other| other.name != row.name), "row {} twice", row.name);
            }
        }
    }
}
