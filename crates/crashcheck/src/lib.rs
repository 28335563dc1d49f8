//! Power cuts and kills under the engines, enumerated: one framework, and an instance of it for
//! each engine.
//!
//! An instance is a small device on simulated memory, the steps that a *script* may take
//! ([`script`]), a *checker* for everything that a cut inside the script's last step may leave
//! ([`checker`], [`cuts`]), and *mutants*: the engine with one mistake in it, which the checker
//! must notice ([`mutants`]). Scripts are dealt out to two threads.
//!
//! The instances: the block translation table ([`btt`]), the write cache over it ([`write_cache`]),
//! the disk cache ([`disk_cache`]), both on a
//! mirror ([`mirror`]), the append-only log ([`append_log`]), the file cache ([`file_cache`]), its
//! log of names ([`namespace`]), and both of these together under protocols of applications
//! ([`applications`]).
//! The crate depends on the engines and the simulator alone, so that a build of it for virtual
//! cores or for a checker of schedules is a small one. Such builds leave out instances that have
//! no test there.

#![forbid(unsafe_code)]

#[cfg(not(virtual_cores))]
pub mod append_log;
#[cfg(not(any(shuttle, virtual_cores)))]
pub mod applications;
pub mod btt;
pub mod checker;
pub mod cuts;
pub mod disk_cache;
pub mod file_cache;
#[cfg(not(any(shuttle, virtual_cores)))]
pub mod mirror;
pub mod mutants;
#[cfg(not(any(shuttle, virtual_cores)))]
pub mod namespace;
mod parallel;
pub mod script;
pub mod write_cache;

/// Whether a campaign is to have its long form: `TIDEGATE_SCRIPTS` is set.
pub fn is_long() -> bool {
    std::env::var_os("TIDEGATE_SCRIPTS").is_some()
}

/// Writes a line past the test harness's capture, so that it stands in the log of a run that
/// passed.
pub fn announce(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}
