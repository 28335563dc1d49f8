//! The disk of measurements: its file system loses operations on names in their order only, as
//! those of most users do.
//!
//! The service keeps no log of names over another file system, and syncs of new files then wait for
//! the disk. So where the temporary folder lies on another one, the disk is a loop device over a
//! file there, with ext4 and its journal. The device bypasses the page cache below it: the data
//! would be in memory twice.
//!
//! Block devices in memory, with a file system each, stand for persistent memory that is used as a
//! disk.

use crate::programs::said;
use anyhow::Context;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tidegate_host::files::ordered_names::has_ordered_names;

/// Bytes of the loop device: room for the files of all testbeds at once.
const LOOP_BYTES: u64 = 16 << 30;
/// Where block devices in memory are.
const MEMORY: &str = "/dev/shm";
/// Where the control group of all processes tells the limits of devices, in its first version.
const LIMITS: &str = "/sys/fs/cgroup/blkio";
/// Bytes of a block device in memory, of which it takes as many as are written.
const MEMORY_BYTES: u64 = 2 << 30;

/// What is on a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// With its journal.
    Ext4,
    /// With its log.
    Xfs,
}

impl FileSystem {
    /// As the kernel calls it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    /// Whether the kernel has it without loading anything.
    pub fn is_there(self) -> bool {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.lines().any(|line| line.trim() == self.name())
    }

    /// Makes one in `file`.
    fn make(self, file: &Path) -> anyhow::Result<String> {
        // A lazy start would write tables in the midst of a measurement.
        let options = "lazy_itable_init=0,lazy_journal_init=0";
        match self {
            FileSystem::Ext4 => {
                said(Command::new("mkfs.ext4").args(["-q", "-F", "-i", "65536", "-E", options]).arg(file))
            }
            FileSystem::Xfs => said(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(file)),
        }
    }
}

/// A folder on a disk.
pub struct Disk {
    folder: PathBuf,
    /// What it lies on, if that was made for it.
    _device: Option<LoopDevice>,
}

impl Disk {
    /// The disk of this process. It goes when nobody uses it any more.
    pub fn shared() -> anyhow::Result<Arc<Disk>> {
        static SHARED: Mutex<Weak<Disk>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(disk) = shared.upgrade() {
            return Ok(disk);
        }
        let disk = Arc::new(Disk::new()?);
        *shared = Arc::downgrade(&disk);
        Ok(disk)
    }

    fn new() -> anyhow::Result<Disk> {
        let temporary = std::env::temp_dir();
        if has_ordered_names(File::open(&temporary)?)? || !rustix::process::geteuid().is_root() {
            return Ok(Disk { folder: temporary, _device: None });
        }
        let device = LoopDevice::new(&temporary, FileSystem::Ext4, LOOP_BYTES)?;
        Ok(Disk { folder: device.mountpoint.clone(), _device: Some(device) })
    }

    /// A block device in memory with a file system of its own.
    pub fn in_memory(file_system: FileSystem) -> anyhow::Result<Arc<Disk>> {
        let device = LoopDevice::new(Path::new(MEMORY), file_system, MEMORY_BYTES)?;
        Ok(Arc::new(Disk { folder: device.mountpoint.clone(), _device: Some(device) }))
    }

    /// Where files are on it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Requests that the device completed: reads, writes and flushes.
    pub fn requests(&self) -> anyhow::Result<u64> {
        let told = self.told()?;
        let [reads, _, _, _, writes, ..] = told[..] else { anyhow::bail!("too few numbers: {told:?}") };
        Ok(reads + writes + told.get(15).copied().unwrap_or(0))
    }

    /// Blocks of 4 KiB that the device has written.
    pub fn blocks_written(&self) -> anyhow::Result<u64> {
        let told = self.told()?;
        Ok(told.get(6).context("too few numbers")? / 8)
    }

