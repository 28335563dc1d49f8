//! Answers for people in two columns: a name and a value.

use crate::shell::{Ends, shown};
use std::fmt::{Display, Formatter, Result};

/// Writes one line of an answer: a name and a value, whose paths begin no line of their own.
pub fn line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> Result {
    writeln!(f, "{name:<10} {}", shown(&value.to_string(), Ends::OfNothing))
}
