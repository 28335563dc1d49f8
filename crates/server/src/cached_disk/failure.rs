//! Why a disk, the cache in front of it, or the journal at its end is not used, and the obstacles
//! that keep blocks from the disk.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_disk_cache::Mode;
use tidegate_host::shell::word;
use tidegate_host::units::{Exact, Human};
use tidegate_media::{Claim, Error, MapError};
use uuid::Uuid;

/// Why a disk, or the cache in front of it, is not used.
#[derive(Debug, thiserror::Error)]
pub enum DiskFailure {
    /// Nobody says which disk a cache belongs to.
    #[error("the disk of {} is not known", pmem.display())]
    NotNamed {
        /// The region.
        pmem: PathBuf,
    },
    /// Another user owns the region at which its disk is noted.
    #[error("{} is not opened, the disk that is noted at {}", disk.display(), pmem.display())]
    NotedByAnother {
        /// The region.
        pmem: PathBuf,
        /// The disk that is noted.
        disk: PathBuf,
        /// The user.
        owner: u32,
    },
    /// The disk cannot be opened.
    #[error("the disk {} cannot be used", path_in(error).display())]
    Unusable {
        /// What the system says.
        error: MapError,
    },
    /// The disk of a cache is not there.
    #[error("the disk of {} is not at {}", pmem.display(), disk.display())]
    Absent {
        /// The region.
        pmem: PathBuf,
        /// Where it should be.
        disk: PathBuf,
    },
    /// Another disk than the one that is cached.
    #[error("{} is not the disk of {}", disk.display(), pmem.display())]
    Replaced {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
    },
    /// A disk without a name, at another place than it was.
    #[error("{} may not be the disk of {}", disk.display(), pmem.display())]
    Nameless {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
        /// Where the cached one was.
        was: PathBuf,
    },
    /// The disk is smaller than it was.
    #[error("the disk {} is smaller than the volume", disk.display())]
    Smaller {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
        /// Bytes it had.
        needs: u64,
        /// Bytes it has.
        has: u64,
    },
    /// Somebody wrote to the disk without its cache, which has blocks for it.
    #[error("{} was changed without {}", disk.display(), pmem.display())]
    Changed {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
        /// Bytes that only the region has.
        dirty_bytes: u64,
    },
    /// The disk holds something else than its cache left there, which has blocks for it.
    #[error("{} was changed without {}", disk.display(), pmem.display())]
    Differs {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
        /// Where the first block lies that was found to be another, in bytes.
        at: u64,
        /// Bytes that only the region has.
        dirty_bytes: u64,
    },
    /// What is named as a disk holds what belongs into persistent memory.
    #[error("{} holds {holds}", disk.display())]
    IsMemory {
        /// What was named.
        disk: PathBuf,
        /// What is recognised there.
        holds: &'static str,
    },
    /// The disk belongs to another region.
    #[error("{} is the disk of another region", disk.display())]
    OfAnother {
        /// The disk.
        disk: PathBuf,
        /// The identity of that region.
        region: Uuid,
        /// Where it was.
        place: PathBuf,
        /// Bytes that only that region has, if it is there.
        dirty: Option<u64>,
    },
    /// Completed writes would lie only in memory that a power loss empties.
    #[error("{} lies in memory that a power loss empties: completed writes would be lost", pmem.display())]
    Volatile {
        /// The region.
        pmem: PathBuf,
        /// Whether the disk keeps the order of commits.
        ordered: bool,
        /// What was asked for.
        step: Step,
    },
    /// The cache was detached from its disk.
    #[error("{} has no disk", pmem.display())]
    Detached {
        /// The region.
        pmem: PathBuf,
    },
    /// A cache that has a disk is to get another.
    #[error("{} has a disk already", pmem.display())]
    Attached {
        /// The region.
        pmem: PathBuf,
    },
    /// There is no such region.
    #[error("there is no region {}", pmem.display())]
    NoRegion {
        /// The region.
        pmem: PathBuf,
    },
    /// The region holds no cache of a disk.
    #[error("{} is no cache of a disk", pmem.display())]
    NoCache {
        /// The region.
        pmem: PathBuf,
        /// What was recognised in it.
        holds: String,
    },
    /// A cache in DRAM was asked for in front of a cache of a disk.
    #[error("{} gets no cache in DRAM", pmem.display())]
    WriteCacheAsked {
        /// The region.
        pmem: PathBuf,
    },
    /// Blocks of a cache were to move, so that its memory wears evenly.
    #[error("the wear of {} cannot be levelled", pmem.display())]
    WearLevelingAsked {
        /// The region.
        pmem: PathBuf,
    },
    /// Blocks stay in the region.
    #[error("{dirty_bytes} bytes ({}) stay in {}", Human(*dirty_bytes), pmem.display())]
    Undestaged {
        /// The region.
        pmem: PathBuf,
        /// Bytes that only the region has.
        dirty_bytes: u64,
        /// What keeps them there.
        obstacle: Obstacle,
    },
    /// What was to be salvaged to is not empty.
    #[error("{} exists already", to.display())]
    TargetHolds {
        /// The file or disk.
        to: PathBuf,
    },
    /// What was to be salvaged to is the disk of the region.
    #[error("{} is the disk of {}", to.display(), pmem.display())]
    TargetIsItsDisk {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        to: PathBuf,
    },
    /// Blocks of another size than those that are served.
    #[error("{} does not fit the volume that is served", pmem.display())]
    BlockSize {
        /// The region.
        pmem: PathBuf,
        /// Bytes in its blocks.
        has: u32,
        /// Bytes in the blocks served.
        needs: u32,
    },
    /// A volume that is served without being changed.
    #[error("{} is left as it is", pmem.display())]
    ReadOnly {
        /// The region.
        pmem: PathBuf,
    },
    /// A cache is to be changed that is being changed.
    #[error("{} is being changed", pmem.display())]
    Changing {
        /// The region.
        pmem: PathBuf,
    },
    /// A volume that has no disk is to become larger or smaller.
    #[error("{} keeps its size", pmem.display())]
    Plain {
        /// The region.
        pmem: PathBuf,
    },
    /// The journal of a disk that has grown is not at its end any more.
    #[error("the volume of {} keeps its size", _0.pmem.display())]
    JournalInside(Growth),
    /// A region that is no file has the size that it has.
    #[error("{} keeps its size", pmem.display())]
    NoFile {
        /// The region.
        pmem: PathBuf,
    },
}

