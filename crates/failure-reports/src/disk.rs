//! Disks behind caches that cannot be used, and obstacles that keep blocks from them.

use crate::volume::is_of_the_path;
use crate::{Exit, Report};
use std::path::Path;
use tidegate_host::owned;
use tidegate_host::rlimits::lifting;
use tidegate_host::shell::word;
use tidegate_host::units::{Exact, Human};
use tidegate_media::{LockHolder, MapError};
use tidegate_server::failure::{AtFault, DiskFailure, Growth, Obstacle, Step};
use uuid::Uuid;

impl From<&DiskFailure> for Report {
    fn from(failure: &DiskFailure) -> Report {
        let what = failure.to_string();
        match failure {
            DiskFailure::NotNamed { .. } => not_named(what),
            DiskFailure::NotedByAnother { disk, owner, .. } => noted_by_another(what, disk, *owner),
            DiskFailure::Unusable { error } => unusable(what, error),
            DiskFailure::Absent { pmem, .. } => absent(what, pmem),
            DiskFailure::Replaced { pmem, .. } => replaced(what, pmem),
            DiskFailure::Nameless { disk, was, .. } => nameless(what, disk, was),
            DiskFailure::Smaller { pmem, needs, has, .. } => smaller(what, pmem, *needs, *has),
            DiskFailure::Changed { pmem, dirty_bytes, .. } => changed(what, pmem, *dirty_bytes),
            DiskFailure::Differs { pmem, at, dirty_bytes, .. } => differs(what, pmem, *at, *dirty_bytes),
            DiskFailure::IsMemory { .. } => is_memory(what),
            DiskFailure::OfAnother { disk, region, place, dirty } => of_another(what, disk, (*region, place), *dirty),
            DiskFailure::Volatile { pmem, ordered, step } => {
                volatile(what, why_volatile(*ordered), next_of_volatile(pmem, *step))
            }
            DiskFailure::Detached { pmem } => detached(what, pmem),
            DiskFailure::Attached { pmem } => attached(what, pmem),
            DiskFailure::NoRegion { .. } => no_region(what),
            DiskFailure::NoCache { holds, .. } => no_cache(what, holds),
            DiskFailure::WriteCacheAsked { .. } => write_cache_asked(what),
            DiskFailure::WearLevelingAsked { .. } => wear_leveling_asked(what),
            DiskFailure::Undestaged { pmem, obstacle, .. } => undestaged(what, pmem, obstacle),
            DiskFailure::TargetHolds { .. } => target_holds(what),
            DiskFailure::TargetIsItsDisk { pmem, .. } => target_is_its_disk(what, pmem),
            DiskFailure::BlockSize { has, needs, .. } => block_size(what, *has, *needs),
            DiskFailure::ReadOnly { .. } => read_only(what),
            DiskFailure::Changing { .. } => changing(what),
            DiskFailure::Plain { .. } => plain(what),
            DiskFailure::JournalInside(growth) => journal_inside(what, growth),
            DiskFailure::NoFile { pmem } => no_file(what, pmem),
        }
    }
}

/// What makes the disk of `pmem` usable again, or does without it.
fn or_salvage(way: &str, pmem: &Path) -> String {
    let pmem = word(pmem);
    format!("{way}; what only the cache has can be written elsewhere: tidegate salvage --pmem {pmem} --to FILE")
}

fn not_named(what: String) -> Report {
    let why = "the region holds a cache of a disk, and neither the command nor the file says where that is";
    Report::new(("disk-not-named", Exit::Usage), what, why, "name it: --disk /dev/DISK or --disk FILE")
}

fn noted_by_another(what: String, disk: &Path, owner: u32) -> Report {
    let why = format!("{} owns the region, and may have noted any disk", owned::named(owner));
    let next = format!(
        "if that is its disk, name it: --disk {}; or run this as that user: sudo -u {}",
        word(disk),
        owned::for_sudo(owner)
    );
    Report::new(("disk-noted-by-another", Exit::Refused), what, why, next)
}

fn unusable(what: String, error: &MapError) -> Report {
    let kind = match error {
        MapError::InUse { .. } => ("disk-in-use", Exit::InUse),
        MapError::NotFound { .. } => ("disk-absent", Exit::Refused),
        _ => ("disk-unusable", Exit::Environment),
    };
    Report::new(kind, what, why_unusable(error), next_of_unusable(error))
}

fn why_unusable(error: &MapError) -> String {
    match error {
        MapError::NotFound { .. } => "there is no such file or device".to_owned(),
        MapError::InUse { holder, .. } => holder.to_string(),
        MapError::Permission { .. } => "the system refused it to this user".to_owned(),
        MapError::ReadOnlyFile { .. } => "it is write-protected, or on a file system mounted read-only".to_owned(),
        MapError::Empty { .. } => "it has not even one block".to_owned(),
        MapError::NotAFile { kind, .. } => format!("it is {kind}"),
        other => other.to_string(),
    }
}

