//! A program that writes to a file and syncs it: this program's own child, with the direct path or
//! without. It does what lines of its input say, and tells what they took.

use super::{PAGE_BYTES, Subject, by_threads};
use anyhow::Context;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tidegate_measure::cost::{joules, joules_since, own_processor_time};
use tidegate_measure::testbed::{Talker, Testbed};
use tidegate_sim::Rng;

/// What the program is told when it starts.
#[derive(Clone, Debug, clap::Args)]
pub struct Writing {
    /// The file, made if it is absent
    pub file: PathBuf,
    /// Its bytes, whole pages
    #[arg(long)]
    pub bytes: u64,
}

/// What a line of the input asks for. It ends with the operation during which its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Writes of so many bytes at random, an `fsync` after each, by so many threads.
    Random { bytes: u64, threads: u64, milliseconds: u64 },
    /// Writes of the first so many pages, and an `fdatasync` of all of them, over and over.
    Dirty { pages: u64, milliseconds: u64 },
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Random { bytes, threads, milliseconds } => write!(f, "random {bytes} {threads} {milliseconds}"),
            Task::Dirty { pages, milliseconds } => write!(f, "dirty {pages} {milliseconds}"),
        }
    }
}

impl FromStr for Task {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Task> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, numbers) = words.split_first().context("a task has a name")?;
        let numbers: Vec<u64> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
        match (*name, &numbers[..]) {
            ("random", &[bytes @ 1..=u64::MAX, threads @ 1..=u64::MAX, milliseconds]) => {
                Ok(Task::Random { bytes, threads, milliseconds })
            }
            ("dirty", &[pages @ 1..=u64::MAX, milliseconds]) => Ok(Task::Dirty { pages, milliseconds }),
            _ => anyhow::bail!("no task: {line}"),
        }
    }
}

/// What a task took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Done {
    /// Writes with their syncs.
    operations: f64,
    /// Nanoseconds of one, its sync included: the median, or the mean of those by several threads.
    nanoseconds: f64,
    /// Nanoseconds of the median sync alone; of writes at random: 0.
    sync_ns: f64,
    /// Nanoseconds of processor time, of everything.
    processor_ns: f64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.operations, self.nanoseconds, self.sync_ns, self.processor_ns)
    }
}

impl FromStr for Done {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Done> {
        let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [operations, nanoseconds, sync_ns, processor_ns] = numbers[..] else {
            anyhow::bail!("not four numbers: {line}")
        };
        anyhow::ensure!(operations > 0.0 && nanoseconds > 0.0, "nothing was done: {line}");
        Ok(Done { operations, nanoseconds, sync_ns, processor_ns })
    }
}

/// Does what each line of `asked` says, and tells what it took.
pub fn write(wish: &Writing, asked: impl BufRead, mut told: impl Write) -> anyhow::Result<()> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&wish.file)?;
    fill(&file, wish.bytes)?;
    for (nth, line) in (0_u64..).zip(asked.lines()) {
        let before = own_processor_time();
        let mut done = match line?.parse()? {
            Task::Random { bytes, threads, milliseconds } => {
                let at_random =
                    AtRandom { file: &file, span: wish.bytes, bytes, time: Duration::from_millis(milliseconds) };
                at_random.by_threads(threads, nth << 8)?
            }
            Task::Dirty { pages, milliseconds } => dirty(&file, pages, Duration::from_millis(milliseconds))?,
        };
        done.processor_ns = (own_processor_time() - before).as_nanos() as f64;
        writeln!(told, "{done}")?;
        told.flush()?;
    }
    Ok(())
}

/// By pages, as a database's file grows: ext4 has the pages of a larger write in one folio, in
/// which each later write takes longer.
fn fill(file: &File, bytes: u64) -> anyhow::Result<()> {
    let page = page();
    (0..bytes / PAGE_BYTES).try_for_each(|nth| file.write_all_at(&page, nth * PAGE_BYTES))?;
    Ok(file.sync_all()?)
}

