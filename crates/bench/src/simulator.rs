//! The topic `simulator`: the predictions of virtual time, over those of the clock, and what storms
//! show.
//!
//! Single acts are calibrated on this machine ([`crate::calibrate`]). A child, built for virtual
//! cores, predicts a workload from them; this program runs the same workload on the real cores.
//! Both are done in turn, pair by pair: a machine that others slow down for a while slows down what
//! is calibrated too. The costs of the first prediction are printed beside it.

mod predict;
mod storms;
mod writes;

pub use predict::{Asked, predict};
pub use writes::Workload;

use crate::calibrate::{self, Calibration};
use crate::target::{Outcome, Row, Target, Topic};
use anyhow::{Context, ensure};
use clap::ValueEnum;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_measure::Pairs;
use tidegate_measure::disk_caches::whole_disk_cached_here;
use tidegate_measure::medium::{self, ScratchPath};
use tidegate_measure::programs::{NO_CARGO, on_virtual_cores};
use tidegate_measure::subject::{BlockWrites, Subject, sweep};
use tidegate_measure::workload::{Effort, Walk, cores, stay_on};
use tidegate_media::BlockDevice;
use tidegate_write_cache::{Options, WriteCache, bytes_for};

/// How far a prediction may be off.
const OFF_MAX: f64 = 0.25;

/// Writes of a prediction: more change nothing.
const PREDICTED_WRITES_MAX: u32 = 50_000;

/// The topic's table.
pub const TOPIC: Topic = Topic {
    name: "simulator",
    about: "virtual time: 4 KiB writes, random over 1 GiB, predicted from the costs of single acts; storms on virtual cores",
    rows: &[
        row("btt-1", "write of one writer to the BTT", |effort| compare(effort, Workload::Btt, 1)),
        row("btt-2", "write of two writers to the BTT", |effort| compare(effort, Workload::Btt, 2)),
        row("cache-1", "write of one writer to the write cache", |effort| compare(effort, Workload::Cache, 1)),
        row("cache-2", "write of two writers to the write cache", |effort| compare(effort, Workload::Cache, 2)),
        Row::here(
            "digests",
            "builds of debug and release in which a seed has another digest than on record",
            "any process, 1 and 2 processors",
            Target::AtMost(0.0),
            |_| storms::digests(),
        ),
        Row::here(
            "speed",
            "seeds: 4 clients, 1,000 operations each, BTT and write cache",
            "second",
            Target::AtLeast(50.0),
            |_| storms::speed(),
        ),
        Row::here("operations", "operations judged", "campaign of the full test", Target::AtLeast(1e7), |_| {
            storms::counted(" operations")
        }),
        Row::here("cuts", "power cuts", "campaign of the full test", Target::AtLeast(1e4), |_| {
            storms::counted(" power cuts")
        }),
        Row::here(
            "cuts-in-recovery",
            "power cuts in recoveries",
            "campaign of the full test",
            Target::AtLeast(1e3),
            |_| storms::counted(" in recoveries), "),
        ),
        Row::here("failures", "seeds that fail", "campaign of the full test", Target::AtMost(0.0), |_| {
            storms::failures()
        }),
        Row::here("marks", "rare paths taken, in %", "campaign of the full test", Target::AtLeast(100.0), |_| {
            storms::marks()
        }),
        Row::here(
            "sites",
            "flushes and fences shown to be needed, in %",
            "all of them without a proof that another covers them",
            Target::AtLeast(100.0),
            |_| storms::shown(&["left out: Flush at ", "left out: Fence at "]),
        ),
        Row::here("mistakes", "planted mistakes", "hunt", Target::AtLeast(25.0), |_| storms::hunted()),
        Row::here(
            "mistakes-shown",
            "planted mistakes that some seed shows, in %",
            "hunt",
            Target::AtLeast(100.0),
            |_| storms::shown(&[""]),
        ),
        Row::here("seeds-to-show", "seeds until it shows", "mistake, in the median", Target::AtMost(100.0), |_| {
            storms::seeds_to_show()
        }),
    ],
};

