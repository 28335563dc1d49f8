//! Whole-stack tests, and their base: the real Linux driver in a guest, PMDK's own library and
//! checker, images that Linux made, real clients over a served volume, real programs on the files
//! of mounts.
//!
//! A trial that cannot have its peer fails and names the package to install; it never passes
//! without.
#![forbid(unsafe_code)]

pub mod acts;
pub mod applications;
pub mod artefacts;
pub mod browser;
pub mod chroot;
pub mod cluster_writers;
pub mod databases;
pub mod direct;
pub mod fio;
pub mod flips;
pub mod golden;
pub mod guest;
pub mod killed_machine;
pub mod killed_mount;
pub mod mapper;
pub mod mount_folders;
pub mod mounted;
pub mod namespace;
pub mod pmdk;
pub mod postgres;
pub mod programs;
pub mod scraped;
pub mod sectors;
pub mod served;
pub mod suites;
pub mod surgery;
