//! Ordered disks without their memory: after any end the disk alone is put in order by its journal,
//! and shows what all blocks were at one instant.
//!
//! [`crate::commits`] judges its image after every cut and kill, also with the power failing while
//! the disk is put in order.

use crate::marks;
use crate::scene::Scene;
use std::sync::Arc;
use tidegate_disk_cache::{FoundJournal, find_journal, recover_disk};
use tidegate_layout::disk_cache::JournalPlan;
use tidegate_media::{BlockDevice, InTurn, Lba, Result};
use tidegate_sim::{Content, Disk, DiskImage, Ending, Intercepted, Rng, SectorTear};

/// Whether what an image has reached is there for good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// By a power cut: the next life begins with it.
    ForGood,
    /// A power cut may still take some of it, or there was none.
    Perhaps,
}

impl Scene {
    /// Judges `disk` without its memory, if it is an ordered one.
    pub(crate) fn judge_alone(&mut self, disk: &DiskImage, left: Left) -> Result<(), String> {
        let Some(journal) = self.setting.plan.journal() else { return Ok(()) };
        {
            let seen = &mut *self.seen();
            let written = std::mem::take(&mut seen.written);
            seen.commits.as_mut().expect("there is an account of an ordered disk").add(written);
        }
        let (blocks, shown) = match put_in_order(disk, &journal) {
            Ok(shown) => shown,
            // Its memory makes a group anew of all that it has.
            Err(_) if self.rotten => return Ok(()),
            Err(why) => return Err(format!("the disk alone: {why}")),
        };
        if blocks > 0 {
            self.marks.reach(marks::ALONE_AMID);
        }
        let reached = {
            let seen = self.seen();
            seen.commits.as_ref().expect("there is an account of an ordered disk").judge(&shown)?
        };
        if left == Left::ForGood {
            if std::mem::take(&mut self.rotten) {
                self.marks.reach(marks::MADE_ANEW);
            }
            self.seen().commits.iter_mut().for_each(|commits| commits.has_reached(reached.clone()));
        }
        let cut = cut_in_order(disk, &mut self.fate);
        let (_, again) = put_in_order(&cut, &journal).map_err(|why| format!("the disk alone, cut again: {why}"))?;
        match again == shown {
            true => Ok(()),
            false => Err("the disk alone shows something else after a cut while it was put in order".to_owned()),
        }
    }
}

/// Changes a word of the group that counts in the `journal` of `disk`, if one does.
pub(crate) fn rot(disk: &mut DiskImage, journal: &JournalPlan, rng: &mut Rng) -> bool {
    let there = Arc::new(Disk::from_image(disk.clone(), journal.block_size));
    let Ok(Some(FoundJournal { blocks: blocks @ 1.., .. })) = find_journal(&InTurn(there)) else { return false };
    let (size, words) = (u64::from(journal.block_size), u64::from(journal.block_size / 8));
    let at = match rng.one_in(2) {
        true => journal.records_at() * size + 8 * rng.below(2 * u64::from(blocks)),
        false => journal.data_at() * size + 8 * rng.below(words * u64::from(blocks)),
    };
    disk.write(at, &rng.next_u64().to_le_bytes());
    true
}

/// Blocks that the journal of `disk` put in place, and what all before it show then.
fn put_in_order(disk: &DiskImage, journal: &JournalPlan) -> Result<(u32, Vec<Content>), String> {
    let disk = Arc::new(Disk::from_image(disk.clone(), journal.block_size));
    let found = recover_disk(&InTurn(disk.clone())).map_err(|error| error.to_string())?;
    let found = found.filter(|found| found.disk_blocks == journal.disk_blocks).ok_or("there is no journal")?;
    let mut block = vec![0; journal.block_size as usize];
    let mut read = |lba| disk.read(Lba(lba), &mut block).map(|()| Content::of(&block));
    let shown = (0..journal.disk_blocks).map(&mut read).collect::<Result<_>>();
    Ok((found.blocks, shown.map_err(|error| error.to_string())?))
}

/// What a power cut leaves of `disk` while it is put in order.
fn cut_in_order(disk: &DiskImage, rng: &mut Rng) -> DiskImage {
    const ACCESSES: u64 = 24;
    let disk = Arc::new(Disk::from_image(disk.clone(), 512));
    let ending = InTurn(Intercepted { device: disk.clone(), by: Ending::after(1 + rng.below(ACCESSES)) });
    // It fails as a rule.
    let _ = recover_disk(&ending);
    disk.cut().sample(rng, SectorTear::Possible)
}
