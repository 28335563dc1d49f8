//! `tidegate check`: every rule of the format, each finding with its rule and offset; with
//! `--repair`, put right.

use crate::commands::files::check_pool;
use crate::commands::volume::check_cache;
use crate::commands::volume::consent;
use crate::errors::{Exit, Failure};
use crate::grammar::Check;
use crate::output;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_btt::{CheckReport, Counts, ERROR_FLAG_RULE, Finding, Repair, check};
use tidegate_host::columns::line;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::{Access, LbaRange};
use tidegate_server::failure::VolumeFailure;
use tidegate_volume_region::append_log::LogDescription;
use tidegate_volume_region::mirror::{self, MirrorPlan};
use tidegate_volume_region::region;

/// What `check` answers.
#[derive(Serialize)]
struct VolumeCheck {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    sound: bool,
    /// After a repair: what they are used for now.
    blocks: Uses,
    /// Sectors whose data the repair gave up.
    given_up: u64,
    /// What a repair gives up, or gave up.
    repair_loses: Loss,
    /// Blocks whose place was free for writes too.
    doubtful: Vec<BlockRange>,
    findings: Vec<BrokenRule>,
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

/// Blocks in a row.
#[derive(Serialize)]
struct BlockRange {
    first: u64,
    blocks: u64,
}

impl From<LbaRange> for BlockRange {
    fn from(range: LbaRange) -> BlockRange {
        BlockRange { first: range.first.0, blocks: range.blocks }
    }
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocks {
            1 => write!(f, "{}", self.first),
            blocks => write!(f, "{} to {}", self.first, self.first + blocks - 1),
        }
    }
}

/// Blocks that are lost by a repair.
#[derive(Serialize)]
struct Loss {
    blocks: u64,
    bytes: u64,
    ranges: Vec<BlockRange>,
}

impl Loss {
    fn of(report: &CheckReport) -> Loss {
        let blocks = report.at_stake.iter().map(|range| range.blocks).sum();
        let bytes = blocks * u64::from(report.summary.block_size);
        Loss { blocks, bytes, ranges: report.at_stake.iter().copied().map(BlockRange::from).collect() }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocks {
            0 => f.write_str("no block"),
            blocks => write!(f, "{blocks} blocks ({}): {}", Human(self.bytes), listed(&self.ranges)),
        }
    }
}

/// So many ranges of blocks are shown to people, and the others counted; `--json` has all of them.
const RANGES_MAX: usize = 8;

fn listed(ranges: &[BlockRange]) -> String {
    let mut shown: Vec<String> = ranges.iter().take(RANGES_MAX).map(ToString::to_string).collect();
    if let more @ 1.. = ranges.len().saturating_sub(RANGES_MAX) {
        shown.push(format!("and {more} more ranges (--json lists them)"));
    }
    shown.join(", ")
}

/// A broken rule.
#[derive(Serialize)]
struct BrokenRule {
    rule: &'static str,
    offset: u64,
    found: String,
    repaired: bool,
}

impl VolumeCheck {
    fn new(file: PathBuf, report: CheckReport) -> VolumeCheck {
        let sound = report.is_sound();
        let Counts { initial, normal, zero, error, free, interrupted } = report.counts;
        let blocks = Uses { never_written: initial, data: normal, zero, lost: error, free, interrupted };
        let (given_up, repair_loses) = (report.given_up, Loss::of(&report));
        let doubtful = report.doubtful.into_iter().map(BlockRange::from).collect();
        let findings = report.findings.into_iter().map(BrokenRule::from).collect();
        VolumeCheck { file, sound, blocks, given_up, repair_loses, doubtful, findings }
    }

    fn exit(&self) -> Exit {
        if self.sound && self.given_up == 0 { Exit::Done } else { Exit::Refused }
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
            (left, _) => format!(
                "damaged: {left} broken rules; keep a copy of the file, then run: tidegate check --repair --pmem {}",
                word(&self.file)
            ),
        }
    }
}

/// So many findings of one rule are shown to people, and the others counted; `--json` has all of
/// them.
const FINDINGS_OF_A_RULE_MAX: usize = 8;

