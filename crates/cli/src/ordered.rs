//! Journals at the ends of ordered disks: where one fits, what must not lie there, and when it goes.

use crate::disks::Disk;
use crate::failure::JournalFailure;
use tidegate_disk_cache::{FoundJournal, Identity, erase_journal, find_journal, lay_out_journal};
use tidegate_layout::disk_cache::JournalPlan;
use tidegate_media::{AlignedBytes, BlockDevice, Lba};

/// The end of a disk is searched for data in pieces of this size.
const SEARCHED_BYTES: u64 = 1 << 20;

/// The journal for `blocks` at the end of `disk`.
pub(crate) fn journal_on(disk: &Disk, block_size: u32, blocks: u32) -> Result<JournalPlan, JournalFailure> {
    let geometry = disk.device.geometry();
    let plan = JournalPlan::at_the_end(block_size, geometry.blocks, blocks);
    plan.ok_or_else(|| {
        let least = JournalPlan { block_size, disk_blocks: 1, capacity: blocks };
        JournalFailure::NoRoom {
            disk: disk.path.clone(),
            needs: (least.end() - 1) * u64::from(block_size),
            has: geometry.bytes(),
        }
    })
}

/// Lays `journal` out.
pub(crate) fn put_journal(disk: &Disk, journal: JournalPlan, uuid: [u8; 16]) -> Result<(), JournalFailure> {
    lay_out_journal(&*disk.device, journal, uuid).map_err(JournalFailure::of_error(&disk.path))
}

/// Refuses a disk of which a group was being put in place when its region was lost: it is not what anybody left there.
pub(crate) fn refuse_group_under_way(disk: &Disk) -> Result<(), JournalFailure> {
    match find_journal(&*disk.device).map_err(JournalFailure::of_error(&disk.path))? {
        Some(found) if found.blocks > 0 => {
            Err(JournalFailure::UnderWay { disk: disk.path.clone(), blocks: found.blocks })
        }
        _ => Ok(()),
    }
}

/// Refuses a disk on which anything lies where `journal` is to be but zeroes, or such a journal.
pub(crate) fn refuse_what_the_end_holds(disk: &Disk, journal: &JournalPlan) -> Result<(), JournalFailure> {
    let same =
        |found: &FoundJournal| (found.block_size, found.disk_blocks) == (journal.block_size, journal.disk_blocks);
    if find_journal(&*disk.device).map_err(JournalFailure::of_error(&disk.path))?.is_some_and(|found| same(&found)) {
        return Ok(());
    }
    let size = u64::from(journal.block_size);
    let at_once = (SEARCHED_BYTES / size).max(1);
    let mut bytes = AlignedBytes::zeroed(usize::try_from(at_once * size).expect("a piece"));
    let mut at = journal.records_at();
    while at < journal.end() {
        let blocks = at_once.min(journal.end() - at);
        let piece = &mut bytes[..usize::try_from(blocks * size).expect("a piece")];
        disk.device.read(Lba(at), piece).map_err(JournalFailure::of_error(&disk.path))?;
        if piece.iter().any(|byte| *byte != 0) {
            return Err(JournalFailure::EndHolds { disk: disk.path.clone(), at: journal.records_at() * size });
        }
        at += blocks;
    }
    Ok(())
}

/// Lays out a journal on `disk` for the cache `identity`, which is to be put in front of it and had another disk before. The blocks of the volume then.
pub(crate) fn put_journal_of(identity: &Identity, disk: &Disk, force: bool) -> Result<u64, JournalFailure> {
    refuse_group_under_way(disk)?;
    if identity.journal_blocks == 0 {
        return Ok(disk.device.geometry().blocks);
    }
    let journal = journal_on(disk, identity.block_size, identity.journal_blocks)?;
    if !force {
        refuse_what_the_end_holds(disk, &journal)?;
    }
    put_journal(disk, journal, identity.uuid)?;
    Ok(journal.disk_blocks)
}

/// Gives the blocks of the journal of `identity` on `disk`, which was set free from it, back to anybody.
pub(crate) fn erase_journal_of(identity: &Identity, disk: &Disk) -> Result<(), JournalFailure> {
    match identity.journal() {
        Some(journal) => erase_journal(&*disk.device, journal).map_err(JournalFailure::of_error(&disk.path)),
        None => Ok(()),
    }
}
