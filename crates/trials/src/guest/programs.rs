//! Programs of this workspace for a guest, with the libraries of this machine that they are linked
//! to.

use crate::artefacts::{MissingError, built, run};
use std::collections::BTreeMap;
use std::process::Command;

/// Adds each of `programs`, given as `package/name`, to `files`, with its libraries.
pub(super) fn add(files: &mut BTreeMap<String, Vec<u8>>, programs: &[&str]) -> Result<(), MissingError> {
    let parts = || programs.iter().map(|program| program.split_once('/').expect("a package and a name"));
    let wanted: Vec<&str> = parts().flat_map(|(package, name)| ["--package", package, "--bin", name]).collect();
    let folder = built(&wanted)?;
    let scratch = tempfile::tempdir().map_err(MissingError::file(&std::env::temp_dir()))?;
    for (_, name) in parts() {
        // What debuggers need is most of a program, and a guest has little memory.
        let bare = scratch.path().join(name);
        run(Command::new("strip").arg("-o").arg(&bare).arg(folder.join(name)), "binutils")?;
        super::tools::add_at(files, &bare, name)?;
    }
    Ok(())
}
