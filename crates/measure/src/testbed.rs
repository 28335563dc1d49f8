//! Where a program has its files, and how it is started there: with the direct path, or as it is.
//! Files that are mounted lie at a mountpoint, those of `tidegate mount` on the disk below.

pub mod disk;
mod mounted;

pub use mounted::{Mounted, number_in};

use crate::cost::processor_time_of;
use crate::programs::built;
use anyhow::Context;
use disk::{Disk, FileSystem};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// What a program may take to end when asked.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In a mount of a directory on the disk, whose pool in `/dev/shm` has so many MiB.
    Mount(u32),
    /// In such a mount, and the program has the direct path.
    Direct(u32),
    /// As `Direct`, but the directory lies on ext4 on a block device in memory.
    DirectInMemory(u32),
    /// In a mount of the bare server, whose files are its memory.
    BareMount,
    /// On the disk.
    Disk,
    /// On a block device in memory, with this file system.
    MemoryDisk(FileSystem),
    /// In `/dev/shm`.
    Memory,
}

impl Storage {
    /// The disk that the files lie on in the end, if they lie on one.
    fn disk(self) -> anyhow::Result<Option<Arc<Disk>>> {
        match self {
            Storage::Memory | Storage::BareMount => Ok(None),
            Storage::MemoryDisk(file_system) => Disk::in_memory(file_system).map(Some),
            Storage::DirectInMemory(_) => Disk::in_memory(FileSystem::Ext4).map(Some),
            Storage::Mount(_) | Storage::Direct(_) | Storage::Disk => Disk::shared().map(Some),
        }
    }
}

/// A folder of its own for one program; it goes when this is dropped.
pub struct Testbed {
    mount: Option<Mounted>,
    /// The library under programs that have the direct path.
    library: Option<&'static Path>,
    folder: PathBuf,
    /// Where the files below are, if they are on a disk. It goes last.
    disk: Option<Arc<Disk>>,
}

impl Testbed {
    /// An empty one.
    pub fn new(storage: Storage) -> anyhow::Result<Testbed> {
        Testbed::with_dram(storage, None)
    }

    /// An empty one; a mount has so many MiB of DRAM for unsynced writes if that is said.
    pub fn with_dram(storage: Storage, dram_mib: Option<u32>) -> anyhow::Result<Testbed> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number only has to be another one each time.
        let name = format!("tidegate-files-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let disk = storage.disk()?;
        let above = disk.as_ref().map_or(Path::new("/dev/shm"), |disk| disk.folder());
        let library = match storage {
            Storage::Direct(_) | Storage::DirectInMemory(_) => Some(library()?),
            _ => None,
        };
        let mut testbed = Testbed { mount: None, library, folder: above.join(name), disk };
        std::fs::create_dir_all(testbed.root())?;
        testbed.mount = match storage {
            Storage::Mount(mib) | Storage::Direct(mib) | Storage::DirectInMemory(mib) => {
                Some(Mounted::service(&testbed.folder.join("source"), &testbed.root(), mib, dram_mib)?)
            }
            Storage::BareMount => Some(Mounted::bare(&testbed.root())?),
            Storage::Disk | Storage::MemoryDisk(_) | Storage::Memory => None,
        };
        Ok(testbed)
    }

    /// Whether programs have the direct path.
    pub fn is_direct(&self) -> bool {
        self.library.is_some()
    }

    /// The mount that the files are in.
    pub fn mount(&self) -> Option<&Mounted> {
        self.mount.as_ref()
    }

