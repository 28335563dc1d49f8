//! File systems and their files: directories read, what is mounted where and may be lost,
//! programs that use files.

pub mod directory;
pub mod mount_table;
pub mod ordered_names;
pub mod regular;
pub mod users;

use std::path::{Path, PathBuf};

/// The folder that `path` is in: of a bare name the working directory.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    }
}

/// Returns `path` in the one spelling that all paths to its place have, whether anything is there
/// or not: absolute, and with no symbolic link among the folders that exist. A link at the place
/// itself is not followed, and folders that are absent are taken as they are written.
pub fn place_of(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let Some(name) = path.file_name() else { return path };
    let folder = folder_of(&path);
    let folder = folder.canonicalize().unwrap_or_else(|_| place_of(folder));
    folder.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_spelling() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).expect("a folder");
        std::os::unix::fs::symlink("real", at("link")).expect("a link");
        std::os::unix::fs::symlink("nothing", at("real/s")).expect("a link");
        for other in ["./real/s", "real/../real/s", "link/s", "link/./s"] {
            assert_eq!(place_of(&at(other)), place_of(&at("real/s")), "{other}");
        }
        assert_eq!(place_of(&at("link/none/./s")), place_of(&at("real/none/s")), "an absent folder");
        assert_ne!(place_of(&at("s")), place_of(&at("real/s")));
        assert_eq!(place_of(Path::new("Cargo.toml")), place_of(Path::new("src/../Cargo.toml")));
        assert_eq!(place_of(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn a_bare_name_is_in_the_working_directory() {
        for (path, folder) in [("x", "."), ("./x", "."), ("a/x", "a"), ("/x", "/"), ("/", "/")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
