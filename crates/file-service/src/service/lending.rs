//! What the service lends files with: the pool's file, and the kernel's ear.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::{Errno, Result};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use tidegate_file_wire::{PATH_BYTES_MAX, PoolDescription, VERSION};
use tidegate_fuse::{NodeId, Notification};
use tidegate_mount_transport::{Device, DeviceError};

/// Bytes of pages that the kernel drops in one step.
const STEP_BYTES: u64 = 1 << 20;

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
    pub(crate) fn new(device: &Device, (pool, path): (BorrowedFd<'_>, &Path)) -> Result<Lending> {
        let of_io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let device = Device::from_descriptor(device.as_fd().try_clone_to_owned().map_err(of_io)?);
        let (about, name) = (fstat(pool)?, path.as_os_str().as_bytes());
        let mut path = [0; PATH_BYTES_MAX];
        path.get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name);
        let description = PoolDescription {
            version: VERSION.into(),
            path_bytes: u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?.into(),
            device: about.st_dev.into(),
            inode: about.st_ino.into(),
            bytes: u64::try_from(about.st_size).unwrap_or(0).into(),
            path,
        };
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
