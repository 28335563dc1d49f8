//! The contents of a region before a volume is laid out in it.

/// What the region holds before it is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Zeroes, everywhere.
    Zeroed,
    /// Anything.
    Unknown,
}
