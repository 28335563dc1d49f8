//! Waiting for what nothing announces: it is looked at again and again, until a deadline.

use std::time::{Duration, Instant};

/// How long anything may take: many times what it needs, as a machine may be busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Waits for a condition. Returns whether it came within ten minutes.
pub fn comes_true(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    true
}

/// Waits until an attempt succeeds. Fails with its last failure if none has within ten minutes.
pub fn succeeds<T>(what: &str, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut last = None;
    let has_succeeded = |attempted: &Option<anyhow::Result<T>>| attempted.as_ref().is_some_and(Result::is_ok);
    comes_true(|| {
        last = Some(attempt());
        has_succeeded(&last)
    });
    let attempted = last.unwrap_or_else(|| Err(anyhow::anyhow!("it was never tried")));
    attempted.map_err(|error| error.context(format!("still waiting for {what} after {PATIENCE:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_that_succeeds_is_the_last() {
        let mut attempts = 0;
        let third = succeeds("the third", || {
            attempts += 1;
            anyhow::ensure!(attempts == 3, "not yet");
            Ok(attempts)
        });
        assert_eq!((third.ok(), attempts), (Some(3), 3));
    }
}
