//! On which file system a held file lies. After a boot another file system may be found under the
//! same path, or none, whatever numbers devices have by then: nothing that is found there says
//! anything about the held file.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mounts that this process sees: a line for each.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Where devices are found by the UUIDs of the file systems on them.
const BY_UUID: &str = "/dev/disk/by-uuid";
/// The magic numbers of ext2 to ext4, and of btrfs, whose `f_fsid` is derived from their UUID.
const FSID_IS_OF_UUID: [u64; 2] = [0xef53, 0x9123_683e];

/// A file system where it is mounted.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// Where it is mounted.
    #[serde(with = "tidegate_host::json_path")]
    point: PathBuf,
    /// The folder in it that is mounted there.
    #[serde(with = "tidegate_host::json_path")]
    top: PathBuf,
    /// Its type, as the kernel names it.
    kind: String,
    /// What tells it from others of its type, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} file system that was mounted at {}", self.kind, self.point.display())
    }
}

impl FileSystem {
    /// That of an open file, which may be open as a path only. None: the system does not tell.
    pub(super) fn of(file: impl AsFd) -> io::Result<Option<FileSystem>> {
        let stat = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Ok(None);
        }
        let mounts = std::fs::read(MOUNTS)?;
        let found = mounts.split(|byte| *byte == b'\n').find_map(|line| mounted(line, stat.stx_mnt_id));
        let Some((point, top, kind)) = found else { return Ok(None) };
        Ok(Some(FileSystem { point, top, kind, uuid: uuid_of(&file)? }))
    }

    /// That on which `path` lies, or would lie.
    pub(super) fn at(path: &Path) -> io::Result<Option<FileSystem>> {
        nearest(path)?.map_or(Ok(None), FileSystem::of)
    }

    /// Whether `other` is this one.
    pub(super) fn is(&self, other: &FileSystem) -> bool {
        let same = match (&self.uuid, &other.uuid) {
            (Some(one), Some(other)) => one == other,
            _ => self.kind == other.kind,
        };
        same && (&self.point, &self.top) == (&other.point, &other.top)
    }
}

/// What is at `path`, or else the nearest folder above it that is there.
fn nearest(path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    for (above, place) in path.ancestors().enumerate() {
        let flags = if above == 0 { flags | OFlags::NOFOLLOW } else { flags };
        match rustix::fs::openat(CWD, place, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            found => return Ok(Some(found?)),
        }
    }
    Ok(None)
}

/// What `line` of the mounts tells, if it is about the mount with this number: where it is mounted,
/// which folder of it, and its type.
fn mounted(line: &[u8], id: u64) -> Option<(PathBuf, PathBuf, String)> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    if std::str::from_utf8(fields.first()?).ok()?.parse() != Ok(id) {
        return None;
    }
    // Behind the sixth field there are optional ones, up to a dash.
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let kind = String::from_utf8_lossy(fields.get(dash + 1)?).into_owned();
    Some((unescaped(fields.get(4)?), unescaped(fields.get(3)?), kind))
}

/// The path in a field, in which the kernel writes blanks and the like as three octal digits behind
/// a backslash.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = (*first == b'\\').then(|| behind.get(..3)).flatten();
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(bytes).into()
}

/// What tells the file system of `file` from others of its type, in every boot.
fn uuid_of(file: impl AsFd) -> io::Result<Option<String>> {
    if FSID_IS_OF_UUID.contains(&(rustix::fs::fstatfs(&file)?.f_type as u64)) {
        let id = rustix::fs::fstatvfs(&file)?.f_fsid;
        return Ok((id != 0).then(|| format!("{id:016x}")));
    }
    let device = rustix::fs::fstat(&file)?.st_dev;
    let named = std::fs::read_dir(BY_UUID).into_iter().flatten().flatten();
    let its = named.filter(|entry| entry.path().metadata().is_ok_and(|found| found.rdev() == device));
    Ok(its.map(|entry| entry.file_name().to_string_lossy().into_owned()).next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_line_tells_of_one_mount_where_it_is_and_of_what() {
        let line = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw";
        assert_eq!(mounted(line, 36), Some(("/mnt 2".into(), "/mnt1".into(), "ext3".to_owned())));
        assert_eq!(mounted(line, 35), None);
        assert_eq!(mounted(b"7 1 0:5 / /proc rw - proc proc rw", 7).expect("it is").2, "proc");
        assert_eq!((mounted(b"", 7), mounted(b"7 1 0:5 / /proc rw", 7)), (None, None));
        assert_eq!(unescaped(b"a\\134b\\01"), Path::new("a\\b\\01"));
    }

    #[test]
    fn what_is_not_there_would_lie_where_the_nearest_folder_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("file")).expect("a file");
        let its = FileSystem::of(&file).expect("the system tells").expect("it is mounted");
        for name in ["file", "absent", "absent/below", "file/below"] {
            let other = FileSystem::at(&folder.path().join(name)).expect("the system tells").expect("it is mounted");
            assert!(its.is(&other), "{name}: {its:?} {other:?}");
        }
        let proc = FileSystem::at(Path::new("/proc/absent")).expect("the system tells").expect("it is mounted");
        assert_eq!((proc.point.as_path(), proc.kind.as_str(), its.is(&proc)), (Path::new("/proc"), "proc", false));
    }

    #[test]
    fn a_file_system_is_known_by_its_uuid_or_else_its_type_and_by_where_it_is_mounted() {
        let of = |kind: &str, uuid: Option<&str>, point: &str| FileSystem {
            point: point.into(),
            top: "/".into(),
            kind: kind.to_owned(),
            uuid: uuid.map(str::to_owned),
        };
        let held = of("ext4", Some("a"), "/m");
        assert!(held.is(&held) && held.is(&of("ext3", Some("a"), "/m")) && held.is(&of("ext4", None, "/m")));
        for other in [of("ext4", Some("b"), "/m"), of("ext4", Some("a"), "/n"), of("xfs", None, "/m")] {
            assert!(!held.is(&other), "{other:?}");
        }
        assert!(!held.is(&FileSystem { top: "/part".into(), ..held.clone() }));
    }
}
