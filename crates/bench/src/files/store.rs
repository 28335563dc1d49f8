//! RocksDB's own benchmark.

use super::testbed::{Storage, Testbed, missing};
use crate::target::Outcome;
use tidegate_measure::Pairs;
use tidegate_measure::programs::said;
use tidegate_measure::workload::Effort;
use tidegate_reproduction::caiti::applications::microseconds;

/// Puts of a fill.
const FILL: u32 = 50_000;
const SYNCED_FILL: u32 = 20_000;

/// Keys that puts are spread over; with a sync behind each, db_bench takes a thousandth of them.
const KEYS: u32 = 1_000_000;

/// Puts per second with a sync behind each, in the first storage over those in the second.
pub(crate) fn fill_sync(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    fill(effort, "fillsync", SYNCED_FILL, at)
}

/// Puts per second without any sync, in the first storage over those in the second.
pub(super) fn fill_random(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    fill(effort, "fillrandom", FILL, at)
}

fn fill(effort: Effort, benchmark: &str, puts: u32, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["db_bench"]) {
        return Ok(missing);
    }
    let (over, under) = (Testbed::new(at[0])?, Testbed::new(at[1])?);
    let rate = |testbed: &Testbed| puts_per_second(testbed, benchmark, puts.min(effort.steps));
    let pairs = Pairs::try_alternate(effort.pairs, || rate(&over), || rate(&under))?;
    Ok(Outcome::ratio(&pairs, "puts/s"))
}

fn puts_per_second(testbed: &Testbed, benchmark: &str, puts: u32) -> anyhow::Result<f64> {
    let mut command = testbed.command("db_bench");
    command.arg(format!("--benchmarks={benchmark}")).arg(format!("--db={}", testbed.root().join("db").display()));
    command.args([format!("--num={KEYS}"), format!("--writes={puts}")]);
    command.args(["--value_size=128", "--compression_type=none"]);
    Ok(1e6 / microseconds(&said(&mut command)?, benchmark)?)
}
