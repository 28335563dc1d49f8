//! The rivals' side of `bench`: peers that need C libraries, measured in turn with ours in one
//! process.
//!
//! `bench` starts this program with the name of a row and reads the outcome, as JSON, from its
//! output. It lives apart because a plain build must not need PMDK.

#![deny(unsafe_code)]

mod pmdk;

use clap::Parser;
use pmdk::{PersistCopies, PlainCopiesOut, PoolWrites};
use tidegate_bench::blocks::compare;
use tidegate_bench::target::Outcome;
use tidegate_measure::medium::{self, OVERHEAD_BYTES, WALK_BYTES};
use tidegate_measure::subject::{Bare, BlockReads, BlockWrites, StreamedCopies, sweep};
use tidegate_measure::workload::Effort;

/// Measures one row against a rival and prints its outcome as JSON
#[derive(Parser)]
struct Args {
    /// The row's name
    row: String,
    #[command(flatten)]
    effort: Effort,
}

fn main() -> anyhow::Result<()> {
    let Args { row, effort } = Args::parse();
    let outcome = match row.as_str() {
        "floor-libpmem" => floor_over_libpmem(effort)?,
        "write-libpmemblk" => libpmemblk_over_write(effort)?,
        "read" => read_over_memcpy(effort)?,
        unknown => anyhow::bail!("no rival has a row called {unknown:?}"),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

fn floor_over_libpmem(effort: Effort) -> anyhow::Result<Outcome> {
    let (ours, theirs) = (medium::region(WALK_BYTES)?, PersistCopies::new(WALK_BYTES)?);
    Ok(compare(effort, &StreamedCopies(Bare::all(&ours)), &theirs))
}

fn libpmemblk_over_write(effort: Effort) -> anyhow::Result<Outcome> {
    let (theirs, ours) = (PoolWrites::new(WALK_BYTES + OVERHEAD_BYTES)?, medium::btt()?);
    Ok(compare(effort, &theirs, &BlockWrites(&ours)))
}

fn read_over_memcpy(effort: Effort) -> anyhow::Result<Outcome> {
    let (ours, theirs) = (medium::btt()?, PlainCopiesOut::new(WALK_BYTES)?);
    sweep(&BlockWrites(&ours));
    Ok(compare(effort, &BlockReads(&ours), &theirs))
}