/// What was found of each rule, in the order of its first finding.
fn by_rule(findings: &[BrokenRule]) -> Vec<Vec<&BrokenRule>> {
    let mut rules: Vec<Vec<&BrokenRule>> = Vec::new();
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

impl From<Finding> for BrokenRule {
    fn from(finding: Finding) -> BrokenRule {
        let Finding { corrupt, repaired } = finding;
        BrokenRule { rule: corrupt.rule, offset: corrupt.at, found: corrupt.found, repaired }
    }
}

impl fmt::Display for VolumeCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Uses { never_written, data, zero, lost, free, interrupted } = self.blocks;
        line(f, "volume", self.file.display())?;
        let uses = format_args!("{data} data, {zero} zero, {never_written} never written, {lost} lost, {free} free");
        line(f, "blocks", uses)?;
        if interrupted > 0 {
            let note = format_args!("{interrupted} writes, committed and kept; the next serve finishes them");
            line(f, "pending", note)?;
        }
        for findings in by_rule(&self.findings) {
            let state = if findings[0].repaired { "repaired" } else { "broken" };
            for BrokenRule { rule, offset, found, .. } in findings.iter().take(FINDINGS_OF_A_RULE_MAX) {
                line(f, state, format_args!("at {offset:#x}: {rule} (found {found})"))?;
            }
            if let others @ 1.. = findings.len().saturating_sub(FINDINGS_OF_A_RULE_MAX) {
                line(f, state, format_args!("at {others} more places: {}", findings[0].rule))?;
            }
        }
        if self.findings.iter().any(|finding| finding.rule == ERROR_FLAG_RULE && !finding.repaired) {
            line(
                f,
                "error flag",
                "whatever wrote the volume found the arena damaged; a repair checks it and clears the flag",
            )?;
        }
        if !self.findings.is_empty() {
            let would = if self.sound { "gave up" } else { "would give up" };
            line(f, "repair", format_args!("{would} {}", self.repair_loses))?;
        }
        if !self.doubtful.is_empty() {
            let blocks = listed(&self.doubtful);
            let why = "their place was also free for writes, one of which may have overwritten it";
            line(f, "doubtful", format_args!("blocks {blocks}: {why}; compare them with a copy"))?;
        }
        write!(f, "{:<10} {}", "result", self.verdict())
    }
}

fn question(path: &Path, loss: &Loss) -> String {
    format!("The repair of {} gives up {loss}. Reads of them fail until they are written.", path.display())
}

/// Runs `tidegate check`.
pub(crate) fn run(args: &Check, json: bool) -> Result<Exit, Failure> {
    let path = tidegate_file_service::pool_of(&args.region.path());
    if tidegate_file_service::is_pool(&path) {
        return check_pool::run(&path, json);
    }
    let repairs = args.repair && !args.dry_run;
    let access = if repairs { Access::ReadWrite } else { Access::Private };
    let mapped = match MirrorPlan::with(args.mirror.clone()) {
        MirrorPlan::Absent => region::map(&path, access)?,
        plan => mirror::open(&path, &plan, access)?,
    };
    if let Some(log) = LogDescription::of(&path, &mapped)? {
        return output::end_with(&log, json, if log.is_sound() { Exit::Done } else { Exit::Refused });
    }
    if region::cache_in(&path, &mapped)?.is_some() {
        return check_cache::run(&path, &mapped, json);
    }
    let refused = if repairs { VolumeFailure::of_repair } else { VolumeFailure::of_check };
    let refused = |error| refused(&path, region::bytes_of(&mapped), error);
    let mut report = check(&mapped, Repair::No).map_err(refused)?;
    if repairs {
        let loss = Loss::of(&report);
        if loss.blocks > 0 && !args.yes && !consent::given(&question(&path, &loss), json) {
            return Err(VolumeFailure::RepairLoses { path, why: format!("the repair would give up {loss}") }.into());
        }
        report = check(&mapped, Repair::Yes).map_err(refused)?;
        region::sync(&path, &mapped)?;
    }
    let answer = VolumeCheck::new(path, report);
    output::end_with(&answer, json, answer.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_findings_of_one_rule_are_counted() {
        let finding = |rule, offset| BrokenRule { rule, offset, found: format!("{offset}"), repaired: false };
        let file = PathBuf::from("/nowhere");
        let blocks = Uses { never_written: 0, data: 0, zero: 0, lost: 0, free: 0, interrupted: 0 };
        let mut findings: Vec<_> = (1..=30).map(|at| finding("a", at)).collect();
        findings.insert(3, finding("b", 99));
        let repair_loses = Loss { blocks: 0, bytes: 0, ranges: Vec::new() };
        let doubtful = Vec::new();
        let shown =
            VolumeCheck { file, sound: false, blocks, given_up: 0, repair_loses, doubtful, findings }.to_string();
        for line in ["at 0x8: a (found 8)\n", "broken     at 22 more places: a\n", "at 0x63: b (found 99)\n"] {
            assert!(shown.contains(line), "no {line:?} in {shown}");
        }
        assert!(!shown.contains("found 9)"), "{shown}");
        assert!(shown.contains("damaged: 31 broken rules") && shown.contains("--repair"), "{shown}");
    }
}
