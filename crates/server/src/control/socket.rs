//! The control sockets of a running server: beside each volume, for its owner and root. They speak
//! the [`protocol`](super::protocol).

use crate::cached_disk::online::OnlineDisk;
use crate::cached_disk::online_change::{Changing, Outcome};
use crate::cached_disk::owner::if_claimed;
use crate::cached_disk::volatile;
use crate::control::protocol::{ControlRequest, DiskAct, DiskAnswer, DiskReply, ScrubFindings};
use crate::control::watchers::Watcher;
use crate::failure::{Failure, Refused};
use crate::options::Plan;
use crate::sockets::access::Peers;
use crate::sockets::listen::{ListenAddress, Listener, SocketAccess, Stream};
use crate::stats::snapshot::Observed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidegate_host::default_paths;

/// How long somebody who asked may take to read a line of the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long somebody who connected may take to ask, from the first byte to the last.
const REQUEST_PATIENCE: Duration = Duration::from_millis(500);

/// How long both sides of a change are watched before the next look at how far it is.
const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Bytes of a request that are read.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Words a failure, as it is told to whoever asked.
pub type Report = fn(Failure) -> Refused;

/// Opens the control socket that was asked for, or one beside each volume. Those are a convenience:
/// where one cannot be, a line in the log says so, and the server serves without it.
pub fn open(plan: &Plan, report: Report) -> Result<Vec<Listener>, Failure> {
    let bind = |path: PathBuf| Listener::bind(&ListenAddress::Unix(path), SocketAccess::OWN);
    if let Some(path) = &plan.control {
        return Ok(vec![bind(path.clone()).map_err(|failure| failure.named_by("--control PATH"))?]);
    }
    let beside = plan.volumes.iter().map(|volume| default_paths::control_socket(&volume.pmem));
    let log_absence = |failure| tracing::warn!("no control socket: {}", report(failure));
    Ok(beside.filter_map(|path| bind(path).map_err(log_absence).ok()).collect())
}

/// Tells whoever connected. The other side of `end` closes when the server ends.
pub(crate) fn answer_one(mut watcher: Watcher<'_>, observed: &Observed, end: &UnixStream, report: Report) {
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
        Ok(ControlRequest::Change { pmem, change }) => {
            match disk_of(observed, &pmem).and_then(|disk| Changing::begin(disk, change).map_err(report)) {
                Ok(changing) => {
                    // There is one change of a disk at a time, and it may take longer than anybody
                    // waits for a seat.
                    watcher.stand();
                    let reply = made(&watcher, &pmem, changing, (end, report));
                    // It was made, or it was not, whoever hears of it.
                    send(&watcher, &reply)
                }
                Err(why) => send(&watcher, &DiskReply::Err(why)),
            }
        }
        Ok(ControlRequest::Disk { pmem, act }) => {
            send(&watcher, &watcher.make(|| of_disk(observed, &pmem, act, report)))
        }
        Ok(ControlRequest::Snapshot) => send(&watcher, &watcher.make(|| observed.snapshot())),
        Ok(ControlRequest::End) => {
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
fn made(watcher: &Watcher<'_>, pmem: &Path, changing: Changing<'_>, (end, report): (&UnixStream, Report)) -> DiskReply {
    let disk = changing.disk();
    let tell = || send(watcher, &DiskReply::Ok((DiskAnswer::UnderWay, disk.state())));
    let outcome = changing.carry_out(|| tell().is_ok() && both_stay(watcher.stream(), end));
    // Whoever hears that it has ended finds the lasting mode.
    drop(changing);
    let answer = match outcome.map_err(report)? {
        Outcome::Done => DiskAnswer::Done,
        Outcome::Resized(changed) => DiskAnswer::Resized { changed },
        Outcome::Undestaged(obstacle) => DiskAnswer::Flushed { trouble: Some(obstacle) },
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
fn request(watcher: &Watcher<'_>) -> Result<ControlRequest, Refused> {
    let deadline = Instant::now() + REQUEST_PATIENCE;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < REQUEST_BYTES_MAX {
        let mut piece = [0; 1024];
        match watcher.receive(&mut piece, deadline) {
            Ok(len @ 1..) => line.extend_from_slice(&piece[..len]),
            Ok(0) | Err(_) if line.is_empty() => return Ok(ControlRequest::Snapshot),
            Ok(0) | Err(_) => break,
        }
    }
    serde_json::from_slice(&line).map_err(|error| Refused::NotUnderstood { why: error.to_string() })
}

/// Does `act` with the disk of the volume in `pmem`.
fn of_disk(observed: &Observed, pmem: &Path, act: DiskAct, report: Report) -> DiskReply {
    let disk = disk_of(observed, pmem)?;
    let answer = carry_out(disk, act, report)?;
    Ok((answer, disk.state()))
}

/// The disk of the volume in `pmem`.
fn disk_of<'a>(observed: &'a Observed, pmem: &Path) -> Result<&'a OnlineDisk, Refused> {
    let volume = observed.volumes.iter().find(|volume| default_paths::is_same_file(&volume.pmem, pmem));
    let volume = volume.ok_or_else(|| Refused::NotServed { pmem: pmem.to_owned() })?;
    volume.disk.as_deref().ok_or_else(|| Refused::NoCache { pmem: pmem.to_owned() })
}

fn carry_out(disk: &OnlineDisk, act: DiskAct, report: Report) -> Result<DiskAnswer, Refused> {
    Ok(match act {
        DiskAct::Flush => DiskAnswer::Flushing { ticket: disk.flush().map_err(report)? },
        DiskAct::Flushed { ticket } => match disk.flushed(ticket) {
            None => DiskAnswer::UnderWay,
            Some((_, trouble)) => DiskAnswer::Flushed { trouble },
        },
        DiskAct::Scrub { from } => {
            let step = disk.scrub(from);
            DiskAnswer::Scrubbed { found: ScrubFindings::of(&step), next: step.next }
        }
        DiskAct::SetMode { mode, accept_volatile } => {
            let mode = mode.parse().map_err(|_| Refused::NoMode { mode })?;
            disk.set_mode(mode, volatile::accepted(accept_volatile)).map_err(report)?;
            DiskAnswer::Done
        }
        DiskAct::Attach { disk: path, accept_volatile, force } => {
            disk.attach(&path, volatile::accepted(accept_volatile), if_claimed(force)).map_err(report)?;
            DiskAnswer::Done
        }
    })
}
