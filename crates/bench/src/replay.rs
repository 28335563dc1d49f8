//! The command `bench replay`: a trace over tiers of any size, by each placement.

use anyhow::{Context, ensure};
use std::fmt::Write;
use std::path::PathBuf;
use tidegate_access_trace::{Recorded, Trace};
use tidegate_baselines::placement::Rival;
use tidegate_measure::replay::costs::MemoryCosts;
use tidegate_measure::replay::tiers::Replay;
use tidegate_policy::placement::{NamedPlacement, PAGE_BYTES, Placement, TierSlots};

/// What to replay, and over which tiers.
#[derive(clap::Args)]
pub struct Replaying {
    /// The trace: a text whose lines are requests
    trace: PathBuf,
    /// Size of DRAM, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=MIB_MAX))]
    dram: u32,
    /// Size of NVM, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=MIB_MAX))]
    nvm: u32,
    /// Only this placement, and how often it decided for each reason
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(NamedPlacement::ALL.map(NamedPlacement::name)))]
    placement: Option<String>,
}

/// The largest tier.
const MIB_MAX: i64 = 1 << 20;

/// Returns a table of what each placement does with the trace.
pub fn replay(wish: &Replaying) -> anyhow::Result<String> {
    let path = wish.trace.display();
    let bytes = std::fs::read(&wish.trace).with_context(|| format!("read {path}"))?;
    // Of a run that was killed there are only records.
    let trace = match str::from_utf8(&bytes).ok().filter(|text| text.starts_with("tidegate-trace")) {
        Some(text) => Trace::parse(text),
        None => Recorded::parse(&bytes).map(|recorded| recorded.trace),
    };
    let trace = trace.with_context(|| format!("read {path}"))?;
    ensure!(wish.dram + wish.nvm > 0, "no tier has a size: give --dram or --nvm");
    let slots = |mib: u32| u32::try_from((u64::from(mib) << 20) / PAGE_BYTES).context("a tier is too large");
    let slots = TierSlots { dram: slots(wish.dram)?, nvm: slots(wish.nvm)? };
    slots.dram.checked_add(slots.nvm).context("the tiers are too large together")?;
    if let Some(name) = &wish.placement {
        let named: NamedPlacement = name.parse().ok().context("no placement has this name")?;
        return Ok(alone(named, slots, &trace));
    }
    let mut table = HEADING.to_owned();
    for named in NamedPlacement::ALL {
        table += &line(named.name(), &replayed(named.over(slots), slots, &trace));
    }
    for rival in Rival::ALL {
        table += &line(rival.name(), &replayed(rival.over(slots), rival.tiers(slots), &trace));
    }
    Ok(table)
}

const HEADING: &str =
    "placement            DRAM hits  NVM hits  read below  written below  left dirty  NVM lines written  virtual ms\n";

fn replayed(placement: Box<dyn Placement>, slots: TierSlots, trace: &Trace) -> Replay {
    let mut replay = Replay::new(placement, slots, MemoryCosts::OPTANE);
    trace.requests.iter().for_each(|request| replay.request(request));
    replay
}

fn line(name: &str, replay: &Replay) -> String {
    let counts = replay.counts();
    let percent = |hits: u64| 100.0 * hits as f64 / counts.pages.max(1) as f64;
    format!(
        "{name:<19}  {:>8.2}%  {:>7.2}%  {:>10}  {:>13}  {:>10}  {:>17}  {:>10.1}\n",
        percent(counts.hits_dram),
        percent(counts.hits_nvm),
        counts.read_below,
        counts.written_below,
        replay.dirty(),
        counts.lines_written,
        counts.ps as f64 / 1e9
    )
}

fn alone(named: NamedPlacement, slots: TierSlots, trace: &Trace) -> String {
    let replay = replayed(named.over(slots), slots, trace);
    let mut table = HEADING.to_owned() + &line(named.name(), &replay) + "\npages  because\n";
    for (reason, count) in replay.reasons() {
        let _ = writeln!(table, "{count:>5}  {reason}");
    }
    let (slot, contexts) = (named.bytes_per_slot(), named.bytes_of_contexts());
    let _ = writeln!(table, "\nmemory: at most {slot} bytes for each slot, and {contexts} for program contexts");
    table
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    fn wish(text: &str, placement: Option<&str>) -> anyhow::Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        std::fs::write(&trace, text).unwrap();
        replay(&Replaying { trace, dram: 1, nvm: 1, placement: placement.map(str::to_owned) })
    }

    #[test]
    fn every_placement_has_a_line_with_its_counts() {
        let table = wish("tidegate-trace 1\n0 a 1 0 8192 r\n1 a 1 0 4096 r\n2 a 1 0 4096 s\n", None).unwrap();
        assert_eq!(table.lines().count(), 1 + NamedPlacement::ALL.len() + Rival::ALL.len());
        let lru = table.lines().find(|line| line.starts_with("lru")).unwrap();
        let words: Vec<&str> = lru.split_whitespace().collect();
        assert_eq!(words[..6], ["lru", "50.00%", "0.00%", "2", "0", "1"]);
    }

    #[test]
    fn one_placement_tells_its_reasons_and_its_memory() {
        let table =
            wish("tidegate-trace 1\n0 a 1 0 4096 r\n1 a 1 0 4096 r\n2 a 1 0 4096 s\n", Some("cheetah")).unwrap();
        assert!(table.contains("    1  it was read from the file below\n"), "{table}");
        assert!(
            table.contains("    1  its write was synchronous\n") && table.contains("bytes for each slot"),
            "{table}"
        );
    }

    #[test]
    fn a_text_that_is_no_trace_is_refused() {
        let error = |text| format!("{:#}", wish(text, None).unwrap_err());
        assert!(error("tidegate-trace 2\n").contains("begins with"));
        assert!(error("0 a 1 0 1 r\n").contains("the last record is cut short: it has 12 bytes"));
    }
}
