//! The control socket of a file service, beside its pool: what other commands ask of it.
//!
//! A client sends one line and gets lines of JSON, of which the last one is the answer. Only the
//! service's own user and root may connect, as the socket's permissions say.

use crate::lifecycle::failure::ServiceFailure;
use crate::lifecycle::pool_of::mount_with;
use crate::lifecycle::status::MountStatus;
use crate::service::explained::FilePlaces;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_host::default_paths::control_socket;

/// Longest line of a client: it may have a path, as an array of numbers.
const LINE_BYTES_MAX: u64 = 32 << 10;

/// How long a client that says nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Question {
    /// The state of the mount.
    Status,
    /// That everything is written back.
    Flush,
    /// Where bytes of a file lie.
    Explain {
        /// The file, from SOURCE on.
        #[serde(with = "tidegate_host::json_path")]
        path: PathBuf,
        /// Offset of the first byte.
        from: u64,
        /// One past the last one.
        until: u64,
    },
}

/// A line of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ControlReply {
    /// How far it has come; another line follows.
    Progress(String),
    /// The state of the mount.
    Status(Box<MountStatus>),
    /// Everything was written back.
    Flushed,
    /// Where the bytes lie, or the first of them.
    Explained(FilePlaces),
    /// What was asked for was not done.
    Refused(String),
}

/// The socket, until this is dropped.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Makes the socket beside `pool`, which this process has for itself.
    pub(crate) fn open(pool: &Path) -> Result<ControlSocket, ServiceFailure> {
        let path = control_socket(pool);
        // That of a service that was killed: the pool's lock says that it is gone.
        let _ = std::fs::remove_file(&path);
        let former = rustix::process::umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(&path);
        rustix::process::umask(former);
        let listener = listener.map_err(ServiceFailure::of_file("make the socket", &path))?;
        Ok(ControlSocket { listener, path })
    }

    /// Answers clients, one after the other, for as long as the process lives.
    pub(crate) fn serve(&self, answer: impl Fn(Question, &mut dyn FnMut(&ControlReply))) {
        for client in self.listener.incoming().flatten() {
            // A client that went away needs no answer.
            let _ = serve_client(&client, &answer);
        }
    }

    /// The socket of a process that keeps the mount alive.
    pub(crate) fn of(socket: OwnedFd) -> ControlSocket {
        ControlSocket { listener: socket.into(), path: PathBuf::new() }
    }

    /// Opens the socket once more, which leaves its file alone.
    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn serve_client(client: &UnixStream, answer: impl Fn(Question, &mut dyn FnMut(&ControlReply))) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(client.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let mut say = |line: &ControlReply| {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        let mut client = client;
        let _ = client.write_all(&text);
    };
    match serde_json::from_str(&line) {
        Ok(question) => answer(question, &mut say),
        Err(error) => say(&ControlReply::Refused(error.to_string())),
    }
    Ok(())
}

/// Asks the service of `pool`; None: there is none.
pub(crate) fn ask(
    pool: &Path,
    question: Question,
    mut tell: impl FnMut(&str),
) -> Result<Option<ControlReply>, ServiceFailure> {
    let failed = |error| ServiceFailure::NoAnswer { pool: pool.to_owned(), error };
    let mut service = match UnixStream::connect(control_socket(pool)) {
        Ok(service) => service,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let text = serde_json::to_string(&question).map_err(|error| failed(error.into()))?;
    service.write_all(format!("{text}\n").as_bytes()).map_err(failed)?;
    for line in BufReader::new(service).lines() {
        let line = line.map_err(failed)?;
        match serde_json::from_str(&line).map_err(|error| failed(error.into()))? {
            ControlReply::Progress(text) => tell(&text),
            ControlReply::Refused(why) => return Err(ServiceFailure::Refused { pool: pool.to_owned(), why }),
            answer => return Ok(Some(answer)),
        }
    }
    Err(failed(ErrorKind::UnexpectedEof.into()))
}

/// The state of the mount with `pool`; None: no service has it.
pub fn status_of(pool: &Path) -> Result<Option<MountStatus>, ServiceFailure> {
    match ask(pool, Question::Status, |_| {})? {
        Some(ControlReply::Status(status)) => Ok(Some(*status)),
        Some(_) => Err(ServiceFailure::NoAnswer { pool: pool.to_owned(), error: ErrorKind::InvalidData.into() }),
        None => Ok(None),
    }
}

/// The state of the mount with `pool` after `pause`.
pub fn status_after(pause: Duration, pool: &Path) -> Result<Option<MountStatus>, ServiceFailure> {
    std::thread::sleep(pause);
    status_of(pool)
}

/// Has the service of `pool` write everything back, and waits for that. False: no service has it.
pub fn flush(pool: &Path, tell: impl FnMut(&str)) -> Result<bool, ServiceFailure> {
    Ok(ask(pool, Question::Flush, tell)?.is_some())
}

/// Where the bytes `range` of a file of a mount lie.
pub fn explain(file: &Path, range: Range<u64>) -> Result<FilePlaces, ServiceFailure> {
    let no_file = |why: String| ServiceFailure::NotInMount { file: file.to_owned(), why };
    let no_mount = || no_file("no directory above it is a mountpoint, or SOURCE of a mount".to_owned());
    let found = file.canonicalize().map_err(|error| no_file(error.to_string()))?;
    let (pool, path) = mount_with(&found).ok_or_else(no_mount)?;
    let mut told = part(&pool, &path, range.clone())?;
    while let Some(next) = told.next {
        told.append(part(&pool, &path, next..range.end)?);
    }
    Ok(told)
}

fn part(pool: &Path, path: &Path, range: Range<u64>) -> Result<FilePlaces, ServiceFailure> {
    let question = Question::Explain { path: path.to_owned(), from: range.start, until: range.end };
    match ask(pool, question, |_| {})? {
        Some(ControlReply::Explained(told)) => Ok(told),
        Some(_) => Err(ServiceFailure::NoAnswer { pool: pool.to_owned(), error: ErrorKind::InvalidData.into() }),
        None => Err(ServiceFailure::NotInUse { pool: pool.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_hears_of_progress_and_gets_its_answer_and_a_strange_line_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        assert!(!flush(&pool, |_| {}).expect("nobody is there"));
        let socket = ControlSocket::open(&pool).expect("made");
        let server = ControlSocket::of(socket.try_clone().expect("cloned"));
        std::thread::spawn(move || {
            server.serve(|question, say| {
                say(&ControlReply::Progress("half".to_owned()));
                say(&if question == Question::Flush {
                    ControlReply::Flushed
                } else {
                    ControlReply::Refused("no".to_owned())
                });
            });
        });
        let mut heard = Vec::new();
        assert!(flush(&pool, |text| heard.push(text.to_owned())).expect("answered"));
        assert_eq!(heard, ["half"]);
        assert!(matches!(status_of(&pool), Err(ServiceFailure::Refused { .. })));
        let mut stranger = UnixStream::connect(control_socket(&pool)).expect("connected");
        stranger.write_all(b"quit\n").expect("sent");
        let mut answer = String::new();
        stranger.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("{\"refused\""), "{answer}");
    }
}
