//! Simulated persistent memory and disks, and every state a power cut can leave them in.
//!
//! [`Region`] is the medium of `docs/media-model.md`, rule by rule: it remembers what each store
//! has made visible and what a fence has made durable, and a [`Cut`] lists every image that a power
//! failure at that instant may leave. [`Disk`] is a block device with a volatile cache whose
//! unflushed sectors are kept, lost or torn. [`Oracle`] is the dull model beside them: which
//! contents may a block show. Nothing here reads a clock or a random device: a seed decides, so
//! each failure can be had again.

#![forbid(unsafe_code)]

mod cores;
pub mod cost;
mod cut;
mod disk;
mod hash;
mod history;
mod image;
mod intercepted;
mod oracle;
mod recorded;
mod region;
mod shared;

pub use cores::on_core;
pub use cut::{Counts, Cut, Images, Reduction};
pub use disk::{Disk, DiskCut, DiskFault, DiskImage, SECTOR_BYTES, SectorTear};
pub use hash::hash_of;
pub use history::{Began, History, Inexplicable};
pub use image::{Image, PAGE_BYTES};
pub use intercepted::{Ending, Intercept, InterceptMemory, Intercepted, InterceptedMemory};
pub use oracle::{Content, Oracle, Pending, Promise, ReadStart, Wrong};
pub use recorded::Recorded;
pub use region::{Counters, PoisonedStore, Region, power_cuts};
pub use shared::SharedMemory;
pub use tidegate_virtual_cores::{Rng, mix};
