//! The report: a table for people, or JSON lines for programs.

use crate::target::{Outcome, Row, Topic, Verdict};
use serde_json::json;
use std::fmt::Write;
use tidegate_measure::Estimate;
use tidegate_measure::machine::Machine;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A table.
    Text,
    /// One JSON object per line.
    Json,
}

impl Style {
    /// What stands before all rows.
    pub fn opening(self, machine: &Machine) -> String {
        match self {
            Style::Text => format!("machine: {machine}"),
            Style::Json => json!({ "machine": machine }).to_string(),
        }
    }

    /// What stands before the rows of a topic. JSON rows name their topic themselves.
    pub fn heading(self, topic: &Topic) -> Option<String> {
        (self == Style::Text).then(|| format!("\n{}: {}", topic.name, topic.about))
    }

    /// One row with its outcome.
    pub fn row(self, topic: &Topic, row: &Row, outcome: &Outcome) -> String {
        match self {
            Style::Text => text(row, outcome),
            Style::Json => json!({
                "topic": topic.name,
                "row": row.name,
                "over": row.over,
                "under": row.under,
                "target": row.target.to_string(),
                "verdict": row.target.judge(outcome),
                "outcome": outcome,
            })
            .to_string(),
        }
    }
}

fn text(row: &Row, outcome: &Outcome) -> String {
    let verdict = row.target.judge(outcome);
    let mut out = format!("  {verdict:<7}  {} over {}\n           ", row.over, row.under);
    let written = match outcome {
        Outcome::Ratio { ratio, over, under, unit } => {
            let Estimate { median, low, high, least, greatest, samples } = ratio;
            write!(
                out,
                "{median:.3}, target {}; 95 % in {low:.3} … {high:.3}, spread {least:.3} … {greatest:.3} of {samples} pairs; {} over {}",
                row.target,
                side(over, unit),
                side(under, unit)
            )
        }
        Outcome::Figure { figure, unit } => {
            let Estimate { median, low, high, least, greatest, samples } = figure;
            write!(
                out,
                "{median:.2} {unit}, target {}; 95 % in {low:.2} … {high:.2}, spread {least:.2} … {greatest:.2} of {samples} samples",
                row.target
            )
        }
        Outcome::Count { per_operation, operations } => {
            write!(out, "{per_operation:.4}, target {}; counted over {operations} operations", row.target)
        }
        Outcome::Claims { contradicted, verdict, numbers, not_run } => {
            let rest = if numbers.is_empty() { String::new() } else { format!(": {numbers}") };
            let missing = if not_run.is_empty() { String::new() } else { format!(". Not run: {not_run}") };
            write!(out, "{verdict}, {contradicted} claims contradicted, target {}{rest}{missing}", row.target)
        }
        Outcome::Missing { what, remedy } => write!(out, "needs {what}: {remedy}"),
    };
    written.expect("a string takes everything");
    out
}

fn side(estimate: &Estimate, unit: &str) -> String {
    let places = if estimate.median < 10.0 { 3 } else { 0 };
    format!("{:.places$} {unit}", estimate.median)
}

/// How many rows did how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows that met their target.
    pub met: usize,
    /// Rows that did not.
    pub short: usize,
    /// Rows whose samples are too far apart to show either.
    pub noisy: usize,
    /// Rows without a target.
    pub shown: usize,
    /// Rows without a figure.
    pub missing: usize,
}

