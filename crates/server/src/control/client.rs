//! Requests to a running server over its control socket, in its [`protocol`](super::protocol).

use crate::cached_disk::online::FlushTicket;
use crate::cached_disk::online_change::CacheChange;
use crate::cached_disk::state::DiskState;
use crate::control::last_words::EndReport;
use crate::control::protocol::{ControlRequest, DiskAct, DiskAnswer, DiskReply};
use crate::failure::ControlFailure;
use crate::stats::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tidegate_host::asking::{ANSWER_PATIENCE, connect_within, named};
use tidegate_host::processes::Process;
use tidegate_host::{default_paths, owned};

/// Bytes of an answer that are read: far more than the most volumes need.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The pause between two questions about a flush.
const FLUSH_ASKED_EVERY: Duration = Duration::from_millis(50);

/// Asks the server that listens on the control socket `path`. `pmem`: one that has this volume.
pub fn ask(path: &Path, pmem: Option<&Path>) -> Result<Snapshot, ControlFailure> {
    exchange(path, pmem, &ControlRequest::Snapshot)
}

/// Asks the same again, after `pause`.
pub fn ask_after(pause: Duration, path: &Path, pmem: Option<&Path>) -> Result<Snapshot, ControlFailure> {
    thread::sleep(pause);
    ask(path, pmem)
}

/// What `ask` finds out about each of `those`, each asked while the others are.
pub fn ask_each<T: Sync, A: Send>(those: &[T], ask: impl Fn(&T) -> Option<A> + Sync) -> Vec<A> {
    thread::scope(|threads| {
        let asking: Vec<_> = those.iter().map(|one| threads.spawn(|| ask(one))).collect();
        asking.into_iter().filter_map(|answer| answer.join().ok().flatten()).collect()
    })
}

/// Asks the process `pid`, which listens on the socket `path`.
fn ask_process(path: &Path, pid: u32) -> Result<Snapshot, ControlFailure> {
    let mut connection = ServerConnection::of(path, None, &ControlRequest::Snapshot)?;
    // It may be a socket for disks of virtual machines, which waits for more than that.
    let _ = connection.lines.get_ref().shutdown(Shutdown::Write);
    match connection.peer() {
        Some(peer) if peer.pid == pid => connection.answer(),
        _ => Err(connection.silent(io::ErrorKind::ConnectionRefused.into())),
    }
}

/// Asks the server `process`, wherever it may listen for that. The answer, and the socket on which
/// it came; or why none came, unless the process listens nowhere.
pub fn ask_found(process: &Process) -> Result<(PathBuf, Snapshot), Option<ControlFailure>> {
    let mut sockets = process.control_sockets();
    if sockets.is_empty() {
        sockets = process.sockets.iter().collect();
    }
    let mut failure = None;
    for socket in sockets {
        match ask_process(socket, process.pid) {
            Ok(snapshot) => return Ok((socket.clone(), snapshot)),
            Err(failed) => failure = Some(failed),
        }
    }
    Err(failure)
}

/// Who listens on a control socket, as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process; 0 if it cannot be seen from here.
    pub pid: u32,
    /// Its user.
    pub user: u32,
}

/// A server that will tell of its end.
pub struct Ending {
    connection: ServerConnection,
    /// Which process it is.
    pub peer: Option<Peer>,
    /// What it does now.
    pub snapshot: Snapshot,
}

impl Ending {
    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.peer.map_or(0, |peer| peer.pid)
    }

    /// What it tells when it has ended; None if it ends without a word.
    pub fn last_words(mut self) -> Option<EndReport> {
        self.connection.wait_without_limit().and_then(|()| self.connection.answer()).ok()
    }
}

/// Asks the server that listens on `path` to tell of its end. What the server of another user
/// answers is read by root alone.
pub fn ask_for_end(path: &Path, pmem: Option<&Path>) -> Result<Ending, ControlFailure> {
    let mut connection = ServerConnection::of(path, pmem, &ControlRequest::End)?;
    let peer = connection.peer();
    if let Some(Peer { user, .. }) = peer
        && owned::own() != 0
        && user != owned::own()
    {
        return Err(ControlFailure::OfAnother { path: path.to_owned(), user });
    }
    let snapshot = connection.answer()?;
    Ok(Ending { connection, peer, snapshot })
}

