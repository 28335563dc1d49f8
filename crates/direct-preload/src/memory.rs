//! The memory of one lease: its log, and the chunks with the blocks that were lent, mapped from the
//! pool that the service described.

use crate::process::OwnFile;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{OFlags, fstat};
use std::ffi::CStr;
use tidegate_file_wire::PoolDescription;
use tidegate_layout::file_cache::{CHUNK_BYTES, Class, LeaseGrant, LeasePlan};
use tidegate_media::{MappedChunks, OpenShared};

/// See the head of this file.
pub(crate) type LeaseMemory = MappedChunks<PoolFile>;

/// The pool's file, which is opened for each mapping anew: a descriptor that stayed open would be
/// one that the program may close.
pub(crate) struct PoolFile(&'static PoolDescription);

impl PoolFile {
    /// The pool that is described.
    pub(crate) fn new(pool: &'static PoolDescription) -> PoolFile {
        PoolFile(pool)
    }
}

impl OpenShared for PoolFile {
    fn open(&self, map: &mut dyn FnMut(BorrowedFd<'_>)) {
        // Only what the service has open.
        let PoolFile(pool) = self;
        let bytes = usize::try_from(pool.path_bytes.get()).unwrap_or(0);
        let Some(path) = pool.path.get(..=bytes).and_then(|path| CStr::from_bytes_until_nul(path).ok()) else { return };
        let Some(file) = OwnFile::open(path, OFlags::RDWR | OFlags::NOFOLLOW) else { return };
        let identity = fstat(&file).map(|about| (about.st_dev, about.st_ino));
        if identity == Ok((pool.device.get(), pool.inode.get())) {
            map(file.as_fd());
        }
    }
}

/// The memory of a lease that was just granted, in the pool that is described. The log is locked
/// when this returns.
pub(crate) fn memory_of(pool: &'static PoolDescription, grant: &LeaseGrant) -> Option<LeaseMemory> {
    let is_log = |class: &&Class| LeasePlan::of(0, **class).elements == grant.log.elements;
    let log = grant.log.at..grant.log.at.checked_add(Class::ALL.iter().find(is_log)?.bytes())?;
    MappedChunks::of(PoolFile(pool), pool.bytes.get(), log, grant.blocks_at, CHUNK_BYTES)
}
