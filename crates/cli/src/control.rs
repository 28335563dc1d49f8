//! The control sockets of a running server: beside each volume, for its owner and root. Whoever
//! connects asks in one line of JSON, a [`Request`], and gets one line of JSON and the end. Who
//! asks nothing gets a [`Snapshot`] after a moment.
//!
//! A [`Change`] is answered by more lines: each but the last says how far it is, and it is made
//! only if whoever asked still listens.

use crate::cached_disk::DiskState;
use crate::change::{Change, Changing, Outcome};
use crate::failure::{ControlFailure, DiskFailure, Exit, Failure, Kept, StopFailure};
use crate::last_words::Told;
use crate::listen::{Listener, Place, SocketAccess, Stream};
use crate::live_disk::{FlushTicket, LiveDisk, Resizing};
use crate::peers::Peers;
use crate::plan::Plan;
use crate::risk;
use crate::scrub::Found;
use crate::snapshot::{Observed, Snapshot};
use crate::watchers::Watcher;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidegate_host::{default_paths, owned};

/// How long somebody who asked may take to read a line of the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long somebody who connected may take to ask, from the first byte to the last.
const REQUEST_PATIENCE: Duration = Duration::from_millis(500);

/// How long both sides of a change are watched before the next look at how far it is.
const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

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
    /// To tell of its end: the answers are a [`Snapshot`] now, and [`Told`] when it has ended.
    End,
    /// Something about the disk of one volume: the answer is a [`DiskReply`].
    Disk {
        /// The volume's region.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
        /// What.
        act: DiskAct,
    },
    /// To change the cache of a disk, or to part from it, as long as whoever asked listens: the
    /// answers are [`DiskReply`]s.
    Change {
        /// The volume's region.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
        /// How.
        change: Change,
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
    /// To put the region in front of the disk again.
    Attach {
        /// Where the disk is.
        #[serde(with = "tidegate_host::json_path")]
        disk: PathBuf,
        /// Whether completed writes may then lie only in memory that a power loss empties.
        #[serde(default)]
        accept_volatile: bool,
        /// Whether a journal may go over what lies at its end.
        #[serde(default)]
        force: bool,
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
        /// Whether completed writes may then lie only in memory that a power loss empties.
        #[serde(default)]
        accept_volatile: bool,
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
    /// The flush, or what a change begins with, is under way.
    UnderWay,
    /// The flush has ended.
    Flushed {
        /// What it had to leave, if anything.
        trouble: Option<Kept>,
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
    /// A region has the size that was asked for.
    Resized {
        /// What became of it and its cache.
        changed: Resizing,
    },
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
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
    },
    /// The volume has no disk behind it.
    #[error("{} is no cache of a disk", pmem.display())]
    NoCache {
        /// The region asked for.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
    },
    /// It was tried, and did not succeed.
    #[error("{why}")]
    Failed {
        /// What happened, and why.
        why: String,
        /// What to do now.
        next: String,
        /// How the command ends that asked for it.
        exit: u8,
    },
    /// The server ended before a change was made.
    #[error("the server ends, and {} stays as it was", pmem.display())]
    Ending {
        /// The region.
        #[serde(with = "tidegate_host::json_path")]
        pmem: PathBuf,
    },
    /// No cache has this mode.
    #[error("{mode} is no mode of a cache")]
    NoMode {
        /// The word.
        mode: String,
    },
}

impl Refused {
    fn exit(&self) -> Exit {
        match self {
            Refused::Failed { exit, .. } => Exit::of_code(*exit).map_or(Exit::Refused, |(exit, _)| exit),
            _ => Exit::Refused,
        }
    }

    fn next(&self) -> String {
        match self {
            Refused::Failed { next, .. } => next.clone(),
            Refused::Ending { .. } => "try again without it, or with the next one".to_owned(),
            _ => "see `tidegate stat` for its volumes".to_owned(),
        }
    }
}

/// Opens the control socket that was asked for, or one beside each volume. Those are a convenience:
/// where one cannot be, a line in the log says so, and the server serves without it.
pub(crate) fn open(plan: &Plan) -> Result<Vec<Listener>, Failure> {
    let bind = |path: PathBuf| Listener::bind(&Place::Unix(path), SocketAccess::OWN);
    if let Some(path) = &plan.control {
        return Ok(vec![bind(path.clone()).map_err(|failure| failure.named_by("--control PATH"))?]);
    }
    let beside = plan.volumes.iter().map(|volume| default_paths::control_socket(&volume.pmem));
    Ok(beside.filter_map(|path| bind(path).inspect_err(tell_absence).ok()).collect())
}

fn tell_absence(failure: &Failure) {
    if let Some(told) = failure.told() {
        tracing::warn!("no control socket: {}: {}", told.what, told.why);
    }
}

/// Tells whoever connected. The other side of `end` closes when the server ends.
pub(crate) fn answer_one(mut watcher: Watcher<'_>, observed: &Observed, end: &UnixStream) {
    if let Stream::Unix(peer) = watcher.stream()
        && !matches!(Peers::default().stranger(peer), Ok(None))
    {
        tracing::warn!("rejected connection to the control socket: its user is not allowed");
        return;
    }
    let asked = request(&watcher);
    tracing::debug!("a control socket is asked by {}: {asked:?}", watcher.stream().peer());
    // Whoever asked and went away, or does not read, gets no more.
    let _ = match asked {
        Ok(Request::Change { pmem, change }) => {
            match disk_of(observed, &pmem).and_then(|disk| Changing::begin(disk, change).map_err(refused)) {
                Ok(changing) => {
                    // There is one change of a disk at a time, and it may take longer than anybody
                    // waits for a seat.
                    watcher.stand();
                    let reply = made(&watcher, &pmem, changing, end);
                    // It was made, or it was not, whoever hears of it.
                    send(&watcher, &reply)
                }
                Err(why) => send(&watcher, &DiskReply::Err(why)),
            }
        }
        Ok(Request::Disk { pmem, act }) => send(&watcher, &watcher.make(|| of_disk(observed, &pmem, act))),
        Ok(Request::Snapshot) => send(&watcher, &watcher.make(|| observed.snapshot())),
        Ok(Request::End) => {
            let sent = send(&watcher, &watcher.make(|| observed.snapshot()));
            // The end may be a long way off, and takes no seat from anybody.
            observed.last_words.await_by(watcher.leave());
            sent
        }
        Err(why) => send(&watcher, &DiskReply::Err(why)),
    };
}

/// Sends a line.
fn send(watcher: &Watcher<'_>, answer: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer).expect("answers are made of strings and numbers");
    line.push(b'\n');
    watcher.send(&line, Instant::now() + PATIENCE)
}

/// Makes the change as long as `watcher` is there, and the server has not ended.
fn made(watcher: &Watcher<'_>, pmem: &Path, changing: Changing<'_>, end: &UnixStream) -> DiskReply {
    let disk = changing.disk();
    let tell = || send(watcher, &DiskReply::Ok((DiskAnswer::UnderWay, disk.state())));
    let outcome = changing.carry_out(|| tell().is_ok() && both_stay(watcher.stream(), end));
    // Whoever hears that it has ended finds the lasting mode.
    drop(changing);
    let answer = match outcome.map_err(refused)? {
        Outcome::Done => DiskAnswer::Done,
        Outcome::Resized(changed) => DiskAnswer::Resized { changed },
        Outcome::Kept(kept) => DiskAnswer::Flushed { trouble: Some(kept) },
        Outcome::GivenUp => {
            tracing::info!("{}: a change was given up before it was made: nobody waits for it", pmem.display());
            return Err(Refused::Ending { pmem: pmem.to_owned() });
        }
    };
    Ok((answer, disk.state()))
}

/// Whether neither of them closes for a moment. A side that only has no more to say has not closed.
fn both_stay(stream: &Stream, end: &UnixStream) -> bool {
    // That it has closed is told also where nothing is asked for.
    let mut watched = [PollFd::new(stream, PollFlags::empty()), PollFd::new(end, PollFlags::IN)];
    // An interrupted look sees neither close; the next one follows.
    !poll(&mut watched, Some(&A_MOMENT)).is_ok_and(|closed| closed > 0)
}

/// What whoever connected asks; a snapshot if nothing.
fn request(watcher: &Watcher<'_>) -> Result<Request, Refused> {
    let deadline = Instant::now() + REQUEST_PATIENCE;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < REQUEST_BYTES_MAX {
        let mut piece = [0; 1024];
        match watcher.receive(&mut piece, deadline) {
            Ok(len @ 1..) => line.extend_from_slice(&piece[..len]),
            Ok(0) | Err(_) if line.is_empty() => return Ok(Request::Snapshot),
            Ok(0) | Err(_) => break,
        }
    }
    serde_json::from_slice(&line).map_err(|error| Refused::NotUnderstood { why: error.to_string() })
}

/// Does `act` with the disk of the volume in `pmem`.
fn of_disk(observed: &Observed, pmem: &Path, act: DiskAct) -> DiskReply {
    let disk = disk_of(observed, pmem)?;
    let answer = carry_out(disk, act)?;
    Ok((answer, disk.state()))
}

/// The disk of the volume in `pmem`.
fn disk_of<'a>(observed: &'a Observed, pmem: &Path) -> Result<&'a LiveDisk, Refused> {
    let volume = observed.volumes.iter().find(|volume| default_paths::is_same_file(&volume.pmem, pmem));
    let volume = volume.ok_or_else(|| Refused::NotServed { pmem: pmem.to_owned() })?;
    volume.disk.as_deref().ok_or_else(|| Refused::NoCache { pmem: pmem.to_owned() })
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
        DiskAct::SetMode { mode, accept_volatile } => {
            let mode = mode.parse().map_err(|_| Refused::NoMode { mode })?;
            changed(disk.set_mode(mode, risk::accepted(accept_volatile)))?
        }
        DiskAct::Attach { disk: path, accept_volatile, force } => {
            changed(disk.attach(&path, risk::accepted(accept_volatile), force))?
        }
    })
}

