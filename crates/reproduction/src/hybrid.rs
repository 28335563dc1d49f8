//! The experiments of the thesis on hybrid storage, a page cache that knows which of its pages are
//! persistent: what a sync costs if it ends in persistent memory.
//!
//! The thesis changes Linux and maps files with `MAP_DAX`. Here unchanged system calls go to a
//! mount, or to the direct path. Beside them are ext4 on the same disk, and files in memory, whose
//! syncs do nothing. All subjects of a figure live at the same time and are sampled in turn: a
//! machine that slows down meets all of them alike.

pub mod interfaces;
pub mod redis;
pub mod synced_writes;
pub mod writeback;
pub mod writer;

use crate::figure::{Chart, Figure, Point, Series};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tidegate_measure::Estimate;
use tidegate_measure::testbed::{Storage, temporary_in_memory};

/// The names of the subjects in figures.
pub(crate) const EXT4: &str = "ext4";
pub(crate) const MOUNT: &str = "mount";
pub(crate) const DIRECT: &str = "direct path";
pub(crate) const MEMORY: &str = "/dev/shm";

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

/// Where the files of a program are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) label: &'static str,
    /// In a mount: with a pool of so many MiB.
    pub(crate) storage: fn(u32) -> Storage,
}

/// What is compared wherever a program writes and syncs. Another way to a file joins here.
const SUBJECTS: [Subject; 4] = [
    Subject { label: EXT4, storage: |_| Storage::Disk },
    Subject { label: MOUNT, storage: Storage::Mount },
    Subject { label: DIRECT, storage: Storage::Direct },
    Subject { label: MEMORY, storage: |_| Storage::Memory },
];

/// Says that the disk would be memory, if it is.
pub(crate) fn disk_is_there() -> anyhow::Result<()> {
    let in_memory =
        |folder: PathBuf| anyhow::anyhow!("{} is memory: TMPDIR has to name a folder on a disk", folder.display());
    temporary_in_memory().map_or(Ok(()), |folder| Err(in_memory(folder)))
}

/// Takes `rounds` samples of each of `subjects` in turn, every second round backwards, after one of
/// each that only warms up.
pub(crate) fn in_turn<S, T>(
    rounds: u16,
    subjects: &mut [S],
    mut sample: impl FnMut(&mut S) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<Vec<T>>> {
    let mut taken: Vec<Vec<T>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for nth in order {
            let sampled = sample(&mut subjects[nth])?;
            if round > 0 {
                taken[nth].push(sampled);
            }
        }
    }
    Ok(taken)
}

/// The sum of what `work` says on each of so many threads, which it is told by number.
fn by_threads(threads: u64, work: impl Fn(u64) -> anyhow::Result<u64> + Sync) -> anyhow::Result<u64> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|nth| scope.spawn(move || work(nth))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).sum()
    })
}

/// The samples of a subject at a place.
pub(crate) type PlaceSamples<T> = (String, Vec<T>);

/// Samples of subjects at places, of which several figures are made.
pub(crate) struct Samples<T> {
    /// Of each subject, in the order of the figures: its places.
    subjects: Vec<(&'static str, Vec<PlaceSamples<T>>)>,
}

impl<T> Samples<T> {
    pub(crate) fn of(labels: impl IntoIterator<Item = &'static str>) -> Samples<T> {
        Samples { subjects: labels.into_iter().map(|label| (label, Vec::new())).collect() }
    }

    /// Takes in the samples of each of `labels` at `place`.
    pub(crate) fn add(&mut self, place: &str, labels: impl IntoIterator<Item = &'static str>, samples: Vec<Vec<T>>) {
        let mut by_label: BTreeMap<_, _> = labels.into_iter().zip(samples).collect();
        for (label, places) in &mut self.subjects {
            if let Some(samples) = by_label.remove(label) {
                places.push((place.to_owned(), samples));
            }
        }
    }

