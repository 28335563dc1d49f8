//! The control sockets of a running server: beside each volume, for its owner and root. Whoever connects asks in one line of JSON, a
//! [`Request`], and gets one line of JSON and the end. Who asks nothing gets a [`Snapshot`] after a moment.

use crate::cached_disk::DiskState;
use crate::failure::{ControlFailure, DiskFailure, Failure};
use crate::listen::{Listener, Place, SocketAccess, Stream};
use crate::live_disk::{FlushTicket, LiveDisk};
use crate::peers::Peers;
use crate::places;
use crate::plan::Plan;
use crate::scrub::Found;
use crate::snapshot::{Observed, Snapshot};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_nbd::Stream as _;

/// How long somebody who asked may keep the answer waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long somebody who connected may take to ask.
const REQUEST_PATIENCE: Duration = Duration::from_millis(500);

/// Bytes of a request that are read.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// How long a server may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read: far more than the most volumes need.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What is asked of a server.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// What it does: the answer is a [`Snapshot`].
    Snapshot,
    /// Something about the disk of one volume: the answer is a [`DiskReply`].
    Disk {
        /// The volume's region.
        #[serde(with = "crate::json_path")]
        pmem: PathBuf,
        /// What.
        act: DiskAct,
    },
}

/// What is asked about a disk.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiskAct {
    /// To begin to write everything to it.
    Flush,
    /// Whether that has ended.
    Flushed {
        /// Which flush.
        ticket: FlushTicket,
    },
    /// To set region and disk free from each other, and to go on with the disk alone.
    Detach,
    /// To put the region in front of the disk again.
    Attach {
        /// Where the disk is.
        #[serde(with = "crate::json_path")]
        disk: PathBuf,
    },
    /// To make region and cache larger or smaller.
    Resize {
        /// Bytes of the region.
        bytes: u64,
    },
    /// To read what some entries name.
    Scrub {
        /// The first of them.
        from: u32,
    },
    /// To treat requests otherwise from now on.
    SetMode {
        /// How.
        mode: String,
        /// Whether the caches to come do so too, and the disk alone refuses what it has to.
        lasting: bool,
    },
}

/// What is answered.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiskAnswer {
    /// A flush has begun.
    Flushing {
        /// What to ask for it by.
        ticket: FlushTicket,
    },
    /// The flush is under way.
    UnderWay,
    /// The flush has ended.
    Flushed {
        /// What it had to leave, if anything.
        trouble: Option<String>,
    },
    /// Some entries were looked at.
    Scrubbed {
        /// What they name.
        found: Found,
        /// The entry to go on with, if there are more.
        next: Option<u32>,
    },
    /// It was done.
    Done,
}

/// An answer, and how the cache is now; or why there is none.
type DiskReply = Result<(DiskAnswer, DiskState), Refused>;

/// Why a request is not carried out.
#[derive(Debug, Deserialize, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refused {
    /// The line is no request.
    #[error("the request is not understood: {why}")]
    NotUnderstood {
        /// What is wrong with it.
        why: String,
    },
    /// The server has no such volume.
    #[error("{} is not served here", pmem.display())]
    NotServed {
        /// The region asked for.
        #[serde(with = "crate::json_path")]
        pmem: PathBuf,
    },
    /// The volume has no disk behind it.
    #[error("{} is no cache of a disk", pmem.display())]
    NoCache {
        /// The region asked for.
        #[serde(with = "crate::json_path")]
        pmem: PathBuf,
    },
    /// It was tried, and did not succeed.
    #[error("{why}")]
    Failed {
        /// What happened, and why.
        why: String,
        /// What to do now.
        next: String,
    },
    /// No cache has this mode.
    #[error("{mode} is no mode of a cache")]
    NoMode {
        /// The word.
        mode: String,
    },
}

impl Refused {
    fn next(&self) -> String {
        match self {
            Refused::Failed { next, .. } => next.clone(),
            _ => "see `tidegate stat` for its volumes".to_owned(),
        }
    }
}

/// Opens the control socket that was asked for, or one beside each volume. Those are a convenience: where one cannot be, a
/// line in the log says so, and the server serves without it.
pub(crate) fn open(plan: &Plan) -> Result<Vec<Listener>, Failure> {
    let bind = |path: PathBuf| Listener::bind(&Place::Unix(path), SocketAccess::OWN);
    if let Some(path) = &plan.control {
        return Ok(vec![bind(path.clone()).map_err(|failure| failure.named_by("--control PATH"))?]);
    }
    let beside = plan.volumes.iter().map(|volume| places::control_socket(&volume.pmem));
    Ok(beside.filter_map(|path| bind(path).inspect_err(tell_absence).ok()).collect())
}

fn tell_absence(failure: &Failure) {
    if let Some(told) = failure.told() {
        tracing::warn!("no control socket: {}: {}", told.what, told.why);
    }
}

/// Tells whoever connected.
pub(crate) fn answer_one(stream: &Stream, observed: &Observed) {
    if let Stream::Unix(peer) = stream
        && !matches!(Peers::default().stranger(peer), Ok(None))
    {
        tracing::warn!("a stranger was turned away from the control socket");
        return;
    }
    let mut line = match request(stream) {
        Ok(Request::Disk { pmem, act }) => serde_json::to_vec(&of_disk(observed, &pmem, act)),
        Ok(Request::Snapshot) => serde_json::to_vec(&observed.snapshot()),
        Err(why) => serde_json::to_vec(&DiskReply::Err(why)),
    }
    .expect("answers are made of strings and numbers");
    line.push(b'\n');
    // Whoever asked and went away, or does not read, gets no more.
    let _ = stream.limit_sending(Some(PATIENCE)).and_then(|()| stream.send(&line));
}

