//! Power cuts and kills under the namespace log: a small served directory whose file system loses
//! operations, scripts of operations on names and contents, and a checker for everything that a cut
//! may leave.
//!
//! A script's last step is run with a cut before each fence of the memory, before each operation
//! below, and at its end. Each distinct image of the memory, with each prefix of the operations
//! below and each state of the files' contents, is
//! 1. recovered, names first and contents after them, with a cut before each fence and each
//!    operation of that recovery, whose images are recovered in their turn;
//! 2. compared with a dull model: the names are those after some step between the last sync and
//!    now, as a whole, and each file has contents that the model allows.
//!
//! At each of these instants the process is also killed while memory and files go on: names and
//! contents are those of that instant then. The power fails in the recovery after it too.

mod checker;
#[cfg(test)]
mod displaced;
mod machine;
mod model;
mod mutants;
mod script;
mod served;
mod service;
mod tree;

pub(crate) use machine::{JointCut, Machine, Watched, backing};
pub(crate) use served::{Served, identity_of, recover};
pub(crate) use tree::{DIRECTORY, REGULAR, Tree};

pub use checker::{NamesTally, judge_name_scripts};
pub use machine::NamesPool;
pub use mutants::NamesBug;
pub use script::NameStep;
