//! Power cuts and kills under the file cache: small pools in front of small files, scripts, and a
//! judge for everything that a cut may leave.
//!
//! A script's last step is run with a cut before each fence of the memory, before each access of a
//! file below, and at its end. Each distinct image of the memory, with each state of the files
//! below that the cut may leave, is
//! 1. recovered, with a cut before each fence and each access of that recovery, whose images are
//!    recovered in their turn; and once without finding one of the files, whose data has to stay;
//! 2. compared with a dull model: the contents that each file may have, as a whole, so that a sync
//!    is there or is not;
//! 3. opened anew, read and written on, with a cut inside: after all was written back, or with what
//!    the pool has.
//!
//! At each of these instants the process is also killed while memory and files go on: everything
//! written is there then. The power fails in the recovery after it too.

#[cfg(not(virtual_cores))]
mod checker;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod displaced;
#[cfg(not(any(shuttle, virtual_cores)))]
mod failing;
#[cfg(not(virtual_cores))]
mod lease_threads;
#[cfg(not(virtual_cores))]
mod leased_steps;
#[cfg(not(virtual_cores))]
mod leases;
mod machine;
#[cfg(not(virtual_cores))]
mod mapped_steps;
#[cfg(not(virtual_cores))]
mod model;
mod mutants;
#[cfg(not(virtual_cores))]
mod placed_steps;
#[cfg(not(virtual_cores))]
mod script;
#[cfg(not(virtual_cores))]
mod threads;
#[cfg(not(any(shuttle, virtual_cores)))]
mod whole_writes;

#[cfg(not(any(shuttle, virtual_cores)))]
pub(crate) use model::{Allowed, FileModel};

#[cfg(not(virtual_cores))]
pub use checker::{FilesTally, judge_file_scripts};
#[cfg(not(any(shuttle, virtual_cores)))]
pub use failing::judge_refusals;
#[cfg(not(virtual_cores))]
pub use lease_threads::judge_lease_threads;
pub(crate) use machine::{MARK_OF_CUT, MARK_OF_ROOM};
pub use machine::{Machine, SimFile, SmallPool};
pub use mutants::FilesBug;
#[cfg(not(virtual_cores))]
pub use script::FileStep;
#[cfg(not(virtual_cores))]
pub use threads::judge_threads;
#[cfg(not(any(shuttle, virtual_cores)))]
pub use whole_writes::{PageWriters, PageWrites, WholeTally, judge_whole_writes};
