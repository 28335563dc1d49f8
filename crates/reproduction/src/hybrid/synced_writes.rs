//! Fig. 5.2: writes at random, each with an `fsync` behind it.

use super::writer::{Sample, Task, Writer};
use super::{
    DIRECT, EXT4, MEMORY, MOUNT, SUBJECTS, Samples, beside_paper, digits, disk_is_there, frame, in_turn, noted,
};
use crate::Scale;
use crate::figure::{Figure, bytes_in_words};

/// Bytes of a write.
const SIZES: [u64; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// Writers of one file.
const THREADS: [u64; 2] = [1, 2];

/// Fig. 5.2.
pub(crate) fn writes(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    disk_is_there()?;
    let (bytes, pool_mib, milliseconds) = match scale {
        Scale::FULL => (128 << 20, 2048, 300),
        Scale::SMOKE => (4 << 20, 512, 1),
        _ => (64 << 20, 1024, 100),
    };
    // Long enough for each block of the file to be written a few times on the direct path.
    let start = |subject| Writer::start(subject, pool_mib, bytes, 10 * milliseconds);
    let mut writers = SUBJECTS.into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let mut figures = Vec::new();
    for threads in THREADS {
        let labels = || SUBJECTS.iter().map(|subject| subject.label);
        let mut samples = Samples::of(labels());
        for bytes in SIZES {
            let task = Task::Random { bytes, threads, milliseconds };
            let taken = in_turn(scale.rounds, &mut writers, |writer| writer.sample(task, bytes))?;
            samples.add(&bytes_in_words(bytes), labels(), taken);
        }
        figures.extend(drawn(&samples, threads));
    }
    Ok(figures)
}

/// The figures of one number of threads.
fn drawn(samples: &Samples<Sample>, threads: u64) -> [Figure; 2] {
    let (suffix, by) = if threads == 1 { ("", "1 thread") } else { ("-2", "2 threads") };
    let frame = |id: &str, what: &str, unit: &str| {
        let title = format!("Random writes with an fsync each, {by}: {what}");
        frame(&format!("hybrid-fig-5-2{id}{suffix}"), "Fig. 5.2", &title, unit, EXT4)
    };
    let mut bandwidth = frame("", "bandwidth", "MiB/s");
    bandwidth.series = samples.series(|sample| sample.mib_per_second, &[]);
    let mut processor = frame("-cpu", "processor time", "s/GiB");
    processor.series = samples.series(|sample| sample.processor_s_per_gib, &[]);
    let how = "One file; threads share it. fio on a mapping in the thesis, pwrite here. ext4 has its journal here, so that each fsync commits the file's times; the thesis has switched \
               it off. The pool is memory of this machine. In /dev/shm an fsync does nothing.";
    let lacking =
        "The thesis has up to 8 threads; on two cores a mount's server and two writers share the cores already.";
    let beside = [
        beside_paper(&bandwidth, (MOUNT, EXT4), "128 KiB", "11 to 30 times"),
        beside_paper(&bandwidth, (DIRECT, EXT4), "128 KiB", "11 to 30 times"),
        beside_paper(&bandwidth, (DIRECT, EXT4), "4 KiB", "not told in numbers"),
        if threads == 1 { times(&bandwidth) } else { String::new() },
        over_copy(&bandwidth, "128 KiB"),
    ];
    let cost = [
        beside_paper(&processor, (MOUNT, EXT4), "128 KiB", "0.06 to 0.15 times"),
        beside_paper(&processor, (DIRECT, EXT4), "128 KiB", "0.06 to 0.15 times"),
        "Of the program, and of the mount's server, which writes back meanwhile; the thesis leaves write-back out. The kernel's own threads and interrupts are in none, which is to ext4's \
         favour."
            .to_owned(),
        samples.energy(|sample| sample.joules_per_gib, "GiB"),
    ];
    [noted(bandwidth, [how.to_owned(), lacking.to_owned()].into_iter().chain(beside)), noted(processor, cost)]
}

/// What a write of 128 KiB and its sync take, beside the thesis: its 2.7 GiB/s are 11 to 30 times
/// the conventional cache's.
fn times(bandwidth: &Figure) -> String {
    let milliseconds = |mib_per_second: f64| 1e3 / 8.0 / mib_per_second;
    let both = bandwidth.point(DIRECT, "128 KiB").zip(bandwidth.point(EXT4, "128 KiB"));
    both.map_or(String::new(), |(direct, ext4)| {
        let of_thesis = [11.0, 30.0].map(|ratio| milliseconds(2.7 * 1024.0 / ratio));
        format!(
            "A write of 128 KiB and its fsync take {:.3} ms on the direct path and {:.2} ms on {EXT4} here; in the thesis 0.045 ms, and {:.2} \
             to {:.2} ms on NVMe without a journal (2.7 GiB/s over 11 and over 30).",
            milliseconds(direct.median),
            milliseconds(ext4.median),
            of_thesis[0],
            of_thesis[1],
        )
    })
}

/// How much longer a write takes on the direct path than the bare copy.
fn over_copy(bandwidth: &Figure, place: &str) -> String {
    let both = bandwidth.point(DIRECT, place).zip(bandwidth.point(MEMORY, place));
    both.map_or(String::new(), |(direct, memory)| {
        let ratio = digits(memory.median / direct.median);
        format!("A write of {place} and its fsync take {ratio} times as long on the direct path as in {MEMORY}, where nothing is durable.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Point, Series};

    #[test]
    fn times_are_told_beside_the_bare_copy_and_the_thesis() {
        let mut figure = frame("f", "", "", "MiB/s", EXT4);
        let series = |label: &str, value: f64| Series {
            label: label.to_owned(),
            points: vec![Point::exact("128 KiB", value, None)],
        };
        figure.series = vec![series(DIRECT, 1500.0), series(MEMORY, 6000.0)];
        assert_eq!(times(&figure), "", "nothing to compare with");
        assert!(over_copy(&figure, "128 KiB").contains(" take 4.00 times as long"));
        figure.series.push(series(EXT4, 12.5));
        assert!(times(&figure).contains("0.083 ms on the direct path and 10.00 ms on ext4"));
        assert!(times(&figure).contains("0.045 ms, and 0.50 to 1.36 ms"));
        assert_eq!(over_copy(&figure, "4 KiB"), "");
    }
}
