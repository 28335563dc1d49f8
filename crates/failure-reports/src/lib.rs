//! Reports of the failures of every library that the program calls, for people and for scripts.
//!
//! Each says the event, the cause and the next step, and ends with a documented exit code. A report
//! is made in one place: `From` its failure.

#![forbid(unsafe_code)]

mod control;
mod disk;
mod doctor;
mod files;
mod journal;
mod listening;
mod mounting;
mod own;
mod server;
mod volume;

pub use server::refusal;
pub use volume::block_size;

use serde::Serialize;
use std::io;
use std::process::ExitCode;
use tidegate_host::rlimits::lifting_for_threads;

/// How the program ends. Scripts rely on these numbers; `--help` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All was done.
    Done = 0,
    /// Something this program did not expect.
    Unexpected = 1,
    /// The command line or the configuration file asks for what is never possible.
    Usage = 2,
    /// The volume is refused: damaged, foreign, of another version, or already there.
    Refused = 3,
    /// Somebody else uses the volume, the socket or the port.
    InUse = 4,
    /// The system said no: permission, space, I/O.
    Environment = 5,
    /// The end did not wait for everything in progress.
    Interrupted = 6,
}

impl Exit {
    /// Every exit code with its meaning, in ascending order.
    pub const ALL: [(Exit, &'static str); 7] = [
        (Exit::Done, "done"),
        (Exit::Unexpected, "an error this program did not expect"),
        (Exit::Usage, "the command line or the configuration file is wrong"),
        (
            Exit::Refused,
            "the volume or pool is refused: damaged, foreign, absent, or already there; check, scrub, recover or salvage found damage that remains, doctor found a fault, or a repair gave blocks up",
        ),
        (Exit::InUse, "the volume, disk, socket or port is in use"),
        (Exit::Environment, "the system refused: permission, space, I/O"),
        (
            Exit::Interrupted,
            "ended before everything in progress was finished: a second signal came, a signal came at the end of a run, or requests took longer than 10 s",
        ),
    ];

    /// The one with this number, and its meaning.
    pub fn of_code(code: u8) -> Option<(Exit, &'static str)> {
        Exit::ALL.into_iter().find(|(exit, _)| *exit as u8 == code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// A failure as a person or a script is told of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// A stable word for scripts.
    pub kind: &'static str,
    /// What happened.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do now.
    pub next: String,
    /// How the program ends.
    #[serde(serialize_with = "exit_number")]
    pub exit: Exit,
}

impl Report {
    /// The report of the kind that scripts know by that word, with that exit code.
    pub fn new(
        (kind, exit): (&'static str, Exit),
        what: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Report {
        Report { kind, what: what.into(), why: why.into(), next: next.into(), exit }
    }

    /// What the system answered while `doing`, which it ought never to refuse unless a limit of
    /// this process forbids it.
    pub fn of_system(doing: &str, error: &io::Error) -> Report {
        if let Some(next) = lifting_for_threads(error) {
            let what = format!("failed while {doing}");
            return Report::new(("limit", Exit::Environment), what, error.to_string(), next);
        }
        let next = "try again with -v; if it stays, report it with this message";
        Report::new(("system", Exit::Unexpected), format!("failed while {doing}"), error.to_string(), next)
    }
}

fn exit_number<S: serde::Serializer>(exit: &Exit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(*exit as u8)
}
