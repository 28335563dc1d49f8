//! Numbers that kernel and server give to nodes, open files and requests.

use crate::wire::UNIQUE_RESEND;

/// The kernel's number of a node. The server chose it when the name was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The server's number of an open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// The kernel's number of a request, which the reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unique(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: NodeId = NodeId(1);
}

impl Unique {
    /// Returns whether the kernel sends the request again, because the server died before it
    /// answered.
    pub const fn is_resent(self) -> bool {
        self.0 & UNIQUE_RESEND != 0
    }

    /// Returns the number under which the request was sent first.
    pub const fn first_sent(self) -> Unique {
        Unique(self.0 & !UNIQUE_RESEND)
    }
}