/// Why a disk is not ordered, or not put in order.
#[derive(Debug, thiserror::Error)]
pub enum JournalFailure {
    /// A disk is to go on without its region, and nobody says that the region is lost.
    #[error("{} is left as it is", disk.display())]
    RegionNotLost {
        /// The disk.
        disk: PathBuf,
    },
    /// A disk has no journal at its end.
    #[error("{} has no journal", disk.display())]
    Absent {
        /// The disk.
        disk: PathBuf,
    },
    /// A journal cannot be read, written, or put in place.
    #[error("the journal of {} cannot be used", disk.display())]
    Unusable {
        /// The disk.
        disk: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A disk is too small for a journal.
    #[error("{} is too small to be ordered", disk.display())]
    NoRoom {
        /// The disk.
        disk: PathBuf,
        /// Bytes of the journal.
        needs: u64,
        /// Bytes of the disk.
        has: u64,
    },
    /// The end of a disk, where a journal is to lie, holds something.
    #[error("the end of {} holds something", disk.display())]
    EndHolds {
        /// The disk.
        disk: PathBuf,
        /// Where the journal would begin.
        at: u64,
    },
    /// Something says that the end of a disk is its own, where a journal is to lie.
    #[error("the end of {} is in use", disk.display())]
    EndClaimed {
        /// The disk.
        disk: PathBuf,
        /// Where the journal would begin.
        at: u64,
        /// What says so.
        by: Claim,
    },
    /// A disk is to be used that has the journal of another cache.
    #[error("{} is the disk of another region", disk.display())]
    OfAnother {
        /// The disk.
        disk: PathBuf,
        /// The identity of that cache.
        uuid: Uuid,
    },
    /// A disk is to be used of which a group was being put in place.
    #[error("{} is not whole", disk.display())]
    UnderWay {
        /// The disk.
        disk: PathBuf,
        /// Blocks of the group.
        blocks: u32,
    },
}

impl JournalFailure {
    /// What the journal of `disk` answered, for `map_err`.
    pub fn of_error(disk: &Path) -> impl Fn(Error) -> JournalFailure {
        |error| JournalFailure::Unusable { disk: disk.to_owned(), why: error.to_string() }
    }
}

/// What keeps blocks from their disk.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Obstacle {
    /// What of it is at fault.
    pub by: AtFault,
    /// The first block that stops it, and why; or what is wrong with the journal.
    pub why: String,
}

