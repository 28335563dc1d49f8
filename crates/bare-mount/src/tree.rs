//! Names and nodes. A node's number is its place in the table, and is never used again.
//!
//! With a folder, each node has a line in the file `nodes` there. A change of a node writes its
//! line anew, which a killed process does whole or not at all.

use crate::contents::Contents;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use tidegate_fuse::NodeId;

/// Bytes of a line: flags, mode, owner, group, parent, length of the name, name.
const LINE_BYTES: usize = 512;
const NAME: usize = 32;
/// Longest name.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// `S_IFDIR`.
const DIRECTORY: u32 = 0o040_000;
/// `S_IFMT`.
const KIND: u32 = 0o170_000;

/// A file or directory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Where the node has its name; `None` when it was removed.
    pub(crate) place: Option<(NodeId, Vec<u8>)>,
    pub(crate) contents: Contents,
}

impl Node {
    pub(crate) fn is_directory(&self) -> bool {
        self.mode & KIND == DIRECTORY
    }
}

/// All nodes, by number and by name.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<u64, Node>,
    names: BTreeMap<(u64, Vec<u8>), u64>,
    next: u64,
    store: Option<Store>,
}

/// The folder in which nodes survive the process.
#[derive(Debug)]
struct Store {
    folder: PathBuf,
    lines: File,
}

impl Tree {
    /// An empty tree in this process.
    pub(crate) fn in_memory(uid: u32, gid: u32) -> Tree {
        let mut tree = Tree { nodes: BTreeMap::new(), names: BTreeMap::new(), next: NodeId::ROOT.0, store: None };
        tree.insert(Node { mode: DIRECTORY | 0o755, uid, gid, place: None, contents: Contents::Memory(Vec::new()) });
        tree
    }

    /// The tree in a folder, which is empty at first.
    pub(crate) fn kept_in(folder: &Path, uid: u32, gid: u32) -> std::io::Result<Tree> {
        let lines =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(folder.join("nodes"))?;
        let mut tree = Tree { store: Some(Store { folder: folder.to_owned(), lines }), ..Tree::in_memory(uid, gid) };
        tree.load()?;
        Ok(tree)
    }

    fn load(&mut self) -> std::io::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let mut nodes = Vec::new();
        for number in NodeId::ROOT.0 + 1.. {
            let mut line = [0; LINE_BYTES];
            if store.lines.read_exact_at(&mut line, number * LINE_BYTES as u64).is_err() {
                break;
            }
            let contents = Contents::kept_at(&store.folder.join(number.to_string()))?;
            nodes.push((number, of_line(&line, contents)));
        }
        for (number, node) in nodes {
            self.next = number + 1;
            if let Some((parent, name)) = &node.place {
                self.names.insert((parent.0, name.clone()), number);
            }
            self.nodes.insert(number, node);
        }
        Ok(())
    }

    pub(crate) fn node(&self, node: NodeId) -> Result<&Node, Errno> {
        self.nodes.get(&node.0).ok_or(Errno::STALE)
    }

    pub(crate) fn node_mut(&mut self, node: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&node.0).ok_or(Errno::STALE)
    }

    pub(crate) fn find(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        // A map with a borrowed key for pairs needs a key of its own; names are short.
        self.names.get(&(parent.0, name.to_vec())).copied().map(NodeId)
    }

    /// Entries of a directory after the one with this number, by number, so that a listing goes on
    /// where it was whatever comes and goes.
    pub(crate) fn entries_after(&self, parent: NodeId, number: u64) -> impl Iterator<Item = (NodeId, &Node, &[u8])> {
        self.nodes.range(number + 1..).filter_map(move |(number, node)| match &node.place {
            Some((at, name)) if *at == parent => Some((NodeId(*number), node, name.as_slice())),
            _ => None,
        })
    }

    pub(crate) fn is_empty(&self, directory: NodeId) -> bool {
        self.names.range((directory.0, Vec::new())..(directory.0 + 1, Vec::new())).next().is_none()
    }

    /// Makes a node below `parent`.
    pub(crate) fn make(&mut self, parent: NodeId, name: &[u8], node: (u32, u32, u32)) -> Result<NodeId, Errno> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let (mode, uid, gid) = node;
        let contents = match &self.store {
            Some(store) => Contents::kept_at(&store.folder.join(self.next.to_string()))?,
            None => Contents::Memory(Vec::new()),
        };
        let number = self.insert(Node { mode, uid, gid, place: Some((parent, name.to_vec())), contents });
        self.names.insert((parent.0, name.to_vec()), number.0);
        self.store(number)?;
        Ok(number)
    }

    /// Takes a node's name away.
    pub(crate) fn remove_name(&mut self, node: NodeId) -> Result<(), Errno> {
        if let Some((parent, name)) = self.node_mut(node)?.place.take() {
            self.names.remove(&(parent.0, name));
        }
        self.store(node)
    }

    /// Gives a node another name, which no node has.
    pub(crate) fn rename(&mut self, node: NodeId, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        if let Some((parent, name)) = self.node_mut(node)?.place.replace((parent, name.to_vec())) {
            self.names.remove(&(parent.0, name));
        }
        self.names.insert((parent.0, name.to_vec()), node.0);
        self.store(node)
    }

    /// Forgets a node that has no name.
    pub(crate) fn forget(&mut self, node: NodeId) {
        if node != NodeId::ROOT && self.node(node).is_ok_and(|node| node.place.is_none()) {
            self.nodes.remove(&node.0);
        }
    }

    /// Stores a node's line, where nodes survive the process.
    pub(crate) fn store(&self, number: NodeId) -> Result<(), Errno> {
        let Some(store) = &self.store else { return Ok(()) };
        let written = store.lines.write_all_at(&line_of(self.node(number)?), number.0 * LINE_BYTES as u64);
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn insert(&mut self, node: Node) -> NodeId {
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, node);
        NodeId(number)
    }
}

fn line_of(node: &Node) -> [u8; LINE_BYTES] {
    let mut line = [0; LINE_BYTES];
    let fields = [node.mode, node.uid, node.gid];
    for (place, field) in line.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_ne_bytes());
    }
    if let Some((parent, name)) = &node.place {
        line[16..24].copy_from_slice(&parent.0.to_ne_bytes());
        line[24..32].copy_from_slice(&(name.len() as u64).to_ne_bytes());
        line[NAME..NAME + name.len()].copy_from_slice(name);
    }
    line
}

fn of_line(line: &[u8; LINE_BYTES], contents: Contents) -> Node {
    let short = |at: usize| u32::from_ne_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
    let long = |at: usize| u64::from(short(at)) | u64::from(short(at + 4)) << 32;
    let name_bytes = usize::try_from(long(24)).unwrap_or(0).min(NAME_BYTES_MAX);
    let place = (name_bytes > 0).then(|| (NodeId(long(16)), line[NAME..NAME + name_bytes].to_vec()));
    Node { mode: short(0), uid: short(4), gid: short(8), place, contents }
}
