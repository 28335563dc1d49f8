//! A program that writes, reads and syncs: this program's own child, with the direct path or
//! without. It does as many operations as it is told, and tells their time.

use super::testbed::{Storage, Talker, Testbed, missing};
use crate::mount::Mounted;
use crate::target::Outcome;
use clap::ValueEnum;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::medium;
use tidegate_measure::subject::{BLOCK_BYTES, Bare, Block, StreamedCopies, sweep};
use tidegate_measure::workload::{Effort, Walk};
use tidegate_sim::Rng;

/// Bytes that operations are spread over.
const SPAN_BYTES: u64 = 256 << 20;

/// MiB of a pool that has room for all of them, out of sync: two files may lie in one of its
/// four lanes.
pub(super) const POOL_MIB: u32 = 4096;

/// With the direct path.
const DIRECT: Storage = Storage::Direct(POOL_MIB);

/// Samples before the first one that counts, with the direct path: every block of the file is
/// written a few times, so what is lent for it is mapped.
const SAMPLES_BEFORE: u32 = 16;

/// Operations in a sample with the direct path, at most; the disk does a hundredth. Whoever walks
/// through other memory between two samples leaves the caches cold, here and in the service.
const OPERATIONS_MAX: u32 = 20_000;

/// What a probe does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Writes blocks of 4 KiB anywhere in 256 MiB, each with a sync.
    Random,
    /// Writes such blocks without a sync.
    Buffered,
    /// Reads so many bytes anywhere in 256 MiB, after some were written and synced.
    Read,
}

/// What a probe is told when it starts.
#[derive(Clone, Debug, clap::Args)]
pub struct Probing {
    /// What it does
    pub pattern: Pattern,
    /// The files, made if they are absent; each has a thread
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Bytes of a read
    #[arg(long, default_value_t = BLOCK_BYTES)]
    pub bytes: usize,
}

/// Does as many operations on each file as a line of `asked` says, and tells the nanoseconds until
/// all were done.
pub fn probe(wish: &Probing, asked: impl BufRead, mut told: impl Write) -> anyhow::Result<()> {
    let mut workers = wish.files.iter().map(|path| Worker::new(wish, path)).collect::<anyhow::Result<Vec<_>>>()?;
    for line in asked.lines() {
        let times: u32 = line?.trim().parse()?;
        let began = Instant::now();
        thread::scope(|scope| {
            let (first, others) = workers.split_first_mut().expect("there is a file");
            let others: Vec<_> = others.iter_mut().map(|worker| scope.spawn(|| worker.work(times))).collect();
            first.work(times)?;
            others.into_iter().try_for_each(|other| other.join().expect("a worker does not panic"))
        })?;
        writeln!(told, "{}", began.elapsed().as_nanos())?;
        told.flush()?;
    }
    Ok(())
}

/// Who works on one file.
struct Worker {
    file: File,
    pattern: Pattern,
    random: Rng,
    block: Block,
    buffer: Vec<u8>,
}

impl Worker {
    fn new(wish: &Probing, path: &PathBuf) -> anyhow::Result<Worker> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        fill(&file)?;
        let (random, block, buffer) = (Rng::new(7), Block::filled(7), vec![0; wish.bytes]);
        Ok(Worker { file, pattern: wish.pattern, random, block, buffer })
    }

    fn work(&mut self, times: u32) -> anyhow::Result<()> {
        let bytes = if self.pattern == Pattern::Read { self.buffer.len() } else { BLOCK_BYTES } as u64;
        for _ in 0..times {
            let at = self.random.below(SPAN_BYTES / bytes) * bytes;
            match self.pattern {
                Pattern::Random => {
                    self.file.write_all_at(self.block.bytes(), at)?;
                    self.file.sync_data()?;
                }
                Pattern::Buffered => self.file.write_all_at(self.block.bytes(), at)?,
                Pattern::Read => {
                    self.file.read_exact_at(&mut self.buffer, at)?;
                    black_box(&self.buffer);
                }
            }
        }
        Ok(())
    }
}

/// By blocks, as a database's file grows: ext4 has the pages of a larger write in one folio, in
/// which each later write takes longer.
fn fill(file: &File) -> anyhow::Result<()> {
    let piece = vec![1; BLOCK_BYTES];
    (0..SPAN_BYTES).step_by(piece.len()).try_for_each(|at| file.write_all_at(&piece, at))?;
    Ok(file.sync_all()?)
}

/// A probe that was started.
struct Probe {
    talker: Talker,
}

impl Probe {
    /// Starts one at `testbed`, with so many files whose names begin with `name`. Its files are on
    /// the disk when this returns, and it has done some operations, so its files are leased from
    /// now on, if they ever are.
    fn start(
        (testbed, effort): (&Testbed, Effort),
        (pattern, bytes): (Pattern, usize),
        (name, files): (&str, u32),
    ) -> anyhow::Result<Probe> {
        let mut command = testbed.command(std::env::current_exe()?);
        let pattern_name = pattern.to_possible_value().expect("no pattern is hidden");
        command.args(["probe", pattern_name.get_name(), "--bytes", &bytes.to_string()]);
        command.args((0..files).map(|file| testbed.root().join(format!("{name}-{file}"))));
        let mut probe = Probe { talker: Talker::start(&mut command)? };
        probe.nanoseconds(20)?;
        if testbed.is_direct() {
            probe.nanoseconds(SAMPLES_BEFORE * operations(effort))?;
        }
        testbed.mount().map_or(Ok(()), Mounted::flush)?;
        Ok(probe)
    }

