//! A device at work, from the start of its queues to its end.

use crate::claim::{ClaimedDevice, Origin};
use crate::control::Control;
use crate::failure::UblkFailure;
use crate::kernel::{QueueRing, QueueShape, QueueThread};
use crate::node::{block_device, unused};
use crate::queue::{QueueEnd, ServedQueue};
use crate::repeat::repeat;
use crate::requests::RequestExecutor;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::scope;
use std::time::Duration;
use tidegate_block_export::{ConnectionCounters, Export, PollBudget};

/// How long a program that looks at a new or changed device, as udev does, may keep a device from
/// its end.
const PASSING_USER_MAX: Duration = Duration::from_secs(2);

/// A volume as its device gets it.
pub struct UblkVolume<'v> {
    /// The volume.
    pub export: &'v Export,
    /// The busy-poll budget, which all services on the same cores share.
    pub poll_budget: &'v PollBudget,
}

/// How a device's service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The device is gone: its [`Ender`] or another program took it away.
    Removed,
    /// It waits for the next server of its volume, and so do requests to it.
    Waiting,
}

/// What an [`Ender`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    /// It took the device away.
    Removed,
    /// The device has a user, or may have one, and waits for the next server of its volume.
    Waiting {
        /// Who uses it, or why that cannot be seen.
        user: String,
    },
}

/// Ends the service of a device.
pub struct Ender {
    number: u32,
    mark: u64,
    stop: Arc<OwnedFd>,
}

impl Ender {
    /// Takes the block device away, or leaves it waiting if it may have a user: then the requests
    /// under way are answered, and later ones wait for the next server. [`ClaimedDevice::serve`]
    /// returns soon.
    ///
    /// # Errors
    /// The driver did not stop the device. It is left waiting.
    pub fn end(&self) -> Result<EndOutcome, UblkFailure> {
        let leave = || end_queues(&self.stop);
        let mut used = String::new();
        let unused = repeat(PASSING_USER_MAX, || unused(self.number).map_err(|user| used = user.0).ok());
        let Some(unused) = unused else {
            leave();
            return Ok(EndOutcome::Waiting { user: used });
        };
        // It stays open until the device has stopped, so that no one mounts it in between. One that
        // is gone already cannot be opened.
        let stop = |mut control: Control| match control.has_mark(self.number, self.mark)? {
            true => control.stop(self.number),
            false => Ok(()),
        };
        let stopped = Control::open().and_then(stop);
        drop(unused);
        stopped.inspect_err(|_| leave()).map(|()| EndOutcome::Removed)
    }
}

/// How far a queue's thread is.
struct QueueProgress {
    /// Its ring is ready, then: it has asked for requests.
    told: Sender<io::Result<()>>,
    /// It may ask for requests.
    go: Receiver<()>,
}

impl ClaimedDevice {
    /// By which the service is ended, from any thread.
    pub fn ender(&self) -> Ender {
        let (number, mark) = (self.record.number.get(), self.record.mark.get());
        Ender { number, mark, stop: Arc::clone(&self.stop) }
    }

    /// The path of the block device.
    pub fn path(&self) -> PathBuf {
        block_device(self.record.number.get())
    }

    /// Serves `volume` on a thread for each queue, until the device is taken away or an [`Ender`]
    /// leaves it. Calls `on_ready` once the block device answers.
    ///
    /// # Errors
    /// The device could not begin, or the driver broke its protocol. A device that was made for
    /// this is removed if it did not begin; one that has begun waits for the next server.
    pub fn serve(mut self, volume: &UblkVolume<'_>, on_ready: impl FnOnce()) -> Result<Ended, UblkFailure> {
        let (number, mark) = (self.record.number.get(), self.record.mark.get());
        match self.serve_queues(volume, on_ready)? {
            QueueEnd::StopAsked => Ok(Ended::Waiting),
            QueueEnd::DeviceStopped => {
                // The driver waits for its file to be closed.
                self.file = None;
                if self.control.has_mark(number, mark)? {
                    self.control.delete(number)?;
                }
                Ok(Ended::Removed)
            }
        }
    }

    fn serve_queues(&mut self, volume: &UblkVolume<'_>, on_ready: impl FnOnce()) -> Result<QueueEnd, UblkFailure> {
        let ClaimedDevice { control, file, record, origin, has_begun, stop } = self;
        let file = file.as_ref().ok_or(UblkFailure::System { what: "open file", error: Errno::BADF.into() })?;
        let tally = volume.export.count_connection();
        let (stop, tally, number) = (&**stop, &tally, record.number.get());
        scope(|scope| {
            let (told, progress) = channel();
            let mut starting = Starting { progress, starts: Vec::new() };
            let mut threads = Vec::new();
            let mut begun = Ok(());
            for queue in 0..record.queues.get() {
                let shape = QueueShape {
                    queue,
                    depth: record.queue_depth.get(),
                    buffer_bytes: usize::try_from(record.buffer_bytes.get()).unwrap_or_default(),
                };
                let progress = QueueProgress { told: told.clone(), go: starting.one_more() };
                let work = move |ring| run_queue(ring, (shape, stop), volume, tally, &progress);
                match QueueThread::begin(scope, (file, stop), shape, work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => begun = Err(system("thread of a queue")(error)),
                }
            }
            drop(told);
            let begun = begun.and_then(|()| starting.let_go()).and_then(|()| match origin {
                Origin::Made => control.start(number),
                Origin::TakenOver => control.end_recovery(number),
            });
            match &begun {
                Ok(()) => {
                    *has_begun = true;
                    spare_a_request(number, record.queue_depth.get());
                    on_ready();
                }
                Err(_) => end_queues(stop),
            }
            let ended = join(threads);
            begun.and(ended)
        })
    }
}

