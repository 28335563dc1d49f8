//! Engines with a planted mistake: how a campaign shows that it saw one.

use crate::checker::Failure;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a campaign over an engine with a planted mistake shows it: by a failure, or by an assertion
/// of the engine's own.
pub fn shown_by<T>(campaign: impl FnOnce() -> Result<T, Failure>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(campaign)) {
        Ok(judged) => judged.map_err(|failure| failure.to_string()),
        Err(_) => Err("an assertion of the engine".to_owned()),
    }
}
