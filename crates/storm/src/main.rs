//! `storm`: runs seeds of the engines on virtual cores, and says of a failing one how to have it
//! again.
//!
//! Built without `--cfg virtual_cores`, it builds and runs itself anew with it, in a target folder
//! of its own: the flag changes every crate.

#![forbid(unsafe_code)]

use clap::Parser;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tidegate_storm::{
    Base, Campaign, Mutant, Only, Order, Outcome, Script, Tally, every_mistake, every_mistake_with_files, mistakes,
    mistakes_with_files, test_mutants,
};

/// Clients, drains, power cuts and kills on virtual cores: every choice from a seed.
#[derive(Parser)]
#[command(name = "storm")]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds to run.
    #[arg(long)]
    seeds: Option<u64>,
    /// For how many hours to run seeds.
    #[arg(long)]
    hours: Option<f64>,
    /// What the stack stands on. Without it, the seed chooses.
    #[arg(long)]
    base: Option<Base>,
    /// Another choice of interleavings for the same seed.
    #[arg(long, default_value_t = 0)]
    schedule: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// Operations of each client.
    #[arg(long, default_value_t = 1000)]
    acts: u32,
    /// Only these operations, as CLIENT.NUMBER,CLIENT.NUMBER and so on.
    #[arg(long, value_name = "STEPS")]
    only: Option<Only>,
    /// Threads that drain.
    #[arg(long, default_value_t = 2)]
    drains: u32,
    /// Plant every mistake known, one at a time, and run seeds until each has shown; up to so many.
    /// With --base files: those of the file cache.
    #[arg(long, value_name = "SEEDS")]
    hunt: Option<u64>,
    /// Only mistakes whose description contains this, excused ones too. Without --hunt: what to
    /// break in the seeds that are run.
    #[arg(long, default_value = "")]
    mistake: String,
    /// Fail if fewer operations than this were judged.
    #[arg(long, default_value_t = 0)]
    operations_min: u64,
    /// Fail if the power failed fewer times than this.
    #[arg(long, default_value_t = 0)]
    cuts_min: u64,
    /// Fail if it failed fewer times than this during recoveries.
    #[arg(long, default_value_t = 0)]
    recovery_cuts_min: u64,
    /// Fail if a rare path was never taken, and list them all.
    #[arg(long)]
    marks: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !cfg!(virtual_cores) {
        return on_virtual_cores();
    }
    if let Some(seeds_max) = arguments.hunt {
        return mutation_test(&chosen(&arguments.mistake, arguments.base), seeds_max);
    }
    let broken = if arguments.mistake.is_empty() { Vec::new() } else { chosen(&arguments.mistake, arguments.base) };
    let first = Script {
        seed: arguments.seed,
        base: arguments.base.unwrap_or(Base::of(arguments.seed)),
        only: arguments.only,
        schedule: arguments.schedule,
        clients: arguments.clients.clamp(1, 64),
        acts: arguments.acts.max(1),
        drains: arguments.drains.min(16),
        mutant: broken.first().copied().unwrap_or_default(),
    };
    let seeds = arguments.seeds.unwrap_or(if arguments.hours.is_some() { u64::MAX } else { 1 });
    if seeds == 1 {
        return one(first);
    }
    let time = arguments.hours.map_or(Duration::MAX, |hours| Duration::from_secs_f64(hours * 3600.0));
    let campaign = Campaign { first, base: arguments.base, seeds, time, progress: Some(Duration::from_secs(10)) };
    let floor = Tally {
        acts: arguments.operations_min,
        cuts: arguments.cuts_min.saturating_sub(arguments.recovery_cuts_min),
        cuts_in_recovery: arguments.recovery_cuts_min,
        ..Tally::default()
    };
    report(campaign.run(), &floor, arguments.marks)
}

/// The mistakes whose description contains `part`, those with files if that is the `base`; without
/// a part, all that have no excuse.
fn chosen(part: &str, base: Option<Base>) -> Vec<Mutant> {
    let all = match (part, base) {
        ("", Some(Base::Files)) => mistakes_with_files(),
        ("", _) => mistakes(),
        (_, Some(Base::Files)) => every_mistake_with_files(),
        (..) => every_mistake(),
    };
    all.into_iter().filter(|mistake| mistake.to_string().contains(part)).collect()
}

/// Runs a mutation test, and says how many seeds each mistake took.
fn mutation_test(mistakes: &[Mutant], seeds_max: u64) -> ExitCode {
    // Assertions that broken engines fail are what is hoped for.
    std::panic::set_hook(Box::new(|_| {}));
    let outcomes = test_mutants(mistakes, Order::InTurn, seeds_max);
    for one in &outcomes {
        let (took, how) = match &one.killed {
            Some(killed) => (killed.tried.to_string(), killed.failure.what.as_str()),
            None => ("never".to_owned(), ""),
        };
        println!("{took:>6}  {}\n        {}", one.mutant, how.lines().next().unwrap_or_default());
    }
    let sound = outcomes.iter().filter_map(|one| one.sound.as_ref());
    sound.clone().for_each(|failure| println!("FAILED without any mistake: {failure}"));
    let mut seeds: Vec<u64> = outcomes.iter().filter_map(|one| Some(one.killed.as_ref()?.tried)).collect();
    seeds.sort_unstable();
    let median = seeds.get(seeds.len() / 2).copied().unwrap_or(0);
    println!("{} of {} mistakes shown; median {median} seeds", seeds.len(), outcomes.len());
    if seeds.len() == outcomes.len() && sound.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program again, compiled for virtual cores.
fn on_virtual_cores() -> ExitCode {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| format!("{root}/target").into(), std::path::PathBuf::from);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--package", "tidegate-storm", "--profile", "virtual-cores", "--"]);
    command.args(std::env::args_os().skip(1)).current_dir(root);
    command
        .env("RUSTFLAGS", "--cfg virtual_cores -A dead_code -A unused_imports")
        .env("CARGO_TARGET_DIR", target.join("virtual-cores"));
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!(
                "storm: cannot run cargo, which builds it anew for virtual cores: {error}; install Rust (https://rustup.rs), or name it: CARGO=/path/to/cargo"
            );
            ExitCode::FAILURE
        }
    }
}

fn one(script: Script) -> ExitCode {
    let verdict = script.run();
    println!("hash: {:016x}", verdict.hash);
    println!("{}", verdict.tally);
    match verdict.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn report(outcome: Outcome, floor: &Tally, marks: bool) -> ExitCode {
    let seconds = outcome.took.as_secs_f64();
    println!("{}", outcome.tally);
    println!("{:.1} seeds/s", outcome.tally.scripts as f64 / seconds);
    if let Some(failure) = outcome.failure {
        println!("FAILED: {failure}");
        println!("smaller: {}", failure.shrunk());
        return ExitCode::FAILURE;
    }
    if !outcome.tally.reaches(floor) {
        println!("FAILED: fewer operations or power cuts than asked for");
        return ExitCode::FAILURE;
    }
    let mut missing = false;
    if marks {
        for (mark, times) in outcome.marks.all() {
            println!("{times:>10}  {}", mark.0);
            missing |= times == 0;
        }
        for (site, times) in outcome.marks.sites() {
            println!("{times:>10}  {site}: {}", site.text());
        }
    }
    if missing {
        println!("FAILED: a rare path was never taken");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