    /// The disk that the files are on in the end.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_deref()
    }

    /// Processor time that the server of the mount has used so far; without a mount: none.
    pub fn server_processor_time(&self) -> anyhow::Result<Duration> {
        let Some(mount) = &self.mount else { return Ok(Duration::ZERO) };
        processor_time_of(mount.server_pid()?.as_raw_nonzero().get().unsigned_abs())
    }

    /// The folder of the program's files.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// `program`, to be started with its files here.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(library) = self.library {
            command.env("LD_PRELOAD", library).env("TIDEGATE_DIRECT", "1");
            // As `tidegate run` has it. Without a board no context is said.
            let board = self.mount.as_ref().and_then(|mount| mount.board().ok());
            command.envs(board.map(|board| ("TIDEGATE_CONTEXTS", format!("5:{board}"))));
        }
        command.current_dir(self.root());
        command
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // A mount ends before its folder goes.
        drop(self.mount.take());
        // What cannot be removed is in folders for what is temporary.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The library under programs that have the direct path, see [`built`].
fn library() -> anyhow::Result<&'static Path> {
    static LIBRARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || built(&["--package", "tidegate-direct-preload"], "libtidegate_direct.so");
    let library = LIBRARY.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    library.as_deref().map_err(|error| anyhow::anyhow!(error.clone()))
}

/// The path of `tidegate`, see [`built`].
pub fn program() -> anyhow::Result<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || built(&["--package", "tidegate-cli", "--bin", "tidegate"], "tidegate");
    let program = PROGRAM.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    program.as_deref().map_err(|error| anyhow::anyhow!(error.clone()))
}

/// Those of `programs` that cannot be run here.
pub fn absent<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    let runs =
        |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    programs.iter().copied().filter(|program| runs(program).is_err()).collect()
}

/// The folder for what is temporary, if it is in memory and no disk.
pub fn temporary_in_memory() -> Option<PathBuf> {
    let temporary = std::env::temp_dir();
    rustix::fs::statfs(&temporary).is_ok_and(|fs| fs.f_type == TMPFS).then_some(temporary)
}

/// Asks a child to end, and waits for it; ends it if it does not.
pub fn end(child: &mut Child) {
    let deadline = Instant::now() + PATIENCE;
    // Once a child was waited for, its number may be another's.
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
    }
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        pause();
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Before something is looked at again.
pub fn pause() {
    thread::park_timeout(Duration::from_millis(2));
}

/// What statfs calls tmpfs.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A program that runs; it is asked to end when this is dropped.
pub struct Running(Child);

impl Running {
    /// Starts it, silent.
    pub fn start(command: &mut Command) -> anyhow::Result<Running> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Running(command.spawn().with_context(|| format!("starting {command:?}"))?))
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// A program that is told lines and answers with lines.
pub struct Talker {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _running: Running,
}

impl Talker {
    /// Starts it.
    pub fn start(command: &mut Command) -> anyhow::Result<Talker> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let running = Running(child);
        let (input, output) = pipes.context("a program has pipes if it was given them")?;
        Ok(Talker { input, output: BufReader::new(output), _running: running })
    }

    /// Tells it `lines`, and waits for the one that it answers.
    pub fn ask(&mut self, lines: &str) -> anyhow::Result<String> {
        self.input.write_all(lines.as_bytes())?;
        self.answer()
    }

    /// Tells it `lines`, and waits until it answers `last`.
    pub fn ask_until(&mut self, lines: &str, last: &str) -> anyhow::Result<()> {
        self.input.write_all(lines.as_bytes())?;
        while self.answer()? != last {}
        Ok(())
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        anyhow::ensure!(answer.ends_with('\n'), "the program ended");
        Ok(answer.trim_end().to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_site_leaves_nothing_behind() {
        for storage in [Storage::Disk, Storage::Memory] {
            let testbed = Testbed::new(storage).unwrap();
            let root = testbed.root();
            std::fs::write(root.join("file"), b"bytes").unwrap();
            drop(testbed);
            assert!(!root.exists());
        }
    }

    #[test]
    fn a_talker_answers_line_by_line() {
        let mut talker = Talker::start(&mut Command::new("cat")).unwrap();
        assert_eq!(talker.ask("one\n").unwrap(), "one");
        assert_eq!(talker.ask("two\n").unwrap(), "two");
        let mut deaf = Talker::start(Command::new("true").stdin(Stdio::null())).unwrap();
        assert!(deaf.ask("one\n").is_err());
    }
}
