//! Failures of commands, each with its report. Those of the libraries have theirs in
//! `failure-reports`.

mod config;
mod run;
mod stop;
mod usage;

pub(crate) use config::ConfigFailure;
pub(crate) use run::ProgramFailure;
pub(crate) use stop::StopFailure;
pub(crate) use tidegate_failure_reports::{Exit, Report, refusal};
pub(crate) use usage::{MetricsLack, UsageFailure};

use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use tidegate_doctor::DoctorFailure;
use tidegate_file_service::ServiceFailure;
use tidegate_host::default_paths::FolderError;
use tidegate_host::shell::{Ends, shown};
use tidegate_sandbox::SandboxFailure;
use tidegate_server::failure::{
    self as of_server, ControlFailure, CreateFailure, DiskFailure, JournalFailure, ListenFailure, VolumeFailure,
    WriteCacheFailure,
};
use tidegate_top::TopFailure;
use tidegate_volume_region::RegionFailure;

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

/// A command fails if what it asks of the library does.
macro_rules! failures_of_server {
    ($($failure:ty),*) => {
        $(impl From<$failure> for Failure {
            fn from(failure: $failure) -> Failure {
                Failure::Server(failure.into())
            }
        })*
    };
}

failures_of_server!(
    of_server::Failure,
    ControlFailure,
    CreateFailure,
    DiskFailure,
    FolderError,
    JournalFailure,
    ListenFailure,
    RegionFailure,
    VolumeFailure,
    WriteCacheFailure
);

impl From<TopFailure> for Failure {
    fn from(failure: TopFailure) -> Failure {
        Failure::Top(failure)
    }
}

impl From<ServiceFailure> for Failure {
    fn from(failure: ServiceFailure) -> Failure {
        match failure {
            ServiceFailure::Folder(folder) => folder.into(),
            ServiceFailure::System { doing, error } if error.kind() != io::ErrorKind::ReadOnlyFilesystem => {
                Failure::system(doing)(error)
            }
            failure => Failure::Files(failure),
        }
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
