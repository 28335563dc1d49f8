//! Fig. 5.1: what an `fdatasync` of d dirty pages takes beside m cached ones.
//!
//! A mount tells three states of a page apart, so that a sync is about the pages written since the
//! last one. The thesis' implementation knows two: a page that is not written back counts as
//! dirty, and each sync goes over it again. A subject of its own is what the same mount does
//! then: all m pages are written anew before each sync, and the sync commits all of them.

use super::writer::{Sample, Task, Writer};
use super::{
    DIRECT, EXT4, MEMORY, MOUNT, PAGE_BYTES, SUBJECTS, Samples, beside_paper, disk_is_there, explained, frame, in_turn,
    noted,
};
use crate::Scale;
use crate::figure::{Figure, bytes_in_words};

/// A mount all of whose pages are written before each sync.
pub(crate) const TWO_STATES: &str = "mount, two states";

/// Cached pages where the dirty ones vary, as in the thesis: 2 MiB.
const CACHED: u64 = 512;

/// Dirty pages.
const DIRTY: [u64; 6] = [1, 4, 16, 64, 256, 512];

/// Dirty pages where the cached ones vary.
const FEW: u64 = 16;

/// How large a run is.
struct Size {
    /// Bytes of files where these vary, from the least on.
    files: &'static [u64],
    pool_mib: u32,
    milliseconds: u64,
}

impl Size {
    fn of(scale: Scale) -> Size {
        match scale {
            Scale::FULL => Size { files: &[2 << 20, 16 << 20, 64 << 20, 256 << 20], pool_mib: 2048, milliseconds: 200 },
            Scale::SMOKE => Size { files: &[2 << 20], pool_mib: 512, milliseconds: 1 },
            _ => Size { files: &[2 << 20, 16 << 20, 64 << 20], pool_mib: 1024, milliseconds: 50 },
        }
    }
}

/// Fig. 5.1.
pub(crate) fn syncs(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    disk_is_there()?;
    let size = Size::of(scale);
    let labels = || SUBJECTS.iter().map(|subject| subject.label);
    let (mut dirty, mut mapped) = (Samples::of(labels()), Samples::of(labels()));
    let mut cached = Samples::of(labels().chain([TWO_STATES]));
    for bytes in size.files {
        let pages = bytes / PAGE_BYTES;
        let start = |subject| Writer::start(subject, size.pool_mib, *bytes, size.milliseconds);
        let mut writers = SUBJECTS.into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        let place = bytes_in_words(*bytes);
        let mut taken = |dirty: u64| {
            let task = Task::Dirty { pages: dirty, milliseconds: size.milliseconds };
            in_turn(scale.rounds, &mut writers, |writer| writer.sample(task, dirty * PAGE_BYTES))
        };
        if pages == CACHED {
            for pages in DIRTY {
                dirty.add(&bytes_in_words(pages * PAGE_BYTES), labels(), taken(pages)?);
            }
        }
        let all = taken(pages)?;
        cached.add(&place, labels(), taken(FEW)?);
        let of_mount = labels().position(|label| label == MOUNT).map_or(&[][..], |nth| &all[nth][..]);
        cached.add(&place, [TWO_STATES], vec![of_mount.to_vec()]);
        mapped.add(&place, labels(), all);
    }
    Ok(vec![
        by_dirty_size(&dirty, Part::Sync),
        by_dirty_size(&dirty, Part::Whole),
        by_mapped_size(&mapped, Part::Sync),
        by_mapped_size(&mapped, Part::Whole),
        processor(&mapped),
        beside_cached(&cached),
    ])
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The syncs, as in the thesis.
    Sync,
    /// Writes and syncs.
    Whole,
}

impl Part {
    fn bandwidth(self) -> fn(&Sample) -> f64 {
        match self {
            Part::Sync => |sample| sample.synced_mib_per_second,
            Part::Whole => |sample| sample.mib_per_second,
        }
    }

    /// Whom the figure is about.
    fn subject(self) -> &'static str {
        match self {
            Part::Sync => MOUNT,
            Part::Whole => DIRECT,
        }
    }

    /// The end of an id, and what a title says.
    fn named(self) -> (&'static str, &'static str) {
        match self {
            Part::Sync => ("", "fdatasync"),
            Part::Whole => ("-whole", "writes and their fdatasync"),
        }
    }
}

const HOW: &str = "Whole pages are written by pwrite, the first d of the file, and then comes the fdatasync; the thesis stores one byte to each page of a mapping. ext4 has its journal here, and \
                   none in the thesis. The pool is memory of this machine, not behind a CXL link. A mount has the bytes in DRAM until the sync, which stores them in the pool. On the direct path they are in the \
                   pool when the write returns, so that a sync alone says nothing of it: its figure is the one with the writes.";

