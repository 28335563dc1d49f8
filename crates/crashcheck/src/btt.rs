//! Power cuts under the block translation table: small volumes, scripts, and a judge for every
//! image a cut may leave.
//!
//! A script's last step is run with a cut before each fence and one at its end. Each distinct image
//! of each cut is
//! 1. recovered by a plain rewriting of Linux's driver, lanes in ascending, descending and shuffled
//!    order: every sector then shows a content that the oracle allows, and every block is owned
//!    once;
//! 2. opened by the engine, with a cut before each fence of that recovery, whose images are judged
//!    in the same way;
//! 3. checked: no rule of the format is broken; and read: what the oracle allows, and what Linux's
//!    recovery shows;
//! 4. written on, on two cores, more often than there are free blocks, with cuts inside those
//!    writes; then checked and read again. (Structures broken by a cut often show only now.)
//!
//! The steps before a script's last were the last of a shorter script, so each step's cuts are
//! judged once.

mod checker;
mod linux;
#[cfg(not(any(shuttle, virtual_cores)))]
mod long;
mod mutants;
mod script;
mod volume;

pub use checker::{Campaign, SecondCuts, Tally, judge_scripts};
pub use linux::{LinuxArena, Order};
#[cfg(not(any(shuttle, virtual_cores)))]
pub use long::{LongTally, LongVolume};
pub use mutants::{Bug, Faulty};
pub use script::{Act, Step, Written};
pub use volume::SmallVolume;
