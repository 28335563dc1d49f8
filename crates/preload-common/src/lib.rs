//! What preloaded libraries share: the next definitions of the functions that they take over, and a
//! lock that signal handlers survive.

pub mod lock;
pub mod next;
