//! Where programs have their files, and what rows about them say is missing.

pub(crate) use tidegate_measure::testbed::{Running, Storage, Talker, Testbed};

use crate::served::server;
use crate::target::Outcome;
use tidegate_measure::testbed::temporary_in_memory;

/// What brings all programs of the topic.
const REMEDY: &str = "apt-get install redis-server redis-tools sqlite3 rocksdb-tools fio";

/// An outcome that says what is missing: one of `programs`, or a disk.
pub(crate) fn missing(programs: &[&str]) -> Option<Outcome> {
    let no_disk = || {
        let temporary = temporary_in_memory()?;
        Some(Outcome::missing("a disk", format!("TMPDIR names a folder on one; {} is memory", temporary.display())))
    };
    server::missing(programs, REMEDY).or_else(no_disk)
}
