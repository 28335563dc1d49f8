//! What a storm's stack stands on.

use clap::ValueEnum;
use tidegate_sim::mix;

/// What lies below the cache, and what the clients use if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Base {
    /// A block translation table on persistent memory.
    Table,
    /// A disk with a volatile cache.
    Disk,
    /// A transactional cache in persistent memory, before such a disk.
    DiskCache,
    /// A transactional cache in persistent memory, before a disk that keeps the order of commits.
    OrderedDisk,
    /// No block device at all: files behind a pool in persistent memory. No seed chooses it.
    Files,
}

impl Base {
    /// The one that `seed` chooses.
    pub fn of(seed: u64) -> Base {
        match mix(seed ^ 0xba5e) % 6 {
            0 => Base::Disk,
            1 | 2 if mix(seed ^ 0x0de2).is_multiple_of(3) => Base::OrderedDisk,
            1 | 2 => Base::DiskCache,
            _ => Base::Table,
        }
    }

    /// The one that `seed` chooses of those with a write cache before them.
    pub(crate) fn of_write_cache(seed: u64) -> Base {
        if mix(seed ^ 0xba5e).is_multiple_of(4) { Base::Disk } else { Base::Table }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Base::Table => "table",
            Base::Disk => "disk",
            Base::DiskCache => "disk-cache",
            Base::OrderedDisk => "ordered-disk",
            Base::Files => "files",
        }
    }

    /// Whether there is a disk cache.
    pub(crate) fn has_disk_cache(self) -> bool {
        matches!(self, Base::DiskCache | Base::OrderedDisk)
    }
}
