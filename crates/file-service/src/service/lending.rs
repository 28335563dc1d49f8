//! What the service lends files with: the pool's file, and the kernel's ear.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::{Errno, Result};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use tidegate_file_wire::PoolDescription;
use tidegate_fuse::{NodeId, Notification};
use tidegate_media::PinCharge;
use tidegate_mount_transport::{Device, DeviceError};

/// Bytes of pages that the kernel drops in one step.
const STEP_BYTES: u64 = 1 << 20;

/// The part of the pool that programs may pin unless it is said. Of four lanes, each gives three
/// quarters to mappings: if all pins are in one lane, it has a third of that for others.
const PINNED_PART: u64 = 8;

/// What files are lent with.
pub(crate) struct Lending {
    device: Device,
    pool: OwnedFd,
    description: PoolDescription,
    /// Of the thread that tells the kernel about pages: it may have to wait until others answer.
    pub(crate) turn: Mutex<()>,
}

impl Lending {
    /// For the mount of `device` and the pool in the file `pool`, which was opened at `path`.
    /// Programs may pin so many of its bytes, if that was said.
    pub(crate) fn new(device: &Device, (pool, path): (BorrowedFd<'_>, &Path), most: Option<u64>) -> Result<Lending> {
        let of_io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let device = Device::from_descriptor(device.as_fd().try_clone_to_owned().map_err(of_io)?);
        let (about, path) = (fstat(pool)?, path.as_os_str().as_bytes());
        let bytes = u64::try_from(about.st_size).unwrap_or(0);
        let (identity, most) = ((about.st_dev, about.st_ino), most.unwrap_or(bytes / PINNED_PART));
        let description = PoolDescription::new(path, identity, bytes, most).ok_or(Errno::NAMETOOLONG)?;
        let pool = pool.try_clone_to_owned().map_err(of_io)?;
        Ok(Lending { device, pool, description, turn: Mutex::new(()) })
    }

    /// Whether files are lent to processes of this user: they have to open the pool themselves.
    pub(crate) fn serves(&self, uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    pub(crate) fn description(&self) -> &PoolDescription {
        &self.description
    }

    pub(crate) fn pool(&self) -> BorrowedFd<'_> {
        self.pool.as_fd()
    }

    /// Bytes of the pool that programs have pinned, and may have in all.
    pub(crate) fn pinned(&self) -> (u64, u64) {
        // If the kernel cannot be asked, no program could pin anything.
        (PinCharge::of_all(self.pool()).unwrap_or(0), self.description.pinned_bytes_max.get())
    }

    /// Has the kernel drop the attributes of a node. False: it did not.
    pub(crate) fn drop_attributes(&self, node: NodeId) -> bool {
        self.sent(&Notification::attributes_changed(node))
    }

    /// Has the kernel drop the attributes of a node of `size` bytes, and its pages. False: it did
    /// not.
    pub(crate) fn drop_caches(&self, node: NodeId, size: u64) -> bool {
        let steps = size / STEP_BYTES;
        for step in 0..steps {
            if !self.sent(&Notification::contents_changed(node, step * STEP_BYTES, STEP_BYTES)) {
                return false;
            }
        }
        // All that is left, also behind the end.
        self.sent(&Notification::contents_changed(node, steps * STEP_BYTES, 0))
    }

    /// Has the kernel drop pages of a node.
    pub(crate) fn drop_pages(&self, node: NodeId, pages: Range<u64>) {
        self.sent(&Notification::contents_changed(node, pages.start, pages.end - pages.start));
    }

    fn sent(&self, notification: &Notification<'_>) -> bool {
        match self.device.notify(notification) {
            Ok(knows) => knows,
            // The mount ended.
            Err(DeviceError::Write(Errno::NODEV | Errno::CONNABORTED)) => false,
            Err(error) => {
                tracing::warn!("the kernel did not take a notification: {error}");
                false
            }
        }
    }
}
