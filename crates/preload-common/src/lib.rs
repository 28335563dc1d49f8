//! What preloaded libraries share: the next definitions of the functions that they take over, and a
//! lock that signal handlers survive.
//!
//! The laws of the unsafe code are at the head of each file.

pub mod lock;
pub mod next;
pub mod wiped_page;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what is done beside a call. A panic is a mistake of the library and ends the process, as it
/// would be unwound into C otherwise.
pub fn guarded<T>(act: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| std::process::abort())
}
