//! Answers for people in two columns: a name and a value.

use std::fmt::{Display, Formatter, Result};

/// Writes one line of an answer: a name and a value.
pub fn line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> Result {
    writeln!(f, "{name:<10} {value}")
}
