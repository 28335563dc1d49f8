//! Whether the papers' figures came out again: a verdict for each row, judged from the figures of a
//! run and from nothing else.
//!
//! A [`PaperRow`] is one figure or table of a paper, as claims about values of our figures. A claim
//! is a published *ratio*, or a *direction*: an order, a rise, a crossing point.
//!
//! 1. A ratio is as published if it is on the paper's side of 1, within 30 % of the paper's, and
//!    the effect, its distance from 1, is between half and twice the paper's.
//! 2. A ratio that is only on the paper's side of 1, by more than 2 %, has the paper's shape. Else
//!    it is contradicted.
//! 3. A direction holds or is contradicted; values within 2 % of each other have none.
//! 4. A claim whose values are all inputs, which costs were fitted to, is not judged.
//! 5. A claim about a subject or a place that the run lacks is not judged, and is listed.
//!
//! A row is *reproduced* if each judged claim is as published, *in shape* if none is contradicted,
//! *not reproduced* if one is, and *not run* if nothing was judged.

mod caiti;
mod placement;
mod sheet;
mod tinca;

use crate::figure::{Figure, csv_cell};
use sheet::Sheet;
use std::fmt::{self, Write};

/// A figure or table of a paper.
pub struct PaperRow {
    /// Short and unique; `bench targets reproduction --only` selects by it.
    pub name: &'static str,
    /// The paper and its figure.
    pub paper: &'static str,
    /// What the paper shows there.
    pub shows: &'static str,
    /// The experiments whose figures it is judged by.
    pub experiments: &'static [&'static str],
    /// Why it comes out otherwise where it does, or what a run of it needs.
    pub cause: &'static str,
    claims: fn(&mut Sheet<'_>),
}

/// Every row, paper by paper.
pub fn rows() -> impl Iterator<Item = &'static PaperRow> {
    caiti::ROWS.iter().chain(tinca::ROWS).chain(placement::ROWS)
}

/// One claim, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What is claimed, in the figures' words.
    pub what: String,
    /// The value here.
    pub here: Option<f64>,
    /// The paper's; None if it claims a direction.
    pub paper: Option<f64>,
    /// How it ended.
    pub holds: Judgement,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// As published.
    AsPublished,
    /// The direction is the paper's, the size is not.
    InShape,
    /// The direction is another one.
    Contradicted,
    /// Costs were fitted to these values.
    Input,
    /// The run has no such values.
    NotRun,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Judgement::AsPublished => "as published",
            Judgement::InShape => "in shape",
            Judgement::Contradicted => "contradicted",
            Judgement::Input => "input, not judged",
            Judgement::NotRun => "not run",
        })
    }
}

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reproduced {
    /// Each judged claim is as published.
    Fully,
    /// None is contradicted.
    InShape,
    /// One is contradicted.
    Not,
    /// Nothing was judged.
    NotRun,
}

impl fmt::Display for Reproduced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reproduced::Fully => "reproduced",
            Reproduced::InShape => "reproduced in shape",
            Reproduced::Not => "not reproduced",
            Reproduced::NotRun => "not run",
        })
    }
}

/// A row with its judged claims.
pub struct JudgedRow {
    /// The row.
    pub row: &'static PaperRow,
    /// Its claims, in the paper's order.
    pub claims: Vec<Claim>,
}

impl JudgedRow {
    /// Judges `row` by `figures`.
    pub fn of(row: &'static PaperRow, figures: &[Figure]) -> JudgedRow {
        let mut sheet = Sheet::of(figures);
        (row.claims)(&mut sheet);
        JudgedRow { row, claims: sheet.into_claims() }
    }

    /// The verdict.
    pub fn verdict(&self) -> Reproduced {
        verdict(&self.claims)
    }

    /// How many claims ended so.
    pub fn count(&self, holds: Judgement) -> usize {
        self.claims.iter().filter(|claim| claim.holds == holds).count()
    }

    /// The claims that were not as published, with both values; empty if all were.
    pub fn in_numbers(&self) -> String {
        let told = |claim: &&Claim| matches!(claim.holds, Judgement::InShape | Judgement::Contradicted);
        let one = |claim: &Claim| {
            let paper = claim.paper.map_or(String::new(), |paper| format!(", paper {}", number(paper)));
            let here = claim.here.map_or(String::new(), number);
            let against = if claim.holds == Judgement::Contradicted { " (contradicted)" } else { "" };
            format!("{} {here}{paper}{against}", claim.what)
        };
        self.claims.iter().filter(told).map(one).collect::<Vec<_>>().join("; ")
    }
}

fn verdict(claims: &[Claim]) -> Reproduced {
    let has = |holds: Judgement| claims.iter().any(|claim| claim.holds == holds);
    match () {
        () if has(Judgement::Contradicted) => Reproduced::Not,
        () if has(Judgement::InShape) => Reproduced::InShape,
        () if has(Judgement::AsPublished) => Reproduced::Fully,
        () => Reproduced::NotRun,
    }
}

/// Every row, judged by `figures`.
pub fn judged(figures: &[Figure]) -> Vec<JudgedRow> {
    rows().map(|row| JudgedRow::of(row, figures)).collect()
}

/// All claims as lines of comma-separated values.
pub fn csv(rows: &[JudgedRow]) -> String {
    let mut csv = "row,paper,verdict,claim,here,published,holds\n".to_owned();
    for judged in rows {
        for claim in &judged.claims {
            let [here, paper] = [claim.here, claim.paper].map(|value| value.map_or(String::new(), |v| v.to_string()));
            let [named, what] = [judged.row.paper, &claim.what].map(csv_cell);
            let _ = writeln!(
                csv,
                "{},{named},{},{what},{here},{paper},{}",
                judged.row.name,
                judged.verdict(),
                csv_cell(&claim.holds.to_string())
            );
        }
    }
    csv
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXPERIMENTS;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_name_of_its_own_and_experiments_that_there_are() {
        let names: BTreeSet<&str> = rows().map(|row| row.name).collect();
        assert_eq!((names.len(), rows().count()), (35, 35));
        let known = |name: &&str| EXPERIMENTS.iter().any(|one| one.name == *name);
        assert!(rows().all(|row| row.experiments.iter().all(&known)));
        assert!(rows().all(|row| !row.cause.is_empty()), "each says why it may come out otherwise");
    }

    #[test]
    fn without_figures_nothing_is_judged() {
        let rows = judged(&[]);
        assert!(rows.iter().all(|row| row.verdict() == Reproduced::NotRun && !row.claims.is_empty()));
        assert_eq!(csv(&rows).lines().count(), 1 + rows.iter().map(|row| row.claims.len()).sum::<usize>());
    }

    #[test]
    fn one_contradicted_claim_spoils_a_row_and_inputs_do_not_save_it() {
        let claims = |all: &[Judgement]| -> Vec<Claim> {
            let one = |holds: &Judgement| Claim { what: String::new(), here: Some(1.0), paper: None, holds: *holds };
            all.iter().map(one).collect()
        };
        let of = |all: &[Judgement]| verdict(&claims(all));
        assert_eq!(of(&[Judgement::AsPublished, Judgement::NotRun]), Reproduced::Fully);
        assert_eq!(of(&[Judgement::AsPublished, Judgement::InShape]), Reproduced::InShape);
        assert_eq!(of(&[Judgement::AsPublished, Judgement::InShape, Judgement::Contradicted]), Reproduced::Not);
        assert_eq!(of(&[Judgement::Input, Judgement::NotRun]), Reproduced::NotRun);
    }
}
