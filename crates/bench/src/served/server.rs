//! Servers under test: `tidegate` as built for release, and its rivals. Each is a process with a
//! unix socket.

pub(crate) use tidegate_measure::testbed::{end, pause, program};

use crate::target::Outcome;
use anyhow::Context;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_measure::medium::{OVERHEAD_BYTES, ScratchPath, WALK_BYTES};
use tidegate_measure::testbed::absent;
use tidegate_measure::workload::{on_core, stay_on};
use tidegate_nbd_client::client::{Client, Dialect};

/// The core of clients, among those allowed.
const CLIENT_CORE: usize = 0;

/// What a server may take to listen, or to end when asked.
const PATIENCE: Duration = Duration::from_secs(20);

/// What brings all rivals and clients.
pub(super) const REMEDY: &str = "apt-get install fio nbdkit qemu-utils libnbd-bin";

/// Where a server runs, and all its threads.
///
/// The scheduler puts a server and its client now together and now apart, and a request then costs
/// six times as much apart: a processor has to be woken for each. Left to it, a ratio would say
/// where both sides happened to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the clients' core: both are one at a time anyway.
    Together,
    /// On the second core.
    Apart,
}

impl Place {
    fn core(self) -> usize {
        match self {
            Place::Together => CLIENT_CORE,
            Place::Apart => CLIENT_CORE + 1,
        }
    }
}

/// A server that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rival {
    /// nbdkit, which drops what is written and reads zeroes.
    Null,
    /// nbdkit with an array in its heap.
    Memory,
    /// nbdkit with a file in memory.
    File,
    /// QEMU's server with a file in memory.
    Qemu,
}

impl Rival {
    /// The program.
    pub(super) fn program(self) -> &'static str {
        match self {
            Rival::Null | Rival::Memory | Rival::File => "nbdkit",
            Rival::Qemu => "qemu-nbd",
        }
    }

    /// Starts it with an export of `bytes`.
    pub(super) fn start(self, place: Place, bytes: u64) -> anyhow::Result<Server> {
        let (socket, file) = (ScratchPath::new(), ScratchPath::new());
        let mut command = Command::new(self.program());
        match self {
            Rival::Qemu => command.args(["--persistent", "--shared=0", "--format=raw", "--socket"]),
            _ => command.args(["--foreground", "--unix"]),
        };
        command.arg(socket.as_path());
        if matches!(self, Rival::File | Rival::Qemu) {
            File::create(file.as_path())?.set_len(bytes)?;
        }
        match self {
            Rival::Null => command.arg("null").arg(bytes.to_string()),
            Rival::Memory => command.arg("memory").arg(bytes.to_string()),
            Rival::File => command.arg("file").arg(file.as_path()),
            Rival::Qemu => command.arg(file.as_path()),
        };
        Server::start(command, place, socket, file)
    }
}

/// An outcome that says which of `programs` are missing, if any, and that `remedy` brings them.
pub(crate) fn missing(programs: &[&str], remedy: &str) -> Option<Outcome> {
    let absent = absent(programs);
    (!absent.is_empty()).then(|| Outcome::missing(absent.join(" and "), remedy))
}

/// A server process that listens. Dropped, it is asked to end, and its files are gone.
pub(crate) struct Server {
    child: Child,
    _parent: Parent,
    socket: ScratchPath,
    /// Where virtual machines attach it, if that is another socket.
    vhost: Option<ScratchPath>,
    _file: ScratchPath,
}

impl Server {
    /// `tidegate` with a new volume of at least [`WALK_BYTES`].
    pub(super) fn tidegate(place: Place) -> anyhow::Result<Server> {
        Server::tidegate_with(place, &[])
    }

    fn tidegate_with(place: Place, options: &[&OsStr]) -> anyhow::Result<Server> {
        let (socket, file) = (ScratchPath::new(), ScratchPath::new());
        let size = (WALK_BYTES + OVERHEAD_BYTES).to_string();
        let mut create = Command::new(program()?);
        create.arg("create").arg("--pmem").arg(file.as_path()).args(["--size", &size]);
        run(&mut create)?;
        let mut serve = Command::new(program()?);
        serve.arg("serve").arg("--pmem").arg(file.as_path());
        serve.arg("--listen").arg(format!("unix:{}", socket.as_path().display())).args(options);
        Server::start(serve, place, socket, file)
    }

    /// `tidegate` with a volume like that, which virtual machines may attach too.
    pub(crate) fn tidegate_with_vhost(place: Place) -> anyhow::Result<Server> {
        let vhost = ScratchPath::new();
        let option = [OsStr::new("--vhost-user"), vhost.as_path().as_os_str()];
        let mut server = Server::tidegate_with(place, &option)?;
        await_file(vhost.as_path())?;
        server.vhost = Some(vhost);
        Ok(server)
    }

