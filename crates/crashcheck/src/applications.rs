//! Protocols of applications under power cuts and kills: what mail servers, editors, databases and
//! version control do to files, each with what it promises afterwards, both as data.
//!
//! A [`Protocol`] is a row of [`PROTOCOLS`]: the steps of one act, which processes do again and
//! again, and [`Clause`]s that hold at every instant. The shipping engine serves the steps: the log
//! of names and the pool, over simulated memory and a directory whose file system loses
//! operations. A campaign cuts each life of that service at a random instant of every step, in the
//! recovery from it, and in the first steps after that, and lets applications go on with what is
//! left. After each cut the clauses are judged for all acts so far, and files that no protocol
//! touches are as they were.
//!
//! Mistakes are planted in the service ([`NamesBug`](crate::namespace::NamesBug)) and in the
//! protocols: one that does not sync breaks its promise, or the campaign is blind.

mod campaign;
mod files;
mod found;
mod promise;
mod protocols;
mod step;

pub use campaign::{ProtocolTally, judge_protocol};
pub use found::{Found, FoundFile};
pub use promise::{Clause, ProcessState, Protocol};
pub use protocols::PROTOCOLS;
pub use step::{At, Step, Turn};