impl Tally {
    /// Counts one more row.
    pub fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Met => self.met += 1,
            Verdict::Short => self.short += 1,
            Verdict::TooNoisy => self.noisy += 1,
            Verdict::Shown => self.shown += 1,
            Verdict::Missing => self.missing += 1,
        }
    }

    /// Whether every row met its target.
    pub fn all_met(&self) -> bool {
        self.short + self.noisy + self.missing == 0
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { met, short, noisy, shown, missing } = self;
        write!(f, "{met} met, {short} short, {noisy} too noisy, {missing} missing")?;
        if *shown > 0 { write!(f, ", {shown} shown") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Method, Target};

    const ROW: Row =
        Row { name: "write", over: "BTT write", under: "copy", target: Target::AtMost(1.6), method: Method::Rivals };
    const TOPIC: Topic = Topic { name: "blocks", about: "blocks", rows: &[ROW] };

    fn outcome() -> Outcome {
        let ratio = Estimate { median: 1.5, low: 1.25, high: 1.75, least: 1.0, greatest: 2.0, samples: 9 };
        let side = Estimate { median: 300.0, ..ratio };
        Outcome::Ratio { ratio, over: side, under: Estimate { median: 200.0, ..ratio }, unit: "ns".to_owned() }
    }

    #[test]
    fn a_ratio_row_says_everything() {
        let expected = "  met      BTT write over copy
           1.500, target ≤ 1.6; 95 % in 1.250 … 1.750, spread 1.000 … 2.000 of 9 pairs; 300 ns over 200 ns";
        assert_eq!(Style::Text.row(&TOPIC, &ROW, &outcome()), expected);
    }

    #[test]
    fn a_figure_row_says_its_unit_and_its_interval() {
        let expected = "  SHORT    BTT write over copy
           3.00 µs, target ≤ 1.6; 95 % in 2.00 … 4.00, spread 2.00 … 4.00 of 3 samples";
        assert_eq!(Style::Text.row(&TOPIC, &ROW, &Outcome::figure(&[4.0, 2.0, 3.0], "µs")), expected);
    }

    #[test]
    fn a_row_of_claims_says_its_verdict_and_its_numbers() {
        let claims = |contradicted, numbers: &str, not_run: &str| Outcome::Claims {
            contradicted,
            verdict: "not reproduced".to_owned(),
            numbers: numbers.to_owned(),
            not_run: not_run.to_owned(),
        };
        let expected = "  SHORT    BTT write over copy
           not reproduced, 2 claims contradicted, target ≤ 1.6: BTT 1.30, paper 1.37";
        assert_eq!(Style::Text.row(&TOPIC, &ROW, &claims(2, "BTT 1.30, paper 1.37", "")), expected);
        assert!(Style::Text.row(&TOPIC, &ROW, &claims(1, "", "")).ends_with("target ≤ 1.6"));
        assert!(Style::Text.row(&TOPIC, &ROW, &claims(1, "", "DAX")).ends_with("target ≤ 1.6. Not run: DAX"));
    }

    #[test]
    fn a_missing_row_says_what_brings_it() {
        let missing = Outcome::missing("libpmem", "apt-get install libpmem-dev");
        let expected = "  MISSING  BTT write over copy\n           needs libpmem: apt-get install libpmem-dev";
        assert_eq!(Style::Text.row(&TOPIC, &ROW, &missing), expected);
    }

    #[test]
    fn a_json_row_gives_the_outcome_back() {
        let claims = Outcome::Claims {
            contradicted: 1,
            verdict: "not reproduced".to_owned(),
            numbers: String::new(),
            not_run: "DAX".to_owned(),
        };
        for outcome in [outcome(), Outcome::figure(&[4.0, 2.0, 3.0], "µs"), Outcome::count(3, 2), claims] {
            let line = Style::Json.row(&TOPIC, &ROW, &outcome);
            let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(serde_json::from_value::<Outcome>(parsed["outcome"].clone()).unwrap(), outcome);
        }
        let line = Style::Json.row(&TOPIC, &ROW, &outcome());
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((parsed["topic"].as_str(), parsed["verdict"].as_str()), (Some("blocks"), Some("met")));
    }

    #[test]
    fn one_row_that_is_not_met_spoils_the_run() {
        let mut tally = Tally::default();
        tally.add(Verdict::Met);
        assert!(tally.all_met());
        for verdict in [Verdict::Missing, Verdict::Short, Verdict::TooNoisy] {
            let mut spoilt = tally;
            spoilt.add(verdict);
            assert!(!spoilt.all_met(), "{verdict}");
        }
    }
}