    /// QEMU's server of vhost-user-blk, with a file in memory.
    pub(crate) fn qemu_vhost(place: Place) -> anyhow::Result<Server> {
        let (socket, file) = (ScratchPath::new(), ScratchPath::new());
        File::create(file.as_path())?.set_len(WALK_BYTES)?;
        let (path, listening) = (file.as_path().display(), socket.as_path().display());
        let mut command = Command::new("qemu-storage-daemon");
        command.arg("--blockdev").arg(format!("driver=file,node-name=disk,filename={path}"));
        let export = "type=vhost-user-blk,id=disk,node-name=disk,writable=on,addr.type=unix";
        command.arg("--export").arg(format!("{export},addr.path={listening}"));
        let server = Server::start_unasked(command, place, socket, file)?;
        await_file(server.socket.as_path())?;
        Ok(server)
    }

    /// Where virtual machines attach its volume.
    pub(crate) fn vhost_socket(&self) -> &Path {
        self.vhost.as_ref().unwrap_or(&self.socket).as_path()
    }

    /// Processor time that it has used, in clock ticks.
    pub(crate) fn ticks(&self) -> anyhow::Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(") ").context("the kernel tells no processor time")?;
        let times = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
        Ok(times.collect::<Result<Vec<_>, _>>()?.iter().sum())
    }

    fn start(command: Command, place: Place, socket: ScratchPath, file: ScratchPath) -> anyhow::Result<Server> {
        let called = format!("{command:?}");
        let mut server = Server::start_unasked(command, place, socket, file)?;
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(server.socket.as_path()).is_err() {
            if let Some(status) = server.child.try_wait()? {
                anyhow::bail!("{called} ended before it listened: {status}");
            }
            anyhow::ensure!(Instant::now() < deadline, "{called} does not listen");
            pause();
        }
        Ok(server)
    }

    /// Starts a server, and does not wait until it listens.
    fn start_unasked(
        mut command: Command,
        place: Place,
        socket: ScratchPath,
        file: ScratchPath,
    ) -> anyhow::Result<Server> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let called = format!("{command:?}");
        let (child, parent) = Parent::start(place.core(), command).with_context(|| format!("starting {called}"))?;
        Ok(Server { child, _parent: parent, socket, vhost: None, _file: file })
    }

    /// The export, as clients name it.
    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.as_path().display())
    }

    /// A new connection on which nothing was said.
    pub(crate) fn dial(&self) -> anyhow::Result<UnixStream> {
        UnixStream::connect(self.socket.as_path()).context("connecting to the server")
    }

    /// A client of its export.
    pub(super) fn client(&self) -> anyhow::Result<Client<UnixStream>> {
        Ok(Client::connect(self.dial()?, "", Dialect::Simple)?)
    }

    /// Memory of its own that it keeps resident: heap, stacks and the like, not mapped files.
    pub(super) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("the kernel tells no RssAnon")?;
        let kibibytes: u64 = line.trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes << 10)
    }
}

/// Waits for the `socket` of a server that serves one client, so that none may be tried.
fn await_file(socket: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        anyhow::ensure!(Instant::now() < deadline, "{} does not come", socket.display());
        pause();
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The thread that started a server, which stays until this is dropped. nbdkit asks the kernel to
/// end it with its parent, and that is a thread to the kernel.
struct Parent {
    _staying: Sender<Infallible>,
}

impl Parent {
    /// Starts `command` on the n-th allowed core.
    fn start(nth: usize, mut command: Command) -> io::Result<(Child, Parent)> {
        let (staying, until) = channel();
        let (started, child) = channel();
        thread::Builder::new().spawn(move || {
            stay_on(nth);
            // Nobody listens any more only if the one who started this thread panicked.
            let _ = started.send(command.spawn());
            let _ = until.recv();
        })?;
        let child = child.recv().map_err(io::Error::other)??;
        Ok((child, Parent { _staying: staying }))
    }
}

/// Runs a client on the clients' core to its end and returns what it printed.
pub(super) fn run(client: &mut Command) -> anyhow::Result<Vec<u8>> {
    client.stdin(Stdio::null());
    let output = on_core(CLIENT_CORE, || client.output()).with_context(|| format!("running {client:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{client:?} failed ({}): {}", output.status, said.trim());
    Ok(output.stdout)
}

/// Acts as a client on the clients' core.
pub(super) fn as_client<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    on_core(CLIENT_CORE, act)
}