    fn random(at: (&Testbed, Effort), name: &str, files: u32) -> anyhow::Result<Probe> {
        Probe::start(at, (Pattern::Random, BLOCK_BYTES), (name, files))
    }

    /// Nanoseconds until each file had one more operation, in the mean over `times`.
    fn nanoseconds(&mut self, times: u32) -> anyhow::Result<f64> {
        let all: f64 = self.talker.ask(&format!("{times}\n"))?.parse()?;
        Ok(all / f64::from(times))
    }
}

fn operations(effort: Effort) -> u32 {
    effort.steps.min(OPERATIONS_MAX)
}

/// The time of a write and its sync over that of a streamed copy.
pub(super) fn over_floor(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let testbed = Testbed::new(DIRECT)?;
    let mut probe = Probe::random((&testbed, effort), "file", 1)?;
    let region = medium::region(SPAN_BYTES)?;
    let copies = StreamedCopies(Bare::all(&region));
    sweep(&copies);
    let mut walk = Walk::new(effort.steps);
    let floor = || Ok(walk.take(&copies, 1).nanoseconds_per_step);
    let pairs = Pairs::try_alternate(effort.pairs, || probe.nanoseconds(operations(effort)), floor)?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

/// The time of an operation in `over`, over that with the direct path.
pub(super) fn over_direct(effort: Effort, over: Storage, what: (Pattern, usize)) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let (plain, direct) = (Testbed::new(over)?, Testbed::new(DIRECT)?);
    let start = |testbed: &Testbed| Probe::start((testbed, effort), what, ("file", 1));
    let (mut plain, mut direct) = (start(&plain)?, start(&direct)?);
    let times = operations(effort);
    let few = if over == Storage::Disk && what.0 == Pattern::Random { times.div_ceil(100) } else { times };
    let pairs = Pairs::try_alternate(effort.pairs, || plain.nanoseconds(few), || direct.nanoseconds(times))?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

/// The time of a write and its sync by one thread, over that by two at a time, each on a file of
/// its own.
pub(super) fn one_over_two_threads(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let testbed = Testbed::new(DIRECT)?;
    let (mut one, mut two) =
        (Probe::random((&testbed, effort), "one", 1)?, Probe::random((&testbed, effort), "two", 2)?);
    let times = operations(effort);
    let pairs = Pairs::try_alternate(effort.pairs, || one.nanoseconds(times), || two.nanoseconds(times))?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

/// The time of a write and its sync by one process, over that by two at a time, each with a file of
/// its own.
pub(super) fn one_over_two_processes(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let testbed = Testbed::new(DIRECT)?;
    let probe = |name| Probe::random((&testbed, effort), name, 1);
    let (mut one, mut first, mut second) = (probe("one")?, probe("first")?, probe("second")?);
    let times = operations(effort);
    let both = || {
        thread::scope(|scope| {
            let first = scope.spawn(|| first.nanoseconds(times));
            let second = second.nanoseconds(times)?;
            Ok((first.join().expect("a talker does not panic")? + second) / 2.0)
        })
    };
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || one.nanoseconds(times), both)?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

/// Microseconds of another process' first read of a file, after which its writer has no lease.
pub(super) fn revocation(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let testbed = Testbed::new(DIRECT)?;
    let mut probe = Probe::random((&testbed, effort), "file", 1)?;
    let mount = testbed.mount().expect("the file is in a mount");
    let mut times = Vec::new();
    while times.len() < effort.pairs as usize {
        let before = mount.status("leases_ended")?;
        // More than its patience: it has the file again.
        probe.nanoseconds(OPERATIONS_MAX)?;
        let file = File::open(testbed.root().join("file-0"))?;
        let (began, mut byte) = (Instant::now(), [0]);
        file.read_exact_at(&mut byte, 0)?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
        let after = mount.status("leases_ended")?;
        anyhow::ensure!(after > before, "the file was not leased");
    }
    Ok(Outcome::figure(&times, "µs"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_probe_does_as_much_as_it_is_told_on_each_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["one", "other"].map(|name| folder.path().join(name)).to_vec();
        for pattern in [Pattern::Read, Pattern::Random, Pattern::Buffered] {
            let (wish, mut told) = (Probing { pattern, files: files.clone(), bytes: 100 }, Vec::new());
            probe(&wish, &b"3\n0\n2\n"[..], &mut told).unwrap();
            let times: Vec<u128> = String::from_utf8(told).unwrap().lines().map(|line| line.parse().unwrap()).collect();
            assert!(times.len() == 3 && times[0] > 0);
        }
        for file in files {
            let bytes = std::fs::read(file).unwrap();
            assert_eq!(bytes.len() as u64, SPAN_BYTES);
            assert!(bytes.contains(&7) && bytes.contains(&1));
        }
    }

    #[test]
    fn a_probe_that_is_told_nonsense_ends() {
        let folder = tempfile::tempdir().unwrap();
        let wish = Probing { pattern: Pattern::Buffered, files: vec![folder.path().join("file")], bytes: 1 };
        assert!(probe(&wish, &b"many\n"[..], Vec::new()).is_err());
    }
}
