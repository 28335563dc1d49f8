//! The roots of a run: directories as the kernel names them, the outer ones first.

use super::no_root;
use crate::errors::Failure;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why the root directory is no root of a run.
const WHOLE: &str = "Tidegate would have to serve the files that it needs itself";

/// Returns `roots` without links, each once, and each before those that lie in it. None are named:
/// `directory`, the current one.
pub(super) fn resolved(roots: &[PathBuf], directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let named = if roots.is_empty() { vec![directory.to_owned()] } else { roots.to_vec() };
    let mut resolved = named.iter().map(|root| resolve(&directory.join(root))).collect::<Result<Vec<_>, Failure>>()?;
    resolved.sort();
    resolved.dedup();
    Ok(resolved)
}

fn resolve(root: &Path) -> Result<PathBuf, Failure> {
    let refused = |error: std::io::Error| no_root(root, error);
    let looked = root.metadata().and_then(|about| Ok((about, root.canonicalize()?)));
    let found = match looked {
        Ok((about, _)) if !about.is_dir() => return Err(no_root(root, "it is no directory")),
        // A mount of a killed service does not say what it is, but its folder does. The kernel may
        // remember one answer of it and not the next one.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => {
            let (Some(folder), Some(name)) = (root.parent(), root.file_name()) else { return Err(refused(error)) };
            return folder.canonicalize().map(|folder| folder.join(name)).map_err(refused);
        }
        looked => looked.map_err(refused)?.1,
    };
    if found.parent().is_none() {
        return Err(no_root(root, WHOLE));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_found_once_with_the_outer_ones_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(folder.join("a/b")).expect("made");
        std::os::unix::fs::symlink("a", folder.join("link")).expect("made");
        let roots = ["a/b", "link", "a", "link/b"].map(PathBuf::from);
        assert_eq!(resolved(&roots, &folder).expect("found"), [folder.join("a"), folder.join("a/b")]);
        assert_eq!(resolved(&[], &folder).expect("found"), [folder]);
    }

    #[test]
    fn what_is_missing_a_file_or_everything_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "").expect("made");
        for root in ["absent", "file", "/"] {
            assert!(resolved(&[root.into()], folder.path()).is_err(), "{root}");
        }
    }
}
