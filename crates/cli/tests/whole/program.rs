//! The program as a test runs it: to its end, or serving until told to stop. Every process started
//! here ends with its test.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidegate_nbd_client::client::{Client, Dialect};

/// How long a server may take to say something or to end, on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A user that owns nothing.
pub(crate) const NOBODY: u32 = 65534;

pub(crate) fn tidegate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
}

/// What a program that ended left.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end.
pub(crate) fn ended(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; install it by `apt-get install libnbd-bin python3-libnbd fuse3 qemu-utils`");
    });
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the program with these arguments to its end.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    ended(tidegate().args(arguments))
}

/// Runs the program, which has to succeed, and reads its JSON.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let ended = run(&[arguments, &["--json"]].concat());
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Runs another program, which has to succeed.
pub(crate) fn peer(program: &str, arguments: &[&str]) -> String {
    let ended = ended(Command::new(program).args(arguments));
    assert_eq!(ended.code, 0, "{program} {arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Fails unless root runs the tests: nobody else can `act`.
pub(crate) fn need_root(act: &str) {
    assert!(is_root(), "only root can {act}: run the tests with `sudo -E cargo xtask test`");
}

/// The program as a user who owns nothing, from a copy in `folder` which that user may enter.
pub(crate) fn as_nobody(folder: &Folder) -> Command {
    if !is_root() {
        return tidegate();
    }
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path("tidegate");
    // Copied by another process: a file that this one has open for writing could be inherited by a
    // child, and not run.
    peer("cp", &[env!("CARGO_BIN_EXE_tidegate"), copy.to_str().unwrap()]);
    let mut command = Command::new(copy);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

/// A folder of the test's own, on a disk.
pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A new volume of 32 MiB.
    pub(crate) fn volume(&self, name: &str) -> String {
        let path = self.text(name);
        let ended = run(&["create", "--pmem", &path, "--size", "32M"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        path
    }
}

impl Drop for Folder {
    /// The caches of volumes that lay here go too: servers that are dropped are killed.
    fn drop(&mut self) {
        for file in fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path()) {
            let mut volume = [0; 4096];
            let len = rustix::fs::getxattr(&file, "user.tidegate.volume", &mut volume[..]).unwrap_or(0);
            if Path::new(OsStr::from_bytes(&volume[..len])).starts_with(self.0.path()) {
                fs::remove_file(file).unwrap();
            }
        }
    }
}

/// A server in a process of its own; killed when dropped.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    /// Everything it printed until clients could connect.
    pub(crate) said: String,
    /// Where clients connect.
    pub(crate) uris: Vec<String>,
}

impl Server {
    /// Runs `tidegate serve` with these arguments and waits until it says that it serves.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::spawn(tidegate().arg("serve").args(arguments))
    }

    /// Runs a command that serves and waits until it says so.
    pub(crate) fn spawn(command: &mut Command) -> Server {
        let places = command.get_args().filter(|word| *word == "--listen").count().max(1);
        Server::spawn_of_uris(places, command)
    }

    /// Runs `tidegate serve` with these arguments and waits until it said this many URIs.
    pub(crate) fn start_of_uris(uris: usize, arguments: &[&str]) -> Server {
        Server::spawn_of_uris(uris, tidegate().arg("serve").args(arguments))
    }

    fn spawn_of_uris(uris: usize, command: &mut Command) -> Server {
        Server::spawn_all(uris, command, Stdio::null())
    }

    /// Runs a command that serves one place with `input` as its standard input.
    pub(crate) fn spawn_with_input(command: &mut Command, input: Stdio) -> Server {
        Server::spawn_all(1, command, input)
    }

    fn spawn_all(uris: usize, command: &mut Command, input: Stdio) -> Server {
        let mut child = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = channel();
        let stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().unwrap();
        let tell_errors = tell.clone();
        thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| tell.send(line.unwrap())));
        thread::spawn(move || BufReader::new(stderr).lines().try_for_each(|line| tell_errors.send(line.unwrap())));
        let mut server = Server { child, lines, said: String::new(), uris: Vec::new() };
        while server.uris.len() < uris {
            let line = server.hear("serving ");
            server.uris.push(line.trim_start_matches("serving").trim().to_owned());
        }
        server
    }

    /// Runs a command that answers metrics alone, and waits until it says so.
    pub(crate) fn spawn_metrics(command: &mut Command) -> Server {
        let mut server = Server::spawn_all(0, command, Stdio::null());
        server.hear("metrics ");
        server
    }

    /// Waits for a line that contains `phrase`, unless there was one before it served.
    pub(crate) fn hear_or_heard(&mut self, phrase: &str) {
        if !self.said.contains(phrase) {
            self.hear(phrase);
        }
    }

    /// Waits for a line that contains `phrase`.
    pub(crate) fn hear(&mut self, phrase: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("waited for {phrase:?} in vain: {}", self.said);
            };
            self.said += &line;
            self.said.push('\n');
            if line.contains(phrase) {
                return line;
            }
        }
    }

    /// A client on the unix socket at `path`.
    pub(crate) fn client(path: &Path) -> Client<UnixStream> {
        Client::connect(UnixStream::connect(path).unwrap(), "", Dialect::Structured).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the server ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        // Its output closes when it ends; then there is nothing left to wait for.
        let deadline = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.said += &line;
            self.said.push('\n');
        }
        assert!(Instant::now() < deadline, "the server does not end");
        self.child.wait().unwrap()
    }

    /// SIGTERM, and what came of it.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