/// What whoever connected asks; a snapshot if nothing.
fn request(stream: &Stream) -> Result<Request, Refused> {
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < REQUEST_BYTES_MAX {
        let mut piece = [0; 1024];
        let got = stream.limit_waiting(Some(REQUEST_PATIENCE)).and_then(|()| stream.receive(&mut piece));
        match got {
            Ok(len @ 1..) => line.extend_from_slice(&piece[..len]),
            Ok(0) | Err(_) if line.is_empty() => return Ok(Request::Snapshot),
            Ok(0) | Err(_) => break,
        }
    }
    serde_json::from_slice(&line).map_err(|error| Refused::NotUnderstood { why: error.to_string() })
}

/// Does `act` with the disk of the volume in `pmem`.
fn of_disk(observed: &Observed, pmem: &Path, act: DiskAct) -> DiskReply {
    let volume = observed.volumes.iter().find(|volume| places::is_same_file(&volume.pmem, pmem));
    let volume = volume.ok_or_else(|| Refused::NotServed { pmem: pmem.to_owned() })?;
    let disk = volume.disk.as_ref().ok_or_else(|| Refused::NoCache { pmem: pmem.to_owned() })?;
    let answer = carry_out(disk, act)?;
    Ok((answer, disk.state()))
}

fn carry_out(disk: &LiveDisk, act: DiskAct) -> Result<DiskAnswer, Refused> {
    Ok(match act {
        DiskAct::Flush => DiskAnswer::Flushing { ticket: disk.flush().map_err(refused)? },
        DiskAct::Flushed { ticket } => match disk.flushed(ticket) {
            None => DiskAnswer::UnderWay,
            Some((_, trouble)) => DiskAnswer::Flushed { trouble },
        },
        DiskAct::Scrub { from } => {
            let step = disk.scrub(from);
            DiskAnswer::Scrubbed { found: Found::of(&step), next: step.next }
        }
        DiskAct::SetMode { mode, lasting } => {
            let mode = mode.parse().map_err(|_| Refused::NoMode { mode })?;
            changed(disk.set_mode(mode, lasting))?
        }
        DiskAct::Detach => changed(disk.detach())?,
        DiskAct::Attach { disk: path } => changed(disk.attach(&path))?,
        DiskAct::Resize { bytes } => changed(disk.resize(bytes))?,
    })
}

/// What is answered to a change.
fn changed(change: Result<(), Failure>) -> Result<DiskAnswer, Refused> {
    change.map(|()| DiskAnswer::Done).map_err(refused)
}

fn refused(failure: Failure) -> Refused {
    match failure.told() {
        Some(told) => Refused::Failed { why: format!("{}: {}", told.what, told.why), next: told.next },
        None => Refused::Failed { why: String::new(), next: String::new() },
    }
}

/// Asks the server that listens on the control socket `path`.
pub(crate) fn ask(path: &Path) -> Result<Snapshot, ControlFailure> {
    exchange(path, &Request::Snapshot)
}

/// Asks it to do `act` with the disk of the volume in `pmem`.
pub(crate) fn ask_disk(path: &Path, pmem: &Path, act: DiskAct) -> Result<(DiskAnswer, DiskState), Failure> {
    let pmem = pmem.canonicalize().unwrap_or_else(|_| pmem.to_owned());
    let reply: DiskReply = exchange(path, &Request::Disk { pmem, act })?;
    let told = |refused: Refused| DiskFailure::Server { why: refused.to_string(), next: refused.next() };
    reply.map_err(|refused| told(refused).into())
}

fn exchange<A: DeserializeOwned>(path: &Path, request: &Request) -> Result<A, ControlFailure> {
    let absent = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => ControlFailure::Denied { path: path.to_owned(), error },
        _ => ControlFailure::NoServer { path: path.to_owned(), error },
    };
    let silent = |error| ControlFailure::Silent { path: path.to_owned(), error };
    let mut stream = UnixStream::connect(path).map_err(absent)?;
    let mut asked = serde_json::to_vec(request).expect("a request is made of strings and numbers");
    asked.push(b'\n');
    // A server that does not listen any more has answered.
    let _ = stream.write_all(&asked);
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(silent)?;
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, ANSWER_BYTES_MAX)).read_line(&mut line).map_err(silent)?;
    serde_json::from_str(&line).map_err(|error| ControlFailure::Unintelligible { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_does_not_answer_is_a_server_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let absent = Failure::from(ask(&path).expect_err("nobody is there"));
        assert!(absent.is_no_server());
        let listener = UnixListener::bind(&path).expect("a socket");
        let rude = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // What is left unread makes the system end the connection with an error.
            stream.read_exact(&mut [0]).expect("a request");
        });
        let silent = Failure::from(ask(&path).expect_err("no answer"));
        rude.join().expect("it heard a request");
        assert!(!silent.is_no_server(), "{silent:?}");
    }
}
