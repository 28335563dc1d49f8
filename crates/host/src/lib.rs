//! What services ask of the machine they run on, and how they write sizes and paths for people.
//!
//! A service is a program's long-lived part: a server of volumes, or the supervisor of programs. Services are
//! siblings that do not know each other; this crate has what all of them need of the operating system.
//!
//! [`default_paths`] says where a user's files are, [`owned`] whose a file is, [`unlocked`] waits for a lock,
//! [`processes`] finds running services, [`rlimits`] raises the limits of this one, [`progress`] tells how far
//! a drain has come. [`units`], [`shell`] and [`json_path`] are the notations of sizes and paths.

#![forbid(unsafe_code)]

pub mod default_paths;
mod doing;
pub mod json_path;
pub mod owned;
pub mod processes;
pub mod progress;
pub mod rlimits;
pub mod shell;
pub mod units;
pub mod unlocked;

pub use doing::Doing;
