//! Disks behind caches that cannot be used, and what keeps blocks from reaching them.

use super::volume::is_of_the_path;
use super::{Exit, Told};
use crate::disks::Growth;
use crate::risk::Step;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tidegate_host::owned;
use tidegate_host::shell::word;
use tidegate_host::units::{Exact, Human};
use tidegate_media::{LockHolder, MapError};
use uuid::Uuid;

/// Why a disk, or the cache in front of it, is not used.
#[derive(Debug)]
pub(crate) enum DiskFailure {
    /// Nobody says which disk a cache belongs to.
    NotNamed {
        /// The region.
        pmem: PathBuf,
    },
    /// Another user owns the region at which its disk is noted.
    NotedByAnother {
        /// The region.
        pmem: PathBuf,
        /// The disk that is noted.
        disk: PathBuf,
        /// The user.
        owner: u32,
    },
    /// The disk cannot be opened.
    Unusable {
        /// What the system says.
        error: MapError,
    },
    /// The disk of a cache is not there.
    Absent {
        /// The region.
        pmem: PathBuf,
        /// Where it should be.
        disk: PathBuf,
    },
    /// Another disk than the one that is cached.
    Replaced {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
    },
    /// A disk without a name, at another place than it was.
    Nameless {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
        /// Where the cached one was.
        was: PathBuf,
    },
    /// The disk is smaller than it was.
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
    Changed {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        disk: PathBuf,
        /// Bytes that only the region has.
        dirty_bytes: u64,
    },
    /// The disk holds something else than its cache left there, which has blocks for it.
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
    /// The disk belongs to another region.
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
    Volatile {
        /// The region.
        pmem: PathBuf,
        /// Whether the disk keeps the order of commits.
        ordered: bool,
        /// What was asked for.
        step: Step,
    },
    /// The cache was detached from its disk.
    Detached {
        /// The region.
        pmem: PathBuf,
    },
    /// A cache that has a disk is to get another.
    Attached {
        /// The region.
        pmem: PathBuf,
    },
    /// There is no such region.
    NoRegion {
        /// The region.
        pmem: PathBuf,
    },
    /// The region holds no cache of a disk.
    NoCache {
        /// The region.
        pmem: PathBuf,
        /// What was recognised in it.
        holds: String,
    },
    /// A cache in DRAM was asked for in front of a cache of a disk.
    TransitWished {
        /// The region.
        pmem: PathBuf,
    },
    /// Blocks of a cache were to move, so that its memory wears evenly.
    LevellingWished {
        /// The region.
        pmem: PathBuf,
    },
    /// Blocks stay in the region.
    Kept {
        /// The region.
        pmem: PathBuf,
        /// Bytes that only the region has.
        dirty_bytes: u64,
        /// What keeps them there.
        kept: Kept,
    },
    /// What was to be salvaged to is not empty.
    TargetHolds {
        /// The file or disk.
        to: PathBuf,
    },
    /// What was to be salvaged to is the disk of the region.
    TargetIsItsDisk {
        /// The region.
        pmem: PathBuf,
        /// The disk.
        to: PathBuf,
    },
    /// Blocks of another size than those that are served.
    BlockSize {
        /// The region.
        pmem: PathBuf,
        /// Bytes in its blocks.
        has: u32,
        /// Bytes in the blocks served.
        needs: u32,
    },
    /// A volume that is served without being changed.
    ReadOnly {
        /// The region.
        pmem: PathBuf,
    },
    /// A cache is to be changed that is being changed.
    Changing {
        /// The region.
        pmem: PathBuf,
    },
    /// A volume that has no disk is to become larger or smaller.
    Plain {
        /// The region.
        pmem: PathBuf,
    },
    /// The journal of a disk that has grown is not at its end any more.
    JournalInside(Growth),
    /// A region that is no file has the size that it has.
    NoFile {
        /// The region.
        pmem: PathBuf,
    },
    /// The running server has no such volume, or refuses what was asked of it.
    Server {
        /// What it said.
        why: String,
        /// What to do now, as it says.
        next: String,
        /// How a command ends that meets the same without a server.
        exit: Exit,
    },
}

