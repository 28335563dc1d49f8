//! Volumes as disks of virtual machines: the device's end of vhost-user-blk.
//!
//! A monitor (QEMU, Cloud Hypervisor, crosvm) connects to a unix socket and shares the guest's
//! memory. From then on the guest's own driver puts requests into rings in that memory, and a
//! thread here takes them out: no request passes through the monitor or a socket. [`serve`] has one
//! connection from its beginning to its end.
//!
//! The messages are parsed by the crate `vhost`, the rings by `virtio-queue`; the commands of
//! virtio-blk are here. Guests are not trusted: what they write into rings and requests can fail
//! their requests and stop their own queues. Their monitor is trusted with this process's life: it
//! must not cut short the files that it shared.
//!
//! Sources: QEMU's vhost-user protocol; Virtual I/O Device 1.2, 2.7 and 5.2.

#![forbid(unsafe_code)]

mod budget;
mod chain;
mod connection;
mod failure;
mod memory;
mod requests;
mod ring;
mod virtio;

pub use budget::{MachineAccess, QueueBudget};
pub use connection::{VirtualDisk, serve};
pub use failure::{BrokenQueue, ConnectionFailure, Refusal};
pub use memory::MemoryFailure;
