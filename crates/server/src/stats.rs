//! Statistics of a server: metrics of its layers, latencies of its requests, and how both are told.

pub(crate) mod history;
pub(crate) mod http;
pub mod latency;
mod page;
pub mod prometheus;
mod region;
pub mod registry;
pub mod snapshot;
pub(crate) mod terms;
