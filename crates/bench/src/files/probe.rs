//! A program that writes and syncs: this program's own child, under `run` or without. It does as
//! many writes as it is told, and tells their time.

use super::testbed::{Storage, Talker, Testbed, missing};
use crate::target::Outcome;
use clap::ValueEnum;
use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::medium;
use tidegate_measure::subject::{BLOCK_BYTES, Bare, Block, StreamedCopies, sweep};
use tidegate_measure::workload::{Effort, Walk};
use tidegate_sim::Rng;

/// Bytes that random writes go to.
const SPAN_BYTES: u64 = 256 << 20;

/// MiB of a pool that has room for all of them, out of sync.
const POOL_MIB: u32 = 1024;

/// Syncs in a sample under run, at most; the disk does a tenth.
const SYNCS_MAX: u32 = 4000;

/// Bytes of an append.
const APPEND_BYTES: usize = 100;

/// Where a probe writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Blocks of 4 KiB, anywhere in 256 MiB.
    Random,
    /// 100 bytes behind the last.
    Append,
}

/// What a probe is told when it starts.
#[derive(Clone, Debug, clap::Args)]
pub struct Probing {
    /// Where it writes
    pub pattern: Pattern,
    /// The file, made if it is absent
    pub file: PathBuf,
}

/// Does as many writes with a sync behind each as a line of `asked` says, and tells the nanoseconds
/// they took.
pub fn probe(wish: &Probing, asked: impl BufRead, mut told: impl Write) -> anyhow::Result<()> {
    let appends = wish.pattern == Pattern::Append;
    let mut file =
        File::options().read(true).append(appends).write(true).create(true).truncate(false).open(&wish.file)?;
    if !appends {
        fill(&file)?;
    }
    let (mut random, block) = (Rng::new(7), Block::filled(7));
    for line in asked.lines() {
        let writes: u32 = line?.trim().parse()?;
        let began = Instant::now();
        for _ in 0..writes {
            match wish.pattern {
                Pattern::Random => {
                    let at = random.below(SPAN_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
                    file.write_all_at(block.bytes(), at)?;
                }
                Pattern::Append => file.write_all(&block.bytes()[..APPEND_BYTES])?,
            }
            file.sync_data()?;
        }
        writeln!(told, "{}", began.elapsed().as_nanos())?;
        told.flush()?;
    }
    Ok(())
}

/// By blocks, as a database's file grows: ext4 has the pages of a larger write in one folio, in
/// which each later write takes longer.
fn fill(file: &File) -> anyhow::Result<()> {
    let piece = vec![1; BLOCK_BYTES];
    (0..SPAN_BYTES).step_by(piece.len()).try_for_each(|at| file.write_all_at(&piece, at))?;
    Ok(file.sync_all()?)
}

/// A probe that was started.
pub(super) struct Probe {
    talker: Talker,
}

impl Probe {
    /// Starts one at `testbed`. It has done some writes when this returns: its file is accelerated
    /// from now on.
    pub(super) fn start(testbed: &Testbed, pattern: Pattern) -> anyhow::Result<Probe> {
        let mut command = testbed.command(std::env::current_exe()?)?;
        let pattern_name = pattern.to_possible_value().expect("no pattern is hidden");
        command.args(["probe", pattern_name.get_name()]).arg(testbed.root().join("file"));
        let mut probe = Probe { talker: Talker::start(&mut command)? };
        probe.nanoseconds(20)?;
        Ok(probe)
    }

    /// Nanoseconds of a write and its sync, in the mean over `writes`.
    pub(super) fn nanoseconds(&mut self, writes: u32) -> anyhow::Result<f64> {
        let all: f64 = self.talker.ask(&format!("{writes}\n"))?.parse()?;
        Ok(all / f64::from(writes))
    }
}

fn syncs(effort: Effort) -> u32 {
    effort.steps.min(SYNCS_MAX)
}

/// The time under run over that of a streamed copy.
pub(super) fn over_floor(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let testbed = Testbed::new(Storage::UnderRun(POOL_MIB))?;
    let mut probe = Probe::start(&testbed, Pattern::Random)?;
    let region = medium::region(SPAN_BYTES)?;
    let copies = StreamedCopies(Bare::all(&region));
    sweep(&copies);
    let mut walk = Walk::new(effort.steps);
    let floor = || Ok(walk.take(&copies, 1).nanoseconds_per_step);
    let pairs = Pairs::try_alternate(effort.pairs, || probe.nanoseconds(syncs(effort)), floor)?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

/// The time on the disk over that under run.
pub(super) fn disk_over_run(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let (plain, kept) = (Testbed::new(Storage::Disk)?, Testbed::new(Storage::UnderRun(POOL_MIB))?);
    let (mut plain, mut kept) = (Probe::start(&plain, Pattern::Random)?, Probe::start(&kept, Pattern::Random)?);
    let syncs = syncs(effort);
    let on_disk = || plain.nanoseconds(syncs.div_ceil(10));
    let pairs = Pairs::try_alternate(effort.pairs, on_disk, || kept.nanoseconds(syncs))?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_probe_appends_as_often_as_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let wish = Probing { pattern: Pattern::Append, file: folder.path().join("file") };
        let mut told = Vec::new();
        probe(&wish, &b"3\n0\n2\n"[..], &mut told).unwrap();
        let times: Vec<u128> = String::from_utf8(told).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        assert!(times.len() == 3 && times[0] > 0);
        assert_eq!(std::fs::metadata(&wish.file).unwrap().len(), 5 * APPEND_BYTES as u64);
    }

    #[test]
    fn a_probe_that_is_told_nonsense_ends() {
        let folder = tempfile::tempdir().unwrap();
        let wish = Probing { pattern: Pattern::Append, file: folder.path().join("file") };
        assert!(probe(&wish, &b"many\n"[..], Vec::new()).is_err());
    }
}