/// What keeps blocks from their disk.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Kept {
    /// What of it is at fault.
    pub(crate) by: KeptBy,
    /// The first block that stops it, and why; or what is wrong with the journal.
    pub(crate) why: String,
}

/// What is at fault if blocks do not reach their disk.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeptBy {
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

impl KeptBy {
    fn kind(self) -> (&'static str, Exit) {
        match self {
            KeptBy::Disk => ("disk-refuses", Exit::Environment),
            KeptBy::Damage => ("block-damaged", Exit::Refused),
            KeptBy::Order => ("order-stopped", Exit::Refused),
            KeptBy::Journal => ("journal-lost", Exit::Refused),
        }
    }

    /// What to do about it, with the blocks in `pmem`.
    pub(crate) fn next(self, pmem: &Path) -> String {
        let pmem = word(pmem);
        match self {
            KeptBy::Disk => format!(
                "nothing is lost: see dmesg, repair the disk and try again, or write them elsewhere: tidegate salvage --pmem {pmem} --to FILE"
            ),
            KeptBy::Damage => format!(
                "everything else went to the disk; write the block anew from its application or a backup, or see all of them: tidegate scrub --pmem {pmem}"
            ),
            KeptBy::Order => format!(
                "nothing goes past it on an ordered disk: write the block anew from its application or a backup, or write all others elsewhere: tidegate salvage --pmem {pmem} --to FILE"
            ),
            KeptBy::Journal => format!(
                "nothing is lost: if it is another cache's, bring that one's blocks to the disk (tidegate detach); then write these to a copy of the disk: tidegate salvage --pmem {pmem} --to COPY --force"
            ),
        }
    }
}

impl DiskFailure {
    pub(super) fn told(&self) -> Told {
        Told::of(self.kind(), self.what_and_why(), self.next())
    }

    fn kind(&self) -> (&'static str, Exit) {
        match self {
            DiskFailure::NotNamed { .. } => ("disk-not-named", Exit::Usage),
            DiskFailure::NotedByAnother { .. } => ("disk-noted-by-another", Exit::Refused),
            DiskFailure::Unusable { error: MapError::InUse { .. } } => ("disk-in-use", Exit::InUse),
            DiskFailure::Absent { .. } | DiskFailure::Unusable { error: MapError::NotFound { .. } } => {
                ("disk-absent", Exit::Refused)
            }
            DiskFailure::Unusable { .. } => ("disk-unusable", Exit::Environment),
            DiskFailure::Replaced { .. } => ("disk-replaced", Exit::Refused),
            DiskFailure::Nameless { .. } => ("disk-elsewhere", Exit::Refused),
            DiskFailure::Smaller { .. } => ("disk-smaller", Exit::Refused),
            DiskFailure::Changed { .. } | DiskFailure::Differs { .. } => ("disk-changed", Exit::Refused),
            DiskFailure::OfAnother { .. } => ("disk-of-another", Exit::Refused),
            DiskFailure::Volatile { .. } => ("volatile-region", Exit::Refused),
            DiskFailure::Detached { .. } => ("detached", Exit::Refused),
            DiskFailure::Attached { .. } => ("attached", Exit::Refused),
            DiskFailure::NoRegion { .. } => ("absent", Exit::Refused),
            DiskFailure::NoCache { .. } => ("no-disk-cache", Exit::Refused),
            DiskFailure::TransitWished { .. } => ("two-caches", Exit::Usage),
            DiskFailure::LevellingWished { .. } => ("no-table", Exit::Usage),
            DiskFailure::Kept { kept, .. } => kept.by.kind(),
            DiskFailure::TargetHolds { .. } => ("target-holds", Exit::Refused),
            DiskFailure::TargetIsItsDisk { .. } => ("target-is-its-disk", Exit::Refused),
            DiskFailure::BlockSize { .. } => ("block-size-differs", Exit::Refused),
            DiskFailure::ReadOnly { .. } => ("served-read-only", Exit::Refused),
            DiskFailure::Changing { .. } => ("being-changed", Exit::InUse),
            DiskFailure::Plain { .. } => ("size-fixed", Exit::Refused),
            DiskFailure::JournalInside(_) => ("journal-inside", Exit::Refused),
            DiskFailure::NoFile { .. } => ("no-file", Exit::Usage),
            DiskFailure::Server { exit, .. } => ("server-refuses", *exit),
        }
    }

