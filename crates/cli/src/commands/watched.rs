//! Answers that repeat every second: what their counts count from, and how fast these grow.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Between two answers.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// What everything is counted from that an answer counts.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Since {
    /// The start of the server or the mount.
    Start,
    /// The answer before.
    Last,
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Since::Start => "since its start",
            Since::Last => "since the last answer",
        })
    }
}

/// By how much a count that grew by `number` in `seconds` grew in each; 0, if no time has passed.
pub(crate) fn per_second(number: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { number / seconds } else { 0.0 }
}
