//! A server of volumes, as a library: the volumes, the sockets at which clients find them, and how
//! the server is watched, controlled and ended.
//!
//! [`options`] are the options of a server. [`volume`] makes, opens and describes volumes;
//! [`cached_disk`] has those that are a cache in front of a disk. [`sockets`] listens for clients
//! and serves each on a thread, by the protocol of one of the [`fronts`]. [`control`] answers the
//! clients that watch and change the running server, and asks one; [`stats`] has the metrics.
//! [`signals`] and [`shutdown`] end it in good order. [`log_ratelimit`] limits log
//! lines.
//!
//! Every failure is a value of [`failure`] with its facts; the user of this library words it.

#![forbid(unsafe_code)]

pub mod cached_disk;
pub mod control;
pub mod failure;
pub mod fronts;
pub mod log_ratelimit;
pub mod options;
pub mod shutdown;
pub mod signals;
pub mod sockets;
pub mod stats;
pub mod volume;
