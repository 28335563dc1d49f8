//! Where the inodes are that records of the namespace log speak of, after all their operations.

use super::namespace::{LostName, NameChange, NodeIdentity};
use std::collections::{BTreeMap, BTreeSet};

/// Names of inodes, as far as the log has them, and inodes without a name.
#[derive(Debug, Default)]
pub struct NameMap {
    names: BTreeMap<Vec<u8>, NodeIdentity>,
    removed: BTreeSet<NodeIdentity>,
}

impl NameMap {
    /// One of the inode's names.
    pub fn path_of(&self, node: NodeIdentity) -> Option<&[u8]> {
        self.names.iter().find(|(_, named)| **named == node).map(|(path, _)| &path[..])
    }

    /// Whether the inode lost its last name.
    pub fn is_removed(&self, node: NodeIdentity) -> bool {
        self.removed.contains(&node)
    }

    /// Follows the next operation.
    pub fn follow(&mut self, change: &NameChange<'_>) {
        match *change {
            NameChange::Linked { path, to, node } => {
                self.put(path, node);
                self.put(to, node);
            }
            NameChange::Removed { path, lost } => self.lose(path, lost),
            NameChange::Renamed { path, to, node, replaced } => {
                if let Some(lost) = replaced {
                    self.lose(to, lost);
                }
                let moved = self.take_below(path);
                self.put_below(to, moved);
                self.put(to, node);
            }
            NameChange::Exchanged { path, to, node, other } => {
                let (first, second) = (self.take_below(path), self.take_below(to));
                self.put_below(to, first);
                self.put_below(path, second);
                self.put(to, node);
                self.put(path, other);
            }
            NameChange::Made { .. }
            | NameChange::AttributesSet { .. }
            | NameChange::XattrSet { .. }
            | NameChange::XattrRemoved { .. } => self.put(change.path(), change.node()),
        }
    }

    fn put(&mut self, path: &[u8], node: NodeIdentity) {
        self.removed.remove(&node);
        self.names.insert(path.to_vec(), node);
    }

    fn lose(&mut self, path: &[u8], lost: LostName) {
        self.names.remove(path);
        if lost.last {
            self.names.retain(|_, node| *node != lost.node);
            self.removed.insert(lost.node);
        }
    }

    /// Takes out `top` and every name in that directory. Returns what follows `top` in each.
    fn take_below(&mut self, top: &[u8]) -> Vec<(Vec<u8>, NodeIdentity)> {
        let is_below = |path: &[u8]| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        let taken = self.names.extract_if(.., |path, _| is_below(path));
        taken.map(|(path, node)| (path[top.len()..].to_vec(), node)).collect()
    }

    fn put_below(&mut self, top: &[u8], moved: Vec<(Vec<u8>, NodeIdentity)>) {
        self.names.extend(moved.into_iter().map(|(rest, node)| ([top, &rest].concat(), node)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(inode: u64) -> NodeIdentity {
        NodeIdentity { inode, generation: 1 }
    }

    fn made(path: &[u8], inode: u64) -> NameChange<'_> {
        NameChange::Made { path, node: node(inode), mode: 0, owner: 0, group: 0, special: 0, target: b"" }
    }

    fn after(changes: &[NameChange<'_>]) -> NameMap {
        let mut map = NameMap::default();
        changes.iter().for_each(|change| map.follow(change));
        map
    }

    #[test]
    fn files_move_with_their_directory_and_its_namesake_does_not() {
        let moved = NameChange::Renamed { path: b"d", to: b"e", node: node(1), replaced: None };
        let map = after(&[made(b"d", 1), made(b"d/f", 2), made(b"dd", 3), moved]);
        assert_eq!(map.path_of(node(1)), Some(&b"e"[..]));
        assert_eq!(map.path_of(node(2)), Some(&b"e/f"[..]));
        assert_eq!(map.path_of(node(3)), Some(&b"dd"[..]));
    }

    #[test]
    fn directories_exchange_what_is_in_them() {
        let exchanged = NameChange::Exchanged { path: b"a", to: b"b", node: node(1), other: node(2) };
        let map = after(&[made(b"a", 1), made(b"b", 2), made(b"a/f", 3), made(b"b/f", 4), exchanged]);
        let paths = [1, 2, 3, 4].map(|inode| map.path_of(node(inode)).unwrap().to_vec());
        assert_eq!(paths, [&b"b"[..], b"a", b"b/f", b"a/f"]);
    }

    #[test]
    fn an_inode_is_removed_with_its_last_name_only() {
        let lost = |last| LostName { node: node(1), last };
        let linked = NameChange::Linked { path: b"a", to: b"b", node: node(1) };
        let first = NameChange::Removed { path: b"a", lost: lost(false) };
        let map = after(&[made(b"a", 1), linked, first]);
        assert_eq!((map.path_of(node(1)), map.is_removed(node(1))), (Some(&b"b"[..]), false));
        let replaced = NameChange::Renamed { path: b"c", to: b"b", node: node(2), replaced: Some(lost(true)) };
        let map = after(&[made(b"a", 1), linked, first, made(b"c", 2), replaced]);
        assert_eq!((map.path_of(node(1)), map.is_removed(node(1))), (None, true));
        assert_eq!(map.path_of(node(2)), Some(&b"b"[..]));
    }
}