fn next_of_unusable(error: &MapError) -> String {
    match error {
        MapError::NotFound { path } => {
            format!("correct the name, or make a disk in a file: truncate -s 10G {}", word(path))
        }
        MapError::InUse { holder: LockHolder::Mount { at }, .. } => format!("unmount it: umount {}", word(at)),
        MapError::InUse { holder: LockHolder::User { .. }, .. } => {
            "unmount it, detach the loop device (losetup --detach), or end that use otherwise".to_owned()
        }
        MapError::InUse { path, .. } => {
            format!("end that use first; to see which programs have it open: fuser {}", word(path))
        }
        MapError::Empty { path } => format!("give the file a size: truncate -s 10G {}", word(path)),
        MapError::NotAFile { .. } => "name a block device or a regular file: --disk".to_owned(),
        MapError::Permission { .. } | MapError::ReadOnlyFile { .. } => {
            "run as a user who may write to it, or make it writable".to_owned()
        }
        MapError::Io { source, .. } if is_of_the_path(source) => "correct the path: --disk".to_owned(),
        MapError::Io { source, .. } if lifting(source).is_some() => lifting(source).unwrap_or_default().to_owned(),
        _ => "see the kernel's log (dmesg) for the device".to_owned(),
    }
}

fn absent(what: String, pmem: &Path) -> Report {
    let next = or_salvage("connect it, or say where it is: --disk", pmem);
    Report::new(("disk-absent", Exit::Refused), what, "there is no such file or device", next)
}

fn replaced(what: String, pmem: &Path) -> Report {
    let why = "its serial number or its file is not the one that the cache was made with; blocks of one disk would destroy the contents of another";
    Report::new(("disk-replaced", Exit::Refused), what, why, or_salvage("name the right disk: --disk", pmem))
}

fn nameless(what: String, disk: &Path, was: &Path) -> Report {
    let why = format!(
        "the disk of the cache has no serial number by which it could be recognised, and was at {}",
        was.display()
    );
    let next = format!(
        "name the place where it was: --disk {}; if it is the same disk at another place: --disk {} --force",
        word(was),
        word(disk)
    );
    Report::new(("disk-elsewhere", Exit::Refused), what, why, next)
}

fn smaller(what: String, pmem: &Path, needs: u64, has: u64) -> Report {
    let why = format!("it has {has} bytes ({}), and {needs} ({}) are cached", Exact(has), Exact(needs));
    Report::new(("disk-smaller", Exit::Refused), what, why, or_salvage("restore its size", pmem))
}

fn changed(what: String, pmem: &Path, dirty_bytes: u64) -> Report {
    let why = format!(
        "its size or the time of its last change differs from when the region was last closed, and {dirty_bytes} bytes ({}) are only in the region",
        Human(dirty_bytes)
    );
    Report::new(("disk-changed", Exit::Refused), what, why, next_of_changed(pmem))
}

fn differs(what: String, pmem: &Path, at: u64, dirty_bytes: u64) -> Report {
    let why = format!(
        "its block at byte {at} differs from the one that the region left there: the disk was mounted, checked or written by another program, or by another region. {dirty_bytes} bytes ({}) are only in this region, and do not fit the disk's contents",
        Human(dirty_bytes)
    );
    Report::new(("disk-changed", Exit::Refused), what, why, next_of_changed(pmem))
}

fn next_of_changed(pmem: &Path) -> String {
    format!(
        "write them elsewhere: tidegate salvage --pmem {pmem} --to FILE; or over the disk's contents: tidegate flush --force --pmem {pmem} (with --mirror FILE, too, if it is one side of a mirror)",
        pmem = word(pmem)
    )
}

fn of_another(what: String, disk: &Path, (region, place): (Uuid, &Path), dirty: Option<u64>) -> Report {
    let has = match dirty {
        Some(0) => "has nothing that the disk lacks, but is not detached".to_owned(),
        Some(bytes) => format!("has {bytes} bytes ({}) that the disk lacks", Human(bytes)),
        None => "is not there, cannot be read, or is one side of a mirror, and may have blocks that the disk lacks"
            .to_owned(),
    };
    let why = format!("it is marked for the region {region} in {}, which {has}", place.display());
    let next = format!(
        "release the disk from that region: tidegate detach --pmem {}; if the region is lost, or its bytes are not needed, add --disk {} --force: the bytes that only the region has then never reach the disk",
        word(place),
        word(disk)
    );
    Report::new(("disk-of-another", Exit::Refused), what, why, next)
}

fn is_memory(what: String) -> Report {
    let why = "the cache would overwrite it with blocks of a disk, and it may have the only copy of its contents";
    let next = "name a disk or an image: --disk DISK; or destroy what is there: --force";
    Report::new(("disk-is-memory", Exit::Refused), what, why, next)
}

fn volatile(what: String, why: String, next: String) -> Report {
    Report::new(("volatile-region", Exit::Refused), what, why, next)
}

