//! The nodes that the kernel knows, and how each is found below.
//!
//! A *node* is a file of SOURCE of any kind, known by its identity. Its *dentries* (directory
//! entries) are the names by
//! which it was looked up: a directory's node and a name in it. A node is reached below by walking
//! from SOURCE's root along one of its dentries, so a million known files need no descriptors.
//!
//! Rules:
//!
//! 1. A node has an identity that no other node has; hard links share a node.
//! 2. A number is never used for a second node, so the kernel's generation is always 0.
//! 3. A node stays while the kernel counts lookups of it, or while another node has a dentry in it:
//!    the way from the root to each dentry is always known.
//! 4. Two nodes do not share a dentry. A renamed directory takes everything below it along, as
//!    dentries name nodes and not paths.
//! 5. A node that lost its last dentry is reached by the descriptor that was kept before.
//! 6. Each change is a record, which goes to a log before the kernel hears of the change. A server
//!    that replays the log has the same nodes under the same numbers.

use crate::service::nodes::dentry::Dentry;
use crate::service::nodes::records::NodeRecord;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_file_cache::FileIdentity;
use tidegate_fuse::NodeId;
use tidegate_mount_transport::MemoryLog;
use tidegate_source_files::Route;
use tidegate_source_files::nameless::KeptFile;

/// The root of the mount.
const ROOT: NodeId = NodeId::ROOT;

/// The nodes.
pub(crate) struct Inodes {
    nodes: HashMap<NodeId, Node>,
    by_identity: HashMap<FileIdentity, NodeId>,
    by_dentry: HashMap<Dentry, NodeId>,
    next: u64,
    /// Goes up whenever a dentry goes.
    moves: u64,
    /// Where the next server finds the nodes.
    log: Option<MemoryLog>,
}

/// Descriptors by the numbers under which they survive.
pub(crate) type KeptFiles = HashMap<u64, Arc<KeptFile>>;

struct Node {
    identity: FileIdentity,
    dentries: Vec<Dentry>,
    /// Lookups that the kernel counts.
    lookups: u64,
    /// Places of other nodes in this one.
    children: u64,
    kept: Option<Arc<KeptFile>>,
}

impl Inodes {
    /// The root alone.
    pub(crate) fn new(root: FileIdentity) -> Inodes {
        let node = Node { identity: root, dentries: Vec::new(), lookups: 1, children: 0, kept: None };
        Inodes {
            nodes: HashMap::from([(ROOT, node)]),
            by_identity: HashMap::from([(root, ROOT)]),
            by_dentry: HashMap::new(),
            next: ROOT.0 + 1,
            moves: 0,
            log: None,
        }
    }

    /// The nodes that an earlier server left in the memory of a log; the root alone, if it is the
    /// first one. `kept` are the descriptors that survived.
    pub(crate) fn replay(root: FileIdentity, memory: OwnedFd, kept: &KeptFiles) -> io::Result<Inodes> {
        let mut inodes = Inodes::new(root);
        let log = MemoryLog::open(memory, |record| {
            let record = NodeRecord::from_bytes(record)?;
            let key = match record {
                NodeRecord::EnteredUnnamed { key, .. }
                | NodeRecord::Unlinked { key, .. }
                | NodeRecord::Kept { key, .. }
                | NodeRecord::Node { key, .. } => key,
                _ => 0,
            };
            inodes.apply(record, kept.get(&key).cloned());
            Ok(())
        })?;
        inodes.log = Some(log);
        inodes.take_snapshot();
        Ok(inodes)
    }

    /// Records a change, and makes it.
    fn change(&mut self, record: NodeRecord, kept: Option<Arc<KeptFile>>) -> Option<NodeId> {
        if self.log.as_ref().is_some_and(MemoryLog::is_long) {
            self.take_snapshot();
        }
        if let Some(log) = &mut self.log {
            log.append(&record.to_bytes());
        }
        self.apply(record, kept)
    }