    /// The kernel's numbers about the device. Documentation/block/stat.rst says where each stands.
    fn told(&self) -> anyhow::Result<Vec<u64>> {
        let device = std::fs::metadata(&self.folder)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let path = format!("/sys/dev/block/{major}:{minor}/stat");
        let told = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        Ok(told.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
    }
}

/// A mounted loop device; it goes with its file when this is dropped.
struct LoopDevice {
    file: PathBuf,
    mountpoint: PathBuf,
    /// The device, as long as it does not go by itself.
    node: Option<String>,
}

impl LoopDevice {
    fn new(above: &Path, file_system: FileSystem, bytes: u64) -> anyhow::Result<LoopDevice> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number only has to be another one each time.
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let named = |what: &str| above.join(format!("tidegate-disk-{process}-{number}{what}"));
        let mut device = LoopDevice { file: named(".img"), mountpoint: named(""), node: None };
        std::fs::create_dir_all(&device.mountpoint)?;
        File::create(&device.file)?.set_len(bytes)?;
        file_system.make(&device.file)?;
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show"]);
        if above != Path::new(MEMORY) {
            attach.arg("--direct-io=on");
        }
        let node = device.node.insert(said(attach.arg(&device.file))?).clone();
        ensure_unlimited(&node)?;
        said(Command::new("mount").arg(&node).arg(&device.mountpoint))?;
        // It goes when it is unmounted.
        detach(&node)?;
        device.node = None;
        Ok(device)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A server that still ends may have it open. What cannot be removed is in a folder for
        // what is temporary.
        let _ = unmount(&self.mountpoint, UnmountFlags::DETACH);
        if let Some(node) = &self.node {
            let _ = detach(node);
        }
        let _ = std::fs::remove_dir(&self.mountpoint);
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Says so if the kernel limits the speed of the device `node`, by a control group that somebody
/// may have set long ago: every measurement on it would show the limit.
pub fn ensure_unlimited(node: &str) -> anyhow::Result<()> {
    let number = File::open(node).and_then(|device| device.metadata())?.rdev();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let limits = ["read_bps", "write_bps", "read_iops", "write_iops"];
    for file in limits.map(|limit| format!("{LIMITS}/blkio.throttle.{limit}_device")) {
        let told = std::fs::read_to_string(&file).unwrap_or_default();
        let limit = limit_of(&told, &number);
        anyhow::ensure!(limit.is_none(), "{node} is limited: echo '{number} 0' > {file}");
    }
    Ok(())
}

/// The limit of the device `number` in what a control group tells, a device in each line.
fn limit_of<'a>(told: &'a str, number: &str) -> Option<&'a str> {
    told.lines().find_map(|line| line.split_once(' ').filter(|(device, _)| *device == number)).map(|(_, limit)| limit)
}

fn detach(node: &str) -> anyhow::Result<String> {
    said(Command::new("losetup").arg("--detach").arg(node))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_found_by_the_number_of_its_device() {
        let told = "7:10 1000\n7:1 50000000\n";
        assert_eq!((limit_of(told, "7:1"), limit_of(told, "7:0"), limit_of("", "7:0")), (Some("50000000"), None, None));
        assert!(ensure_unlimited("/dev/null").is_ok());
    }

    #[test]
    fn root_has_a_disk_with_ordered_names_whose_requests_are_counted_and_that_goes() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let disk = Disk::shared().unwrap();
        assert!(has_ordered_names(File::open(disk.folder()).unwrap()).unwrap(), "{}", disk.folder().display());
        let (file, before) = (disk.folder().join("of-a-test"), disk.requests().unwrap());
        std::fs::write(&file, b"bytes").unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
        assert!(disk.requests().unwrap() > before);
        std::fs::remove_file(&file).unwrap();
        let (folder, is_own) = (disk.folder().to_owned(), disk._device.is_some());
        drop(disk);
        assert!(!is_own || !folder.exists());
    }
}
