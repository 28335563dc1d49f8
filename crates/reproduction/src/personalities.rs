//! Filebench's personalities: the load of a server of files, mail, pages or a proxy on a file
//! system, over and over.
//!
//! The mixes and sizes are those of Filebench's own definitions, with fewer files. Each thread has
//! a folder of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidegate_sim::Rng;

/// Bytes that are appended at once.
const APPEND_BYTES: usize = 16 << 10;

/// Files of a thread.
const FILES: u64 = 50;

/// A personality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// Creates, appends to, reads and deletes files of 128 KiB.
    FileServer,
    /// Appends to and reads files of 16 KiB, made durable after each append.
    VarMail,
    /// Reads files of 16 KiB, and appends to a log.
    WebServer,
    /// Replaces and reads files of 16 KiB, and appends to a log.
    WebProxy,
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Operations on files, and the time of all of them.
    pub operations: u32,
    /// See `operations`.
    pub time: Duration,
    /// Reads of whole files among them, and their time.
    pub reads: u32,
    /// See `reads`.
    pub reading: Duration,
}

impl Personality {
    /// In the order of the paper.
    pub const ALL: [Personality; 4] =
        [Personality::WebServer, Personality::WebProxy, Personality::VarMail, Personality::FileServer];

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            Personality::FileServer => "fileserver",
            Personality::VarMail => "varmail",
            Personality::WebServer => "webserver",
            Personality::WebProxy => "webproxy",
        }
    }

    /// Runs `rounds` rounds of its mix under `folder` on each of `threads` threads. The page cache
    /// stays as it is.
    pub fn run(self, folder: &Path, threads: u32, rounds: u32) -> io::Result<Taken> {
        self.prepare(folder, threads)?;
        self.work(folder, threads, rounds)
    }

    /// Makes the files of `threads` threads under `folder`, or gives them their first contents.
    pub fn prepare(self, folder: &Path, threads: u32) -> io::Result<()> {
        (0..threads).try_for_each(|thread| self.prepare_thread(&self.own(folder, thread)))
    }

    /// Runs `rounds` rounds of its mix on each of `threads` threads, whose files under `folder` are
    /// there.
    pub fn work(self, folder: &Path, threads: u32, rounds: u32) -> io::Result<Taken> {
        std::thread::scope(|scope| {
            let work = |thread| move || self.work_of_thread(self.own(folder, thread), thread, rounds);
            let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
            workers.into_iter().try_fold(Taken::default(), |all, worker| {
                let taken = worker.join().expect("a worker reports its errors")?;
                Ok(Taken {
                    operations: all.operations + taken.operations,
                    time: all.time + taken.time,
                    reads: all.reads + taken.reads,
                    reading: all.reading + taken.reading,
                })
            })
        })
    }

    fn own(self, folder: &Path, thread: u32) -> PathBuf {
        folder.join(format!("{}-{thread}", self.label()))
    }

    /// Bytes of a file when it is made.
    pub(super) fn file_bytes(self) -> usize {
        if self == Personality::FileServer { 128 << 10 } else { 16 << 10 }
    }

    fn prepare_thread(self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        (0..FILES).try_for_each(|file| fs::write(folder.join(file.to_string()), vec![1; self.file_bytes()]))
    }

    fn work_of_thread(self, folder: PathBuf, thread: u32, rounds: u32) -> io::Result<Taken> {
        let mut worker = Worker { folder, random: Rng::new(thread.into()), taken: Taken::default() };
        (0..rounds).try_for_each(|_| self.round(&mut worker))?;
        Ok(worker.taken)
    }

    fn round(self, worker: &mut Worker) -> io::Result<()> {
        let bytes = self.file_bytes();
        match self {
            Personality::FileServer => {
                worker.replace(bytes)?;
                worker.append(false)?;
                worker.read()?;
                worker.look()
            }
            Personality::VarMail => {
                worker.replace_durably(bytes)?;
                worker.read()?;
                worker.append(true)?;
                worker.read()
            }
            Personality::WebServer => {
                (0..10).try_for_each(|_| worker.read())?;
                worker.log()
            }
            Personality::WebProxy => {
                worker.replace(bytes)?;
                (0..5).try_for_each(|_| worker.read())?;
                worker.log()
            }
        }
    }
}

/// One thread, in its folder.
struct Worker {
    folder: PathBuf,
    random: Rng,
    taken: Taken,
}

impl Worker {
    fn any(&mut self) -> PathBuf {
        let file = self.random.below(FILES);
        self.folder.join(file.to_string())
    }

    fn timed(&mut self, act: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
        let begin = Instant::now();
        act()?;
        let time = begin.elapsed();
        self.taken.operations += 1;
        self.taken.time += time;
        Ok(time)
    }

    /// Deletes a file and makes it anew.
    fn replace(&mut self, bytes: usize) -> io::Result<()> {
        let path = self.any();
        self.timed(|| fs::remove_file(&path))?;
        self.timed(|| fs::write(&path, vec![2; bytes])).map(drop)
    }

    fn replace_durably(&mut self, bytes: usize) -> io::Result<()> {
        let path = self.any();
        self.timed(|| fs::remove_file(&path))?;
        let write = || {
            let mut file = File::create(&path)?;
            file.write_all(&vec![2; bytes])?;
            file.sync_all()
        };
        self.timed(write).map(drop)
    }

    fn append(&mut self, durably: bool) -> io::Result<()> {
        let path = self.any();
        let append = || {
            let mut file = OpenOptions::new().append(true).open(&path)?;
            file.write_all(&[3; APPEND_BYTES])?;
            if durably { file.sync_all() } else { Ok(()) }
        };
        self.timed(append).map(drop)
    }

    fn log(&mut self) -> io::Result<()> {
        let path = self.folder.join("log");
        let append = || OpenOptions::new().create(true).append(true).open(&path)?.write_all(&[4; APPEND_BYTES]);
        self.timed(append).map(drop)
    }

    fn read(&mut self) -> io::Result<()> {
        let path = self.any();
        let time = self.timed(|| File::open(&path)?.read_to_end(&mut Vec::new()).map(drop))?;
        self.taken.reads += 1;
        self.taken.reading += time;
        Ok(())
    }

    fn look(&mut self) -> io::Result<()> {
        let path = self.any();
        self.timed(|| fs::metadata(&path).map(drop)).map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn every_personality_does_its_mix() {
        let folder = tempfile::tempdir().unwrap();
        let counts = Personality::ALL.map(|one| {
            let taken = one.run(folder.path(), 2, 3).unwrap();
            assert!(taken.time >= taken.reading && taken.reading > Duration::ZERO, "{taken:?}");
            (taken.operations, taken.reads)
        });
        assert_eq!(counts, [(66, 60), (48, 30), (30, 12), (30, 6)]);
    }
}
