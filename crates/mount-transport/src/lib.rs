//! A FUSE mount that outlives its server: it is mounted, its requests are received and answered on
//! threads, and a supervisor starts the server again when it died.
//!
//! [`mount`] gives the [`Device`] of a mount. [`keep_alive`] holds it, and hands it to one server
//! after the other. A server [serves](serve) it with whatever [`Answers`].

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
pub use keep_alive::ending::{EndDemands, EndSignals};
pub use keep_alive::handover::{Handover, HandoverError, ServersTask, sockets};
pub use keep_alive::memory_log::MemoryLog;
pub use keep_alive::reply_cache::ReplyCache;
pub use keep_alive::{KeepAliveError, MountEnd, MountEvent, keep_alive};
pub use mount::{MountedDevice, check, cover, mount, unmount};
pub use mount_error::{KIND, MountAt, MountError, Unmount};
pub use utab::UtabLine;
pub use workers::{Answers, Serving, serve};
