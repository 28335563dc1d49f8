//! UHNVM's experiments (Electronics 2021): Fig. 8 to 13.

use super::super::Scale;
use super::super::figure::{Chart, Figure};
use super::workloads::{Thread, Walk, Workload};
use super::{Subject, frame, gib, milliseconds, percent, point, series, slots};
use tidegate_baselines::placement::Rival;
use tidegate_measure::replay::costs::{LineCost, MemoryCosts};
use tidegate_measure::replay::tiers::Counts;
use tidegate_policy::placement::{IoKind, NamedPlacement, PAGE_BYTES, TierSlots};

/// The label of UHNVM in whose pool each block is written to a new place.
pub const UHNVM_ANEW: &str = "UHNVM, blocks written to new places";

const NO_NVM: Subject = Subject::Rival(Rival::NoNvm);

/// Fig. 8 and 9: dd, one request in eleven of a loop.
pub fn dd(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let gib = gib(scale);
    let tiers = slots(2 * gib, 2 * gib);
    let looped = gib * PAGE_BYTES * 2 / 5;
    let threads = [
        Thread::of_pages(Walk::Loop(looped), 1, IoKind::Read),
        Thread::of_pages(Walk::RandomOnce(64 * gib * PAGE_BYTES), 10, IoKind::Read),
    ];
    let requests = usize::try_from(20 * gib)?;
    let mut time = frame("uhnvm-fig-8", "UHNVM, Fig. 8", "dd, looping to random 1 to 10: time", "ms", Some(NO_NVM));
    let mut hits =
        frame("uhnvm-fig-9", "UHNVM, Fig. 9", "dd, looping to random 1 to 10: hits", "% of blocks", Some(NO_NVM));
    for subject in Subject::ALL {
        let counts = subject.replayed(tiers, 0, Workload::new(8, &threads).take(requests));
        let published = match subject {
            Subject::UHNVM => Some(0.89),
            NO_NVM => Some(1.0),
            _ => None,
        };
        time.series.push(series(subject.label(), vec![point("dd", milliseconds(&counts), published)]));
        hits.series.push(series(subject.label(), vec![point("dd", percent(&counts), None)]));
    }
    time.notes.push(
        "Of 20 GiB of reads one in eleven goes round a file of 0.4 GiB, which the paper does not tell: 4.4 GiB lie between two reads of a block, more \
         than all memory. The random reads meet no block twice. A ninth of the time is more than there is to be had: all reads of the loop are a \
         eleventh, and each block's first one misses. The paper does not tell its disk; where a block read out of order costs less than one of a \
         loop, or the loop is written too, more is to be had."
            .to_owned(),
    );
    time.notes.push(
        "Random placement is the paper's worst for its writes to NVM without order. It hits as often as no NVM does, with as many slots in all.".to_owned(),
    );
    hits.notes.push("The paper gives an order: UHNVM above the two others.".to_owned());
    Ok(vec![time, hits])
}

/// Fig. 10: fio, a loop and random access, by the size of requests.
pub fn units(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let gib = gib(scale);
    let tiers = slots(2 * gib, 2 * gib);
    let kinds = [("a", "reads", IoKind::Read, 7.2), ("b", "writes", IoKind::Write, 4.05)];
    let mut figures = Vec::new();
    for (part, what, kind, published) in kinds {
        let title = format!("fio, a loop and random {what}: throughput by size of request");
        let mut figure =
            frame(&format!("uhnvm-fig-10{part}"), "UHNVM, Fig. 10", &title, "of the same with 4 KiB", None);
        let slow = MemoryCosts::OPTANE.nvm_write.out_of_order;
        let anew = MemoryCosts { nvm_write: LineCost { in_order: slow, out_of_order: slow }, ..MemoryCosts::OPTANE };
        let subjects = [
            (Subject::UHNVM.label(), Subject::UHNVM, MemoryCosts::OPTANE),
            (UHNVM_ANEW, Subject::UHNVM, anew),
            (Subject::TIDEGATE.label(), Subject::TIDEGATE, MemoryCosts::OPTANE),
            (Subject::LRU.label(), Subject::LRU, MemoryCosts::OPTANE),
        ];
        for (label, subject, costs) in subjects {
            let of = |kib: &u32| throughput(subject, costs, tiers, gib, *kib, kind);
            let each: Vec<f64> = [1_u32, 2, 4, 8].iter().map(of).collect();
            let places = ["1 KiB", "2 KiB", "4 KiB", "8 KiB"];
            let mut points: Vec<_> =
                places.iter().zip(&each).map(|(place, value)| point(*place, value / each[2], None)).collect();
            let published = (subject == Subject::UHNVM).then_some(published);
            points.push(point("8 KiB over 1 KiB", each[3] / each[0], published));
            figure.series.push(series(label, points));
        }
        figure.notes.push(format!(
            "The published number is {published:.1} for 8 KiB over 1 KiB, the mean of both interfaces; pread and pwrite are the same here, where no file \
             position is. All blocks are cached when time begins. The gap is what each request costs by itself and, in UHNVM, the whole block \
             that a smaller request reads or writes. The paper's reads gain more, so its requests cost more beside a block than 0.86 µs. Its writes gain \
             less: its pool writes each block to a new place, out of order even in a loop, so that the block itself costs most, and twice as large \
             requests gain little. A series of its own has that."
        ));
        figures.push(figure);
    }
    Ok(figures)
}

