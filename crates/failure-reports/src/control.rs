//! Servers that do not answer, or refuse a request; and why there is no screen that shows them.

use crate::{Exit, Report};
use std::error::Error;
use tidegate_host::owned;
use tidegate_server::failure::{ControlFailure, Refused};
use tidegate_top::TopFailure;

impl From<&ControlFailure> for Report {
    fn from(failure: &ControlFailure) -> Report {
        let what = failure.to_string();
        match failure {
            ControlFailure::NoServer { error, .. } => no_server(what, error.to_string()),
            ControlFailure::Denied { error, .. } => denied(what, error.to_string()),
            ControlFailure::Silent { error, .. } => silent(what, error.to_string()),
            ControlFailure::Unintelligible { error, .. } => unintelligible(what, error.to_string()),
            ControlFailure::OfAnother { user, .. } => of_another(what, *user),
            ControlFailure::Refused(refused) => refused_by_server(what, refused),
        }
    }
}

fn no_server(what: String, why: String) -> Report {
    let next = "start one with `tidegate serve`, or name the control socket that it prints: --control PATH";
    Report::new(("no-server", Exit::Environment), what, why, next)
}

fn denied(what: String, why: String) -> Report {
    Report::new(("permission", Exit::Environment), what, why, "run this as the user of the server, or as root")
}

fn silent(what: String, why: String) -> Report {
    let next = "it may still be busy with the request: look later with `tidegate stat`";
    Report::new(("no-answer", Exit::Environment), what, why, next)
}

fn unintelligible(what: String, why: String) -> Report {
    Report::new(("control-answer", Exit::Environment), what, why, "ask with the version of tidegate that serves")
}

fn of_another(what: String, user: u32) -> Report {
    let next = format!("run this as that user, or as root: sudo -u {} tidegate stop", owned::for_sudo(user));
    let why = "a user may stop only servers of their own, and root every server";
    Report::new(("permission", Exit::Environment), what, why, next)
}

/// Of what a running server refuses: as it says itself, if it tried.
fn refused_by_server(what: String, refused: &Refused) -> Report {
    let (exit, next) = match refused {
        Refused::Failed { next, exit, .. } => {
            (Exit::of_code(*exit).map_or(Exit::Refused, |(exit, _)| exit), next.as_str())
        }
        Refused::Ending { .. } => (Exit::Refused, "try again without it, or with the next one"),
        _ => (Exit::Refused, "see `tidegate stat` for its volumes"),
    };
    Report::new(("server-refuses", exit), what, refused.to_string(), next)
}

const ONCE: &str = "print the table once: tidegate top --once";

impl From<&TopFailure> for Report {
    fn from(failure: &TopFailure) -> Report {
        let what = failure.to_string();
        match failure {
            TopFailure::NoTerminal { why } => Report::new(("no-terminal", Exit::Usage), what, *why, ONCE),
            TopFailure::Terminal(_) => {
                let why = failure.source().map(ToString::to_string).unwrap_or_default();
                Report::new(("terminal", Exit::Environment), what, why, ONCE)
            }
            TopFailure::Broken => {
                let why = "the message above has the reason";
                Report::new(
                    ("unexpected", Exit::Unexpected),
                    what,
                    why,
                    "report that message; meanwhile: tidegate top --once",
                )
            }
        }
    }
}
