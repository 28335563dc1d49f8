//! Disks that have lost their cache: each is recovered by its journal, with a cut before each
//! access of that recovery, and shows what the cache showed at some moment.

use crate::checker::Failure;
use crate::disk_cache::plain::Contents;
use crate::disk_cache::small::BLOCK;
use crate::disk_cache::watch::{WatchedDisk, Watcher};
use std::sync::Arc;
use tidegate_disk_cache::recover_disk;
use tidegate_media::{BlockDevice, Lba};
use tidegate_sim::{Content, Image, Region};

/// Recovers `disk`, and again after each cut of that: what it shows then is one of `past`, and
/// stays.
pub(crate) fn judge(disk: &Image, blocks: u64, past: &[Contents]) -> Result<(), Failure> {
    let machine = Watcher::new(Region::new(64), disk);
    machine.record();
    let shown = recovered(&machine, blocks)?;
    if !past.contains(&shown) {
        return Err(Failure::new("the disk alone shows what the cache never showed"));
    }
    for cut in machine.take() {
        for disk in cut.disk_images() {
            if recovered(&Watcher::new(Region::new(64), &disk), blocks)? != shown {
                return Err(Failure::new("the disk alone shows something else after a cut in its recovery"));
            }
        }
    }
    Ok(())
}

fn recovered(machine: &Arc<Watcher>, blocks: u64) -> Result<Contents, Failure> {
    let disk = WatchedDisk(machine.clone());
    let found = recover_disk(&disk).map_err(Failure::new)?;
    if found.is_none_or(|found| found.disk_blocks != blocks) {
        return Err(Failure::new("the disk alone has no journal"));
    }
    let mut out = [0; BLOCK];
    let mut read = |lba| disk.read(Lba(lba), &mut out).map(|()| Content::of(&out));
    (0..blocks).map(&mut read).collect::<Result<_, _>>().map_err(Failure::new)
}
