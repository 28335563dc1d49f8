//! Region files that cannot be used, and volumes in them that are refused or not made.

mod create;
mod mirror;
mod write_cache;

pub use create::block_size;

use crate::{Exit, Report};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use tidegate_host::rlimits::{file_bytes_max, lifting};
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::LockHolder;
use tidegate_server::failure::{Doing, VolumeFailure};
use tidegate_server::volume::create::size_in_place_of;

impl From<&VolumeFailure> for Report {
    fn from(failure: &VolumeFailure) -> Report {
        let what = failure.to_string();
        match failure {
            VolumeFailure::Absent { path } => absent(what, path),
            VolumeFailure::NoFolder { .. } => no_folder(what),
            VolumeFailure::NotAFile { kind, .. } => not_a_file(what, kind),
            VolumeFailure::Exists { holds, .. } => exists(what, holds),
            VolumeFailure::InUse { path, holder } => in_use(what, path, holder),
            VolumeFailure::Blank { path, bytes } => blank(what, path, *bytes),
            VolumeFailure::Foreign { holds, .. } => foreign(what, holds),
            VolumeFailure::Overwritten { path, holds } => overwritten(what, path, holds),
            VolumeFailure::CutShort { needs, has, .. } => cut_short(what, *needs, *has),
            VolumeFailure::Version { found, .. } => version(what, found),
            VolumeFailure::Damaged { path, why } => damaged(what, path, why),
            VolumeFailure::BeyondRepair { why, .. } => beyond_repair(what, why),
            VolumeFailure::RepairLoses { path, why } => repair_loses(what, path, why),
            VolumeFailure::BrokenCache { why, .. } => broken_cache(what, why),
            VolumeFailure::BrokenLog { why, .. } => broken_log(what, why),
            VolumeFailure::DeviceSize { bytes, .. } => device_size(what, *bytes),
            VolumeFailure::Unreadable { path, why } => unreadable(what, path, why),
            VolumeFailure::NotRepairable { why, .. } => not_repairable(what, why),
            VolumeFailure::NotDurable { path, why } => not_durable(what, path, why),
            VolumeFailure::CannotAllocate { .. } => cannot_allocate(what),
            VolumeFailure::NotLonger { path, refused } => not_longer(what, path, Report::from(&**refused)),
            VolumeFailure::TooLarge { bytes, .. } => too_large(what, *bytes),
            VolumeFailure::NoSpace { bytes, .. } => no_space(what, *bytes),
            VolumeFailure::Denied { doing, .. } => denied(what, *doing),
            VolumeFailure::ReadOnly { .. } => read_only(what),
            VolumeFailure::Io { error, .. } => of_the_system(what, error),
        }
    }
}

/// Whether what the system said is about the words of a path, not about what lies there.
pub(super) fn is_of_the_path(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG))
}

fn absent(what: String, path: &Path) -> Report {
    let path = word(path);
    let next = format!("name another: --pmem FILE; or create it: tidegate create --pmem {path} --size 1G");
    Report::new(("absent", Exit::Refused), what, "no such file", next)
}

fn no_folder(what: String) -> Report {
    let next = "create the folder first (mkdir -p)";
    Report::new(("no-folder", Exit::Environment), what, "its folder does not exist", next)
}

fn not_a_file(what: String, kind: &str) -> Report {
    let why = format!("it is {kind}; a region is a file or a DAX device");
    Report::new(("not-a-file", Exit::Environment), what, why, "name a file or a DAX device: --pmem FILE")
}

fn exists(what: String, holds: &str) -> Report {
    let next = "choose another name: --pmem FILE; --force would destroy what this one holds";
    Report::new(("exists", Exit::Refused), what, format!("it holds {holds}"), next)
}

fn in_use(what: String, path: &Path, holder: &LockHolder) -> Report {
    let next = format!("stop that process, or look without it: tidegate info --pmem {}", word(path));
    Report::new(("in-use", Exit::InUse), what, holder.to_string(), next)
}

fn blank(what: String, path: &Path, bytes: u64) -> Report {
    let next = format!("create it: tidegate create --pmem {} --size {}", word(path), size_in_place_of(bytes));
    Report::new(("blank", Exit::Refused), what, "where it would begin are only zeroes", next)
}

fn foreign(what: String, holds: &str) -> Report {
    let next = "name the file that holds the volume: --pmem FILE; this one stays as it is";
    Report::new(("foreign", Exit::Refused), what, format!("it holds {holds}"), next)
}

fn overwritten(what: String, path: &Path, holds: &str) -> Report {
    let why = format!("{holds} lies there; the volume's second info block is intact");
    let next = format!(
        "if the file was given to something else, leave it; to get the volume back, keep a copy, then run: tidegate check --repair --pmem {}",
        word(path)
    );
    Report::new(("overwritten", Exit::Refused), what, why, next)
}

fn cut_short(what: String, needs: u64, has: u64) -> Report {
    let why = format!("it has {has} bytes, and the volume in it needs {needs}");
    Report::new(("cut-short", Exit::Refused), what, why, "restore the file from a copy; what was cut off is lost")
}

fn version(what: String, found: &str) -> Report {
    let why = format!("found {found}; known are version 1.1 at byte 4096 and 2.0 at byte 0");
    let next = "use the program that wrote it, or create a new volume elsewhere";
    Report::new(("version", Exit::Refused), what, why, next)
}