fn why_volatile(ordered: bool) -> String {
    let disk = match ordered {
        false => "after a power loss the disk would be stale, and a file system on it damaged",
        true => "after a power loss the disk would lack the last writes",
    };
    format!(
        "in the modes write-back (the default) and write-only, a write is complete, and counts as flushed, before the disk has it: {disk}"
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

fn detached(what: String, pmem: &Path) -> Report {
    let next = format!(
        "attach a disk: tidegate attach --pmem {} --disk DISK (with --mirror FILE, too, if it is one side of a mirror)",
        word(pmem)
    );
    Report::new(("detached", Exit::Refused), what, "it was detached from its disk", next)
}

fn attached(what: String, pmem: &Path) -> Report {
    let why = "a region can be attached to a disk only after it was detached from the former one";
    let next = format!("detach it first: tidegate detach --pmem {}", word(pmem));
    Report::new(("attached", Exit::Refused), what, why, next)
}

fn no_region(what: String) -> Report {
    let next = "name the region in front of the disk: --pmem FILE";
    Report::new(("absent", Exit::Refused), what, "no such file", next)
}

fn no_cache(what: String, holds: &str) -> Report {
    let next = "name the region of a volume that was made with `tidegate create --disk`";
    Report::new(("no-disk-cache", Exit::Refused), what, format!("it holds {holds}"), next)
}

fn write_cache_asked(what: String) -> Report {
    let why = "the volume is itself a cache, and a second cache in front of it would break its guarantees";
    Report::new(("two-caches", Exit::Usage), what, why, "leave --write-cache out")
}

fn wear_leveling_asked(what: String) -> Report {
    let why = "it caches a disk: each commit takes another place anyway";
    Report::new(("no-table", Exit::Usage), what, why, "leave --wear-leveling out")
}

fn undestaged(what: String, pmem: &Path, obstacle: &Obstacle) -> Report {
    let kind = match obstacle.by {
        AtFault::Disk => ("disk-refuses", Exit::Environment),
        AtFault::Damage => ("block-damaged", Exit::Refused),
        AtFault::Order => ("order-stopped", Exit::Refused),
        AtFault::Journal => ("journal-lost", Exit::Refused),
    };
    Report::new(kind, what, &obstacle.why, obstacle.by.next(pmem))
}

fn target_holds(what: String) -> Report {
    let next = "name a file that does not exist, or add --force if this is a copy of the disk";
    Report::new(("target-holds", Exit::Refused), what, "salvaging writes over what it holds", next)
}

fn target_is_its_disk(what: String, pmem: &Path) -> Report {
    let why =
        "salvaging is for blocks that this disk refuses: it writes in no order, and the region would not record it";
    let next = format!(
        "write the blocks back instead: tidegate flush --pmem {} --wait; or name a copy of the disk, or a new file",
        word(pmem)
    );
    Report::new(("target-is-its-disk", Exit::Refused), what, why, next)
}

fn block_size(what: String, has: u32, needs: u32) -> Report {
    let why = format!("its blocks have {has} bytes, the volume's {needs}");
    let next = format!("make a region for this disk: tidegate create --disk DISK --block {needs}");
    Report::new(("block-size-differs", Exit::Refused), what, why, next)
}

fn read_only(what: String) -> Report {
    let next = "serve it without --read-only";
    Report::new(("served-read-only", Exit::Refused), what, "it is served with --read-only", next)
}

fn changing(what: String) -> Report {
    let why = "another detach or resize is under way";
    Report::new(("being-changed", Exit::InUse), what, why, "try again when that has ended")
}

/// Of a volume of Linux's format, which has no disk.
fn plain(what: String) -> Report {
    let why = "it holds a volume of its own, whose map and log the format puts at the end of an arena; another arena may follow only one of 512 GiB, so a longer file makes no larger volume";
    let next = "create a volume of the size that you want (tidegate create --pmem NEW --size SIZE), serve both, and copy this one: nbdcopy URI NEW-URI";
    Report::new(("size-fixed", Exit::Refused), what, why, next)
}

/// Of an ordered disk that has grown.
fn journal_inside(what: String, growth: &Growth) -> Report {
    let why = "an ordered disk has its journal at its end, which is moved only while the disk is free";
    Report::new(("journal-inside", Exit::Refused), what, why, format!("run {}", growth.way()))
}

fn no_file(what: String, pmem: &Path) -> Report {
    let next = format!("detach it, and make another region: tidegate detach --pmem {}", word(pmem));
    Report::new(("no-file", Exit::Usage), what, "only a file can become larger or smaller", next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_region_has_for_a_changed_disk_has_two_ways_out() {
        let [pmem, disk] = ["/v", "/disk"].map(Into::into);
        let report = Report::from(&DiskFailure::Changed { pmem, disk, dirty_bytes: 4096 });
        assert!(report.kind == "disk-changed" && report.why.contains("4096 bytes"), "{report:?}");
        assert!(report.next.contains("salvage") && report.next.contains("flush --force"), "{report:?}");
    }
}