/// What is answered to a change.
fn changed(change: Result<(), Failure>) -> Result<DiskAnswer, Refused> {
    change.map(|()| DiskAnswer::Done).map_err(refused)
}

fn refused(failure: Failure) -> Refused {
    match failure.told() {
        Some(told) => {
            Refused::Failed { why: format!("{}: {}", told.what, told.why), next: told.next, exit: told.exit as u8 }
        }
        None => Refused::Failed { why: String::new(), next: String::new(), exit: Exit::Refused as u8 },
    }
}

/// Asks the server that listens on the control socket `path`. `pmem`: one that has this volume.
pub(crate) fn ask(path: &Path, pmem: Option<&Path>) -> Result<Snapshot, ControlFailure> {
    exchange(path, pmem, &Request::Snapshot)
}

/// Asks the process `pid`, which listens on the socket `path`.
pub(crate) fn ask_process(path: &Path, pid: u32) -> Result<Snapshot, ControlFailure> {
    let mut asked = Asked::of(path, None, &Request::Snapshot)?;
    match asked.peer() {
        Some(peer) if peer.pid == pid => asked.answer(),
        _ => Err(asked.silent(io::ErrorKind::ConnectionRefused.into())),
    }
}

/// Who listens on a control socket, as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The process; 0 if it cannot be seen from here.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) user: u32,
}

