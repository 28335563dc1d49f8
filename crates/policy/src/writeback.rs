//! When dirty blocks leave a cache: destaging, drain backoff and the backlog limit.

pub mod backlog;
pub mod backoff;
pub mod destage;
