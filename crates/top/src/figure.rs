//! A number of the table, or why there is none.

use serde::{Serialize, Serializer};

/// A number of the table, or why there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Figure {
    /// The number.
    Known(f64),
    /// It needs a second sample.
    Awaited,
    /// The source has no such number, or nothing happened that has one.
    #[default]
    Absent,
}

impl Figure {
    /// The number, if it is known.
    pub(crate) fn known(self) -> Option<f64> {
        if let Figure::Known(number) = self { Some(number) } else { None }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.known().serialize(serializer)
    }
}
