//! The program `bench`: measures the rows of a topic and judges them by their targets, repeats the
//! papers' experiments, draws them.
//!
//! `bench targets` exits with 0 only if every row it ran met its target; a row that could not be
//! measured did not meet it. Rows and their floors are tables in the library.

#![forbid(unsafe_code)]

use anyhow::Context;
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_bench::calibrate::{self, Calibration};
use tidegate_bench::files::{Probing, probe};
use tidegate_bench::replay::{Replaying, replay};
use tidegate_bench::report::{Style, Tally};
use tidegate_bench::simulator::{self, Asked, Workload};
use tidegate_bench::target::{Method, Outcome, Row, Topic, Verdict};
use tidegate_bench::{
    append_log, blocks, databases, disk_cache, files, fronts, mappings, mount, placement, reproduction, rivalry,
    rivals, served, verdicts, write_cache,
};
use tidegate_measure::machine::Machine;
use tidegate_measure::programs::{NO_CARGO, on_virtual_cores};
use tidegate_measure::workload::{Effort, cores};
use tidegate_media::emulate;
use tidegate_reproduction::caiti::stacks::Kind;
use tidegate_reproduction::hybrid::writer::{self, Writing};
use tidegate_reproduction::nbd_export::NbdExport;
use tidegate_reproduction::{self as experiments, Driver, EXPERIMENTS, Experiment, Scale};
use tidegate_sim::cost::{self, Profile};

/// Figures about Tidegate, each beside its floor or rival in the same run
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure rows and judge them by their targets; exits with 1 if one is short or missing
    Targets(Targets),
    /// Measure what each single act costs on this machine, for predictions in virtual time
    Calibrate(Calibrate),
    /// Predict the time of a workload on a platform, in virtual time
    Predict(Predict),
    /// Repeat the papers' experiments and keep their figures; what is in the folder already is not
    /// measured again
    Experiments(Experiments),
    /// Serve a subject of the experiments over NBD until this is ended
    Serve(Serve),
    /// Replay a trace of requests over tiers of DRAM and NVM, by each placement
    Replay(Replaying),
    /// Draw the figures of a folder as one HTML file
    Report(Report),
    /// Write and sync as often as lines of the input say, and tell the time: a part of
    /// `targets files`
    #[command(hide = true)]
    Probe(Probing),
    /// Write to a file and sync it as lines of the input say, and tell the time: a part of
    /// `experiments`
    #[command(hide = true)]
    Writer(Writing),
}

#[derive(clap::Args)]
struct Calibrate {
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(clap::Args)]
struct Predict {
    /// What is written to
    workload: Workload,
    /// Threads that write
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    writers: u32,
    /// Writes in all
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    writes: u32,
    /// Blocks of 4 KiB in each: on the disk cache, they are one transaction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    blocks: u32,
    /// The platform
    #[arg(long, default_value = cost::REFERENCE, conflicts_with = "costs")]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(cost::PROFILES))]
    profile: String,
    /// A file of `bench calibrate` instead
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Print the nanoseconds of one write and nothing else
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Args)]
struct Experiments {
    /// Only this experiment
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(EXPERIMENTS.iter().map(|one| one.name)))]
    experiment: Option<String>,
    /// Where the figures go
    #[arg(long, value_name = "DIR", default_value = "target/experiments")]
    out: PathBuf,
    /// All within two minutes, with wide intervals
    #[arg(long)]
    quick: bool,
    /// Only whether each runs: the figures mean nothing
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
    /// Print the experiments without running them
    #[arg(long)]
    list: bool,
}

