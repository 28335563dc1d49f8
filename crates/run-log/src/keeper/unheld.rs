//! Why files are not held: what a user asks whose program is no faster.

use super::{Keeper, Tally, count, lock};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_media::Region;

/// How often programs asked for a file in vain.
#[derive(Default)]
pub(super) struct Refusals {
    denied: AtomicU64,
    unfit: AtomicU64,
    full: AtomicU64,
}

/// Why one was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It lies below no root, or is denied.
    Denied,
    /// It cannot be found again by its name, or is too large.
    Unfit,
    /// The run has held as many files as it can.
    Full,
}

/// The same for whoever asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Unheld {
    /// Files that are written past the library, or in ways that it does not follow.
    pub abandoned: u64,
    /// Requests for files below no root, and for those that are denied,
    pub denied: u64,
    /// for files that cannot be found again by their names, or are too large,
    pub unfit: u64,
    /// and for more files than a run can hold.
    pub full: u64,
}

impl Unheld {
    /// Whether there is nothing to tell.
    pub fn is_nothing(&self) -> bool {
        *self == Unheld::default()
    }
}

impl fmt::Display for Unheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = [
            (
                self.abandoned,
                "anywhere that were written through streams, mappings or standard output, or past the library",
            ),
            (self.denied, "below no root, or denied"),
            (self.unfit, "without a name to find them by, or too large"),
            (self.full, "more than a run can hold"),
        ];
        let told: Vec<_> =
            reasons.iter().filter(|(number, _)| *number > 0).map(|(number, why)| format!("{number} {why}")).collect();
        f.write_str(&told.join("; "))
    }
}

impl<R: Region> Keeper<R> {
    /// Counts that a file was refused.
    pub(super) fn refuse<T>(&self, why: Refusal) -> Option<T> {
        let Tally { refusals: Refusals { denied, unfit, full }, .. } = &self.tally;
        let counter = match why {
            Refusal::Denied => denied,
            Refusal::Unfit => unfit,
            Refusal::Full => full,
        };
        if counter.fetch_add(1, Ordering::Relaxed) == 0 && why == Refusal::Full {
            tracing::warn!(
                "this run has held as many files as it can: syncs of others end in the kernel until it is started anew"
            );
        }
        None
    }

    /// What was not held, and why.
    pub(super) fn unheld(&self) -> Unheld {
        let Refusals { denied, unfit, full } = &self.tally.refusals;
        let abandoned = lock(&self.state).abandoned.count();
        Unheld { abandoned, denied: count(denied), unfit: count(unfit), full: count(full) }
    }
}