fn by_dirty_size(samples: &Samples<Sample>, part: Part) -> Figure {
    let (end, what) = part.named();
    let title = format!("Bandwidth of {what} over dirty pages, 2 MiB cached");
    let mut figure = frame(&format!("hybrid-fig-5-1-dirty{end}"), "Fig. 5.1, right", &title, "MiB/s", EXT4);
    let published = [(MOUNT, "4 KiB", 59.5 / 3.6), (MOUNT, "2 MiB", 1887.7 / 187.3)];
    figure.series = samples.series(part.bandwidth(), if part == Part::Sync { &published } else { &[] });
    let told = [("4 KiB", "59.5 MiB/s, 16.5 times 3.6"), ("2 MiB", "1887.7 MiB/s, 10.1 times 187.3")];
    let ours = (part.subject(), EXT4);
    let notes = told.map(|(place, paper)| beside_paper(&figure, ours, place, paper));
    let why = [("4 KiB", (59.5, 3.6)), ("2 MiB", (1887.7, 187.3))];
    let why = why.map(|(place, paper)| explained(&figure, ours, place, paper));
    noted(figure, [HOW.to_owned()].into_iter().chain(notes).chain(why))
}

fn by_mapped_size(samples: &Samples<Sample>, part: Part) -> Figure {
    let (end, what) = part.named();
    let title = format!("Bandwidth of {what}, all cached pages dirty");
    let mut figure = frame(&format!("hybrid-fig-5-1-mapped{end}"), "Fig. 5.1, left", &title, "MiB/s", EXT4);
    let published = [(MOUNT, "2 MiB", 37.1)];
    figure.series = samples.series(part.bandwidth(), if part == Part::Sync { &published } else { &[] });
    let note = beside_paper(&figure, (part.subject(), EXT4), "2 MiB", "7.2 GiB/s, 37.1 times 198.6 MiB/s");
    let dirty = "The thesis does not tell how many of the m pages are dirty here. Its conventional cache reaches 750 MiB/s above 4 MiB, and 187 MiB/s with 2 MiB dirty in the other \
                 half of the figure; so all are taken to be. It goes up to 16 GiB; files here are as large as the pools fit beside each other.";
    let why = explained(&figure, (part.subject(), EXT4), "2 MiB", (7.2 * 1024.0, 198.6));
    noted(figure, [dirty.to_owned(), note, why])
}

fn processor(samples: &Samples<Sample>) -> Figure {
    let title = "Processor time of writes and their fdatasync, all cached pages dirty";
    let mut figure = frame("hybrid-fig-5-1-cpu", "Fig. 5.1, left", title, "s/GiB", EXT4);
    figure.series = samples.series(|sample| sample.processor_s_per_gib, &[]);
    let how = "Of the program, and of the mount's server, which writes back meanwhile; the thesis leaves write-back out. The kernel's own threads and interrupts are in none, \
               which is to ext4's favour.";
    let energy = samples.energy(|sample| sample.joules_per_gib, "GiB");
    noted(figure, [how.to_owned(), energy])
}

fn beside_cached(samples: &Samples<Sample>) -> Figure {
    let title = "Time of an fdatasync of 16 dirty pages over cached pages";
    let mut figure = frame("hybrid-fig-5-1-cached", "Fig. 5.1 and § 6.1", title, "µs", EXT4);
    figure.series = samples.series(|sample| sample.sync_us, &[]);
    let how = "With two states a page that is not written back counts as dirty: all cached pages are written again before each sync, and it commits all. That copies each \
               page where the thesis' sync would find it durable, so that it costs more here for each page, and as there it grows with what is cached.";
    let growth = [EXT4, MOUNT, DIRECT, TWO_STATES, MEMORY].map(|label| growth(&figure, label));
    noted(figure, [how.to_owned()].into_iter().chain(growth))
}

/// How the time of a subject grows from the smallest file to the largest.
fn growth(figure: &Figure, label: &str) -> String {
    let points = figure.series.iter().find(|series| series.label == label).map_or(&[][..], |series| &series.points[..]);
    let [first, .., last] = points else { return String::new() };
    format!(
        "{label}: {:.1} µs beside {}, {:.1} µs beside {}, {:.2} times.",
        first.median,
        first.place,
        last.median,
        last.place,
        last.median / first.median
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Point, Series};

    #[test]
    fn growth_is_from_the_smallest_file_to_the_largest() {
        let mut figure = frame("f", "", "", "µs", EXT4);
        let point = |place: &str, value: f64| Point::exact(place, value, None);
        let points = vec![point("2 MiB", 10.0), point("16 MiB", 30.0), point("64 MiB", 80.0)];
        figure.series.push(Series { label: TWO_STATES.to_owned(), points });
        figure.series.push(Series { label: EXT4.to_owned(), points: vec![point("2 MiB", 1.0)] });
        let told = "mount, two states: 10.0 µs beside 2 MiB, 80.0 µs beside 64 MiB, 8.00 times.";
        assert_eq!((growth(&figure, TWO_STATES).as_str(), growth(&figure, EXT4)), (told, String::new()));
        assert_eq!(growth(&figure, DIRECT), "");
    }

    #[test]
    fn each_scale_has_the_file_whose_dirty_pages_vary() {
        for scale in [Scale::FULL, Scale::QUICK, Scale::SMOKE] {
            let Size { files, pool_mib, .. } = Size::of(scale);
            assert_eq!(files[0], CACHED * PAGE_BYTES);
            assert!(
                files.iter().all(|bytes| bytes * 4 <= u64::from(pool_mib) << 20),
                "out of sync, in one of four lanes"
            );
        }
        assert_eq!(DIRTY.last(), Some(&CACHED));
    }
}
