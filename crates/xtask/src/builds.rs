//! Programs that this one runs: cargo first of all, and where it builds.

use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace::root().join("target"), PathBuf::from)
}

/// Cargo with `arguments`, in the workspace.
pub(crate) fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

/// Runs `command` with this program's own output, so that all of it is seen as it comes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    println!("$ {program} {}", words.join(" "));
    let status =
        command.stdin(std::process::Stdio::null()).status().with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program} {}: {status}", words.first().map_or("", String::as_str));
    Ok(())
}
