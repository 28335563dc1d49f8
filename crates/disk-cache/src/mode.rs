//! What is done with reads and writes, by name.

use std::fmt;
use std::str::FromStr;

/// How a cache treats what passes through it. Whatever the mode, a cached block is read from the
/// cache, and a cached block that is written is written there too: the cache never holds an older
/// content than the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A write is complete when it is in persistent memory; the disk gets it later. Blocks that are
    /// read are taken in.
    #[default]
    WriteBack,
    /// A write is complete when it is in persistent memory and, flushed, on the disk. Blocks that
    /// are read are taken in.
    WriteThrough,
    /// Writes of blocks that are not cached go to the disk, and are complete when it has flushed
    /// them; if it fails, they go to the cache. Blocks that are read are taken in.
    WriteAround,
    /// As write-back, but blocks that are read are not taken in.
    WriteOnly,
    /// As write-around, but blocks that are read are not taken in: nothing comes into the cache.
    PassThrough,
    /// Writes are refused. Blocks that are read are taken in.
    ReadOnly,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 6] =
        [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly, Mode::PassThrough, Mode::ReadOnly];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::WriteBack => "write-back",
            Mode::WriteThrough => "write-through",
            Mode::WriteAround => "write-around",
            Mode::WriteOnly => "write-only",
            Mode::PassThrough => "pass-through",
            Mode::ReadOnly => "read-only",
        }
    }

    /// Whether a write is complete while only the cache has it, although the disk would take it.
    pub fn completes_before_the_disk(self) -> bool {
        matches!(self, Mode::WriteBack | Mode::WriteOnly)
    }

    /// Whether blocks that are read are taken in.
    pub(crate) fn takes_reads_in(self) -> bool {
        !matches!(self, Mode::WriteOnly | Mode::PassThrough)
    }

    /// Whether writes of blocks that are not cached go past the cache.
    pub(crate) fn writes_around(self) -> bool {
        matches!(self, Mode::WriteAround | Mode::PassThrough)
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            Mode::WriteBack => 0,
            Mode::WriteThrough => 1,
            Mode::WriteAround => 2,
            Mode::WriteOnly => 3,
            Mode::PassThrough => 4,
            Mode::ReadOnly => 5,
        }
    }

    pub(crate) fn numbered(number: u32) -> Mode {
        Mode::ALL.into_iter().find(|mode| mode.number() == number).expect("only numbers of modes are stored")
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no mode of a cache: write-back, write-through, write-around, write-only, pass-through and read-only are"
)]
pub struct NoMode(String);

impl FromStr for Mode {
    type Err = NoMode;

    fn from_str(word: &str) -> Result<Mode, NoMode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == word).ok_or_else(|| NoMode(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_has_a_name_and_a_number() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(Mode::numbered(mode.number()), mode);
        }
        assert!("writeback".parse::<Mode>().is_err());
    }
}
