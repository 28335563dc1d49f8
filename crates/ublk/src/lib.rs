//! Volumes as block devices of this machine, `/dev/ublkbN`: the server's end of Linux's ublk.
//!
//! The kernel's driver makes the device and hands each request to a thread of this process through
//! io_uring: no socket and no copy between processes lies between. [`claim`] makes a device, or
//! takes over the one that a killed server of the volume left: the kernel keeps a device that has
//! no server, and its requests, until another server comes. [`ClaimedDevice::serve`] serves it, and
//! an [`Ender`] ends it.
//!
//! The kernel is trusted with this process's memory. Tags, lengths and ranges are checked anyway:
//! a request that makes no sense fails alone. Unsafe code is in one file, `kernel.rs`.
//!
//! Source: Linux 6.12, `Documentation/block/ublk.rst` and `drivers/block/ublk_drv.c`.

#![deny(unsafe_code)]

/// The greatest number of a device.
pub const DEVICE_NUMBER_MAX: u32 = (1 << 20) - 1;

/// The most queues of a device.
pub const DEVICE_QUEUES_MAX: u16 = 4096;

mod claim;
mod control;
mod device;
mod driver;
mod failure;
#[expect(unsafe_code, reason = "it shares memory with the kernel, by three laws that it proves")]
mod kernel;
mod left;
mod node;
mod parameters;
mod queue;
mod repeat;
mod requests;

/// Has this thread, and those that it begins from now on, wait for no write to a device when they
/// ask for memory: the write may be one that this process has yet to carry out. A process that is
/// to serve devices calls it before it opens their volumes. A system that does not know this
/// promise, or does not let this user make it, is as well off as before.
pub fn never_wait_for_devices() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

pub use claim::{ClaimedDevice, Exclusivity, Mark, Wanted, claim};
pub use device::{EndOutcome, Ended, Ender, UblkVolume};
pub use failure::UblkFailure;
pub use kernel::CommandError;
pub use left::{LeftDevice, left_devices};
