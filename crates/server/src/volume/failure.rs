//! Why no volume is made, or blocks of one are not in its region.

use std::path::PathBuf;
use tidegate_host::units::Human;
use tidegate_layout::btt::Version;

/// Why blocks of a volume are in its write cache and not in its region, or why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum WriteCacheFailure {
    /// A killed server left them, and they could not be written.
    #[error("{} lacks blocks that a killed server left in {}", path.display(), cache.display())]
    NotCompleted {
        /// The region file.
        path: PathBuf,
        /// The cache's file.
        cache: PathBuf,
        /// What was in the way.
        why: String,
    },
    /// A killed server left them, and the volume is not to be changed.
    #[error("{} lacks blocks that a killed server left in its cache", path.display())]
    ReadOnly {
        /// The region file.
        path: PathBuf,
        /// The cache's file.
        cache: PathBuf,
    },
    /// A killed server left them, and the volume is damaged: it must not be written before it was
    /// repaired.
    #[error("{} lacks blocks that a killed server left in its cache", path.display())]
    Damaged {
        /// The region file.
        path: PathBuf,
        /// The cache's file.
        cache: PathBuf,
    },
    /// A mirrored volume was to have a cache.
    #[error("{} cannot have a write cache", path.display())]
    Mirrored {
        /// One side.
        path: PathBuf,
    },
    /// There is no room for a cache of the size that was asked for.
    #[error("{} cannot have that cache", path.display())]
    NoRoom {
        /// The region file.
        path: PathBuf,
        /// The cache's file.
        cache: PathBuf,
        /// Bytes of that file.
        bytes: u64,
    },
    /// The region failed while the cache was drained.
    #[error("{bytes} bytes ({}) of {} are still in {}", Human(*bytes), path.display(), cache.display())]
    NotDrained {
        /// The region file.
        path: PathBuf,
        /// The cache's file.
        cache: PathBuf,
        /// Bytes that are only there.
        bytes: u64,
        /// What the region answered.
        why: String,
    },
}

/// Why no volume or cache of that form is made.
#[derive(Debug, thiserror::Error)]
pub enum CreateFailure {
    /// A size that is not a multiple of a page.
    #[error("a region of {size} bytes is not a multiple of 4096")]
    SizeNotMultiple {
        /// The size, in bytes.
        size: u64,
    },
    /// A size too small for one arena.
    #[error("a region of {size} bytes is too small")]
    SizeTooSmall {
        /// The size, in bytes.
        size: u64,
        /// The smallest region, in bytes.
        min: u64,
        /// The version it is smallest for.
        version: Version,
    },
    /// No size, and no device that knows its own.
    #[error("no size was given for the region file")]
    SizeMissing,
    /// A size too small for a cache of a disk.
    #[error("a region of {size} bytes is too small for a cache")]
    CacheTooSmall {
        /// The size, in bytes.
        size: u64,
        /// The smallest region, in bytes.
        min: u64,
    },
    /// A block size that caches of disks do not have.
    #[error("a cache has no blocks of {size} bytes")]
    CacheBlockSize {
        /// The size, in bytes.
        size: u32,
    },
    /// A block size the format does not have.
    #[error("\"{size}\" is no block size of the format")]
    BlockSize {
        /// The size, in bytes.
        size: u32,
    },
    /// A region that is to be in front of itself.
    #[error("the region and the disk are the same file")]
    OwnDisk,
}
