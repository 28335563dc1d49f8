//! A mount whose service tests start, kill and end by themselves.

use crate::mounted::kill_all;
use crate::served::{program, until};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tidegate_measure::medium::remove_left_memory;

/// A SOURCE, a MOUNTPOINT, and a pool in memory that outlives processes.
pub struct MountFolders {
    folder: tempfile::TempDir,
    memory: tempfile::TempDir,
}

impl MountFolders {
    /// Empty folders.
    pub fn new() -> MountFolders {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        assert!(Path::new("/dev/fuse").exists(), "this test mounts: it needs /dev/fuse (`modprobe fuse`)");
        let folder = tempfile::tempdir().expect("a folder for what is temporary");
        for name in ["source", "mnt"] {
            fs::create_dir(folder.path().join(name)).expect("made");
        }
        MountFolders { folder, memory: tempfile::tempdir_in("/dev/shm").expect("a folder in memory") }
    }

    /// The folder of this name: `source`, `mnt`, or one of the test's.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder in memory.
    pub fn memory(&self) -> &Path {
        self.memory.path()
    }

    /// The pool, in memory.
    pub fn pool(&self) -> PathBuf {
        self.memory.path().join("pool")
    }

    /// Mounts, and waits until programs can use the mount.
    pub fn mount(&self) -> Child {
        self.mount_with(&self.pool(), &[])
    }

    /// Mounts with another pool and more options.
    pub fn mount_with(&self, pool: &Path, options: &[&str]) -> Child {
        self.mount_directory("source", pool, options)
    }

    /// Mounts the folder of this name in place of `source`.
    pub fn mount_directory(&self, source: &str, pool: &Path, options: &[&str]) -> Child {
        let mut command = Command::new(program());
        command.arg("mount").args([self.at(source), self.at("mnt")]).arg("--pool").arg(pool).args(options);
        let child = command.args(["--pool-size", "64M", "--dram", "16M", "--try"]).stdout(Stdio::null()).spawn();
        let child = child.expect("the program starts");
        until("the mount", || self.is_mounted());
        child
    }

    /// Whether the kernel has a mount there, be it dead or not.
    pub fn is_mounted(&self) -> bool {
        is_among_mounts(&self.at("mnt"))
    }

    /// Runs a command of the program on a path.
    pub fn tidegate(&self, command: &str, path: &Path) -> Output {
        tidegate(command, path, &[])
    }

    /// Ends the service without a last word, and takes the dead mount away.
    pub fn kill(&self, mut service: Child) {
        kill_all(&mut service);
        rustix::mount::unmount(self.at("mnt"), rustix::mount::UnmountFlags::DETACH).expect("a dead mount");
    }
}

/// Whether the kernel's table of mounts has this path, or one that begins with it. Mounts of other
/// trials may have paths that are no text.
pub fn is_among_mounts(path: &Path) -> bool {
    let mounts = fs::read("/proc/self/mounts").expect("the kernel tells");
    let path = path.as_os_str().as_bytes();
    mounts.windows(path.len()).any(|window| window == path)
}

impl Default for MountFolders {
    fn default() -> MountFolders {
        MountFolders::new()
    }
}

impl Drop for MountFolders {
    fn drop(&mut self) {
        // A failed test leaves its mount.
        let _ = rustix::mount::unmount(self.at("mnt"), rustix::mount::UnmountFlags::DETACH);
        remove_left_memory(self.memory.path());
    }
}

/// Runs a command of the program on a path, with more options.
pub fn tidegate(command: &str, path: &Path, options: &[&str]) -> Output {
    Command::new(program()).arg(command).arg(path).args(options).output().expect("the program starts")
}

/// The JSON that a command of the program answers about a path.
pub fn answer(command: &str, path: &Path) -> serde_json::Value {
    let output = tidegate(command, path, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs a line of shell in a folder.
pub fn shell(folder: &Path, line: &str) -> String {
    let done = Command::new("sh").args(["-ec", line]).current_dir(folder).output().expect("sh is everywhere");
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
}

/// Copies a program that is to be run from `to`. Another process does it: children that other
/// threads start meanwhile would have the copy open for writing, and it could not be run.
pub fn copy_program(program: &Path, to: &Path) {
    let copied = Command::new("cp").args([program, to]).status().expect("cp is everywhere");
    assert!(copied.success(), "cp {} {}: {copied}", program.display(), to.display());
}
