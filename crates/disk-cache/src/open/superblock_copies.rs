//! Both copies of the superblock, at an opening.
//!
//! A cut or a kill while a cache is laid out anew leaves one copy that is torn, or the old one, or
//! a new one that is visible and not durable. Were it left so, the cache would hang on the other
//! copy alone, or come back as what it was before.

use crate::open::scan;
use tidegate_layout::disk_cache::{DISK_CACHE_MAGIC, SUPERBLOCK_COPIES_AT, Superblock};
use tidegate_media::{Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// Makes the copy that counts durable with the next fence, and the other one equal to it. One that
/// cannot be read, or is no superblock at all, is left alone. The caller fences before it stores
/// anything.
pub(crate) fn make_both_count<R: Region>(region: &R) -> Result<(), Sealed> {
    let copies = SUPERBLOCK_COPIES_AT.map(|at| (at, raw(region, at)));
    let sequence = |at| scan::superblock(region, at).map_or(0, |copy| copy.sequence);
    let newest = copies.iter().max_by_key(|(at, _)| sequence(*at)).and_then(|(_, raw)| raw.as_ref());
    let Some(newest) = newest else { return Ok(()) };
    let readable = copies.iter().filter_map(|(at, copy)| Some((*at, copy.as_ref()?)));
    // Before anything is stored: the one that counts may not be durable yet.
    readable.clone().for_each(|(at, _)| region.flush(at, newest.as_bytes().len() as u64));
    for (at, copy) in readable {
        if copy.as_bytes() != newest.as_bytes() && may_be_replaced(copy) {
            region.fence()?;
            region.stream(at, newest.as_bytes());
        }
    }
    Ok(())
}

/// Writes `superblock` over both copies, first over the one that does not count: the other has
/// `sequence`.
pub(crate) fn replace_both<R: Region>(region: &R, sequence: u64, superblock: &[u8]) -> Result<(), Sealed> {
    let mut copies = SUPERBLOCK_COPIES_AT;
    if scan::superblock(region, copies[0]).is_ok_and(|copy| copy.sequence == sequence) {
        copies.reverse();
    }
    for at in copies {
        region.stream(at, superblock);
        region.fence()?;
    }
    Ok(())
}

fn raw<R: Region>(region: &R, at: u64) -> Option<Superblock> {
    let mut raw = Superblock::new_zeroed();
    region.read(at, raw.as_mut_bytes()).ok().map(|()| raw)
}

/// Whether it was a superblock, or nothing.
fn may_be_replaced(copy: &Superblock) -> bool {
    copy.magic == DISK_CACHE_MAGIC || copy.as_bytes().iter().all(|byte| *byte == 0)
}