#[derive(clap::Args)]
struct Serve {
    /// What is served
    #[arg(long)]
    subject: Kind,
    /// The unix socket, which must not exist
    #[arg(long, value_name = "PATH")]
    listen: PathBuf,
    /// Size of the volume, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    size: u64,
    /// Size of its cache, in MiB, if the subject has one
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    cache: u64,
    /// The memory that it lies in is as slow as this kind; nvdimm adds nothing
    #[arg(long, default_value = "optane")]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(emulate::Profile::NAMES))]
    medium: String,
    /// Record in this new file what the subject is asked
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Report {
    /// The folder that `bench experiments --out` filled
    #[arg(default_value = "target/experiments")]
    figures: PathBuf,
    /// The file to write [default: report.html in that folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Targets {
    /// This topic, or all of them, which takes many minutes
    #[arg(required_unless_present_any = ["list", "only"])]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TOPICS.iter().map(|topic| topic.name).chain([ALL])))]
    topic: Option<String>,
    /// Only the rows of these names, see --list
    #[arg(long, value_name = "ROW,...", value_delimiter = ',', hide_possible_values = true)]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(row_names()))]
    only: Vec<String>,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    /// Print the rows and their targets without measuring
    #[arg(long)]
    list: bool,
    /// Measure once with few operations, only to see that every row can be measured: exits with 1
    /// if one cannot
    #[arg(long)]
    smoke: bool,
    #[command(flatten)]
    effort: Effort,
}

/// Every topic, in the order in which `bench targets` runs them.
const TOPICS: &[Topic] = &[
    blocks::TOPIC,
    append_log::TOPIC,
    disk_cache::TOPIC,
    write_cache::TOPIC,
    served::TOPIC,
    fronts::TOPIC,
    files::TOPIC,
    mount::TOPIC,
    mappings::TOPIC,
    rivalry::TOPIC,
    simulator::TOPIC,
    reproduction::TOPIC,
    verdicts::TOPIC,
    placement::TOPIC,
    databases::TOPIC,
];

/// How much `--smoke` measures.
const SMOKE: Effort = Effort { pairs: 1, steps: 200 };

/// The word for every topic.
const ALL: &str = "all";

fn row_names() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().flat_map(|topic| topic.rows).map(|row| row.name)
}

impl Targets {
    fn effort(&self) -> Effort {
        if self.smoke { SMOKE } else { self.effort }
    }

    fn style(&self) -> Style {
        if self.json { Style::Json } else { Style::Text }
    }

    /// The chosen rows, topic by topic.
    fn chosen(&self) -> impl Iterator<Item = (&'static Topic, impl Iterator<Item = &'static Row>)> {
        let chosen = |topic: &&Topic| self.topic.as_deref().is_none_or(|name| name == ALL || name == topic.name);
        let topics = TOPICS.iter().filter(chosen);
        topics.map(|topic| {
            let rows = topic.rows.iter();
            (topic, rows.filter(|row| self.only.is_empty() || self.only.iter().any(|only| row.name == only)))
        })
    }
}

/// Prints a line. A reader that went away ends the program quietly: what was left to say nobody
/// wants.
fn say(line: impl Display) {
    if let Err(error) = writeln!(std::io::stdout(), "{line}") {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("bench: cannot write to stdout: {error}");
        std::process::exit(1);
    }
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Targets(targets) => judge(&targets),
        Command::Calibrate(wish) => report(calibrate(&wish)),
        Command::Predict(wish) => report(predict(&wish)),
        Command::Experiments(wish) => report(repeat(&wish)),
        Command::Serve(wish) => report(export(&wish)),
        Command::Replay(wish) => report(replay(&wish).map(|table| say(table.trim_end()))),
        Command::Report(wish) => report(draw(&wish)),
        Command::Probe(wish) => report(probe(&wish, std::io::stdin().lock(), std::io::stdout())),
        Command::Writer(wish) => report(writer::write(&wish, std::io::stdin().lock(), std::io::stdout())),
    }
}

