//! The control socket of a file service, beside its pool: what other commands ask of it.
//!
//! A client sends one line and gets lines of JSON, of which the last one is the answer. Only the
//! service's own user and root may connect, as the socket's permissions say.

use crate::lifecycle::belonging::mount_above;
use crate::lifecycle::failure::ServiceFailure;
use crate::lifecycle::pool_of::mount_with;
use crate::service::explained::FilePlaces;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tidegate_host::asking::{ANSWER_PATIENCE, connect_within, named};
use tidegate_host::default_paths::control_socket;
use tidegate_mount_status::MountStatus;

/// Longest line of a client: it may have a path, as an array of numbers.
const LINE_BYTES_MAX: u64 = 32 << 10;

/// Clients that are answered at once. A flush takes long, and others ask meanwhile.
const CLIENTS_MAX: usize = 8;

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

    /// Answers clients side by side, for as long as the process lives.
    pub(crate) fn serve(&self, answer: impl Fn(Question, &mut dyn FnMut(&ControlReply)) + Sync) {
        let serve = || {
            for client in self.listener.incoming().flatten() {
                // A client that went away needs no answer.
                let _ = serve_client(&client, &answer);
            }
        };
        thread::scope(|scope| {
            for _ in 1..CLIENTS_MAX {
                let begun = thread::Builder::new().name("control".to_owned()).spawn_scoped(scope, serve);
                if let Err(error) = begun {
                    tracing::warn!("fewer clients of the control socket are answered at once: {error}");
                    break;
                }
            }
            serve();
        });
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
    client.set_read_timeout(Some(ANSWER_PATIENCE))?;
    client.set_write_timeout(Some(ANSWER_PATIENCE))?;
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

/// For how long a service may say nothing before its answer, or between two lines of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// Only so long.
    AtMost(Duration),
    /// As long as a disk takes.
    AsLongAsItTakes,
}

/// Asks the service of `pool`; None: there is none.
fn ask(
    pool: &Path,
    question: &Question,
    silence: Silence,
    mut tell: impl FnMut(&str),
) -> Result<Option<ControlReply>, ServiceFailure> {
    let patience = if let Silence::AtMost(patience) = silence { patience } else { ANSWER_PATIENCE };
    let failed = |error| ServiceFailure::NoAnswer { pool: pool.to_owned(), error: named(error, patience) };
    let mut service = match connect_within(patience, &control_socket(pool)) {
        Ok(service) => service,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return match mount_above(pool) {
                Some(mountpoint) if mountpoint == pool => Err(ServiceFailure::UnknownPool { mountpoint }),
                _ => Ok(None),
            };
        }
        Err(error) => return Err(failed(error)),
    };
    let text = serde_json::to_string(question).map_err(|error| failed(error.into()))?;
    service.write_all(format!("{text}\n").as_bytes()).map_err(failed)?;
    if silence == Silence::AsLongAsItTakes {
        service.set_read_timeout(None).map_err(failed)?;
    }
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

/// The state of the mount with `pool`; None: no service has it. A service that says nothing for
/// 10 s is given up.
pub fn status_of(pool: &Path) -> Result<Option<MountStatus>, ServiceFailure> {
    status_within(ANSWER_PATIENCE, pool)
}

/// The state of the mount with `pool`; None: no service has it. A service that says nothing for
/// `patience` is given up.
pub fn status_within(patience: Duration, pool: &Path) -> Result<Option<MountStatus>, ServiceFailure> {
    match ask(pool, &Question::Status, Silence::AtMost(patience), |_| {})? {
        Some(ControlReply::Status(status)) => Ok(Some(*status)),
        Some(_) => Err(strange(pool)),
        None => Ok(None),
    }
}

fn strange(pool: &Path) -> ServiceFailure {
    ServiceFailure::NoAnswer { pool: pool.to_owned(), error: ErrorKind::InvalidData.into() }
}

/// The state of the mount with `pool` after `pause`.
pub fn status_after(pause: Duration, pool: &Path) -> Result<Option<MountStatus>, ServiceFailure> {
    thread::sleep(pause);
    status_of(pool)
}

/// Has the service of `pool` write everything back, and waits for that. False: no service has it.
///
/// A flush may be silent for as long as the disk below takes, so it has no limit. Whether the
/// service answers at all is asked first: one that says nothing for 10 s is given up.
pub fn flush(pool: &Path, tell: impl FnMut(&str)) -> Result<bool, ServiceFailure> {
    flush_within(ANSWER_PATIENCE, pool, tell)
}

fn flush_within(patience: Duration, pool: &Path, tell: impl FnMut(&str)) -> Result<bool, ServiceFailure> {
    if status_within(patience, pool)?.is_none() {
        return Ok(false);
    }
    Ok(ask(pool, &Question::Flush, Silence::AsLongAsItTakes, tell)?.is_some())
}

