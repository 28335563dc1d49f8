//! A `tidegate mount` that this program starts in the background: when programs can use the mount,
//! and how its service ended.

use crate::errors::{Exit, Failure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, ExitStatus};

/// Hears, as systemd would, when a service is ready.
pub(super) struct Readiness {
    name: String,
    notified: UnixDatagram,
}

impl Readiness {
    /// For a service that is not started yet.
    pub(super) fn expected() -> Result<Readiness, Failure> {
        let name = format!("tidegate-mount-{}", uuid::Uuid::new_v4().simple());
        let notified = SocketAddr::from_abstract_name(&name).and_then(|address| UnixDatagram::bind_addr(&address));
        Ok(Readiness { name, notified: notified.map_err(Failure::system("making a socket"))? })
    }

    /// The service's `NOTIFY_SOCKET`.
    pub(super) fn name(&self) -> String {
        format!("@{}", self.name)
    }

    /// Waits until the service says that it is ready. Returns how it ended, if it did before.
    pub(super) fn wait(self, service: &mut Child) -> Result<Option<ExitStatus>, Failure> {
        self.wait_for_either(service).map_err(Failure::system("waiting for the mount"))
    }

    fn wait_for_either(&self, service: &mut Child) -> std::io::Result<Option<ExitStatus>> {
        let ended = pidfd_open(Pid::from_child(service), PidfdFlags::empty())?;
        loop {
            let mut polled = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&self.notified, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let [has_ended, has_message] = polled.map(|polled| !polled.revents().is_empty());
            if has_message {
                let mut message = [0; 4096];
                let len = self.notified.recv(&mut message)?;
                if message[..len].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                    return Ok(None);
                }
            } else if has_ended {
                return service.wait().map(Some);
            }
        }
    }
}

/// The exit code that a service ended with, if it is one of this program's.
pub(super) fn exit_of(status: ExitStatus) -> Exit {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.and_then(Exit::of_code).map_or(Exit::Unexpected, |(exit, _)| exit)
}