/// A server that will tell of its end.
pub(crate) struct Ending {
    asked: Asked,
    /// Which process it is.
    pub(crate) peer: Option<Peer>,
    /// What it does now.
    pub(crate) snapshot: Snapshot,
}

impl Ending {
    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.peer.map_or(0, |peer| peer.pid)
    }

    /// What it tells when it has ended; None if it ends without a word.
    pub(crate) fn last_words(mut self) -> Option<Told> {
        self.asked.wait(None).and_then(|()| self.asked.answer()).ok()
    }
}

/// Asks the server that listens on `path` to tell of its end. What the server of another user
/// answers is read by root alone.
pub(crate) fn ask_for_end(path: &Path, pmem: Option<&Path>) -> Result<Ending, Failure> {
    let mut asked = Asked::of(path, pmem, &Request::End)?;
    let peer = asked.peer();
    if let Some(Peer { user, .. }) = peer
        && owned::own() != 0
        && user != owned::own()
    {
        return Err(StopFailure::OfAnother { socket: path.to_owned(), user }.into());
    }
    let snapshot = asked.answer()?;
    Ok(Ending { asked, peer, snapshot })
}

/// Asks it to do `act` with the disk of the volume in `pmem`.
pub(crate) fn ask_disk(path: &Path, pmem: &Path, act: DiskAct) -> Result<(DiskAnswer, DiskState), Failure> {
    let request = Request::Disk { pmem: as_served(pmem), act };
    Ok(exchange::<DiskReply>(path, Some(pmem), &request)?.map_err(told)?)
}

