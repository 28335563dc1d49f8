//! Services and the machine they run on: its files, users, processes and limits, and the notation
//! of sizes and paths.
//!
//! A service is a program's long-lived part: a server of volumes, or the supervisor of programs.
//! Services are siblings that do not know each other; this crate has their common questions to the
//! operating system.
//!
//! [`default_paths`] says where a user's files are, [`owned`] whose a file is, [`unlocked`] waits
//! for a lock, [`files`] tells what is mounted, used and may be lost, [`threads`] has a thread that
//! does something a few times a second, and threads side by side, [`processes`] finds running
//! services and [`asking`] connects to them, [`rlimits`] raises the limits of this one,
//! [`progress`] tells how far a drain is, and [`sd_notify`] tells systemd how a service does.
//! [`units`], [`shell`], [`json_path`] and [`columns`] are the notations of sizes, paths and
//! answers; [`plain`] shows pages on a terminal, and [`spelling`] finds the word that was meant.

#![forbid(unsafe_code)]

pub mod asking;
pub mod default_paths;
mod doing;
pub mod files;
pub mod kernel_version;
mod notations;
pub mod owned;
pub mod processes;
pub mod progress;
pub mod rlimits;
pub mod sd_notify;
pub mod threads;
pub mod unlocked;

pub use doing::Doing;
pub use notations::{columns, json_path, plain, shell, spelling, units};
