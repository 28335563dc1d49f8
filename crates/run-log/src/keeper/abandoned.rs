//! Files whose writers cannot all be seen: nobody holds them while they exist.
//!
//! A file is known by its number and its birth, as a file system gives the number of a file that is
//! removed to the next one that is made. Whoever abandons a file has it open or mapped, or knows it
//! to be held, so the number is no other file's before the answer; and what is known of a number's
//! older file is of no use to anybody then. Where either birth is unknown, or they do not tell
//! which file is the older one, as the clock may have been set back, it is all files with the
//! number.

use std::collections::HashMap;
use tidegate_preload_wire::FileId;

/// The abandoned files, or names of files. A name is born with its folder.
#[derive(Default)]
pub(super) struct Abandoned(HashMap<FileId, Whose>);

#[derive(Clone, Copy)]
enum Whose {
    /// It was born then.
    BornNs(i128),
    /// Whichever has the number.
    Any,
}

impl Abandoned {
    /// Abandons `file`, which was born at `born_ns`, if that is known.
    pub(super) fn insert(&mut self, file: FileId, born_ns: Option<i128>) {
        let whose = match (self.0.get(&file), born_ns) {
            (None, Some(born)) => Whose::BornNs(born),
            (Some(Whose::BornNs(known)), Some(born)) if *known <= born => Whose::BornNs(born),
            _ => Whose::Any,
        };
        self.0.insert(file, whose);
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether `file` is abandoned, which was born at `born_ns`.
    pub(super) fn has(&self, file: FileId, born_ns: i128) -> bool {
        self.0.get(&file).is_some_and(|whose| match whose {
            Whose::BornNs(born) => *born == born_ns,
            Whose::Any => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: 3, inode: 4 };

    #[test]
    fn the_next_file_with_the_number_may_be_held() {
        let mut abandoned = Abandoned::default();
        abandoned.insert(FILE, Some(10));
        assert!(abandoned.has(FILE, 10) && !abandoned.has(FILE, 11));
        assert!(!abandoned.has(FileId { inode: 5, ..FILE }, 10));
        abandoned.insert(FILE, Some(11));
        assert!(abandoned.has(FILE, 11) && !abandoned.has(FILE, 12));
    }

    #[test]
    fn a_file_that_is_not_known_by_its_birth_is_abandoned_by_its_number() {
        let mut abandoned = Abandoned::default();
        abandoned.insert(FILE, None);
        assert!(abandoned.has(FILE, 10));
        abandoned.insert(FILE, Some(10));
        assert!(abandoned.has(FILE, 11), "it may have been either");
        let mut abandoned = Abandoned::default();
        abandoned.insert(FILE, Some(10));
        abandoned.insert(FILE, Some(9));
        assert!(abandoned.has(FILE, 9) && abandoned.has(FILE, 10), "the clock was set back");
    }
}
