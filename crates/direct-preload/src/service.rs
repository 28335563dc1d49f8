//! The service of a mount, as a descriptor of one of its files reaches it.

use crate::contexts;
use crate::memory::{LeaseMemory, memory_of};
use libc::c_void;
use rustix::time::Timespec;
use tidegate_file_direct::{LeaseRequest as Request, Os};
use tidegate_file_wire::{
    Answer, CLAIM, Claim, DESCRIBE, EXTEND, LEAVE, LeaseRequest, PATH_BYTES_MAX, PoolDescription, READ, Read, VERSION,
};
use tidegate_layout::file_cache::LeaseGrant;
use tidegate_preload_common::next;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

/// A write of another process takes a microsecond. If its thread does not run, it gets the
/// processor first, and then some time. If it is stopped or dead, nothing helps.
const SPINS: u32 = 200;
const YIELDS: u32 = SPINS + 200;
const SLEEPS: u32 = YIELDS + 500;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };

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
    /// Where the mount's board says whether the file may have a lease.
    pub(crate) place: Option<u16>,
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

    fn ask(&mut self, request: Request, lease: u64) -> bool {
        let command = match request {
            Request::Extend if has_limit() => return false,
            // Any answer about the file comes behind the end of a lease.
            Request::Extend | Request::Probe => EXTEND,
            // If this does not arrive, the service finds out by itself.
            Request::Leave => LEAVE,
        };
        let mut message = LeaseRequest { lease: lease.into(), ..LeaseRequest::new_zeroed() };
        ask(self.fd, command, &mut message) && Answer::of(message.answer.get()) == Answer::Granted
    }

    fn read(&mut self, read: &mut Read) -> bool {
        ask(self.fd, READ, read)
    }

    fn map(&mut self, grant: &LeaseGrant) -> Option<LeaseMemory> {
        memory_of(self.pool, grant)
    }

    fn others_have_lease(&mut self) -> bool {
        self.place.is_some_and(contexts::may_be_leased)
    }

    fn pause(&mut self, round: u32) -> bool {
        match round {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => rustix::thread::sched_yield(),
            YIELDS..SLEEPS => _ = rustix::thread::nanosleep(&PAUSE),
            _ => return false,
        }
        true
    }

    fn context(&mut self) -> u64 {
        contexts::of_call()
    }

    fn now(&mut self) -> u64 {
        tidegate_process_mappings::now()
    }
}

/// Whether files of this process may not grow beyond some length: the kernel looks after that.
pub(crate) fn has_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}
