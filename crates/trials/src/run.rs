//! Programs under `tidegate run-log`: the library built and found, a run with a pool of its own,
//! and C programs to be run.

mod drivers;
mod killed;
mod loss;
mod lost_names;
mod mounted;
mod postgres;
mod steps;

pub use drivers::{
    ADDRESSES, APPENDER, CHILDREN, COMMITTER, CROWD, DELETER, DRIVER, FAILING, FOLDERS, LOUD, MAPPED, MODES, MOVER,
    NAMER, OUTSIDE, STEPPER, STRAY, UNSEEN, WRITERS,
};
pub use killed::kill_all;
pub use lost_names::Lost;
pub use mounted::{Mounted, empty_file_system};
pub use postgres::{Cluster, Server};
pub use steps::Steps;

use crate::artefacts::built;
use crate::served::{program, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The path of the library, which lies beside the program; see [`built`].
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = built(&["--package", "tidegate-preload"]);
        folder.unwrap_or_else(|error| panic!("{error}")).join("libtidegate_preload.so")
    })
}

/// Where programs are run, and what for.
#[derive(Debug)]
pub struct Testbed {
    folder: tempfile::TempDir,
}

impl Default for Testbed {
    fn default() -> Testbed {
        Testbed::new()
    }
}

impl Testbed {
    /// A folder of its own, with an empty root and no pool yet.
    pub fn new() -> Testbed {
        let folder = tempfile::tempdir().expect("a folder for what is temporary");
        fs::create_dir(folder.path().join("root")).expect("a root");
        Testbed { folder }
    }

    /// The root whose files may be held.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// The folder with everything.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The pool.
    pub fn pool(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    /// The journal of holds beside it.
    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("pool.holds")
    }

    /// `tidegate recover` of the pool.
    pub fn recover(&self) -> Command {
        self.ask("recover")
    }

    /// `tidegate recover` of the pool as if the system had come up just now: all bytes written so
    /// far are from before.
    pub fn recover_after_boot(&self) -> Command {
        after_boot(&self.recover())
    }

    /// [`Testbed::run`] with `program`, as if the system had come up just now.
    pub fn run_after_boot(&self, program: &str) -> Command {
        after_boot(self.run().arg(program))
    }

    /// `tidegate status` of the pool, as JSON.
    pub fn status(&self) -> Command {
        let mut command = self.ask("status");
        command.arg("--json");
        command
    }

    /// `tidegate info` of the pool.
    pub fn info(&self) -> Command {
        let mut command = Command::new(program());
        command.args(["info", "--pmem"]).arg(self.pool());
        command
    }

    fn ask(&self, what: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(what).arg(self.pool());
        command
    }

    /// `tidegate run-log` of what is added to it, in the root. The pool is an ordinary file.
    pub fn run(&self) -> Command {
        self.run_with(&["--try"])
    }

    /// `tidegate run-log` of what is added to it, in the root, without `--try`: it needs persistent
    /// memory.
    pub fn run_in_earnest(&self) -> Command {
        self.run_with(&[])
    }

    fn run_with(&self, flags: &[&str]) -> Command {
        library();
        let mut command = Command::new(program());
        command.args(["run-log", "--verbose", "--size", "64M"]).args(flags).arg("--pool").arg(self.pool());
        command.arg("--root").arg(self.root()).arg("--").current_dir(self.root());
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        command
    }
}

/// `command`, as if the system had come up just now.
fn after_boot(command: &Command) -> Command {
    let up = fs::read_to_string("/proc/uptime").expect("the kernel tells");
    let up = up.split('.').next().expect("seconds").to_owned();
    let mut after = Command::new("unshare");
    after.args(["--map-root-user", "--time", &format!("--boottime=-{up}")]);
    after.arg(command.get_program()).args(command.get_args());
    after.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.get_current_dir().into_iter().for_each(|folder| _ = after.current_dir(folder));
    after
}

/// A boot is told of by its second: files of the same one may be newer.
pub fn wait_for_next_second() {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set").as_secs();
    let second = now();
    // The clock's seconds and those since the boot do not begin together.
    until("the next second", || now() > second + 1);
}

/// How many syncs of a run ended in the pool, by what it said.
pub fn kept_syncs(said: &str) -> u64 {
    number_before(said, "syncs of ")
}

/// How many files were held, by what a run said.
pub fn held_files(said: &str) -> u64 {
    number_before(said, "files completed in persistent memory")
}

/// How many syncs of held files ended in the kernel, by what a run said.
pub fn kernel_syncs(said: &str) -> u64 {
    number_before(said, "fell back to the kernel")
}

fn number_before(said: &str, words: &str) -> u64 {
    let before = said.find(words).map(|place| &said[..place]);
    before.and_then(|before| before.split_whitespace().next_back()?.parse().ok()).unwrap_or(0)
}
