//! The results of storms: their program is run as it is, and its account read.
//!
//! A campaign as large as that of the full test, and a hunt for every known mistake, run once each,
//! when the first row asks for them.

use crate::target::Outcome;
use anyhow::{Context, ensure};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use tidegate_measure::programs::{NO_CARGO, cargo_for_virtual_cores, on_virtual_cores_of};

/// Seeds of the campaign: as many as in the full test.
const SEEDS: &str = "2688";
/// Seeds that a mistake may take until it shows.
const SEEDS_OF_HUNT: &str = "8000";
/// Seeds of a sample of the speed.
const SEEDS_OF_SAMPLE: &str = "400";
/// Samples of the speed.
const SAMPLES: usize = 5;

/// A run of the program `storm` that several rows read.
struct Account {
    arguments: &'static [&'static str],
    text: Mutex<Option<String>>,
}

static CAMPAIGN: Account = Account { arguments: &["--seeds", SEEDS, "--marks"], text: Mutex::new(None) };
static HUNT: Account = Account { arguments: &["--hunt", SEEDS_OF_HUNT], text: Mutex::new(None) };

impl Account {
    fn read<T>(&self, what: impl FnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let said = match text.take() {
            Some(said) => said,
            None => storm(self.arguments)?,
        };
        what(text.insert(said))
    }
}

/// What `storm` prints. It may end with a failure: that is told by what it prints.
fn storm(arguments: &[&str]) -> anyhow::Result<String> {
    let arguments = arguments.iter().map(|&argument| argument.to_owned());
    let mut command = on_virtual_cores_of("tidegate-storm", "storm", arguments);
    let output = command.stderr(Stdio::inherit()).output().context(NO_CARGO)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(!text.is_empty(), "storm printed nothing ({})", output.status);
    Ok(text)
}

/// The number that stands before `words` in `text`.
fn number_before(text: &str, words: &str) -> anyhow::Result<f64> {
    let (before, _) = text.split_once(words).with_context(|| format!("storm says nothing of{words}"))?;
    let number = before.rsplit([' ', '(', '\n']).next().unwrap_or_default();
    number.parse().with_context(|| format!("{number:?} stands before{words}"))
}

/// Builds in which a seed has another digest than the tests have on record: in two processes, on 1
/// and 2 processors.
pub(super) fn digests() -> anyhow::Result<Outcome> {
    let differs = |profile: &[&str]| -> anyhow::Result<bool> {
        let arguments = [&["test", "--quiet", "--package", "tidegate-storm", "--test", "storm"], profile, &["digest"]];
        let mut command: Command = cargo_for_virtual_cores(arguments.concat());
        let output = command.output().context(NO_CARGO)?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("test result: "), "the test did not run ({})", output.status);
        Ok(!output.status.success())
    };
    let builds = [differs(&[])?, differs(&["--release"])?];
    Ok(Outcome::figure(&[builds.into_iter().filter(|differs| *differs).count() as f64], "builds"))
}

/// Scripts a second: 4 clients, 1,000 operations each, on block translation tables with and without
/// a cache.
pub(super) fn speed() -> anyhow::Result<Outcome> {
    let sample = || number_before(&storm(&["--base", "table", "--seeds", SEEDS_OF_SAMPLE])?, " seeds/s");
    let samples: Vec<f64> = (0..SAMPLES).map(|_| sample()).collect::<anyhow::Result<_>>()?;
    Ok(Outcome::figure(&samples, "seeds/s"))
}

/// What the campaign counted, told by the words behind it.
pub(super) fn counted(words: &str) -> anyhow::Result<Outcome> {
    CAMPAIGN.read(|text| Ok(Outcome::figure(&[number_before(text, words)?], "in all")))
}

/// Failures of the campaign, which ends at the first.
pub(super) fn failures() -> anyhow::Result<Outcome> {
    let failed = |line: &&str| line.starts_with("FAILED: ");
    CAMPAIGN.read(|text| Ok(Outcome::figure(&[text.lines().filter(failed).count() as f64], "failures")))
}

/// Rare paths of which the campaign took this share.
pub(super) fn marks() -> anyhow::Result<Outcome> {
    CAMPAIGN.read(|text| {
        let times = |line: &str| line.trim_start().split_once("  ")?.0.parse::<u64>().ok();
        let marks: Vec<u64> = text.lines().filter_map(times).collect();
        ensure!(!marks.is_empty(), "the campaign came to no account of its marks: {text}");
        Ok(share(&marks, |times| *times > 0))
    })
}

/// Mistakes whose description contains one of `parts`, and of them the share that showed.
pub(super) fn shown(parts: &[&str]) -> anyhow::Result<Outcome> {
    HUNT.read(|text| {
        let mistakes = mistakes(text).into_iter().filter(|(_, what)| parts.iter().any(|part| what.contains(part)));
        let mistakes: Vec<Option<f64>> = mistakes.map(|(seeds, _)| seeds).collect();
        ensure!(!mistakes.is_empty(), "the hunt knows no such mistake");
        Ok(share(&mistakes, Option::is_some))
    })
}

/// How many mistakes were hunted.
pub(super) fn hunted() -> anyhow::Result<Outcome> {
    HUNT.read(|text| Ok(Outcome::figure(&[mistakes(text).len() as f64], "mistakes")))
}

/// Seeds that it takes to show a mistake.
pub(super) fn seeds_to_show() -> anyhow::Result<Outcome> {
    HUNT.read(|text| {
        let seeds: Vec<f64> = mistakes(text).into_iter().filter_map(|(seeds, _)| seeds).collect();
        ensure!(!seeds.is_empty(), "the hunt showed nothing");
        Ok(Outcome::figure(&seeds, "seeds"))
    })
}

fn share<T>(all: &[T], good: impl Fn(&T) -> bool) -> Outcome {
    Outcome::figure(&[100.0 * all.iter().filter(|one| good(one)).count() as f64 / all.len() as f64], "%")
}

/// Each mistake of a hunt: the seeds it took, if it showed, and its description.
fn mistakes(text: &str) -> Vec<(Option<f64>, &str)> {
    let mistake = |line| -> Option<(Option<f64>, &str)> {
        let (seeds, what) = str::trim_start(line).split_once("  ")?;
        (seeds == "never" || seeds.parse::<u64>().is_ok()).then(|| (seeds.parse().ok(), what))
    };
    text.lines().filter_map(mistake).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_by_its_words() {
        let text = "3 scripts, 120 operations, 22 power cuts (9 in recoveries), 4 kills\n51.5 seeds/s\n";
        let read = |words| number_before(text, words).unwrap();
        let read = [" operations", " power cuts", " in recoveries)", " seeds/s"].map(read);
        assert_eq!(read, [120.0, 22.0, 9.0, 51.5]);
        assert!(number_before(text, " marks").is_err());
    }

    #[test]
    fn a_mistake_has_seeds_or_none() {
        let text = "    17  left out: Fence at a.rs:1: f()\n        thread 3: a read is torn\n never  late: Store at b.rs:2: s()\n        \n\
                    1 of 2 mistakes shown; median 17 seeds\n";
        let expected = [(Some(17.0), "left out: Fence at a.rs:1: f()"), (None, "late: Store at b.rs:2: s()")];
        assert_eq!(mistakes(text), expected);
    }
}
