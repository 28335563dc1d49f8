//! Storms: the engines' own code on virtual cores, with every choice from one seed, cut and killed
//! anywhere, recovered, and judged.
//!
//! A [`Script`] is what one seed does. Clients and drains use a small volume, with or without a
//! cache before it; each *life* of it ends at a random access to its memory, by a power cut or by a
//! kill. The next life recovers, and may be cut or killed in that, and in the recovery from that.
//! Then the structures are checked, every block is read, and the clients go on.
//!
//! Judged are: each read, as it ends ([`tidegate_sim::Oracle`]); each life's reads and writes
//! together, which some order must explain ([`tidegate_sim::History`]); after an end, what each
//! block shows: all that was acknowledged after a kill, all that was flushed or forced after a cut;
//! what an ordered disk shows then without its memory; the format's every rule, before recovery by
//! a plain rewriting of Linux's, and after it.
//!
//! Storms with `files` have clients, lives and a dull model of their own.
//!
//! It needs `--cfg virtual_cores`: the program `storm` sees to that.

#![forbid(unsafe_code)]

mod alone;
mod campaign;
mod client;
mod commits;
mod disk;
mod doubt;
mod drains;
mod fault;
mod files;
mod marks;
mod mutant;
mod mutation_test;
mod recovery;
mod run;
mod scene;
mod script;
mod seen;
mod stack_base;
mod staged;
mod transactions;
mod writes;

pub use campaign::{Campaign, Outcome};
pub use marks::{Mark, Marks};
pub use mutant::{CodeSite, Mislaid, Mutant, SiteKind};
pub use mutation_test::{
    Killed, MutantOutcome, Order, every_mistake, every_mistake_with_files, excuse, mistakes, mistakes_with_files,
    test_mutants,
};
pub use script::{Failure, Only, Script, Step, Tally, Verdict};
pub use stack_base::Base;