fn page() -> Vec<u8> {
    vec![7; usize::try_from(PAGE_BYTES).expect("a few KiB")]
}

/// Writes at random, each with a sync.
struct AtRandom<'a> {
    file: &'a File,
    span: u64,
    bytes: u64,
    time: Duration,
}

impl AtRandom<'_> {
    fn by_threads(&self, threads: u64, seed: u64) -> anyhow::Result<Done> {
        anyhow::ensure!(self.bytes <= self.span, "the file has {} bytes", self.span);
        let began = Instant::now();
        let operations = by_threads(threads, |nth| self.work(seed + nth))?;
        let nanoseconds = began.elapsed().as_nanos() as f64 / operations as f64;
        Ok(Done { operations: operations as f64, nanoseconds, sync_ns: 0.0, processor_ns: 0.0 })
    }

    fn work(&self, seed: u64) -> anyhow::Result<u64> {
        let (mut random, buffer) = (Rng::new(seed), vec![7; usize::try_from(self.bytes)?]);
        let (began, mut operations) = (Instant::now(), 0);
        while operations == 0 || began.elapsed() < self.time {
            let at = random.below(self.span / self.bytes) * self.bytes;
            self.file.write_all_at(&buffer, at)?;
            self.file.sync_all()?;
            operations += 1;
        }
        Ok(operations)
    }
}

fn dirty(file: &File, pages: u64, time: Duration) -> anyhow::Result<Done> {
    let (began, page) = (Instant::now(), page());
    let (mut times, mut syncs) = (Vec::new(), Vec::new());
    while times.is_empty() || began.elapsed() < time {
        let written_from = Instant::now();
        (0..pages).try_for_each(|nth| file.write_all_at(&page, nth * PAGE_BYTES))?;
        let synced_from = Instant::now();
        file.sync_data()?;
        syncs.push(synced_from.elapsed());
        times.push(written_from.elapsed());
    }
    let operations = times.len() as f64;
    Ok(Done { operations, nanoseconds: median_ns(times), sync_ns: median_ns(syncs), processor_ns: 0.0 })
}

fn median_ns(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64
}

/// A sample of a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// MiB written and synced, in a second.
    pub(crate) mib_per_second: f64,
    /// MiB synced in a second of syncs alone.
    pub(super) synced_mib_per_second: f64,
    /// Microseconds of a sync alone.
    pub(super) sync_us: f64,
    /// Seconds of processor time for each GiB, of the program and the mount's server.
    pub(super) processor_s_per_gib: f64,
    /// Joules for each GiB, of the whole machine.
    pub(super) joules_per_gib: Option<f64>,
}

impl Sample {
    /// The sample of operations on so many bytes each.
    fn of(done: Done, bytes: u64, served: Duration, joules: Option<f64>) -> Sample {
        let each = bytes as f64;
        let gib = done.operations * each / super::GIB;
        let per_second = |nanoseconds: f64| each / super::MIB / (nanoseconds / 1e9);
        Sample {
            mib_per_second: per_second(done.nanoseconds),
            synced_mib_per_second: per_second(done.sync_ns),
            sync_us: done.sync_ns / 1e3,
            processor_s_per_gib: (done.processor_ns / 1e9 + served.as_secs_f64()) / gib,
            joules_per_gib: joules.map(|joules| joules / gib),
        }
    }
}

/// A writer that runs.
pub(crate) struct Writer {
    // Fields are dropped in order: the program ends before its file goes.
    talker: Talker,
    testbed: Testbed,
    pub(super) label: &'static str,
}

