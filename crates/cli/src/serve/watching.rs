//! The sockets through which a running server is watched: control sockets and metrics, each kind on a thread of its own.

use super::accept::{ACCEPT_PAUSE, is_no_lack};
use super::announce::Serving;
use crate::compose::Volume;
use crate::connections::Connections;
use crate::control::{self, Beside};
use crate::failure::Failure;
use crate::listen::{Listener, Place, SocketAccess, Stream};
use crate::metrics;
use crate::plan::{Plan, VolumePlan};
use crate::snapshot::{Observed, ObservedVolume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// The sockets, open until this is dropped.
pub(super) struct Watching {
    /// Where the control sockets are.
    control: Vec<PathBuf>,
    /// Where metrics are answered.
    metrics: Option<String>,
    answering: Vec<Answering>,
}

/// A thread that answers.
struct Answering {
    /// Its other end is the thread's: closing this one ends the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// Opens the sockets that `plan` asks for.
    pub(super) fn begin(plan: &Plan, volumes: &[Volume], connections: &Arc<Connections>) -> Result<Watching, Failure> {
        let observed = Arc::new(observed(plan, volumes, connections));
        let controls = control::open(plan)?;
        let metrics = plan.metrics.map(|address| Listener::bind(&Place::Tcp(address), SocketAccess::OWN)).transpose();
        let metrics = metrics.map_err(|failure| failure.named_by("--metrics tcp:ADDRESS:PORT"))?;
        let control = controls.iter().filter_map(|listener| listener.place().into_path()).collect();
        let shown = metrics.as_ref().map(|listener| format!("http://{}/metrics", listener.place()));
        let metrics_answering = metrics.map(|listener| {
            let observed = Arc::clone(&observed);
            let answer = move |stream: Stream| metrics::answer_one(&stream, &observed);
            Answering::begin("metrics", move |end| answer_until(&end, &[listener], answer))
        });
        let control_answering = Answering::begin("control", move |end| {
            // What somebody waits for longer is done beside the others, and has ended when the scope does.
            thread::scope(|threads| {
                let beside = Beside { threads, end: &end };
                answer_until(&end, &controls, |stream| control::answer_one(stream, &observed, beside));
            });
        });
        let answering = [Some(control_answering), metrics_answering];
        let answering = answering.into_iter().flatten().collect::<io::Result<_>>();
        Ok(Watching { control, metrics: shown, answering: answering.map_err(Failure::system("starting a thread"))? })
    }

    /// Closes the sockets, whose files go.
    pub(super) fn end(self) {
        drop(self.answering);
    }

    /// `serving`, and where it can be watched.
    pub(super) fn shown(&self, serving: Serving) -> Serving {
        Serving { control: self.control.clone(), metrics: self.metrics.clone(), ..serving }
    }
}

fn observed(plan: &Plan, volumes: &[Volume], connections: &Arc<Connections>) -> Observed {
    let volume = |(plan, volume): (&VolumePlan, &Volume)| ObservedVolume {
        pmem: plan.pmem.clone(),
        format: volume.facts.format.word().to_owned(),
        domain: volume.facts.domain.clone(),
        layers: volume.layers.clone(),
        disk: volume.disk.clone(),
    };
    let volumes = plan.volumes.iter().zip(volumes).map(volume).collect();
    Observed { connections: Arc::clone(connections), volumes, since: Instant::now() }
}

impl Answering {
    /// A thread that does `work` until the other side of what `work` gets closes.
    fn begin(name: &str, work: impl FnOnce(UnixStream) + Send + 'static) -> io::Result<Answering> {
        let (alive, end) = UnixStream::pair()?;
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(end))?;
        Ok(Answering { alive: Some(alive), thread: Some(thread) })
    }
}

/// Answers everyone who connects to `listeners`, one after the other, until the other side of `end` closes. Each may take its time, so the end
/// is looked at before each.
fn answer_until(end: &UnixStream, listeners: &[Listener], answer: impl Fn(Stream)) {
    let mut pause = false;
    loop {
        let mut watched = vec![PollFd::new(end, PollFlags::IN)];
        if !pause {
            watched.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        let limit = pause.then_some(ACCEPT_PAUSE);
        // An interrupted wait finds nobody and begins again.
        let _ = poll(&mut watched, limit.as_ref());
        pause = false;
        for listener in listeners {
            if has_ended(end) {
                return;
            }
            pause |= !answer_next(listener, &answer);
        }
        // Also where there is nobody to listen for.
        if has_ended(end) {
            return;
        }
    }
}

/// Whether the other side of `end` closed.
fn has_ended(end: &UnixStream) -> bool {
    let mut watched = [PollFd::new(end, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // An interrupted look is repeated before the next client.
    poll(&mut watched, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Answers the next client that waits, if one does; false if the system has no room for it.
fn answer_next(listener: &Listener, answer: impl Fn(Stream)) -> bool {
    match listener.accept() {
        Ok(stream) => {
            answer(stream);
            true
        }
        Err(error) => is_no_lack(&error),
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; its sockets are closed all the same.
            let _ = thread.join();
        }
    }
}
