//! A running server of volumes as its operator has it.
//!
//! [`uris`] are the places where clients find the volumes, with the commands that attach them. A
//! [`Running`] server follows another plan as far as it can without a restart; [`differences`] are
//! the keys of its configuration that this is about.

#![forbid(unsafe_code)]

mod reload;
pub mod uris;

pub use reload::{Difference, Reloaded, Running, TakesEffect, differences, terms};
