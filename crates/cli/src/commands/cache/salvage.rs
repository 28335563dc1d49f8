//! `tidegate salvage`: the blocks that only a cache has, written to a file or to another disk,
//! without the disk they belong to. The region is not changed, so it can be done again.

use crate::errors::{Exit, Failure};
use crate::grammar::Salvage;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use tidegate_disk_cache::{Guard, Journaling, retire_journal};
use tidegate_host::columns::line;
use tidegate_media::{Access, BlockDevice, DiskAccess};
use tidegate_server::cached_disk::cache::{Cached, UnreadableBlocks};
use tidegate_server::cached_disk::contents;
use tidegate_server::cached_disk::disk::{self, DiskPlan, is_of};
use tidegate_server::cached_disk::offline;
use tidegate_server::failure::{AtFault, DiskFailure, Doing, JournalFailure, Obstacle, VolumeFailure};

/// What `salvage` answers.
#[derive(Serialize)]
struct SalvageReport {
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

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, SalvageReport { blocks, bytes, .. }) = (self.to.display(), self);
        writeln!(f, "salvaged   {blocks} blocks ({bytes} bytes) to {to}, each at its place on the disk")?;
        let clean = format_args!("{} blocks ({} bytes) that the disk had", self.clean_blocks, self.clean_bytes);
        match (self.clean_too, self.clean_blocks) {
            (true, _) => line(f, "clean", format_args!("{clean} are in it too"))?,
            (false, 0) => line(f, "clean", clean)?,
            (false, _) => {
                line(f, "clean", format_args!("{clean} are not in it; if the disk is lost: --clean-too"))?;
            }
        }
        self.lost.iter().try_for_each(|lost| line(f, "lost", lost))?;
        let others = |f: &mut fmt::Formatter<'_>, why: &String| {
            line(f, "damaged", format_args!("{} blocks are not in it; the first: {why}", self.not_saved))
        };
        self.damaged.iter().try_for_each(|why| others(f, why))?;
        write!(f, "region     {}, unchanged", self.file.display())
    }
}

/// Runs `tidegate salvage`.
pub(crate) fn run(args: &Salvage, json: bool) -> Result<Exit, Failure> {
    // What is stored here changes a copy in memory only.
    let (region, identity) = offline::cache_in(&args.pmem, Access::Private)?;
    let needs = identity.disk_blocks * u64::from(identity.block_size);
    let existed = args.to.try_exists().unwrap_or(true);
    if !existed {
        // It holds what the disk holds, which other users may not read.
        let own = File::options().write(true).create_new(true).mode(0o600).open(&args.to);
        let made = own.and_then(|file| file.set_len(needs));
        made.map_err(|error| VolumeFailure::of_io(&args.to, Doing::Create, error))?;
    } else if !args.force {
        return Err(DiskFailure::TargetHolds { to: args.to.clone() }.into());
    }
    let target = disk::open(&args.to, DiskAccess::ReadWrite, identity.block_size)?;
    if is_of(&args.pmem, &identity, &target) {
        return Err(DiskFailure::TargetIsItsDisk { pmem: args.pmem.clone(), to: args.to.clone() }.into());
    }
    if existed {
        contents::tell_of_disk(&target, "--force: blocks of the cache are written over those of the target");
    }
    let has = target.device.geometry().bytes();
    if has < needs {
        return Err(DiskFailure::Smaller { pmem: args.pmem.clone(), disk: args.to.clone(), needs, has }.into());
    }
    let plan = DiskPlan { journaling: Journaling::Ignored, guard: Guard::Off, ..DiskPlan::default() };
    let cached = Cached::open(region, target, &plan);
    let cached = cached.map_err(|error| VolumeFailure::of_open_cache(&args.pmem, error))?;
    let had = cached.dirty_bytes();
    let clean = cached.clean_lbas();
    // While they are clean: what is drained turns clean as well.
    let clean_left_out =
        if args.clean_too { cached.write_out(&args.pmem, &clean)? } else { UnreadableBlocks::default() };
    let drained = cached.drain(&args.pmem, output::teller(json));
    // The region is at fault then, not what it is salvaged to: all other blocks are there.
    let damaged = if let Err(DiskFailure::Undestaged { obstacle: Obstacle { by: AtFault::Damage, why }, .. }) = drained
    {
        Some(why)
    } else {
        drained?;
        None
    };
    let left = cached.dirty_bytes();
    if left == 0 {
        // A copy of the disk may have had a group under way: all of it is in place now, and newer.
        let done = retire_journal(&*cached.disk().device, identity.uuid);
        done.map_err(JournalFailure::of_error(&args.to))?;
    }
    let block_bytes = u64::from(identity.block_size);
    let (bytes, not_saved) = (had - left, left / block_bytes + clean_left_out.blocks);
    let blocks = bytes / block_bytes;
    let clean_blocks = clean.len() as u64 - clean_left_out.blocks;
    let clean_bytes = clean_blocks * block_bytes;
    let damaged = damaged.or(clean_left_out.first);
    let exit = if damaged.is_some() { Exit::Refused } else { Exit::Done };
    let (file, to, lost) = (args.pmem.clone(), args.to.clone(), cached.lost());
    let clean_too = args.clean_too;
    let answer =
        SalvageReport { file, to, blocks, bytes, clean_blocks, clean_bytes, clean_too, lost, not_saved, damaged };
    output::end_with(&answer, json, exit)
}
