//! Fig. 3.2: random writes by stores to mapped memory, and by requests to a block interface.
//!
//! The thesis has memory behind a CXL link, and an NVMe disk by io_uring with eight requests under
//! way. Here a store is a streamed copy and a fence, to memory of this machine as it is and as slow
//! as behind such a link; a request is a `pwrite` that goes past the page cache, one at a time for
//! each thread.

use super::{GIB, MIB, Samples, beside_paper, by_threads, disk_is_there, explained, frame, in_turn, noted};
use crate::Scale;
use crate::figure::{Figure, bytes_in_words};
use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use tidegate_measure::cost::{joules, joules_since, own_processor_time};
use tidegate_measure::medium::{self, ScratchPath};
use tidegate_measure::testbed::disk::Disk;
use tidegate_media::{AlignedBytes, Region};
use tidegate_sim::Rng;

/// The names of the interfaces in figures.
pub(crate) const STORES: &str = "stores";
pub(crate) const STORES_CXL: &str = "stores, CXL";
pub(crate) const BLOCK: &str = "disk, O_DIRECT";
pub(crate) const BLOCK_DURABLE: &str = "disk, O_DIRECT | O_DSYNC";
const SYSTEM_CALL: &str = "pwrite, /dev/shm";

/// Bytes of a write.
const SIZES: [u64; 7] = [64, 512, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20];

/// What the kernel lets through to a disk.
const SECTOR_BYTES: u64 = 512;

/// MiB that the emulated link lets through in a second: the thesis' 22.6 GiB.
const LINK_MIB: f64 = 24_267.0 * 1e6 / MIB;

/// Bytes that a thread writes before it looks at the clock, at least.
const BETWEEN_LOOKS: u64 = 64 << 10;

type WriteAt = dyn Fn(u64, &[u8]) -> anyhow::Result<()> + Sync;

/// A way to write.
struct Interface {
    label: &'static str,
    least: u64,
    write: Box<WriteAt>,
}

/// A sample of an interface.
struct Sample {
    mib_per_second: f64,
    processor_s_per_gib: f64,
    joules_per_gib: Option<f64>,
}

impl Interface {
    fn stores(label: &'static str, region: impl Region + 'static) -> Interface {
        let write = move |at: u64, bytes: &[u8]| {
            region.stream(at, bytes);
            Ok(region.fence()?)
        };
        Interface { label, least: 64, write: Box::new(write) }
    }

    fn requests(label: &'static str, least: u64, file: File) -> Interface {
        Interface { label, least, write: Box::new(move |at, bytes| Ok(file.write_all_at(bytes, at)?)) }
    }

    /// Writes of `bytes` anywhere in `span` by `threads` for `time`.
    fn sample(&self, (bytes, span): (u64, u64), threads: u64, time: Duration, seed: u64) -> anyhow::Result<Sample> {
        let before = (own_processor_time(), joules());
        let began = Instant::now();
        let writes = by_threads(threads, |nth| self.work((bytes, span), time, seed + nth))?;
        let (taken, used) = (began.elapsed(), own_processor_time() - before.0);
        let written = (writes * bytes) as f64;
        Ok(Sample {
            mib_per_second: written / MIB / taken.as_secs_f64(),
            processor_s_per_gib: used.as_secs_f64() / (written / GIB),
            joules_per_gib: joules_since(before.1).map(|joules| joules / (written / GIB)),
        })
    }

    fn work(&self, (bytes, span): (u64, u64), time: Duration, seed: u64) -> anyhow::Result<u64> {
        let (mut random, buffer) = (Rng::new(seed), piece_of(usize::try_from(bytes)?));
        let (began, mut writes) = (Instant::now(), 0);
        while writes == 0 || began.elapsed() < time {
            for _ in 0..BETWEEN_LOOKS.div_ceil(bytes).min(1024) {
                (self.write)(random.below(span / bytes) * bytes, &buffer)?;
                writes += 1;
            }
        }
        Ok(writes)
    }
}

/// Bytes to write, where direct requests want them.
fn piece_of(len: usize) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(len);
    bytes.fill(7);
    bytes
}

/// The interfaces, each over `span` bytes that were written once.
fn interfaces(span: u64) -> anyhow::Result<Vec<Interface>> {
    disk_is_there()?;
    let (disk, memory) = (Disk::shared()?, ScratchPath::new());
    let name = format!("tidegate-interfaces-{}", std::process::id());
    let on_disk = filled(&disk.folder().join(name), span, &[OFlags::DIRECT, OFlags::DIRECT.union(OFlags::DSYNC)])?;
    let [direct, durable] = <[File; 2]>::try_from(on_disk).map_err(|_| anyhow::anyhow!("two files were opened"))?;
    let in_memory = filled(memory.as_path(), span, &[OFlags::empty()])?.remove(0);
    let interfaces = vec![
        Interface::stores(STORES, medium::region(span)?),
        Interface::stores(STORES_CXL, medium::slow_region("cxl", span)?),
        Interface::requests(SYSTEM_CALL, 1, in_memory),
        Interface::requests(BLOCK, SECTOR_BYTES, direct),
        Interface::requests(BLOCK_DURABLE, SECTOR_BYTES, durable),
    ];
    let piece = piece_of(1 << 20);
    for interface in &interfaces {
        (0..span).step_by(piece.len()).try_for_each(|at| (interface.write)(at, &piece))?;
    }
    Ok(interfaces)
}

