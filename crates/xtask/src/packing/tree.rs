//! The files of a package in memory: sorted by path, each with the folders above it.

use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// What lies at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Folder,
    File(Vec<u8>),
    /// A symbolic link to this path.
    Link(String),
}

/// An entry of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) content: Content,
    pub(super) mode: u32,
    /// The user and the group, by number.
    pub(super) owner: u32,
}

/// All entries by their paths, which begin without a slash.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(BTreeMap<String, Entry>);

impl Tree {
    pub(super) fn file(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.put(path, Entry { content: Content::File(bytes.into()), mode, owner: 0 });
    }

    pub(super) fn folder(&mut self, path: &str, mode: u32, owner: u32) {
        self.put(path, Entry { content: Content::Folder, mode, owner });
    }

    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.put(path, Entry { content: Content::Link(to.to_owned()), mode: 0o777, owner: 0 });
    }

    fn put(&mut self, path: &str, entry: Entry) {
        for (slash, _) in path.match_indices('/') {
            let above = Entry { content: Content::Folder, mode: 0o755, owner: 0 };
            self.0.entry(path[..slash].to_owned()).or_insert(above);
        }
        self.0.insert(path.to_owned(), entry);
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The tree with every path below `from` moved to below `to`; paths elsewhere are refused.
    pub(super) fn moved(self, from: &str, to: &str) -> Result<Tree> {
        let mut moved = Tree::default();
        for (path, entry) in self.0 {
            let rest = path.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            ensure!(rest.is_some(), "{path} does not lie below {from}");
            moved.put(&format!("{to}{}", rest.unwrap_or_default()), entry);
        }
        Ok(moved)
    }

    /// KiB that the files take on a file system with blocks of 4096 bytes, as far as it is known.
    pub(super) fn kib(&self) -> usize {
        let of = |entry: &Entry| match &entry.content {
            Content::File(bytes) => bytes.len().div_ceil(4096) * 4,
            Content::Folder | Content::Link(_) => 1,
        };
        self.0.values().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_above_a_file_are_there_and_come_first() {
        let mut tree = Tree::default();
        tree.file("usr/bin/a", 0o755, "x");
        tree.folder("usr", 0o700, 3);
        let paths: Vec<_> = tree.entries().map(|(path, entry)| (path, entry.mode)).collect();
        assert_eq!(paths, [("usr", 0o700), ("usr/bin", 0o755), ("usr/bin/a", 0o755)]);
        assert_eq!(tree.kib(), 6);
    }

    #[test]
    fn a_moved_tree_refuses_what_lies_elsewhere() {
        let mut tree = Tree::default();
        tree.file("usr/a", 0o644, "x");
        let moved = tree.clone().moved("usr", "top").expect("all lies there");
        assert_eq!(moved.entries().map(|(path, _)| path).collect::<Vec<_>>(), ["top", "top/a"]);
        tree.file("usrlocal", 0o644, "x");
        assert!(tree.moved("usr", "top").is_err());
    }
}
