//! Records of what happens to nodes: a server that replays them has the nodes of the one before.

use crate::service::nodes::dentry::Dentry;
use std::io;
use tidegate_file_cache::FileIdentity;
use tidegate_fuse::NodeId;

/// One change of the nodes, or a part of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeRecord {
    /// A dentry was looked up.
    Entered { dentry: Dentry, identity: FileIdentity },
    /// The kernel was told of a file without a name, which the descriptor `key` reaches.
    EnteredUnnamed { identity: FileIdentity, key: u64 },
    /// The kernel counts so many lookups less.
    Forgotten { node: NodeId, count: u64 },
    /// A dentry went. The descriptor `key` reaches its node if that was the last one; 0: none does.
    Unlinked { dentry: Dentry, key: u64 },
    /// A dentry has another name.
    Renamed { from: Dentry, to: Dentry },
    /// Two dentries exchanged their files.
    Exchanged { one: Dentry, other: Dentry },
    /// A node without a name is reached by the descriptor `key` now.
    Kept { node: NodeId, key: u64 },
    /// Snapshot: a node, without dentries.
    Node { node: NodeId, identity: FileIdentity, lookups: u64, key: u64 },
    /// Snapshot: a dentry of a node.
    Placed { node: NodeId, dentry: Dentry },
    /// Snapshot: the number of the next fresh node.
    Next(NodeId),
}

impl NodeRecord {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = RecordWriter::default();
        match self {
            NodeRecord::Entered { dentry, identity } => bytes.tag(1).identity(*identity).dentry(dentry),
            NodeRecord::EnteredUnnamed { identity, key } => bytes.tag(2).identity(*identity).word(*key),
            NodeRecord::Forgotten { node, count } => bytes.tag(3).word(node.0).word(*count),
            NodeRecord::Unlinked { dentry, key } => bytes.tag(4).word(*key).dentry(dentry),
            NodeRecord::Renamed { from, to } => bytes.tag(5).dentry(from).dentry(to),
            NodeRecord::Exchanged { one, other } => bytes.tag(6).dentry(one).dentry(other),
            NodeRecord::Node { node, identity, lookups, key } => {
                bytes.tag(7).word(node.0).identity(*identity).word(*lookups).word(*key)
            }
            NodeRecord::Placed { node, dentry } => bytes.tag(8).word(node.0).dentry(dentry),
            NodeRecord::Next(node) => bytes.tag(9).word(node.0),
            NodeRecord::Kept { node, key } => bytes.tag(10).word(node.0).word(*key),
        };
        bytes.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> io::Result<NodeRecord> {
        read(&mut RecordReader(bytes)).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }
}

fn read(bytes: &mut RecordReader<'_>) -> Option<NodeRecord> {
    let record = match bytes.tag()? {
        1 => {
            let identity = bytes.identity()?;
            NodeRecord::Entered { identity, dentry: bytes.dentry()? }
        }
        2 => NodeRecord::EnteredUnnamed { identity: bytes.identity()?, key: bytes.word()? },
        3 => NodeRecord::Forgotten { node: bytes.node()?, count: bytes.word()? },
        4 => NodeRecord::Unlinked { key: bytes.word()?, dentry: bytes.dentry()? },
        5 => NodeRecord::Renamed { from: bytes.dentry()?, to: bytes.dentry()? },
        6 => NodeRecord::Exchanged { one: bytes.dentry()?, other: bytes.dentry()? },
        7 => NodeRecord::Node {
            node: bytes.node()?,
            identity: bytes.identity()?,
            lookups: bytes.word()?,
            key: bytes.word()?,
        },
        8 => NodeRecord::Placed { node: bytes.node()?, dentry: bytes.dentry()? },
        9 => NodeRecord::Next(bytes.node()?),
        10 => NodeRecord::Kept { node: bytes.node()?, key: bytes.word()? },
        _ => return None,
    };
    bytes.0.is_empty().then_some(record)
}

/// Writes the parts of a record.
#[derive(Default)]
pub(crate) struct RecordWriter(pub(crate) Vec<u8>);

impl RecordWriter {
    pub(crate) fn tag(&mut self, tag: u8) -> &mut RecordWriter {
        self.0.push(tag);
        self
    }

    pub(crate) fn word(&mut self, word: u64) -> &mut RecordWriter {
        self.0.extend(word.to_le_bytes());
        self
    }

    fn identity(&mut self, identity: FileIdentity) -> &mut RecordWriter {
        self.word(identity.device).word(identity.inode).word(identity.generation)
    }

    fn dentry(&mut self, dentry: &Dentry) -> &mut RecordWriter {
        self.word(dentry.parent.0).word(dentry.name.len() as u64);
        self.0.extend(&*dentry.name);
        self
    }
}

/// Reads the parts of a record.
pub(crate) struct RecordReader<'r>(pub(crate) &'r [u8]);

impl RecordReader<'_> {
    pub(crate) fn tag(&mut self) -> Option<u8> {
        let (tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*tag)
    }

    pub(crate) fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub(crate) fn node(&mut self) -> Option<NodeId> {
        self.word().map(NodeId)
    }

    fn identity(&mut self) -> Option<FileIdentity> {
        Some(FileIdentity { device: self.word()?, inode: self.word()?, generation: self.word()? })
    }

    fn dentry(&mut self) -> Option<Dentry> {
        let (parent, len) = (self.node()?, usize::try_from(self.word()?).ok()?);
        let (name, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(Dentry { parent, name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_part_of_it_is_one() {
        let dentry = |name: &[u8]| Dentry::new(NodeId(7), name);
        let identity = FileIdentity { device: 1, inode: 2, generation: u64::MAX };
        let records = [
            NodeRecord::Entered { dentry: dentry(b"a"), identity },
            NodeRecord::EnteredUnnamed { identity, key: 3 },
            NodeRecord::Forgotten { node: NodeId(9), count: 4 },
            NodeRecord::Unlinked { dentry: dentry(&[0xff; 255]), key: 0 },
            NodeRecord::Renamed { from: dentry(b"old"), to: dentry(b"") },
            NodeRecord::Exchanged { one: dentry(b"x"), other: dentry(b"y") },
            NodeRecord::Node { node: NodeId(5), identity, lookups: 6, key: 7 },
            NodeRecord::Placed { node: NodeId(5), dentry: dentry(b"b") },
            NodeRecord::Next(NodeId(10)),
            NodeRecord::Kept { node: NodeId(11), key: 12 },
        ];
        for record in records {
            let bytes = record.to_bytes();
            assert_eq!(NodeRecord::from_bytes(&bytes).expect("whole"), record);
            assert!((0..bytes.len()).all(|len| NodeRecord::from_bytes(&bytes[..len]).is_err()));
        }
    }
}
