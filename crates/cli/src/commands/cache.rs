//! Commands about a region in front of a disk.

pub(crate) mod detach;
pub(crate) mod flush;
pub(crate) mod mode;
pub(crate) mod replay;
pub(crate) mod resize;
pub(crate) mod salvage;
pub(crate) mod scrub;