fn repeat(wish: &Experiments) -> anyhow::Result<()> {
    let chosen = EXPERIMENTS.iter().filter(|one| wish.experiment.as_deref().is_none_or(|only| only == one.name));
    if wish.list {
        chosen.for_each(|one| say(format_args!("{:<14}  {}", one.name, one.about)));
        return Ok(());
    }
    warn_if_slow();
    std::fs::create_dir_all(&wish.out).with_context(|| format!("make the folder {}", wish.out.display()))?;
    let scale = Scale::of_options(wish.smoke, wish.quick);
    let in_virtual_time =
        |one: &&Experiment| matches!(one.driver, Driver::VirtualCores | Driver::Recorded | Driver::Replay);
    let (virtually, here): (Vec<_>, Vec<_>) = chosen.partition(in_virtual_time);
    let progress = ProgressBar::new((virtually.len() + here.len()) as u64);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")?);
    progress.enable_steady_tick(Duration::from_secs(1));
    here.iter().try_for_each(|one| repeat_one(one, scale, &wish.out, &progress))?;
    // Virtual time does not care who else runs.
    let next = AtomicUsize::new(0);
    let repeat_some = || {
        while let Some(one) = virtually.get(next.fetch_add(1, Ordering::Relaxed)) {
            repeat_one(one, scale, &wish.out, &progress)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores().len()).map(|_| scope.spawn(repeat_some)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("an experiment reports what goes wrong"))
    })
    .inspect_err(|_: &anyhow::Error| progress.abandon())?;
    progress.finish_and_clear();
    say(format_args!("figures in {}; draw them with: bench report {0}", wish.out.display()));
    Ok(())
}

fn repeat_one(one: &Experiment, scale: Scale, folder: &Path, progress: &ProgressBar) -> anyhow::Result<()> {
    progress.set_message(one.name);
    let taken = experiments::run(one, scale, folder)?;
    let taken = taken.map_or("there already".to_owned(), |time| format!("in {:.0} s", time.as_secs_f64()));
    progress.suspend(|| say(format_args!("{}: {}; {} {taken}", one.name, one.about, one.figures.join(", "))));
    progress.inc(1);
    Ok(())
}

fn export(wish: &Serve) -> anyhow::Result<()> {
    warn_if_slow();
    let (kind, bytes, cache_bytes) = (wish.subject, wish.size << 20, wish.cache << 20);
    let export = match &wish.record {
        Some(path) => NbdExport::recorded(&wish.listen, kind, kind.stack(&wish.medium, bytes, cache_bytes)?, path)?,
        None => NbdExport::at(&wish.listen, kind, &wish.medium, bytes, cache_bytes)?,
    };
    say(format_args!("{} at nbd+unix:///?socket={}", wish.subject.label(), wish.listen.display()));
    export.serve(None)
}

