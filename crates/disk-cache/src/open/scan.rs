//! What lies on a region: superblock, elements and entries, each checked.
//!
//! The entries' states are those that recovery brings about: an element that is ahead of its entry
//! has been applied. Nothing is stored here, so a check can use it as well.

use crate::commit::redo::EntryMove;
use std::collections::BTreeMap;
use tidegate_layout::disk_cache::{
    CacheEntry, CachePlan, EntryState, SUPERBLOCK_COPIES_AT, Superblock, TrustedSuperblock, is_ahead,
};
use tidegate_media::{Corrupt, LINE_BYTES, Poison, Region, Result};
use tidegate_wal::{Loaded, corrupt};
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

pub(crate) fn superblock<R: Region + ?Sized>(region: &R, at: u64) -> Result<TrustedSuperblock, NoSuperblock> {
    let mut raw = Superblock::new_zeroed();
    region.read(at, raw.as_mut_bytes()).map_err(NoSuperblock::Unreadable)?;
    raw.check(region.len()).map_err(|broken| NoSuperblock::Broken(corrupt(at, broken)))
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

/// Why an entry says nothing.
pub(crate) enum Unusable {
    Broken(Corrupt),
    Unreadable,
}

/// Gives `visit` each entry's own state, in order; or the rule that it breaks, or that its line
/// cannot be read.
pub(crate) fn entries<R: Region + ?Sized>(
    region: &R,
    plan: &CachePlan,
    mut visit: impl FnMut(u32, Result<EntryState, Unusable>) -> Result<()>,
) -> Result<()> {
    let mut page = [0; 4096];
    for first in (0..plan.blocks).step_by(entries_in(page.len())) {
        let count = entries_in(page.len()).min((plan.blocks - first) as usize);
        let bytes = &mut page[..count * size_of::<CacheEntry>()];
        match region.read(plan.entry_at(first), bytes) {
            Ok(()) => visit_all(plan, first, bytes, &mut visit)?,
            Err(_) => visit_by_line(region, plan, first, bytes, &mut visit)?,
        }
    }
    Ok(())
}

fn entries_in(bytes: usize) -> usize {
    bytes / size_of::<CacheEntry>()
}

type Visit<'a> = &'a mut dyn FnMut(u32, Result<EntryState, Unusable>) -> Result<()>;

/// Visits the entries from `first` on, which are in `bytes`.
fn visit_all(plan: &CachePlan, first: u32, bytes: &[u8], visit: Visit<'_>) -> Result<()> {
    let entries = <[CacheEntry]>::ref_from_bytes(bytes).expect("entries have no alignment and fill the bytes");
    for (number, entry) in (first..).zip(entries) {
        let state = entry.check(plan).map_err(|broken| Unusable::Broken(corrupt(plan.entry_at(number), broken)));
        visit(number, state)?;
    }
    Ok(())
}

/// Visits entries of which some line cannot be read: line by line, through `bytes`.
fn visit_by_line<R: Region + ?Sized>(
    region: &R,
    plan: &CachePlan,
    first: u32,
    bytes: &mut [u8],
    visit: Visit<'_>,
) -> Result<()> {
    const LINE: usize = 64;
    const _: () = assert!(LINE as u64 == LINE_BYTES);
    for (line, first) in bytes.chunks_mut(LINE).zip((first..).step_by(entries_in(LINE))) {
        match region.read(plan.entry_at(first), line) {
            Ok(()) => visit_all(plan, first, line, visit)?,
            Err(_) => {
                let numbers = (first..).take(entries_in(line.len()));
                numbers.into_iter().try_for_each(|number| visit(number, Err(Unusable::Unreadable)))?;
            }
        }
    }
    Ok(())
}
