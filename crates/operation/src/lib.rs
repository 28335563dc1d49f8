//! A running server of volumes as its operator has it.
//!
//! [`uris`] are the places where clients find the volumes, with the commands that attach them. A
//! [`Running`] server follows another plan as far as it can without a restart; [`differences`] are
//! the keys of its configuration that this is about. [`confine`] has a process give up the system
//! calls that a server never needs.

#![forbid(unsafe_code)]

mod confine;
mod reload;
pub mod uris;

pub use confine::confine;
pub use reload::{Difference, Reloaded, Running, TakesEffect, connections_max, differences};
