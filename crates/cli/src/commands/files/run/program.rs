//! The program of a run: its environment, its signals, its end.

use crate::errors::{Failure, ProgramFailure};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use tidegate_host::threads::SignalsHandedOn;

/// The name of the direct path's library.
const LIBRARY: &str = "libtidegate_direct.so";
/// Where packages put it, seen from this program's folder.
const INSTALLED: &str = "../lib/tidegate";
/// What the loader reads.
const PRELOAD: &str = "LD_PRELOAD";
/// What the library reads.
const DIRECT: &str = "TIDEGATE_DIRECT";

/// The direct path's library, beside this program or where packages put it.
pub(super) fn library() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(Failure::system("asking where this program is"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join(INSTALLED).join(LIBRARY)];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => place.canonicalize().map_err(Failure::system("finding the library")),
        None => Err(ProgramFailure::NoLibrary { places: places.to_vec() }.into()),
    }
}

/// A program to run.
pub(super) struct Program<'a> {
    /// The program and its arguments.
    pub(super) words: &'a [OsString],
    /// Its current directory: entered anew, so that a mount which covers it now is what it sees.
    pub(super) directory: &'a Path,
    /// The direct path's library, if it is to be loaded.
    pub(super) library: Option<&'a Path>,
}

impl Program<'_> {
    /// Runs it to its end. Returns its exit code, or 128 and the signal that ended it.
    pub(super) fn run(&self, signals: &SignalsHandedOn) -> Result<ExitCode, Failure> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(ExitCode::SUCCESS) };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory);
        if let Some(library) = self.library {
            command.env(PRELOAD, before_others(library, std::env::var_os(PRELOAD))).env(DIRECT, "1");
        }
        let started = command.spawn();
        let mut child = started.map_err(|error| ProgramFailure::NotStarted { program: program.clone(), error })?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(program) => signals.program_runs(program),
            Err(errno) => tracing::warn!("signals are not handed on to the program: {errno}"),
        }
        let status = child.wait().map_err(Failure::system("waiting for the program"))?;
        Ok(ExitCode::from(exit_code(status)))
    }
}

/// The libraries that the loader is to load: `library` before `others`.
fn before_others(library: &Path, others: Option<OsString>) -> OsString {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    preload
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_loaded_before_others() {
        let library = Path::new("/lib/a.so");
        assert_eq!(before_others(library, None), "/lib/a.so");
        assert_eq!(before_others(library, Some(OsString::new())), "/lib/a.so");
        assert_eq!(before_others(library, Some("b.so".into())), "/lib/a.so:b.so");
    }

    #[test]
    fn exit_codes_are_the_programs_or_128_and_the_signal() {
        assert_eq!([0, 7 << 8, 9].map(|raw| exit_code(ExitStatus::from_raw(raw))), [0, 7, 137]);
    }
}
