//! The terminal while the screen is shown: as the screen needs it, and afterwards as it was,
//! however the screen ends.

use crate::screen::keys::Keyboard;
use crossterm::cursor::Show;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{execute, queue};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals after which the screen ends, and the terminal is as before.
const ENDING: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Why there is no screen.
#[derive(Debug, thiserror::Error)]
pub enum TopFailure {
    /// Standard output is no terminal, or one that cannot move its cursor.
    #[error("there is no terminal to show a screen on")]
    NoTerminal {
        /// What is there instead.
        why: &'static str,
    },
    /// The terminal or the system refuses.
    #[error("the screen cannot be shown")]
    Terminal(#[source] io::Error),
    /// A part of the program broke. Its words stand on stderr.
    #[error("a thread of `tidegate top` ended unexpectedly")]
    Broken,
}

/// A terminal that shows the screen. Dropped, it is as before.
pub(crate) struct ShownTerminal {
    /// Where the screen is drawn. Its own end would write to stderr that the terminal is gone, and
    /// panic where that is gone too; `restore` does what it is for.
    pub(crate) terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// The keys.
    pub(crate) keyboard: Keyboard,
    ended: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
}

impl ShownTerminal {
    /// Takes the terminal at standard output.
    pub(crate) fn take() -> Result<ShownTerminal, TopFailure> {
        refuse(io::stdout().is_terminal(), std::env::var_os("TERM").as_deref())?;
        let (ended, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for signal in ENDING {
            signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(TopFailure::Terminal)?;
        }
        restore_before_a_panic_is_told(Arc::clone(&broken), restore);
        let keyboard = Keyboard::open().map_err(TopFailure::Terminal)?;
        let shown = || {
            enable_raw_mode()?;
            execute!(io::stdout(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(io::stdout())).map(ManuallyDrop::new)
        };
        let terminal = shown().map_err(|error| {
            restore();
            TopFailure::Terminal(error)
        })?;
        Ok(ShownTerminal { terminal, keyboard, ended, broken })
    }

    /// Whether a signal has come that ends the screen.
    pub(crate) fn is_ended(&self) -> bool {
        // Relaxed: nothing else is told by it.
        self.ended.load(Ordering::Relaxed)
    }

    /// Whether a thread has panicked, which has restored the terminal.
    pub(crate) fn is_broken(&self) -> bool {
        // Relaxed: nothing else is told by it.
        self.broken.load(Ordering::Relaxed)
    }
}

impl Drop for ShownTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Refuses standard output that is no terminal, or one of the kind that `TERM` says.
fn refuse(is_terminal: bool, term: Option<&OsStr>) -> Result<(), TopFailure> {
    match term {
        _ if !is_terminal => Err(TopFailure::NoTerminal { why: "standard output is a file or a pipe" }),
        Some(term) if term == "dumb" => Err(TopFailure::NoTerminal { why: "TERM says that it is dumb" }),
        _ => Ok(()),
    }
}

/// Makes the terminal as it was. A terminal that is gone needs nothing.
fn restore() {
    let _ = queue!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = io::Write::flush(&mut io::stdout());
    let _ = disable_raw_mode();
}

/// Has `restore` called before the words of a panic are written, which would be lost on the screen.
fn restore_before_a_panic_is_told(broken: Arc<AtomicBool>, restore: impl Fn() + Send + Sync + 'static) {
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        broken.store(true, Ordering::Relaxed);
        restore();
        former(panicked);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_no_terminal_is_refused_with_the_reason() {
        let refused = |is_terminal, term: Option<&str>| refuse(is_terminal, term.map(OsStr::new)).is_err();
        assert!(refused(false, Some("xterm")) && refused(true, Some("dumb")));
        assert!(!refused(true, Some("xterm")) && !refused(true, None));
    }

    #[test]
    fn a_panic_on_any_thread_restores_the_terminal_first() {
        let (restored, hear) = channel();
        let broken = Arc::new(AtomicBool::new(false));
        let restored = std::sync::Mutex::new(restored);
        restore_before_a_panic_is_told(Arc::clone(&broken), move || {
            // Other tests may panic later, when this one is gone.
            let _ = restored.lock().map(|restored| restored.send(()));
        });
        std::thread::spawn(|| panic!("as the test wants")).join().expect_err("it panics");
        hear.recv().expect("it was restored");
        assert!(broken.load(Ordering::Relaxed));
    }
}
