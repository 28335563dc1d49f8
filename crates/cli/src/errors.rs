//! Reports of failures, for people and for scripts. Each says the event, the cause and the next
//! step, and ends with a documented exit code. A report is made in one place, `From` its failure.

mod config;
mod control;
mod create;
mod disk;
mod files;
mod journal;
mod listening;
mod mirror;
mod mounting;
mod own;
mod run;
mod server;
mod stop;
mod usage;
mod volume;
mod write_cache;

pub(crate) use config::ConfigFailure;
pub(crate) use run::ProgramFailure;
pub(crate) use server::refusal;
pub(crate) use stop::StopFailure;
pub(crate) use usage::UsageFailure;

use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_doctor::DoctorFailure;
use tidegate_file_service::ServiceFailure;
use tidegate_host::shell::{Ends, shown};
use tidegate_sandbox::SandboxFailure;
use tidegate_server::failure as of_server;
use tidegate_top::TopFailure;

/// How the program ends. Scripts rely on these numbers; `--help` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
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
    pub(crate) const ALL: [(Exit, &'static str); 7] = [
        (Exit::Done, "done"),
        (Exit::Unexpected, "an error this program did not expect"),
        (Exit::Usage, "the command line or the configuration file is wrong"),
        (
            Exit::Refused,
            "the volume or pool is refused: damaged, foreign, absent, or already there; check, scrub, recover or salvage found what cannot be put right, doctor found a fault, or a repair lost blocks",
        ),
        (Exit::InUse, "the volume, disk, socket or port is in use"),
        (Exit::Environment, "the system refused: permission, space, I/O"),
        (
            Exit::Interrupted,
            "ended before everything in progress was finished: by a second signal, by one at the end of a run, or as requests took longer than 10 s",
        ),
    ];

    /// The one with this number, and its meaning.
    pub(crate) fn of_code(code: u8) -> Option<(Exit, &'static str)> {
        Exit::ALL.into_iter().find(|(exit, _)| *exit as u8 == code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line.
    Usage(UsageFailure),
    /// The configuration file.
    Config(ConfigFailure),
    /// Work on volumes, or a server.
    Server(of_server::Failure),
    /// A program to run, and its mounts.
    Program(ProgramFailure),
    /// A mount, or its pool.
    Files(ServiceFailure),
    /// A server to stop.
    Stop(StopFailure),
    /// A screen.
    Top(TopFailure),
    /// A directory to examine.
    Doctor(DoctorFailure),
    /// A sandbox that was asked for.
    Sandbox(SandboxFailure),
    /// A folder that files cannot be written to.
    Output {
        /// The folder.
        folder: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// What was done cannot be told.
    Stdout {
        /// What the system answered.
        error: io::Error,
    },
    /// Whoever read the program's output has gone: nobody is left to tell.
    NobodyReads,
}

/// A failure as a person or a script is told of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// A stable word for scripts.
    pub(crate) kind: &'static str,
    /// What happened.
    pub(crate) what: String,
    /// Why.
    pub(crate) why: String,
    /// What to do now.
    pub(crate) next: String,
    #[serde(serialize_with = "exit_number")]
    pub(crate) exit: Exit,
}

impl Report {
    fn new(
        (kind, exit): (&'static str, Exit),
        what: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Report {
        Report { kind, what: what.into(), why: why.into(), next: next.into(), exit }
    }

    /// What the system answered while `doing`, which it ought never to refuse.
    fn of_system(doing: &str, error: &io::Error) -> Report {
        let next = "try again with -v; if it stays, report it with this message";
        Report::new(("system", Exit::Unexpected), format!("failed while {doing}"), error.to_string(), next)
    }
}

fn exit_number<S: serde::Serializer>(exit: &Exit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(*exit as u8)
}

impl Failure {
    /// Whether it means that no server is there, so that a command may do the work itself.
    pub(crate) fn is_no_server(&self) -> bool {
        matches!(self, Failure::Server(of_server::Failure::Control(control)) if control.is_no_server())
    }

    /// A failure of the system while `doing`, for `map_err`.
    pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> Failure {
        move |error| of_server::Failure::System { doing, error }.into()
    }
}

/// What, why and what next; `None` when nobody is left to read it.
impl From<&Failure> for Option<Report> {
    fn from(failure: &Failure) -> Option<Report> {
        Some(match failure {
            Failure::Usage(usage) => usage.into(),
            Failure::Config(config) => config.into(),
            Failure::Server(server) => server.into(),
            Failure::Program(failure) => failure.into(),
            Failure::Files(failure) => failure.into(),
            Failure::Stop(stop) => stop.into(),
            Failure::Top(top) => top.into(),
            Failure::Doctor(doctor) => doctor.into(),
            Failure::Sandbox(failure) => failure.into(),
            Failure::Output { folder, error } => output(&folder.display().to_string(), error),
            Failure::Stdout { error } => stdout(error),
            Failure::NobodyReads => return None,
        })
    }
}

fn output(folder: &str, error: &io::Error) -> Report {
    let next = "name a folder that this user may write to: --out FOLDER";
    Report::new(("output", Exit::Environment), format!("cannot write to {folder}"), error.to_string(), next)
}

fn stdout(error: &io::Error) -> Report {
    let what = "what was asked for is done, but the answer cannot be written to stdout";
    let next = "make room where stdout leads, or send it elsewhere, and look at the result: tidegate info";
    Report::new(("stdout", Exit::Environment), what, error.to_string(), next)
}

impl From<UsageFailure> for Failure {
    fn from(usage: UsageFailure) -> Failure {
        Failure::Usage(usage)
    }
}

impl From<ConfigFailure> for Failure {
    fn from(config: ConfigFailure) -> Failure {
        Failure::Config(config)
    }
}

impl From<DoctorFailure> for Failure {
    fn from(doctor: DoctorFailure) -> Failure {
        Failure::Doctor(doctor)
    }
}

impl From<SandboxFailure> for Failure {
    fn from(failure: SandboxFailure) -> Failure {
        Failure::Sandbox(failure)
    }
}

impl From<StopFailure> for Failure {
    fn from(stop: StopFailure) -> Failure {
        Failure::Stop(stop)
    }
}

/// Tells `failure` on stderr, as three lines or as one JSON object, and gives the exit code.
pub(crate) fn report(failure: &Failure, json: bool) -> Exit {
    Option::<Report>::from(failure).map_or(Exit::Done, |report| report_on_stderr(&report, json))
}

fn report_on_stderr(report: &Report, json: bool) -> Exit {
    #[derive(Serialize)]
    struct JsonError<'a> {
        error: &'a Report,
    }
    let text = if json {
        serde_json::to_string(&JsonError { error: report }).expect("strings and a number have a JSON form")
    } else {
        let [what, why, next] = [&report.what, &report.why, &report.next].map(|line| shown(line, Ends::OfNothing));
        format!("tidegate: error: {what}\n  why: {why}\n  next: {next}")
    };
    // A closed stderr leaves nowhere to report to; the exit code still tells.
    let _ = writeln!(io::stderr().lock(), "{text}");
    report.exit
}
