//! Whether another program wrote to the disk while its cache was not in use: mounted it after a
//! crash, for example. Dirty blocks would go over those writes, and clean blocks would be older.
//!
//! Times and sizes cannot tell, as the cache's own last writes before a kill or a power cut change
//! them too. Contents can:
//!
//! - *The disk's first blocks*, where file systems, partition tables and volume managers keep the
//!   blocks that each use changes, have a checksum each in the memory, one word. It durably tells
//!   the disk's contents; zero says that they are not known.
//! - *Clean blocks*: the disk holds the same bytes, and has confirmed a flush since. Up to
//!   [`COMPARED`] of them, evenly spread, are compared at each opening.
//!
//! # Why no crash of our own looks like somebody else
//!
//! 1. Before a first block is written to the disk its word becomes zero. **Flush, fence.** Then the
//!    disk gets the block (`destage/disk_writes.rs`, as step 2).
//! 2. When the disk has confirmed a flush that began after the write had ended, the word becomes
//!    the checksum of the written bytes. Flushed, not fenced.
//!
//! - *Cut or killed before the fence of step 1*: the disk has not been asked to write the block. It
//!   holds the contents that the old word tells, and a zero is always right.
//! - *After it, before the disk's flush is over*: the block may be old, new, or torn in any way.
//!   The word is zero.
//! - *After step 2*: the disk has the block for good. The word is zero, or says so.
//! - *The disk refuses the write, or a flush fails since it began*: the word stays zero until the
//!   block is written once more, and a flush confirms that.
//! - *The block is written again before that*: each write has a turn, and a flush settles the last
//!   one only.
//! - *An ordered disk*: the words of a group are zero before its journal counts, so that it may be
//!   put in place with the memory or without it.
//! - *A clean block* stays one over every cut and kill: its entry says so only after the disk's
//!   flush, and it is dirty before the disk gets other bytes. See `lib.rs`, `write_around.rs`.
//! - *At an opening* the disk is flushed first. A word that is zero becomes the checksum of the
//!   disk's contents then, unless that flush failed.
//! - *The memory lost a store* that was to make a word zero: the disk does not get the block before
//!   the cache is opened anew.
//!
//! A memory that loses stores that a fence has confirmed, as an ordinary file does when the power
//! fails, may look like a changed disk. Then it is right not to trust it.

use crate::destage::first_blocks::{place, store};
use crate::open::scan;
use crate::open::superblock_copies;
use crate::region_io::Medium;
use tidegate_layout::disk_cache::{
    BlockSum, CacheEntry, EntryState, START_SUMS_AT, StartSum, Superblock, TrustedSuperblock,
};
use tidegate_media::{AlignedBytes, Backing, Error, Lba, Region, Result, Sealed};
use zerocopy::IntoBytes;

/// What is done to notice that somebody wrote to the disk without its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// If an earlier opening asked for it, the disk is compared with what the cache knows of it.
    #[default]
    AsLaidOut,
    /// It is, from now on.
    Always,
    /// It is, and gets what is dirty even if somebody wrote to it.
    Forced,
    /// Nothing: the disk stands in for the cache's own.
    Off,
}

/// Clean blocks that are compared with the disk at an opening, at most.
const COMPARED: usize = 1024;

/// Has checksums of the disk's first blocks kept in the cache of `superblock`, from which recovery
/// has made what counts; nothing is known of them yet.
pub(crate) fn begin<R: Region>(medium: &mut Medium<R>, superblock: &TrustedSuperblock) -> Result<(), Sealed> {
    let plan = superblock.plan.with_start_sums();
    if superblock.plan.start_sums || !plan.start_sums {
        return Ok(());
    }
    clear(&medium.region, &plan);
    medium.fence()?;
    let newest = Superblock::new(&plan, superblock.uuid, superblock.disk, superblock.sequence + 1);
    medium.noted(superblock_copies::replace_both(&medium.region, superblock.sequence, newest.as_bytes()))?;
    medium.plan = plan;
    Ok(())
}

/// Forgets what the disk of a cache of this plan held, durably with the next fence.
pub(crate) fn clear<R: Region>(region: &R, plan: &tidegate_layout::disk_cache::CachePlan) {
    let zeroes = vec![0; place(plan.start_blocks()) * size_of::<StartSum>()];
    if !zeroes.is_empty() {
        region.stream(START_SUMS_AT, &zeroes);
    }
}

/// The first block that is found to hold something else on `disk` than its cache left there;
/// recovery has been made. Reads only.
pub(crate) fn first_changed<R: Region>(medium: &Medium<R>, disk: &dyn Backing) -> Option<Lba> {
    let start = Disk::of(medium, disk);
    let known = (0..medium.plan.start_blocks()).filter_map(|lba| Some((lba, start_word(medium, lba)?)));
    let known = known.filter(|(_, word)| *word != StartSum::UNKNOWN);
    let changed = |(lba, word): &(u64, u64)| start.read(*lba).is_some_and(|bytes| StartSum::word_of(&bytes) != *word);
    let of_the_start = known.collect::<Vec<_>>().into_iter().find(changed);
    of_the_start.map(|(lba, _)| Lba(lba)).or_else(|| first_changed_of_clean(medium, &start))
}

