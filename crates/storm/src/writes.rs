//! Writes of a storm's clients with their instants, and the modes of a disk cache.

use tidegate_disk_cache::Mode;
use tidegate_media::Lba;
use tidegate_sim::{Content, Rng};

/// Modes that clients choose from; those more often in which most goes on.
const MODES: [Mode; 10] = [
    Mode::WriteBack,
    Mode::WriteBack,
    Mode::WriteBack,
    Mode::WriteThrough,
    Mode::WriteThrough,
    Mode::WriteOnly,
    Mode::WriteAround,
    Mode::WriteAround,
    Mode::PassThrough,
    Mode::ReadOnly,
];

/// Any mode.
pub(crate) fn any_mode(rng: &mut Rng) -> Mode {
    MODES[rng.index(MODES.len())]
}

/// Changes of a cache's mode in a life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    /// Changes that have begun, and those that have ended.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// Whether writes may have gone past the cache.
    pub(crate) went_past: bool,
    /// Whether the disk keeps the order of commits: then none do.
    pub(crate) in_order: bool,
}

impl Modes {
    /// Whether writes of blocks that are not cached go to the disk.
    pub(crate) fn writes_past(self, mode: Mode) -> bool {
        !self.in_order && matches!(mode, Mode::WriteAround | Mode::PassThrough)
    }
}

/// Writes to some blocks, and when.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Whose they are.
    pub(crate) by: u32,
    /// None if they were withdrawn.
    pub(crate) lbas: Vec<Lba>,
    /// What is written to them, unless it is zeroes.
    pub(crate) contents: Vec<Content>,
    pub(crate) kind: Kind,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Whether they are put in place together, or not at all.
    pub(crate) together: bool,
    /// Whether they went well in a mode that brings them to the disk at once.
    pub(crate) through: bool,
}

/// How writes are put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As one, whatever the mode.
    AsOne,
    /// Past the cache block by block, if the mode has it so.
    InPieces,
}
