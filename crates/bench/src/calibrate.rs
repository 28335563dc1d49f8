//! The cost of each single act on this machine: `bench calibrate`.
//!
//! Every figure of a cost profile is measured by itself, never by a workload that is to be
//! predicted from it: medians of many short loops, with their spread. The result is a file that
//! [`load`] reads back as the profile `here`.

mod acts;
mod memory;
mod threads;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tidegate_measure::Estimate;
use tidegate_measure::machine::Machine;
use tidegate_sim::cost::{Act, CoreCosts, Figure, Memory, Profile};

/// Samples of each figure.
const SAMPLES: usize = 31;

/// The name of the profile that a file holds.
pub const HERE: &str = "here";

/// What was measured: times in nanoseconds, by the names of the acts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The processor's own name.
    pub processor: String,
    /// The kernel's name and release.
    pub kernel: String,
    /// Cores that could be used.
    pub cores: usize,
    /// Lines that a core's own caches keep.
    pub cached_lines: usize,
    /// Whether a line stays in them when it is flushed.
    pub flush_keeps: bool,
    /// What a core costs.
    pub core: BTreeMap<String, Estimate>,
    /// What memory in `/dev/shm` costs beside it.
    pub memory: BTreeMap<String, Estimate>,
}

impl Calibration {
    /// Measures everything: some seconds, on all cores.
    pub fn measure() -> anyhow::Result<Calibration> {
        // A thread of its own, for it stays on one core; whatever the caller begins later is to
        // have all of them.
        let measured = std::thread::scope(|scope| scope.spawn(Calibration::measure_here).join());
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn measure_here() -> anyhow::Result<Calibration> {
        let machine = Machine::this();
        tidegate_measure::workload::stay_on(0);
        let region = memory::Bench::new()?;
        let mut core = acts::measure();
        core.extend(region.core());
        core.extend(threads::measure()?);
        Ok(Calibration {
            processor: machine.processor,
            kernel: machine.kernel,
            cores: machine.cores,
            cached_lines: cached_lines(),
            flush_keeps: region.flush_keeps(),
            memory: region.memory(&core),
            core: core.into_iter().map(|(act, figure)| (act.name().to_owned(), figure)).collect(),
        })
    }

    /// Measures this machine and writes the figures to a file. Whether that can be written is tried
    /// first.
    pub fn measure_into(path: &Path) -> anyhow::Result<()> {
        let opened = std::fs::File::options().create(true).append(true).open(path);
        opened.with_context(|| format!("cannot write the calibration {}", path.display()))?;
        Calibration::measure()?.save(path)
    }

    /// The profile `here`. Fails if a figure is not there.
    pub fn profile(&self) -> anyhow::Result<Profile> {
        let of = |figures: &BTreeMap<String, Estimate>, name: &str| -> anyhow::Result<Figure> {
            let estimate = figures.get(name).with_context(|| format!("there is no figure called {name}"))?;
            let Estimate { median, low, high, samples, .. } = estimate;
            ensure!(median.is_finite() && *median >= 0.0 && *median < 1e12, "{name} is {median} ns");
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the line above")]
            let ps = (median * 1000.0).round() as u64;
            let source = format!("measured here: median of {samples}, 95 % in {low:.1} … {high:.1} ns");
            Ok(Figure { ps, source: source.into() })
        };
        let figures = Act::ALL.iter().map(|act| of(&self.core, act.name())).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(self.cached_lines > 0, "cached_lines is 0");
        let memory = |name| of(&self.memory, name);
        let memory = Memory {
            fetch: memory("fetch")?,
            fetch_next: memory("fetch-next")?,
            arrival: memory("arrival")?,
            write_back: memory("write-back")?,
            write_line: memory("write-line")?,
            read_line: memory("read-line")?,
            line_bytes: 64,
            ahead_lines: 64,
        };
        Ok(Profile {
            name: HERE.into(),
            cores: u32::try_from(self.cores).context("cores")?,
            processor: CoreCosts {
                figures: figures.try_into().expect("one for each act"),
                cached_lines: self.cached_lines,
                flush_keeps: self.flush_keeps,
            },
            dram: memory.clone(),
            memory,
        })
    }

    /// Writes the file.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).context("a calibration as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write the calibration {}", path.display()))
    }
}