/// Bytes in a second, once a first round has filled the tiers.
fn throughput(subject: Subject, costs: MemoryCosts, tiers: TierSlots, gib: u64, kib: u32, kind: IoKind) -> f64 {
    let unit = kib << 10;
    let bytes = gib * PAGE_BYTES;
    let thread = |walk| Thread { walk, weight: 1, kind, unit };
    let threads = [thread(Walk::Loop(bytes)), thread(Walk::Random(3 * bytes / 2))];
    let count = |units: u64| usize::try_from(units).expect("some thousands");
    // By then the random thread has met nearly all of its blocks, each twelve times in the mean.
    let (warm, measured) = (count(36 * gib), count(4 * bytes / u64::from(unit)));
    let counts = subject.replayed_at(costs, tiers, warm, Workload::new(10, &threads).take(warm + measured));
    counts.requests as f64 * f64::from(unit) / (counts.ps as f64 / 1e12)
}

/// Fig. 11 and 12: one looping and two random threads over the share of NVM.
pub fn proportions(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    // So that every share is a whole number of pages, of which a tenth is NVM's.
    let all = gib(scale) * 4 / 10 * 10;
    let mut figures = Vec::new();
    for (part, what, kind) in [("a", "pread", IoKind::Read), ("b", "pwrite", IoKind::Write)] {
        let title = |of: &str| format!("A looping and two random threads, {what}, by the share of NVM: {of}");
        let mut time = frame(&format!("uhnvm-fig-11{part}"), "UHNVM, Fig. 11", &title("time"), "ms", None);
        let mut hits = frame(&format!("uhnvm-fig-12{part}"), "UHNVM, Fig. 12", &title("hits"), "% of blocks", None);
        for subject in Subject::ALL {
            let mut points = [Vec::new(), Vec::new()];
            for tenths in 1..=5 {
                let place = format!("0.{tenths}");
                let counts = at_share(subject, all, tenths, kind);
                points[0].push(point(place.clone(), milliseconds(&counts), None));
                points[1].push(point(place, percent(&counts), None));
            }
            let [of_time, of_hits] = points;
            time.series.push(series(subject.label(), of_time));
            hits.series.push(series(subject.label(), of_hits));
        }
        time.notes.push(
            "The share is NVM's of both tiers. The loop is three tenths of the data and of the requests, and the data are as large as both tiers: so the \
             paper's best share, three tenths, is where the loop just fits NVM and the rest DRAM. UHNVM's time is least there, as in the paper."
                .to_owned(),
        );
        hits.notes.push(
            "In the paper the hits rise past three tenths while time does. Here they fall with time: each block takes the same time to be read, so that \
             hits and time go together unless the tiers' own times differ. With data as large as the tiers, nothing is to be had past three tenths: the \
             loop is in NVM as a whole already."
                .to_owned(),
        );
        figures.extend([time, hits]);
    }
    Ok(figures)
}

fn at_share(subject: Subject, all: u64, tenths: u64, kind: IoKind) -> Counts {
    let bytes = all * PAGE_BYTES / 10;
    let threads = [
        Thread::of_pages(Walk::Loop(3 * bytes), 30, kind),
        Thread::of_pages(Walk::Random(7 * bytes / 2), 35, kind),
        Thread::of_pages(Walk::Random(7 * bytes / 2), 35, kind),
    ];
    let tiers = slots(all - all * tenths / 10, all * tenths / 10);
    let requests = usize::try_from(20 * all).expect("some thousands");
    subject.replayed(tiers, 0, Workload::new(11, &threads).take(requests))
}