/// A file of `span` bytes without a name, opened once with each of `flags`.
fn filled(path: &Path, span: u64, flags: &[OFlags]) -> anyhow::Result<Vec<File>> {
    let file = File::options().write(true).create_new(true).open(path)?;
    let open = |flags: &OFlags| File::options().write(true).custom_flags(flags.bits().cast_signed()).open(path);
    let opened: Result<Vec<_>, _> = flags.iter().map(open).collect();
    std::fs::remove_file(path)?;
    let piece = vec![1; 1 << 20];
    (0..span).step_by(piece.len()).try_for_each(|at| file.write_all_at(&piece, at))?;
    file.sync_all()?;
    Ok(opened?)
}

/// Fig. 3.2.
pub(crate) fn interfaces_compared(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let milliseconds = match scale {
        Scale::FULL => 200,
        Scale::SMOKE => 1,
        _ => 50,
    };
    let time = Duration::from_millis(milliseconds);
    let mut interfaces = interfaces(scale.walk_bytes)?;
    let mut figures = Vec::new();
    for threads in [1, 2] {
        let labels = || interfaces.iter().map(|interface| interface.label);
        let mut samples = Samples::of(labels());
        for bytes in SIZES {
            let mut able: Vec<_> = interfaces.iter().filter(|interface| interface.least <= bytes).collect();
            let mut seed = 0;
            let taken = in_turn(scale.rounds, &mut able, |interface| {
                seed += 1 << 8;
                interface.sample((bytes, scale.walk_bytes), threads, time, seed)
            })?;
            samples.add(&bytes_in_words(bytes), able.iter().map(|one| one.label), taken);
        }
        figures.extend(drawn(&samples, threads));
    }
    interfaces.clear();
    Ok(figures)
}

/// The figures of one number of threads.
fn drawn(samples: &Samples<Sample>, threads: u64) -> [Figure; 2] {
    let (suffix, by) = if threads == 1 { ("", "1 thread") } else { ("-2", "2 threads") };
    let title = |what: &str| format!("Random writes by stores and by requests, {by}: {what}");
    let frame = |id: &str, what: &str, unit: &str| {
        frame(&format!("hybrid-fig-3-2{id}{suffix}"), "Fig. 3.2", &title(what), unit, BLOCK)
    };
    let mut bandwidth = frame("", "bandwidth", "MiB/s");
    bandwidth.series = samples.series(|sample| sample.mib_per_second, &[(STORES_CXL, "128 KiB", 14.0 / 2.5)]);
    let mut processor = frame("-cpu", "processor time", "s/GiB");
    processor.series = samples.series(|sample| sample.processor_s_per_gib, &[]);
    let beside = [
        beside_paper(&bandwidth, (STORES_CXL, BLOCK), "512 B", "requests of 512 B reach 105 MiB/s"),
        beside_paper(&bandwidth, (STORES_CXL, BLOCK), "128 KiB", "about 14 over 2.5 GiB/s, 5.6 times, by one thread"),
        explained(&bandwidth, (STORES_CXL, BLOCK), "128 KiB", (14.0 * 1024.0, 2.5 * 1024.0)),
        spread(&bandwidth),
        link_and_copy(&bandwidth, "128 KiB"),
        beside_paper(&bandwidth, (BLOCK_DURABLE, BLOCK), "4 KiB", "all requests are without O_DSYNC"),
    ];
    let how = "A write is a streamed copy and a fence to memory of this machine, as it is or as slow as behind a CXL link (245 ns more, 22.6 GiB/s at most: \
               both are the thesis' numbers, so that its peak is given and not found). A request is a pwrite, one under way for each thread, to a \
               file on this machine's disk past the page cache; the thesis has eight under way, to a raw NVMe disk. The pwrite in /dev/shm is what the \
               system call and the copy take without a disk. Requests of less than 512 B do not exist.";
    let lacking = "The thesis goes up to 8 threads: stores peak at 22.6 GiB/s and fall below 15. Two cores cannot show that: the emulated link has one limit and no \
                   overload, and a third thread waits for a core.";
    let processor_notes = [
        beside_paper(&processor, (STORES_CXL, BLOCK), "512 B", "stores take less in almost all cases"),
        beside_paper(&processor, (STORES_CXL, BLOCK), "128 KiB", "stores take less up to six threads"),
        "Time of this process, that of the kernel for it included; interrupts and the kernel's own threads are not in it. A store spins as long as the \
         emulated link takes, as a core stalls."
            .to_owned(),
        samples.energy(|sample| sample.joules_per_gib, "GiB"),
    ];
    let told = [how.to_owned(), lacking.to_owned()];
    [noted(bandwidth, told.into_iter().chain(beside)), noted(processor, processor_notes)]
}

