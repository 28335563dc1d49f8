//! Opening a lane that is empty: fresh, or recovered.

pub(crate) mod format;
pub(crate) mod recover;

use crate::cache::FileCache;
use crate::counters::Counters;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::open::format::{OpenError, lane_plan};
use crate::open::recover::{is_empty, settle_metadata};
use crate::region_io::{Medium, ring_plan};
use crate::tiers::dram::Unsynced;
use crate::tiers::nvm::Blocks;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tidegate_media::Region;
use tidegate_media::sync::Mutex;
use tidegate_wal::Loaded;

impl<R: Region> FileCache<R> {
    /// Opens lane `lane` of the pool on `region`, for this process alone: the caller holds the lock
    /// that says so. `dram` is zeroed memory of [`crate::dram_bytes`] that outlives the process.
    /// What a former process left in the lane has to be recovered before.
    pub fn open(region: R, lane: u32, dram: Arc<dyn Region>) -> Result<FileCache<R>, OpenError> {
        let plan = lane_plan(&region, lane)?;
        settle_metadata(&region, &plan)?;
        let version = is_empty(&region, &plan)?.ok_or(OpenError::NotRecovered)?;
        let ring = Loaded::begin(&region, ring_plan(&plan))?.finish(&region)?;
        let unsynced = Unsynced::new(dram, plan.files)?;
        let lane = Lane {
            medium: Medium { region, plan },
            ring,
            version,
            files: (0..plan.files).map(|_| None).collect(),
            by_identity: BTreeMap::new(),
            free_files: (0..plan.files).rev().map(FileId).collect(),
            blocks: Blocks::new(plan.chunks),
            slots: vec![None; plan.entries as usize],
            free_slots: (0..plan.entries).rev().collect(),
            dying: Vec::new(),
            clean: VecDeque::new(),
            unsynced,
            counters: Counters::default(),
        };
        Ok(FileCache { lane: Mutex::new(lane), sweep: Mutex::new(()) })
    }
}
