//! The library under unmodified programs that have the direct path: it takes over those of libc's
//! functions that write, read and sync files, and has `tidegate-file-direct` do that in shared
//! memory where a file is leased.
//!
//! # The rules
//!
//! 1. Whatever is not plainly ours goes to the next definition, with the arguments as they came. In
//!    a mount that is a request, which ends a lease where it has to: it is always right.
//! 2. A file is learnt at its first sync, or at the first write of a descriptor that was opened
//!    with `O_SYNC` or `O_DSYNC`: that it is in a mount of ours, the mount says (`DESCRIBE`).
//! 3. The offset of a descriptor is the kernel's own: a write or read at the position asks for it
//!    and sets it. So copies of the descriptor, here and in children, share it.
//! 4. What is known of a descriptor is forgotten when its number is closed or given anew. If that
//!    was missed, the kernel has told the service that the file was closed, which ended the lease.
//!    Whether a write goes to the end (`O_APPEND`) is asked at each write of a descriptor whose
//!    open file description other processes may have.
//! 5. A lock for each file is taken around all that is done with it. A signal handler that finds it
//!    taken by its own thread uses the descriptor.
//! 6. A child of `fork` has no leases: the mappings are not passed on, and a page that forks wipe
//!    says so. What runs between `vfork` and `exec` closes no descriptors of its parent.
//!
//! # The law of the unsafe code
//!
//! - **L1** Exports are called as libc's own functions of the same name may be called; what the
//!   next definition gets is what they got.
//! - **L2** What a slot has, and the chunk of a trace, is touched by whoever has its lock.
//! - **L3** The board of contexts stays mapped, and is only used as atomics.
//! - **L4**, **L5** stand in `tidegate-process-mappings`.
//! - **L6** The memory of kept pages stays mapped, and is only used as atomics.
//!
//! No panic reaches C: what is done beside the call is under [`guarded`], which aborts.

mod contexts;
mod exports;
mod files;
mod known;
mod mappings;
mod memory;
mod process;
mod read_memory;
mod service;
mod trace;

use tidegate_preload_common::guarded;
