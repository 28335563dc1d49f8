//! What can go wrong, for people: each failure says what, why and what next, and ends with a
//! documented exit code.

mod config;
mod control;
mod disk;
mod files;
mod journal;
mod listening;
mod opening;
mod own;
mod run;
mod stop;
mod usage;
mod volume;

pub(crate) use config::ConfigFailure;
pub(crate) use control::ControlFailure;
pub(crate) use disk::{DiskFailure, Kept, KeptBy};
pub(crate) use journal::JournalFailure;
pub(crate) use listening::{ListenFailure, SOCKET_PATH_BYTES_MAX};
pub(crate) use opening::of_opening;
pub(crate) use stop::StopFailure;
pub(crate) use tidegate_host::Doing;
pub(crate) use tidegate_run_log::RunFailure;
pub(crate) use usage::UsageFailure;
pub(crate) use volume::{CacheTrouble, VolumeFailure};

use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_file_service::ServiceFailure;
use tidegate_host::default_paths::FolderError;
use tidegate_host::owned::NotOwn;
use tidegate_host::shell::{Ends, shown};

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
            "the volume or pool is refused: damaged, foreign, absent, or already there; check, scrub, recover or salvage found what cannot be put right, or a repair lost blocks",
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
    /// The control socket of a running server.
    Control(ControlFailure),
    /// The region file, or the volume in it.
    Volume(VolumeFailure),
    /// The disk behind a cache.
    Disk(DiskFailure),
    /// The journal of an ordered disk.
    Journal(JournalFailure),
    /// A socket to listen on.
    Listen(ListenFailure),
    /// A mount, or its pool.
    Files(ServiceFailure),
    /// A program to run.
    Run(RunFailure),
    /// A pool where a volume was expected.
    IsPool {
        /// The pool.
        pool: PathBuf,
    },
    /// A server to stop.
    Stop(StopFailure),
    /// A file or folder that other users may have put there.
    NotOwn(NotOwn),
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
    /// A service of the operating system that ought always to work.
    System {
        /// What was being done, as in "while ...".
        doing: &'static str,
        /// What the system answered.
        error: io::Error,
    },
    /// Whoever read the program's output has gone: nobody is left to tell.
    NobodyReads,
}

/// A failure as a person or a script is told of it.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
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

impl Told {
    fn of((kind, exit): (&'static str, Exit), (what, why): (String, String), next: String) -> Told {
        Told { kind, what, why, next, exit }
    }
}

fn exit_number<S: serde::Serializer>(exit: &Exit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(*exit as u8)
}

impl Failure {
    /// Whether it means that no server is there, so that a command may do the work itself.
    pub(crate) fn is_no_server(&self) -> bool {
        matches!(self, Failure::Control(ControlFailure::NoServer { .. }))
    }

    /// A failure of the system while `doing`, for `map_err`.
    pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::System { doing, error }
    }

    /// What, why and what next; `None` when nobody is left to read it.
    pub(crate) fn told(&self) -> Option<Told> {
        match self {
            Failure::Usage(usage) => Some(usage.told()),
            Failure::Config(config) => Some(config.told()),
            Failure::Control(control) => Some(control.told()),
            Failure::Volume(volume) => Some(volume.told()),
            Failure::Disk(disk) => Some(disk.told()),
            Failure::Journal(journal) => Some(journal.told()),
            Failure::Listen(listen) => Some(listen.told()),
            Failure::Files(failure) => Some(files::told(failure)),
            Failure::Run(run) => Some(run::told(run)),
            Failure::Stop(stop) => Some(stop.told()),
            Failure::IsPool { pool } => Some(run::instead_of_a_volume(pool)),
            Failure::NotOwn(not_own) => Some(own::told(not_own)),
            Failure::Output { folder, error } => Some(Told {
                kind: "output",
                what: format!("cannot write to {}", folder.display()),
                why: error.to_string(),
                next: "name a folder that this user may write to: --out FOLDER".to_owned(),
                exit: Exit::Environment,
            }),
            Failure::Stdout { error } => Some(Told {
                kind: "stdout",
                what: "what was asked for is done, but the answer cannot be written to stdout".to_owned(),
                why: error.to_string(),
                next: "make room where stdout leads, or send it elsewhere, and look at the result: tidegate info"
                    .to_owned(),
                exit: Exit::Environment,
            }),
            Failure::System { doing, error } => Some(Told {
                kind: "system",
                what: format!("failed while {doing}"),
                why: error.to_string(),
                next: "try again with -v; if it stays, report it with this message".to_owned(),
                exit: Exit::Unexpected,
            }),
            Failure::NobodyReads => None,
        }
    }
}

impl From<UsageFailure> for Failure {
    fn from(usage: UsageFailure) -> Failure {
        Failure::Usage(usage)
    }
}

impl From<JournalFailure> for Failure {
    fn from(journal: JournalFailure) -> Failure {
        Failure::Journal(journal)
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Failure {
        match error {
            FolderError::NotMade { folder, error } => VolumeFailure::of_io(&folder, Doing::Create, error).into(),
            FolderError::NotOwn(not_own) => Failure::NotOwn(not_own),
        }
    }
}

impl From<ConfigFailure> for Failure {
    fn from(config: ConfigFailure) -> Failure {
        Failure::Config(config)
    }
}

impl From<ControlFailure> for Failure {
    fn from(control: ControlFailure) -> Failure {
        Failure::Control(control)
    }
}

impl From<VolumeFailure> for Failure {
    fn from(volume: VolumeFailure) -> Failure {
        Failure::Volume(volume)
    }
}

impl From<DiskFailure> for Failure {
    fn from(disk: DiskFailure) -> Failure {
        Failure::Disk(disk)
    }
}

impl From<RunFailure> for Failure {
    fn from(run: RunFailure) -> Failure {
        Failure::Run(run)
    }
}

impl From<StopFailure> for Failure {
    fn from(stop: StopFailure) -> Failure {
        Failure::Stop(stop)
    }
}

impl From<ListenFailure> for Failure {
    fn from(listen: ListenFailure) -> Failure {
        Failure::Listen(listen)
    }
}

impl Failure {
    /// The same, of a place that `flag` named.
    pub(crate) fn named_by(self, flag: &'static str) -> Failure {
        match self {
            Failure::Listen(failure) => ListenFailure::Named { flag, failure: Box::new(failure) }.into(),
            other => other,
        }
    }
}

/// Tells `failure` on stderr, as three lines or as one JSON object, and gives the exit code.
pub(crate) fn tell(failure: &Failure, json: bool) -> Exit {
    match failure.told() {
        Some(told) => tell_on_stderr(&told, json),
        None => Exit::Done,
    }
}

fn tell_on_stderr(told: &Told, json: bool) -> Exit {
    #[derive(Serialize)]
    struct Answer<'a> {
        error: &'a Told,
    }
    let text = if json {
        serde_json::to_string(&Answer { error: told }).expect("strings and a number have a JSON form")
    } else {
        let [what, why, next] = [&told.what, &told.why, &told.next].map(|line| shown(line, Ends::OfNothing));
        format!("tidegate: error: {what}\n  why: {why}\n  next: {next}")
    };
    // A closed stderr leaves nowhere to report to; the exit code still tells.
    let _ = writeln!(io::stderr().lock(), "{text}");
    told.exit
}
