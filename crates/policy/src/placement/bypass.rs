//! Which files no tier is for: their writes and syncs go to the files below.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

/// Files that bypass the cache, named by globs.
///
/// A glob without `/` is compared with the last name of a path, and any other with the whole path
/// from the mount's root on. `*` and `?` do not match `/`; `**` matches any folders. With several
/// globs, the first one that matches counts.
#[derive(Clone, Debug, Default)]
pub struct Bypass {
    globs: Vec<String>,
    set: GlobSet,
}

/// A text that is no glob of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadGlob {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl Bypass {
    /// Takes globs as users write them.
    ///
    /// # Errors
    ///
    /// [`BadGlob`] for the first one that can match no file.
    pub fn new(globs: Vec<String>) -> Result<Bypass, BadGlob> {
        let mut set = GlobSetBuilder::new();
        for text in &globs {
            check(text)?;
            let of_path = if text.contains('/') { text.clone() } else { format!("**/{text}") };
            let glob = GlobBuilder::new(&of_path).literal_separator(true).build();
            set.add(glob.map_err(|error| BadGlob::new(text, error.kind()))?);
        }
        let set = set.build().map_err(|error| BadGlob::new(&globs.join(", "), error.kind()))?;
        Ok(Bypass { globs, set })
    }

    /// Returns the glob because of which the file at `path` bypasses the cache.
    ///
    /// `path` begins at the mount's root, without `/` at its beginning.
    pub fn of(&self, path: &[u8]) -> Option<&str> {
        if self.globs.is_empty() {
            return None;
        }
        let first = self.set.matches(OsStr::from_bytes(path)).into_iter().min()?;
        self.globs.get(first).map(String::as_str)
    }

    /// Returns all globs, as users wrote them.
    pub fn globs(&self) -> &[String] {
        &self.globs
    }
}

impl PartialEq for Bypass {
    fn eq(&self, other: &Bypass) -> bool {
        self.globs == other.globs
    }
}

impl Eq for Bypass {}

impl BadGlob {
    fn new(text: &str, why: &impl ToString) -> BadGlob {
        BadGlob { text: text.to_owned(), why: why.to_string() }
    }
}

impl fmt::Display for BadGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} names no files: {}", self.text, self.why)
    }
}

impl std::error::Error for BadGlob {}

/// Refuses texts that are globs, and match no file of a mount.
fn check(text: &str) -> Result<(), BadGlob> {
    let why = match text {
        "" => "a glob is expected, such as *.log",
        _ if text.starts_with('/') => "paths begin at the root of the mount, without a slash",
        _ if text.ends_with('/') => "for all files in a folder and below, write FOLDER/**",
        _ => return Ok(()),
    };
    Err(BadGlob::new(text, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bypass(globs: &[&str]) -> Bypass {
        Bypass::new(globs.iter().map(ToString::to_string).collect()).expect("globs")
    }

    #[test]
    fn a_glob_without_a_slash_is_of_names_in_every_folder() {
        let bypass = bypass(&["*.log", "core"]);
        assert_eq!(bypass.of(b"a.log"), Some("*.log"));
        assert_eq!(bypass.of(b"var/log/b.log"), Some("*.log"));
        assert_eq!(bypass.of(b"a/core"), Some("core"));
        assert_eq!([&b"a.log/c"[..], b"a.logs", b"score", b"", b"core/a"].map(|path| bypass.of(path)), [None; 5]);
    }

    #[test]
    fn a_glob_with_a_slash_is_of_paths() {
        let bypass = bypass(&["backup/**", "a/*/c", "{x,y}/z[0-9]"]);
        assert_eq!(bypass.of(b"backup/a/b"), Some("backup/**"));
        assert_eq!(bypass.of(b"a/b/c"), Some("a/*/c"));
        assert_eq!(bypass.of(b"y/z7"), Some("{x,y}/z[0-9]"));
        assert_eq!([&b"b/backup/a"[..], b"a/b/b/c", b"backup", b"y/zz"].map(|path| bypass.of(path)), [None; 4]);
    }

    #[test]
    fn the_first_glob_that_matches_is_named() {
        assert_eq!(bypass(&["tmp/**", "*.log"]).of(b"tmp/a.log"), Some("tmp/**"));
        assert_eq!(bypass(&["*.log", "tmp/**"]).of(b"tmp/a.log"), Some("*.log"));
        assert_eq!(bypass(&[]).of(b"a"), None);
    }

    #[test]
    fn names_may_have_any_bytes() {
        assert_eq!(bypass(&["*.log"]).of(b"d/\xff\xfe.log"), Some("*.log"));
        assert_eq!(bypass(&["d/*"]).of(b"d/\xff\n"), Some("d/*"));
    }

    #[test]
    fn what_can_name_no_file_is_refused_with_its_reason() {
        let told = |text: &str| Bypass::new(vec![text.to_owned()]).expect_err("no glob").to_string();
        assert_eq!(told(""), "\"\" names no files: a glob is expected, such as *.log");
        assert!(told("/a").contains("without a slash"));
        assert!(told("a/").contains("FOLDER/**"));
        assert!(told("a[").starts_with("\"a[\" names no files: "), "{}", told("a["));
    }
}
