//! `tidegate salvage`: the blocks that only a cache has, written to a file or to another disk,
//! without the disk they belong to. The region is not changed, so it can be done again.

use crate::answer;
use crate::cached_disk::{Cached, LeftOut};
use crate::disks::{self, DiskPlan, is_of};
use crate::failure::{DiskFailure, Doing, Exit, Failure, JournalFailure, Kept, KeptBy, VolumeFailure};
use crate::flush;
use crate::grammar::Salvage;
use crate::holdings;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use tidegate_disk_cache::{Guard, Journaling, retire_journal};
use tidegate_media::{Access, BlockDevice, DiskAccess};

/// What `salvage` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    #[serde(with = "tidegate_host::json_path")]
    to: PathBuf,
    blocks: u64,
    bytes: u64,
    /// Cached blocks that the disk had too.
    clean_blocks: u64,
    clean_bytes: u64,
    /// Whether those were salvaged too.
    clean_too: bool,
    /// What the memory does not give back, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    /// Blocks that do not fit their checksums and were left out.
    not_saved: u64,
    /// The first of them, and what is wrong with it.
    damaged: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, Answer { blocks, bytes, .. }) = (self.to.display(), self);
        writeln!(f, "salvaged   {blocks} blocks ({bytes} bytes) to {to}, each at its place on the disk")?;
        let clean = format_args!("{} blocks ({} bytes) that the disk had", self.clean_blocks, self.clean_bytes);
        match (self.clean_too, self.clean_blocks) {
            (true, _) => answer::line(f, "clean", format_args!("{clean} are in it too"))?,
            (false, 0) => answer::line(f, "clean", clean)?,
            (false, _) => {
                answer::line(f, "clean", format_args!("{clean} are not in it; if the disk is lost: --clean-too"))?;
            }
        }
        self.lost.iter().try_for_each(|lost| answer::line(f, "lost", lost))?;
        let others = |f: &mut fmt::Formatter<'_>, why: &String| {
            answer::line(f, "damaged", format_args!("{} blocks are not in it; the first: {why}", self.not_saved))
        };
        self.damaged.iter().try_for_each(|why| others(f, why))?;
        write!(f, "region     {}, unchanged", self.file.display())
    }
}

/// Runs `tidegate salvage`.
pub(crate) fn run(wish: &Salvage, json: bool) -> Result<Exit, Failure> {
    // What is stored here changes a copy in memory only.
    let (region, identity) = flush::cache_in(&wish.pmem, Access::Private)?;
    let needs = identity.disk_blocks * u64::from(identity.block_size);
    let existed = wish.to.try_exists().unwrap_or(true);
    if !existed {
        let made = File::create_new(&wish.to).and_then(|file| file.set_len(needs));
        made.map_err(|error| VolumeFailure::of_io(&wish.to, Doing::Create, error))?;
    } else if !wish.force {
        return Err(DiskFailure::TargetHolds { to: wish.to.clone() }.into());
    }
    let target = disks::open(&wish.to, DiskAccess::ReadWrite, identity.block_size)?;
    if is_of(&wish.pmem, &identity, &target) {
        return Err(DiskFailure::TargetIsItsDisk { pmem: wish.pmem.clone(), to: wish.to.clone() }.into());
    }
    if existed {
        holdings::tell_of_disk(&target, "--force: blocks of the cache are written over those of the target");
    }
    let has = target.device.geometry().bytes();
    if has < needs {
        return Err(DiskFailure::Smaller { pmem: wish.pmem.clone(), disk: wish.to.clone(), needs, has }.into());
    }
    let plan = DiskPlan { journaling: Journaling::Ignored, guard: Guard::Off, ..DiskPlan::default() };
    let cached = Cached::open(region, target, &plan);
    let cached = cached.map_err(|error| VolumeFailure::of_open_cache(&wish.pmem, error))?;
    let had = cached.dirty_bytes();
    let clean = cached.clean_lbas();
    // While they are clean: what is drained turns clean as well.
    let clean_left_out = if wish.clean_too { cached.write_out(&wish.pmem, &clean)? } else { LeftOut::default() };
    let damaged = match cached.drain(&wish.pmem, flush::teller(json)) {
        Ok(()) => None,
        // The region is at fault, not what it is salvaged to: all others are there.
        Err(DiskFailure::Kept { kept: Kept { by: KeptBy::Damage, why }, .. }) => Some(why),
        Err(failure) => return Err(failure.into()),
    };
    let left = cached.dirty_bytes();
    if left == 0 {
        // A copy of the disk may have had a group under way: all of it is in place now, and newer.
        let done = retire_journal(&*cached.disk().device, identity.uuid);
        done.map_err(JournalFailure::of_error(&wish.to))?;
    }
    let block_bytes = u64::from(identity.block_size);
    let (bytes, not_saved) = (had - left, left / block_bytes + clean_left_out.blocks);
    let blocks = bytes / block_bytes;
    let clean_blocks = clean.len() as u64 - clean_left_out.blocks;
    let clean_bytes = clean_blocks * block_bytes;
    let damaged = damaged.or(clean_left_out.first);
    let exit = if damaged.is_some() { Exit::Refused } else { Exit::Done };
    let (file, to, lost) = (wish.pmem.clone(), wish.to.clone(), cached.lost());
    let clean_too = wish.clean_too;
    let answer = Answer { file, to, blocks, bytes, clean_blocks, clean_bytes, clean_too, lost, not_saved, damaged };
    answer::end_with(&answer, json, exit)
}
