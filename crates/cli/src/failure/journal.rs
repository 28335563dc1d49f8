//! What is wrong with the journal of an ordered disk.

use super::{Exit, Told};
use std::path::{Path, PathBuf};
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::{Claim, Error};
use uuid::Uuid;

/// Why a disk is not ordered, or not put in order.
#[derive(Debug)]
pub(crate) enum JournalFailure {
    /// A disk is to go on without its region, and nobody says that the region is lost.
    RegionNotLost {
        /// The disk.
        disk: PathBuf,
    },
    /// A disk has no journal at its end.
    Absent {
        /// The disk.
        disk: PathBuf,
    },
    /// A journal cannot be read, written, or put in place.
    Unusable {
        /// The disk.
        disk: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A disk is too small for a journal.
    NoRoom {
        /// The disk.
        disk: PathBuf,
        /// Bytes of the journal.
        needs: u64,
        /// Bytes of the disk.
        has: u64,
    },
    /// The end of a disk, where a journal is to lie, holds something.
    EndHolds {
        /// The disk.
        disk: PathBuf,
        /// Where the journal would begin.
        at: u64,
    },
    /// Something says that the end of a disk is its own, where a journal is to lie.
    EndClaimed {
        /// The disk.
        disk: PathBuf,
        /// Where the journal would begin.
        at: u64,
        /// What says so.
        by: Claim,
    },
    /// A disk is to be used that has the journal of another cache.
    OfAnother {
        /// The disk.
        disk: PathBuf,
        /// The identity of that cache.
        uuid: Uuid,
    },
    /// A disk is to be used of which a group was being put in place.
    UnderWay {
        /// The disk.
        disk: PathBuf,
        /// Blocks of the group.
        blocks: u32,
    },
}

impl JournalFailure {
    /// What the journal of `disk` answered, for `map_err`.
    pub(crate) fn of_error(disk: &Path) -> impl Fn(Error) -> JournalFailure {
        |error| JournalFailure::Unusable { disk: disk.to_owned(), why: error.to_string() }
    }

    pub(super) fn told(&self) -> Told {
        Told::of(self.kind(), self.what_and_why(), self.next())
    }

    fn kind(&self) -> (&'static str, Exit) {
        match self {
            JournalFailure::RegionNotLost { .. } => ("region-not-lost", Exit::Usage),
            JournalFailure::Absent { .. } => ("no-journal", Exit::Refused),
            JournalFailure::Unusable { .. } => ("journal-unusable", Exit::Refused),
            JournalFailure::NoRoom { .. } => ("no-room-for-journal", Exit::Usage),
            JournalFailure::EndHolds { .. } => ("disk-end-holds", Exit::Refused),
            JournalFailure::EndClaimed { .. } => ("disk-end-claimed", Exit::Refused),
            JournalFailure::OfAnother { .. } => ("journal-of-another", Exit::Refused),
            JournalFailure::UnderWay { .. } => ("group-under-way", Exit::Refused),
        }
    }

    fn what_and_why(&self) -> (String, String) {
        match self {
            JournalFailure::RegionNotLost { disk } => (
                format!("{} is left as it is", disk.display()),
                "its region has what was written last, and brings the disk up to date by itself".to_owned(),
            ),
            JournalFailure::Absent { disk } => {
                (format!("{} has no journal", disk.display()), "no header of one is in its last two blocks".to_owned())
            }
            JournalFailure::Unusable { disk, why } => {
                (format!("the journal of {} cannot be used", disk.display()), why.clone())
            }
            JournalFailure::NoRoom { disk, needs, has } => (
                format!("{} is too small to be ordered", disk.display()),
                format!("it has {has} bytes ({}), and the journal takes {needs} ({})", Human(*has), Human(*needs)),
            ),
            JournalFailure::EndHolds { disk, at } => (
                format!("the end of {} holds something", disk.display()),
                format!("the journal would lie there, from byte {at} on"),
            ),
            JournalFailure::EndClaimed { disk, at, by } => (
                format!("the end of {} is in use", disk.display()),
                format!("it holds {by}, and the journal would lie there, from byte {at} on"),
            ),
            JournalFailure::OfAnother { disk, uuid } => (
                format!("{} is the disk of another region", disk.display()),
                format!(
                    "the journal at its end is that of the cache {uuid}, which may have blocks that the disk lacks"
                ),
            ),
            JournalFailure::UnderWay { disk, blocks } => (
                format!("{} is not whole", disk.display()),
                format!("{blocks} blocks were being put in place when it lost its region"),
            ),
        }
    }

    fn next(&self) -> String {
        match self {
            JournalFailure::RegionNotLost { disk } => {
                format!("serve its region; if that is lost: tidegate replay {} --force", word(disk))
            }
            JournalFailure::Absent { .. } => {
                "name a disk whose region was made with `tidegate create --ordered`, with the size that it had then"
                    .to_owned()
            }
            JournalFailure::Unusable { disk, .. } => {
                format!("see the kernel's log (dmesg), and try again, on a copy of {} if it fails", disk.display())
            }
            JournalFailure::NoRoom { .. } => {
                "make the region smaller: --size; or the disk larger (a file: truncate -s +SIZE FILE)".to_owned()
            }
            JournalFailure::EndHolds { disk, .. } => format!(
                "make room behind what it holds (a file: truncate -s +SIZE {}), or add --force if nothing there is needed",
                word(disk)
            ),
            JournalFailure::EndClaimed { disk, at, .. } => format!(
                "make the disk larger (a file: truncate -s +SIZE {}), or that smaller, to {at} bytes (ext4: resize2fs), or add --force if nothing there is needed",
                word(disk)
            ),
            JournalFailure::OfAnother { disk, .. } => format!(
                "set the disk free from that region: tidegate detach --pmem REGION; if that is lost: tidegate replay {} --force, and try again with --force",
                word(disk)
            ),
            JournalFailure::UnderWay { disk, .. } => format!(
                "serve its region; if that is lost: tidegate replay {} --force, and try again with --force",
                word(disk)
            ),
        }
    }
}