const fn row(name: &'static str, under: &'static str, measure: fn(Effort) -> anyhow::Result<Outcome>) -> Row {
    Row::here(name, "predicted time", under, Target::Within(OFF_MAX), measure)
}

fn compare(effort: Effort, workload: Workload, writers: u32) -> anyhow::Result<Outcome> {
    if cores().len() < 2 {
        return Ok(Outcome::missing("a second core", "run it on a machine that has two"));
    }
    let file = ScratchPath::new();
    let mut told = false;
    let mut predicted = || {
        Calibration::measure()?.save(file.as_path())?;
        if !std::mem::replace(&mut told, true) {
            // Not among the rows, which programs may read.
            eprint!("{}", calibrate::load(file.as_path())?.1);
        }
        predicted_apart(file.as_path(), workload, writers, effort.steps.min(PREDICTED_WRITES_MAX))
    };
    let pairs = with_subject(workload, writers as usize, |subject| {
        let mut walk = Walk::new(effort.steps);
        let take = match workload {
            // The thread that drains is among those that take a writer's core.
            Workload::Cache => Walk::take_in_all,
            Workload::Btt | Workload::DiskCache => Walk::take,
        };
        let real = || Ok(take(&mut walk, subject, writers as usize).nanoseconds_per_step);
        Pairs::try_alternate(effort.pairs, &mut predicted, real)
    })?;
    Ok(Outcome::ratio(&pairs?, "ns"))
}

/// Has `act` measure writes of so many writers on the real cores; a write cache is drained
/// meanwhile.
fn with_subject<T>(workload: Workload, writers: usize, act: impl FnOnce(&dyn Subject) -> T) -> anyhow::Result<T> {
    if workload == Workload::DiskCache {
        let (cache, _) = whole_disk_cached_here()?;
        sweep(&BlockWrites(&cache));
        return Ok(act(&BlockWrites(&cache)));
    }
    let btt = medium::btt()?;
    sweep(&BlockWrites(&btt));
    if workload == Workload::Btt {
        return Ok(act(&BlockWrites(&btt)));
    }
    let btt = Arc::new(btt);
    let slots = medium::region(bytes_for(writes::SLOTS, btt.geometry().block_size))?;
    let cache = WriteCache::create(slots, btt, Options::new([1; 16], writes::SLOTS))?;
    let over = AtomicBool::new(false);
    Ok(std::thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| {
            // Where the prediction has it.
            stay_on(writers % cores().len());
            writes::drain(&cache, || over.load(Ordering::Acquire), std::thread::sleep);
        });
        act(&VolatileWrites(&cache))
    }))
}

/// Tells a thread that its work is over when this is dropped, by a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writes of one block that the device may still hold in a cache.
struct VolatileWrites<'a>(&'a dyn BlockDevice);

impl Subject for VolatileWrites<'_> {
    fn blocks(&self) -> u32 {
        u32::try_from(self.0.geometry().blocks).expect("a few GiB at most")
    }
    fn step(&self, at: u32, block: &mut tidegate_measure::subject::Block) {
        let (at, durability) = (tidegate_media::Lba(at.into()), tidegate_media::Durability::Volatile);
        self.0.write(at, block.bytes(), durability).expect("the device writes");
    }
}

/// Predicts in a child that is built for virtual cores: the flag changes every crate.
fn predicted_apart(costs: &Path, workload: Workload, writers: u32, writes: u32) -> anyhow::Result<f64> {
    let workload = workload.to_possible_value().expect("no workload is hidden");
    let mut arguments = vec!["predict".to_owned(), workload.get_name().to_owned(), "--quiet".to_owned()];
    arguments.extend(["--writers".to_owned(), writers.to_string(), "--writes".to_owned(), writes.to_string()]);
    arguments.extend(["--costs".to_owned(), costs.display().to_string()]);
    let output = on_virtual_cores(arguments).stderr(Stdio::inherit()).output().context(NO_CARGO)?;
    ensure!(output.status.success(), "the prediction failed ({})", output.status);
    let answer = String::from_utf8_lossy(&output.stdout);
    answer.trim().parse().with_context(|| format!("reading the prediction {answer:?}"))
}
