//! SQLite with atomic groups of writes. Debian builds it without
//! `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`, so the library is compiled from its source, and Debian's
//! unchanged shell is started with it.

use crate::programs::said;
use anyhow::Context;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that has SQLite's source.
const PACKAGE: &str = "libsqlite3-sys";

/// A project that depends on nothing but the source.
const MANIFEST: &str = r#"
    [package]
    name = "source"
    edition = "2024"
    [dependencies]
    libsqlite3-sys = { version = "=0.30.1", default-features = false }
    [workspace]
"#;

/// Atomic groups, and what Debian's shell wants.
const OPTIONS: [&str; 4] =
    ["ENABLE_BATCH_ATOMIC_WRITE", "ENABLE_SESSION", "ENABLE_PREUPDATE_HOOK", "ENABLE_COLUMN_METADATA"];

/// The library's name, by which the shell finds it.
const LIBRARY: &str = "libsqlite3.so.0";

/// Has a command that starts a program with SQLite's library find the one with atomic groups, which
/// is compiled below `cache` unless it was before.
pub fn use_groups(command: &mut Command, cache: &Path) -> anyhow::Result<()> {
    command.env("LD_LIBRARY_PATH", library(cache)?);
    Ok(())
}

/// The folder of the library.
fn library(cache: &Path) -> anyhow::Result<PathBuf> {
    let folder = cache.join("sqlite-groups");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    // Several programs may want it at once.
    let alone = File::create(folder.join("lock"))?;
    alone.lock()?;
    if !folder.join(LIBRARY).exists() {
        let source = source(&folder)?;
        let fresh = folder.join("fresh");
        // Most of the time of a transaction is the kernel's: a quick compilation does.
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&fresh);
        compiler.args(OPTIONS.map(|option| format!("-DSQLITE_{option}"))).arg(source).arg("-lm");
        said(&mut compiler).context("compile SQLite: apt-get install gcc libc6-dev")?;
        fs::rename(&fresh, folder.join(LIBRARY))?;
    }
    Ok(folder)
}

/// The source, from the package registry.
fn source(folder: &Path) -> anyhow::Result<PathBuf> {
    let (project, sources) = (folder.join("project"), folder.join("sources"));
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("Cargo.toml"), MANIFEST)?;
    fs::write(project.join("src/lib.rs"), "")?;
    let mut vendor = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    vendor.args(["vendor", "--quiet", "--manifest-path"]).arg(project.join("Cargo.toml")).arg(&sources);
    said(&mut vendor).context("fetch SQLite's source from the package registry")?;
    Ok(sources.join(PACKAGE).join("sqlite3/sqlite3.c"))
}
