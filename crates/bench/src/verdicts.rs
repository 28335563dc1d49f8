//! The topic `reproduction`: a verdict for each of the papers' 35 rows, judged from a run.
//!
//! A row is met if its run, in the quick form, contradicts none of the paper's claims: then it is
//! reproduced, or reproduced in shape, and says how many claims were run if not all of them were.
//! Claims and the rules by which they are judged are in [`tidegate_reproduction::verdicts`]. A row
//! without an experiment is missing.

use crate::reproduction::figures;
use crate::target::{Outcome, Row, Target, Topic};
use tidegate_reproduction::figure::Figure;
use tidegate_reproduction::verdicts::{JudgedRow, Judgement, PaperRow, Reproduced, rows};

/// How many of the rows are to be reproduced, or reproduced in shape.
const REPRODUCED_MIN: f64 = 30.0;

macro_rules! topic_rows {
    ($($name:literal: $paper:literal,)*) => {
        &[
            $(Row::here($name, concat!("claims of ", $paper, ", contradicted"), "row", Target::AtMost(0.0), |_| {
                of_row($name)
            }),)*
            Row::here(
                "reproduced",
                "rows reproduced, or reproduced in shape",
                "all rows",
                Target::AtLeast(REPRODUCED_MIN),
                |_| all(),
            ),
        ]
    };
}

/// The topic's table.
pub const TOPIC: Topic =
    Topic { name: "reproduction", about: "the papers' figures: a verdict for each row, from a run", rows: TOPIC_ROWS };

const TOPIC_ROWS: &[Row] = topic_rows! {
    "caiti-2a": "Caiti, Fig. 2a",
    "caiti-2b": "Caiti, Fig. 2b",
    "caiti-3": "Caiti, Fig. 2c-e, 3, 5b, 5c",
    "caiti-5a": "Caiti, Fig. 5a",
    "caiti-5d": "Caiti, Fig. 5d",
    "caiti-5e": "Caiti, Fig. 5e",
    "caiti-table-1": "Caiti, Table 1",
    "caiti-metadata": "Caiti, § 5.1",
    "caiti-6": "Caiti, Fig. 6",
    "caiti-7": "Caiti, Fig. 7",
    "caiti-8": "Caiti, Fig. 8",
    "caiti-9": "Caiti, Fig. 9",
    "caiti-10": "Caiti, Fig. 10",
    "tinca-3": "Tinca, Fig. 3",
    "tinca-4": "Tinca, Fig. 4",
    "tinca-7a": "Tinca, Fig. 7a",
    "tinca-7b": "Tinca, Fig. 7b",
    "tinca-7c": "Tinca, Fig. 7c",
    "tinca-8": "Tinca, Fig. 8",
    "tinca-10": "Tinca, Fig. 10",
    "tinca-11": "Tinca, Fig. 11",
    "tinca-12ab": "Tinca, Fig. 12a, 12b",
    "tinca-12c": "Tinca, Fig. 12c",
    "tinca-13": "Tinca, Fig. 13",
    "tinca-recovery": "Tinca, § 5.1",
    "hybrid-3": "Hybrid page cache, Fig. 3.2",
    "hybrid-5-1": "Hybrid page cache, Fig. 5.1",
    "hybrid-5-2": "Hybrid page cache, Fig. 5.2",
    "hybrid-5-3": "Hybrid page cache, Fig. 5.3 to 5.6",
    "uhnvm-8": "UHNVM, Fig. 8, 9",
    "uhnvm-10": "UHNVM, Fig. 10",
    "uhnvm-11": "UHNVM, Fig. 11, 12",
    "uhnvm-13": "UHNVM, Fig. 13",
    "cheetah-3": "Cheetah, Fig. 3",
    "cheetah-4": "Cheetah, Fig. 4",
};

fn of_row(name: &str) -> anyhow::Result<Outcome> {
    let row = rows().find(|row| row.name == name).expect("a test compares the names");
    Ok(outcome(&judged(row)?))
}

/// Runs the experiments of a row, and judges it by their figures.
fn judged(row: &'static PaperRow) -> anyhow::Result<JudgedRow> {
    let mut found: Vec<Figure> = Vec::new();
    for experiment in row.experiments {
        found.extend(figures(experiment)?);
    }
    Ok(JudgedRow::of(row, &found))
}

