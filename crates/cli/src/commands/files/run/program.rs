//! The program of a run: its environment, its signals, its end.

use crate::errors::{Failure, ProgramFailure};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tidegate_access_trace::Recording;
use tidegate_file_wire::{CONTEXTS, DIRECT, FRAMES, READ_CACHE, TRACE, UPGRADE_MAPPINGS, contexts_said, variable};
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
    /// Where accesses are recorded, if they are.
    pub(super) recording: Option<&'a Recording>,
    /// Frames of a program context, if they were asked for.
    pub(super) context_frames: Option<u32>,
    /// Most bytes of DRAM for what each process reads, if that was said.
    pub(super) read_cache: Option<u64>,
    /// Whether mappings of the kernel's pages are upgraded.
    pub(super) upgrade_mappings: bool,
}

impl Program<'_> {
    /// Runs it to its end; `boards` are where it says its contexts. Returns its exit code, or 128
    /// and the signal that ended it.
    pub(super) fn run(&self, signals: &SignalsHandedOn, boards: &[PathBuf]) -> Result<ExitCode, Failure> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(ExitCode::SUCCESS) };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory);
        if let Some(library) = self.library {
            command.env(PRELOAD, preloading(library, std::env::var_os(PRELOAD))).env(variable(DIRECT), "1");
            command.env(variable(CONTEXTS), contexts_said(self.context_frames.unwrap_or(FRAMES), boards));
        }
        if let Some(bytes) = self.read_cache.filter(|_| self.library.is_some()) {
            command.env(variable(READ_CACHE), bytes.to_string());
        }
        if self.upgrade_mappings && self.library.is_some() {
            command.env(variable(UPGRADE_MAPPINGS), "1");
        }
        if let Some(recording) = self.recording {
            recording.is_heard_by(boards).map_err(ProgramFailure::NoTrace)?;
            command.env(variable(TRACE), recording.records());
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
