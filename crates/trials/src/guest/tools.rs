//! Programs of this machine for a guest, with the libraries that they are linked to.

use crate::artefacts::{MissingError, run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where administrators' programs lie.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Adds the program `name`, of the Debian package `package`, to `files`, in `bin`.
pub(super) fn add(
    files: &mut BTreeMap<String, Vec<u8>>,
    name: &str,
    package: &'static str,
) -> Result<(), MissingError> {
    let program = FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    let program = program.ok_or_else(|| MissingError::Program { program: name.to_owned(), package })?;
    add_at(files, &program, &format!("bin/{name}"))
}

/// Adds `program`, or a library, to `files` as `inside`, and its libraries where its interpreter
/// looks for them.
pub(super) fn add_at(files: &mut BTreeMap<String, Vec<u8>>, program: &Path, inside: &str) -> Result<(), MissingError> {
    let read = |path: &Path| fs::read(path).map_err(MissingError::file(path));
    for library in libraries(program)? {
        let place = library.strip_prefix("/").expect("a library's path is absolute").display().to_string();
        files.insert(place, read(&library)?);
    }
    files.insert(inside.to_owned(), read(program)?);
    Ok(())
}

/// What `program` is linked to, the interpreter included.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, MissingError> {
    let listing = run(Command::new("ldd").arg(program), "libc-bin")?;
    Ok(listing.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// Folders that have to be there before `files`, outer ones first.
pub(super) fn folders<'a>(files: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let parents = files.flat_map(|file| Path::new(file).ancestors().skip(1));
    parents.map(|folder| folder.display().to_string()).filter(|folder| !folder.is_empty()).collect()
}
