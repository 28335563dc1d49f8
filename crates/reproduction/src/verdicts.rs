//! Whether the papers' figures came out again: a verdict for each row, judged from the figures of a
//! run and from nothing else.
//!
//! A [`PaperRow`] is one figure or table of a paper, as claims about values of our figures. A claim
//! is a published *ratio*, a *quantity* with its unit, or a *direction*: an order, a rise, a
//! crossing point.
//!
//! 1. A ratio is as published if it is on the paper's side of 1, within 30 % of the paper's, and
//!    the effect, its distance from 1, is between half and twice the paper's.
//! 2. A ratio that is only on the paper's side of 1, by more than 2 %, has the paper's shape. Else
//!    it is contradicted.
//! 3. A quantity is as published within 30 % of the paper's, has its shape between half and twice
//!    of it, and is contradicted beyond. Of a percentage, the rest to 100 has to be as near.
//! 4. A direction holds by more than 2 %, or is contradicted. That there are none is exact.
//! 5. A claim whose values are all inputs, which costs were fitted to, is not judged.
//! 6. A figure of the smoke scale, or one that does not tell its scale, is not looked at.
//! 7. A claim about a subject or a place that the run lacks is not judged, and is listed. So is one
//!    whose value is not finite, and a ratio of which one side is 0.
//!
//! A row is *reproduced* if each judged claim is as published, *in shape* if none is contradicted,
//! *not reproduced* if one is, and *not run* if nothing was judged. Where some claims were not run,
//! its words say how many were.

mod caiti;
mod hybrid;
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
    /// The subject that stands for the paper's; empty without an experiment.
    pub judged_on: &'static str,
    /// Why it comes out otherwise where it does, or what a run of it needs.
    pub cause: &'static str,
    claims: fn(&mut Sheet<'_>),
}

/// Every row, paper by paper.
pub fn rows() -> impl Iterator<Item = &'static PaperRow> {
    caiti::ROWS.iter().chain(tinca::ROWS).chain(hybrid::ROWS).chain(placement::ROWS)
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

    /// The verdict, and how many of the claims were run if not all of them were.
    pub fn in_words(&self) -> String {
        let (verdict, claims, missing) = (self.verdict(), self.claims.len(), self.count(Judgement::NotRun));
        if verdict == Reproduced::NotRun || missing == 0 {
            return verdict.to_string();
        }
        format!("{verdict}, {} of {claims} claims run", claims - missing)
    }

    /// The claims that the run has no values for; empty if it has all.
    pub fn not_run(&self) -> String {
        let missing = self.claims.iter().filter(|claim| claim.holds == Judgement::NotRun);
        missing.map(|claim| claim.what.as_str()).collect::<Vec<_>>().join("; ")
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
    let mut csv = "row,paper,judged on,verdict,claims,claims run,claim,here,published,holds\n".to_owned();
    for judged in rows {
        let (claims, missing) = (judged.claims.len(), judged.count(Judgement::NotRun));
        for claim in &judged.claims {
            let [here, paper] = [claim.here, claim.paper].map(|value| value.map_or(String::new(), |v| v.to_string()));
            let [named, judged_on, what] = [judged.row.paper, judged.row.judged_on, &claim.what].map(csv_cell);
            let _ = writeln!(
                csv,
                "{},{named},{judged_on},{},{claims},{},{what},{here},{paper},{}",
                judged.row.name,
                judged.verdict(),
                claims - missing,
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
    use crate::figure::Point;
    use crate::tinca::ablations::ROOM_LEFT;
    use sheet::tests::figure;

    fn points(values: &[(&str, f64)]) -> Vec<Point> {
        values.iter().map(|(place, value)| Point::exact(*place, *value, None)).collect()
    }

    fn judged_as(name: &str, figures: &[Figure]) -> JudgedRow {
        JudgedRow::of(rows().find(|row| row.name == name).expect("a row of the papers"), figures)
    }

    #[test]
    fn a_row_says_which_of_its_claims_were_not_run() {
        const SOME_RUN: &str = "reproduced, 1 of 3 claims run";
        let pair = |rate: f64| points(&[("SSD, PCM", rate)]);
        let half = [figure("tinca-fig-12c", &[("Classic", &pair(81.0))])];
        let judged = judged_as("tinca-12c", &half);
        assert_eq!((judged.verdict(), judged.in_words().as_str()), (Reproduced::Fully, SOME_RUN));
        assert_eq!(judged.not_run(), "% of writes that hit: Tinca; Classic < Tinca, SSD, PCM (tinca-fig-12c)");
        assert!(csv(&[judged]).lines().nth(1).is_some_and(|line| line.contains(",Tinca,reproduced,3,1,")));
        let whole = [figure("tinca-fig-12c", &[("Classic", &pair(81.0)), ("Tinca", &pair(93.5))])];
        let judged = judged_as("tinca-12c", &whole);
        assert_eq!((judged.in_words().as_str(), judged.not_run().as_str()), ("reproduced", ""));
        assert_eq!(judged_as("tinca-12c", &[]).in_words(), "not run");
    }

    #[test]
    fn a_table_without_values_says_nothing_of_their_spread() {
        let spread = |times: &[(&str, f64)]| {
            let figures = [figure("platform-table-1-fitted", &[("Caiti", &points(times))])];
            let judged = judged_as("caiti-table-1", &figures);
            judged.claims.last().expect("the last claim is about the spread").holds
        };
        assert_eq!(spread(&[]), Judgement::NotRun);
        assert_eq!(spread(&[("64 MiB", 4400.0)]), Judgement::NotRun, "one size has no spread");
        assert_eq!(spread(&[("64 MiB", 0.0), ("128 MiB", 0.0)]), Judgement::NotRun);
        assert_eq!(spread(&[("64 MiB", 4400.0), ("128 MiB", 4500.0)]), Judgement::AsPublished);
        assert_eq!(spread(&[("64 MiB", 4400.0), ("128 MiB", 4830.0)]), Judgement::Contradicted, "1.098 for 1.1");
    }

    #[test]
    fn a_few_images_after_cuts_and_kills_prove_nothing() {
        let verdict = |torn: f64, cuts: f64, kills: f64| {
            let torn = points(&[("power cuts", torn), ("kills", 0.0)]);
            let images = points(&[("power cuts", cuts), ("kills", kills)]);
            let figures = [figure("tinca-recovery", &[("Tidegate", &torn), ("images judged", &images)])];
            judged_as("tinca-recovery", &figures).in_words()
        };
        assert_eq!(verdict(0.0, 900.0, 100.0), "not run");
        assert_eq!(verdict(0.0, 900.0, 101.0), "reproduced");
        assert_eq!(verdict(1.0, 900.0, 101.0), "not reproduced");
        assert_eq!(verdict(0.0, 5000.0, 0.0), "reproduced, 1 of 2 claims run");
    }

    #[test]
    fn one_place_is_judged_and_not_the_nearest_one() {
        let rates =
            |one: f64, many: f64| points(&[("1 job, room left", one), (ROOM_LEFT, many), ("32 jobs, full", one)]);
        let near_elsewhere = [figure(
            "tinca-fig-4",
            &[
                ("Classic", &rates(1.0, 1.0)),
                ("Classic, no metadata", &rates(1.452, 1.0)),
                ("no journal", &rates(1.0, 1.0)),
                ("no journal, no metadata", &rates(1.655, 1.6)),
            ],
        )];
        let judged = judged_as("tinca-4", &near_elsewhere);
        let found: Vec<Judgement> = judged.claims.iter().map(|claim| claim.holds).collect();
        assert_eq!(found, [Judgement::Contradicted, Judgement::AsPublished]);
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