/// What is at fault if blocks do not reach their disk.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AtFault {
    /// The disk, which refuses them.
    Disk,
    /// The blocks, which do not fit their checksums.
    Damage,
    /// A block that does not fit its checksum, or is missing: on an ordered disk nothing may go
    /// past it.
    Order,
    /// The journal of an ordered disk, which is another cache's or gone.
    Journal,
}

impl AtFault {
    /// What to do about it, with the blocks in `pmem`.
    pub fn next(self, pmem: &Path) -> String {
        let pmem = word(pmem);
        match self {
            AtFault::Disk => format!(
                "nothing is lost: see dmesg, repair the disk and try again, or write them elsewhere: tidegate salvage --pmem {pmem} --to FILE"
            ),
            AtFault::Damage => format!(
                "everything else went to the disk; write the block anew from its application or a backup, or see all of them: tidegate scrub --pmem {pmem}"
            ),
            AtFault::Order => format!(
                "nothing goes past it on an ordered disk: write the block anew from its application or a backup, or write all others elsewhere: tidegate salvage --pmem {pmem} --to FILE"
            ),
            AtFault::Journal => format!(
                "nothing is lost: if it is another cache's, bring that one's blocks to the disk (tidegate detach); then write these to a copy of the disk: tidegate salvage --pmem {pmem} --to COPY --force"
            ),
        }
    }
}

/// That a disk has more bytes than the volume on it, and its journal.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// The region.
    #[serde(skip)]
    pub pmem: PathBuf,
    /// The disk.
    #[serde(skip)]
    pub disk: PathBuf,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Bytes of the volume, with the journal of an ordered one.
    pub volume_bytes: u64,
    /// Whether it is ordered.
    pub ordered: bool,
}

impl Growth {
    /// What makes the volume as large.
    pub fn way(&self) -> String {
        let (pmem, disk) = (word(&self.pmem), word(&self.disk));
        match self.ordered {
            false => format!("tidegate resize --pmem {pmem} --to-disk"),
            true => format!("tidegate detach --pmem {pmem}, and tidegate attach --pmem {pmem} --disk {disk}"),
        }
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (has, used) = (self.disk_bytes, self.volume_bytes);
        write!(f, "the disk has {has} bytes ({}), and {used} ({}) are used", Exact(has), Exact(used))?;
        write!(f, "; as large as the disk the volume is made by: {}", self.way())?;
        match self.ordered {
            false => Ok(()),
            true => {
                write!(f, "; until then `tidegate replay` does not find the journal, which is not at the disk's end")
            }
        }
    }
}

/// What a region in front of a disk is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To be made. How it will be served is not known then.
    Create,
    /// To get another disk, without a server.
    Attach,
    /// To be served, by this mode.
    Serve(Mode),
    /// To go on by this mode in a running server.
    GoOn(Mode),
}

impl Step {
    /// Whether completed writes may lie only in the region from then on.
    pub(crate) fn completes_before_the_disk(self) -> bool {
        match self {
            Step::Create | Step::Attach => true,
            Step::Serve(mode) | Step::GoOn(mode) => mode.completes_before_the_disk(),
        }
    }
}

/// The path that `error` is about.
fn path_in(error: &MapError) -> &Path {
    let (MapError::NotFound { path }
    | MapError::AlreadyExists { path }
    | MapError::InUse { path, .. }
    | MapError::Permission { path }
    | MapError::NoSpace { path, .. }
    | MapError::CannotAllocate { path }
    | MapError::ReadOnlyFile { path }
    | MapError::Empty { path }
    | MapError::TooLarge { path, .. }
    | MapError::NotAFile { path, .. }
    | MapError::Io { path, .. }) = error;
    path
}