/// Where the bytes `range` of a file of a mount lie. A service that says nothing for 10 s is given
/// up.
pub fn explain(file: &Path, range: Range<u64>) -> Result<FilePlaces, ServiceFailure> {
    let no_file = |why: String| ServiceFailure::NotInMount { file: file.to_owned(), why };
    let no_mount = || no_file("no directory above it is a mountpoint, or SOURCE of a mount".to_owned());
    let found = file.canonicalize().map_err(|error| no_file(error.to_string()))?;
    // A mountpoint is no file of its mount.
    let unknown = || Some(ServiceFailure::UnknownPool { mountpoint: mount_above(found.parent()?)? });
    let (pool, path) = mount_with(&found).ok_or_else(|| unknown().unwrap_or_else(no_mount))?;
    let mut told = part(&pool, &path, range.clone())?;
    while let Some(next) = told.next {
        told.append(part(&pool, &path, next..range.end)?);
    }
    Ok(told)
}

fn part(pool: &Path, path: &Path, range: Range<u64>) -> Result<FilePlaces, ServiceFailure> {
    let question = Question::Explain { path: path.to_owned(), from: range.start, until: range.end };
    match ask(pool, &question, Silence::AtMost(ANSWER_PATIENCE), |_| {})? {
        Some(ControlReply::Explained(told)) => Ok(told),
        Some(_) => Err(strange(pool)),
        None => Err(ServiceFailure::NotInUse { pool: pool.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service's socket beside a pool, which `answer` answers. It ends with the test process.
    fn served(
        answer: impl Fn(Question, &mut dyn FnMut(&ControlReply)) + Send + Sync + 'static,
    ) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        let socket = ControlSocket::open(&pool).expect("made");
        thread::spawn(move || socket.serve(answer));
        (folder, pool)
    }

    fn status() -> ControlReply {
        ControlReply::Status(Box::new(MountStatus {
            source: "/s".into(),
            mountpoint: "/m".into(),
            pool_bytes: 7,
            ..MountStatus::default()
        }))
    }

    #[test]
    fn a_pool_that_no_service_has_tells_no_status() {
        assert!(status_of(Path::new("/nowhere/pool")).expect("no service is no failure").is_none());
    }

    #[test]
    fn a_client_hears_of_progress_and_gets_its_answer_and_a_strange_line_is_refused() {
        let (_folder, pool) = served(|question, say| {
            say(&ControlReply::Progress("half".to_owned()));
            say(&match question {
                Question::Status => status(),
                Question::Flush => ControlReply::Flushed,
                Question::Explain { .. } => ControlReply::Refused("no".to_owned()),
            });
        });
        let mut heard = Vec::new();
        assert!(flush(&pool, |text| heard.push(text.to_owned())).expect("answered"));
        assert_eq!(heard, ["half"]);
        assert_eq!(status_of(&pool).expect("answered").map(|status| status.pool_bytes), Some(7));
        assert!(matches!(part(&pool, Path::new("f"), 0..1), Err(ServiceFailure::Refused { .. })));
        let mut stranger = UnixStream::connect(control_socket(&pool)).expect("connected");
        stranger.write_all(b"quit\n").expect("sent");
        let mut answer = String::new();
        stranger.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("{\"refused\""), "{answer}");
    }

    #[test]
    fn a_service_that_accepts_and_says_nothing_is_given_up_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        let soon = Duration::from_millis(50);
        assert!(!flush_within(soon, &pool, |_| {}).expect("no service is there"));
        let listener = UnixListener::bind(control_socket(&pool)).expect("a socket");
        let silent: Vec<_> = [status_within(soon, &pool).err(), flush_within(soon, &pool, |_| {}).err()].into();
        drop(listener);
        for failure in silent {
            let Some(ServiceFailure::NoAnswer { pool: of, error }) = failure else { panic!("{failure:?}") };
            assert_eq!((of, error.to_string()), (pool.clone(), "no answer within 0.05 s".to_owned()));
        }
    }

    #[test]
    fn a_service_that_flushes_tells_its_state_meanwhile_and_the_flush_may_be_silent_for_long() {
        let (begun, begins) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel();
        let ends = std::sync::Mutex::new(ends);
        let (_folder, pool) = served(move |question, say| match question {
            Question::Flush => {
                begun.send(()).expect("the test waits");
                ends.lock().expect("no panic").recv().expect("the test says when");
                say(&ControlReply::Flushed);
            }
            _ => say(&status()),
        });
        thread::scope(|scope| {
            // No limit of the question before it is one of the flush.
            let flushing = scope.spawn(|| flush_within(Duration::from_secs(600), &pool, |_| {}));
            begins.recv().expect("the flush begins");
            assert!(status_of(&pool).expect("answered").is_some());
            end.send(()).expect("the flush goes on");
            assert!(flushing.join().expect("no panic").expect("answered"));
        });
    }
}
