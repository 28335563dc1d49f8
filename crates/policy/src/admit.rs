//! Which blocks enter a cache: read admission of the disk cache, and bypass of the write cache.

pub mod bypass;
mod reads;

pub use reads::{Admit, Doorkeeper, Sequential, UnknownAdmit};
