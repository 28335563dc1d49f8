//! The transactional cache's experiments on clusters: unchanged clusters of others, whose nodes
//! have their files on Tidegate's mounts, on ext4, on ext4 with a journal for data, and in memory.
//!
//! All nodes share this machine's cores and its disk. So times compare what lies under the nodes
//! and do not tell how a cluster grows; counts are exact.

pub mod dfsio;
pub mod filebench;
pub mod teragen;

use crate::figure::{Chart, Figure, Point, Series};
use crate::hybrid::in_turn;
use tidegate_measure::cluster::nodes::{Counts, NodeStorage};

/// The names of the subjects in figures.
pub(crate) const TIDEGATE: &str = "Tidegate";
pub(crate) const CLASSIC: &str = "Classic";
const CLASSIC_IN_MEMORY: &str = "Classic in memory";
const EXT4: &str = "ext4, data=ordered";
const MEMORY: &str = "/dev/shm";

/// Lines of 64 bytes in a block of 4 KiB.
const LINES_A_BLOCK: u64 = 64;

/// What the files of nodes lie on.
#[derive(Clone, Copy, Debug)]
struct Subject {
    label: &'static str,
    storage: NodeStorage,
}

const SUBJECTS: [Subject; 5] = [
    Subject { label: EXT4, storage: NodeStorage::Disk },
    Subject { label: CLASSIC, storage: NodeStorage::Journal },
    Subject { label: TIDEGATE, storage: NodeStorage::Mount },
    Subject { label: MEMORY, storage: NodeStorage::Memory },
    Subject { label: CLASSIC_IN_MEMORY, storage: NodeStorage::JournalInMemory },
];

/// The subjects of the verdicts, which the smallest form of a run has.
fn judged() -> Vec<Subject> {
    let needed = |subject: &Subject| matches!(subject.storage, NodeStorage::Mount | NodeStorage::Journal);
    SUBJECTS.into_iter().filter(needed).collect()
}

impl Subject {
    /// Blocks of 4 KiB that went to disks, if it has one.
    fn disk_blocks(self, counts: Counts) -> Option<u64> {
        match self.storage {
            NodeStorage::Memory | NodeStorage::JournalInMemory => None,
            NodeStorage::Mount | NodeStorage::Disk | NodeStorage::Journal => Some(counts.disk_blocks),
        }
    }

    /// Lines of 64 bytes that went to persistent memory. Classic has a block device there: each
    /// block that its file system writes is flushed line by line.
    fn lines(self, counts: Counts) -> Option<u64> {
        match self.storage {
            NodeStorage::Mount => Some(counts.lines_flushed),
            NodeStorage::Journal | NodeStorage::JournalInMemory => Some(counts.disk_blocks * LINES_A_BLOCK),
            NodeStorage::Disk | NodeStorage::Memory => None,
        }
    }
}

/// What is said of each figure.
const HOW: &str = "Nodes are network namespaces of one machine, and share its cores and its disk: times compare what lies under the nodes, and do not tell how a cluster \
                   grows. Each node has a disk of its own for each subject, a loop device over a file that is written in full before. The pool is in memory, and SOURCE on ext4.";

/// What stands for Classic, and where it differs.
const OF_CLASSIC: &str = "Classic is ext4 with data=journal on the disk. The paper's has a cache in persistent memory between the two, which takes in what a sync waits for. \
                          \"Classic in memory\" is the same file system on a loop device over /dev/shm: a cache that has room for everything, and flushes nothing. The paper's Classic \
                          lies between them.";

/// Something counted of each sample of a run.
struct Column<S> {
    id: &'static str,
    paper: &'static str,
    title: &'static str,
    unit: &'static str,
    /// None: it is not counted of this subject.
    value: fn(Subject, &S) -> Option<f64>,
    /// The paper's ratios to Classic, by place.
    published: &'static [(&'static str, f64)],
}

/// Samples of subjects at one place.
type Taken<S> = Vec<(Subject, Vec<S>)>;

/// A figure for each column of what was taken at places, with ratios to a subject.
fn figures<S>(columns: &[Column<S>], taken: &[(String, Taken<S>)], baseline: &str, notes: &[&str]) -> Vec<Figure> {
    columns.iter().map(|column| figure(column, taken, baseline, notes)).collect()
}

