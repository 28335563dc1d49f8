//! Notifications for systemd (Type=notify, WatchdogSec=), over the socket it names in the
//! environment.
//!
//! The protocol is one datagram of lines:
//! <https://www.freedesktop.org/software/systemd/man/sd_notify.html>. Without that variable no
//! message is said to anyone.

use rustix::event::Timespec;
use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Whoever started this process and wants to know how it does.
pub struct SystemdNotify {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that the process is alive.
    heartbeat: Option<Duration>,
}

impl SystemdNotify {
    /// As the environment says.
    pub fn from_environment() -> SystemdNotify {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let connected = connect(&name);
            connected
                .inspect_err(|error| {
                    tracing::warn!("cannot notify systemd at NOTIFY_SOCKET {}: {error}", name.display())
                })
                .ok()
        });
        let heartbeat = heartbeat(|name| env::var_os(name), std::process::id()).filter(|_| socket.is_some());
        SystemdNotify { socket, heartbeat }
    }

    /// Clients can connect.
    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={}\n", one_line(status)));
    }

    /// The configuration is read again; [`SystemdNotify::ready`] tells of the end of that.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=reading the configuration again\n"));
    }

    /// The end has begun.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=ending\n");
    }

    /// What is going on.
    pub fn status(&self, status: &str) {
        self.say(&format!("STATUS={}\n", one_line(status)));
    }

    /// The process is alive.
    pub fn beat(&self) {
        if self.heartbeat.is_some() {
            self.say("WATCHDOG=1\n");
        }
    }

    /// How long a wait may last before the next [`SystemdNotify::beat`]: half of what the
    /// supervisor allows.
    pub fn wait_max(&self) -> Option<Timespec> {
        let half = self.heartbeat? / 2;
        Timespec::try_from(half).ok()
    }

    fn say(&self, lines: &str) {
        // A supervisor that does not listen has its own ways to see how the process does.
        let _ = self.socket.as_ref().map(|socket| socket.send(lines.as_bytes()));
    }
}

fn connect(name: &OsString) -> std::io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A full queue must not stop the server.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The interval in WATCHDOG_USEC, if it is meant for this process.
fn heartbeat(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Option<Duration> {
    let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
    let for_us = variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(u64::from(pid));
    number("WATCHDOG_USEC").filter(|usec| for_us && *usec > 0).map(Duration::from_micros)
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_heeded_if_it_is_for_this_process() {
        let asked = |usec: &'static str, pid: Option<&'static str>| {
            let variable = move |name: &str| match name {
                "WATCHDOG_USEC" => Some(usec.into()),
                _ => pid.map(OsString::from),
            };
            heartbeat(variable, 7)
        };
        assert_eq!(asked("2000000", None), Some(Duration::from_secs(2)));
        assert_eq!(asked("2000000", Some("7")), Some(Duration::from_secs(2)));
        assert_eq!((asked("2000000", Some("8")), asked("0", None), asked("soon", None)), (None, None, None));
    }

    #[test]
    fn sockets_without_a_file_are_found() {
        let name = format!("tidegate-test-{}", std::process::id());
        let heard = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("a socket");
        let socket = connect(&format!("@{name}").into()).expect("somebody listens");
        SystemdNotify { socket: Some(socket), heartbeat: None }.status("two\nlines");
        let mut datagram = [0; 64];
        let len = heard.recv(&mut datagram).expect("a datagram");
        assert_eq!(&datagram[..len], b"STATUS=two lines\n");
    }
}
