//! Files that lost their last name, or never had one: a descriptor reaches them.
//!
//! A descriptor reaches an open file too that the service's user may no longer open.
//!
//! What may be used without a name has its descriptor survive the server. That is a directory, and
//! a file that is open. Others are forgotten by the kernel at once, and recovery gives up what the
//! pool has of them, as their removal is recorded.

use crate::{open_as_allowed, reopen};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Result, fcntl_dupfd_cloexec};
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
        let flags = fcntl_getfl(&self.descriptor);
        flags.is_ok_and(|flags| flags.intersection(OFlags::RWMODE | OFlags::PATH) == OFlags::RDWR)
    }

    /// The file, opened for writing if that is possible, and whether it is. What this process had
    /// opened before is taken as it is: it might not be allowed to open it again.
    pub fn opened(&self) -> Result<(OwnedFd, bool)> {
        if !fcntl_getfl(&self.descriptor)?.contains(OFlags::PATH) {
            return Ok((fcntl_dupfd_cloexec(&self.descriptor, 0)?, self.can_write()));
        }
        open_as_allowed(|flags| reopen(&self.descriptor, flags))
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, open};
    use rustix::io::{pread, pwrite};

    #[test]
    fn a_file_without_a_name_is_read_and_written_by_whatever_descriptor_was_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        for flags in [OFlags::PATH, OFlags::RDWR] {
            let path = folder.path().join("file");
            std::fs::write(&path, b"abc").expect("written");
            let kept = KeptFile::passing(open(&path, flags, Mode::empty()).expect("it is there"));
            std::fs::remove_file(&path).expect("removed");
            let (opened, can_write) = kept.opened().expect("it is there still");
            assert!(can_write);
            pwrite(&opened, b"d", 1).expect("written");
            let mut read = [0; 3];
            pread(&opened, &mut read, 0).expect("readable");
            assert_eq!(&read, b"adc");
        }
    }
}
