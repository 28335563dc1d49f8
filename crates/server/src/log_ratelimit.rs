//! Log lines that a flood of one event cannot multiply: the first at once, then one in some seconds
//! that counts the others.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Seconds between two lines about the same.
const SECONDS: u64 = 10;

/// Decides which lines of one kind are written.
#[derive(Debug, Default)]
pub(crate) struct LogRatelimit(Mutex<Suppression>);

/// Lines of one kind: when the last one was written, and how many were suppressed since.
#[derive(Debug, Default)]
struct Suppression {
    last: Option<Instant>,
    suppressed: u64,
}

/// How many lines were suppressed since the last one; shown behind the line, and not at all when
/// there were none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Suppressed(u64);

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(f, " (and {more} more since the last such line)"),
        }
    }
}

impl LogRatelimit {
    /// Whether to write a line now, and what to add to it.
    pub(crate) fn ask(&self) -> Option<Suppressed> {
        self.ask_at(Instant::now())
    }

    fn ask_at(&self, now: Instant) -> Option<Suppressed> {
        let mut state = self.0.lock().expect("nothing that holds this lock panics");
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < Duration::from_secs(SECONDS)) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(Suppressed(std::mem::take(&mut state.suppressed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_and_then_a_count() {
        let (sparing, start) = (LogRatelimit::default(), Instant::now());
        let at =
            |seconds| sparing.ask_at(start + Duration::from_secs(seconds)).map(|suppressed| suppressed.to_string());
        assert_eq!(at(0).as_deref(), Some(""));
        assert_eq!((at(1), at(9)), (None, None));
        assert_eq!(at(10).as_deref(), Some(" (and 2 more since the last such line)"));
        assert_eq!(at(30).as_deref(), Some(""));
    }
}