    fn apply(&mut self, record: NodeRecord, kept: Option<Arc<KeptFile>>) -> Option<NodeId> {
        match record {
            NodeRecord::Entered { dentry, identity } => return self.apply_enter(dentry, identity),
            NodeRecord::EnteredUnnamed { identity, .. } => return Some(self.apply_enter_unnamed(identity, kept)),
            NodeRecord::Forgotten { node, count } => self.apply_forget(node, count),
            NodeRecord::Unlinked { dentry, .. } => self.apply_unlink(&dentry, kept),
            NodeRecord::Renamed { from, to } => self.apply_rename(&from, to),
            NodeRecord::Exchanged { one, other } => self.apply_exchange(&one, &other),
            NodeRecord::Kept { node, .. } => self.apply_keep(node, kept),
            NodeRecord::Node { node, identity, lookups, .. } => {
                let dentries = Vec::new();
                self.nodes.insert(node, Node { identity, dentries, lookups, children: 0, kept });
                self.by_identity.insert(identity, node);
            }
            NodeRecord::Placed { node, dentry } => self.put(dentry, node),
            NodeRecord::Next(node) => self.next = node.0,
        }
        None
    }

    /// Replaces the records by those of the nodes as they are.
    fn take_snapshot(&mut self) {
        let Some(mut log) = self.log.take() else { return };
        let nodes = self.nodes.iter().filter(|(node, _)| **node != ROOT).map(|(node, found)| NodeRecord::Node {
            node: *node,
            identity: found.identity,
            lookups: found.lookups,
            key: found.kept.as_ref().map_or(0, |kept| kept.key()),
        });
        let dentries = self.nodes.iter().flat_map(|(node, found)| {
            found.dentries.iter().map(|dentry| NodeRecord::Placed { node: *node, dentry: dentry.clone() })
        });
        let next = std::iter::once(NodeRecord::Next(NodeId(self.next)));
        log.replace(nodes.chain(dentries).chain(next).map(|record| Cow::Owned(record.to_bytes())));
        self.log = Some(log);
    }

    /// Goes up whenever a dentry goes: the routes from before may lead elsewhere.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// The identity of a node.
    pub(crate) fn identity(&self, node: NodeId) -> Option<FileIdentity> {
        Some(self.nodes.get(&node)?.identity)
    }

    /// The node of an identity.
    pub(crate) fn of_identity(&self, identity: FileIdentity) -> Option<NodeId> {
        self.by_identity.get(&identity).copied()
    }

    /// The node that has a dentry.
    pub(crate) fn at(&self, dentry: &Dentry) -> Option<NodeId> {
        self.by_dentry.get(dentry).copied()
    }

    /// How a node is reached.
    pub(crate) fn route(&self, node: NodeId) -> Option<Route> {
        let found = self.nodes.get(&node)?;
        if let Some(kept) = &found.kept {
            return Some(Route::Kept(Arc::clone(kept)));
        }
        let mut names = Vec::new();
        let mut at = node;
        while at != ROOT {
            let dentry = self.nodes.get(&at)?.dentries.last()?;
            names.push(dentry.name.clone());
            at = dentry.parent;
        }
        names.reverse();
        Some(Route::Names(names))
    }

    /// Notes that the kernel looked up `dentry` and was told of the file with `identity`. None: the
    /// dentry's directory is no node.
    pub(crate) fn enter(&mut self, dentry: Dentry, identity: FileIdentity) -> Option<NodeId> {
        self.change(NodeRecord::Entered { dentry, identity }, None)
    }

    fn apply_enter(&mut self, dentry: Dentry, identity: FileIdentity) -> Option<NodeId> {
        self.nodes.get(&dentry.parent)?;
        let node = self.of_identity(identity).unwrap_or_else(|| self.add(identity));
        self.nodes.get_mut(&node)?.lookups += 1;
        self.put(dentry, node);
        Some(node)
    }

    /// Notes that the kernel was told of a file without a name, which `kept` reaches.
    pub(crate) fn enter_unnamed(&mut self, identity: FileIdentity, kept: Arc<KeptFile>) -> Option<NodeId> {
        self.change(NodeRecord::EnteredUnnamed { identity, key: kept.key() }, Some(kept))
    }

    fn apply_enter_unnamed(&mut self, identity: FileIdentity, kept: Option<Arc<KeptFile>>) -> NodeId {
        let node = self.of_identity(identity).unwrap_or_else(|| self.add(identity));
        if let Some(found) = self.nodes.get_mut(&node) {
            found.lookups += 1;
            if found.dentries.is_empty() {
                found.kept = kept;
            }
        }
        node
    }

    /// The descriptor that reaches a node without a name.
    pub(crate) fn kept(&self, node: NodeId) -> Option<Arc<KeptFile>> {
        self.nodes.get(&node)?.kept.clone()
    }

