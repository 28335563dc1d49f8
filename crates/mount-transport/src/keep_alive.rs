//! The small process that keeps a mount alive while servers come and go.
//!
//! It mounts, agrees with the kernel on a session, and holds the device and the memory with the
//! replies. It reads no request and does nothing that could fail under memory pressure. A server
//! gets both [handed over](crate::Handover) and answers requests. When it dies:
//!
//! | kernel | requests that were read and not answered |
//! | --- | --- |
//! | Linux 6.9 and later | are sent to the next server, marked: programs see a pause |
//! | older | fail with `ECONNABORTED`; the mount lives on, and other requests wait |
//!
//! An older kernel keeps such requests for as long as the device's open file exists. So the server
//! gets an open file of its own there, which goes with it.

pub(crate) mod descriptors;
pub(crate) mod ending;
pub(crate) mod handover;
pub(crate) mod memory_log;
pub(crate) mod reply_cache;
mod restarts;

use crate::device::Device;
use crate::keep_alive::descriptors::{HeldDescriptors, ServerState};
use crate::keep_alive::ending::{EndSignals, demand_end};
use crate::keep_alive::handover::{Sending, ServersTask, sockets};
use crate::keep_alive::reply_cache::ReplyCache;
use crate::keep_alive::restarts::{NextStart, Restarts};
use crate::mount::MountedDevice;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tidegate_fuse::{Features, Notification};

/// Why no server runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountEnd {
    /// A server ended by itself: the mount is over, or the first one could not begin.
    Server(ExitStatus),
    /// The servers died at their start, one after the other, and no further one is started. This is
    /// how the last one ended.
    GaveUp(ExitStatus),
}

/// A server could not be started, or not be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing} failed: {errno}")]
pub struct KeepAliveError {
    /// What failed.
    pub doing: &'static str,
    /// Why.
    pub errno: Errno,
}

/// What happens to a mount while it is kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountEvent {
    /// A server answers requests.
    Serves {
        /// How many died before it.
        restarts: u64,
    },
    /// A server died, and the next one is started.
    Died {
        /// How it ended.
        status: ExitStatus,
    },
    /// A signal came for the first time: the mount is to be unmounted now. That may take until
    /// programs and the server let it go, and this thread is needed meanwhile.
    EndDemanded,
}

/// Keeps a mount alive until it is unmounted. `server` gives the command of a server, whose
/// standard input is the [handover](crate::Handover) with `task`; `tell` hears of servers.
///
/// | a server ends | then |
/// | --- | --- |
/// | with success | no further one is started |
/// | with an exit code, as the first one | no further one is started |
/// | with an exit code, once unmounted or after a signal | no further one is started |
/// | in another way | the next one is started, after a wait if it lived for a moment |
/// | so, ten times in a row at its start | this gives up: programs get `ENOTCONN` |
///
/// A server that dies after the unmounting has a next one too, which writes back what is left.
/// The first of the `signals` is told as [`MountEvent::EndDemanded`]; later ones are handed on to
/// the server as demands to [end at once](crate::EndDemands).
pub fn keep_alive(
    mounted: &MountedDevice,
    (task, signals): (&ServersTask, &EndSignals),
    server: impl Fn() -> Command,
    mut tell: impl FnMut(MountEvent),
) -> Result<MountEnd, KeepAliveError> {
    let mut keeping = KeepAlive {
        mounted,
        task,
        replies: ReplyCache::memory().map_err(failed("making memory for replies"))?,
        signals,
        is_ending: false,
        held: HeldDescriptors::default(),
        restarts: 0,
    };
    let mut restarts = Restarts::default();
    loop {
        let started = Instant::now();
        let status = keeping.run(server(), &mut tell)?;
        let may_end = keeping.restarts == 0 || keeping.is_ending || keeping.is_unmounted_within(Duration::ZERO)?;
        if status.success() || status.code().is_some() && may_end {
            return Ok(MountEnd::Server(status));
        }
        let wait = match restarts.wait_after(started.elapsed()) {
            NextStart::For(wait) => wait,
            NextStart::GiveUp { deaths } => {
                tracing::error!(
                    "{deaths} servers of the mount died at their start, the last one: {status}; no further one is started"
                );
                return Ok(MountEnd::GaveUp(status));
            }
        };
        tracing::warn!("the server of the mount ended ({status}); it is started again in {wait:?}");
        tell(MountEvent::Died { status });
        keeping.is_unmounted_within(wait)?;
        keeping.resend();
        keeping.restarts += 1;
    }
}

