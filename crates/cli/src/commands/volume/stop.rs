//! `tidegate stop`: ends a server in good order, waits until it has ended, and tells how.
//!
//! The server is the process at the other end of its control socket, as the kernel names it. It
//! gets SIGTERM only if it belongs to this user (root may end every server), listens on that
//! socket, and answers that it serves the volume. From the look at the process to the signal it is
//! held by a descriptor of it: a process that takes its number meanwhile is another one.

use crate::commands::volume::list;
use crate::errors::{Exit, Failure, StopFailure};
use crate::grammar::Stop;
use crate::output;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_host::columns::line;
use tidegate_host::default_paths;
use tidegate_host::processes::{self, Process};
use tidegate_media::Access;
use tidegate_server::control::client;
use tidegate_server::control::client::Ending;
use tidegate_server::control::last_words::EndReport;
use tidegate_server::failure::{ControlFailure, VolumeFailure};
use tidegate_volume_region::RegionFailure;
use tidegate_volume_region::region::map_at_once;

/// What `stop` answers.
#[derive(Serialize)]
struct StopReport {
    /// The process that has ended.
    pid: u32,
    /// Its exit code, if it told.
    server_exit: Option<u8>,
    /// What went wrong, if anything did.
    trouble: Option<String>,
    /// Each volume's farewell.
    ended: Vec<serde_json::Value>,
    #[serde(skip)]
    lines: Vec<String>,
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|ended| line(f, "ended", ended))?;
        self.trouble.iter().try_for_each(|trouble| line(f, "trouble", trouble))?;
        let exit = match self.server_exit {
            Some(code) => match Exit::of_code(code) {
                Some((_, meaning)) => format!("ended with {code}: {meaning}"),
                None => format!("ended with {code}"),
            },
            None => "ended without a word: it was killed, or by a second signal".to_owned(),
        };
        write!(f, "{:<10} process {} {exit}", "server", self.pid)
    }
}

/// Runs `tidegate stop`.
pub(crate) fn run(args: &Stop, json: bool) -> Result<Exit, Failure> {
    let pmem = args.region.given().or_else(|| args.control.is_none().then(default_paths::default_volume));
    let (socket, asked) = ask(args.control.as_deref(), pmem.as_deref())?;
    let pid = asked.pid();
    refuse_another(&asked, &socket, pmem.as_deref())?;
    let process = held(&asked, &socket)?;
    pidfd_send_signal(&process, Signal::TERM)
        .map_err(|errno| StopFailure::NotSignalled { pid, error: errno.into() })?;
    tracing::info!("process {pid} is ending");
    let told = asked.last_words();
    wait_for(&process)?;
    let answer = answer(pid, told);
    let exit = answer.server_exit.map_or(Some(Exit::Interrupted), |code| Exit::of_code(code).map(|(exit, _)| exit));
    output::end_with(&answer, json, exit.unwrap_or(Exit::Unexpected))
}

fn answer(pid: u32, told: Option<EndReport>) -> StopReport {
    match told {
        Some(EndReport { ended, lines, exit, trouble }) => {
            StopReport { pid, server_exit: Some(exit), trouble, ended, lines }
        }
        None => StopReport { pid, server_exit: None, trouble: None, ended: Vec::new(), lines: Vec::new() },
    }
}

/// The control socket of the server, and the server, which is to tell of its end.
fn ask(control: Option<&Path>, pmem: Option<&Path>) -> Result<(PathBuf, Ending), Failure> {
    let socket = control.map(Path::to_owned).or_else(|| pmem.map(default_paths::control_socket)).unwrap_or_default();
    let asked = client::ask_for_end(&socket, pmem);
    let Err(ControlFailure::NoServer { path, error }) = asked else { return Ok((socket, asked?)) };
    let no_server = |at: &Path| StopFailure::NoServer { at: at.to_owned(), why: error.to_string() };
    let Some(pmem) = pmem.filter(|_| control.is_none()) else { return Err(no_server(&path).into()) };
    // Its control socket may be elsewhere.
    let servers = list::servers(&processes::of_this_user());
    let elsewhere = servers.into_iter().find(|server| server.serves(pmem)).and_then(|server| server.control);
    if let Some(socket) = elsewhere {
        let asked = client::ask_for_end(&socket, Some(pmem))?;
        return Ok((socket, asked));
    }
    // Nothing that can be asked has it; another process may use it.
    let mapped = map_at_once(pmem, Access::Private);
    if let Err(in_use @ RegionFailure::Volume(VolumeFailure::InUse { .. })) = mapped {
        return Err(in_use.into());
    }
    Err(no_server(pmem).into())
}

/// The process that answers, which stays the same as long as this is open.
fn held(asked: &Ending, socket: &Path) -> Result<OwnedFd, Failure> {
    let unseen = || StopFailure::Unseen { socket: socket.to_owned() };
    let peer = asked.peer.filter(|peer| peer.pid > 0).ok_or_else(unseen)?;
    let pid = i32::try_from(peer.pid).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(unseen)?;
    let held = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| unseen())?;
    // Looked at once it is held: it is this process that listens there.
    let process = Process::at(peer.pid).filter(|process| process.user == peer.user && process.listens_as(socket));
    process.map(|_| held).ok_or_else(|| unseen().into())
}

/// Refuses a server that does not have the volume in `pmem`.
fn refuse_another(asked: &Ending, socket: &Path, pmem: Option<&Path>) -> Result<(), Failure> {
    let Some(pmem) = pmem else { return Ok(()) };
    if asked.snapshot.volumes.iter().any(|volume| default_paths::is_same_file(&volume.pmem, pmem)) {
        return Ok(());
    }
    let served = asked.snapshot.volumes.iter().map(|volume| volume.pmem.clone()).collect();
    Err(StopFailure::NotServed { socket: socket.to_owned(), pmem: pmem.to_owned(), served }.into())
}

/// Waits until the process has ended, however long it takes.
fn wait_for(process: &OwnedFd) -> Result<(), Failure> {
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::system("waiting for the server's end")(errno.into())),
        }
    }
}