impl Writer {
    /// Starts a writer of a file of so many bytes. When this returns, the file is written back, and
    /// `warm` milliseconds of random writes are done. A mount has DRAM for all of the file.
    pub(crate) fn start(subject: Subject, pool_mib: u32, bytes: u64, warm: u64) -> anyhow::Result<Writer> {
        // A file lies in one of four lanes, which share the DRAM.
        let dram_mib = u32::try_from((8 * bytes) >> 20)?.max(256);
        let testbed = Testbed::with_dram((subject.storage)(pool_mib), Some(dram_mib))
            .with_context(|| format!("a folder for files of {}", subject.label))?;
        let mut command = testbed.command(std::env::current_exe()?);
        command.args(["writer", "--bytes", &bytes.to_string()]).arg(testbed.root().join("file"));
        let mut writer = Writer { talker: Talker::start(&mut command)?, testbed, label: subject.label };
        writer.done(Task::Random { bytes: PAGE_BYTES, threads: 1, milliseconds: warm })?;
        writer.write_back()?;
        Ok(writer)
    }

    /// Has a mount write everything back.
    pub(crate) fn write_back(&self) -> anyhow::Result<()> {
        self.testbed.mount().map_or(Ok(()), |mount| mount.flush())
    }

    fn done(&mut self, task: Task) -> anyhow::Result<Done> {
        self.talker.ask(&format!("{task}\n")).with_context(|| format!("{}, {task}", self.label))?.parse()
    }

    /// Has it do `task`, of which an operation is about so many bytes.
    pub(crate) fn sample(&mut self, task: Task, bytes: u64) -> anyhow::Result<Sample> {
        let before = (self.testbed.server_processor_time()?, joules());
        let done = self.done(task)?;
        let served = self.testbed.server_processor_time()?.saturating_sub(before.0);
        Ok(Sample::of(done, bytes, served, joules_since(before.1)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_writer_does_what_it_is_told_and_tells_what_it_took() {
        let folder = tempfile::tempdir().unwrap();
        let wish = Writing { file: folder.path().join("file"), bytes: 64 * PAGE_BYTES };
        let tasks =
            [Task::Random { bytes: 8192, threads: 2, milliseconds: 0 }, Task::Dirty { pages: 3, milliseconds: 0 }];
        let (lines, mut told) = (tasks.map(|task| format!("{task}\n")).concat(), Vec::new());
        write(&wish, lines.as_bytes(), &mut told).unwrap();
        let told = String::from_utf8(told).unwrap();
        let done: Vec<Done> = told.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(done.iter().map(|done| done.operations).collect::<Vec<_>>(), [2.0, 1.0], "one of each thread");
        assert!(done.iter().all(|done| done.processor_ns > 0.0));
        assert!(done[1].sync_ns > 0.0 && done[1].sync_ns < done[1].nanoseconds, "its write is in the one only");
        assert_eq!(std::fs::metadata(&wish.file).unwrap().len(), wish.bytes);
    }

    #[test]
    fn a_writer_that_is_told_nonsense_ends_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let wish = Writing { file: folder.path().join("file"), bytes: PAGE_BYTES };
        for line in ["", "random 4096\n", "random 0 1 1\n", "dirty many 1\n", "random 8192 1 1\n", "read 1 1\n"] {
            let ended = write(&wish, line.as_bytes(), Vec::new());
            assert_eq!(ended.is_ok(), line.is_empty(), "{line}");
        }
        assert!("1 2 3".parse::<Done>().is_err() && "0 5 5 5".parse::<Done>().is_err());
    }

    /// 256 operations of 4 KiB are a MiB.
    #[test]
    fn a_sample_is_bandwidth_time_and_processor_time_of_what_was_written() {
        let done = Done { operations: 256.0, nanoseconds: 1e6, sync_ns: 5e5, processor_ns: 3e6 };
        let sample = Sample::of(done, 4096, Duration::from_millis(1), Some(0.5));
        assert_eq!((sample.mib_per_second, sample.synced_mib_per_second), (3.90625, 7.8125));
        assert_eq!(sample.sync_us, 500.0);
        assert!((sample.processor_s_per_gib - 4.096).abs() < 1e-9);
        assert_eq!(sample.joules_per_gib, Some(512.0));
    }
}