/// Asks it for `change` and waits; `hear` is told over and over how the cache is. An answer that it
/// was done, or a flush and what it had to leave.
pub(crate) fn ask_for(
    path: &Path,
    pmem: &Path,
    change: Change,
    mut hear: impl FnMut(&DiskState),
) -> Result<(DiskAnswer, DiskState), Failure> {
    let mut asked = Asked::of(path, Some(pmem), &Request::Change { pmem: as_served(pmem), change })?;
    loop {
        match asked.answer::<DiskReply>()?.map_err(told)? {
            (DiskAnswer::UnderWay, state) => hear(&state),
            last => return Ok(last),
        }
        // A server that has begun makes the change in the time it takes, or closes.
        asked.wait(None)?;
    }
}

fn as_served(pmem: &Path) -> PathBuf {
    pmem.canonicalize().unwrap_or_else(|_| pmem.to_owned())
}

fn told(refused: Refused) -> DiskFailure {
    DiskFailure::Server { why: refused.to_string(), next: refused.next(), exit: refused.exit() }
}

fn exchange<A: DeserializeOwned>(path: &Path, pmem: Option<&Path>, request: &Request) -> Result<A, ControlFailure> {
    Asked::of(path, pmem, request)?.answer()
}

/// Refuses a process of another user at the other end of the control socket beside `pmem`, where
/// anybody may have made one: it would say what it likes of the region. A socket elsewhere was
/// named by whoever asks.
fn refuse_stranger(stream: &UnixStream, path: &Path, pmem: &Path) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw();
    let is_owner = || pmem.metadata().is_ok_and(|about| about.uid() == peer);
    if path != default_paths::control_socket(pmem) || [owned::own(), 0].contains(&peer) || is_owner() {
        return Ok(());
    }
    let stranger = format!("{} listens there, who does not own the region", owned::named(peer));
    Err(io::Error::new(io::ErrorKind::ConnectionRefused, stranger))
}

/// A server that was asked.
struct Asked {
    path: PathBuf,
    lines: BufReader<UnixStream>,
}

impl Asked {
    fn of(path: &Path, pmem: Option<&Path>, request: &Request) -> Result<Asked, ControlFailure> {
        let absent = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => ControlFailure::Denied { path: path.to_owned(), error },
            _ => ControlFailure::NoServer { path: path.to_owned(), error },
        };
        let mut stream = UnixStream::connect(path).map_err(absent)?;
        pmem.map_or(Ok(()), |pmem| refuse_stranger(&stream, path, pmem)).map_err(absent)?;
        let mut line = serde_json::to_vec(request).expect("a request is made of strings and numbers");
        line.push(b'\n');
        // A server that does not listen any more has answered.
        let _ = stream.write_all(&line);
        let asked = Asked { path: path.to_owned(), lines: BufReader::new(stream) };
        asked.wait(Some(ANSWER_PATIENCE))?;
        Ok(asked)
    }

    /// Waits so long for each answer from now on. None: for ever.
    fn wait(&self, limit: Option<Duration>) -> Result<(), ControlFailure> {
        self.lines.get_ref().set_read_timeout(limit).map_err(|error| self.silent(error))
    }

    fn answer<A: DeserializeOwned>(&mut self) -> Result<A, ControlFailure> {
        let mut line = String::new();
        let read = io::Read::take(&mut self.lines, ANSWER_BYTES_MAX).read_line(&mut line);
        match read.map_err(|error| self.silent(error))? {
            0 => Err(self.silent(io::ErrorKind::UnexpectedEof.into())),
            _ => serde_json::from_str(&line)
                .map_err(|error| ControlFailure::Unintelligible { path: self.path.clone(), error }),
        }
    }

    fn silent(&self, error: io::Error) -> ControlFailure {
        ControlFailure::Silent { path: self.path.clone(), error }
    }

    /// Who listens there.
    fn peer(&self) -> Option<Peer> {
        let peer = rustix::net::sockopt::socket_peercred(self.lines.get_ref()).ok()?;
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
        Some(Peer { pid, user: peer.uid.as_raw() })
    }
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
        let absent = Failure::from(ask(&path, None).expect_err("nobody is there"));
        assert!(absent.is_no_server());
        let listener = UnixListener::bind(&path).expect("a socket");
        let rude = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // What is left unread makes the system end the connection with an error.
            stream.read_exact(&mut [0]).expect("a request");
        });
        let silent = Failure::from(ask(&path, None).expect_err("no answer"));
        rude.join().expect("it heard a request");
        assert!(!silent.is_no_server(), "{silent:?}");
    }
}