    /// What `value` says of each sample. `published` has the paper's ratios, by subject and place.
    pub(crate) fn series(&self, value: impl Fn(&T) -> f64, published: &[(&str, &str, f64)]) -> Vec<Series> {
        let of_paper = |label: &str, place: &str| {
            published.iter().find(|(of, at, _)| (*of, *at) == (label, place)).map(|(.., ratio)| *ratio)
        };
        let point = |label: &str, (place, samples): &PlaceSamples<T>| {
            let values: Vec<f64> = samples.iter().map(&value).collect();
            Point::of(place.clone(), &values, of_paper(label, place))
        };
        let one = |(label, places): &(&'static str, Vec<PlaceSamples<T>>)| Series {
            label: (*label).to_owned(),
            points: places.iter().map(|place| point(label, place)).collect(),
        };
        self.subjects.iter().map(one).collect()
    }

    /// The energy in words: by subject and place where the machine counts it.
    fn energy(&self, joules: impl Fn(&T) -> Option<f64>, per: &str) -> String {
        let mut told = Vec::new();
        for (label, places) in &self.subjects {
            for (place, samples) in places {
                let counted: Vec<f64> = samples.iter().filter_map(&joules).filter(|joules| *joules >= 0.0).collect();
                if !counted.is_empty() {
                    told.push(format!("{label}, {place}: {:.3}", Estimate::of(&counted).median));
                }
            }
        }
        match told.is_empty() {
            true => "Energy is not measured: this machine has no counter of it in /sys/class/powercap.".to_owned(),
            false => format!("Joules of the whole machine per {per}: {}.", told.join("; ")),
        }
    }
}

/// A figure of the thesis; ratios are over `baseline`.
pub(crate) fn frame(id: &str, paper: &str, title: &str, unit: &str, baseline: &str) -> Figure {
    Figure {
        id: id.to_owned(),
        paper: format!("Hybrid page cache, {paper}"),
        title: title.to_owned(),
        chart: Chart::Lines,
        unit: unit.to_owned(),
        baseline: Some(baseline.to_owned()),
        notes: Vec::new(),
        series: Vec::new(),
        run: None,
    }
}

/// How `over` stands to `under` at `place` in words, with the paper's ratio beside it. Empty if
/// the figure lacks one of them.
fn beside_paper(figure: &Figure, (over, under): (&str, &str), place: &str, paper: &str) -> String {
    let both = figure.point(over, place).zip(figure.point(under, place));
    both.map_or(String::new(), |(over_point, under_point)| {
        let (above, below) = (over_point.median, under_point.median);
        format!(
            "{over} at {place}: {} {unit}, {} times {under}'s {}; in the thesis {paper}.",
            digits(above),
            digits(above / below),
            digits(below),
            unit = figure.unit
        )
    })
}

/// Which side of a ratio differs more from the thesis' values, `paper`, in words.
/// Empty if the figure lacks one of them.
fn explained(figure: &Figure, (over, under): (&str, &str), place: &str, paper: (f64, f64)) -> String {
    let both = figure.point(over, place).zip(figure.point(under, place));
    both.map_or(String::new(), |(over_point, under_point)| {
        let (above, below) = (over_point.median / paper.0, under_point.median / paper.1);
        let other = if above.ln().abs() > below.ln().abs() { over } else { under };
        format!(
            "At {place}, {over} has {above:.2} times the thesis' {:.1} {unit}, and {under} {below:.2} times its {:.1}: most of a difference between the ratios is due to {other}.",
            paper.0,
            paper.1,
            unit = figure.unit
        )
    })
}

/// The floor at `place` in words: files in memory, whose syncs do nothing. Empty if the figure
/// lacks a value.
fn beside_floor(figure: &Figure, place: &str) -> String {
    let both = figure.point(MEMORY, place).zip(figure.point(EXT4, place));
    both.map_or(String::new(), |(floor, ext4)| {
        let ratio = digits(floor.median / ext4.median);
        format!("In {MEMORY}, where a sync does nothing, it is {ratio} times {EXT4}'s at {place}.")
    })
}

/// Gives `figure` those of `notes` that say something.
fn noted(mut figure: Figure, notes: impl IntoIterator<Item = String>) -> Figure {
    figure.notes.extend(notes.into_iter().filter(|note| !note.is_empty()));
    figure
}

/// Three digits that mean something.
fn digits(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_in_turn_and_the_first_of_each_is_left_out() {
        let mut order = String::new();
        let taken = in_turn(3, &mut ['a', 'b', 'c'], |subject| {
            order.push(*subject);
            Ok(order.len())
        });
        assert_eq!(order, "abccbaabccba");
        assert_eq!(taken.unwrap(), [[6, 7, 12], [5, 8, 11], [4, 9, 10]]);
        let failed = in_turn(3, &mut [0], |_| -> anyhow::Result<()> { anyhow::bail!("no sample") });
        assert!(failed.is_err());
    }

    #[test]
    fn figures_have_the_values_of_their_samples_and_the_papers() {
        let mut samples = Samples::of(["one", "other"]);
        samples.add("small", ["other", "one"], vec![vec![(10.0, None)], vec![(2.0, Some(3.0)), (4.0, Some(-1.0))]]);
        samples.add("large", ["one"], vec![vec![(8.0, None)]]);
        let series = samples.series(|(value, _)| value * 2.0, &[("one", "small", 0.3), ("other", "large", 9.0)]);
        let [one, other] = &series[..] else { panic!("two subjects") };
        assert_eq!((one.points[0].median, one.points[0].published), (6.0, Some(0.3)));
        assert_eq!(
            (one.points[1].place.as_str(), one.points[1].median, one.points[1].published),
            ("large", 16.0, None)
        );
        assert_eq!((other.points.len(), other.points[0].median), (1, 20.0));
        assert_eq!(
            samples.energy(|(_, joules)| *joules, "GiB"),
            "Joules of the whole machine per GiB: one, small: 3.000."
        );
        assert!(samples.energy(|_| None, "GiB").contains("no counter"));
    }

    #[test]
    fn a_ratio_is_told_beside_the_papers_and_only_if_there_is_one() {
        let mut samples = Samples::of([DIRECT, EXT4]);
        samples.add("4 KiB", [DIRECT, EXT4], vec![vec![30.0], vec![2.0]]);
        let mut figure = frame("f", "Fig. 5.2", "", "MiB/s", EXT4);
        figure.series = samples.series(|value| *value, &[]);
        let told = beside_paper(&figure, (DIRECT, EXT4), "4 KiB", "11 to 30");
        assert_eq!(told, "direct path at 4 KiB: 30.0 MiB/s, 15.0 times ext4's 2.00; in the thesis 11 to 30.");
        let missing = beside_paper(&figure, (MOUNT, EXT4), "4 KiB", "11 to 30");
        assert_eq!(beside_floor(&figure, "4 KiB"), "", "there is no floor");
        let why = explained(&figure, (DIRECT, EXT4), "4 KiB", (60.0, 100.0));
        assert!(why.contains("direct path has 0.50 times the thesis' 60.0 MiB/s, and ext4 0.02 times its 100.0"));
        assert!(why.ends_with("due to ext4."));
        assert!(explained(&figure, (DIRECT, EXT4), "4 KiB", (3.0, 2.0)).ends_with("due to direct path."));
        assert_eq!(noted(figure, [missing, told.clone()]).notes, [told]);
    }

    #[test]
    fn the_floor_is_told_beside_ext4() {
        let mut samples = Samples::of([MEMORY, EXT4]);
        samples.add("1", [MEMORY, EXT4], vec![vec![5.0], vec![2.0]]);
        let mut figure = frame("f", "Fig. 5.5", "", "SET/s", EXT4);
        figure.series = samples.series(|value| *value, &[]);
        assert!(beside_floor(&figure, "1").ends_with("2.50 times ext4's at 1."));
    }
}
