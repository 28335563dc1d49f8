//! How a thread waits for a client's next request: busy polling, and request coalescing.

pub mod busy_poll;
pub mod coalesce;
pub mod trial;
