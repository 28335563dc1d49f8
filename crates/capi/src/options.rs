//! Options as a C program names them: `word=value`, parted by commas, with the words and values of
//! the command line.

use std::str::FromStr;
use tidegate_disk_cache::{Checksums, Conflicts, Guard, Options, Reads};

/// A list of options that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoOption {
    /// A word that is none.
    #[error("{0:?} is no option here; there are {1}")]
    Word(String, &'static str),
    /// A value that its word does not have.
    #[error("{0:?} is no value of the option {1}: {2}")]
    Value(String, &'static str, &'static str),
}

const OF_OPENING: &str = "disk-mode, replacement, admit, sequential-cutoff, forget-reads and conflicts";
const OF_MAKING: &str = "checksums, ordered and force";

/// How a cache of blocks of `block_size` bytes is opened by `words`; what they do not name stays as
/// it usually is.
pub(crate) fn of_opening(words: &str, block_size: u32) -> Result<Options, NoOption> {
    let mut options = Options { guard: Guard::Always, ..Options::default() };
    for (word, value) in pairs(words) {
        match word {
            "disk-mode" => {
                let modes = "write-back, write-through, write-around, write-only, pass-through or read-only";
                options.mode = read(value, "disk-mode", modes)?;
            }
            "replacement" => options.replacement = read(value, "replacement", "lru, clock, sieve, 2q or s3-fifo")?,
            "admit" => options.admit = read(value, "admit", "always, never or second-miss")?,
            "sequential-cutoff" => {
                let bytes: u64 = read(value, "sequential-cutoff", "a number of bytes; 0: no run is too long")?;
                let blocks = bytes.div_ceil(u64::from(block_size));
                options.sequential_blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            }
            "forget-reads" => {
                options.reads = if is_on(value, "forget-reads")? { Reads::Forgotten } else { Reads::Kept }
            }
            "conflicts" => {
                options.conflicts = match value {
                    "last-wins" => Conflicts::LastWins,
                    "refuse" => Conflicts::Refuse,
                    other => return Err(NoOption::Value(other.to_owned(), "conflicts", "last-wins or refuse")),
                }
            }
            other => return Err(NoOption::Word(other.to_owned(), OF_OPENING)),
        }
    }
    Ok(options)
}

/// What a cache is made to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Making {
    /// Whether it has checksums of its blocks.
    pub(crate) sums: Checksums,
    /// Whether its disk keeps the order of commits.
    pub(crate) ordered: bool,
    /// Whether the disk may have the journal of another cache, and hold something where its own
    /// will lie.
    pub(crate) force: bool,
}

/// What `words` say of a cache that is to be made.
pub(crate) fn of_making(words: &str) -> Result<Making, NoOption> {
    let mut making = Making { sums: Checksums::Absent, ordered: false, force: false };
    for (word, value) in pairs(words) {
        match word {
            "checksums" => making.sums = if is_on(value, "checksums")? { Checksums::Kept } else { Checksums::Absent },
            "ordered" => making.ordered = is_on(value, "ordered")?,
            "force" => making.force = is_on(value, "force")?,
            other => return Err(NoOption::Word(other.to_owned(), OF_MAKING)),
        }
    }
    Ok(making)
}

fn is_on(value: &str, word: &'static str) -> Result<bool, NoOption> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(NoOption::Value(other.to_owned(), word, "on or off")),
    }
}

/// Words and their values; a word alone has an empty one.
fn pairs(words: &str) -> impl Iterator<Item = (&str, &str)> {
    let some = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    some.map(|word| word.split_once('=').unwrap_or((word, "")))
}

fn read<T: FromStr>(value: &str, word: &'static str, values: &'static str) -> Result<T, NoOption> {
    value.parse().map_err(|_| NoOption::Value(value.to_owned(), word, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_disk_cache::Mode;

    #[test]
    fn words_change_what_they_name_and_nothing_else() {
        let options = of_opening("disk-mode=write-through, conflicts=refuse,sequential-cutoff=8193", 4096).unwrap();
        let usual = Options { guard: Guard::Always, ..Options::default() };
        assert_eq!((options.mode, options.conflicts), (Mode::WriteThrough, Conflicts::Refuse));
        assert_eq!(options.sequential_blocks, 3);
        assert_eq!((options.replacement, options.admit), (usual.replacement, usual.admit));
        assert_eq!((of_opening("", 4096).unwrap(), options.reads), (usual, Reads::Kept));
        assert_eq!(of_opening("forget-reads=on", 4096).unwrap(), Options { reads: Reads::Forgotten, ..usual });
        let making = |sums, ordered| Ok(Making { sums, ordered, force: false });
        assert_eq!(
            (of_making("checksums=on"), of_making("")),
            (making(Checksums::Kept, false), making(Checksums::Absent, false))
        );
        assert_eq!(of_making("ordered=on,checksums=off"), making(Checksums::Absent, true));
        assert!(of_making("force=on").unwrap().force);
    }

    #[test]
    fn every_value_in_a_message_is_one() {
        for (word, values) in [
            ("replacement", "lru, clock, sieve, 2q or s3-fifo"),
            ("admit", "always, never or second-miss"),
            ("forget-reads", "on or off"),
            ("disk-mode", "write-back, write-through, write-around, write-only, pass-through or read-only"),
        ] {
            let refused = of_opening(&format!("{word}=x"), 4096).unwrap_err().to_string();
            assert!(refused.ends_with(values), "{refused}");
            for value in values.replace(" or ", ", ").split(", ") {
                of_opening(&format!("{word}={value}"), 4096).unwrap();
            }
        }
        assert!(of_opening("mode=lru", 512).unwrap_err().to_string().contains("\"mode\" is no option here"));
        for word in ["checksums", "ordered", "ordered=yes", "force"] {
            assert!(of_making(word).unwrap_err().to_string().contains("on or off"));
        }
    }
}
