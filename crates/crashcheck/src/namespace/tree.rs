//! The file system below: names and contents, what of them is durable, and what a power cut leaves.

use crate::file_cache::{MARK_OF_CUT, MARK_OF_ROOM};
use std::collections::{BTreeMap, BTreeSet};
use tidegate_file_cache::{FileIdentity, Refused};
use tidegate_layout::file_cache::{LostName, NameChange, NodeIdentity};
use tidegate_namespace_log::{FoundNode, Witness};
use tidegate_sim::Rng;

pub(crate) const DEVICE: u64 = 1;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const ENOTEMPTY: i32 = 39;
pub(crate) const ENODATA: i32 = 61;

const TYPE_BITS: u32 = 0o170_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const REGULAR: u32 = 0o100_000;

const ROOT: u64 = 1;

/// What arrives as a whole, or not, of a file that is being written back.
const PIECE_BYTES: usize = 64;

/// An inode without its contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) generation: u64,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names in a directory.
    pub(crate) names: BTreeMap<Vec<u8>, u64>,
}

/// Names and their inodes.
type Directory = BTreeMap<Vec<u8>, u64>;

/// All names at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Names {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) witness: Option<(u128, u64)>,
}

/// The contents of a file: what is visible, and what is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Contents {
    pub(crate) visible: Vec<u8>,
    pub(crate) durable: Vec<u8>,
    pub(crate) stamp: u64,
    pub(crate) durable_stamp: u64,
    /// The mark that it had while room was reserved, since the last sync.
    passing: Option<u64>,
}

/// The file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Names after each operation since the last sync; the first are durable, the last visible.
    history: Vec<Names>,
    /// By generation, which no two inodes share.
    contents: BTreeMap<u64, Contents>,
    last_generation: u64,
}

impl Node {
    fn new(generation: u64, mode: u32) -> Node {
        Node { generation, mode, owner: 0, xattrs: BTreeMap::new(), names: BTreeMap::new() }
    }
}

impl Names {
    fn inode_at(&self, path: &[u8]) -> Option<u64> {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(ROOT, |inode, part| self.nodes[&inode].names.get(part).copied())
    }

    /// Every name, with its inode.
    pub(crate) fn paths(&self) -> BTreeMap<Vec<u8>, u64> {
        let (mut paths, mut directories) = (BTreeMap::new(), vec![(Vec::new(), ROOT)]);
        while let Some((directory, inode)) = directories.pop() {
            for (name, named) in &self.nodes[&inode].names {
                let path = if directory.is_empty() { name.clone() } else { [&directory[..], b"/", name].concat() };
                directories.push((path.clone(), *named));
                paths.insert(path, *named);
            }
        }
        paths
    }

    /// The least number that no inode has.
    fn free_inode(&self) -> u64 {
        (ROOT..).find(|inode| !self.nodes.contains_key(inode)).expect("there are many")
    }

    /// A file system that is mounted again has no files without a name.
    fn drop_unnamed(&mut self) {
        let named: BTreeSet<u64> = self.nodes.values().flat_map(|node| node.names.values().copied()).collect();
        self.nodes.retain(|inode, _| *inode == ROOT || named.contains(inode));
    }

    fn identity(&self, inode: u64) -> NodeIdentity {
        NodeIdentity { inode, generation: self.nodes[&inode].generation }
    }

    pub(crate) fn links(&self, inode: u64) -> usize {
        self.nodes.values().flat_map(|node| node.names.values()).filter(|named| **named == inode).count()
    }

