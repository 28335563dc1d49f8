//! Volumes and caches that are never possible.

use crate::{Exit, Report};
use tidegate_host::units::Exact;
use tidegate_layout::btt::{SECTOR_SIZES, Version};
use tidegate_layout::disk_cache::{CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN};
use tidegate_server::failure::CreateFailure;

impl From<&CreateFailure> for Report {
    fn from(failure: &CreateFailure) -> Report {
        let what = failure.to_string();
        match failure {
            CreateFailure::SizeNotMultiple { size } => size_not_multiple(what, *size),
            CreateFailure::SizeTooSmall { min, version, .. } => size_too_small(what, *min, *version),
            CreateFailure::SizeMissing => size_missing(what),
            CreateFailure::CacheTooSmall { min, .. } => cache_too_small(what, *min),
            CreateFailure::CacheBlockSize { .. } => cache_block_size(what),
            CreateFailure::BlockSize { .. } => block_size(what),
            CreateFailure::OwnDisk => own_disk(what),
        }
    }
}

fn size_not_multiple(what: String, size: u64) -> Report {
    let less = size / 4096 * 4096;
    let next = match size.checked_next_multiple_of(4096) {
        Some(more) => format!("use --size {less} or --size {more}"),
        None => format!("use --size {less}"),
    };
    let why = "a region is made of whole pages of 4096 bytes";
    Report::new(("size-not-multiple", Exit::Usage), what, why, next)
}

fn size_too_small(what: String, min: u64, version: Version) -> Report {
    let why = format!("BTT {version} needs at least {min} bytes ({}) for one arena", Exact(min));
    Report::new(("size-too-small", Exit::Usage), what, why, format!("use --size {min} or more"))
}

fn size_missing(what: String) -> Report {
    Report::new(("size-missing", Exit::Usage), what, "only a device knows its own size", "give one: --size 1G")
}

fn cache_too_small(what: String, min: u64) -> Report {
    let why = "it has to hold a ring, entries and some blocks";
    Report::new(("size-too-small", Exit::Usage), what, why, format!("use --size {min} or more"))
}

fn cache_block_size(what: String) -> Report {
    let next = "leave --block out, which is 4096, or use a power of two";
    Report::new(("bad-block-size", Exit::Usage), what, "they are powers of two from 512 to 65536", next)
}

/// Of a block size that the format does not have.
pub fn block_size(what: String) -> Report {
    let next = format!(
        "use one of {}; with --disk a power of two from {CACHE_BLOCK_BYTES_MIN} to {CACHE_BLOCK_BYTES_MAX}",
        SECTOR_SIZES.map(|size| size.to_string()).join(", ")
    );
    Report::new(("bad-block-size", Exit::Usage), what, "Linux's driver and this program know no other", next)
}

fn own_disk(what: String) -> Report {
    let why = "a region caches a disk other than itself";
    Report::new(("same-file", Exit::Usage), what, why, "name a new file for the region: --pmem FILE")
}
