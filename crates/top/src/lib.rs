//! `tidegate top`: every volume, disk cache and mount of this user on one screen, or in one table.
//!
//! `sources` finds the servers and mounts that run and asks each; `polling` does so on a thread for
//! each, so that one that does not answer leaves the others live. `samples` has an answer in the
//! terms of the table, `rates` the `figure`s of what happened between two of them, `rows` the lines
//! of the table, `columns` their texts by `notation`, and `order` their order. `once` gives the
//! table as an answer; `screen` shows it on a terminal. Both have their `options`.
//!
//! `mounts_port` asks mounts whenever Prometheus asks at a port, and `mount_metrics` has their
//! numbers as metrics.

#![forbid(unsafe_code)]

mod columns;
mod figure;
mod mount_metrics;
mod mounts_port;
mod notation;
mod once;
mod options;
mod order;
mod polling;
mod rates;
mod rows;
mod samples;
mod screen;
mod sources;

pub use mount_metrics::{AskedMount, text as mount_metrics};
pub use mounts_port::MountsPort;
pub use once::{Overview, look};
pub use options::TopOptions;
pub use order::{SortKey, UnknownKey};
pub use screen::terminal::TopFailure;
pub use screen::watch;
