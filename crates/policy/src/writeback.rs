//! When dirty blocks leave a cache, and who waits for that: destaging, drain backoff, the backlog
//! limit and shares of programs.

pub mod backlog;
pub mod backoff;
pub mod destage;
pub mod shares;
