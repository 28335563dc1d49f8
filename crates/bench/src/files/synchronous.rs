//! Writes that are syncs themselves (O_SYNC), by fio.

use super::testbed::{Storage, Testbed, missing};
use crate::served::load::parse_rate;
use crate::target::Outcome;
use tidegate_measure::Pairs;
use tidegate_measure::programs::said;
use tidegate_measure::workload::Effort;

/// Writes of 4 KiB per second in the first storage over those in the second.
pub(super) fn compare(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["fio"]) {
        return Ok(missing);
    }
    let (over, under) = (Testbed::new(at[0])?, Testbed::new(at[1])?);
    let pairs = Pairs::try_alternate(effort.pairs, || rate(&over), || rate(&under))?;
    Ok(Outcome::ratio(&pairs, "writes/s"))
}

fn rate(testbed: &Testbed) -> anyhow::Result<f64> {
    let mut fio = testbed.command("fio");
    fio.args(["--name=bench", "--ioengine=psync", "--thread", "--rw=randwrite", "--norandommap", "--sync=1"]);
    fio.args([
        "--filename=file",
        "--size=256m",
        "--overwrite=1",
        // Else fio has the kernel forget the file's pages first, and a write of less than one waits
        // for the disk to read it.
        "--invalidate=0",
        "--time_based",
        "--runtime=400ms",
        "--ramp_time=100ms",
    ]);
    fio.args(["--output-format=json", "--bs=4k"]);
    parse_rate(said(&mut fio)?.as_bytes(), "write")
}
