//! The account of one step of destaging, which a cache gives to its thread.

use tidegate_media::{Error, Lba};

/// What a step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Blocks that the disk has now.
    pub cleaned: u32,
    /// Blocks that it refused, and why.
    pub refused: Vec<(Lba, Error)>,
    /// Why it could not make durable what was written, if so.
    pub not_durable: Option<Error>,
    /// Whether the sweep goes on behind this step.
    pub more: bool,
}
