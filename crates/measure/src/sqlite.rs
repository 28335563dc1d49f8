//! SQLite with atomic groups of writes. Debian builds it without
//! `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`, so it is compiled from its source.

use crate::programs::{alone, said};
use anyhow::Context;
use std::fs;
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

/// What carries SQL out.
const SHELL: &str = include_str!("sqlite.c");

/// The path of a program with SQLite that looks for atomic groups: compiled below `cache`, unless
/// it was before. Its words are a database and SQL; without SQL it reads lines of that.
pub fn shell_with_groups(cache: &Path) -> anyhow::Result<PathBuf> {
    let folder = cache.join("sqlite-groups");
    let _alone = alone(&folder).with_context(|| format!("make {}", folder.display()))?;
    let program = folder.join("shell");
    if !program.exists() {
        let (source, own, fresh) = (source(&folder)?, folder.join("shell.c"), folder.join("fresh"));
        fs::write(&own, SHELL)?;
        // Most of the time of a transaction is the kernel's: a quick compilation does.
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE", "-I"]).arg(&source).arg("-o").arg(&fresh);
        compiler.arg(&own).arg(source.join("sqlite3.c")).arg("-lm");
        said(&mut compiler).context("compile SQLite: apt-get install gcc libc6-dev")?;
        fs::rename(&fresh, &program)?;
    }
    Ok(program)
}

/// The folder of the source, from the package registry.
fn source(folder: &Path) -> anyhow::Result<PathBuf> {
    let (project, sources) = (folder.join("project"), folder.join("sources"));
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("Cargo.toml"), MANIFEST)?;
    fs::write(project.join("src/lib.rs"), "")?;
    let mut vendor = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    vendor.args(["vendor", "--quiet", "--manifest-path"]).arg(project.join("Cargo.toml")).arg(&sources);
    said(&mut vendor).context("fetch SQLite's source from the package registry")?;
    Ok(sources.join(PACKAGE).join("sqlite3"))
}