/// The first clean block that holds other bytes on `disk` than its cache left there.
fn first_changed_of_clean<R: Region>(medium: &Medium<R>, disk: &Disk<'_>) -> Option<Lba> {
    let mut clean: Vec<(u64, u32)> = Vec::new();
    // What breaks a rule was told before.
    let _ = scan::entries(&medium.region, &medium.plan, |_, state| {
        if let Ok(EntryState::Holds { lba, block, clean: true, .. }) = state {
            clean.push((lba, block));
        }
        Ok(())
    });
    clean.sort_unstable();
    let each = clean.len().div_ceil(COMPARED).max(1);
    let mut cached = vec![0; medium.plan.block_size as usize];
    let mut differs = |(lba, block): &(u64, u32)| {
        is_sound(medium, *lba, *block, &mut cached) && disk.read(*lba).is_some_and(|bytes| *bytes != *cached)
    };
    clean.into_iter().step_by(each).find(|pair| differs(pair)).map(|(lba, _)| Lba(lba))
}

/// Copies `block` out, which holds block `lba` of the disk, if the memory gives back what was
/// stored as far as that can be told.
fn is_sound<R: Region>(medium: &Medium<R>, lba: u64, block: u32, out: &mut [u8]) -> bool {
    if medium.read_block(block, out).is_err() {
        return false;
    }
    let sum = medium.plan.sum_at(block).map(|at| medium.region.load_u64(at));
    sum.is_none_or(|sum| sum.is_ok_and(|sum| sum == BlockSum::word_of(lba, out)))
}

fn start_word<R: Region>(medium: &Medium<R>, lba: u64) -> Option<u64> {
    medium.region.load_u64(medium.plan.start_sum_at(lba)?).ok()
}

/// Remembers what `disk` holds, durably, wherever nothing is known yet; if it is `settled`, for
/// otherwise a power cut may change that.
pub(crate) fn remember<R: Region>(medium: &Medium<R>, disk: &dyn Backing, settled: bool) -> Result<(), Sealed> {
    let start = Disk::of(medium, disk);
    for lba in 0..medium.plan.start_blocks() {
        let at = medium.plan.start_sum_at(lba).expect("one of the first blocks");
        match start_word(medium, lba) {
            None => {}
            Some(StartSum::UNKNOWN) if settled => {
                let word = start.read(lba).map_or(StartSum::UNKNOWN, |bytes| StartSum::word_of(&bytes));
                store(medium, at, word);
            }
            // A killed process may have left it visible and not durable.
            Some(word) => store(medium, at, word),
        }
    }
    medium.fence()
}

/// Gives up what is clean in the memory of a disk that was changed, durably, and what is known of
/// the disk.
pub(crate) fn forget<R: Region>(medium: &Medium<R>) -> Result<(), Error> {
    let mut clean: Vec<(u32, u16)> = Vec::new();
    scan::entries(&medium.region, &medium.plan, |entry, state| {
        if let Ok(EntryState::Holds { counter, clean: true, .. }) = state {
            clean.push((entry, counter));
        }
        Ok(())
    })?;
    for (entry, counter) in clean {
        medium.store_state(entry, CacheEntry::free_word(counter.wrapping_add(1)));
        medium.flush_entry(entry);
    }
    // Before anything says that the disk is as it was left.
    medium.fence()?;
    for lba in 0..medium.plan.start_blocks() {
        if start_word(medium, lba).is_some() {
            store(medium, START_SUMS_AT + lba * size_of::<StartSum>() as u64, StartSum::UNKNOWN);
        }
    }
    Ok(medium.fence()?)
}

/// The disk in blocks of the cache; the first of them were read in one go.
struct Disk<'a> {
    disk: &'a dyn Backing,
    block_size: usize,
    /// Blocks of the disk in one of the cache.
    each: u64,
    first: AlignedBytes,
}

impl<'a> Disk<'a> {
    fn of<R: Region>(medium: &Medium<R>, disk: &'a dyn Backing) -> Disk<'a> {
        let block_size = medium.plan.block_size;
        let each = u64::from(block_size / disk.geometry().block_size);
        let mut first = AlignedBytes::zeroed(place(medium.plan.start_blocks()) * block_size as usize);
        if first.is_empty() || disk.read(Lba(0), &mut first).is_err() {
            // Some block cannot be read: each is asked for by itself.
            first = AlignedBytes::zeroed(0);
        }
        Disk { disk, block_size: block_size as usize, each, first }
    }

    /// Block `lba`; None: the disk does not give it.
    fn read(&self, lba: u64) -> Option<AlignedBytes> {
        let mut bytes = AlignedBytes::zeroed(self.block_size);
        let at = usize::try_from(lba).ok().and_then(|lba| lba.checked_mul(self.block_size));
        match at.and_then(|at| self.first.get(at..at + self.block_size)) {
            Some(known) => bytes.copy_from_slice(known),
            None => self.disk.read(Lba(lba * self.each), &mut bytes).ok()?,
        }
        Some(bytes)
    }
}
