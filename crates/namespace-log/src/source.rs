//! The seam below: the served directory, as the log and the recovery of names use it.

use tidegate_file_cache::Refused;
use tidegate_layout::file_cache::{NameChange, NodeIdentity};

/// What SOURCE says of the operations that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Identity of the pool whose log is meant.
    pub pool: [u8; 16],
    /// SOURCE has every operation whose record lies before this place.
    pub place: u64,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundNode {
    /// Which inode.
    pub node: NodeIdentity,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// Whether nothing is lost with it: true for all but a file with bytes and a directory with
    /// names.
    pub empty: bool,
}

/// The served directory on its file system. Paths begin at it and never leave it, symbolic links
/// are not followed. Operations are visible at once, and durable as `docs/media-model.md` says.
pub trait NamespaceSource: Send + Sync {
    /// The witness, if there is one.
    fn witness(&self) -> Result<Option<Witness>, Refused>;

    /// Stores the witness with an operation of the file system's own journal, such as setting an
    /// extended attribute of the served directory. It needs no room if there is a witness already.
    fn set_witness(&self, witness: &Witness) -> Result<(), Refused>;

    /// What is at a path. `Ok(None)`: nothing is, or one of the path's directories is missing.
    fn look_up(&self, path: &[u8]) -> Result<Option<FoundNode>, Refused>;

    /// Does an operation again. It replaces nothing but the inode that the operation says. Removing
    /// an extended attribute that is not there succeeds.
    fn carry_out(&self, change: &NameChange<'_>) -> Result<(), Refused>;

    /// Makes every operation durable that was done before, as `syncfs` does.
    fn sync(&self) -> Result<(), Refused>;
}
