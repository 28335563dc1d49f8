//! The steps of a full test: each runs whatever the others did, and a table at the end says how
//! they went.

use crate::builds::{cargo_command, run, target};
use crate::fuzzing::Fuzzing;
use crate::suite::{BUILT, Suite};
use crate::workspace::Workspace;
use crate::{book, packages, tidy};
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How much of the tests to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What needs no guest, no mounts and few minutes.
    Quick,
    /// Everything.
    Full,
    /// Everything, and campaigns in their long forms.
    Long,
}

/// What campaigns read that have a long form, and what they are told then.
const LONG: [(&str, &str); 10] = [
    ("TIDEGATE_ENTRIES", "1000000"),
    ("TIDEGATE_IMAGES", "2000"),
    ("TIDEGATE_INPUTS", "20000000"),
    ("TIDEGATE_KILLS", "200"),
    ("TIDEGATE_SCHEDULES", "200000"),
    ("TIDEGATE_SCRIPTS", "all"),
    ("TIDEGATE_MACHINE_KILLS", "100"),
    ("TIDEGATE_PROTOCOL_SEEDS", "400"),
    ("TIDEGATE_SEEDS", "4000"),
    ("TIDEGATE_TEXTS", "100000"),
];

/// A step: its name, when it runs, and what it does.
struct Step {
    name: &'static str,
    runs: fn(Extent) -> bool,
    action: fn(Extent) -> Result<()>,
}

const STEPS: [Step; 12] = [
    Step { name: "packages", runs: in_full, action: provide_packages },
    Step { name: "format", runs: always, action: |_| cargo(&["fmt", "--all", "--check"]) },
    Step { name: "lints", runs: always, action: |_| lints() },
    Step { name: "rules", runs: always, action: |_| rules() },
    Step { name: "tests", runs: in_full, action: |extent| suite()?.pass(campaigns(extent)) },
    Step { name: "tests of single crates", runs: in_quick, action: |_| tests_of_single_crates() },
    Step { name: "schedules", runs: in_full, action: schedules },
    Step { name: "storms", runs: in_full, action: storms },
    Step { name: "fuzzing", runs: in_long, action: |_| Fuzzing::long().carry_out() },
    Step { name: "suites of others", runs: in_long, action: |_| suites_of_others() },
    Step { name: "experiments", runs: in_full, action: |_| experiments() },
    Step { name: "documentation", runs: always, action: |_| documentation() },
];

fn always(_: Extent) -> bool {
    true
}

fn in_full(extent: Extent) -> bool {
    matches!(extent, Extent::Full | Extent::Long)
}

fn in_long(extent: Extent) -> bool {
    extent == Extent::Long
}

fn in_quick(extent: Extent) -> bool {
    extent == Extent::Quick
}

/// How one step went.
struct Outcome {
    name: &'static str,
    took: Duration,
    /// Processor time that the machine spent meanwhile, whatever on.
    busy: Duration,
    result: Result<()>,
}

/// Runs every step of `extent` and reports them all; fails if one of them did.
pub(crate) fn test(extent: Extent) -> Result<ExitCode> {
    let began = Instant::now();
    let steps: Vec<_> = STEPS.iter().filter(|step| (step.runs)(extent)).collect();
    let mut outcomes = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n==== {} ({} of {})", step.name, index + 1, steps.len());
        let (began, busy) = (Instant::now(), machine_busy());
        let result = (step.action)(extent);
        if let Err(error) = &result {
            println!("{} failed: {error:#}", step.name);
        }
        let busy = machine_busy().saturating_sub(busy);
        outcomes.push(Outcome { name: step.name, took: began.elapsed(), busy, result });
    }
    print!("{}{}", left_out(extent), report(&outcomes, began.elapsed()));
    Ok(if outcomes.iter().all(|outcome| outcome.result.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Processor time that the machine has spent since its start; zero where the kernel does not tell.
fn machine_busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq: hundredths of a second.
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(7);
    let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
    let spent = numbers.iter().enumerate().filter(|(column, _)| ![3, 4].contains(column));
    Duration::from_millis(spent.map(|(_, hundredths)| hundredths * 10).sum())
}

/// A line about what `extent` does not run.
fn left_out(extent: Extent) -> String {
    match extent {
        Extent::Quick => {
            // Of `tests`, a part runs.
            let steps = STEPS.iter().filter(|step| !(step.runs)(extent) && step.name != "tests");
            let steps = steps.map(|step| step.name.to_owned());
            let tests = SLOW_PACKAGES.iter().map(|package| format!("tests of {package}"));
            format!("\nnot run: {}\n", steps.chain(tests).collect::<Vec<_>>().join(", "))
        }
        Extent::Full => {
            "\nnot run: the suites of others, fuzzing and the long forms of campaigns, which --long runs\n".to_owned()
        }
        Extent::Long => String::new(),
    }
}

/// The table of all steps, and a last line in the form in which `cargo test` itself closes.
fn report(outcomes: &[Outcome], took: Duration) -> String {
    let row = |outcome: &Outcome| {
        let word = if outcome.result.is_ok() { "ok" } else { "FAILED" };
        let took = outcome.took.as_secs_f64();
        let cores = outcome.busy.as_secs_f64() / took.max(0.01);
        format!("{:<24} {took:>8.1} s  {cores:.1} cores busy  {word}\n", outcome.name)
    };
    let rows: String = outcomes.iter().map(row).collect();
    // Again: who reads the end of a long log sees what failed.
    let reason = |outcome: &Outcome| Some(format!("\n{} failed: {:#}\n", outcome.name, outcome.result.as_ref().err()?));
    let reasons: String = outcomes.iter().filter_map(reason).collect();
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let passed = outcomes.len() - failed;
    format!(
        "\n==== {} steps\n{rows}{reasons}\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; \
         0 filtered out; finished in {:.2}s\n",
        outcomes.len(),
        took.as_secs_f64()
    )
}

fn provide_packages(extent: Extent) -> Result<()> {
    packages::provide(&packages::PACKAGES)?;
    if extent == Extent::Long { packages::provide(&packages::PACKAGES_OF_LONG) } else { Ok(()) }
}

fn lints() -> Result<()> {
    cargo(&["clippy", "--workspace", "--all-targets", "--keep-going", "--", "--deny", "warnings"])
}

fn rules() -> Result<()> {
    ensure!(tidy(&Workspace::load()?)? == ExitCode::SUCCESS, "the house rules are broken at the places above");
    Ok(())
}

/// Builds every test there is.
pub(crate) fn suite() -> Result<Suite> {
    Suite::build(cargo_command(&[]), &["--workspace"], built())
}

/// What campaigns are told in `extent`.
fn campaigns(extent: Extent) -> &'static [(&'static str, &'static str)] {
    if extent == Extent::Long { &LONG } else { &[] }
}