    fn what_and_why(&self) -> (String, String) {
        match self {
            DiskFailure::NotedByAnother { pmem, disk, owner } => noted_by_another(pmem, disk, *owner),
            DiskFailure::NotNamed { pmem } => not_named(pmem),
            DiskFailure::Unusable { error } => of_map_error(error),
            DiskFailure::Absent { pmem, disk } => absent(pmem, disk),
            DiskFailure::Replaced { pmem, disk } => replaced(pmem, disk),
            DiskFailure::Nameless { pmem, disk, was } => nameless(pmem, disk, was),
            DiskFailure::Smaller { disk, needs, has, .. } => smaller(disk, *needs, *has),
            DiskFailure::Changed { pmem, disk, dirty_bytes } => changed(pmem, disk, *dirty_bytes),
            DiskFailure::Differs { pmem, disk, at, dirty_bytes } => differs(pmem, disk, *at, *dirty_bytes),
            DiskFailure::OfAnother { disk, region, place, dirty } => of_another(disk, *region, place, *dirty),
            DiskFailure::Volatile { pmem, ordered, .. } => volatile(pmem, *ordered),
            DiskFailure::Detached { pmem } => detached(pmem),
            DiskFailure::Attached { pmem } => (
                format!("{} has a disk already", pmem.display()),
                "a cache can be attached to another only after it was detached".to_owned(),
            ),
            DiskFailure::NoRegion { pmem } => {
                (format!("there is no region {}", pmem.display()), "no such file".to_owned())
            }
            DiskFailure::NoCache { pmem, holds } => {
                (format!("{} is no cache of a disk", pmem.display()), format!("it holds {holds}"))
            }
            DiskFailure::TransitWished { pmem } => (
                format!("{} gets no cache in DRAM", pmem.display()),
                "the volume is a cache itself, whose promises another one in front of it would break".to_owned(),
            ),
            DiskFailure::LevellingWished { pmem } => {
                let what = format!("the wear of {} cannot be levelled", pmem.display());
                (what, "it caches a disk: each commit takes another place anyway".to_owned())
            }
            DiskFailure::Kept { pmem, dirty_bytes, kept } => {
                let what = format!("{dirty_bytes} bytes ({}) stay in {}", Human(*dirty_bytes), pmem.display());
                (what, kept.why.clone())
            }
            DiskFailure::TargetHolds { to } => {
                (format!("{} exists already", to.display()), "salvaging writes over what it holds".to_owned())
            }
            DiskFailure::TargetIsItsDisk { pmem, to } => target_is_its_disk(pmem, to),
            DiskFailure::BlockSize { pmem, has, needs } => (
                format!("{} does not fit the volume that is served", pmem.display()),
                format!("its blocks have {has} bytes, the volume's {needs}"),
            ),
            DiskFailure::ReadOnly { pmem } => {
                (format!("{} is left as it is", pmem.display()), "it is served with --read-only".to_owned())
            }
            DiskFailure::Changing { pmem } => of_change(pmem),
            DiskFailure::Plain { pmem } => keeps_its_size(pmem, PLAIN),
            DiskFailure::JournalInside(growth) => journal_inside(growth),
            DiskFailure::NoFile { pmem } => keeps_its_size(pmem, "only a file can become larger or smaller"),
            DiskFailure::Server { why, .. } => ("the running server refuses".to_owned(), why.clone()),
        }
    }

