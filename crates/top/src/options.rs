//! The options of `tidegate top`.

use crate::order::SortKey;
use std::time::Duration;

/// What is shown, and how often it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct TopOptions {
    /// Between two questions to a source.
    pub interval: Duration,
    /// What lines are sorted by at first.
    pub sort: SortKey,
}
