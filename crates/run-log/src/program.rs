//! The program that is run: its environment, its signals, its end.

use super::folder::Folder;
use super::journal::Journal;
use crate::failure::{Failure, RunFailure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use tidegate_host::processes::{PRELOAD, exit_code, library_for_programs, preloading};
use tidegate_host::rlimits;
use tidegate_host::threads::signals_handed_on;
use tidegate_preload_wire as wire;

/// The library's name.
const LIBRARY: &str = "libtidegate_preload.so";

/// The library, beside the program or where packages put it.
pub fn library() -> Result<PathBuf, Failure> {
    let found = library_for_programs(LIBRARY).map_err(Failure::system("finding the library"))?;
    found.map_err(|places| RunFailure::NoLibrary { places }.into())
}

/// What the program finds in its environment besides.
pub(super) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// For programs that load `library`, and find this supervisor by `folder`.
    pub(super) fn new(
        library: &Path,
        folder: &Folder,
        roots: &[PathBuf],
        journal: (&Journal, &Path),
        pool: &Path,
    ) -> Environment {
        let preload = preloading(library, std::env::var_os(PRELOAD));
        let roots: Vec<_> = roots.iter().map(|root| root.as_os_str()).collect();
        let (journal, at) = journal;
        let journal_at = std::path::absolute(at).unwrap_or_else(|_| at.to_owned());
        Environment(vec![
            (PRELOAD, preload),
            (wire::FOLDER_VARIABLE, folder.path().as_os_str().to_owned()),
            (wire::ROOTS_VARIABLE, roots.join(":".as_ref())),
            (wire::HOLDS_VARIABLE, journal_at.into_os_string()),
            (wire::SESSION_VARIABLE, journal.session().into()),
            (wire::POOL_VARIABLE, named(pool)),
        ])
    }
}

/// The pool at `path` as programs are told of it.
fn named(path: &Path) -> OsString {
    let id = path.metadata().map(|data| (data.dev(), data.ino())).unwrap_or_default();
    let mut named = OsString::from(format!("{}:{}:", id.0, id.1));
    named.push(path);
    named
}

/// Runs `words` to the end, and hands on the signals that come meanwhile. The answer is the
/// program's: its exit code, or 128 and the signal that ended it.
pub(super) fn run(words: &[OsString], environment: &Environment) -> Result<ExitCode, Failure> {
    let (program, arguments) = words.split_first().expect("the grammar demands a command");
    // Before the program starts, so that none is lost.
    let signals = Signals::new(signals_handed_on()).map_err(Failure::system("listening to signals"))?;
    let started = Command::new(program).args(arguments).envs(environment.0.iter().cloned()).spawn();
    let child = started.map_err(|error| RunFailure::NotStarted { program: program.clone(), error })?;
    // Only now, as the program has its own limit by then: each process that asks takes a descriptor
    // here, and each file that is held.
    rlimits::raise_descriptors();
    let status = wait(child, signals)?;
    Ok(ExitCode::from(exit_code(status)))
}

/// While this lives, a signal ends this process at once: the program has ended, and what waits for
/// the files' disks is in the pool, and the kernel's.
pub(super) struct Impatience {
    handle: Handle,
}

impl Impatience {
    /// From now on.
    pub(super) fn begin(pool: &Path, exit_code: i32) -> io::Result<Impatience> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
        let (handle, pool) = (signals.handle(), pool.to_owned());
        let wait = move || {
            if signals.forever().next().is_some() {
                tracing::warn!(
                    "ended before all files were written back: their synced bytes are in {}, until the next run with it, or `tidegate recover`",
                    pool.display()
                );
                std::process::exit(exit_code);
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
        Ok(Impatience { handle })
    }
}

impl Drop for Impatience {
    fn drop(&mut self) {
        self.handle.close();
    }
}

fn wait(mut child: Child, mut signals: Signals) -> Result<ExitStatus, Failure> {
    let handle = signals.handle();
    let pid = rustix::process::Pid::from_child(&child);
    let hand_on = thread::spawn(move || {
        for signal in &mut signals {
            // A terminal sends these to the program too.
            let from_terminal = [SIGINT, SIGQUIT, SIGWINCH].contains(&signal) && io::stdin().is_terminal();
            if !from_terminal && let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
                // It may have ended just now.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    });
    let status = child.wait().map_err(Failure::system("waiting for the program"));
    handle.close();
    // It ends with its signals.
    let _ = hand_on.join();
    status
}
