//! What every checker of images shares: how it fails, and which images it has seen.

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;

/// Why an image is not what a power cut may leave.
#[derive(Clone, Debug)]
pub struct Failure {
    what: String,
    /// Where it happened, innermost first.
    trail: Vec<String>,
}

impl Failure {
    pub(crate) fn new(what: impl fmt::Display) -> Failure {
        Failure { what: what.to_string(), trail: Vec::new() }
    }

    pub(crate) fn within(mut self, place: impl fmt::Display) -> Failure {
        self.trail.push(place.to_string());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        self.trail.iter().try_for_each(|place| write!(f, "\n  in {place}"))
    }
}

/// Images judged already, with what was allowed. Shared by campaigns that run at once.
pub struct Seen {
    shards: Vec<Mutex<HashSet<u64>>>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { shards: (0..64).map(|_| Mutex::default()).collect() }
    }
}

impl Seen {
    /// Whether `key` is new.
    pub(crate) fn insert(&self, key: u64) -> bool {
        let shard = usize::try_from(key >> 58).expect("six bits");
        self.shards[shard].lock().expect("no insertion panics").insert(key)
    }
}
