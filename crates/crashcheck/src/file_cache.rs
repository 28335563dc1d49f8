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

mod checker;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod displaced;
mod failing;
mod lease_threads;
mod leased_steps;
mod leases;
mod machine;
mod mapped_steps;
mod model;
mod mutants;
mod placed_steps;
mod script;
mod threads;
mod whole_writes;

pub(crate) use model::{Allowed, FileModel};

pub use checker::{FilesTally, judge_file_scripts};
pub use failing::judge_refusals;
pub use lease_threads::judge_lease_threads;
pub use machine::{Machine, SimFile, SmallPool};
pub use mutants::FilesBug;
pub use script::FileStep;
pub use threads::judge_threads;
pub use whole_writes::{PageWriters, PageWrites, WholeTally, judge_whole_writes};
