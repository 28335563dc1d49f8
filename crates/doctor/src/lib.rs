//! `tidegate doctor`: what a machine, or a database's directory, is like for Tidegate, as findings
//! with their reasons and fixes; and the files that a configuration of `serve` or `mount` names.
//!
//! Nothing is changed, and no file is opened for writing. [`examine_machine`] looks at the kernel,
//! its limits, memory, and Tidegate's own mounts and services; [`examine_database`] finds out which
//! database a directory belongs to, where that lies, and what its settings mean there. Both give an
//! [`Examination`] of findings. The kernel's files are read through a view from a root folder, so
//! that tests make machines of files.
//!
//! For `tidegate config check`, [`read_all`] has a parser find all mistakes of a text,
//! [`server_files`] and [`mount_files`] find those that only the file system shows, and a
//! [`CheckedConfig`] says what a configuration without mistakes has in it.
//!
//! A finding about durability says no more than `docs/guarantees.md` and the guide's table of
//! mounts do. What is not known is said to be unknown.

#![forbid(unsafe_code)]

mod answers;
mod block_devices;
mod checked_config;
mod config_files;
mod config_text;
mod database;
mod failure;
mod finding;
mod host;
mod machine_view;
mod place;
mod served_devices;

pub use checked_config::{CheckedConfig, ConfigReader};
pub use config_files::{FileMistake, MountPlaces, mount_files, server_files};
pub use config_text::{RefusedAt, read_all};
pub use database::examine_database;
pub use failure::DoctorFailure;
pub use finding::Examination;
pub use host::examine_machine;
