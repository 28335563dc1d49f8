//! Signals that this process gets in place of a program that it runs, and hands on.
//!
//! A signal that comes before the program runs waits for it. One that comes after its end ends this
//! process.

use rustix::fd::OwnedFd;
use rustix::process::{Signal, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Signals that are handed on to the program.
const HANDED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
/// Those that end this process when the program has ended.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Where the program stands: what becomes of a signal.
#[derive(Debug)]
enum ProgramStage {
    /// The program is not there yet, and gets what comes.
    Begins(Vec<i32>),
    /// The program runs.
    Runs(OwnedFd),
    /// It has ended: a signal ends this process, with these words.
    Ends(String),
}

/// The signals that this process gets in place of a program that it runs.
#[derive(Debug)]
pub struct SignalsHandedOn {
    stage: Arc<Mutex<ProgramStage>>,
}

impl SignalsHandedOn {
    /// Catches the signals from now on. `interrupted` is called with the words of
    /// [`SignalsHandedOn::end_process_from_now_on`], and ends this process.
    pub fn caught(interrupted: impl Fn(&str) + Send + 'static) -> io::Result<SignalsHandedOn> {
        let mut signals = Signals::new(signals_handed_on())?;
        let stage = Arc::new(Mutex::new(ProgramStage::Begins(Vec::new())));
        let of_thread = Arc::clone(&stage);
        let hand_on = move || signals.forever().for_each(|signal| came(signal, &mut locked(&of_thread), &interrupted));
        thread::Builder::new().name("signals".to_owned()).spawn(hand_on)?;
        Ok(SignalsHandedOn { stage })
    }

    /// The program runs, and gets the signals that came until now.
    pub fn program_runs(&self, program: OwnedFd) {
        let mut stage = locked(&self.stage);
        if let ProgramStage::Begins(signals) = &*stage {
            signals.iter().for_each(|signal| send(*signal, &program));
        }
        *stage = ProgramStage::Runs(program);
    }

    /// Has a signal end this process from now on, which then says `words`.
    pub fn end_process_from_now_on(&self, words: &str) {
        *locked(&self.stage) = ProgramStage::Ends(words.to_owned());
    }
}

fn locked(stage: &Mutex<ProgramStage>) -> MutexGuard<'_, ProgramStage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

fn came(signal: i32, stage: &mut ProgramStage, interrupted: impl Fn(&str)) {
    match stage {
        ProgramStage::Begins(signals) => signals.push(signal),
        // A terminal sends these to the program too.
        ProgramStage::Runs(_) if [SIGINT, SIGQUIT, SIGWINCH].contains(&signal) && io::stdin().is_terminal() => {}
        ProgramStage::Runs(program) => send(signal, program),
        ProgramStage::Ends(words) if ENDING.contains(&signal) => interrupted(words),
        ProgramStage::Ends(_) => {}
    }
}

fn send(signal: i32, program: &OwnedFd) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // It may have ended just now.
        let _ = pidfd_send_signal(program, signal);
    }
}

/// The signals that are handed on to a program. A signal that is ignored here (by nohup, or a shell
/// without job control) stays so in the program.
fn signals_handed_on() -> impl Iterator<Item = i32> {
    HANDED_ON.into_iter().filter(|signal| !is_ignored(*signal))
}

/// Whether this process ignores `signal`.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored_in(&status));
    ignored & bit(signal) != 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernels_mask() {
        let mask = ignored_in("Name:\tnohup\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0\n");
        assert_eq!([SIGHUP, SIGINT, SIGTERM].map(|signal| mask & bit(signal) != 0), [true, false, false]);
        assert_eq!(ignored_in(""), 0);
    }
}
