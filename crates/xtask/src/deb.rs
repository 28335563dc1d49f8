//! A Debian package of the program: its manual pages and completions are printed by the program
//! itself, and packed with it.

use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Shells, and the package that is to know their scripts.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
const PACKAGE: &str = "tidegate-cli";
/// What the program loads under others, and what SQLite loads.
const LIBRARIES: [&str; 2] = ["tidegate-direct-preload", "tidegate-sqlite-vfs"];

/// Builds the package; `cargo deb` prints where it is.
pub(crate) fn package() -> Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = [PACKAGE].into_iter().chain(LIBRARIES).flat_map(|package| ["--package", package]);
    run(Command::new(&cargo).args(["build", "--release"]).args(packages))?;
    let release = target().join("release");
    write_documents(&release).context("cannot write manual pages and completions")?;
    let packed = run(Command::new(&cargo).args(["deb", "--package", PACKAGE, "--no-build"]));
    packed.context("`cargo deb` is needed: cargo install cargo-deb")?;
    Ok(ExitCode::SUCCESS)
}

/// Puts what the program says about itself beside the program.
fn write_documents(release: &Path) -> Result<()> {
    let program = release.join("tidegate");
    run(Command::new(&program).args(["man", "--out"]).arg(release.join("manual")))?;
    let scripts = release.join("completions");
    fs::create_dir_all(&scripts)?;
    for shell in SHELLS {
        let script = Command::new(&program).args(["completions", shell]).output()?;
        ensure!(script.status.success(), "no completions for {shell}");
        fs::write(scripts.join(format!("tidegate.{shell}")), script.stdout)?;
    }
    Ok(())
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace::root().join("target"), PathBuf::from)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.current_dir(workspace::root()).status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