fn damaged(what: String, path: &Path, why: &str) -> Report {
    let next = format!("keep a copy of the file, then run: tidegate check --repair --pmem {}", word(path));
    Report::new(("damaged", Exit::Refused), what, why, next)
}

fn beyond_repair(what: String, why: &str) -> Report {
    let why = format!("both info blocks are lost: {why}");
    Report::new(("beyond-repair", Exit::Refused), what, why, "restore the file from a copy")
}

fn repair_loses(what: String, path: &Path, why: &str) -> Report {
    let next = format!(
        "keep a copy of the file, and copy out what can be read (serve --read-only); then: tidegate check --repair --yes --pmem {}",
        word(path)
    );
    Report::new(("repair-loses", Exit::Refused), what, why, next)
}

fn broken_cache(what: String, why: &str) -> Report {
    let next = "keep a copy of the file: it may hold blocks that the disk does not have";
    Report::new(("broken-cache", Exit::Refused), what, why, next)
}

fn broken_log(what: String, why: &str) -> Report {
    let next = "keep a copy of the region; the file or disk below has the bytes that were moved there";
    Report::new(("broken-log", Exit::Refused), what, why, next)
}

fn device_size(what: String, bytes: u64) -> Report {
    let why = format!("it is a device of {bytes} bytes");
    Report::new(("device-size", Exit::Refused), what, why, "leave --size out")
}

fn unreadable(what: String, path: &Path, why: &str) -> Report {
    let next = format!("see what can be saved: tidegate check --pmem {}; then replace the medium", word(path));
    Report::new(("unreadable", Exit::Environment), what, why, next)
}

fn not_repairable(what: String, why: &str) -> Report {
    let next = "copy what can still be read to another medium, and replace this one";
    Report::new(("not-repairable", Exit::Environment), what, why, next)
}

fn not_durable(what: String, path: &Path, why: &str) -> Report {
    let path = word(path);
    let next = format!("writes since the last flush may be lost; see dmesg, then run: tidegate check --pmem {path}");
    Report::new(("not-durable", Exit::Environment), what, why, next)
}

fn cannot_allocate(what: String) -> Report {
    let why = "its file system cannot allocate space in advance";
    let next = "add --sparse, or choose another file system";
    Report::new(("cannot-allocate", Exit::Environment), what, why, next)
}

/// Of a region file that is there, and gets no more room for the reason that is `refused`.
fn not_longer(what: String, path: &Path, refused: Report) -> Report {
    let next = match refused.kind {
        "cannot-allocate" => {
            format!("detach it (tidegate detach --pmem {}), and create a larger one with --sparse", word(path))
        }
        _ => "free some space in its file system, or choose a smaller --size; nothing was changed".to_owned(),
    };
    Report { what, next, ..refused }
}

fn too_large(what: String, bytes: u64) -> Report {
    if let Some(limited) = past_the_limit(what.clone(), bytes) {
        return limited;
    }
    let why = format!("{bytes} bytes ({}) are more than one file or mapping can have here", Human(bytes));
    Report::new(("too-large", Exit::Environment), what, why, "choose a smaller --size")
}

/// The report of a file of `bytes` that is not made, if the limit of this process is why.
pub(crate) fn past_the_limit(what: String, bytes: u64) -> Option<Report> {
    let max = file_bytes_max().filter(|max| *max < bytes)?;
    let why = format!("{bytes} bytes ({}) are more than this process may write to a file: {max}", Human(bytes));
    let next = "lift the limit, and do it again: ulimit -f unlimited";
    Some(Report::new(("too-large", Exit::Environment), what, why, next))
}

fn no_space(what: String, bytes: u64) -> Report {
    let why = format!("its file system has no room for {bytes} bytes ({})", Human(bytes));
    let next = "free some space, choose a smaller --size, or create it with --sparse and risk running out later";
    Report::new(("no-space", Exit::Environment), what, why, next)
}

fn denied(what: String, doing: Doing) -> Report {
    let next = match doing {
        Doing::Write => "run as the owner of the file, change its mode, or serve it with --read-only",
        Doing::Create | Doing::Read => "run as another user, or change the mode of the file or folder",
    };
    Report::new(("permission", Exit::Environment), what, "the system refused it to this user", next)
}

fn read_only(what: String) -> Report {
    let why = "it lies on a file system mounted read-only, or is immutable";
    Report::new(
        ("read-only", Exit::Environment),
        what,
        why,
        "make it writable, name another file, or only read it: tidegate serve --read-only",
    )
}

fn of_the_system(what: String, error: &io::Error) -> Report {
    let next = match lifting(error) {
        Some(lift) => lift,
        None if is_of_the_path(error) => "correct the path: --pmem FILE",
        None => "see the kernel's log (dmesg) for the device under this file",
    };
    Report::new(("io", Exit::Environment), what, error.to_string(), next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_btt::OpenError;
    use tidegate_media::{Poison, Sealed};

    #[test]
    fn a_medium_that_fails_a_repair_is_to_be_replaced() {
        let report = |error| Report::from(&VolumeFailure::of_repair(Path::new("/v"), 1 << 20, error));
        for error in [OpenError::Media(Poison { at: 4096, len: 8 }), OpenError::Sealed(Sealed::StoreLost { at: 4096 })]
        {
            let report = report(error);
            assert!(report.what.contains("cannot be repaired") && report.why.contains("4096"), "{report:?}");
            assert!(report.next.contains("replace this one") && !report.next.contains("--repair"), "{report:?}");
        }
        assert_eq!(report(OpenError::Blank).kind, "blank");
    }
}
