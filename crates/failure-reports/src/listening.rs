//! Sockets that cannot be listened on, block devices that a volume cannot be, and a sandbox that a
//! kernel does not have.

use crate::{Exit, Report};
use tidegate_host::shell::word;
use tidegate_sandbox::SandboxFailure;
use tidegate_server::failure::{ListenFailure, TokenError, UblkFailure};
use tidegate_server::sockets::listen::SOCKET_PATH_BYTES_MAX;

impl From<&ListenFailure> for Report {
    fn from(failure: &ListenFailure) -> Report {
        let what = failure.to_string();
        match failure {
            ListenFailure::SocketInUse { pid, .. } => socket_in_use(what, *pid),
            ListenFailure::NotASocket { .. } => not_a_socket(what),
            ListenFailure::PathTooLong { .. } => path_too_long(what),
            ListenFailure::PortInUse { .. } => port_in_use(what),
            ListenFailure::Identity { error } => identity(what, error.to_string()),
            ListenFailure::Token { error } => token(what, error),
            ListenFailure::Denied { .. } => denied(what),
            ListenFailure::Group { group, error, .. } => of_group(what, *group, error.to_string()),
            ListenFailure::Named { flag, failure } => {
                Report { next: format!("choose another place: {flag}"), ..Report::from(&**failure) }
            }
            ListenFailure::Refused { error, .. } => refused(what, error.to_string()),
        }
    }
}

fn socket_in_use(what: String, pid: Option<u32>) -> Report {
    let server = pid.map_or("a server".to_owned(), |pid| format!("process {pid}"));
    let next = "attach to that server, stop it, or choose another: --listen unix:PATH";
    Report::new(("socket-in-use", Exit::InUse), what, format!("{server} answers on it"), next)
}

fn not_a_socket(what: String) -> Report {
    let why = "a file that is no socket has this name";
    let next = "move the file away, or choose another: --listen unix:PATH";
    Report::new(("not-a-socket", Exit::Environment), what, why, next)
}

fn path_too_long(what: String) -> Report {
    let why = format!("the path of a unix socket may have {SOCKET_PATH_BYTES_MAX} bytes");
    let next = "choose a shorter one: --listen unix:PATH";
    Report::new(("socket-path-too-long", Exit::Environment), what, why, next)
}

fn port_in_use(what: String) -> Report {
    let next = "choose another port, or 0 for any free one: --listen tcp:127.0.0.1:0";
    Report::new(("port-in-use", Exit::InUse), what, "another program listens on it", next)
}

fn identity(what: String, why: String) -> Report {
    let next = "put the file right, or name others: --tls-certificate FILE --tls-key FILE";
    Report::new(("tls", Exit::Environment), what, why, next)
}

fn token(what: String, error: &TokenError) -> Report {
    let next = match error {
        TokenError::Unreadable { path, .. } => {
            format!("let the server's user read it, or make one: (umask 077; openssl rand -hex 32 > {})", word(path))
        }
        TokenError::NotPrivate { path, .. } => {
            format!("make it the server's own: chmod 600 {0}, chown the server's user {0}", word(path))
        }
        TokenError::NoToken { path, .. } => {
            format!("write another: (umask 077; openssl rand -hex 32 > {})", word(path))
        }
    };
    Report::new(("metrics-token", Exit::Environment), what, error.to_string(), next)
}

fn denied(what: String) -> Report {
    let next = "choose a folder you may write to, or a port from 1024 on, with --listen";
    Report::new(("permission", Exit::Environment), what, "the system refused it to this user", next)
}

fn of_group(what: String, group: u32, why: String) -> Report {
    let next = format!(
        "run the server as root or as a user who is in group {group}; or let nobody else in by leaving --allow-gid out"
    );
    Report::new(("socket-group", Exit::Environment), what, why, next)
}

fn refused(what: String, why: String) -> Report {
    Report::new(("listen", Exit::Environment), what, why, "choose another place with --listen")
}

impl From<&SandboxFailure> for Report {
    fn from(failure: &SandboxFailure) -> Report {
        let why = match failure {
            SandboxFailure::Filter(error) => error.to_string(),
            SandboxFailure::Kernel(error) => error.to_string(),
            SandboxFailure::Capabilities(errno) => errno.to_string(),
        };
        let next = "boot a kernel with CONFIG_SECCOMP_FILTER, or do without: --sandbox off";
        Report::new(("no-sandbox", Exit::Environment), failure.to_string(), why, next)
    }
}

impl From<&UblkFailure> for Report {
    fn from(failure: &UblkFailure) -> Report {
        let what = failure.to_string();
        let report = |kind, exit, why: String, next: &str| Report::new((kind, exit), what.clone(), why, next);
        match failure {
            UblkFailure::NoDriver => {
                let why = "/dev/ublk-control does not exist: the module ublk_drv is not loaded, or the kernel has none";
                let next = "load it: modprobe ublk_drv (Linux 6.5 or newer), or leave out --ublk";
                report("no-ublk", Exit::Environment, why.to_owned(), next)
            }
            UblkFailure::Denied => {
                let why = "making a block device takes the capability CAP_SYS_ADMIN".to_owned();
                report("permission", Exit::Environment, why, "run it as root, or leave out --ublk")
            }
            UblkFailure::TooOld => {
                let why = "it cannot hand a device over from a killed server to the next one".to_owned();
                report("ublk-too-old", Exit::Environment, why, "boot Linux 6.5 or newer, or leave out --ublk")
            }
            UblkFailure::NumberTaken { number } => {
                let why = format!("the kernel has a device /dev/ublkc{number} that is not of this volume");
                report("device-in-use", Exit::InUse, why, "name another number, or none: --ublk")
            }
            UblkFailure::Served { pid, .. } => {
                let why =
                    format!("process {pid} has the device of this volume open, or the kernel has not ended it yet");
                report("device-in-use", Exit::InUse, why, "stop that process, and start this one again")
            }
            UblkFailure::Changed { number, what: differs } => {
                let why = format!("{differs} is not the same now, and the device is in use");
                let next = format!(
                    "serve the volume as before, end the use of /dev/ublkb{number} (umount), and start this server again"
                );
                report("device-in-use", Exit::InUse, why, &next)
            }
            UblkFailure::Command { error, .. } => {
                let next = "look at the kernel's log (dmesg), and at `ls /dev/ublk*`";
                report("ublk", Exit::Environment, error.to_string(), next)
            }
            UblkFailure::System { error, .. } => {
                let next = "give the server more of it (ulimit -a), allow io_uring (sysctl kernel.io_uring_disabled=0), or leave out --ublk";
                report("ublk", Exit::Environment, error.to_string(), next)
            }
            UblkFailure::File { error, .. } => report(
                "ublk",
                Exit::Environment,
                error.to_string(),
                "run it as root, where udev or devtmpfs keeps /dev",
            ),
        }
    }
}
