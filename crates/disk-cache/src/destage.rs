//! Destaging: how dirty blocks, and those that go past the cache, reach the disk.

pub(crate) mod destager;
pub(crate) mod disk_journal;
pub(crate) mod disk_writes;
pub(crate) mod first_blocks;
pub(crate) mod help;
pub(crate) mod order;
pub(crate) mod ordered;
pub(crate) mod step;
pub(crate) mod sweep;
pub(crate) mod write_around;
