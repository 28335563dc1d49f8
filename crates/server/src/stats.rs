//! Statistics of a server: metrics of its layers, and latencies of its requests.

pub mod latency;
pub mod registry;
