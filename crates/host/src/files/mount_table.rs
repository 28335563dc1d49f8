//! What is mounted at a directory, as `/proc/self/mountinfo` tells.

use rustix::fd::AsRawFd as _;
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A file system at a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedFileSystem {
    /// The number of the mount, which `/proc/PID/fdinfo` calls `mnt_id`.
    pub id: String,
    /// Its number, such as `8:1`: no two that are mounted at a time have the same.
    pub number: String,
    /// The folder of the file system that is shown, from its root: `/`, or that of a bind mount.
    pub root: PathBuf,
    /// Its kind, such as `ext4`.
    pub kind: String,
    /// What it says it shows.
    pub source_name: OsString,
    /// Options of the file system itself, such as `rw,huge=never`.
    pub options: String,
}

impl MountedFileSystem {
    /// Returns its device, as `fstat` of its files tells it.
    pub fn device(&self) -> Option<u64> {
        let (major, minor) = self.number.split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// Returns the file system on top at `mountpoint`, an absolute path without links; `None` if it is
/// no mountpoint or there is no `/proc`.
pub fn at(mountpoint: &Path) -> Option<MountedFileSystem> {
    try_at(mountpoint).ok().flatten()
}

/// As [`at`].
///
/// # Errors
/// The table cannot be read, as when this process has as many descriptors as it may.
pub fn try_at(mountpoint: &Path) -> std::io::Result<Option<MountedFileSystem>> {
    Ok(topmost(&std::fs::read("/proc/self/mountinfo")?, mountpoint.as_os_str()))
}

/// Returns every file system at `mountpoint`, a path as [`at`] takes it: the one on top is last.
pub fn all_at(mountpoint: &Path) -> Vec<MountedFileSystem> {
    all().into_iter().filter(|(at, _)| at == mountpoint).map(|(_, mounted)| mounted).collect()
}

/// Returns the directories at which the file system of this number is mounted.
pub fn places_of(number: &str) -> Vec<PathBuf> {
    all().into_iter().filter(|(_, mounted)| mounted.number == number).map(|(at, _)| at).collect()
}

/// Returns every mount that this process sees, each with its directory, the topmost of a directory
/// last.
pub fn all() -> Vec<(PathBuf, MountedFileSystem)> {
    parsed(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// Returns `path` as an absolute path without links. What is mounted there is not asked, as it may
/// not answer any more.
///
/// # Errors
/// What the system answered.
pub fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Returns every mount of a table as `/proc/self/mountinfo` has them, in its order, each with its
/// directory. Lines that cannot be read are left out.
pub fn parsed(table: &[u8]) -> Vec<(PathBuf, MountedFileSystem)> {
    let lines = table.split(|byte| *byte == b'\n').filter_map(parse);
    lines.map(|(at, mounted)| (PathBuf::from(OsString::from_vec(at)), mounted)).collect()
}

/// The last line about a directory is about the topmost file system.
fn topmost(table: &[u8], mountpoint: &OsStr) -> Option<MountedFileSystem> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.rev().filter_map(parse).find(|(at, _)| at == mountpoint.as_bytes()).map(|(_, mounted)| mounted)
}

/// A line: numbers, root, mountpoint, options, optional fields, `-`, kind, source, options.
fn parse(line: &[u8]) -> Option<(Vec<u8>, MountedFileSystem)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = String::from_utf8_lossy(fields.next()?).into_owned();
    let number = String::from_utf8_lossy(fields.nth(1)?).into_owned();
    let root = OsString::from_vec(unescape(fields.next()?)).into();
    let mountpoint = unescape(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source_name = OsString::from_vec(unescape(fields.next()?));
    let options = String::from_utf8_lossy(&unescape(fields.next().unwrap_or_default())).into_owned();
    Some((mountpoint, MountedFileSystem { id, number, root, kind, source_name, options }))
}

/// Replaces `\040` and so on by the byte with this number in octal.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = tail.get(..3).filter(|_| *first == b'\\').and_then(octal);
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

/// Replaces bytes that end a field by `\040` and so on, as tables of mounts have them.
pub fn escape(text: &OsStr) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\r' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        byte => vec![*byte],
    };
    text.as_bytes().iter().flat_map(escape).collect()
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n\
        30 22 0:40 / /mnt/a\\040b rw,nosuid - fuse.tidegate /srv/x rw,user_id=0\n\
        31 22 0:41 /d\\040e /mnt/c rw shared:2 master:3 - tmpfs tmpfs rw\n\
        32 31 0:42 / /mnt/c rw - ext4 /dev/sda rw\n";

    #[test]
    fn the_topmost_file_system_is_found() {
        let kind = |path: &str| topmost(TABLE, OsStr::new(path)).map(|mounted| mounted.kind);
        assert_eq!(kind("/").as_deref(), Some("ext4"));
        assert_eq!(kind("/mnt/a b").as_deref(), Some("fuse.tidegate"));
        assert_eq!(kind("/mnt/c").as_deref(), Some("ext4"));
        assert_eq!(kind("/mnt"), None);
        let source = topmost(TABLE, OsStr::new("/mnt/a b")).map(|mounted| mounted.source_name);
        assert_eq!(source.as_deref(), Some(OsStr::new("/srv/x")));
        let number = topmost(TABLE, OsStr::new("/mnt/c")).map(|mounted| mounted.number);
        assert_eq!(number.as_deref(), Some("0:42"));
        let roots: Vec<_> = parsed(TABLE).into_iter().map(|(_, mounted)| mounted.root).collect();
        assert_eq!(roots, ["/", "/", "/d e", "/"].map(PathBuf::from));
        let id = topmost(TABLE, OsStr::new("/mnt/c")).map(|mounted| mounted.id);
        assert_eq!(id.as_deref(), Some("32"));
    }

    #[test]
    fn a_table_has_each_mount_in_its_order_with_its_options() {
        let all = parsed(TABLE);
        let places: Vec<_> = all.iter().map(|(at, _)| at.as_path()).collect();
        assert_eq!(places, ["/", "/mnt/a b", "/mnt/c", "/mnt/c"].map(Path::new));
        assert_eq!((&*all[1].1.options, &*all[3].1.options), ("rw,user_id=0", "rw"));
        assert_eq!(parsed(b"no table\n\n1 2 3"), []);
    }

    #[test]
    fn the_systems_own_table_is_read() {
        assert!(at(Path::new("/proc")).is_some_and(|mounted| mounted.kind == "proc"));
        assert_eq!(at(Path::new("/no such directory")), None);
    }

    #[test]
    fn a_path_is_resolved_whatever_it_looks_like() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir(place.join("a")).expect("made");
        std::os::unix::fs::symlink("a", place.join("link")).expect("made");
        for path in ["a", "a/", "./a", "a/../a", "link", "link/"] {
            assert_eq!(resolved(&place.join(path)).expect("it is there"), place.join("a"), "{path}");
        }
        assert!(resolved(&place.join("absent")).is_err());
    }

    #[test]
    fn bytes_that_are_no_octal_number_stay() {
        assert_eq!(unescape(br"a\04"), br"a\04");
        assert_eq!(unescape(br"\999\134"), br"\999\");
    }
}
