//! RocksDB's own benchmark, and tar.

use super::testbed::{Storage, Testbed, missing};
use crate::target::Outcome;
use std::path::Path;
use tidegate_measure::Pairs;
use tidegate_measure::programs::said;
use tidegate_measure::workload::Effort;
use tidegate_reproduction::caiti::applications::microseconds;

/// The files of a store under `run`.
pub(crate) const RUN: Storage = Storage::UnderRun(512);

/// Puts of a fill.
const FILL: u32 = 50_000;
const SYNCED_FILL: u32 = 20_000;

/// Keys that puts are spread over; with a sync behind each, db_bench takes a thousandth of them.
const KEYS: u32 = 1_000_000;

/// How often a sample packs and unpacks.
const TARS: u32 = 1;

/// Puts per second with a sync behind each, in the first storage over those in the second.
pub(crate) fn fill_sync(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    fill(effort, "fillsync", SYNCED_FILL, at)
}

/// Puts per second without any sync, over those on the disk.
pub(super) fn fill_random(effort: Effort) -> anyhow::Result<Outcome> {
    fill(effort, "fillrandom", FILL, [RUN, Storage::Disk])
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
    let mut command = testbed.command("db_bench")?;
    command.arg(format!("--benchmarks={benchmark}")).arg(format!("--db={}", testbed.root().join("db").display()));
    command.args([format!("--num={KEYS}"), format!("--writes={puts}")]);
    command.args(["--value_size=128", "--compression_type=none"]);
    Ok(1e6 / microseconds(&said(&mut command)?, benchmark)?)
}

/// Milliseconds to pack and unpack a source tree, over those on the disk.
pub(super) fn tar(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["tar"]) {
        return Ok(missing);
    }
    let (kept, plain) = (Testbed::new(RUN)?, Testbed::new(Storage::Disk)?);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate lies among others");
    let pairs = Pairs::try_alternate(effort.pairs, || tarred(&kept, sources), || tarred(&plain, sources))?;
    Ok(Outcome::ratio(&pairs, "ms"))
}

/// The clock is inside of the run: its start and its end are not tar's.
fn tarred(testbed: &Testbed, sources: &Path) -> anyhow::Result<f64> {
    let script = r#"
        began=$(date +%s%N)
        for turn in $(seq "$2"); do
            mkdir tree
            tar cf tree.tar -C "$1" .
            tar xf tree.tar -C tree
            rm -r tree tree.tar
        done
        echo $(($(date +%s%N) - began))
    "#;
    let mut command = testbed.command("sh")?;
    command.args(["-euc", script, "sh"]).arg(sources).arg(TARS.to_string());
    let nanoseconds: f64 = said(&mut command)?.parse()?;
    Ok(nanoseconds / 1e6 / f64::from(TARS))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_was_packed_and_unpacked_is_gone() {
        let (testbed, sources) = (Testbed::new(Storage::Memory).unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(sources.path().join("file"), b"bytes").unwrap();
        assert!(tarred(&testbed, sources.path()).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(testbed.root()).unwrap().count(), 0);
        assert!(tarred(&testbed, &sources.path().join("nowhere")).is_err());
    }
}
