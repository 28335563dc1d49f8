//! The arithmetic of costs, by hand: what each verb charges on one core and on two, and that every
//! number has a source.

use super::*;
use crate::{Disk as PlainDisk, Region as PlainRegion};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_media::{BlockDevice, Durability, Lba, Region};
use tidegate_virtual_cores::{Machine, Order, Plan};

/// What the atomics of the region below may take, where they are those of virtual cores.
const POINTS_NS: u64 = 10;

/// Clocks of a few cores, and which of them runs.
#[derive(Default)]
struct Clocks {
    ns: [AtomicU64; 3],
    running: AtomicUsize,
}

impl Timeline for &'static Clocks {
    fn now_ns(&self) -> u64 {
        self.ns[self.running.load(Ordering::Relaxed)].load(Ordering::Relaxed)
    }
    fn charge(&self, ns: u64) {
        self.ns[self.running.load(Ordering::Relaxed)].fetch_add(ns, Ordering::Relaxed);
    }
    fn thread(&self) -> Option<usize> {
        Some(self.running.load(Ordering::Relaxed)).filter(|core| *core < self.ns.len())
    }
}

fn figure(ns: u64) -> Figure {
    Figure { ps: ns * 1000, source: "made up".into() }
}

/// Every act a power of ten apart or a prime, so that a sum tells its parts.
fn processor() -> CoreCosts {
    let ns = [2, 3, 5, 7, 11, 13, 1, 1, 1, 1, 1, 1, 17];
    CoreCosts { figures: ns.map(figure), cached_lines: 16, flush_keeps: true }
}

fn memory() -> Memory {
    Memory {
        fetch: figure(1000),
        fetch_next: figure(100),
        arrival: figure(10_000),
        write_back: figure(20_000),
        write_line: figure(400),
        read_line: figure(0),
        line_bytes: 64,
        ahead_lines: 1000,
    }
}

struct Bench {
    region: TimedRegion<PlainRegion, &'static Clocks>,
    clocks: &'static Clocks,
}

impl Bench {
    fn new(processor: CoreCosts, memory: Memory) -> Bench {
        let clocks: &'static Clocks = Box::leak(Box::default());
        Bench { region: TimedRegion::new(PlainRegion::new(1 << 16), processor, memory, clocks), clocks }
    }

    fn plain() -> Bench {
        Bench::new(processor(), memory())
    }

    /// What `act` takes on core `core`.
    fn ns(&self, core: usize, act: impl FnOnce(&dyn Region)) -> u64 {
        self.clocks.running.store(core, Ordering::Relaxed);
        let before = self.clocks.now_ns();
        act(&self.region);
        self.clocks.now_ns() - before
    }
}

#[test]
fn a_load_waits_for_a_line_once() {
    let bench = Bench::plain();
    let load = |region: &dyn Region| assert!(region.load_u64(64).is_ok());
    assert_eq!(bench.ns(0, load), 7 + 1000);
    assert_eq!(bench.ns(0, load), 7);
    assert_eq!(bench.ns(1, load), 7 + 1, "from another core");
    assert_eq!(bench.ns(0, load), 7, "which take nothing away by a load");
    bench.ns(1, |region| region.store_u64(64, 1));
    assert_eq!(bench.ns(0, load), 7 + 1, "but by a store");
    bench.ns(1, |region| region.stream(64, &[0; 64]));
    assert_eq!(bench.ns(0, load), 7 + 1000, "a streamed line is near nobody");
}

#[test]
fn a_thread_whose_time_is_not_told_costs_nothing() {
    let bench = Bench::plain();
    bench.clocks.running.store(usize::MAX, Ordering::Relaxed);
    bench.region.stream(0, &[1; 640]);
    bench.region.fence().unwrap();
    assert_eq!(bench.ns(0, |region| region.fence().unwrap()), 13, "nor does it keep the medium busy");
}

