//! The events that a region's contents survive: probed when it is opened, never assumed.
//!
//! A power cut is survived in memory that firmware declares persistent: the attribute
//! `persistence_domain` of its region under `/sys/bus/nd` says `memory_controller` or `cpu_cache`.
//! That MAP_SYNC works on a file is necessary and not sufficient: it works as well on plain DRAM
//! that the kernel was told to treat as persistent (`memmap=`).

use rustix::fs::{FileType, Stat, major, minor};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What the contents of a region survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// A power cut, as soon as they are flushed and fenced.
    PowerFail {
        /// Whether the processor's caches survive it as well (eADR, GPF), so that flushes become
        /// nothing.
        caches_included: bool,
    },
    /// A power cut, but only once the operating system wrote the file to its disk (`fdatasync`).
    DiskFile,
    /// The end of this process, but no power cut: a file in memory.
    ProcessCrash,
    /// Nothing: the memory of this process alone.
    Volatile,
}

impl Domain {
    /// Returns what the domain is, in one sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Domain::PowerFail { .. } => "the platform keeps what was made durable when the power fails",
            Domain::DiskFile => {
                "an ordinary file: flush and FUA end with fdatasync; the volume is checked each time before it opens"
            }
            Domain::ProcessCrash => "memory that outlives processes, not a power loss or a crash of the kernel",
            Domain::Volatile => "memory of this process alone",
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Domain::PowerFail { .. } => "power-fail",
            Domain::DiskFile => "disk-file",
            Domain::ProcessCrash => "process-crash",
            Domain::Volatile => "volatile",
        })
    }
}

/// File systems that keep their files in memory (the magic numbers of `statfs`).
mod in_memory {
    pub(super) const TMPFS: u64 = 0x0102_1994;
    pub(super) const RAMFS: u64 = 0x8584_58f6;
    pub(super) const HUGETLBFS: u64 = 0x9584_58f6;
}

/// A device of persistent memory, as the kernel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryDevice {
    /// Its name below `/dev`, such as `pmem0` or `dax0.0`.
    pub name: String,
    /// What the contents of a region on it survive.
    pub domain: Domain,
}

/// Returns the devices of persistent memory that the kernel's description at `sys` (usually `/sys`)
/// has, by name: block devices for DAX file systems, and DAX devices. A device whose memory
/// declares nothing has the domain [`Domain::ProcessCrash`].
pub fn memory_devices(sys: &Path) -> Vec<MemoryDevice> {
    let sysfs = Sysfs { root: sys.to_owned() };
    let names = |folder: &str| {
        let entries = fs::read_dir(sys.join(folder)).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
    };
    let blocks = names("block").filter(|(name, _)| name.starts_with("pmem"));
    let blocks = blocks.map(|(name, folder)| (name, sysfs.block_persistence(&folder)));
    let dax = names("bus/dax/devices").map(|(name, folder)| (name, sysfs.persistence(&folder)));
    let mut devices: Vec<_> = blocks
        .chain(dax)
        .map(|(name, domain)| MemoryDevice { name, domain: domain.unwrap_or(Domain::ProcessCrash) })
        .collect();
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    devices
}

/// What is known of an open file when its domain is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// A device-DAX character device, or else a regular file.
    pub(crate) is_device: bool,
    /// The device itself, or the one its file system lies on.
    pub(crate) device: (u32, u32),
    /// The magic number of its file system.
    pub(crate) file_system: u64,
    /// Whether MAP_SYNC works on it.
    pub(crate) is_synchronous: bool,
}

impl Evidence {
    /// What `stat` tells of a file on a file system with this magic number.
    pub(crate) fn new(stat: &Stat, file_system: u64, is_synchronous: bool) -> Evidence {
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        let device = if is_device { stat.st_rdev } else { stat.st_dev };
        Evidence { is_device, device: (major(device), minor(device)), file_system, is_synchronous }
    }
}

/// The kernel's description of its devices, usually at `/sys`.
#[derive(Clone, Debug)]
pub(crate) struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Sysfs {
        Sysfs { root: PathBuf::from("/sys") }
    }
}

impl Sysfs {
    /// What the contents of a file or device survive.
    pub(crate) fn domain(&self, evidence: Evidence) -> Domain {
        if evidence.is_device {
            return self.persistence(&self.device_folder("char", evidence.device)).unwrap_or(Domain::ProcessCrash);
        }
        match evidence.file_system {
            in_memory::TMPFS | in_memory::RAMFS | in_memory::HUGETLBFS => Domain::ProcessCrash,
            _ if !evidence.is_synchronous => Domain::DiskFile,
            _ => self.block_persistence(&self.device_folder("block", evidence.device)).unwrap_or(Domain::ProcessCrash),
        }
    }

    /// Bytes of a device-DAX character device; None if the device is something else.
    pub(crate) fn dax_device_bytes(&self, device: u64) -> Option<u64> {
        let folder = self.device_folder("char", (major(device), minor(device)));
        let subsystem = fs::canonicalize(folder.join("subsystem")).ok()?;
        if subsystem.file_name()? != "dax" {
            return None;
        }
        fs::read_to_string(folder.join("size")).ok()?.trim().parse().ok()
    }

    fn device_folder(&self, kind: &str, (major, minor): (u32, u32)) -> PathBuf {
        self.root.join("dev").join(kind).join(format!("{major}:{minor}"))
    }

    /// A block device made of others (device mapper, RAID) survives what all of them survive.
    fn block_persistence(&self, folder: &Path) -> Option<Domain> {
        let folder = fs::canonicalize(folder).ok()?;
        let parts = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten().collect::<Vec<_>>();
        if parts.is_empty() {
            return self.persistence(&folder);
        }
        let mut caches_included = true;
        for part in parts {
            match self.block_persistence(&part.path())? {
                Domain::PowerFail { caches_included: part_included } => caches_included &= part_included,
                _ => return None,
            }
        }
        Some(Domain::PowerFail { caches_included })
    }

    /// The nearest folder above a device that has a `persistence_domain` is its region; None if it
    /// promises nothing.
    fn persistence(&self, folder: &Path) -> Option<Domain> {
        let folder = fs::canonicalize(folder).ok()?;
        let promise = folder.ancestors().find_map(|above| fs::read_to_string(above.join("persistence_domain")).ok())?;
        match promise.trim() {
            "cpu_cache" => Some(Domain::PowerFail { caches_included: true }),
            "memory_controller" => Some(Domain::PowerFail { caches_included: false }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
