//! `others-suites`: test suites of others in a mount and beside it, compared case by case.
//!
//! The tests run the shortest suites; this runs whole ones, and ends with exit code 1 if a case
//! differs that is not known to.

#![forbid(unsafe_code)]

use clap::Parser;
use clap::builder::PossibleValuesParser;
use std::process::ExitCode;
use tidegate_trials::suites::{Compared, SUITES, Suite};

/// SQLite's, LevelDB's and Git's own tests, `fsx` and stress-ng's stressors, each in a mount and on
/// the file system of its SOURCE. Fetches and builds them the first time. A case that ends
/// differently and is not a known difference ends the program with exit code 1.
#[derive(Parser)]
#[command(name = "others-suites")]
struct Arguments {
    /// Only this suite
    #[arg(long, value_parser = PossibleValuesParser::new(SUITES.map(|suite| suite.name)))]
    suite: Option<String>,
    /// Only scripts whose names begin so, as in `t1 t20`.
    begin: Vec<String>,
}

fn main() -> ExitCode {
    let Arguments { suite, begin } = Arguments::parse();
    let wanted = SUITES.iter().filter(|one| suite.as_ref().is_none_or(|name| name == one.name));
    // One that differs keeps none from being compared.
    let differing = wanted.filter(|suite| !is_same(suite, &begin)).count();
    if differing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Compares a suite, and tells of it.
fn is_same(suite: &Suite, begin: &[String]) -> bool {
    let compared = suite.compare(begin).unwrap_or_else(|error| panic!("{error}"));
    let is_good = compared.is_good();
    let Compared { scripts, cases, failed_on_disk, known, differences, void } = compared;
    known.iter().for_each(|difference| println!("known: {difference}"));
    differences.iter().for_each(|difference| println!("{difference}"));
    void.iter().for_each(|script| println!("{script}: nothing passed on the disk, so nothing was compared"));
    let (known, new) = (known.len(), differences.len());
    println!(
        "{}: {scripts} scripts, {cases} cases, {failed_on_disk} fail on the disk; {known} known differences, {new} others",
        suite.name
    );
    is_good
}
