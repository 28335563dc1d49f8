//! Programs that a measurement needs: built by cargo, for virtual cores too, and run for their
//! output.

use anyhow::{Context, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `command` says, if it ends well.
pub fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("run {:?}", command.get_program()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} failed ({}): {}", command.get_program(), output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Locks a folder, which is made if need be, until the answer is dropped: several programs may want
/// to put the same things there.
pub fn alone(folder: &Path) -> std::io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// The path of `file`: built now for release into the target folder of this program, as `what`
/// says; without a cargo, the one that lies there. Where nothing is measured `TIDEGATE_BUILT` names
/// a folder in which all is built.
pub fn built(what: &[&str], file: &str) -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("TIDEGATE_BUILT") {
        return Ok(PathBuf::from(folder).join(file));
    }
    let this = std::env::current_exe()?;
    let target = this.ancestors().nth(2).context("this program lies in no target folder")?;
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet"])
        .args(what)
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .status();
    anyhow::ensure!(built.as_ref().map_or(true, |status| status.success()), "{file} does not build");
    let built = target.join("release").join(file);
    anyhow::ensure!(built.exists(), "no {}: cargo build --release {}", built.display(), what.join(" "));
    Ok(built)
}

/// What is missing where cargo cannot be run.
pub const NO_CARGO: &str = "cannot run cargo, which builds this program anew for virtual cores: install Rust (https://rustup.rs), or name it: CARGO=/path/to/cargo";

/// This program again, compiled for virtual cores in a target folder of its own.
pub fn on_virtual_cores(arguments: impl IntoIterator<Item = String>) -> Command {
    on_virtual_cores_of("tidegate-bench", "bench", arguments)
}

/// The program `bin` of a package, compiled like that.
pub fn on_virtual_cores_of(package: &str, bin: &str, arguments: impl IntoIterator<Item = String>) -> Command {
    let optimised = ["--profile", "virtual-cores"];
    let program = ["--package", package, "--bin", bin, "--"];
    let mut command = cargo_for_virtual_cores([&["run", "--quiet"], &optimised[..], &program].concat());
    command.args(arguments);
    command
}

/// Cargo with `arguments`, compiling for virtual cores. Such a build has a part of some crates, and
/// what all of their parts share. The flags are those of the program `storm` and of `xtask`: with
/// others, each would build all of it anew.
pub fn cargo_for_virtual_cores<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(root).join("target"), PathBuf::from);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    command
        .env("RUSTFLAGS", "--cfg virtual_cores -A dead_code -A unused_imports")
        .env("CARGO_TARGET_DIR", target.join("virtual-cores"));
    command
}