/// How long demands of a server wait after others were read. They are safe meanwhile, and waking
/// this process for each costs a program that removes files more than the removal. The socket takes
/// more than any server sends in this time; else the server would wait.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

struct KeepAlive<'a> {
    mounted: &'a MountedDevice,
    task: &'a ServersTask,
    replies: OwnedFd,
    signals: &'a EndSignals,
    /// Whether a signal came so far.
    is_ending: bool,
    /// What servers had survive.
    held: HeldDescriptors,
    /// Servers that died.
    restarts: u64,
}

impl KeepAlive<'_> {
    /// Runs one server to its end.
    fn run(&mut self, mut command: Command, tell: &mut dyn FnMut(MountEvent)) -> Result<ExitStatus, KeepAliveError> {
        let own_device = self.device_of_server()?;
        let (ours, theirs) = sockets().map_err(failed("handing the mount over"))?;
        let child = command.stdin(theirs).spawn();
        // Its end of the socket goes with the server.
        drop(command);
        let child = child.map_err(|error| failed("starting the server")(errno(&error)))?;
        let sending = Sending {
            device: own_device.as_ref().unwrap_or(&self.mounted.device),
            session: &self.mounted.session,
            replies: self.replies.as_fd(),
            restarts: self.restarts,
            task: self.task,
            held: &self.held,
        };
        match sending.send(ours.as_fd()) {
            // It ended already, and says how by its exit.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(failed("handing the mount over")(errno)),
        }
        drop(own_device);
        let status = self.wait_for(child, ours.as_fd(), tell)?;
        self.receive(ours.as_fd(), tell);
        Ok(status)
    }

    /// The open file that only the server has, on kernels that cannot send requests again.
    fn device_of_server(&self) -> Result<Option<Device>, KeepAliveError> {
        if self.mounted.session.features.contains(Features::RESEND) {
            return Ok(None);
        }
        self.mounted.device.cloned().map(Some).map_err(failed("opening /dev/fuse for the server"))
    }

    fn wait_for(
        &mut self,
        mut child: Child,
        socket: BorrowedFd<'_>,
        tell: &mut dyn FnMut(MountEvent),
    ) -> Result<ExitStatus, KeepAliveError> {
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("watching the server"))?;
        let mut rests = false;
        loop {
            let mut polled = [
                PollFd::new(&ended, PollFlags::IN),
                PollFd::new(&self.signals.came, PollFlags::IN),
                PollFd::new(&socket, PollFlags::IN),
            ];
            let (polled_now, rest) = if rests { (&mut polled[..2], Some(&REST)) } else { (&mut polled[..], None) };
            match rustix::event::poll(polled_now, rest) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("watching the server")(errno)),
            }
            let [has_ended, has_signal, has_demand] = polled.map(|polled| !polled.revents().is_empty());
            rests = has_demand;
            if has_ended {
                return child.wait().map_err(|error| failed("watching the server")(errno(&error)));
            }
            if has_demand {
                self.receive(socket, tell);
            }
            if has_signal {
                let mut came = self.signals.take();
                if came > 0 && !std::mem::replace(&mut self.is_ending, true) {
                    tell(MountEvent::EndDemanded);
                    came -= 1;
                }
                (0..came).for_each(|_| demand_end(socket));
            }
        }
    }

    fn receive(&mut self, socket: BorrowedFd<'_>, tell: &mut dyn FnMut(MountEvent)) {
        if self.held.receive_all(socket) == ServerState::Serves {
            tell(MountEvent::Serves { restarts: self.restarts });
        }
    }

    /// Returns whether the file system is unmounted, or a signal came, before `wait` is over.
    fn is_unmounted_within(&self, wait: Duration) -> Result<bool, KeepAliveError> {
        let wait = Timespec::try_from(wait).unwrap_or_default();
        // The device says by POLLERR, unasked, that it is unmounted.
        let mut polled =
            [PollFd::new(&self.mounted.device, PollFlags::empty()), PollFd::new(&self.signals.came, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&wait)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(failed("watching the mount")(errno)),
        }
    }

    /// Has the kernel send again what the dead server did not answer.
    fn resend(&self) {
        if !self.mounted.session.features.contains(Features::RESEND) {
            return;
        }
        if let Err(error) = self.mounted.device.notify(&Notification::resend()) {
            tracing::error!("requests that the server left unanswered stay so: {error}");
        }
    }
}

fn failed(doing: &'static str) -> impl Fn(Errno) -> KeepAliveError {
    move |errno| KeepAliveError { doing, errno }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