fn draw(wish: &Report) -> anyhow::Result<()> {
    let figures = experiments::figures_in(&wish.figures)?;
    let out = wish.out.clone().unwrap_or_else(|| wish.figures.join("report.html"));
    let rows = experiments::verdicts::judged(&figures);
    let pages = [(out.clone(), experiments::page::html(&figures, &rows))];
    let verdicts = (out.with_file_name("verdicts.csv"), experiments::verdicts::csv(&rows));
    for (path, text) in pages.into_iter().chain([verdicts]) {
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    say(format_args!("{} figures in {}", figures.len(), out.display()));
    Ok(())
}

fn judge(targets: &Targets) -> ExitCode {
    if targets.list {
        list(targets);
        return ExitCode::SUCCESS;
    }
    let tally = measure(targets);
    if targets.style() == Style::Text {
        say(format_args!("\n{tally}"));
    }
    let is_well = if targets.smoke { tally.missing == 0 } else { tally.all_met() };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn calibrate(wish: &Calibrate) -> anyhow::Result<()> {
    warn_if_slow();
    // A file that cannot be written is known before anything is measured.
    Calibration::measure_into(&wish.out)?;
    let (_, profile) = calibrate::load(&wish.out)?;
    say(profile.to_string().trim_end());
    Ok(())
}

fn predict(wish: &Predict) -> anyhow::Result<()> {
    if !cfg!(virtual_cores) {
        let arguments = std::env::args().skip(1);
        let status = on_virtual_cores(arguments).status().context(NO_CARGO)?;
        anyhow::ensure!(status.success(), "the prediction failed ({status})");
        return Ok(());
    }
    let profile = match &wish.costs {
        Some(file) => calibrate::load(file)?.1,
        None => Profile::by_name(&wish.profile)?,
    };
    let Predict { writers, writes, blocks, .. } = *wish;
    let nanoseconds = simulator::predict(&profile, wish.workload, Asked { writers, writes, blocks })?;
    if wish.quiet {
        say(format_args!("{nanoseconds}"));
    } else {
        say(format_args!(
            "{profile}{writes} writes of {blocks} × 4 KiB by {writers} writers together: {nanoseconds:.1} ns each"
        ));
    }
    Ok(())
}

fn warn_if_slow() {
    if cfg!(debug_assertions) {
        eprintln!("bench: a debug build; the times mean nothing, use --release");
    }
}

fn list(targets: &Targets) {
    for (topic, rows) in targets.chosen() {
        say(format_args!("{}: {}", topic.name, topic.about));
        rows.for_each(|row| say(format_args!("  {:<18}  {} over {}: {}", row.name, row.over, row.under, row.target)));
    }
}

fn measure(targets: &Targets) -> Tally {
    warn_if_slow();
    let (style, mut tally) = (targets.style(), Tally::default());
    say(style.opening(&Machine::this()));
    let _disk = targets
        .chosen()
        .any(|(topic, _)| [mount::TOPIC.name, files::TOPIC.name].contains(&topic.name))
        .then(files::hold_disk);
    for (topic, rows) in targets.chosen() {
        style.heading(topic).iter().for_each(say);
        for row in rows {
            let repeats = if targets.smoke { 0 } else { REPEATS_MAX };
            let outcome = measure_until_shown(row, targets.effort(), repeats);
            say(style.row(topic, row, &outcome));
            tally.add(row.target.judge(&outcome));
        }
    }
    tally
}

/// How often a row whose samples are too far apart is measured again, each time with twice as many
/// pairs.
const REPEATS_MAX: u32 = 2;

/// The row's outcome, measured again with more pairs while it is too noisy to show anything.
fn measure_until_shown(row: &Row, effort: Effort, repeats_max: u32) -> Outcome {
    let mut outcome = outcome(row, effort);
    for repeat in 1..=repeats_max {
        if row.target.judge(&outcome) != Verdict::TooNoisy {
            break;
        }
        outcome = self::outcome(row, effort.with_pairs_doubled(repeat));
    }
    outcome
}

/// The row's outcome; one that could not be measured is missing, with the reason.
fn outcome(row: &Row, effort: Effort) -> Outcome {
    let measured = match row.method {
        Method::Here(measure) => measure(effort),
        Method::Rivals => rivals::outcome(row.name, effort),
    };
    measured.unwrap_or_else(|error| Outcome::missing("another try", format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(line: &[&str]) -> Option<Vec<&'static str>> {
        let args = Args::try_parse_from(["bench", "targets"].iter().chain(line)).ok()?;
        let Command::Targets(targets) = args.command else { return None };
        Some(targets.chosen().map(|(topic, _)| topic.name).collect())
    }

    #[test]
    fn names_are_unique() {
        for (at, topic) in TOPICS.iter().enumerate() {
            assert!(TOPICS[..at].iter().all(|other| other.name != topic.name), "topic {} twice", topic.name);
            for (at, row) in topic.rows.iter().enumerate() {
                assert!(topic.rows[..at].iter().all(|other| other.name != row.name), "row {} twice", row.name);
            }
        }
    }

    #[test]
    fn nothing_is_measured_that_was_not_asked_for() {
        let every: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
        assert_eq!(topics(&[]), None);
        assert_eq!(topics(&[every[1]]), Some(vec![every[1]]));
        assert!(
            [&["all"][..], &["--list"], &["--only", TOPICS[0].rows[0].name]]
                .iter()
                .all(|line| topics(line).as_ref() == Some(&every))
        );
    }
}
