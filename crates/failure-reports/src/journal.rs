//! Journals of ordered disks that cannot be used, or must not be overwritten.

use crate::{Exit, Report};
use std::path::Path;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::Claim;
use tidegate_server::failure::JournalFailure;
use uuid::Uuid;

impl From<&JournalFailure> for Report {
    fn from(failure: &JournalFailure) -> Report {
        let what = failure.to_string();
        match failure {
            JournalFailure::RegionNotLost { disk } => region_not_lost(what, disk),
            JournalFailure::Absent { .. } => absent(what),
            JournalFailure::Unusable { disk, why } => unusable(what, disk, why),
            JournalFailure::NoRoom { needs, has, .. } => no_room(what, *needs, *has),
            JournalFailure::EndHolds { disk, at } => end_holds(what, disk, *at),
            JournalFailure::EndClaimed { disk, at, by } => end_claimed(what, disk, *at, by),
            JournalFailure::OfAnother { disk, uuid } => of_another(what, disk, *uuid),
            JournalFailure::UnderWay { disk, blocks } => under_way(what, disk, *blocks),
        }
    }
}

fn region_not_lost(what: String, disk: &Path) -> Report {
    let why = "its region has the last writes, and a server of the region writes them to the disk";
    let next = format!("serve its region; if that is lost: tidegate replay {} --force", word(disk));
    Report::new(("region-not-lost", Exit::Usage), what, why, next)
}

fn absent(what: String) -> Report {
    let next = "name a disk whose region was made with `tidegate create --ordered`, with the size that it had then";
    Report::new(("no-journal", Exit::Refused), what, "no header of one is in its last two blocks", next)
}

fn unusable(what: String, disk: &Path, why: &str) -> Report {
    let next = format!("see the kernel's log (dmesg), and try again, on a copy of {} if it fails", disk.display());
    Report::new(("journal-unusable", Exit::Refused), what, why, next)
}

fn no_room(what: String, needs: u64, has: u64) -> Report {
    let why = format!("it has {has} bytes ({}), and the journal takes {needs} ({})", Human(has), Human(needs));
    let next = "make the region smaller: --size; or the disk larger (a file: truncate -s +SIZE FILE)";
    Report::new(("no-room-for-journal", Exit::Usage), what, why, next)
}

fn end_holds(what: String, disk: &Path, at: u64) -> Report {
    let why = format!("the journal would lie there, from byte {at} on");
    let next = format!(
        "make room behind what it holds (a file: truncate -s +SIZE {}), or add --force if nothing there is needed",
        word(disk)
    );
    Report::new(("disk-end-holds", Exit::Refused), what, why, next)
}

fn end_claimed(what: String, disk: &Path, at: u64, by: &Claim) -> Report {
    let why = format!("it holds {by}, and the journal would lie there, from byte {at} on");
    let next = format!(
        "make the disk larger (a file: truncate -s +SIZE {}), or that smaller, to {at} bytes (ext4: resize2fs), or add --force if nothing there is needed",
        word(disk)
    );
    Report::new(("disk-end-claimed", Exit::Refused), what, why, next)
}

fn of_another(what: String, disk: &Path, uuid: Uuid) -> Report {
    let why = format!("the journal at its end is that of the cache {uuid}, which may have blocks that the disk lacks");
    let next = format!(
        "release the disk from that region: tidegate detach --pmem REGION; if the region is lost: tidegate replay {} --force, and try again with --force",
        word(disk)
    );
    Report::new(("journal-of-another", Exit::Refused), what, why, next)
}

fn under_way(what: String, disk: &Path, blocks: u32) -> Report {
    let why = format!("{blocks} blocks were being put in place when it lost its region");
    let next = format!(
        "serve its region; if that is lost: tidegate replay {} --force, and try again with --force",
        word(disk)
    );
    Report::new(("group-under-way", Exit::Refused), what, why, next)
}
