//! The file service: the owner of the files below a mount, which answers the kernel's requests
//! about them.
//!
//! A mount shows the files of a directory, SOURCE. The service carries out each operation on names
//! in SOURCE at once. The contents of files go through the file cache, whose syncs complete in
//! persistent memory, and reach SOURCE later by write-back.

#![forbid(unsafe_code)]

mod lifecycle;
mod pool;
mod service;

pub use lifecycle::belonging::NotTogether;
pub use lifecycle::belonging::mount_above;
pub use lifecycle::checked::{PoolChecked, check_pool};
pub use lifecycle::control::{explain, flush, status_after, status_of, status_within};
pub use lifecycle::failure::{DramRefused, ServiceFailure};
pub use lifecycle::found::{FoundMount, LeftMemory, LeftMountPool, left_memory, left_mount_pools};
pub use lifecycle::mounted::{FormerPool, MountRequest};
pub use lifecycle::pool_of::pool_of;
pub use lifecycle::recovered::{PoolRecovered, RecoveredFile, Unplaced, recover_pool};
pub use lifecycle::run::{Listener, run};
pub use lifecycle::server::serve_mount;
pub use lifecycle::unmounted::end_mount;
pub use pool::{default_pool, is_pool};
pub use service::explained::{ExtentTemperature, FilePlaces, TierRange, ToldTier};
pub use tidegate_file_cache::{PoolOpenError, PoolReport};
pub use tidegate_mount_status::{FileStates, MountCounts, MountStatus, PatternReads, ReadsByPattern};
pub use tidegate_mount_transport::{MountError, Unmount, dead_at};
pub use tidegate_namespace_log::NamespaceError;
