//! Power cuts under the disk cache: small caches in front of small disks, scripts of transactions,
//! reads and destaging, and a judge for every pair of images that a cut may leave in memory and on
//! the disk.
//!
//! A script's last step is run with a cut before each fence of the memory, before each access of
//! the disk, and at its end. Each distinct pair of images is
//! 1. recovered by a plain rewriting of the rules, and by the engine's check, which finds no broken
//!    rule;
//! 2. opened by the engine, with a cut before each fence of that recovery, whose images are judged
//!    in the same way;
//! 3. read: every block of the disk, as the script left it or would have; a transaction is there as
//!    a whole or not at all;
//! 4. written on, on two cores, more often than there are free blocks, with destaging in between
//!    and a cut inside; then checked and read again.
//!
//! Where the disk keeps the order of commits, each image of it is looked at without the memory too:
//! recovered by its journal, it shows what the cache showed at some moment.
//!
//! The process is also killed at each of these instants while the power stays, and the power cut in
//! the next process.

#[cfg(not(any(shuttle, virtual_cores)))]
mod alone;
#[cfg(not(any(shuttle, virtual_cores)))]
mod checker;
#[cfg(not(shuttle))]
mod cores;
#[cfg(not(any(shuttle, virtual_cores)))]
mod long;
#[cfg(not(any(shuttle, virtual_cores)))]
mod mutants;
#[cfg(not(shuttle))]
mod plain;
#[cfg(not(any(shuttle, virtual_cores)))]
mod published;
#[cfg(not(any(shuttle, virtual_cores)))]
mod script;
#[cfg(not(any(shuttle, virtual_cores)))]
mod small;
mod watch;

#[cfg(not(any(shuttle, virtual_cores)))]
pub use checker::{CacheTally, judge_cache_scripts, judge_some_cache_scripts};
#[cfg(not(shuttle))]
pub use cores::{CoresTally, Fences, Way, judge_on_cores};
#[cfg(not(any(shuttle, virtual_cores)))]
pub use long::{LongCacheTally, judge_long_script};
#[cfg(not(any(shuttle, virtual_cores)))]
pub use mutants::{CacheBug, FaultyCache};
#[cfg(not(shuttle))]
pub use plain::PlainCache;
#[cfg(not(any(shuttle, virtual_cores)))]
pub use published::{EntriesArrive, judge_published};
#[cfg(not(any(shuttle, virtual_cores)))]
pub use script::{CacheStep, Subset};
#[cfg(not(any(shuttle, virtual_cores)))]
pub use small::SmallCache;
pub(crate) use watch::WatchedDisk;
pub use watch::{GroupPart, JointCut, LostFlush, Watched, Watcher};
