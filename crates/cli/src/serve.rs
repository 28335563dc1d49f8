//! `tidegate serve`: a volume over NBD, until a signal says that it is enough.
//!
//! One thread waits for clients and signals; each client has a thread of its own. On SIGTERM or SIGINT: listening ends,
//! requests in progress finish, the volume is flushed, the exit code is 0. A second signal does not wait.

use crate::answer;
use crate::attach;
use crate::compose::{self, Volume};
use crate::connections::Connections;
use crate::create::create;
use crate::facts::Facts;
use crate::failure::{Doing, Exit, Failure, VolumeFailure};
use crate::grammar::{Create, Serve};
use crate::listen::{Listener, Place};
use crate::places;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidegate_layout::btt::Version;
use tidegate_media::{Access, BlockDevice};
use tidegate_nbd::{Export, Exports};

/// Bytes of the default volume's region.
const DEFAULT_REGION_BYTES: u64 = 1 << 30;

/// Block size of the default volume.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// How long to leave clients waiting when the system has no file descriptor for one more.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What `serve` answers as soon as clients can connect.
#[derive(Serialize)]
struct Serving {
    created: bool,
    read_only: bool,
    volume: Facts,
    serving: Vec<String>,
    attach: Vec<String>,
}

impl fmt::Display for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.created {
            writeln!(f, "created")?;
        }
        write!(f, "{}", self.volume)?;
        if self.read_only {
            answer::line(f, "access", "read-only: the file does not change")?;
        }
        writeln!(f, "attach it with one of")?;
        for command in &self.attach {
            writeln!(f, "  {command}")?;
        }
        let uris: Vec<String> = self.serving.iter().map(|uri| format!("serving    {uri}")).collect();
        write!(f, "{}", uris.join("\n"))
    }
}

/// Runs `tidegate serve`.
pub(crate) fn run(wish: &Serve, json: bool) -> Result<Exit, Failure> {
    wish.listen.iter().try_for_each(|place| place.check_exposure(wish.insecure))?;
    let (path, created) = match &wish.pmem {
        Some(path) => (path.clone(), false),
        None => default_volume()?,
    };
    let access = if wish.read_only { Access::Private } else { Access::ReadWrite };
    let volume = compose::open(&path, access, wish.emulate)?;
    let device = Arc::clone(&volume.device);
    let signals = Signals::watch().map_err(Failure::system("watching for signals"))?;
    let listeners = listen(wish, &path)?;
    warn_of_exposure(&listeners);
    let connections = Connections::new(exports(&path, &volume)?);
    announce(volume.facts, created, wish.read_only, &listeners, json)?;
    accept_until_signalled(&listeners, &signals, &connections).map_err(Failure::system("waiting for clients"))?;
    drop(listeners);
    connections.end();
    last_flush(&path, &*device)
}

/// The default volume, and whether it was created just now.
fn default_volume() -> Result<(PathBuf, bool), Failure> {
    let path = places::default_volume();
    if path.symlink_metadata().is_ok() {
        return Ok((path, false));
    }
    places::make_folder_of(&path)?;
    let created = create_whole(&path)?;
    Ok((path, created))
}

/// Makes the default volume under another name first, so that a creation that is killed leaves nothing in its place.
/// False if another server was faster.
fn create_whole(path: &Path) -> Result<bool, Failure> {
    let unfinished = path.with_extension("pmem.unfinished");
    create(&Create {
        pmem: unfinished.clone(),
        size: Some(DEFAULT_REGION_BYTES),
        block: DEFAULT_BLOCK_BYTES,
        btt: Version::V1_1,
        sparse: false,
        force: true,
    })?;
    match renameat_with(CWD, &unfinished, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(errno) => return Err(VolumeFailure::of_io(path, Doing::Create, errno.into()).into()),
    }
    let folder = path.parent().unwrap_or(path);
    let durable = File::open(folder).and_then(|folder| folder.sync_all());
    durable.map_err(|error| VolumeFailure::of_io(folder, Doing::Create, error))?;
    Ok(true)
}

fn listen(wish: &Serve, path: &Path) -> Result<Vec<Listener>, Failure> {
    if wish.listen.is_empty() {
        let socket = places::default_socket(path);
        places::make_folder_of(&socket)?;
        return Ok(vec![Listener::bind(&Place::Unix(socket))?]);
    }
    wish.listen.iter().map(Listener::bind).collect()
}

fn warn_of_exposure(listeners: &[Listener]) {
    for place in listeners.iter().map(Listener::place).filter(|place| place.check_exposure(false).is_err()) {
        tracing::warn!("{} is open to other machines, without encryption or password", attach::uri(&place));
    }
}

fn exports(path: &Path, volume: &Volume) -> Result<Exports, Failure> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let description = format!("BTT volume {}, {}", volume.facts.uuid, volume.facts.domain);
    let offered = Exports::new(vec![Export::new(&name, &description, Arc::clone(&volume.device))]);
    offered.map_err(|error| Failure::System { doing: "offering the volume", error: io::Error::other(error) })
}

/// Says that clients can connect now, and how. Nobody has to read it.
fn announce(volume: Facts, created: bool, read_only: bool, listeners: &[Listener], json: bool) -> Result<(), Failure> {
    let places: Vec<Place> = listeners.iter().map(Listener::place).collect();
    let serving = places.iter().map(attach::uri).collect();
    let attach = places.first().map(|place| attach::commands(place, read_only)).unwrap_or_default();
    match answer::give(&Serving { created, read_only, volume, serving, attach }, json) {
        Err(Failure::NobodyReads) => Ok(()),
        other => other,
    }
}

/// SIGTERM and SIGINT, as a socket that becomes readable.
struct Signals {
    arrived: UnixStream,
}

impl Signals {
    fn watch() -> io::Result<Signals> {
        let (arrived, on_signal) = UnixStream::pair()?;
        // The first signal finds the flag clear and sets it; the second one ends the process at once.
        let again = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, Exit::Unexpected as i32, Arc::clone(&again))?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::low_level::pipe::register(signal, on_signal.try_clone()?)?;
        }
        Ok(Signals { arrived })
    }
}

fn accept_until_signalled(listeners: &[Listener], signals: &Signals, connections: &Arc<Connections>) -> io::Result<()> {
    let mut pause = false;
    loop {
        let mut watched = vec![PollFd::new(&signals.arrived, PollFlags::IN)];
        if !pause {
            watched.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        match poll(&mut watched, pause.then_some(&ACCEPT_PAUSE)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        pause = listeners.iter().any(|listener| !accept_waiting(listener, connections));
    }
}

/// Accepts every client that waits; false if the system has no room for one.
fn accept_waiting(listener: &Listener, connections: &Arc<Connections>) -> bool {
    loop {
        match listener.accept() {
            Ok(stream) => connections.admit(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            // The client left before it was accepted.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!("a client has to wait: {error}");
                return false;
            }
        }
    }
}

fn last_flush(path: &Path, device: &dyn BlockDevice) -> Result<Exit, Failure> {
    match device.flush() {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(VolumeFailure::NotDurable { path: path.to_owned(), why: error.to_string() }.into()),
    }
}