/// The whole-stack trials, which need clients, guests and root; the campaigns, which take long; and
/// what links libraries of others.
const SLOW_PACKAGES: [&str; 3] = ["tidegate-trials", "tidegate-crashcheck", "tidegate-rivals"];

/// The tests of all packages but those.
fn tests_of_single_crates() -> Result<()> {
    let others = SLOW_PACKAGES.map(|package| ["--exclude", package]);
    let packages = [&["--workspace"], others.as_flattened()].concat();
    Suite::build(cargo_command(&[]), &packages, built())?.pass(&[])
}

/// Where cargo puts programs and libraries.
fn built() -> PathBuf {
    target().join("debug")
}

/// Tests of the code under shuttle, whose scheduler stands in for every lock and atomic. The flag
/// changes every crate; but not macros and build scripts, as a target is named: those of the tests'
/// build serve. Such a build has a part of some crates, and what all of their parts share.
fn schedules(extent: Extent) -> Result<()> {
    let mut command = cargo_command(&["test", "--target", "host-tuple", "--no-fail-fast"]);
    command.args(["--package", "tidegate-crashcheck"]);
    for test in ["schedules", "transit_schedules", "file_schedules", "append_log_schedules"] {
        command.args(["--test", test]);
    }
    command.env("RUSTFLAGS", "--cfg shuttle -A dead_code -A unused_imports");
    command.envs(campaigns(extent).iter().copied());
    run(&mut command)
}

/// Whole suites of others in a mount and beside it.
fn suites_of_others() -> Result<()> {
    let mut suites = Command::new(built().join("others-suites"));
    suites.env(BUILT, built());
    run(&mut suites)
}

/// Rows about mounts that are measured in ways of their own: the others differ from one of them in
/// a number or in what they are compared with.
const MOUNT_ROWS: [&str; 27] = [
    "sync-together",
    "sync-2",
    "o-sync-apart",
    "sync-disk",
    "sync-below",
    "sync-io",
    "append",
    "append-lines",
    "cached-512",
    "cached-512-disk",
    "memory-per-page",
    "first-byte",
    "read",
    "stat",
    "untar",
    "git-status",
    "make",
    "fio-4k",
    "redis-50x10",
    "redis-1",
    "sqlite-wal",
    "sqlite-batch-atomic",
    "rocksdb",
    "postgres-2",
    "mariadb",
    "cluster-sync",
    "cluster-requests",
];

/// Every experiment in its smallest form, the page of their figures, and rows about mounts: that
/// they run, not what they measure.
fn experiments() -> Result<()> {
    let folder = target().join("experiments-of-tests");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    // As the tests were built: nothing of it is built again.
    let bench = |arguments: &[&Path]| {
        let mut command = Command::new(built().join("bench"));
        command.args(arguments).env(BUILT, built());
        command
    };
    // Either keeps about one core busy.
    std::thread::scope(|scope| {
        let rows = scope
            .spawn(|| bench(&["targets", "mount", "--smoke", "--only", &MOUNT_ROWS.join(",")].map(Path::new)).output());
        let pages =
            run(&mut bench(&["experiments".as_ref(), "--smoke".as_ref(), "--out".as_ref(), &folder])).and_then(|()| {
                run(&mut bench(&["report".as_ref(), &folder, "--out".as_ref(), &folder.join("report.html")]))
            });
        let rows = rows.join().expect("running a program does not panic").context("cannot run bench")?;
        println!("$ bench targets mount --smoke, some rows\n{}", String::from_utf8_lossy(&rows.stdout));
        print!("{}", String::from_utf8_lossy(&rows.stderr));
        ensure!(rows.status.success(), "bench targets mount: {}", rows.status);
        pages
    })
}

