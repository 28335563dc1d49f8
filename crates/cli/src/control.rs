//! The control sockets of a running server: beside each volume, for its owner and root. Whoever connects gets one
//! line of JSON, a [`Snapshot`], and the end.

use crate::failure::{ControlFailure, Failure};
use crate::listen::{Listener, Place, Stream};
use crate::peers::Peers;
use crate::places;
use crate::plan::Plan;
use crate::snapshot::{Observed, Snapshot};
use rustix::fs::Mode;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_nbd::Stream as _;

/// How long somebody who asked may keep the answer waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a server may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read: far more than the most volumes need.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Opens the control socket that was asked for, or one beside each volume. Those are a convenience: where one cannot be, a
/// line in the log says so, and the server serves without it.
pub(crate) fn open(plan: &Plan) -> Result<Vec<Listener>, Failure> {
    let mode = Mode::RUSR | Mode::WUSR;
    let bind = |path: PathBuf| Listener::bind(&Place::Unix(path), mode);
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
    let mut line = serde_json::to_vec(&observed.snapshot()).expect("a snapshot is made of strings and numbers");
    line.push(b'\n');
    // Whoever asked and went away, or does not read, gets no more.
    let _ = stream.limit_sending(Some(PATIENCE)).and_then(|()| stream.send(&line));
}

/// Asks the server that listens on the control socket `path`.
pub(crate) fn ask(path: &Path) -> Result<Snapshot, ControlFailure> {
    let silent = |error| ControlFailure::NoServer { path: path.to_owned(), error };
    let stream = UnixStream::connect(path).map_err(silent)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(silent)?;
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, ANSWER_BYTES_MAX)).read_line(&mut line).map_err(silent)?;
    serde_json::from_str(&line).map_err(|error| ControlFailure::Unintelligible { path: path.to_owned(), error })
}
