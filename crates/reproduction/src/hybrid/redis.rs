//! Fig. 5.3 to 5.6: an in-memory store whose log is synced with each batch of commands.
//!
//! The thesis gives Valkey a log of its own on a mapping with `MAP_DAX`. Here Redis, from which
//! Valkey comes, is as Debian ships it.

use super::{
    DIRECT, EXT4, MOUNT, SUBJECTS, Samples, beside_floor, beside_paper, digits, disk_is_there, frame, in_turn, noted,
};
use crate::Scale;
use crate::figure::{Chart, Figure, Point, Series};
use std::time::Duration;
use tidegate_measure::cost::{KernelThreads, ended_children_time, joules, joules_since, processor_time_of};
use tidegate_measure::redis::{Load, PROGRAMS, Policy, REMEDY, Report, Server, VALUE_BYTES};
use tidegate_measure::testbed::absent;

/// Clients at once: what the benchmark of Redis and that of Valkey have by themselves.
const CLIENTS: u32 = 50;

/// Commands that a client sends together.
const PIPELINES: [u32; 4] = [1, 10, 100, 1000];

/// Commands of all clients in a sample of the thesis.
const COMMANDS: u32 = 1_000_000;

/// When the log is synced; first the policy under which pipelines are compared.
const POLICIES: [Policy; 3] = [Policy::Always, Policy::EverySecond, Policy::No];

/// The pipeline at which the thesis compares policies.
const PIPELINE: u32 = 10;

/// Samples of the thesis, and here at most.
const ROUNDS_MAX: u16 = 5;

/// MiB of a pool with room for the log.
const POOL_MIB: u32 = 512;

/// A sample of a server.
#[derive(Clone, Copy, Debug)]
struct Sample {
    report: Report,
    /// Microseconds of processor time for each command, of everything that has to do with it.
    processor_us: f64,
    joules: Option<f64>,
}

/// How many commands are a sample. The longest time of a command depends on how many there are.
fn commands(scale: Scale, pipeline: u32) -> u32 {
    match scale {
        Scale::SMOKE => 1000,
        Scale::QUICK if pipeline != PIPELINE => COMMANDS / 8,
        _ => COMMANDS,
    }
}

/// Processor time so far, and energy.
struct Used {
    processes: Duration,
    kernel: KernelThreads,
    joules: Option<f64>,
}

impl Used {
    /// By Redis, its clients, the mount's server and the kernel's threads.
    fn so_far(server: &Server) -> anyhow::Result<Used> {
        let of_server = processor_time_of(server.pid())? + server.testbed().server_processor_time()?;
        let processes = of_server + ended_children_time()?;
        Ok(Used { processes, kernel: KernelThreads::now()?, joules: joules() })
    }
}

/// Puts `load` on `server`, and has the mount write back what that left.
fn sample(server: &Server, load: Load) -> anyhow::Result<Sample> {
    let before = Used::so_far(server)?;
    let report = server.load(load)?;
    server.testbed().mount().map_or(Ok(()), |mount| mount.flush())?;
    let after = Used::so_far(server)?;
    let processor = after.processes.saturating_sub(before.processes) + after.kernel.since(&before.kernel);
    let each = report.commands as f64;
    let joules = joules_since(before.joules).map(|joules| joules / each);
    Ok(Sample { report, processor_us: processor.as_secs_f64() * 1e6 / each, joules })
}

/// Fig. 5.3 to 5.6.
pub(crate) fn commands_logged(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    disk_is_there()?;
    let missing = absent(&PROGRAMS);
    anyhow::ensure!(missing.is_empty(), "no {}: {REMEDY}", missing.join(" and "));
    let labels = || SUBJECTS.iter().map(|subject| subject.label);
    let (mut policies, mut pipelines) = (Samples::of(labels()), Samples::of(labels()));
    let rounds = scale.rounds.min(ROUNDS_MAX);
    let load = |pipeline| {
        let commands = commands(scale, pipeline);
        Load { clients: CLIENTS, pipeline, commands, value_bytes: VALUE_BYTES }
    };
    // Policies are compared with each other, so that samples of all of them are taken in turn.
    let each = POLICIES.into_iter().flat_map(|policy| SUBJECTS.iter().map(move |subject| (policy, subject)));
    let start =
        |(policy, subject): (Policy, &super::Subject)| Server::start_on_own_core((subject.storage)(POOL_MIB), policy);
    let mut servers = each.map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let mut by_policy = in_turn(rounds, &mut servers, |server| sample(server, load(PIPELINE)))?;
    let always: Vec<_> = by_policy.iter().take(SUBJECTS.len()).cloned().collect();
    for policy in POLICIES {
        policies.add(policy.name(), labels(), by_policy.drain(..SUBJECTS.len()).collect());
    }
    servers.truncate(SUBJECTS.len());
    for pipeline in PIPELINES {
        let taken = match pipeline == PIPELINE {
            true => always.clone(),
            false => in_turn(rounds, &mut servers, |server| sample(server, load(pipeline)))?,
        };
        pipelines.add(&pipeline.to_string(), labels(), taken);
    }
    Ok(vec![self::by_policy(&policies), latencies(&policies), by_pipeline(&pipelines), processor(&pipelines)])
}

