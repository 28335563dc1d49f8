//! Programs of this workspace for a guest, with the libraries of this machine that they are linked to.

use crate::artefacts::{MissingError, build_folder, run};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Adds each of `programs`, given as `package/name`, to `files`, with its libraries. They are built now, in the profile of the
/// tests, unless `TIDEGATE_BUILT` names a folder where all is built.
pub(super) fn add(files: &mut BTreeMap<String, Vec<u8>>, programs: &[&str]) -> Result<(), MissingError> {
    let parts = || programs.iter().map(|program| program.split_once('/').expect("a package and a name"));
    let folder = match std::env::var_os("TIDEGATE_BUILT") {
        Some(folder) => PathBuf::from(folder),
        None => built(parts())?,
    };
    let scratch = tempfile::tempdir().map_err(MissingError::file(&std::env::temp_dir()))?;
    for (_, name) in parts() {
        // What debuggers need is most of a program, and a guest has little memory.
        let bare = scratch.path().join(name);
        run(Command::new("strip").arg("-o").arg(&bare).arg(folder.join(name)), "binutils")?;
        super::tools::add_at(files, &bare, name)?;
    }
    Ok(())
}

/// The folder with these programs, which cargo builds now.
fn built<'a>(programs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<PathBuf, MissingError> {
    let folder = build_folder();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--target-dir"]).arg(folder.parent().expect("a profile's folder lies in another"));
    build.args(folder.ends_with("release").then_some("--release"));
    for (package, name) in programs {
        build.args(["--package", package, "--bin", name]);
    }
    run(&mut build, "cargo")?;
    Ok(folder)
}