    fn next(&self) -> String {
        match self {
            DiskFailure::NotNamed { .. } => "name it: --disk /dev/DISK or --disk FILE".to_owned(),
            DiskFailure::NotedByAnother { disk, owner, .. } => format!(
                "if that is its disk, name it: --disk {}; or run this as that user: sudo -u {}",
                word(disk),
                owned::for_sudo(*owner)
            ),
            DiskFailure::Unusable { error } => next_of_map_error(error),
            DiskFailure::Absent { pmem, .. } => or_salvage("connect it, or say where it is: --disk", pmem),
            DiskFailure::Replaced { pmem, .. } => or_salvage("name the right disk: --disk", pmem),
            DiskFailure::Nameless { disk, was, .. } => format!(
                "name the place where it was: --disk {}; if it is the same disk at another place: --disk {} --force",
                word(was),
                word(disk)
            ),
            DiskFailure::Smaller { pmem, .. } => or_salvage("restore its size", pmem),
            DiskFailure::Changed { pmem, .. } | DiskFailure::Differs { pmem, .. } => format!(
                "write them elsewhere: tidegate salvage --pmem {pmem} --to FILE; or over what the disk holds now: tidegate flush --force --pmem {pmem}",
                pmem = word(pmem)
            ),
            DiskFailure::OfAnother { place, disk, .. } => next_of_another(place, disk),
            DiskFailure::Volatile { pmem, step, .. } => next_of_volatile(pmem, *step),
            DiskFailure::Detached { pmem } => {
                format!("give it one: tidegate attach --pmem {} --disk DISK", word(pmem))
            }
            DiskFailure::Attached { pmem } => format!("detach it first: tidegate detach --pmem {}", word(pmem)),
            DiskFailure::NoRegion { .. } => "name the region in front of the disk: --pmem FILE".to_owned(),
            DiskFailure::NoCache { .. } => {
                "name the region of a volume that was made with `tidegate create --disk`".to_owned()
            }
            DiskFailure::TransitWished { .. } => "leave --write-cache out".to_owned(),
            DiskFailure::LevellingWished { .. } => "leave --wear-leveling out".to_owned(),
            DiskFailure::Kept { pmem, kept, .. } => kept.by.next(pmem),
            DiskFailure::TargetHolds { .. } => {
                "name a file that does not exist, or add --force if this is a copy of the disk".to_owned()
            }
            DiskFailure::TargetIsItsDisk { pmem, .. } => format!(
                "bring its blocks there: tidegate flush --pmem {} --wait; or name a copy of the disk, or a new file",
                word(pmem)
            ),
            DiskFailure::BlockSize { needs, .. } => {
                format!("make a region for this disk: tidegate create --disk DISK --block {needs}")
            }
            DiskFailure::ReadOnly { .. } => "serve it without --read-only".to_owned(),
            DiskFailure::Changing { .. } => "try again when that has ended".to_owned(),
            DiskFailure::Plain { .. } => {
                "create a volume of the size that you want (tidegate create --pmem NEW --size SIZE), serve both, and copy this one: nbdcopy URI NEW-URI".to_owned()
            }
            DiskFailure::JournalInside(growth) => format!("run {}", growth.way()),
            DiskFailure::NoFile { pmem } => {
                format!("detach it, and make another region: tidegate detach --pmem {}", word(pmem))
            }
            DiskFailure::Server { next, .. } => next.clone(),
        }
    }
}

/// What is said of a region whose memory a power loss empties.
fn volatile(pmem: &Path, ordered: bool) -> (String, String) {
    let what =
        format!("completed writes would be lost with the power: {} lies in memory that it empties", pmem.display());
    let disk = match ordered {
        false => "the disk would be out of date then, and a file system on it damaged",
        true => "the disk would lack the last writes then",
    };
    (
        what,
        format!(
            "by write-back, the usual mode, and by write-only a write is complete, and flushed, before the disk has it: {disk}"
        ),
    )
}