/// What bounds a large store to the emulated link.
fn link_and_copy(bandwidth: &Figure, place: &str) -> String {
    let both = bandwidth.point(STORES, place).zip(bandwidth.point(STORES_CXL, place));
    both.map_or(String::new(), |(stores, linked)| {
        let in_turn = 1.0 / (1.0 / stores.median + 1.0 / LINK_MIB);
        format!(
            "The emulated link's time begins where the copy ends: a copy of {place} at {:.0} MiB/s and then the link at {LINK_MIB:.0} MiB/s make {in_turn:.0} MiB/s; \
             {:.0} came out. One thread of the thesis reaches 14 GiB/s.",
            stores.median, linked.median
        )
    })
}

/// How much larger requests gain, beside the thesis.
fn spread(bandwidth: &Figure) -> String {
    let both = bandwidth.point(BLOCK, "512 B").zip(bandwidth.point(BLOCK, "128 KiB"));
    both.map_or(String::new(), |(small, large)| {
        format!(
            "Requests of 128 KiB have {:.1} times the bandwidth of requests of 512 B; in the thesis up to 24 times (2.5 GiB/s over 105 MiB/s).",
            large.median / small.median
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::figure::{Point, Series};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidegate_media::emulate::Profile;

    #[test]
    fn every_thread_writes_whole_blocks_within_the_span() {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let write = |at: u64, bytes: &[u8]| {
            assert!(at.is_multiple_of(8192) && at + 8192 <= 32_768 && bytes.len() == 8192);
            assert_eq!(bytes.as_ptr().align_offset(4096), 0);
            // Relaxed: joining the threads orders it.
            WRITES.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let interface = Interface { label: "counted", least: 512, write: Box::new(write) };
        let sample = interface.sample((8192, 32_768), 2, Duration::ZERO, 3).unwrap();
        assert_eq!(WRITES.load(Ordering::Relaxed), 2 * BETWEEN_LOOKS / 8192, "one look at the clock each");
        assert!(sample.mib_per_second > 0.0 && sample.processor_s_per_gib > 0.0);
        let failing = Interface { label: "", least: 1, write: Box::new(|_, _| anyhow::bail!("no room")) };
        assert!(failing.sample((8192, 32_768), 1, Duration::ZERO, 3).is_err());
    }

    #[test]
    fn the_link_is_the_one_that_is_emulated() {
        let emulated = Profile::by_name("cxl").unwrap().write_bytes_per_second.unwrap();
        assert!((LINK_MIB * MIB - emulated as f64).abs() < 1.0);
        let point = |value: f64| vec![Point::exact("128 KiB", value, None)];
        let mut figure = frame("f", "", "", "MiB/s", BLOCK);
        figure.series = [(STORES, LINK_MIB), (STORES_CXL, 9000.0)]
            .map(|(label, value)| Series { label: label.to_owned(), points: point(value) })
            .to_vec();
        assert!(link_and_copy(&figure, "128 KiB").contains("make 11571 MiB/s; 9000 came out"));
        assert_eq!(link_and_copy(&figure, "64 B"), "");
    }

    #[test]
    fn figures_tell_ratios_of_their_own_values() {
        let sample =
            |mib_per_second: f64| vec![Sample { mib_per_second, processor_s_per_gib: 1.0, joules_per_gib: None }];
        let mut samples = Samples::of([STORES_CXL, BLOCK]);
        samples.add("64 B", [STORES_CXL], vec![sample(900.0)]);
        samples.add("512 B", [STORES_CXL, BLOCK], vec![sample(1000.0), sample(10.0)]);
        samples.add("128 KiB", [STORES_CXL, BLOCK], vec![sample(8000.0), sample(500.0)]);
        let [bandwidth, processor] = drawn(&samples, 2);
        assert_eq!((bandwidth.id.as_str(), processor.id.as_str()), ("hybrid-fig-3-2-2", "hybrid-fig-3-2-cpu-2"));
        assert!(bandwidth.notes.iter().any(|note| note.starts_with("Requests of 128 KiB have 50.0 times")));
        assert!(bandwidth.notes.iter().any(|note| note.contains("100 times disk, O_DIRECT's 10.0")));
        assert_eq!(bandwidth.point(STORES_CXL, "128 KiB").unwrap().published, Some(5.6));
        assert!(bandwidth.point(BLOCK, "64 B").is_none());
    }
}