/// Fig. 13: hits over the size of the cache, NVM to DRAM 1 to 1.
pub fn sizes(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let gib = gib(scale);
    let bytes = gib * PAGE_BYTES;
    let threads = [
        Thread::of_pages(Walk::Loop(bytes / 4), 10, IoKind::Read),
        Thread::of_pages(Walk::Loop(bytes), 10, IoKind::Read),
        Thread::of_pages(Walk::Once, 20, IoKind::Read),
        Thread::of_pages(Walk::Random(16 * bytes), 60, IoKind::Read),
    ];
    let mut hits =
        frame("uhnvm-fig-13", "UHNVM, Fig. 13", "dd, patterns mixed: hits by size of cache", "% of blocks", None);
    let mut time = frame("uhnvm-fig-13-time", "beyond the paper", "The same: time", "ms", None);
    hits.chart = Chart::Lines;
    time.chart = Chart::Lines;
    let requests = usize::try_from(60 * gib)?;
    for subject in Subject::ALL {
        let mut points = [Vec::new(), Vec::new()];
        for quarters in [2_u64, 4, 8, 16, 32] {
            let place = format!("{}", quarters as f64 / 4.0);
            let tiers = slots(gib * quarters / 8, gib * quarters / 8);
            let counts = subject.replayed(tiers, 0, Workload::new(13, &threads).take(requests));
            points[0].push(point(place.clone(), percent(&counts), None));
            points[1].push(point(place, milliseconds(&counts), None));
        }
        let [of_hits, of_time] = points;
        hits.series.push(series(subject.label(), of_hits));
        time.series.push(series(subject.label(), of_time));
    }
    hits.notes.push(
        "Places are GiB of both tiers. The paper tells the patterns and not their sizes. Here a tenth of the reads loops over a quarter of a GiB, a tenth \
         over one GiB, a fifth never comes again, and the rest is random over 16 GiB. The paper gives an order: UHNVM above LRU, CFLRU and I/O-Cache at \
         each size. Nothing is written, so CFLRU is LRU, and I/O-Cache nearly so."
            .to_owned(),
    );
    Ok(vec![hits, time])
}

/// Synchronous writes among reads: what the exception for them changes.
pub fn syncs(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let gib = gib(scale);
    let bytes = gib * PAGE_BYTES;
    let threads = [
        Thread::of_pages(Walk::Loop(bytes), 30, IoKind::Read),
        Thread::of_pages(Walk::Random(4 * bytes), 50, IoKind::Read),
        Thread::of_pages(Walk::Random(4 * bytes), 20, IoKind::SyncWrite),
    ];
    let mut time = frame("uhnvm-syncs", "beyond the paper", "Random synchronous writes beside reads: time", "ms", None);
    let mut written =
        frame("uhnvm-syncs-written", "beyond the paper", "The same: blocks written below", "blocks for a write", None);
    let requests = usize::try_from(40 * gib)?;
    for subject in Subject::ALL.into_iter().chain([Subject::Named(NamedPlacement::UhnvmPublished)]) {
        let counts = subject.replayed(slots(2 * gib, 2 * gib), 0, Workload::new(14, &threads).take(requests));
        time.series.push(series(subject.label(), vec![point("fio", milliseconds(&counts), None)]));
        let writes = requests as f64 / 5.0;
        written.series.push(series(subject.label(), vec![point("fio", counts.written_below as f64 / writes, None)]));
    }
    time.notes.push(
        "UHNVM has no rule for synchronous writes. As published those of a random context wait for the disk. With Tidegate's rule they enter NVM, and are \
         the first to leave it."
            .to_owned(),
    );
    Ok(vec![time, written])
}

/// Phases of one program, each on other files: what a placement that retains blocks has to forget.
pub fn shifts(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let gib = gib(scale);
    let bytes = gib * PAGE_BYTES;
    let threads = [
        Thread::of_pages(Walk::Loop(bytes), 30, IoKind::Read),
        Thread::of_pages(Walk::Skewed(6 * bytes), 40, IoKind::Read),
        Thread::of_pages(Walk::Once, 10, IoKind::Write),
        Thread::of_pages(Walk::Random(8 * bytes), 20, IoKind::Write),
    ];
    let mut hits = frame(
        "placement-shifts",
        "beyond the papers",
        "One program, on other files in each phase: hits",
        "% of blocks",
        None,
    );
    let mut time = frame("placement-shifts-time", "beyond the papers", "The same: time", "ms", None);
    let requests = usize::try_from(16 * gib)?;
    for subject in Subject::ALL {
        let mut points = [Vec::new(), Vec::new()];
        for (place, sets) in
            [("one set of files", [0, 0, 0, 0]), ("four sets", [0, 1, 2, 3]), ("two in turn", [0, 1, 0, 1])]
        {
            let phases = sets.into_iter().zip(15..);
            let trace = phases.flat_map(|(set, seed)| Workload::new(seed, &threads).on_files(set).take(requests));
            let counts = subject.replayed(slots(2 * gib, 2 * gib), 0, trace);
            points[0].push(point(place, percent(&counts), None));
            points[1].push(point(place, milliseconds(&counts), None));
        }
        let [of_hits, of_time] = points;
        hits.series.push(series(subject.label(), of_hits));
        time.series.push(series(subject.label(), of_time));
    }
    Ok(vec![hits, time])
}