fn next_of_volatile(pmem: &Path, step: Step) -> String {
    let pmem = word(pmem);
    match step {
        Step::Create => "make the region in persistent memory: --pmem /mnt/pmem/FILE; or add --accept-volatile, and serve it with --disk-mode write-through, which loses nothing".to_owned(),
        Step::Attach => "make a region in persistent memory: tidegate create --pmem /mnt/pmem/FILE --disk DISK; or add --accept-volatile, and serve it with --disk-mode write-through, which loses nothing".to_owned(),
        Step::Serve(_) => "serve it with --disk-mode write-through, which loses nothing; or detach it and make a region in persistent memory; or accept the loss: --accept-volatile, in a configuration file accept_volatile = true".to_owned(),
        Step::GoOn(_) => format!("use write-through, which loses nothing (tidegate mode --pmem {pmem} write-through); or accept the loss: tidegate mode --pmem {pmem} --accept-volatile MODE"),
    }
}

fn noted_by_another(pmem: &Path, disk: &Path, owner: u32) -> (String, String) {
    (
        format!("{} is not opened, the disk that is noted at {}", disk.display(), pmem.display()),
        format!("{} owns the region, and may have noted any disk", owned::named(owner)),
    )
}

/// What is said of a disk without a name that is not where the cached one was.
fn nameless(pmem: &Path, disk: &Path, was: &Path) -> (String, String) {
    let what = format!("{} may not be the disk of {}", disk.display(), pmem.display());
    (what, format!("that one had no name to know it by, and was at {}", was.display()))
}

/// What is said of a disk that is to get the blocks of its own region by salvaging.
fn target_is_its_disk(pmem: &Path, to: &Path) -> (String, String) {
    let what = format!("{} is the disk of {}", to.display(), pmem.display());
    (what, "salvaging is for what cannot go there: it keeps no order, and the region would not know of it".to_owned())
}

/// That the cache in `pmem` is being changed, and by what.
fn of_change(pmem: &Path) -> (String, String) {
    (format!("{} is being changed", pmem.display()), "another detach or resize is under way".to_owned())
}

/// Why a volume of Linux's format, which has no disk, keeps its size.
const PLAIN: &str = "it holds a volume of its own, whose map and log the format puts at the end of an arena; another arena may follow only one of 512 GiB, so a longer file makes no larger volume";

/// Of a region that becomes neither larger nor smaller.
fn keeps_its_size(pmem: &Path, why: &str) -> (String, String) {
    (format!("{} keeps its size", pmem.display()), why.to_owned())
}

/// Of a disk of which no place is known.
fn not_named(pmem: &Path) -> (String, String) {
    let why = "the region holds a cache of a disk, and neither the command nor the file says where that is";
    (format!("the disk of {} is not known", pmem.display()), why.to_owned())
}

/// What makes the disk of `pmem` usable again, or does without it.
fn or_salvage(way: &str, pmem: &Path) -> String {
    let pmem = word(pmem);
    format!("{way}; what only the cache has can be written elsewhere: tidegate salvage --pmem {pmem} --to FILE")
}

/// Of an ordered disk that has grown.
fn journal_inside(growth: &Growth) -> (String, String) {
    let why = "an ordered disk has its journal at its end, which is moved only while the disk is free";
    (format!("the volume of {} keeps its size", growth.pmem.display()), why.to_owned())
}

/// Of a disk that has lost its end.
fn smaller(disk: &Path, needs: u64, has: u64) -> (String, String) {
    (
        format!("the disk {} is smaller than the volume", disk.display()),
        format!("it has {has} bytes ({}), and {needs} ({}) are cached", Exact(has), Exact(needs)),
    )
}

/// Of a disk that somebody wrote to without its cache.
fn changed(pmem: &Path, disk: &Path, dirty_bytes: u64) -> (String, String) {
    let bytes = Human(dirty_bytes);
    (
        format!("{} was changed without {}", disk.display(), pmem.display()),
        format!(
            "its size or the time of its last change is another than when the region was last closed, and {dirty_bytes} bytes ({bytes}) are only in the region"
        ),
    )
}

