//! What lies on a region: superblock, elements and entries, each checked.
//!
//! The entries' states are those that recovery brings about: an element that is ahead of its entry has been applied. Nothing is stored
//! here, so a check can use it as well.

use crate::ring::EntryMove;
use std::collections::BTreeMap;
use tidegate_commit::Loaded;
use tidegate_layout::disk_cache::{
    CacheEntry, CachePlan, EntryState, SUPERBLOCK_COPIES_AT, Superblock, TrustedSuperblock, is_ahead,
};
use tidegate_media::{Corrupt, Poison, Region, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The newest superblock.
pub(crate) struct Newest {
    pub(crate) superblock: TrustedSuperblock,
    /// What is wrong with the other copy.
    pub(crate) other: Option<NoSuperblock>,
}

/// Why a copy of the superblock does not count.
#[derive(Clone, Debug)]
pub(crate) enum NoSuperblock {
    Unreadable(Poison),
    Broken(Corrupt),
}

/// The newest of both superblocks, or what is wrong with the first.
pub(crate) fn superblocks<R: Region + ?Sized>(region: &R) -> Result<Newest, NoSuperblock> {
    let [first, second] = SUPERBLOCK_COPIES_AT.map(|at| superblock(region, at));
    match (first, second) {
        (Ok(first), Ok(second)) => {
            let superblock = if second.sequence > first.sequence { second } else { first };
            Ok(Newest { superblock, other: None })
        }
        (Ok(superblock), Err(other)) | (Err(other), Ok(superblock)) => Ok(Newest { superblock, other: Some(other) }),
        (Err(first), Err(_)) => Err(first),
    }
}

fn superblock<R: Region + ?Sized>(region: &R, at: u64) -> Result<TrustedSuperblock, NoSuperblock> {
    let mut raw = Superblock::new_zeroed();
    region.read(at, raw.as_mut_bytes()).map_err(NoSuperblock::Unreadable)?;
    raw.check(region.len()).map_err(|broken| NoSuperblock::Broken(corrupt(at, broken)))
}

pub(crate) fn corrupt(at: u64, broken: tidegate_layout::Broken) -> Corrupt {
    Corrupt { rule: broken.rule, at: at + broken.offset, found: broken.found }
}

/// For each entry that elements name, what the newest of them says.
pub(crate) fn newest(loaded: &Loaded<EntryMove>, plan: &CachePlan) -> Result<BTreeMap<u32, EntryState>, Corrupt> {
    let mut newest: BTreeMap<u32, EntryState> = BTreeMap::new();
    for (at, element) in &loaded.elements {
        let (entry, becomes) = element.0.check(plan).map_err(|broken| corrupt(*at, broken))?;
        let known = newest.entry(entry).or_insert(becomes);
        if is_ahead(becomes.counter(), known.counter()) {
            *known = becomes;
        }
    }
    Ok(newest)
}

/// The state that recovery gives an entry: its own, or that of an element ahead of it.
pub(crate) fn recovered(own: EntryState, newest: Option<&EntryState>) -> EntryState {
    match newest {
        Some(element) if is_ahead(element.counter(), own.counter()) => *element,
        _ => own,
    }
}

/// Gives `visit` each entry's own state, in order, or the rule that it breaks.
pub(crate) fn entries<R: Region + ?Sized>(
    region: &R,
    plan: &CachePlan,
    mut visit: impl FnMut(u32, Result<EntryState, Corrupt>) -> Result<()>,
) -> Result<()> {
    const SIZE: u64 = size_of::<CacheEntry>() as u64;
    let mut page = [0; 4096];
    let per_page = u32::try_from(page.len() as u64 / SIZE).expect("a page holds few");
    for first in (0..plan.blocks).step_by(per_page as usize) {
        let count = per_page.min(plan.blocks - first) as usize;
        let bytes = &mut page[..count * size_of::<CacheEntry>()];
        region.read(plan.entry_at(first), bytes)?;
        let entries = <[CacheEntry]>::ref_from_bytes(bytes).expect("entries have no alignment and fill the bytes");
        for (number, entry) in (first..).zip(entries) {
            let state = entry.check(plan).map_err(|broken| corrupt(plan.entry_at(number), broken));
            visit(number, state)?;
        }
    }
    Ok(())
}
