//! Completion: what a killed process left in its slots is written to the device.

use std::collections::BTreeMap;
use tidegate_layout::write_cache::{CACHE_MAGIC, CacheHead, SlotHead, SlotPlan};
use tidegate_media::{BlockDevice, Durability, Error, Lba, Poison, Region};
use zerocopy::FromBytes;

use crate::slots::FREE;

/// Why slots cannot be completed. Nothing was changed in them.
#[derive(Debug, thiserror::Error)]
pub enum CompleteError {
    /// The memory holds something else.
    #[error("this is no write cache: {0}")]
    Foreign(String),
    /// The blocks belong to another volume, or to this one at another size.
    #[error("the cache holds blocks of {found}, and the volume is {volume}")]
    OtherVolume {
        /// What the cache says.
        found: String,
        /// What the volume is.
        volume: String,
    },
    /// The memory cannot be read.
    #[error(transparent)]
    Memory(#[from] Poison),
    /// The device refused a block or the flush.
    #[error("writing to the volume: {0}")]
    Device(#[from] Error),
}

/// Writes every block that the slots in `region` hold to `device`, the volume `volume`, flushes it,
/// and returns how many there were. The slots stay as they are, so it may be done again; whoever
/// calls it gives up the region afterwards.
///
/// A cache that was never finished holds nothing: its head is all zeroes, or lacks its first word.
pub fn complete<R: Region>(region: &R, volume: [u8; 16], device: &dyn BlockDevice) -> Result<u64, CompleteError> {
    let Some(plan) = plan(region, volume, device)? else { return Ok(0) };
    let newest = newest(region, plan)?;
    let mut block = vec![0; plan.block_size as usize];
    for (lba, (_, slot)) in &newest {
        region.read(plan.block_at(*slot), &mut block)?;
        device.write(Lba(*lba), &block, Durability::Volatile)?;
    }
    device.flush()?;
    Ok(newest.len() as u64)
}

/// Where the slots lie, if there are any and they are those of this volume.
fn plan<R: Region>(region: &R, volume: [u8; 16], device: &dyn BlockDevice) -> Result<Option<SlotPlan>, CompleteError> {
    let mut bytes = [0; size_of::<CacheHead>()];
    if region.len() < bytes.len() as u64 {
        return Err(CompleteError::Foreign(format!("it has only {} bytes", region.len())));
    }
    region.read(0, &mut bytes)?;
    if was_never_finished(&bytes) {
        return Ok(None);
    }
    let head = CacheHead::read_from_bytes(&bytes).expect("the array has the head's size");
    let plan = head.check().map_err(|broken| CompleteError::Foreign(broken.to_string()))?;
    if plan.bytes() > region.len() {
        return Err(CompleteError::Foreign(format!("{} slots do not fit into {} bytes", plan.slots, region.len())));
    }
    let geometry = device.geometry();
    let says =
        |uuid: [u8; 16], blocks, size| format!("volume {:032x} of {blocks} × {size} bytes", u128::from_be_bytes(uuid));
    let found = says(head.volume, head.blocks.get(), plan.block_size);
    let expected = says(volume, geometry.blocks, geometry.block_size);
    if found != expected {
        return Err(CompleteError::OtherVolume { found, volume: expected });
    }
    Ok(Some(plan))
}

/// Whether these are the first bytes of a cache whose making was cut short.
fn was_never_finished(head: &[u8]) -> bool {
    let (first, rest) = head.split_at(8);
    let lacks_first = rest[..8] == CACHE_MAGIC[8..];
    first == [0; 8] && (lacks_first || rest.iter().all(|byte| *byte == 0))
}

/// For each block, the newest version and the slot that holds it.
fn newest<R: Region>(region: &R, plan: SlotPlan) -> Result<BTreeMap<u64, (u64, u32)>, CompleteError> {
    let mut newest: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    for slot in 0..plan.slots {
        let mut bytes = [0; size_of::<SlotHead>()];
        region.read(plan.head_at(slot), &mut bytes)?;
        let head = SlotHead::read_from_bytes(&bytes).expect("the array has the header's size");
        let version = head.version.get();
        if version != FREE {
            let kept = newest.entry(head.lba.get()).or_insert((version, slot));
            *kept = (*kept).max((version, slot));
        }
    }
    Ok(newest)
}
