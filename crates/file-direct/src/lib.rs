//! The direct path as a program has it: a [`DirectFile`] decides when a file is claimed, writes and
//! syncs it by its lease, and says what has to be done by the descriptor instead.
//!
//! [`Os`] is all that it asks of the system. The rules, with their reasons, are in
//! `docs/decisions/0038-a-program-claims-what-it-syncs.md`:
//!
//! 1. What is answered with [`Attempted::ByDescriptor`] was not done, no part of it. So the
//!    descriptor does it once, and its request ends the lease.
//! 2. What is answered as done is in the file for everybody, and is not done again.
//! 3. The memory of a lease is given up before the service is told so ([`LeaseRequest::Leave`]).
//! 4. Pages that are kept in DRAM (`read_cache.rs`) are believed only if the lease is found valid
//!    after they were copied.
//! 5. Nothing that the service says is believed before it was checked (`grant.rs`).
//!
//! Nothing here allocates, waits or starts anything but what [`Os`] does.

#![forbid(unsafe_code)]

mod backoff;
mod file;
mod grant;
mod os;
mod read_cache;

pub use file::{Attempted, DirectFile, ReadAids, Until, WriteTarget};
pub use os::{LeaseRequest, Os};
pub use read_cache::ReadCache;
