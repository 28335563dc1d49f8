//! Cheetah's design (ICA3PP 2020) in replays: what blocks by size save, and what its threshold
//! brings to DRAM.

use super::super::Scale;
use super::super::figure::{Chart, Figure, bytes_in_words};
use super::workloads::{Thread, Walk, Workload};
use super::{Subject, frame, gib, point, series, slots};
use tidegate_policy::placement::{IoKind, LINE_BYTES, NamedPlacement, PAGE_BYTES, TierSlots};

const CHEETAH: Subject = Subject::Named(NamedPlacement::Cheetah);
/// Pages of an extent.
const EXTENT_PAGES: u64 = 256;

const NORMALISED: Subject = Subject::Named(NamedPlacement::CheetahNormalised);

/// What synchronous writes have written to NVM, by size; and their time, by size and by the size of
/// DRAM.
pub fn block_sizes(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let gib = gib(scale);
    let title = "Synchronous random writes: bytes written to NVM for a byte";
    let mut written = frame("cheetah-amplification", "Cheetah, § 3.2", title, "bytes for a byte", Some(Subject::UHNVM));
    let title = "Synchronous random writes: time by size";
    let mut time = frame("cheetah-fig-3", "Cheetah, Fig. 3", title, "µs for a write", Some(Subject::UHNVM));
    for subject in [CHEETAH, Subject::UHNVM, Subject::TIDEGATE] {
        let mut points = [Vec::new(), Vec::new()];
        for unit in [256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10_u32] {
            let (lines, us) = written_by(subject, slots(gib, 4 * gib), gib, unit);
            let place = bytes_in_words(unit.into());
            points[0].push(point(place.clone(), lines * f64::from(LINE_BYTES) / f64::from(unit), None));
            if unit >= 1024 {
                points[1].push(point(place, us, None));
            }
        }
        let [of_lines, of_time] = points;
        written.series.push(series(subject.label(), of_lines));
        time.series.push(series(subject.label(), of_time));
    }
    written.notes.push(
        "UHNVM stands for designs with blocks of 4 KiB, as NOVA's pages. A write of Cheetah gets a block of the class of its size and fills it; Tidegate \
         writes lines."
            .to_owned(),
    );
    time.notes.push(
        "The paper has file systems beside it (2.1 times Ext4 and XFS, 91 % more than NOVA): they are no placements, and are not replayed. What a replay \
         shows is the part that blocks by size have in it: none from 4 KiB on."
            .to_owned(),
    );
    Ok(vec![written, time, by_dram(gib)])
}

/// Lines written, and microseconds, for a synchronous write of `unit` bytes to cached blocks.
fn written_by(subject: Subject, tiers: TierSlots, gib: u64, unit: u32) -> (f64, f64) {
    let bytes = gib * PAGE_BYTES;
    let fill = Thread::of_pages(Walk::Loop(bytes), 1, IoKind::SyncWrite);
    let write = Thread { walk: Walk::Random(bytes), weight: 1, kind: IoKind::SyncWrite, unit };
    let warm = usize::try_from(gib).expect("some thousands");
    let writes = Workload::new(3, &[write]).take(warm);
    let counts = subject.replayed(tiers, warm, Workload::new(3, &[fill]).take(warm).chain(writes));
    (counts.lines_written as f64 / counts.requests as f64, counts.ps as f64 / counts.requests as f64 / 1e6)
}

/// The paper varies the size of DRAM under synchronous writes.
fn by_dram(gib: u64) -> Figure {
    let title = "Synchronous writes of 4 KiB: time by the size of DRAM";
    let mut figure = frame("cheetah-fig-3-dram", "Cheetah, Fig. 3", title, "µs for a write", None);
    for subject in [CHEETAH, Subject::TIDEGATE] {
        let time = |dram: u64| written_by(subject, slots(dram * gib / 16, 4 * gib), gib, 4096).1;
        let points = [2_u64, 4, 8, 16, 32].map(|dram| point(format!("{dram} GiB"), time(dram), None));
        figure.series.push(series(subject.label(), points.into()));
    }
    figure.notes.push(
        "All writes are synchronous, so none enters DRAM, by the design's own rule: its size changes nothing. The paper's text tells numbers for 32 GB \
         alone."
            .to_owned(),
    );
    figure
}

/// What the threshold brings to DRAM, as published and as a share of the mean.
pub fn thresholds(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    // Extents are as large as the paper's, so that there have to be some.
    let extents = if scale == Scale::SMOKE { 16 } else { 64 };
    let pages = extents * EXTENT_PAGES;
    let bytes = pages * PAGE_BYTES;
    let title = "Skewed reads, all data in NVM: reads served by DRAM";
    let mut hits = frame("cheetah-threshold", "Cheetah, § 3.1", title, "% of reads", None);
    let mut moved = frame("cheetah-threshold-moved", "Cheetah, § 3.1", "The same: blocks moved", "blocks a read", None);
    let mut time = frame("cheetah-threshold-time", "beyond the paper", "The same: time", "µs for a read", None);
    hits.chart = Chart::Lines;
    moved.chart = Chart::Lines;
    time.chart = Chart::Lines;
    let requests = usize::try_from(if scale == Scale::SMOKE { pages } else { 4 * pages })?;
    for subject in [CHEETAH, NORMALISED, Subject::TIDEGATE] {
        let mut points = [Vec::new(), Vec::new(), Vec::new()];
        for sixteenths in [1_u64, 2, 4, 8, 16] {
            let threads = [Thread::of_pages(Walk::Skewed(bytes), 1, IoKind::Read)];
            let tiers = slots(pages * sixteenths / 16, 3 * pages / 2);
            let counts = subject.replayed(tiers, requests / 4, Workload::new(31, &threads).take(requests));
            let place = format!("{}", sixteenths as f64 / 16.0);
            points[0].push(point(place.clone(), 100.0 * counts.hits_dram as f64 / counts.pages as f64, None));
            points[1].push(point(place.clone(), counts.moved as f64 / counts.pages as f64, None));
            points[2].push(point(place, counts.ps as f64 / counts.pages as f64 / 1e6, None));
        }
        let [of_hits, of_moved, of_time] = points;
        hits.series.push(series(subject.label(), of_hits));
        moved.series.push(series(subject.label(), of_moved));
        time.series.push(series(subject.label(), of_time));
    }
    hits.notes.push(
        "Places are the size of DRAM over that of the data. Nine of ten reads go to a tenth of the data. As published an extent needs half of all heat, \
         which at most two extents have, and once DRAM is half used hardly any: next to nothing migrates. As a share of the mean every extent that is \
         warmer than half of the mean does, until four fifths of DRAM are used."
            .to_owned(),
    );
    Ok(vec![hits, moved, time])
}
