//! Write caches that hold blocks their volume lacks, or that cannot be had.

use crate::{Exit, Report};
use std::path::Path;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_server::failure::WriteCacheFailure;

impl From<&WriteCacheFailure> for Report {
    fn from(failure: &WriteCacheFailure) -> Report {
        let what = failure.to_string();
        match failure {
            WriteCacheFailure::NotCompleted { cache, why, .. } => not_completed(what, cache, why),
            WriteCacheFailure::ReadOnly { path, cache } => left_read_only(what, path, cache),
            WriteCacheFailure::Damaged { path, cache } => left_damaged(what, path, cache),
            WriteCacheFailure::Mirrored { .. } => mirrored(what),
            WriteCacheFailure::NoRoom { cache, bytes, .. } => no_room(what, cache, *bytes),
            WriteCacheFailure::NotDrained { path, why, .. } => not_drained(what, path, why),
        }
    }
}

fn not_completed(what: String, cache: &Path, why: &str) -> Report {
    let next = format!("keep {}: it is the only copy; if nobody needs the blocks, remove it", cache.display());
    Report::new(("cache-not-completed", Exit::Refused), what, why, next)
}

fn left_read_only(what: String, path: &Path, cache: &Path) -> Report {
    let why = format!("{} holds them, and the volume is not to be changed", cache.display());
    let next = format!("serve it once without --read-only, which completes it: tidegate serve --pmem {}", word(path));
    Report::new(("cache-left", Exit::Refused), what, why, next)
}

fn left_damaged(what: String, path: &Path, cache: &Path) -> Report {
    let why = format!("{} holds them, and the volume is too damaged to be written", cache.display());
    let next = format!(
        "keep a copy of the volume, then repair it and serve it, which completes it: tidegate check --repair --pmem {}",
        word(path)
    );
    Report::new(("cache-left", Exit::Refused), what, why, next)
}

fn mirrored(what: String) -> Report {
    let why = "it is mirrored, and blocks in a write cache would be in one memory only";
    let next = "leave the write cache out: --write-cache off, or write_cache = \"off\" in a configuration file";
    Report::new(("cache-mirrored", Exit::Usage), what, why, next)
}

fn no_room(what: String, cache: &Path, bytes: u64) -> Report {
    let why = format!("{bytes} bytes ({}) have no room in {}", Human(bytes), cache.display());
    let next = "ask for a smaller one, or for none: --write-cache off";
    Report::new(("cache-no-space", Exit::Environment), what, why, next)
}

fn not_drained(what: String, path: &Path, why: &str) -> Report {
    let path = word(path);
    let next = format!("do not switch the machine off; see dmesg, then serve it again: tidegate serve --pmem {path}");
    Report::new(("not-drained", Exit::Environment), what, why, next)
}