/// Asks it to do `act` with the disk of the volume in `pmem`.
pub fn ask_disk(path: &Path, pmem: &Path, act: DiskAct) -> Result<(DiskAnswer, DiskState), ControlFailure> {
    let request = ControlRequest::Disk { pmem: as_served(pmem), act };
    exchange::<DiskReply>(path, Some(pmem), &request)?.map_err(ControlFailure::Refused)
}

/// Asks it how far the flush `ticket` is, after a pause.
pub fn ask_flushed(path: &Path, pmem: &Path, ticket: FlushTicket) -> Result<(DiskAnswer, DiskState), ControlFailure> {
    thread::sleep(FLUSH_ASKED_EVERY);
    ask_disk(path, pmem, DiskAct::Flushed { ticket })
}

/// Asks it for `change` and waits; `hear` is told over and over how the cache is. An answer that it
/// was done, or a flush and what it had to leave.
pub fn ask_for(
    path: &Path,
    pmem: &Path,
    change: CacheChange,
    mut hear: impl FnMut(&DiskState),
) -> Result<(DiskAnswer, DiskState), ControlFailure> {
    let mut connection =
        ServerConnection::of(path, Some(pmem), &ControlRequest::Change { pmem: as_served(pmem), change })?;
    loop {
        match connection.answer::<DiskReply>()?.map_err(ControlFailure::Refused)? {
            (DiskAnswer::UnderWay, state) => hear(&state),
            last => return Ok(last),
        }
        // A server that has begun makes the change in the time it takes, or closes.
        connection.wait_without_limit()?;
    }
}

fn as_served(pmem: &Path) -> PathBuf {
    pmem.canonicalize().unwrap_or_else(|_| pmem.to_owned())
}

fn exchange<A: DeserializeOwned>(
    path: &Path,
    pmem: Option<&Path>,
    request: &ControlRequest,
) -> Result<A, ControlFailure> {
    ServerConnection::of(path, pmem, request)?.answer()
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

/// A connection to a server that was asked something.
struct ServerConnection {
    path: PathBuf,
    lines: BufReader<UnixStream>,
}

impl ServerConnection {
    fn of(path: &Path, pmem: Option<&Path>, request: &ControlRequest) -> Result<ServerConnection, ControlFailure> {
        let absent = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => ControlFailure::Denied { path: path.to_owned(), error },
            io::ErrorKind::TimedOut => ControlFailure::Silent { path: path.to_owned(), error },
            _ => ControlFailure::NoServer { path: path.to_owned(), error },
        };
        let mut stream = connect_within(ANSWER_PATIENCE, path).map_err(absent)?;
        pmem.map_or(Ok(()), |pmem| refuse_stranger(&stream, path, pmem)).map_err(absent)?;
        let mut line = serde_json::to_vec(request).expect("a request is made of strings and numbers");
        line.push(b'\n');
        // A server that does not listen any more has answered.
        let _ = stream.write_all(&line);
        Ok(ServerConnection { path: path.to_owned(), lines: BufReader::new(stream) })
    }

    /// Waits for each answer as long as it takes from now on.
    fn wait_without_limit(&self) -> Result<(), ControlFailure> {
        self.lines.get_ref().set_read_timeout(None).map_err(|error| self.silent(error))
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
        ControlFailure::Silent { path: self.path.clone(), error: named(error, ANSWER_PATIENCE) }
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
        let absent = ask(&path, None).expect_err("nobody is there");
        assert!(matches!(absent, ControlFailure::NoServer { .. }), "{absent:?}");
        let listener = UnixListener::bind(&path).expect("a socket");
        let rude = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // What is left unread makes the system end the connection with an error.
            stream.read_exact(&mut [0]).expect("a request");
        });
        let silent = ask(&path, None).expect_err("no answer");
        rude.join().expect("it heard a request");
        assert!(matches!(silent, ControlFailure::Silent { .. }), "{silent:?}");
    }
}
