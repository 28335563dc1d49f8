//! Questions to the kernel that a file system may leave without an answer: a mount whose server
//! hangs would make the one that asks wait for ever.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// For how long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What `ask` gives. `None`: it gave nothing in [`PATIENCE`], and its thread is left behind until
/// this process ends.
pub(crate) fn in_time<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (give, answer) = mpsc::channel();
    // A receiver that gave up reads no answer.
    let asked = thread::Builder::new().spawn(move || _ = give.send(ask()));
    asked.ok()?;
    answer.recv_timeout(PATIENCE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_given_and_a_silent_question_is_given_up() {
        assert_eq!(in_time(|| 7), Some(7));
        let (_never, silent) = mpsc::channel::<()>();
        assert_eq!(in_time(move || silent.recv().is_ok()), None);
    }
}
