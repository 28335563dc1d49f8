//! The identity of a disk, apart from the name that it has today.
//!
//! A cache that is put in front of another disk than the one it caches destroys it. So a cache
//! remembers the identity of its disk: of a block device the name that its maker, or the device
//! mapper, gave it, and of a partition its number too; of a file the file system, the file's number
//! there and the time of its birth. A copy of a file is another disk. Not every device has a name
//! (many virtual ones have none): then only the size is left to tell disks apart.

use rustix::fs::{AtFlags, FileType, StatxFlags, fstat, fstatfs, major, minor, statx};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Bytes of an identity.
const IDENTITY_BYTES: usize = 32;

/// What a disk is recognised by. All zeroes: by nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DiskIdentity(pub [u8; IDENTITY_BYTES]);

/// Where sysfs tells a block device's name, below its own folder; the first that there is counts.
const NAMES: [&str; 7] =
    ["wwid", "device/wwid", "dm/uuid", "device/serial", "serial", "loop/backing_file", "device/vpd_pg83"];

/// The first byte of an identity.
const OF_A_FILE: u8 = 1;
const OF_A_DEVICE: u8 = 2;

impl DiskIdentity {
    /// The disk in `file`, which is of the kind `kind`.
    pub(super) fn of(file: &File, kind: FileType) -> io::Result<DiskIdentity> {
        match kind {
            FileType::BlockDevice => {
                let device = fstat(file)?.st_rdev;
                let folder = format!("/sys/dev/block/{}:{}", major(device), minor(device));
                Ok(DiskIdentity::of_device(Path::new(&folder)))
            }
            _ => DiskIdentity::of_file(file),
        }
    }

    /// Whether it tells this disk from others.
    pub fn is_known(&self) -> bool {
        self.0 != [0; IDENTITY_BYTES]
    }

    fn of_file(file: &File) -> io::Result<DiskIdentity> {
        let born = statx(file.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
        let system = fstatfs(file)?;
        // The parts of a file system's number have no names everywhere; how it is printed tells all
        // of it.
        let system = hash(format!("{:?}", system.f_fsid).as_bytes());
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[0] = OF_A_FILE;
        bytes[4..8].copy_from_slice(&born.stx_btime.tv_nsec.to_le_bytes());
        bytes[8..16].copy_from_slice(&system.to_le_bytes());
        bytes[16..24].copy_from_slice(&fstat(file)?.st_ino.to_le_bytes());
        bytes[24..].copy_from_slice(&born.stx_btime.tv_sec.to_le_bytes());
        Ok(DiskIdentity(bytes))
    }

    /// The device that sysfs shows in `folder`.
    fn of_device(folder: &Path) -> DiskIdentity {
        let partition = fs::read(folder.join("partition")).unwrap_or_default();
        let whole = if partition.is_empty() { folder.to_owned() } else { parent(folder) };
        let named = |name: &&str| fs::read(whole.join(name)).ok().filter(|text| !text.trim_ascii().is_empty());
        let Some(name) = NAMES.iter().find_map(named) else { return DiskIdentity([0; IDENTITY_BYTES]) };
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[0] = OF_A_DEVICE;
        bytes[8..16].copy_from_slice(&hash(name.trim_ascii()).to_le_bytes());
        // The same from the other end, so that 128 bits tell names apart.
        let reversed: Vec<u8> = name.trim_ascii().iter().rev().copied().collect();
        bytes[16..24].copy_from_slice(&hash(&reversed).to_le_bytes());
        bytes[24..].copy_from_slice(&hash(partition.trim_ascii()).to_le_bytes());
        DiskIdentity(bytes)
    }
}

/// The folder of the disk whose partition is in `folder`.
fn parent(folder: &Path) -> PathBuf {
    let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    real.parent().map_or(real.clone(), Path::to_owned)
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

impl fmt::Display for DiskIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_known() {
            return f.write_str("nameless");
        }
        self.0.iter().skip(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DiskIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskIdentity({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn a_device_is_known_by_its_name_and_a_partition_by_its_number_too() {
        let sys = tempfile::tempdir().unwrap();
        let make = |folder: &str, file: &str, text: &str| {
            let file = sys.path().join(folder).join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
            DiskIdentity::of_device(&sys.path().join(folder))
        };
        let sda = make("sda", "device/wwid", "naa.1\n");
        assert!(sda.is_known() && sda == make("sdq", "device/wwid", "naa.1"));
        assert_ne!(sda, make("sdb", "device/wwid", "naa.2"));
        assert_eq!(make("vda", "size", "1"), DiskIdentity([0; 32]));
        assert_eq!(make("vdb", "serial", "  \n").to_string(), "nameless");
        let (one, two) = (make("sda/sda1", "partition", "1"), make("sda/sda2", "partition", "2"));
        assert!(one.is_known() && one != two && one != sda);
        assert_eq!(one, make("sdq/sdq1", "partition", "1"));
    }

    #[test]
    fn a_file_is_itself_under_any_name_and_its_copy_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let of = |name: &str| DiskIdentity::of_file(&File::open(path(name)).unwrap()).unwrap();
        fs::write(path("a"), "x").unwrap();
        fs::copy(path("a"), path("b")).unwrap();
        let (a, b) = (of("a"), of("b"));
        assert!(a.is_known() && a != b);
        fs::rename(path("a"), path("c")).unwrap();
        assert_eq!(of("c"), a);
    }
}
