//! Times calls on files: `file-times FOLDER SECONDS THREADS CALL…`.
//!
//! Each thread has a file of its own of 32 MiB, filled before, and does one CALL again and again
//! for SECONDS: `write` of 4096 bytes at random, `sync` (`fdatasync` alone), `write-sync`, `read`,
//! `stat`, `create` (and close and unlink), `open` (and close). Each line has the call, the number
//! of calls, and the 10th, 50th and 90th percentile of their time in microseconds. Medians are the
//! figures to compare: on a busy machine means are those of the scheduler.

#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of each file.
const FILE_BYTES: u64 = 32 << 20;
/// Bytes of a read or a write.
const BLOCK_BYTES: usize = 4096;

/// A call to be timed.
#[derive(Clone, Copy, Debug)]
enum Call {
    Write,
    Sync,
    WriteSync,
    Read,
    Stat,
    Create,
    Open,
}

/// One thread's file.
struct Client {
    file: File,
    path: PathBuf,
    other: PathBuf,
    random: u64,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().context("name a FOLDER")?);
    let seconds: f64 = words.next().context("say how many SECONDS")?.parse()?;
    let threads: usize = words.next().context("say how many THREADS")?.parse()?;
    for word in words {
        let call = call_of(&word)?;
        let mut times = run(&folder, Duration::from_secs_f64(seconds), threads, call)?;
        times.sort_unstable();
        let percentile = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
        let [low, median, high] = [10, 50, 90].map(percentile);
        println!("{word:<10} {:>8} {low:>8.2} {median:>8.2} {high:>8.2}", times.len());
    }
    Ok(())
}

fn call_of(word: &str) -> Result<Call> {
    Ok(match word {
        "write" => Call::Write,
        "sync" => Call::Sync,
        "write-sync" => Call::WriteSync,
        "read" => Call::Read,
        "stat" => Call::Stat,
        "create" => Call::Create,
        "open" => Call::Open,
        _ => bail!("{word} is no call"),
    })
}

/// The times of all calls of all threads, which begin together.
fn run(folder: &Path, limit: Duration, threads: usize, call: Call) -> Result<Vec<Duration>> {
    let clients = (0..threads).map(|number| Client::new(folder, number)).collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(threads);
    let timed = thread::scope(|scope| {
        let begin = |mut client: Client| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                client.times(limit, call)
            })
        };
        let running: Vec<_> = clients.into_iter().map(begin).collect();
        let joined = running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")));
        joined.collect::<Result<Vec<_>>>()
    })?;
    Ok(timed.concat())
}

impl Client {
    fn new(folder: &Path, number: usize) -> Result<Client> {
        let path = folder.join(format!("times{number}"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        let block = vec![1; 1 << 20];
        (0..FILE_BYTES >> 20).try_for_each(|mebibyte| file.write_all_at(&block, mebibyte << 20))?;
        file.sync_all()?;
        let random = 0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1);
        Ok(Client { file, other: folder.join(format!("other{number}")), path, random })
    }

    fn times(&mut self, limit: Duration, call: Call) -> Result<Vec<Duration>> {
        let (begin, mut times, mut block) = (Instant::now(), Vec::with_capacity(1 << 20), [2; BLOCK_BYTES]);
        while begin.elapsed() < limit {
            let at = self.next_offset();
            let start = Instant::now();
            self.call(call, at, &mut block)?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    fn call(&self, call: Call, at: u64, block: &mut [u8; BLOCK_BYTES]) -> Result<()> {
        match call {
            Call::Write => self.file.write_all_at(block, at)?,
            Call::Sync => self.file.sync_data()?,
            Call::WriteSync => {
                self.file.write_all_at(block, at)?;
                self.file.sync_data()?;
            }
            Call::Read => self.file.read_exact_at(block, at)?,
            Call::Stat => {
                fs::metadata(&self.path)?;
            }
            Call::Create => {
                drop(File::create_new(&self.other)?);
                fs::remove_file(&self.other)?;
            }
            Call::Open => drop(File::open(&self.path)?),
        }
        Ok(())
    }

    /// An offset of a block, by xorshift.
    fn next_offset(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % (FILE_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64
    }
}
