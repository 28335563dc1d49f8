//! Attempts on files that the system refused.

use std::fmt;

/// What was tried on a file when the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Making a new file.
    Create,
    /// Opening it for writing.
    Write,
    /// Opening it for reading.
    Read,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doing::Create => "create",
            Doing::Write => "write",
            Doing::Read => "read",
        })
    }
}
