//! A FUSE mount that outlives its server. This crate mounts, receives requests and answers them on
//! threads, and has the supervisor that starts the next server if one dies.
//!
//! [`mount`] makes a mount and returns its [`Device`]. [`keep_alive`] is the supervisor: it keeps
//! the device open, and passes it to one server after the other. [`serve`] is the server: it reads
//! requests from the device, and replies with what an implementation of [`Answers`] returns.

#![forbid(unsafe_code)]

mod dead;
mod device;
mod fusermount;
mod keep_alive;
mod mount;
mod mount_error;
mod utab;
mod workers;

pub use dead::{BelowDead, dead_at, remove_dead};
pub use device::{Device, DeviceError};
pub use keep_alive::descriptors::DescriptorStore;
pub use keep_alive::ending::{EndDemand, EndDemands, EndSignals};
pub use keep_alive::handover::{Handover, HandoverError, ServersTask, sockets};
pub use keep_alive::memory_log::MemoryLog;
pub use keep_alive::reply_cache::ReplyCache;
pub use keep_alive::{KeepAliveError, MountEnd, MountEvent, keep_alive};
pub use mount::{MountedDevice, check, cover, mount, unmount};
pub use mount_error::{KIND, MountAt, MountError, Unmount, refuse_without_proc};
pub use utab::UtabLine;
pub use workers::{Answers, Serving, serve};
