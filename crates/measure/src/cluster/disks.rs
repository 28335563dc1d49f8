//! A disk of a node: ext4 on a loop device, in the node's own mounts.

use super::machine::Machine;
use crate::programs::said;
use crate::testbed::disk::ensure_unlimited;
use anyhow::Context;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes that are written at once to a new file.
const CHUNK_BYTES: usize = 1 << 20;

/// MiB of the journal, which would be smaller on so small a disk.
const JOURNAL_MIB: u32 = 64;

/// Sectors of 512 bytes, the kernel's unit, in a block of 4 KiB.
const SECTORS_A_BLOCK: u64 = 8;

/// A mounted disk. It goes with the mounts of its node.
pub(super) struct NodeDisk {
    mountpoint: PathBuf,
    /// What the kernel counts about its device.
    statistics: PathBuf,
}

impl NodeDisk {
    /// Makes a file of `mib` MiB whose blocks are all written, so that no later write allocates
    /// one, and mounts ext4 on it in `machine`.
    pub(super) fn mount(
        machine: &Machine,
        file: &Path,
        mib: u32,
        mountpoint: &Path,
        options: &str,
    ) -> anyhow::Result<NodeDisk> {
        let zeroes = vec![0; CHUNK_BYTES];
        let mut image = File::create(file).with_context(|| format!("making {}", file.display()))?;
        (0..mib).try_for_each(|_| image.write_all(&zeroes)).context("writing a disk of a node")?;
        image.sync_all()?;
        // A lazy start would write tables in the midst of a measurement.
        let journal = format!("size={}", JOURNAL_MIB.min(mib / 4));
        let tables = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        said(Command::new("mkfs.ext4").args(["-q", "-F", "-J", &journal, "-E", tables]).arg(file))?;
        let device = said(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file))?;
        fs::create_dir_all(mountpoint)?;
        let unlimited = ensure_unlimited(&device);
        let mounted = machine.tool(&format!("mount -o {options} {device} {}", mountpoint.display()));
        // It goes when it is unmounted, or now.
        said(Command::new("losetup").arg("--detach").arg(&device))?;
        unlimited?;
        mounted?;
        let number = fs::metadata(machine.path_here(mountpoint))?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let statistics = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(NodeDisk { mountpoint: mountpoint.to_owned(), statistics })
    }

    /// Writes everything to the device: data, names, and what the journal still has to put in its
    /// place.
    pub(super) fn settle(&self, machine: &Machine) -> anyhow::Result<()> {
        let mountpoint = self.mountpoint.display();
        // A freeze empties the journal, a sync does not.
        machine.tool(&format!("fsfreeze --freeze {mountpoint}"))?;
        machine.tool(&format!("fsfreeze --unfreeze {mountpoint}"))
    }

    /// Blocks of 4 KiB that the device has written so far.
    pub(super) fn blocks_written(&self) -> anyhow::Result<u64> {
        let told =
            fs::read_to_string(&self.statistics).with_context(|| format!("reading {}", self.statistics.display()))?;
        // Documentation/block/stat.rst says where each number stands.
        let sectors: u64 = told.split_whitespace().nth(6).context("too few numbers")?.parse()?;
        Ok(sectors / SECTORS_A_BLOCK)
    }
}
