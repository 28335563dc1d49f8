//! Writes that are syncs themselves (O_SYNC), by fio.

use super::testbed::{Storage, Testbed, missing};
use crate::served::load::parse_rate;
use crate::target::Outcome;
use tidegate_measure::Pairs;
use tidegate_measure::programs::said;
use tidegate_measure::workload::Effort;

/// MiB of the pool.
const POOL_MIB: u32 = 512;

/// Writes per second under run over those on `storage`.
pub(super) fn compare(effort: Effort, block: &str, storage: Storage) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["fio"]) {
        return Ok(missing);
    }
    let (kept, plain) = (Testbed::new(Storage::UnderRun(POOL_MIB))?, Testbed::new(storage)?);
    let pairs = Pairs::try_alternate(effort.pairs, || rate(&kept, block), || rate(&plain, block))?;
    Ok(Outcome::ratio(&pairs, "writes/s"))
}

fn rate(testbed: &Testbed, block: &str) -> anyhow::Result<f64> {
    let mut fio = testbed.command("fio")?;
    fio.args(["--name=bench", "--ioengine=psync", "--thread", "--rw=randwrite", "--norandommap", "--sync=1"]);
    fio.args([
        "--filename=file",
        "--size=64m",
        "--overwrite=1",
        // Else fio has the kernel forget the file's pages first, and a write of less than one waits
        // for the disk to read it.
        "--invalidate=0",
        "--time_based",
        "--runtime=400ms",
        "--ramp_time=100ms",
    ]);
    fio.args(["--output-format=json", &format!("--bs={block}")]);
    parse_rate(said(&mut fio)?.as_bytes(), "write")
}