/// The paper's ratio for both subjects of ours.
fn of_ours(place: &str, ratio: f64) -> [(&'static str, &str, f64); 2] {
    [(MOUNT, place, ratio), (DIRECT, place, ratio)]
}

fn by_policy(samples: &Samples<Sample>) -> Figure {
    let title = "Redis SET over policies of appendfsync, pipelines of 10";
    let mut figure = frame("hybrid-fig-5-3", "Fig. 5.3", title, "SET/s", EXT4);
    figure.chart = Chart::Bars;
    figure.series = samples.series(|sample| sample.report.per_second, &of_ours("always", 3.64));
    let how = "Redis, as Debian has it, whose main thread has a core that neither its 50 clients nor its other threads use, as in the thesis. The thesis has Valkey with a log on a mapping \
               of its own. ext4 has its journal here. In /dev/shm a sync does nothing.";
    let ratios = [MOUNT, DIRECT].map(|label| beside_paper(&figure, (label, EXT4), "always", "3.64 times"));
    let shares = [EXT4, MOUNT, DIRECT].map(|label| share_of_no(&figure, label));
    let floor = beside_floor(&figure, "always");
    noted(figure, [how.to_owned()].into_iter().chain(ratios).chain([floor]).chain(shares))
}

/// How much of its own throughput without syncs a subject has with them.
fn share_of_no(figure: &Figure, label: &str) -> String {
    let both = figure.point(label, "always").zip(figure.point(label, "no"));
    let paper = if label == EXT4 { "25" } else { "87" };
    both.map_or(String::new(), |(always, no)| {
        format!("{label}: always has {:.0} % of no; in the thesis {paper} %.", 100.0 * always.median / no.median)
    })
}

/// A latency of a report, in milliseconds.
type Latency = fn(&Report) -> f64;

/// The places of the figure of latencies.
const LATENCIES: [(&str, Latency); 3] =
    [("p50", |report| report.p50_ms), ("p99", |report| report.p99_ms), ("longest", |report| report.max_ms)];

fn latencies(samples: &Samples<Sample>) -> Figure {
    let title = "Latency of Redis SET, appendfsync always, pipelines of 10";
    let mut figure = frame("hybrid-fig-5-4", "Fig. 5.4", title, "µs", EXT4);
    figure.chart = Chart::Bars;
    for (label, places) in &samples.subjects {
        let always = places.iter().find(|(place, _)| place == Policy::Always.name());
        let points = LATENCIES.iter().filter_map(|(place, value)| {
            let values: Vec<f64> = always?.1.iter().map(|sample| value(&sample.report) * 1e3).collect();
            let published = (*place == "p99" && [MOUNT, DIRECT].contains(label)).then_some(1.0 - 0.778);
            Some(Point::of(*place, &values, published))
        });
        figure.series.push(Series { label: (*label).to_owned(), points: points.collect() });
    }
    let ratios = [MOUNT, DIRECT].map(|label| beside_paper(&figure, (label, EXT4), "p99", "0.22 times"));
    let longest = [EXT4, MOUNT, DIRECT].map(|label| longest_over_p99(&figure, label));
    let gap = "In the thesis the gap between the 99th percentile and the longest is wider with hybrid storage than without: its main thread meets the sync of another thread.";
    let floor = beside_floor(&figure, "p99");
    noted(figure, ratios.into_iter().chain([floor, gap.to_owned()]).chain(longest))
}

fn longest_over_p99(figure: &Figure, label: &str) -> String {
    let both = figure.point(label, "longest").zip(figure.point(label, "p99"));
    both.map_or(String::new(), |(longest, p99)| {
        format!("{label}: the longest takes {} times the 99th percentile.", digits(longest.median / p99.median))
    })
}

fn by_pipeline(samples: &Samples<Sample>) -> Figure {
    let title = "Redis SET over the pipeline's length, appendfsync always";
    let mut figure = frame("hybrid-fig-5-5", "Fig. 5.5", title, "SET/s", EXT4);
    let published = [of_ours("1", 4.5), of_ours("10", 3.64), of_ours("1000", 1.21)].concat();
    figure.series = samples.series(|sample| sample.report.per_second, &published);
    let told = [("1", "4.1 to 4.5 times"), ("10", "3.64 times"), ("1000", "1.21 times")];
    let ratios = [MOUNT, DIRECT].into_iter().flat_map(|label| told.map(|(place, paper)| (label, place, paper)));
    let ratios: Vec<_> =
        ratios.map(|(label, place, paper)| beside_paper(&figure, (label, EXT4), place, paper)).collect();
    let floors = ["1", "10", "1000"].map(|place| beside_floor(&figure, place));
    noted(figure, ratios.into_iter().chain(floors))
}

fn processor(samples: &Samples<Sample>) -> Figure {
    let title = "Processor time of a Redis SET over the pipeline's length, appendfsync always";
    let mut figure = frame("hybrid-fig-5-6", "Fig. 5.6", title, "µs/SET", EXT4);
    figure.series = samples.series(|sample| sample.processor_us, &of_ours("1", 1.0 - 0.78));
    let ratios = [MOUNT, DIRECT].map(|label| beside_paper(&figure, (label, EXT4), "1", "up to 78 % less"));
    let how = "Of Redis, its clients, the mount's server and the kernel's threads, until a mount has written back. The thesis counts all of the machine, and takes off what it uses when idle; here \
               other programs are left out, and interrupts that come while a core is idle. What the kernel's threads do for other programs meanwhile is on the bars, the more the longer \
               a sample lasts.";
    let energy = samples.energy(|sample| sample.joules, "SET");
    let floor = beside_floor(&figure, "1");
    noted(figure, [how.to_owned()].into_iter().chain(ratios).chain([floor, energy]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    fn sampled(per_second: f64, ms: [f64; 3]) -> Vec<Sample> {
        let [p50_ms, p99_ms, max_ms] = ms;
        vec![Sample {
            report: Report { commands: 1, per_second, p50_ms, p99_ms, max_ms },
            processor_us: 2.0,
            joules: None,
        }]
    }

    #[test]
    fn policies_and_latencies_are_told_beside_the_papers() {
        let mut samples = Samples::of([EXT4, DIRECT]);
        samples.add("always", [EXT4, DIRECT], vec![sampled(100.0, [1.0, 4.0, 9.0]), sampled(350.0, [0.5, 1.0, 7.0])]);
        samples.add("no", [EXT4, DIRECT], vec![sampled(400.0, [0.1; 3]), sampled(400.0, [0.1; 3])]);
        let figure = by_policy(&samples);
        assert!(figure.notes.iter().any(|note| note == "ext4: always has 25 % of no; in the thesis 25 %."));
        assert!(figure.notes.iter().any(|note| note == "direct path: always has 88 % of no; in the thesis 87 %."));
        assert!(figure.notes.iter().any(|note| note.contains("3.50 times ext4's 100;")));
        let figure = latencies(&samples);
        let point = figure.point(DIRECT, "p99").unwrap();
        assert!(
            (point.median - 1000.0).abs() < 1e-9 && point.published.is_some_and(|ratio| (ratio - 0.222).abs() < 1e-9)
        );
        assert!(figure.notes.iter().any(|note| note.starts_with("direct path: the longest takes 7.00 times")));
    }

    #[test]
    fn the_papers_ratios_stand_at_their_pipelines() {
        let mut samples = Samples::of([EXT4, MOUNT]);
        for pipeline in PIPELINES {
            samples.add(&pipeline.to_string(), [EXT4, MOUNT], vec![sampled(1.0, [1.0; 3]), sampled(2.0, [1.0; 3])]);
        }
        let figure = by_pipeline(&samples);
        let published = ["1", "10", "100", "1000"].map(|place| figure.point(MOUNT, place).unwrap().published);
        assert_eq!(published, [Some(4.5), Some(3.64), None, Some(1.21)]);
        assert_eq!(processor(&samples).point(MOUNT, "1").unwrap().median, 2.0);
        let of = |scale| PIPELINES.map(|pipeline| commands(scale, pipeline));
        assert_eq!(of(Scale::QUICK), [125_000, 1_000_000, 125_000, 125_000]);
        assert_eq!((of(Scale::FULL), of(Scale::SMOKE)), ([1_000_000; 4], [1000; 4]));
    }
}
