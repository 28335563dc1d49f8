//! A new, empty log.

use crate::error::CreateError;
use crate::superblock;
use tidegate_layout::append_log::{LOG_HEADS_AT, LOG_SUPERBLOCKS_AT, LogFacts, LogPlan, LogSuperblock};
use tidegate_media::{BlockDevice, Region};

/// What a new log is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Making {
    /// Bytes in a chunk: a power of two, and whole blocks of what lies below.
    pub chunk_bytes: u64,
    /// The log's own identity.
    pub uuid: [u8; 16],
    /// The identity of what lies below, as the caller tells devices apart.
    pub below: [u8; 32],
}

/// Makes `region` an empty log in front of `below`, to which nothing is written: four fences. What
/// makes the log valid is written last.
pub fn create<R, D>(region: &R, below: &D, making: &Making) -> Result<LogPlan, CreateError>
where
    R: Region + ?Sized,
    D: BlockDevice + ?Sized,
{
    let Making { chunk_bytes, uuid, below: identity } = *making;
    let geometry = below.geometry();
    let plan = LogPlan::new(region.len(), chunk_bytes, geometry.bytes())?;
    if !chunk_bytes.is_multiple_of(u64::from(geometry.block_size)) {
        return Err(CreateError::Blocks { chunk_bytes, block_size: geometry.block_size });
    }
    for at in LOG_SUPERBLOCKS_AT {
        region.stream(at, &[0; size_of::<LogSuperblock>()]);
    }
    region.fence()?;
    (LOG_HEADS_AT..plan.chunks_at()).step_by(4096).for_each(|at| region.stream(at, &[0; 4096]));
    region.fence()?;
    superblock::write(region, &LogFacts { uuid, below: identity, generation: 1, plan, begin: 0 })?;
    Ok(plan)
}
