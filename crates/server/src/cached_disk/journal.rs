//! Journals at the ends of ordered disks: where one fits, which data must not lie there, and when
//! it goes.

use crate::cached_disk::contents;
use crate::cached_disk::disk::Disk;
use crate::cached_disk::owner::IfClaimed;
use crate::failure::JournalFailure;
use tidegate_disk_cache::{Identity, erase_journal, find_journal, has_room_for, journal_at_the_end, lay_out_journal};
use tidegate_layout::disk_cache::JournalPlan;
use tidegate_media::{BlockDevice, claim_of};
use uuid::Uuid;

/// The journal for `blocks` at the end of `disk`.
pub(crate) fn journal_on(disk: &Disk, block_size: u32, blocks: u32) -> Result<JournalPlan, JournalFailure> {
    journal_at_the_end(&*disk.device, block_size, blocks).ok_or_else(|| {
        let least = JournalPlan { block_size, disk_blocks: 1, capacity: blocks };
        JournalFailure::NoRoom {
            disk: disk.path.clone(),
            needs: (least.end() - 1) * u64::from(block_size),
            has: disk.device.geometry().bytes(),
        }
    })
}

/// Lays `journal` out.
pub(crate) fn put_journal(disk: &Disk, journal: JournalPlan, uuid: [u8; 16]) -> Result<(), JournalFailure> {
    lay_out_journal(&*disk.device, journal, uuid).map_err(JournalFailure::of_error(&disk.path))
}

/// Refuses a disk of which a group was being put in place when its region was lost, as it is not
/// what anybody left there; and unless `if_claimed` says otherwise, one with the journal of another
/// cache than `own`, as that may have blocks that the disk lacks.
pub(crate) fn refuse_another_cache(
    disk: &Disk,
    own: Option<[u8; 16]>,
    if_claimed: IfClaimed,
) -> Result<(), JournalFailure> {
    let path = || disk.path.clone();
    match find_journal(&*disk.device).map_err(JournalFailure::of_error(&disk.path))? {
        Some(found) if found.blocks > 0 => Err(JournalFailure::UnderWay { disk: path(), blocks: found.blocks }),
        Some(found) if own != Some(found.uuid) => {
            let uuid = Uuid::from_bytes(found.uuid);
            if if_claimed == IfClaimed::Refuse {
                return Err(JournalFailure::OfAnother { disk: path(), uuid });
            }
            tracing::warn!(
                "--force takes {} from the region with the cache {uuid}, which may have blocks that the disk lacks",
                disk.path.display()
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses a disk on which anything lies where `journal` is to be but zeroes, or such a journal of
/// the cache `uuid`; and one of which something says that those zeroes are its own. With
/// [`IfClaimed::Override`] that is told, and overwritten.
pub(crate) fn refuse_what_the_end_holds(
    disk: &Disk,
    journal: &JournalPlan,
    uuid: [u8; 16],
    if_claimed: IfClaimed,
) -> Result<(), JournalFailure> {
    let at = journal.records_at() * u64::from(journal.block_size);
    let refusal = match claim_of(&*disk.device, at) {
        Ok(Some(by)) => Some(JournalFailure::EndClaimed { disk: disk.path.clone(), at, by }),
        Ok(None) => match has_room_for(&*disk.device, journal, uuid) {
            Ok(true) => None,
            Ok(false) => Some(JournalFailure::EndHolds { disk: disk.path.clone(), at }),
            Err(error) => Some(JournalFailure::of_error(&disk.path)(error)),
        },
        Err(error) => Some(JournalFailure::of_error(&disk.path)(error)),
    };
    match refusal {
        Some(refusal) if if_claimed == IfClaimed::Refuse => Err(refusal),
        Some(_) => {
            let path = disk.path.display();
            contents::tell_of_disk(disk, &format!("--force overwrites what lies behind byte {at} of {path}"));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Lays out a journal on `disk` for the cache `identity`, which is to be put in front of it and had
/// another disk before. The blocks of the volume then.
pub(crate) fn put_journal_of(identity: &Identity, disk: &Disk, if_claimed: IfClaimed) -> Result<u64, JournalFailure> {
    refuse_another_cache(disk, Some(identity.uuid), if_claimed)?;
    if identity.journal_blocks == 0 {
        return Ok(disk.device.geometry().blocks);
    }
    let journal = journal_on(disk, identity.block_size, identity.journal_blocks)?;
    refuse_what_the_end_holds(disk, &journal, identity.uuid, if_claimed)?;
    put_journal(disk, journal, identity.uuid)?;
    Ok(journal.disk_blocks)
}

/// Gives the blocks of the journal of `identity` on `disk`, which was set free from it, back to
/// anybody.
pub(crate) fn erase_journal_of(identity: &Identity, disk: &Disk) -> Result<(), JournalFailure> {
    match identity.journal() {
        Some(journal) => {
            erase_journal(&*disk.device, journal, identity.uuid).map_err(JournalFailure::of_error(&disk.path))
        }
        None => Ok(()),
    }
}
