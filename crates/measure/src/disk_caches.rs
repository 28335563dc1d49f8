//! Disk caches to measure, freshly formatted.

use crate::medium::{self, OVERHEAD_BYTES, WALK_BYTES};
use crate::subject::BLOCK_BYTES;
use anyhow::Context;
use std::sync::Arc;
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, NoDisk, Options, format};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{BlockDevice, InTurn, MappedRegion, Region};

/// A cache that holds all of a disk that is not there: whatever is written hits, once it was
/// written before.
pub fn whole_disk_cached<R: Region>(region: R) -> anyhow::Result<(DiskCache<R>, CachePlan)> {
    let disk_blocks = WALK_BYTES / BLOCK_BYTES as u64;
    let disk = NoDisk::new(disk_blocks, 4096);
    opened(region, disk_blocks, FormatSpec::RING_SLOTS, InTurn(disk))
}

/// Returns such a cache in memory of this machine.
pub fn whole_disk_cached_here() -> anyhow::Result<(DiskCache<MappedRegion>, CachePlan)> {
    whole_disk_cached(medium::region(WALK_BYTES + 2 * OVERHEAD_BYTES)?)
}

/// Formats `region` as a cache in front of `disk` and opens it.
pub fn opened<R: Region, D: BlockDevice + 'static>(
    region: R,
    disk_blocks: u64,
    ring_slots: u32,
    disk: InTurn<D>,
) -> anyhow::Result<(DiskCache<R>, CachePlan)> {
    opened_with(Options::default(), region, disk_blocks, ring_slots, disk)
}

/// Formats `region` as a cache in front of `disk` and opens it with `options`.
pub fn opened_with<R: Region, D: BlockDevice + 'static>(
    options: Options,
    region: R,
    disk_blocks: u64,
    ring_slots: u32,
    disk: InTurn<D>,
) -> anyhow::Result<(DiskCache<R>, CachePlan)> {
    let spec = FormatSpec { block_size: 4096, disk_blocks, ring_slots, uuid: [7; 16], disk: [7; 32] };
    format(&region, &spec, Contents::Zeroed)?;
    let plan = CachePlan::fitting(region.len(), 4096, disk_blocks, ring_slots).context("a cache fits")?;
    Ok((DiskCache::open(region, Arc::new(disk), options)?, plan))
}
