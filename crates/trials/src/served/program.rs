//! The program under test: where it is, a volume made by it, and a server of its own process.

use crate::artefacts::{built, run};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use tidegate_measure::waiting::{PATIENCE, comes_true};
use tidegate_nbd_client::client::{Client, Dialect};

/// The path of `tidegate`, see [`built`].
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = built(&["--package", "tidegate-cli", "--bin", "tidegate"]);
        folder.unwrap_or_else(|error| panic!("{error}")).join("tidegate")
    })
}

/// Waits for a condition that nothing announces, and panics if it has not come within ten
/// minutes.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    assert!(comes_true(holds), "still waiting for {what} after {PATIENCE:?}");
}

/// A volume in a file of its own, made by `tidegate create`.
#[derive(Clone, Debug)]
pub struct Volume {
    path: PathBuf,
}

impl Volume {
    /// A new volume named `name` in `folder`; `size` is the region's, as one types it.
    pub fn create(folder: &Path, name: &str, size: &str) -> Volume {
        Volume::create_with(folder, name, size, &[])
    }

    /// A new volume like that of [`create`](Self::create), with further arguments.
    pub fn create_with(folder: &Path, name: &str, size: &str, arguments: &[&str]) -> Volume {
        let path = folder.join(name);
        let mut create = Command::new(program());
        create.arg("create").arg("--pmem").arg(&path).args(["--size", size]).args(arguments);
        run(&mut create, "tidegate").unwrap_or_else(|error| panic!("{error}"));
        Volume { path }
    }

    /// The volume in the region at `path`, made by somebody else.
    pub fn at(path: &Path) -> Volume {
        Volume { path: path.to_owned() }
    }

    /// Runs `tidegate check` and panics unless it finds the volume clean.
    pub fn assert_clean(&self) {
        let mut check = Command::new(program());
        check.arg("check").arg("--pmem").arg(&self.path);
        run(&mut check, "tidegate").unwrap_or_else(|error| panic!("{error}"));
    }

    /// Serves the volume from a new process, and returns when clients may connect.
    pub fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// Serves the volume with further arguments.
    pub fn serve_with(&self, arguments: &[&str]) -> Server {
        let socket = self.path.with_extension("sock");
        let mut serve = Command::new(program());
        serve.arg("serve").arg("--pmem").arg(&self.path);
        serve.arg("--listen").arg(format!("unix:{}", socket.display())).args(arguments);
        let mut child = serve.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut said = BufReader::new(child.stdout.take().expect("the server's output is piped"));
        let mut server = Server { child, socket, _said: None };
        await_uri(&mut said, &mut server);
        server._said = Some(said);
        server
    }
}

/// The server prints `serving` and the URI last, when it listens.
fn await_uri(said: &mut BufReader<ChildStdout>, server: &mut Server) {
    let mut line = String::new();
    while !line.starts_with("serving ") {
        line.clear();
        let got = said.read_line(&mut line).expect("the server's output is text");
        assert!(got > 0, "the server ended before it listened: {:?}", server.child.wait());
    }
}

/// A server process. Dropped, it is killed.
#[derive(Debug)]
pub struct Server {
    child: Child,
    socket: PathBuf,
    /// Kept open, so that the server may go on printing.
    _said: Option<BufReader<ChildStdout>>,
}

impl Server {
    /// The socket it listens on.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The server's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// A client of the default export.
    pub fn connect(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(&self.socket).expect("the server listens");
        Client::connect(stream, "", Dialect::Structured).expect("the server takes a client")
    }

    /// Ends the process with SIGKILL, at whatever it is doing.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server is a child of this process");
        self.child.wait().expect("the server is a child of this process");
    }

    /// Asks the process to end with SIGTERM, and panics unless it does so with exit status 0.
    pub fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the server runs");
        let status = self.child.wait().expect("the server is a child of this process");
        assert!(status.success(), "after SIGTERM the server ended with {status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
