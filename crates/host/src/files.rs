//! File systems and their files: directories read, what is mounted where and may be lost,
//! programs that use files.

pub mod directory;
pub mod mount_table;
pub mod ordered_names;
pub mod regular;
pub mod users;

use std::path::Path;

/// The folder that `path` is in: of a bare name the working directory.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_in_the_working_directory() {
        for (path, folder) in [("x", "."), ("./x", "."), ("a/x", "a"), ("/x", "/"), ("/", "/")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
