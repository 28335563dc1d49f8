//! The server is killed under load, and programs see no error. Wants root, `/dev/fuse` and Linux
//! 6.9; the test of older kernels runs on newer ones, which then do without what those lack.

#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_mount_transport::{Unmount, unmount};

/// Longest wait for what comes soon.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mount that is kept alive, and the folder with its files.
struct KeptMount {
    program: Child,
    kept: tempfile::TempDir,
    mountpoint: tempfile::TempDir,
}

impl KeptMount {
    fn begin(options: &[&str]) -> KeptMount {
        let (kept, mountpoint) = (tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_bare-mount"));
        command.arg(mountpoint.path()).arg("--kept").arg(kept.path()).arg("--keep-alive").args(options);
        let mount = KeptMount { program: command.spawn().unwrap(), kept, mountpoint };
        mount.server_other_than(None);
        mount
    }

    fn root(&self) -> PathBuf {
        self.mountpoint.path().canonicalize().unwrap()
    }

    /// Waits for a server that is not `former`.
    fn server_other_than(&self, former: Option<Pid>) -> Pid {
        let path = self.kept.path().join("server.pid");
        wait_for(|| {
            let pid = fs::read_to_string(&path).ok()?.parse().ok().and_then(Pid::from_raw)?;
            (Some(pid) != former).then_some(pid)
        })
    }

    /// Kills the server, and waits for the next one.
    fn kill_server(&self) {
        let server = self.server_other_than(None);
        kill_process(server, Signal::KILL).unwrap();
        self.server_other_than(Some(server));
    }

    fn end(mut self) -> ExitStatus {
        // What another test forks has this test's files open until it runs its own program.
        wait_for(|| unmount(&self.root(), Unmount::Now).ok());
        wait_for(|| self.program.try_wait().unwrap())
    }
}

impl Drop for KeptMount {
    fn drop(&mut self) {
        // After a failed assertion: what is mounted would block whoever looks at it.
        let _ = unmount(&self.root(), Unmount::Lazily);
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Some(found) => return found,
            None => assert!(start.elapsed() < PATIENCE, "it did not come"),
        }
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// One round of a program that uses files: every step says what it must.
fn round(folder: &Path, number: u64) -> Result<()> {
    let (first, second) = (folder.join(format!("a{number}")), folder.join("b"));
    fs::create_dir(folder.join("d"))?;
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(&first)?;
    let data = number.to_le_bytes().repeat(1000);
    file.write_all_at(&data, 0)?;
    file.sync_data()?;
    fs::rename(&first, &second)?;
    assert_eq!(fs::read(&second)?, data);
    assert_eq!(fs::metadata(&first).unwrap_err().kind(), ErrorKind::NotFound);
    let mut names: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.sort();
    assert_eq!(names, ["b", "d"]);
    fs::remove_file(&second)?;
    fs::remove_dir(folder.join("d"))
}

/// What the clients of a test have in common. The numbers order nothing else.
#[derive(Default)]
struct Load {
    rounds: AtomicU64,
    ends: AtomicBool,
}

impl Load {
    /// Does `round` again and again until the load ends.
    fn run(&self, mut round: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut number = 0;
        while !self.ends.load(Ordering::Relaxed) {
            round(number)?;
            number += 1;
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Kills the server as often, each time in the midst of the load, and ends the load.
    fn kill_amid(&self, mount: &KeptMount, kills: u32) {
        let rounds = || self.rounds.load(Ordering::Relaxed);
        for _ in 0..kills {
            let before = rounds();
            wait_for(|| (rounds() > before + 2).then_some(()));
            mount.kill_server();
        }
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn kill_under_load(threads: &str, kills: u32) {
    let mount = KeptMount::begin(&["--threads", threads]);
    let (root, load) = (mount.root(), Load::default());
    thread::scope(|scope| {
        let (root, load) = (&root, &load);
        let client = |number: u32| {
            let folder = root.join(format!("c{number}"));
            fs::create_dir(&folder).and_then(|()| load.run(|number| round(&folder, number)))
        };
        let clients: Vec<_> = (0..3).map(|number| scope.spawn(move || client(number))).collect();
        load.kill_amid(&mount, kills);
        clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
    });
    assert!(mount.end().success());
}

#[test]
fn programs_see_no_error_while_the_server_of_one_thread_is_killed() {
    kill_under_load("1", 5);
}

#[test]
fn programs_see_no_error_while_the_server_of_several_threads_is_killed() {
    kill_under_load("3", 5);
}

#[test]
fn open_files_outlive_their_server() {
    let mount = KeptMount::begin(&[]);
    let file =
        OpenOptions::new().create(true).truncate(true).read(true).write(true).open(mount.root().join("a")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    mount.kill_server();
    file.write_all_at(b"after", 6).unwrap();
    let mut read = [0; 11];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"beforeafter");
    drop(file);
    assert!(mount.end().success());
}

#[test]
fn on_an_older_kernel_the_mount_lives_on() {
    let mount = KeptMount::begin(&["--no-resend"]);
    fs::write(mount.root().join("a"), b"kept").unwrap();
    mount.kill_server();
    assert_eq!(fs::read(mount.root().join("a")).unwrap(), b"kept");
    fs::write(mount.root().join("b"), b"new").unwrap();
    assert!(mount.end().success());
}

#[test]
fn an_older_kernel_ends_requests_that_the_server_left() {
    let mount = KeptMount::begin(&["--no-resend"]);
    let (root, load) = (mount.root(), Load::default());
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            load.run(|number| match fs::write(root.join(format!("a{number}")), b"x") {
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => Ok(()),
                written => written,
            })
        });
        load.kill_amid(&mount, 5);
        client.join().unwrap().unwrap();
    });
    assert!(mount.end().success());
}

#[test]
fn a_signal_ends_server_and_keeper() {
    let mut mount = KeptMount::begin(&[]);
    let program = Pid::from_child(&mount.program);
    kill_process(program, Signal::TERM).unwrap();
    let status = wait_for(|| mount.program.try_wait().unwrap());
    assert!(status.success(), "it unmounted: {status}");
}
