//! A server of volumes, as a library: its statistics, and its reports to the log and to systemd.
//!
//! [`stats`] has the metrics of each layer; [`report_seal`] tells the log of a volume's first lost
//! store; [`log_ratelimit`] limits log lines; [`sd_notify`] speaks with systemd. Volumes, fronts
//! and the control socket are still in the program, and move here.

#![forbid(unsafe_code)]

pub mod log_ratelimit;
pub mod report_seal;
pub mod sd_notify;
pub mod stats;
