//! `tidegate check`: every rule of the format, each finding with its rule and offset; with `--repair`, put right.

use crate::answer;
use crate::check_cache;
use crate::compose;
use crate::create;
use crate::failure::{Exit, Failure, VolumeFailure};
use crate::grammar::Check;
use crate::sealing::is_full;
use crate::shell::word;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use tidegate_btt::{Counts, Finding, Repair, Report, check};
use tidegate_media::{Access, Region};

/// What `check` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "crate::json_path")]
    file: PathBuf,
    sound: bool,
    /// After a repair: what they are used for now.
    blocks: Uses,
    /// Sectors whose data the repair gave up.
    given_up: u64,
    findings: Vec<Violation>,
}

/// What the volume's blocks are used for.
#[derive(Serialize)]
struct Uses {
    never_written: u64,
    data: u64,
    zero: u64,
    lost: u64,
    free: u64,
    interrupted: u64,
}

/// A broken rule.
#[derive(Serialize)]
struct Violation {
    rule: &'static str,
    offset: u64,
    found: String,
    repaired: bool,
}

impl Answer {
    fn new(file: PathBuf, report: Report) -> Answer {
        let sound = report.is_sound();
        let Counts { initial, normal, zero, error, free, interrupted } = report.counts;
        let blocks = Uses { never_written: initial, data: normal, zero, lost: error, free, interrupted };
        let given_up = report.given_up;
        Answer { file, sound, blocks, given_up, findings: report.findings.into_iter().map(Violation::from).collect() }
    }

    fn exit(&self) -> Exit {
        if self.sound { Exit::Done } else { Exit::Refused }
    }

    fn verdict(&self) -> String {
        let left = self.findings.iter().filter(|finding| !finding.repaired).count();
        match (left, self.findings.len()) {
            (0, 0) => "sound: every rule is kept".to_owned(),
            (0, repaired) => match self.given_up {
                0 => format!("sound again: {repaired} broken rules repaired, and no sector was lost"),
                lost => format!(
                    "sound again: {repaired} broken rules repaired; the data of {lost} sectors was lost, and reads of them fail \
                     until they are written"
                ),
            },
            (left, _) if is_full(&self.file) => format!("damaged: {left} broken rules, on a full file system"),
            (left, _) => format!(
                "damaged: {left} broken rules; keep a copy of the file, then run: tidegate check --repair --pmem {}",
                word(&self.file)
            ),
        }
    }
}

/// So many findings of one rule are shown to people, and the others counted; `--json` has all of them.
const FINDINGS_OF_A_RULE_MAX: usize = 8;

/// What was found of each rule, in the order of its first finding.
fn by_rule(findings: &[Violation]) -> Vec<Vec<&Violation>> {
    let mut rules: Vec<Vec<&Violation>> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for finding in findings {
        let nth = *known.entry((finding.rule, finding.repaired)).or_insert(rules.len());
        match rules.get_mut(nth) {
            Some(rule) => rule.push(finding),
            None => rules.push(vec![finding]),
        }
    }
    rules
}

impl From<Finding> for Violation {
    fn from(finding: Finding) -> Violation {
        let Finding { corrupt, repaired } = finding;
        Violation { rule: corrupt.rule, offset: corrupt.at, found: corrupt.found, repaired }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Uses { never_written, data, zero, lost, free, interrupted } = self.blocks;
        answer::line(f, "volume", self.file.display())?;
        let uses = format_args!("{data} data, {zero} zero, {never_written} never written, {lost} lost, {free} free");
        answer::line(f, "blocks", uses)?;
        if interrupted > 0 {
            let note = format_args!("{interrupted} writes, committed and kept; the next serve finishes them");
            answer::line(f, "pending", note)?;
        }
        for findings in by_rule(&self.findings) {
            let state = if findings[0].repaired { "repaired" } else { "broken" };
            for Violation { rule, offset, found, .. } in findings.iter().take(FINDINGS_OF_A_RULE_MAX) {
                answer::line(f, state, format_args!("at {offset:#x}: {rule} (found {found})"))?;
            }
            if let others @ 1.. = findings.len().saturating_sub(FINDINGS_OF_A_RULE_MAX) {
                answer::line(f, state, format_args!("at {others} more places: {}", findings[0].rule))?;
            }
        }
        if !self.findings.is_empty() && is_full(&self.file) {
            let full = "it has no room: stores to places of the file that it never gave bytes to are lost, and reads of them fail; make room, then check again";
            answer::line(f, "room", full)?;
        }
        write!(f, "{:<10} {}", "result", self.verdict())
    }
}

/// Runs `tidegate check`.
pub(crate) fn run(wish: &Check, json: bool) -> Result<Exit, Failure> {
    let path = wish.region.path();
    let (access, repair) = if wish.repair { (Access::ReadWrite, Repair::Yes) } else { (Access::Private, Repair::No) };
    let region = compose::map(&path, access)?;
    if compose::cache_in(&path, &region)?.is_some() {
        return check_cache::run(&path, &region, json);
    }
    let refused = if wish.repair { VolumeFailure::of_repair } else { VolumeFailure::of_check };
    let report = check(&region, repair).map_err(|error| refused(&path, region.len(), error))?;
    if wish.repair {
        create::sync(&path, &region)?;
    }
    let answer = Answer::new(path, report);
    answer::end_with(&answer, json, answer.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_findings_of_one_rule_are_counted() {
        let finding = |rule, offset| Violation { rule, offset, found: format!("{offset}"), repaired: false };
        let file = PathBuf::from("/nowhere");
        let blocks = Uses { never_written: 0, data: 0, zero: 0, lost: 0, free: 0, interrupted: 0 };
        let mut findings: Vec<_> = (1..=30).map(|at| finding("a", at)).collect();
        findings.insert(3, finding("b", 99));
        let shown = Answer { file, sound: false, blocks, given_up: 0, findings }.to_string();
        for line in ["at 0x8: a (found 8)\n", "broken     at 22 more places: a\n", "at 0x63: b (found 99)\n"] {
            assert!(shown.contains(line), "no {line:?} in {shown}");
        }
        assert!(!shown.contains("found 9)"), "{shown}");
        assert!(shown.contains("damaged: 31 broken rules") && shown.contains("--repair"), "{shown}");
    }
}