#[test]
fn a_run_of_lines_costs_its_first_and_the_others() {
    let bench = Bench::plain();
    let mut out = [0; 256];
    assert_eq!(bench.ns(0, |region| region.read(0, &mut out).unwrap()), 4 * 5 + 1000 + 3 * 100);
    assert_eq!(bench.ns(0, |region| region.read(0, &mut out).unwrap()), 4 * 5);
    assert_eq!(bench.ns(0, |region| region.read(192, &mut out).unwrap()), 4 * 5 + 1000 + 2 * 100);
}

#[test]
fn far_lines_push_near_ones_out() {
    let bench = Bench::plain();
    let load = |at| move |region: &dyn Region| assert_eq!(region.load_u64(at), Ok(0));
    bench.ns(0, load(0));
    bench.ns(0, load(16 * 64));
    assert_eq!(bench.ns(0, load(0)), 7 + 1000);
}

#[test]
fn a_fence_waits_for_what_its_own_core_sent() {
    let bench = Bench::plain();
    let fence = |region: &dyn Region| region.fence().unwrap();
    assert_eq!(bench.ns(0, fence), 13);
    assert_eq!(bench.ns(0, |region| region.stream(0, &[1; 128])), 2 * 2);
    assert_eq!(bench.ns(1, fence), 13, "another core sent nothing");
    // The lines leave the core's hands at 17 ns, are in the medium 800 ns later, and arrive after
    // 10 µs.
    assert_eq!(bench.ns(0, fence), 800 + 10_000);
    assert_eq!(bench.ns(0, fence), 13, "nothing is left to wait for");
}

#[test]
fn a_flush_begins_when_the_line_is_there() {
    let bench = Bench::plain();
    assert_eq!(bench.ns(0, |region| region.store_u64(0, 1)), 7, "a store does not wait for its line");
    assert_eq!(bench.ns(0, |region| region.flush(0, 8)), 11);
    // The line came at 1,007 ns, was sent by 1,407, arrived at 21,407.
    assert_eq!(bench.ns(0, |region| region.fence().unwrap()), 21_407 - 18);
}

#[test]
fn a_flush_keeps_its_line_or_drops_it() {
    for (flush_keeps, then) in [(true, 7), (false, 7 + 1000)] {
        let bench = Bench::new(CoreCosts { flush_keeps, ..processor() }, memory());
        bench.ns(0, |region| region.store_u64(0, 1));
        bench.ns(0, |region| region.flush(0, 8));
        assert_eq!(bench.ns(0, |region| assert_eq!(region.load_u64(0), Ok(1))), then);
    }
}

#[test]
fn cores_share_the_medium() {
    let bench = Bench::plain();
    bench.ns(0, |region| region.stream(0, &[1; 640]));
    bench.ns(1, |region| region.stream(4096, &[1; 64]));
    // Core 1's line was there at 2 ns, and the medium had begun with it when ten lines of core 0
    // came at 20 ns.
    assert_eq!(bench.ns(1, |region| region.fence().unwrap()), 11 * 400 + 10_000);
}

#[test]
fn nobody_waits_for_what_a_core_that_runs_ahead_sends_only_later() {
    let mut processor = processor();
    processor.figures[Act::StreamLine as usize] = figure(1000);
    let bench = Bench::new(processor, Memory { ahead_lines: 1, ..memory() });
    (0..3).for_each(|block| assert!(bench.ns(0, |region| region.stream(block * 640, &[1; 640])) >= 10_000));
    assert_eq!(
        bench.ns(1, |region| region.flush(4096, 64)),
        11,
        "ten lines of core 0 come at 10 µs, and the next later"
    );
    assert_eq!(bench.ns(1, |region| region.fence().unwrap()), 400 + 20_000);
}

#[test]
fn virtual_cores_are_charged() {
    let region = Arc::new(TimedRegion::new(PlainRegion::new(1 << 16), processor(), memory(), VirtualTime));
    region.stream(0, &[1; 4096]);
    let mut machine = Machine::new(Plan::new(1, 2, Order::Timed));
    for core in 0..2 {
        let region = region.clone();
        machine.spawn(core, move || {
            region.stream(u64::from(core) * 4096, &[1; 640]);
            region.fence().unwrap();
        });
    }
    // What was streamed before, off the cores, took no time; the second core's lines go behind the
    // first's.
    let ended = machine.run();
    let alone = 10 * 2 + 10 * 400 + 10_000;
    assert!(ended.clocks_ns[0].abs_diff(alone) <= POINTS_NS, "{:?}", ended.clocks_ns);
    assert!(ended.clocks_ns[1].abs_diff(alone + 10 * 400) <= POINTS_NS, "{:?}", ended.clocks_ns);
}

