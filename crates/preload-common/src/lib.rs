//! What preloaded libraries share: the next definitions of the functions that they take over, and a
//! lock that signal handlers survive.
//!
//! The laws of the unsafe code are at the head of each file.

pub mod lock;
pub mod next;
