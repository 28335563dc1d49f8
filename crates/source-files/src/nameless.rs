//! Files that lost their last name, or never had one: a descriptor reaches them.
//!
//! A descriptor reaches an open file too that the service's user may no longer open.
//!
//! What may be used without a name has its descriptor survive the server. That is a directory, and
//! a file that is open. Others are forgotten by the kernel at once, and recovery gives up what the
//! pool has of them, as their removal is recorded.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use tidegate_mount_transport::DescriptorStore;

/// A descriptor of a file without a name.
#[derive(Debug)]
pub struct KeptFile {
    descriptor: OwnedFd,
    survival: Option<(DescriptorStore, u64)>,
}

impl KeptFile {
    /// One that ends with this process.
    pub fn passing(descriptor: OwnedFd) -> KeptFile {
        KeptFile { descriptor, survival: None }
    }

    /// One that survives this process if `store` takes it.
    pub fn surviving(descriptor: OwnedFd, store: &DescriptorStore) -> KeptFile {
        let survival = store.retain(descriptor.as_fd()).map(|key| (store.clone(), key));
        KeptFile { descriptor, survival }
    }

    /// One that survived an earlier server under the number `key`.
    pub fn survived(descriptor: OwnedFd, store: &DescriptorStore, key: u64) -> KeptFile {
        KeptFile { descriptor, survival: Some((store.clone(), key)) }
    }

    /// Whether the file can be written through it.
    pub fn can_write(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.descriptor);
        flags.is_ok_and(|flags| flags.intersection(OFlags::RWMODE | OFlags::PATH) == OFlags::RDWR)
    }

    /// The number under which it survives; 0: it does not.
    pub fn key(&self) -> u64 {
        self.survival.as_ref().map_or(0, |(_, key)| *key)
    }
}

impl AsFd for KeptFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if let Some((store, key)) = &self.survival {
            store.close(*key);
        }
    }
}