/// The same, seen by what it holds.
fn differs(pmem: &Path, disk: &Path, at: u64, dirty_bytes: u64) -> (String, String) {
    let bytes = Human(dirty_bytes);
    (
        format!("{} was changed without {}", disk.display(), pmem.display()),
        format!(
            "its block at byte {at} is not what the region left there: it was mounted, checked or written by another program, or by another region. {dirty_bytes} bytes ({bytes}) are only in this region, and do not fit what the disk holds now"
        ),
    )
}

/// Of a disk that is not where it was.
fn absent(pmem: &Path, disk: &Path) -> (String, String) {
    (
        format!("the disk of {} is not at {}", pmem.display(), disk.display()),
        "there is no such file or device".to_owned(),
    )
}

/// Of a region that has no disk.
fn detached(pmem: &Path) -> (String, String) {
    (format!("{} has no disk", pmem.display()), "it was detached from its disk".to_owned())
}

/// Of a disk that belongs to another region.
fn of_another(disk: &Path, region: Uuid, place: &Path, dirty: Option<u64>) -> (String, String) {
    let has = match dirty {
        Some(0) => "has nothing that the disk lacks, but is not detached".to_owned(),
        Some(bytes) => format!("has {bytes} bytes ({}) that the disk lacks", Human(bytes)),
        None => "is not there, or cannot be read, and may have blocks that the disk lacks".to_owned(),
    };
    (
        format!("{} is the disk of another region", disk.display()),
        format!("it is marked for the region {region} in {}, which {has}", place.display()),
    )
}

/// What to do about a disk of another region, which was in `place`.
fn next_of_another(place: &Path, disk: &Path) -> String {
    format!(
        "set the disk free from that region: tidegate detach --pmem {}; if that is lost, or what only it has is not needed, add --disk {} --force: those bytes never reach the disk then",
        word(place),
        word(disk)
    )
}

/// Of another disk than the one that is cached.
fn replaced(pmem: &Path, disk: &Path) -> (String, String) {
    (
        format!("{} is not the disk of {}", disk.display(), pmem.display()),
        "its maker's name, or its file, is another than when the cache was made; blocks of one disk on another destroy both"
            .to_owned(),
    )
}

/// What `error` says of a disk, and why it cannot be used.
fn of_map_error(error: &MapError) -> (String, String) {
    let why = match error {
        MapError::NotFound { .. } => "there is no such file or device".to_owned(),
        MapError::InUse { holder, .. } => holder.to_string(),
        MapError::Permission { .. } => "the system refused it to this user".to_owned(),
        MapError::ReadOnlyFile { .. } => "it is write-protected, or on a file system mounted read-only".to_owned(),
        MapError::Empty { .. } => "it has not even one block".to_owned(),
        MapError::NotAFile { kind, .. } => format!("it is {kind}"),
        other => other.to_string(),
    };
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
    (format!("the disk {} cannot be used", path.display()), why)
}

fn next_of_map_error(error: &MapError) -> String {
    match error {
        MapError::NotFound { path } => {
            format!("correct the name, or make a disk in a file: truncate -s 10G {}", word(path))
        }
        MapError::InUse { holder: LockHolder::Mount { at }, .. } => format!("unmount it: umount {}", word(at)),
        MapError::InUse { holder: LockHolder::User { .. }, .. } => {
            "unmount it, detach the loop device (losetup --detach), or end that use otherwise".to_owned()
        }
        MapError::InUse { path, .. } => format!("end that use first; whatever else has it open: fuser {}", word(path)),
        MapError::Empty { path } => format!("give the file a size: truncate -s 10G {}", word(path)),
        MapError::NotAFile { .. } => "name a block device or a regular file: --disk".to_owned(),
        MapError::Permission { .. } | MapError::ReadOnlyFile { .. } => {
            "run as a user who may write to it, or make it writable".to_owned()
        }
        MapError::Io { source, .. } if is_of_the_path(source) => "correct the path: --disk".to_owned(),
        _ => "see the kernel's log (dmesg) for the device".to_owned(),
    }
}
