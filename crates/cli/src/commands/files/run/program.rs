//! The program of a run: its environment, its signals, its end.

use crate::errors::{Failure, ProgramFailure};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tidegate_file_wire::{BOARDS_MAX, CONTEXTS, DIRECT, FRAMES};
use tidegate_host::processes::{PRELOAD, exit_code, library_for_programs, preloading};
use tidegate_host::threads::SignalsHandedOn;

/// The name of the direct path's library.
const LIBRARY: &str = "libtidegate_direct.so";

/// The direct path's library.
pub(super) fn library() -> Result<PathBuf, Failure> {
    let found = library_for_programs(LIBRARY).map_err(Failure::system("finding the library"))?;
    found.map_err(|places| ProgramFailure::NoLibrary { places }.into())
}

/// A program to run.
pub(super) struct Program<'a> {
    /// The program and its arguments.
    pub(super) words: &'a [OsString],
    /// Its current directory: entered anew, so that a mount which covers it now is what it sees.
    pub(super) directory: &'a Path,
    /// The direct path's library, if it is to be loaded.
    pub(super) library: Option<&'a Path>,
    /// Frames of a program context, if they were asked for.
    pub(super) context_frames: Option<u32>,
}

fn name(of_variable: &CStr) -> &OsStr {
    OsStr::from_bytes(of_variable.to_bytes())
}

/// What the library hears of contexts: how many frames they have, and the boards.
fn contexts_said(frames: u32, boards: &[PathBuf]) -> OsString {
    let mut said = OsString::from(frames.to_string());
    for board in boards.iter().take(BOARDS_MAX) {
        said.push(":");
        said.push(board);
    }
    said
}

impl Program<'_> {
    /// Runs it to its end; `boards` are where it says its contexts. Returns its exit code, or 128
    /// and the signal that ended it.
    pub(super) fn run(&self, signals: &SignalsHandedOn, boards: &[PathBuf]) -> Result<ExitCode, Failure> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(ExitCode::SUCCESS) };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory);
        if let Some(library) = self.library {
            command.env(PRELOAD, preloading(library, std::env::var_os(PRELOAD))).env(name(DIRECT), "1");
            command.env(name(CONTEXTS), contexts_said(self.context_frames.unwrap_or(FRAMES), boards));
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