/// The calibration in a file that `bench calibrate` wrote, and its profile.
pub fn load(path: &Path) -> anyhow::Result<(Calibration, Profile)> {
    let what = || format!("{} is no calibration; `bench calibrate --out FILE` writes one", path.display());
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let calibration: Calibration = serde_json::from_str(&text).with_context(what)?;
    let profile = calibration.profile().with_context(what)?;
    Ok((calibration, profile))
}

/// A figure from samples of `sample`, which returns nanoseconds for each act; the first sample only
/// warms up.
fn figure(mut sample: impl FnMut() -> f64) -> Estimate {
    sample();
    let samples: Vec<f64> = (0..SAMPLES).map(|_| sample()).collect();
    Estimate::of(&samples)
}

/// Nanoseconds of one of `count` turns of `turn`.
fn each<T>(count: u32, mut turn: impl FnMut(u32) -> T) -> f64 {
    let begin = std::time::Instant::now();
    for nth in 0..count {
        std::hint::black_box(turn(nth));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(count)
}

/// The second-level cache of the first core, as Linux tells it; of 1 MiB if it does not.
fn cached_lines() -> usize {
    const LINE_BYTES: usize = 64;
    const UNKNOWN_KIB: usize = 1024;
    let size = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").unwrap_or_default();
    let kib = size.trim().strip_suffix('K').and_then(|kib| kib.parse().ok()).unwrap_or(UNKNOWN_KIB);
    kib * 1024 / LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up() -> Calibration {
        let figures = |names: &[&str]| -> BTreeMap<String, Estimate> {
            let figure = |at: usize| Estimate::of(&[at as f64 + 0.5]);
            names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), figure(at))).collect()
        };
        Calibration {
            processor: "abacus".to_owned(),
            kernel: "none".to_owned(),
            cores: 3,
            cached_lines: 100,
            flush_keeps: false,
            core: figures(&Act::ALL.map(Act::name)),
            memory: figures(&["fetch", "fetch-next", "arrival", "write-back", "write-line", "read-line"]),
        }
    }

    #[test]
    fn a_file_is_read_back_as_it_was_written() {
        let folder = tidegate_measure::medium::ScratchPath::new();
        made_up().save(folder.as_path()).unwrap();
        let (calibration, profile) = load(folder.as_path()).unwrap();
        assert_eq!(calibration, made_up());
        assert_eq!((profile.name.as_ref(), profile.cores, profile.processor.cached_lines), ("here", 3, 100));
        assert_eq!(profile.processor.ps(Act::SystemCall, 2), 2 * 12_500);
        assert_eq!(profile.memory.read_line.ps, 5_500);
        assert!(profile.to_string().contains("measured here"));
    }

    #[test]
    fn a_file_that_lacks_something_is_refused_by_name() {
        let path = tidegate_measure::medium::ScratchPath::new();
        let missing = format!("{:#}", load(path.as_path()).unwrap_err());
        assert!(missing.contains("cannot read"), "{missing}");
        std::fs::write(path.as_path(), "{}").unwrap();
        let empty = format!("{:#}", load(path.as_path()).unwrap_err());
        assert!(empty.contains("is no calibration"), "{empty}");
        let mut calibration = made_up();
        calibration.memory.remove("write-back");
        calibration.save(path.as_path()).unwrap();
        let short = format!("{:#}", load(path.as_path()).unwrap_err());
        assert!(short.contains("no figure called write-back"), "{short}");
        let mut calibration = made_up();
        calibration.core.get_mut("fence").unwrap().median = -1.0;
        calibration.save(path.as_path()).unwrap();
        let wrong = format!("{:#}", load(path.as_path()).unwrap_err());
        assert!(wrong.contains("fence is -1 ns"), "{wrong}");
    }
}
