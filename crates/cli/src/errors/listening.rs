//! Sockets that cannot be listened on.

use super::{Exit, Report};
use tidegate_server::failure::ListenFailure;
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
