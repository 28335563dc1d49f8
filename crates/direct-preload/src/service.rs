//! The service of a mount, as a descriptor of one of its files reaches it.

use crate::contexts;
use crate::memory::{LeaseMemory, memory_of};
use crate::times;
use libc::c_void;
use tidegate_file_direct::Os;
use tidegate_file_wire::{
    Answer, CLAIM, Claim, DESCRIBE, EXTEND, LEAVE, LeaseRequest, PATH_BYTES_MAX, PoolDescription, READ, Read, VERSION,
};
use tidegate_layout::file_cache::LeaseGrant;
use tidegate_preload_common::next;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

/// A description of no pool.
pub(crate) const NO_POOL: PoolDescription = PoolDescription {
    version: U32::ZERO,
    path_bytes: U32::ZERO,
    device: U64::ZERO,
    inode: U64::ZERO,
    bytes: U64::ZERO,
    path: [0; PATH_BYTES_MAX],
    pinned_bytes_max: U64::ZERO,
};

/// The service, by a descriptor of the file.
pub(crate) struct Service {
    /// The descriptor that is used now.
    pub(crate) fd: i32,
    /// Which file the pool is.
    pub(crate) pool: &'static PoolDescription,
}

/// Whether the mount that a descriptor's file is in lends files; `pool` says from which pool.
pub(crate) fn lends(fd: i32, pool: &mut PoolDescription) -> bool {
    ask(fd, DESCRIBE, pool) && pool.version.get() == VERSION && pool.path_bytes.get() > 0
}

/// Sends a message and takes its answer. False: the file's file system knows no such message.
pub(crate) fn ask<T>(fd: i32, command: u32, message: &mut T) -> bool {
    let message: *mut c_void = (&raw mut *message).cast();
    // SAFETY: the kernel passes as many bytes as the command's number says, and those are the
    // message's; every message takes any bytes.
    unsafe { next::ioctl(fd, command.into(), message) == 0 }
}

impl Os for Service {
    type Memory = LeaseMemory;

    fn claim(&mut self, claim: &mut Claim) -> bool {
        !has_limit() && ask(self.fd, CLAIM, claim)
    }

    fn extend(&mut self, lease: u64) -> bool {
        let mut request = request_of(lease);
        !has_limit() && ask(self.fd, EXTEND, &mut request) && Answer::of(request.answer.get()) == Answer::Granted
    }

    fn leave(&mut self, lease: u64) {
        // If this does not arrive, the service finds out by itself.
        let _ = ask(self.fd, LEAVE, &mut request_of(lease));
    }

    fn read(&mut self, read: &mut Read) -> bool {
        ask(self.fd, READ, read)
    }

    fn map(&mut self, grant: &LeaseGrant) -> Option<LeaseMemory> {
        memory_of(self.pool, grant)
    }

    fn probe(&mut self) {
        // Any answer about the file comes behind the end of a lease.
        let _ = ask(self.fd, EXTEND, &mut request_of(0));
    }

    fn context(&mut self) -> u64 {
        contexts::of_call()
    }

    fn now(&mut self) -> u64 {
        times::now()
    }
}

fn request_of(lease: u64) -> LeaseRequest {
    LeaseRequest { lease: lease.into(), ..LeaseRequest::new_zeroed() }
}

/// Whether files of this process may not grow beyond some length: the kernel looks after that.
pub(crate) fn has_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}