#[test]
fn a_medium_of_long_lines_writes_them_whole() {
    let bench = Bench::new(processor(), Memory { line_bytes: 256, ..memory() });
    bench.ns(0, |region| region.stream(192, &[1; 128]));
    assert_eq!(bench.ns(0, |region| region.fence().unwrap()), 2 * 400 + 10_000);
}

#[test]
fn a_core_runs_ahead_of_the_medium_only_so_far() {
    let bench = Bench::new(processor(), Memory { ahead_lines: 4, ..memory() });
    assert_eq!(bench.ns(0, |region| region.stream(0, &[1; 640])), 10 * 2 + (10 - 4) * 400);
}

#[test]
fn parts_of_a_nanosecond_add_up() {
    let mut processor = processor();
    processor.figures[Act::Word as usize].ps = 300;
    let bench = Bench::new(processor, memory());
    bench.ns(0, |region| region.store_u64(0, 1));
    let all: u64 = (0..10).map(|_| bench.ns(0, |region| region.store_u64(0, 1))).sum();
    assert_eq!(all, 3);
}

#[test]
fn a_disk_has_one_queue_and_a_latency() {
    let clocks: &'static Clocks = Box::leak(Box::default());
    let disk = Disk {
        name: "made up".into(),
        read: figure(500),
        write: figure(1000),
        flush: figure(5000),
        transfer_4k: figure(100),
    };
    let device = TimedDisk::with_timeline(PlainDisk::new(16, 4096), disk, processor(), clocks);
    let ns = |core: usize, act: &dyn Fn()| {
        clocks.running.store(core, Ordering::Relaxed);
        let before = clocks.now_ns();
        act();
        clocks.now_ns() - before
    };
    let data = Mutex::new(vec![0; 8192]);
    let write = |durability| device.write(Lba(0), &data.lock().unwrap(), durability).unwrap();
    assert_eq!(ns(0, &|| write(Durability::Volatile)), 17 + 200 + 1000);
    assert_eq!(ns(1, &|| write(Durability::Volatile)), 17 + 200 + 200 + 1000, "behind the other core's");
    assert_eq!(ns(2, &|| device.read(Lba(0), &mut data.lock().unwrap()).unwrap()), 17 + 3 * 200 + 500);
    assert_eq!(ns(0, &|| device.flush().unwrap()), 17 + 5000);
    assert_eq!(ns(0, &|| write(Durability::Fua)), 17 + 200 + 1000 + 17 + 5000);
}

#[test]
fn every_number_names_its_source() {
    for name in PROFILES {
        let profile = Profile::by_name(name).unwrap();
        assert_eq!(profile.name, name);
        let printed = profile.to_string();
        for (group, act, figure) in profile.figures() {
            assert!(!figure.source.is_empty(), "{name}: {group} {act}");
            assert!(printed.contains(&format!("{group} {act}")), "{printed}");
        }
        assert!(profile.memory.line_bytes.is_power_of_two() && profile.memory.line_bytes >= 64);
        assert!(profile.memory.fetch.ps >= profile.dram.fetch.ps, "{name}: persistent memory is no faster than DRAM");
    }
    for name in DISKS {
        let disk = disk_by_name(name).unwrap();
        assert!(
            [&disk.read, &disk.write, &disk.flush, &disk.transfer_4k].iter().all(|figure| !figure.source.is_empty())
        );
    }
}

#[test]
fn an_unknown_name_is_answered_with_those_there_are() {
    let error = Profile::by_name("abacus").unwrap_err().to_string();
    assert!(error.contains("abacus") && error.contains("xeon-optane"), "{error}");
    assert!(disk_by_name("tape").unwrap_err().to_string().contains("hdd"));
}
