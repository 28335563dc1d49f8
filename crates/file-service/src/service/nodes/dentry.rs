//! Directory entries, by which nodes are found.

use tidegate_fuse::NodeId;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dentry {
    pub(crate) parent: NodeId,
    pub(crate) name: Box<[u8]>,
}

impl Dentry {
    pub(crate) fn new(parent: NodeId, name: &[u8]) -> Dentry {
        Dentry { parent, name: name.into() }
    }
}