    /// Notes that `kept` reaches a node without a name from now on.
    pub(crate) fn keep(&mut self, node: NodeId, kept: Arc<KeptFile>) {
        self.change(NodeRecord::Kept { node, key: kept.key() }, Some(kept));
    }

    fn apply_keep(&mut self, node: NodeId, kept: Option<Arc<KeptFile>>) {
        if let Some(found) = self.nodes.get_mut(&node).filter(|found| found.dentries.is_empty()) {
            found.kept = kept;
        }
    }

    /// The numbers of the descriptors that reach nodes.
    pub(crate) fn kept_keys(&self) -> HashSet<u64> {
        self.nodes.values().filter_map(|found| found.kept.as_ref()).map(|kept| kept.key()).collect()
    }

    /// Notes that the kernel counts `count` lookups of a node less. The identity of the node, if it
    /// has no dentry and is needed no more.
    pub(crate) fn forget(&mut self, node: NodeId, count: u64) -> Option<FileIdentity> {
        let nameless = self.nodes.get(&node).filter(|found| found.kept.is_some()).map(|found| found.identity);
        self.change(NodeRecord::Forgotten { node, count }, None);
        nameless.filter(|_| !self.nodes.contains_key(&node))
    }

    fn apply_forget(&mut self, node: NodeId, count: u64) {
        let Some(found) = self.nodes.get_mut(&node).filter(|_| node != ROOT) else { return };
        found.lookups = found.lookups.saturating_sub(count);
        self.remove_if_unused(node);
    }

    /// Notes that a dentry is gone. `kept` reaches its node, if this was the node's last one.
    pub(crate) fn unlink(&mut self, dentry: &Dentry, kept: Option<Arc<KeptFile>>) {
        let key = kept.as_ref().map_or(0, |kept| kept.key());
        self.change(NodeRecord::Unlinked { dentry: dentry.clone(), key }, kept);
    }

    fn apply_unlink(&mut self, dentry: &Dentry, kept: Option<Arc<KeptFile>>) {
        let Some(node) = self.take(dentry) else { return };
        if let Some(found) = self.nodes.get_mut(&node).filter(|found| found.dentries.is_empty()) {
            found.kept = kept;
        }
        self.remove_if_unused(node);
    }

    /// Notes that what was at `from` is at `to`. Whatever was there has been taken away by
    /// [`Inodes::unlink`].
    pub(crate) fn rename(&mut self, from: &Dentry, to: Dentry) {
        self.change(NodeRecord::Renamed { from: from.clone(), to }, None);
    }

    fn apply_rename(&mut self, from: &Dentry, to: Dentry) {
        if let Some(node) = self.take(from) {
            self.put(to, node);
        }
    }

    /// Notes that two dentries exchanged their files.
    pub(crate) fn exchange(&mut self, one: &Dentry, other: &Dentry) {
        self.change(NodeRecord::Exchanged { one: one.clone(), other: other.clone() }, None);
    }

    fn apply_exchange(&mut self, one: &Dentry, other: &Dentry) {
        let (first, second) = (self.take(one), self.take(other));
        first.into_iter().for_each(|node| self.put(other.clone(), node));
        second.into_iter().for_each(|node| self.put(one.clone(), node));
    }

    fn add(&mut self, identity: FileIdentity) -> NodeId {
        let node = NodeId(self.next);
        self.next += 1;
        self.nodes.insert(node, Node { identity, dentries: Vec::new(), lookups: 0, children: 0, kept: None });
        self.by_identity.insert(identity, node);
        node
    }

    /// Gives a node a dentry; another node that had it loses it.
    fn put(&mut self, dentry: Dentry, node: NodeId) {
        match self.at(&dentry) {
            Some(former) if former == node => return,
            Some(_) => self.apply_unlink(&dentry, None),
            None => {}
        }
        let Some(found) = self.nodes.get_mut(&node) else { return };
        found.kept = None;
        found.dentries.push(dentry.clone());
        if let Some(parent) = self.nodes.get_mut(&dentry.parent) {
            parent.children += 1;
        }
        self.by_dentry.insert(dentry, node);
    }

    fn take(&mut self, dentry: &Dentry) -> Option<NodeId> {
        let node = self.by_dentry.remove(dentry)?;
        self.moves += 1;
        if let Some(found) = self.nodes.get_mut(&node) {
            found.dentries.retain(|other| other != dentry);
        }
        if let Some(parent) = self.nodes.get_mut(&dentry.parent) {
            parent.children = parent.children.saturating_sub(1);
        }
        Some(node)
    }

