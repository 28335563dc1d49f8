//! Lays a cache out anew for another disk or another size, when no block in it is dirty.
//!
//! 1. Recovery, as at every opening: the ring's elements are applied and durable, and none counts
//!    any more. If any block is dirty then, resizing ends here.
//! 2. Every entry is freed by its second word, and flushed. **Fence.**
//! 3. The place of the new entries is zeroed, and so is the record of the disk's contents.
//!    **Fence.**
//! 4. The new superblock is written over the copy that does not count. **Fence.** And over the
//!    other. **Fence.**
//!
//! - *Cut in step 1*: as in every recovery.
//! - *Cut in step 2*: the old cache, of which some clean blocks are free.
//! - *Cut in step 3*: the old cache, empty: the first words may hold any bytes, the second ones say
//!   free, before and after. The new entries reach into blocks or stop before others; no entry
//!   names one.
//! - *Cut in step 4*: the old cache or the new one, by the copy that counts; both are empty. A copy
//!   that is torn has a wrong checksum, and the next opening writes it anew, as it does one that is
//!   older. The cursors and the ring stay where they are; counters begin anew, and no element is
//!   left to compare them with.
//!
//! A cut after that leaves the new one. At no time is there no cache, or one that names a block of
//! the wrong disk.

use crate::open::format::{FormatError, FormatSpec, Identity, fitting, with_journal};
use crate::open::scan::{self, Unusable};
use crate::open::superblock_copies;
use crate::open::{OpenError, apply_what_counts, settle, usable_superblock};
use crate::region_io::Medium;
use std::collections::BTreeSet;
use tidegate_layout::disk_cache::{CacheEntry, CachePlan, EntryState, LBA_BITS, START_SUMS_AT, StartSum, Superblock};
use tidegate_media::{Error, LINE_BYTES, Region, Sealed};
use zerocopy::IntoBytes;

/// What a cache is to be from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLayout {
    /// The disk's identity.
    pub disk: [u8; 32],
    /// Blocks of the disk.
    pub disk_blocks: u64,
    /// Bytes of the region that it may use: at most as many as there are.
    pub region_bytes: u64,
}

/// Why a cache stays as it was, or is empty at worst.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewLayoutError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It has blocks that the disk lacks.
    #[error("{0} blocks are dirty")]
    Dirty(u64),
    /// It cannot be made like that.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl From<Sealed> for NewLayoutError {
    fn from(sealed: Sealed) -> NewLayoutError {
        NewLayoutError::Open(sealed.into())
    }
}

impl From<Error> for NewLayoutError {
    fn from(error: Error) -> NewLayoutError {
        NewLayoutError::Open(error.into())
    }
}

/// What a change makes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreseen {
    /// The cache is like that already, and would only be emptied.
    AsItIs,
    /// The cache gets another disk, or room for more blocks or fewer.
    Anew,
}

/// Tells what [`lay_out_anew`] makes of the cache on `region`, which may be in use: its superblocks
/// stay as they are. Changes nothing.
///
/// # Errors
/// The cache cannot be made like that.
pub fn foresee<R: Region>(region: &R, wish: &NewLayout) -> Result<Foreseen, NewLayoutError> {
    let old = usable_superblock(region)?;
    // Without a check, entries are not less.
    let plan = CachePlan { entries_checked: old.plan.entries_checked, ..planned(&old.plan, wish)? };
    let same = plan == old.plan && wish.disk == old.disk;
    Ok(if same { Foreseen::AsItIs } else { Foreseen::Anew })
}

/// Makes the cache on `region`, which nobody uses, what `wish` says. It is empty then.
pub fn lay_out_anew<R: Region>(region: R, wish: &NewLayout) -> Result<Identity, NewLayoutError> {
    let old = usable_superblock(&region)?;
    let plan = planned(&old.plan, wish)?;
    let medium = Medium::new(region, old.plan);
    superblock_copies::make_both_count(&medium.region)?;
    let applied = apply_what_counts(&medium)?;
    let found = FoundEntries::in_entries(&medium)?;
    settle(&medium, applied, &found.unreadable)?;
    if found.dirty > 0 {
        return Err(NewLayoutError::Dirty(found.dirty));
    }
    for (entry, counter) in found.clean {
        medium.store_state(entry, CacheEntry::free_word(counter.wrapping_add(1)));
        medium.flush_entry(entry);
    }
    medium.fence()?;
    zero_readable(&medium.region, plan.entries_at, plan.entry_at(plan.blocks));
    // The disk is another one, or may be written without its cache.
    zero_readable(&medium.region, START_SUMS_AT, START_SUMS_AT + plan.start_blocks() * size_of::<StartSum>() as u64);
    medium.fence()?;
    let superblock = Superblock::new(&plan, old.uuid, wish.disk, old.sequence + 1);
    medium.noted(superblock_copies::replace_both(&medium.region, old.sequence, superblock.as_bytes()))?;
    Ok(Identity::from(&usable_superblock(&medium.region)?))
}

fn planned(old: &CachePlan, wish: &NewLayout) -> Result<CachePlan, FormatError> {
    if !(1..=1 << LBA_BITS).contains(&wish.disk_blocks) {
        return Err(FormatError::DiskBlocks(wish.disk_blocks));
    }
    let NewLayout { disk, disk_blocks, region_bytes } = *wish;
    let CachePlan { block_size, ring_slots, .. } = *old;
    let spec = FormatSpec { block_size, disk_blocks, ring_slots, uuid: [0; 16], disk };
    let plan = fitting(old.sums(), region_bytes, &spec)?;
    // Its cursors would have to move with it.
    if plan.ring_at != old.ring_at {
        return Err(FormatError::RingElsewhere { at: old.ring_at });
    }
    let start = |plan: CachePlan| CachePlan { start_sums: old.start_sums, ..plan };
    let Some(journal) = old.journal() else { return Ok(start(plan)) };
    // No more than its journal has room for.
    let blocks = plan.blocks.min(journal.capacity);
    let plan = CachePlan::cut_with(old.sums(), blocks, old.block_size, wish.disk_blocks, old.ring_slots);
    with_journal(start(plan), journal.capacity)
}

/// What the entries say.
#[derive(Default)]
struct FoundEntries {
    dirty: u64,
    /// Clean ones, and their counters.
    clean: Vec<(u32, u16)>,
    unreadable: BTreeSet<u32>,
}

impl FoundEntries {
    fn in_entries<R: Region>(medium: &Medium<R>) -> Result<FoundEntries, Error> {
        let mut found = FoundEntries::default();
        scan::entries(&medium.region, &medium.plan, |entry, state| {
            match state {
                Ok(EntryState::Holds { clean: true, counter, .. }) => found.clean.push((entry, counter)),
                Ok(EntryState::Holds { clean: false, .. }) => found.dirty += 1,
                Ok(EntryState::Free { .. }) => {}
                Err(Unusable::Broken(corrupt)) => return Err(corrupt.into()),
                Err(Unusable::Unreadable) => {
                    found.unreadable.insert(entry);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Zeroes whole lines that can be read; a store to another may be lost, and what cannot be read is
/// not used.
fn zero_readable<R: Region>(region: &R, from: u64, until: u64) {
    const LINE: usize = 64;
    const _: () = assert!(LINE as u64 == LINE_BYTES);
    for at in (from..until).step_by(LINE) {
        let mut line = [0; LINE];
        let line = &mut line[..usize::try_from(until - at).unwrap_or(LINE).min(LINE)];
        if region.read(at, line).is_ok() {
            line.fill(0);
            region.stream(at, line);
        }
    }
}