fn figure<S>(column: &Column<S>, taken: &[(String, Taken<S>)], baseline: &str, notes: &[&str]) -> Figure {
    let points = |label: &str| -> Vec<Point> {
        let of_place = |(place, subjects): &(String, Taken<S>)| {
            let (subject, samples) = subjects.iter().find(|(subject, _)| subject.label == label)?;
            let values: Option<Vec<f64>> = samples.iter().map(|sample| (column.value)(*subject, sample)).collect();
            let published = column.published.iter().find(|(at, _)| at == place).map(|(_, ratio)| *ratio);
            Some(Point::of(place.clone(), &values?, published.filter(|_| label == TIDEGATE)))
        };
        taken.iter().filter_map(of_place).collect()
    };
    let series = |subject: &Subject| Series { label: subject.label.to_owned(), points: points(subject.label) };
    let of_baseline = (baseline == CLASSIC).then_some(&OF_CLASSIC);
    Figure {
        id: format!("tinca-{}", column.id),
        paper: format!("Tinca, {}", column.paper),
        title: column.title.to_owned(),
        chart: Chart::Bars,
        unit: column.unit.to_owned(),
        baseline: Some(baseline.to_owned()),
        notes: std::iter::once(&HOW).chain(of_baseline).chain(notes).map(|note| (*note).to_owned()).collect(),
        series: SUBJECTS.iter().map(series).filter(|series| !series.points.is_empty()).collect(),
        run: None,
    }
}

/// So many samples of each subject, in turn. Without one, the turns that only warm up are all that
/// there is.
fn samples_of<S>(
    subjects: &mut [Subject],
    samples: u16,
    mut sample: impl FnMut(&mut Subject) -> anyhow::Result<S>,
) -> anyhow::Result<Vec<Vec<S>>> {
    match samples {
        0 => subjects.iter_mut().map(|subject| Ok(vec![sample(subject)?])).collect(),
        samples => in_turn(samples, subjects, sample),
    }
}

/// The place in a figure of so many replicas.
fn replicas_named(replicas: u16) -> String {
    if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") }
}

/// Says what is missing of the programs of a cluster, if something is.
fn programs_are_there(programs: &[&str], remedy: &str) -> anyhow::Result<()> {
    let absent = tidegate_measure::testbed::absent(programs);
    anyhow::ensure!(absent.is_empty(), "cannot run {}: {remedy}", absent.join(" and "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_the_counts_that_mean_something_of_it() {
        let counts = Counts { disk_blocks: 10, lines_flushed: 7 };
        let counted = SUBJECTS.map(|subject| (subject.label, subject.disk_blocks(counts), subject.lines(counts)));
        let expected = [
            (EXT4, Some(10), None),
            (CLASSIC, Some(10), Some(640)),
            (TIDEGATE, Some(10), Some(7)),
            (MEMORY, None, None),
            (CLASSIC_IN_MEMORY, None, Some(640)),
        ];
        assert_eq!(counted, expected);
    }

    #[test]
    fn a_column_is_a_figure_with_the_papers_ratios_beside_ours() {
        let column = Column {
            id: "f",
            paper: "Fig. 0",
            title: "",
            unit: "lines",
            value: |subject, sample: &Counts| subject.lines(*sample).map(|lines| lines as f64),
            published: &[("here", 0.5)],
        };
        let samples = || vec![Counts { disk_blocks: 1, lines_flushed: 9 }; 3];
        let taken = SUBJECTS.iter().map(|subject| (*subject, samples())).collect();
        let figure = figure(&column, &[("here".to_owned(), taken)], CLASSIC, &["a note"]);
        let labels: Vec<&str> = figure.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels, [CLASSIC, TIDEGATE, CLASSIC_IN_MEMORY], "others have no lines");
        let point = |label| figure.point(label, "here").map(|point| (point.median, point.published));
        assert_eq!((point(CLASSIC), point(TIDEGATE)), (Some((64.0, None)), Some((9.0, Some(0.5)))));
        assert_eq!((figure.id.as_str(), figure.notes.len()), ("tinca-f", 3));
    }
}
