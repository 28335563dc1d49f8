//! What `std::sync` offers and engines use: locks here, atomics in [`atomic`].

pub mod atomic;
mod mutex;

pub use mutex::{Mutex, MutexGuard};
