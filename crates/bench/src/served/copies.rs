//! Whole volumes filled and read by nbdcopy, as it does it unless told otherwise.

use super::server::{self, Place, Rival, Server};
use crate::target::Outcome;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::medium::ScratchPath;
use tidegate_measure::workload::Effort;

/// MiB/s into Tidegate over those into nbdkit's file.
pub(super) fn copy_in(effort: Effort) -> anyhow::Result<Outcome> {
    compare(effort, |copying, server| copying.fill(server))
}

/// MiB/s out of Tidegate over those out of nbdkit's file.
pub(super) fn copy_out(effort: Effort) -> anyhow::Result<Outcome> {
    compare(effort, |copying, server| copying.drain(server))
}

type Copy = fn(&Copying, &Server) -> anyhow::Result<f64>;

fn compare(effort: Effort, copy: Copy) -> anyhow::Result<Outcome> {
    if let Some(missing) = server::missing(&["nbdcopy", Rival::File.program()], server::REMEDY) {
        return Ok(missing);
    }
    let ours = Server::tidegate(Place::Apart)?;
    // Nothing is left over at either end: a volume is a little larger than 1 GiB, and so are the
    // others.
    let copying = Copying::new(ours.client()?.bytes())?;
    let theirs = Rival::File.start(Place::Apart, copying.bytes)?;
    copying.fill(&ours)?;
    copying.fill(&theirs)?;
    let pairs = Pairs::try_alternate(effort.pairs, || copy(&copying, &ours), || copy(&copying, &theirs))?;
    Ok(Outcome::ratio(&pairs, "MiB/s"))
}

/// What is copied.
struct Copying {
    bytes: u64,
    source: ScratchPath,
}

impl Copying {
    fn new(bytes: u64) -> anyhow::Result<Copying> {
        let source = ScratchPath::new();
        write_without_holes(source.as_path(), bytes)?;
        Ok(Copying { bytes, source })
    }

    fn fill(&self, server: &Server) -> anyhow::Result<f64> {
        self.speed(Command::new("nbdcopy").arg(self.source.as_path()).arg(server.uri()))
    }

    fn drain(&self, server: &Server) -> anyhow::Result<f64> {
        self.speed(Command::new("nbdcopy").arg(server.uri()).arg("null:"))
    }

    fn speed(&self, copy: &mut Command) -> anyhow::Result<f64> {
        let began = Instant::now();
        server::run(copy)?;
        Ok(self.bytes as f64 / f64::from(1 << 20) / began.elapsed().as_secs_f64())
    }
}

/// No block of it is all zeroes: those would not be copied.
fn write_without_holes(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let piece: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24).to_le_bytes()[0]).collect();
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let now = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.write_all(&piece[..now])?;
        left -= now as u64;
    }
    Ok(())
}
