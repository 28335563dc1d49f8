//! Questions that a file system may leave without an answer: a mount whose server hangs makes those
//! that ask wait for ever.
//!
//! A server that has taken a request and gives no answer keeps even a killed thread waiting, and a
//! process does not end before its threads. So a program of its own asks: `stat -f`, which the
//! kernel hands on each time, whatever it has of the files. If it hangs, it is left behind, and
//! ends with the server.

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tidegate_host::default_paths::is_same_file;

/// For how long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a file system answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceAnswer {
    /// An answer, be it a refusal; or there is no program to ask by.
    Given,
    /// Its server is gone: `ENOTCONN`.
    Dead,
    /// Nothing in [`PATIENCE`].
    Silent,
}

/// Whether the file system that has `path` answers.
pub(crate) fn answer_of(path: &Path) -> PlaceAnswer {
    let Ok(path) = std::path::absolute(path) else { return PlaceAnswer::Given };
    let mut asks = Command::new("stat");
    asks.args(["-f", "-c", "%t"]).arg(path).env("LC_ALL", "C");
    answer_to(asks)
}

/// Whether there is something at `path`, as far as its file system answers.
pub(crate) fn is_there(path: &Path) -> bool {
    answer_of(path) == PlaceAnswer::Given && path.exists()
}

/// Whether `path` leads to `file`, which answers.
pub(crate) fn leads_to(path: &Path, file: &Path) -> bool {
    path == file || answer_of(path) == PlaceAnswer::Given && is_same_file(path, file)
}

fn answer_to(mut asks: Command) -> PlaceAnswer {
    let spawned = asks.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(child) = spawned else { return PlaceAnswer::Given };
    let pid = Pid::from_child(&child);
    match in_time(move || child.wait_with_output()) {
        None => {
            // It may end only when the server answers.
            let _ = kill_process(pid, Signal::KILL);
            PlaceAnswer::Silent
        }
        Some(Ok(output)) if String::from_utf8_lossy(&output.stderr).contains("not connected") => PlaceAnswer::Dead,
        Some(_) => PlaceAnswer::Given,
    }
}

/// What `ask` gives. `None`: it gave nothing in [`PATIENCE`]. Its thread waits until this process
/// ends, so it has to wait in a way that ends then.
fn in_time<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (give, answer) = mpsc::channel();
    // A receiver that gave up reads no answer.
    let asked = thread::Builder::new().spawn(move || _ = give.send(ask()));
    asked.ok()?;
    answer.recv_timeout(PATIENCE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_shell(script: &str) -> PlaceAnswer {
        let mut asks = Command::new("sh");
        asks.args(["-c", script]);
        answer_to(asks)
    }

    #[test]
    fn an_answer_is_given_and_a_silent_question_is_given_up() {
        assert_eq!(by_shell("true"), PlaceAnswer::Given);
        assert_eq!(by_shell("echo 'stat: Transport endpoint is not connected' >&2; exit 1"), PlaceAnswer::Dead);
        assert_eq!(by_shell("exec tail -f /dev/null"), PlaceAnswer::Silent);
    }

    #[test]
    fn places_of_this_machine_answer_and_so_do_those_that_are_not_there() {
        for path in ["/", "/proc/self", "/no such directory"] {
            assert_eq!(answer_of(Path::new(path)), PlaceAnswer::Given, "{path}");
        }
    }
}
