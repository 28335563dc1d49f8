//! What is done with reads and writes, by name.

use std::fmt;
use std::str::FromStr;

/// How a cache treats what passes through it. Whatever the mode, what is cached and dirty is answered from the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A write is complete when it is in persistent memory; the disk gets it later.
    #[default]
    WriteBack,
    /// A write is complete when it is in persistent memory and, flushed, on the disk.
    WriteThrough,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 2] = [Mode::WriteBack, Mode::WriteThrough];

    pub(crate) fn number(self) -> u32 {
        match self {
            Mode::WriteBack => 0,
            Mode::WriteThrough => 1,
        }
    }

    pub(crate) fn numbered(number: u32) -> Mode {
        Mode::ALL.into_iter().find(|mode| mode.number() == number).expect("only numbers of modes are stored")
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::WriteBack => "write-back",
            Mode::WriteThrough => "write-through",
        })
    }
}

/// A word that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no mode of a cache")]
pub struct NoMode(String);

impl FromStr for Mode {
    type Err = NoMode;

    fn from_str(word: &str) -> Result<Mode, NoMode> {
        Mode::ALL.into_iter().find(|mode| mode.to_string() == word).ok_or_else(|| NoMode(word.to_owned()))
    }
}