    /// The directory of a path and the last name.
    fn place<'a>(&mut self, path: &'a [u8]) -> Result<(&mut Directory, &'a [u8]), Refused> {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let inode = self.inode_at(directory).ok_or(Refused { errno: ENOENT })?;
        let node = self.nodes.get_mut(&inode).expect("a name has an inode");
        if node.mode & TYPE_BITS != DIRECTORY {
            return Err(Refused { errno: ENOTDIR });
        }
        Ok((&mut node.names, name))
    }

    fn put(&mut self, path: &[u8], inode: u64) -> Result<(), Refused> {
        let (names, name) = self.place(path)?;
        if names.contains_key(name) {
            return Err(Refused { errno: EEXIST });
        }
        names.insert(name.to_vec(), inode);
        Ok(())
    }

    fn take(&mut self, path: &[u8]) -> Result<u64, Refused> {
        let (names, name) = self.place(path)?;
        names.remove(name).ok_or(Refused { errno: ENOENT })
    }

    /// Takes a name that is to go, and the inode with its last name.
    fn remove(&mut self, path: &[u8]) -> Result<(), Refused> {
        let inode = self.inode_at(path).ok_or(Refused { errno: ENOENT })?;
        if !self.nodes[&inode].names.is_empty() {
            return Err(Refused { errno: ENOTEMPTY });
        }
        self.take(path)?;
        if self.links(inode) == 0 {
            self.nodes.remove(&inode);
        }
        Ok(())
    }

    fn node_mut(&mut self, path: &[u8]) -> Result<&mut Node, Refused> {
        let inode = self.inode_at(path).ok_or(Refused { errno: ENOENT })?;
        Ok(self.nodes.get_mut(&inode).expect("a name has an inode"))
    }

    fn exchange(&mut self, path: &[u8], to: &[u8]) -> Result<(), Refused> {
        let (first, second) = (self.take(path)?, self.take(to)?);
        self.put(path, second)?;
        self.put(to, first)
    }
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let names = Names { nodes: BTreeMap::from([(ROOT, Node::new(0, DIRECTORY))]), witness: None };
        Tree { history: vec![names], contents: BTreeMap::new(), last_generation: 0 }
    }

    pub(crate) fn names(&self) -> &Names {
        self.history.last().expect("there is a first state")
    }

    /// An operation of the file system's own journal.
    fn operate(&mut self, operation: impl FnOnce(&mut Names) -> Result<(), Refused>) -> Result<(), Refused> {
        let mut names = self.names().clone();
        operation(&mut names)?;
        self.history.push(names);
        Ok(())
    }

    /// The last operation comes to be done after `operation`, as in a file system without order.
    fn operate_before_last(&mut self, operation: impl Fn(&mut Names)) {
        let last = self.history.len() - 1;
        let mut between = self.history[last.saturating_sub(1)].clone();
        operation(&mut between);
        operation(&mut self.history[last]);
        self.history.insert(last, between);
    }

    pub(crate) fn look_up(&self, path: &[u8]) -> Option<FoundNode> {
        let names = self.names();
        let inode = names.inode_at(path)?;
        let (node, identity) = (&names.nodes[&inode], names.identity(inode));
        let bytes = self.contents.get(&node.generation).map_or(0, |contents| contents.visible.len());
        Some(FoundNode { node: identity, mode: node.mode, empty: bytes == 0 && node.names.is_empty() })
    }

    /// Whether a name would be the last one of its inode.
    pub(crate) fn lost(&self, path: &[u8]) -> Option<LostName> {
        let inode = self.names().inode_at(path)?;
        Some(LostName { node: self.names().identity(inode), last: self.names().links(inode) == 1 })
    }

    /// Where an inode has a name.
    pub(crate) fn has(&self, identity: FileIdentity) -> bool {
        let node = self.names().nodes.get(&identity.inode);
        node.is_some_and(|node| node.generation == identity.generation)
    }

    pub(crate) fn witness(&self) -> Option<Witness> {
        let witness = self.names().witness;
        witness.map(|(pool, place)| Witness { pool: pool.to_le_bytes(), place })
    }

    /// The witness is stored, but before the last operation.
    pub(crate) fn set_witness_too_early(&mut self, witness: &Witness) {
        let witness = (u128::from_le_bytes(witness.pool), witness.place);
        self.operate_before_last(|names| names.witness = Some(witness));
    }

    pub(crate) fn set_witness(&mut self, witness: &Witness) -> Result<(), Refused> {
        let witness = (u128::from_le_bytes(witness.pool), witness.place);
        self.operate(|names| {
            names.witness = Some(witness);
            Ok(())
        })
    }

    /// Makes an inode of the least free number.
    pub(crate) fn make(&mut self, path: &[u8], mode: u32) -> Result<(), Refused> {
        self.last_generation += 1;
        let generation = self.last_generation;
        self.operate(|names| {
            let inode = names.free_inode();
            names.put(path, inode)?;
            names.nodes.insert(inode, Node::new(generation, mode));
            Ok(())
        })?;
        self.contents.insert(generation, Contents { stamp: 1, durable_stamp: 1, ..Contents::default() });
        Ok(())
    }

    /// Makes a file that has no name.
    pub(crate) fn make_unnamed(&mut self, mode: u32) -> NodeIdentity {
        self.last_generation += 1;
        let generation = self.last_generation;
        let mut names = self.names().clone();
        let inode = names.free_inode();
        names.nodes.insert(inode, Node::new(generation, mode));
        self.history.push(names);
        self.contents.insert(generation, Contents { stamp: 1, durable_stamp: 1, ..Contents::default() });
        NodeIdentity { inode, generation }
    }

    /// Gives a name to a file that has none.
    pub(crate) fn name(&mut self, unnamed: FileIdentity, path: &[u8]) -> Result<(), Refused> {
        if !self.has(unnamed) {
            return Err(Refused { errno: ENOENT });
        }
        self.operate(|names| names.put(path, unnamed.inode))
    }

    /// An operation on names that makes no inode.
    pub(crate) fn change(&mut self, change: &NameChange<'_>) -> Result<(), Refused> {
        self.operate(|names| match *change {
            NameChange::Made { path, owner, .. } => {
                names.node_mut(path)?.owner = owner;
                Ok(())
            }
            NameChange::Linked { path, to, .. } => {
                let inode = names.inode_at(path).ok_or(Refused { errno: ENOENT })?;
                names.put(to, inode)
            }
            NameChange::Removed { path, .. } => names.remove(path),
            NameChange::Renamed { path, to, replaced, .. } => {
                if replaced.is_some() && names.inode_at(to).is_some() {
                    names.remove(to)?;
                }
                let inode = names.take(path)?;
                names.put(to, inode)
            }
            NameChange::Exchanged { path, to, .. } => names.exchange(path, to),
            NameChange::AttributesSet { path, attributes, .. } => {
                let node = names.node_mut(path)?;
                node.mode = attributes.mode.unwrap_or(node.mode);
                node.owner = attributes.owner.unwrap_or(node.owner);
                Ok(())
            }
            NameChange::XattrSet { path, name, value, .. } => {
                names.node_mut(path)?.xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
            NameChange::XattrRemoved { path, name, .. } => {
                names.node_mut(path)?.xattrs.remove(name).map(drop).ok_or(Refused { errno: ENODATA })
            }
        })
    }

    /// Contents of a file; an inode keeps them while it is open without a name.
    pub(crate) fn contents(&self, identity: FileIdentity) -> &Contents {
        &self.contents[&identity.generation]
    }

    pub(crate) fn write(&mut self, identity: FileIdentity, write: impl FnOnce(&mut Vec<u8>)) {
        let contents = self.contents.get_mut(&identity.generation).expect("the file was made");
        write(&mut contents.visible);
        contents.stamp += 1;
    }

    /// Reserves room for a file: its time changes, and is put back.
    pub(crate) fn reserve(&mut self, identity: FileIdentity) {
        let contents = self.contents.get_mut(&identity.generation).expect("the file was made");
        contents.passing = Some(contents.stamp + MARK_OF_ROOM);
    }

    /// A sync of one file: every operation before it is durable too.
    pub(crate) fn sync_file(&mut self, identity: FileIdentity) {
        self.sync_names();
        let contents = self.contents.get_mut(&identity.generation).expect("the file was made");
        contents.settle();
    }

    pub(crate) fn sync_all(&mut self) {
        self.sync_names();
        self.contents.values_mut().for_each(Contents::settle);
    }

    fn sync_names(&mut self) {
        let end = self.history.len() - 1;
        self.history.drain(..end);
    }

    /// What a power cut may leave: any prefix of the operations; of each file the durable or the
    /// visible contents.
    pub(crate) fn images(&self) -> Vec<Tree> {
        let mut images: Vec<Tree> = Vec::new();
        for names in &self.history {
            if images.last().is_some_and(|image| image.history[0] == *names) {
                continue;
            }
            let mut contents = vec![BTreeMap::new()];
            for generation in names.nodes.values().map(|node| node.generation) {
                let Some(file) = self.contents.get(&generation) else { continue };
                contents = contents
                    .iter()
                    .flat_map(|others: &BTreeMap<u64, Contents>| {
                        file.images().into_iter().map(|image| {
                            let mut with = others.clone();
                            with.insert(generation, image);
                            with
                        })
                    })
                    .collect();
            }
            let tree = |contents| Tree { history: vec![names.clone()], contents, ..*self };
            images.extend(contents.into_iter().map(tree));
        }
        images
    }

    /// One of the states that a power cut may leave. Of contents that are not durable, any pieces
    /// of [`PIECE_BYTES`] may have arrived.
    pub(crate) fn sample(&self, rng: &mut Rng) -> Tree {
        let mut names = self.history[rng.index(self.history.len())].clone();
        names.drop_unnamed();
        let named: BTreeSet<u64> = names.nodes.values().map(|node| node.generation).collect();
        let survived = self.contents.iter().filter(|(generation, _)| named.contains(generation));
        let contents = survived.map(|(generation, contents)| (*generation, contents.sample(rng))).collect();
        Tree { history: vec![names], contents, last_generation: self.last_generation }
    }

    /// What distinguishes states after a cut.
    pub(crate) fn key(&self) -> (&Names, &BTreeMap<u64, Contents>) {
        (self.names(), &self.contents)
    }
}