/// Campaigns of the code on virtual cores: digests, every known mistake, then as many seeds as make
/// three million operations, which take every rare path. It is built apart too. The long form
/// compares the digests of a debug build as well.
fn storms(extent: Extent) -> Result<()> {
    let target = target();
    let on_virtual_cores = |arguments: &[&str]| {
        let mut command = cargo_command(arguments);
        command
            .env("RUSTFLAGS", "--cfg virtual_cores -A dead_code -A unused_imports")
            .env("CARGO_TARGET_DIR", target.join("virtual-cores"));
        run(&mut command)
    };
    let storm = ["--package", "tidegate-storm"];
    if extent == Extent::Long {
        on_virtual_cores(&[&["test"], &storm[..], &["--test", "storm", "digest"]].concat())?;
    }
    // The experiments' program is built later; with other features of dependencies it would be all
    // built twice.
    let both = ["--package", "tidegate-crashcheck", "--package", "tidegate-reproduction"];
    let both = [&both[..], &["--test", "disk_cache_cores", "--test", "storm"]].concat();
    let optimised = ["--profile", "virtual-cores"];
    on_virtual_cores(&[&["test"], &optimised[..], &storm[..], &both[..]].concat())?;
    // The tests of a program are built with the program.
    let mut seeds = Command::new(target.join("virtual-cores/virtual-cores/storm"));
    seeds.arg("--marks").args(if extent == Extent::Long { STORM_SEEDS_LONG } else { STORM_SEEDS });
    run(&mut seeds)?;
    let mut files = Command::new(target.join("virtual-cores/virtual-cores/storm"));
    files.args(FILE_SEEDS);
    run(&mut files)
}

/// Seeds with files, of 4 clients and 200 operations each, and what has to come of them.
const FILE_SEEDS: [&str; 12] = [
    "--base",
    "files",
    "--seeds",
    "1000",
    "--acts",
    "200",
    "--operations-min",
    "600000",
    "--cuts-min",
    "2000",
    "--recovery-cuts-min",
    "500",
];

/// Seeds of 4 clients and 1,000 operations each, and what has to come of them.
const STORM_SEEDS: [&str; 8] =
    ["--seeds", "896", "--operations-min", "3000000", "--cuts-min", "3000", "--recovery-cuts-min", "300"];

/// As many as make ten million operations.
const STORM_SEEDS_LONG: [&str; 8] =
    ["--seeds", "2688", "--operations-min", "10000000", "--cuts-min", "10000", "--recovery-cuts-min", "1000"];

/// The book, and the documentation of all libraries and of the program: other programs are read
/// in their sources. One after the other, as the program and the C interface have one name.
fn documentation() -> Result<()> {
    book::check()?;
    for of in [&["--workspace", "--lib"][..], &["--package", "tidegate-cli", "--bin", "tidegate"]] {
        let mut command = cargo_command(&["doc", "--no-deps", "--quiet"]);
        run(command.args(of).env("RUSTDOCFLAGS", "--deny warnings"))?;
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run(&mut cargo_command(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &'static str, result: Result<()>) -> Outcome {
        Outcome { name, took: Duration::from_millis(1500), busy: Duration::from_millis(2400), result }
    }

    #[test]
    fn the_report_counts_steps() {
        let good = report(&[outcome("format", Ok(())), outcome("lints", Ok(()))], Duration::from_secs(3));
        assert!(good.contains("format                        1.5 s  1.6 cores busy  ok\n"), "{good}");
        assert!(good.ends_with(
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3.00s\n"
        ));
        let bad = report(&[outcome("format", Err(anyhow::anyhow!("no")))], Duration::from_secs(3));
        assert!(bad.contains("\nformat failed: no\n\ntest result: FAILED. 0 passed; 1 failed"), "{bad}");
    }

    #[test]
    fn each_extent_names_what_it_leaves_out() {
        let quick = left_out(Extent::Quick);
        assert!(["schedules", "storms", "tests of tidegate-trials"].iter().all(|name| quick.contains(name)), "{quick}");
        assert!(!quick.contains("format") && left_out(Extent::Full).contains("--long"));
        assert_eq!(left_out(Extent::Long), "");
    }

    #[test]
    fn every_step_runs_in_some_extent() {
        let runs = |step: &Step| [Extent::Quick, Extent::Full, Extent::Long].into_iter().any(step.runs);
        assert!(STEPS.iter().all(runs));
    }
}
