//! The program of a run: its environment, its signals, its end.

use crate::errors::{Exit, Failure, ProgramFailure};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The name of the direct path's library.
const LIBRARY: &str = "libtidegate_direct.so";
/// Where packages put it, seen from this program's folder.
const INSTALLED: &str = "../lib/tidegate";
/// What the loader reads.
const PRELOAD: &str = "LD_PRELOAD";
/// What the library reads.
const DIRECT: &str = "TIDEGATE_DIRECT";

/// Signals that are handed on to the program.
const HANDED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
/// Those that end this process when the program has ended.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

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

/// Where a run stands: what becomes of a signal.
enum Phase {
    /// The program is not there yet, and gets what comes.
    Begins(Vec<i32>),
    /// The program runs.
    Runs(OwnedFd),
    /// It has ended: a signal ends this process, with these words.
    Ends(String),
}

/// The signals that this process gets in place of the program.
pub(super) struct Signalled {
    phase: Arc<Mutex<Phase>>,
}

impl Signalled {
    /// Catches the signals from now on.
    pub(super) fn caught() -> Result<Signalled, Failure> {
        let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored_in(&status));
        // What is ignored here (by nohup, or a shell without job control) stays so in the program.
        let signals = Signals::new(HANDED_ON.into_iter().filter(|signal| ignored & bit(*signal) == 0));
        let mut signals = signals.map_err(Failure::system("listening to signals"))?;
        let phase = Arc::new(Mutex::new(Phase::Begins(Vec::new())));
        let of_thread = Arc::clone(&phase);
        let hand_on = move || signals.forever().for_each(|signal| came(signal, &mut locked(&of_thread)));
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(hand_on);
        thread.map_err(Failure::system("starting a thread"))?;
        Ok(Signalled { phase })
    }

    fn program_runs(&self, program: OwnedFd) {
        let mut phase = locked(&self.phase);
        if let Phase::Begins(signals) = &*phase {
            signals.iter().for_each(|signal| send(*signal, &program));
        }
        *phase = Phase::Runs(program);
    }

    /// From now on a signal ends this process, which then says `words`.
    pub(super) fn end_process_from_now_on(&self, words: &str) {
        *locked(&self.phase) = Phase::Ends(words.to_owned());
    }
}

fn locked(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

fn came(signal: i32, phase: &mut Phase) {
    match phase {
        Phase::Begins(signals) => signals.push(signal),
        // A terminal sends these to the program too.
        Phase::Runs(_) if [SIGINT, SIGQUIT, SIGWINCH].contains(&signal) && io::stdin().is_terminal() => {}
        Phase::Runs(program) => send(signal, program),
        Phase::Ends(words) if ENDING.contains(&signal) => {
            tracing::warn!("{words}");
            std::process::exit(Exit::Interrupted as i32);
        }
        Phase::Ends(_) => {}
    }
}

fn send(signal: i32, program: &OwnedFd) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // It may have ended just now.
        let _ = pidfd_send_signal(program, signal);
    }
}

/// The place of a signal in the kernel's masks.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The mask of ignored signals in what the kernel tells of a process.
fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
    pub(super) fn run(&self, signalled: &Signalled) -> Result<ExitCode, Failure> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(ExitCode::SUCCESS) };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory);
        if let Some(library) = self.library {
            command.env(PRELOAD, before_others(library, std::env::var_os(PRELOAD))).env(DIRECT, "1");
        }
        let started = command.spawn();
        let mut child = started.map_err(|error| ProgramFailure::NotStarted { program: program.clone(), error })?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(program) => signalled.program_runs(program),
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
    fn ignored_signals_are_read_from_the_kernels_mask() {
        let mask = ignored_in("Name:\tnohup\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0\n");
        assert_eq!([SIGHUP, SIGINT, SIGTERM].map(|signal| mask & bit(signal) != 0), [true, false, false]);
        assert_eq!(ignored_in(""), 0);
    }

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