/// The queues of a device that is about to begin.
struct Starting {
    /// What each thread tells, in any order.
    progress: Receiver<io::Result<()>>,
    /// Lets each thread ask for requests; dropped, it ends them.
    starts: Vec<Sender<()>>,
}

impl Starting {
    /// The end of one more thread.
    fn one_more(&mut self) -> Receiver<()> {
        let (start, go) = channel();
        self.starts.push(start);
        go
    }

    /// Has all threads ask for requests, once all have their rings. They ask at the same time: the
    /// driver cannot hand over a device of which some queues asked and others did not, should this
    /// process be killed in between.
    fn let_go(self) -> Result<(), UblkFailure> {
        self.all_say("ring of a queue")?;
        for start in &self.starts {
            // A thread that is gone has told why, or will be missed.
            let _ = start.send(());
        }
        self.all_say("requests of a queue")
    }

    fn all_say(&self, what: &'static str) -> Result<(), UblkFailure> {
        self.starts.iter().try_for_each(|_| {
            let said = self.progress.recv().unwrap_or_else(|_| Err(Errno::CANCELED.into()));
            said.map_err(system(what))
        })
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> UblkFailure {
    move |error| UblkFailure::System { what, error }
}

/// Waits for the end of all queues.
fn join(threads: Vec<QueueThread<'_, io::Result<QueueEnd>>>) -> Result<QueueEnd, UblkFailure> {
    let ends: Vec<_> = threads.into_iter().map(QueueThread::join).collect();
    let mut ended = QueueEnd::StopAsked;
    for end in ends {
        match end {
            Ok(Ok(QueueEnd::DeviceStopped)) => ended = QueueEnd::DeviceStopped,
            Ok(Ok(QueueEnd::StopAsked)) => {}
            Ok(Err(error)) => return Err(system("answer of the driver")(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(ended)
}

/// Has all queues end.
fn end_queues(stop: &OwnedFd) {
    // An eventfd that is full is readable already.
    let _ = rustix::io::write(stop, &1_u64.to_ne_bytes());
}

/// Ends all queues when one ends, however that happens: a device has all of them or none.
struct EndOthers<'s>(&'s OwnedFd);

impl Drop for EndOthers<'_> {
    fn drop(&mut self) {
        end_queues(self.0);
    }
}

/// The life of a queue, on its thread.
fn run_queue(
    ring: io::Result<QueueRing<'_>>,
    (shape, stop): (QueueShape, &OwnedFd),
    volume: &UblkVolume<'_>,
    tally: &ConnectionCounters<'_>,
    progress: &QueueProgress,
) -> io::Result<QueueEnd> {
    let _others = EndOthers(stop);
    let tell = |said: &io::Result<()>| {
        let said = said
            .as_ref()
            .copied()
            .map_err(|error| error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error));
        // No one listens any more: another queue failed.
        let _ = progress.told.send(said);
    };
    let ring = match ring {
        Ok(ring) => ring,
        Err(error) => {
            tell(&Err(error));
            return Ok(QueueEnd::StopAsked);
        }
    };
    tell(&Ok(()));
    if progress.go.recv().is_err() {
        return Ok(QueueEnd::StopAsked);
    }
    let executor = RequestExecutor::new(volume.export, tally);
    match ServedQueue::begin(ring, shape.depth, executor) {
        Ok(queue) => {
            tell(&Ok(()));
            queue.run(volume.poll_budget)
        }
        Err(error) => {
            tell(&Err(error));
            Ok(QueueEnd::StopAsked)
        }
    }
}

/// Keeps one tag of each queue free of requests. The driver learns of a server's end by a tag at
/// which it waits for a request: with none, kernels before 6.16 notice after 30 s. Where it cannot
/// be set, a restart under full load takes so long.
fn spare_a_request(number: u32, depth: u16) {
    let setting = format!("/sys/block/ublkb{number}/queue/nr_requests");
    let is_spared = |text: String| text.trim().parse().is_ok_and(|requests: u16| requests < depth);
    if fs::read_to_string(&setting).is_ok_and(is_spared) {
        return;
    }
    // The kernel waits until no request is under way, and whoever writes cannot be killed then. So
    // it is not this process that writes: its next server could not begin before its end, and the
    // requests have no one else to answer them.
    let mut write = Command::new("sh");
    write.args(["-c", r#"echo "$0" >"$1""#]).arg((depth - 1).to_string()).arg(setting);
    let _ = write.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
