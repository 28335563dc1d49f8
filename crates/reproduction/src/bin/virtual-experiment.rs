//! One experiment on virtual cores.
//!
//! `bench experiments` starts it for each experiment in virtual time. It is apart from `bench`,
//! as it is built anew for virtual cores, with all that it contains.

#![forbid(unsafe_code)]

use anyhow::Context as _;
use clap::Parser;
use std::path::PathBuf;
use tidegate_reproduction::{EXPERIMENTS, Scale, run};

/// Repeat one experiment on virtual cores
#[derive(Parser)]
struct Args {
    /// Its name
    experiment: String,
    /// A folder for its figures
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// At the smallest scale
    #[arg(long)]
    smoke: bool,
    /// At a small scale
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    anyhow::ensure!(cfg!(virtual_cores), "this program was not built for virtual cores: run `bench experiments`");
    let experiment = EXPERIMENTS.iter().find(|one| one.name == args.experiment);
    let experiment = experiment.with_context(|| format!("no experiment is called {:?}", args.experiment))?;
    run(experiment, Scale::of_options(args.smoke, args.quick), &args.out).map(drop)
}
