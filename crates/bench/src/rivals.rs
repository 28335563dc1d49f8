//! Rows against rivals: built and run as a child, because they need libraries that this program
//! does not.
//!
//! The child runs both sides itself, ours and the rival's, in turn in one process, and prints the
//! [`Outcome`].

use crate::target::Outcome;
use anyhow::Context;
use std::path::Path;
use std::process::{Command, Stdio};
use tidegate_measure::workload::Effort;

/// What brings the rivals' libraries, and the tool that finds them.
const REMEDY: &str = "apt-get install pkg-config libpmem-dev libpmemblk-dev";

/// Measures the rivals' row called `row`.
pub fn outcome(row: &str, effort: Effort) -> anyhow::Result<Outcome> {
    if !libraries_present() {
        return Ok(Outcome::missing("libpmem and libpmemblk", REMEDY));
    }
    let child = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--release", "--quiet", "--package", "tidegate-rivals", "--", row])
        .args(["--pairs", &effort.pairs.to_string(), "--steps", &effort.steps.to_string()])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        // tmpfs is no persistent memory to PMDK, and would be synced by system calls: ask for its
        // fast path.
        .env("PMEM_IS_PMEM_FORCE", "1")
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo for the rivals")?;
    anyhow::ensure!(child.status.success(), "the rivals' program failed ({})", child.status);
    serde_json::from_slice(&child.stdout).context("reading what the rivals' program printed")
}

fn libraries_present() -> bool {
    let found = Command::new("pkg-config").args(["--exists", "libpmem", "libpmemblk"]).status();
    found.is_ok_and(|status| status.success())
}