    /// Removes a node that nothing needs, and then those above that were needed for it alone.
    fn remove_if_unused(&mut self, node: NodeId) {
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            let unused = self.nodes.get(&node).is_some_and(|found| found.lookups == 0 && found.children == 0);
            if !unused || node == ROOT {
                continue;
            }
            let Some(found) = self.nodes.remove(&node) else { continue };
            self.by_identity.remove(&found.identity);
            for dentry in found.dentries {
                self.by_dentry.remove(&dentry);
                if let Some(parent) = self.nodes.get_mut(&dentry.parent) {
                    parent.children = parent.children.saturating_sub(1);
                    waiting.push(dentry.parent);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_mount_transport::DescriptorStore;

    fn identity(inode: u64) -> FileIdentity {
        FileIdentity { device: 0, inode, generation: 0 }
    }

    fn table() -> Inodes {
        Inodes::new(identity(1))
    }

    fn enter(inodes: &mut Inodes, parent: NodeId, name: &str, inode: u64) -> NodeId {
        inodes.enter(Dentry::new(parent, name.as_bytes()), identity(inode)).expect("the directory is known")
    }

    fn dentries(inodes: &Inodes, node: NodeId) -> usize {
        inodes.nodes.get(&node).map_or(0, |node| node.dentries.len())
    }

    fn path(inodes: &Inodes, node: NodeId) -> String {
        match inodes.route(node).expect("a known node") {
            Route::Names(names) => {
                let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
                names.join("/")
            }
            Route::Kept(_) => "kept".to_owned(),
        }
    }

    fn descriptor() -> Arc<KeptFile> {
        Arc::new(KeptFile::passing(tempfile::tempfile().expect("a file").into()))
    }

    #[test]
    fn hard_links_share_a_node_and_either_name_reaches_it() {
        let mut inodes = table();
        let folder = enter(&mut inodes, ROOT, "d", 2);
        let one = enter(&mut inodes, ROOT, "a", 3);
        assert_eq!(enter(&mut inodes, folder, "b", 3), one);
        inodes.unlink(&Dentry::new(folder, b"b"), None);
        assert_eq!((path(&inodes, one), dentries(&inodes, one)), ("a".to_owned(), 1));
    }

    #[test]
    fn a_renamed_directory_takes_its_files_along() {
        let mut inodes = table();
        let (old, new) = (enter(&mut inodes, ROOT, "old", 2), enter(&mut inodes, ROOT, "new", 3));
        let inner = enter(&mut inodes, old, "inner", 4);
        let file = enter(&mut inodes, inner, "file", 5);
        inodes.rename(&Dentry::new(old, b"inner"), Dentry::new(new, b"moved"));
        assert_eq!(path(&inodes, file), "new/moved/file");
        inodes.exchange(&Dentry::new(ROOT, b"new"), &Dentry::new(ROOT, b"old"));
        assert_eq!(path(&inodes, file), "old/moved/file");
    }

    #[test]
    fn an_unlinked_file_is_reached_by_its_kept_descriptor_until_it_is_forgotten() {
        let mut inodes = table();
        let file = enter(&mut inodes, ROOT, "f", 2);
        inodes.unlink(&Dentry::new(ROOT, b"f"), Some(descriptor()));
        assert_eq!(path(&inodes, file), "kept");
        assert!(enter(&mut inodes, ROOT, "f", 3) != file);
        inodes.forget(file, 1);
        assert!(inodes.route(file).is_none());
        assert_eq!(inodes.of_identity(identity(2)), None);
    }

    #[test]
    fn a_directory_stays_as_long_as_a_node_has_a_dentry_in_it() {
        let mut inodes = table();
        let folder = enter(&mut inodes, ROOT, "d", 2);
        let file = enter(&mut inodes, folder, "f", 3);
        inodes.forget(folder, 1);
        assert_eq!(path(&inodes, file), "d/f");
        inodes.forget(file, 1);
        assert_eq!(inodes.nodes.len(), 1, "only the root is left");
    }

    #[test]
    fn lookups_are_counted_and_numbers_are_not_used_again() {
        let mut inodes = table();
        let first = enter(&mut inodes, ROOT, "f", 2);
        assert_eq!(enter(&mut inodes, ROOT, "f", 2), first);
        inodes.forget(first, 1);
        assert_eq!(path(&inodes, first), "f");
        inodes.forget(first, 1);
        assert!(enter(&mut inodes, ROOT, "f", 2) > first);
        inodes.forget(ROOT, 9);
        assert_eq!(path(&inodes, ROOT), "", "the root stays");
    }

    #[test]
    fn a_file_put_in_the_place_of_another_behind_the_mount_gets_a_node_of_its_own() {
        let mut inodes = table();
        let former = enter(&mut inodes, ROOT, "f", 2);
        let now = enter(&mut inodes, ROOT, "f", 3);
        assert!(now != former && inodes.at(&Dentry::new(ROOT, b"f")) == Some(now));
        assert_eq!(dentries(&inodes, former), 0);
        assert!(inodes.route(former).is_none(), "neither a dentry nor a descriptor reaches it");
    }

    #[test]
    fn a_file_made_without_a_name_gets_its_first_dentry_by_a_link() {
        let mut inodes = table();
        let file = inodes.enter_unnamed(identity(2), descriptor()).expect("a node");
        assert_eq!(path(&inodes, file), "kept");
        assert_eq!(enter(&mut inodes, ROOT, "named", 2), file);
        assert_eq!(path(&inodes, file), "named");
    }

    /// What a table says of everything.
    fn told(inodes: &Inodes) -> Vec<(NodeId, FileIdentity, u64, u64, Vec<Dentry>, bool)> {
        let mut told: Vec<_> = inodes
            .nodes
            .iter()
            .map(|(node, found)| {
                let mut dentries = found.dentries.clone();
                dentries.sort_by_key(|dentry| (dentry.parent.0, dentry.name.clone()));
                (*node, found.identity, found.lookups, found.children, dentries, found.kept.is_some())
            })
            .collect();
        told.sort_by_key(|(node, ..)| node.0);
        told
    }

    fn survivor(store: &DescriptorStore) -> Arc<KeptFile> {
        Arc::new(KeptFile::surviving(tempfile::tempfile().expect("a file").into(), store))
    }

    /// Makes changes of every kind, with a server that is killed after each `servers`th, and
    /// compares what the next one has.
    fn survive(servers: usize) {
        let memory = MemoryLog::memory("test").expect("memory");
        let (_keeper, end) = tidegate_mount_transport::sockets().expect("sockets");
        let store = DescriptorStore::new(end, 1);
        let survivors = [survivor(&store), survivor(&store)];
        let by_key: KeptFiles = survivors.iter().map(|kept| (kept.key(), Arc::clone(kept))).collect();
        let replayed = || {
            let memory = memory.try_clone().expect("a second descriptor");
            Inodes::replay(identity(1), memory, &by_key).expect("a log")
        };
        let mut inodes = replayed();
        let dentry = |parent, name: &str| Dentry::new(parent, name.as_bytes());
        let folder = enter(&mut inodes, ROOT, "d", 2);
        let changes: [&dyn Fn(&mut Inodes); 8] = [
            &|inodes| _ = enter(inodes, folder, "f", 3),
            &|inodes| _ = enter(inodes, folder, "hard link", 3),
            &|inodes| inodes.rename(&dentry(folder, "f"), dentry(ROOT, "g")),
            &|inodes| _ = enter(inodes, ROOT, "h", 4),
            &|inodes| inodes.exchange(&dentry(ROOT, "g"), &dentry(ROOT, "h")),
            &|inodes| inodes.unlink(&dentry(ROOT, "g"), Some(Arc::clone(&survivors[0]))),
            &|inodes| _ = inodes.enter_unnamed(identity(5), Arc::clone(&survivors[1])),
            &|inodes| _ = inodes.forget(folder, 1),
        ];
        for (step, change) in changes.into_iter().enumerate() {
            change(&mut inodes);
            let expected = told(&inodes);
            if (step + 1) % servers == 0 {
                inodes = replayed();
                assert_eq!(told(&inodes), expected, "after change {step}");
            }
        }
        assert_eq!(path(&inodes, inodes.of_identity(identity(4)).expect("a node")), "kept");
        let next = inodes.next;
        assert_eq!(replayed().next, next);
    }

    #[test]
    fn a_server_that_replays_the_log_has_the_nodes_of_the_one_before() {
        [1, 2, 4, 8].into_iter().for_each(survive);
    }
}