fn outcome(judged: &JudgedRow) -> Outcome {
    if judged.verdict() == Reproduced::NotRun {
        return match judged.row.experiments {
            [] => Outcome::missing("an experiment", judged.row.cause),
            _ => Outcome::missing("values of its claims", judged.not_run()),
        };
    }
    let contradicted = judged.count(Judgement::Contradicted) as u64;
    let cause = if judged.verdict() == Reproduced::Fully { "" } else { judged.row.cause };
    let told = [judged.in_numbers(), cause.to_owned()].into_iter().filter(|text| !text.is_empty());
    let numbers = told.collect::<Vec<_>>().join(". Cause: ");
    let verdict = format!("{} (judged on {})", judged.in_words(), judged.row.judged_on);
    Outcome::Claims { contradicted, verdict, numbers, not_run: judged.not_run() }
}

fn all() -> anyhow::Result<Outcome> {
    let mut reproduced = 0;
    for row in rows() {
        // A row whose experiment cannot run says so itself.
        let found = judged(row).map_or(Reproduced::NotRun, |judged| judged.verdict());
        reproduced += u64::from(found <= Reproduced::InShape);
    }
    Ok(Outcome::count(reproduced, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduction::tests::figure_of;
    use crate::target::Verdict;
    use tidegate_reproduction::Scale;
    use tidegate_reproduction::figure::{Point, Provenance, Series};

    #[test]
    fn the_topic_has_each_row_of_the_papers_by_its_name() {
        let (of_all, of_papers) = TOPIC_ROWS.split_last().expect("there are rows");
        assert!(of_papers.iter().map(|row| row.name).eq(rows().map(|row| row.name)));
        assert!(of_papers.iter().zip(rows()).all(|(row, paper)| row.over.contains(paper.paper)));
        assert_eq!(of_all.name, "reproduced");
    }

    #[test]
    fn a_row_without_figures_is_missing_and_never_met() {
        let row = rows().next().expect("there are rows");
        let outcome = outcome(&JudgedRow::of(row, &[]));
        assert_eq!(Target::AtMost(0.0).judge(&outcome), Verdict::Missing);
    }

    #[test]
    fn a_judged_row_says_on_which_subject_and_what_was_not_run() {
        let row = rows().find(|row| row.name == "tinca-12c").expect("a row of the papers");
        let series = Series { label: "Classic".to_owned(), points: vec![Point::exact("SSD, PCM", 81.0, None)] };
        let run = Provenance {
            command: String::new(),
            machine: String::new(),
            seed: String::new(),
            scale: Some(Scale::QUICK),
        };
        let figure = figure_of(std::iter::once(series));
        let figure = Figure { id: "tinca-fig-12c".to_owned(), run: Some(run), ..figure };
        let Outcome::Claims { verdict, not_run, .. } = outcome(&JudgedRow::of(row, &[figure])) else {
            panic!("a claim was judged");
        };
        assert_eq!(verdict, "reproduced, 1 of 3 claims run (judged on Tinca)");
        assert_eq!(not_run, "% of writes that hit: Tinca; Classic < Tinca, SSD, PCM (tinca-fig-12c)");
    }

    #[test]
    fn the_page_of_methods_names_each_row_that_cannot_be_reproduced_yet() {
        const PAGE: &str = include_str!("../../../docs/research/methods.md");
        let with = rows().filter(|row| !row.experiments.is_empty()).count();
        assert!(PAGE.contains(&format!("{with} of the {} rows", rows().count())));
        assert!(with as f64 >= REPRODUCED_MIN, "else the page is to say that the target cannot be reached");
        for row in rows() {
            let named = PAGE.lines().any(|line| line.starts_with(&format!("| {} |", row.paper)));
            assert_eq!(named, row.experiments.is_empty(), "{}", row.paper);
        }
    }

    #[test]
    fn one_contradicted_claim_is_short_of_the_target() {
        let claims = |contradicted| Outcome::Claims {
            contradicted,
            verdict: String::new(),
            numbers: String::new(),
            not_run: String::new(),
        };
        assert_eq!(Target::AtMost(0.0).judge(&claims(0)), Verdict::Met);
        assert_eq!(Target::AtMost(0.0).judge(&claims(1)), Verdict::Short);
    }
}