impl Contents {
    fn settle(&mut self) {
        self.durable.clone_from(&self.visible);
        self.durable_stamp = self.stamp;
        self.passing = None;
    }

    fn sample(&self, rng: &mut Rng) -> Contents {
        let mut images = self.images();
        if images.len() < 2 || !rng.one_in(3) {
            return images.swap_remove(rng.index(images.len()));
        }
        let len = if rng.one_in(2) { self.durable.len() } else { self.visible.len() };
        let mut bytes = self.durable.clone();
        bytes.resize(len, 0);
        for (at, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
            let newer = self.visible.get(at * PIECE_BYTES..).unwrap_or_default();
            let arrived = piece.len().min(newer.len());
            if rng.one_in(2) {
                piece[..arrived].copy_from_slice(&newer[..arrived]);
            }
        }
        // The time of modification is one of neither.
        let stamp = self.stamp + MARK_OF_CUT;
        Contents { visible: bytes.clone(), durable: bytes, stamp, durable_stamp: stamp, passing: None }
    }

    fn images(&self) -> Vec<Contents> {
        let of = |bytes: &Vec<u8>, stamp| Contents {
            visible: bytes.clone(),
            durable: bytes.clone(),
            stamp,
            durable_stamp: stamp,
            passing: None,
        };
        let mut images = vec![of(&self.durable, self.durable_stamp)];
        if self.stamp != self.durable_stamp {
            images.push(of(&self.visible, self.stamp));
        }
        images.extend(self.passing.map(|mark| of(&self.durable, mark)));
        images
    }
}
