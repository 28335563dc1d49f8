//! The topic `transit`: the gain and cost of passing blocks through DRAM, over writing them to the
//! block translation table at once.
//!
//! Times of single writes are taken with the clock on both sides (some 25 ns of each). Everything
//! that drains runs as in the program: a [`DrainPool`](tidegate_background::DrainPool) of one
//! thread, free to use the other core; an acknowledgement is compared with it there.

mod arrivals;
mod floor;
mod testbed;

use crate::target::{Method, Outcome, Row, Target, Topic};
use arrivals::Arrivals;
use floor::DrainedArray;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testbed::{Percentile, Testbed, idle_cpu_nanoseconds};
use tidegate_measure::Pairs;
use tidegate_measure::workload::{Effort, on_core};
use tidegate_media::BlockDevice;
use tidegate_sim::Intercepted;

/// Slots of the caches measured here: 8 MiB.
const SLOTS: u32 = 2048;

/// Writes in a burst that the cache takes without bypass.
const BURST: usize = 128;

/// The topic's table.
pub const TOPIC: Topic = Topic {
    name: "transit",
    about: "the transit cache: 4 KiB writes, random over 1 GiB, acknowledged from DRAM",
    rows: &[
        Row {
            name: "acknowledgement",
            over: "cached write, in bursts that are drained meanwhile",
            under: "4 KiB copy into as much DRAM, drained in the same way",
            target: Target::AtMost(1.5),
            method: Method::Here(acknowledgement),
        },
        Row {
            name: "sustained-1-writer",
            over: "time of writes through the cache, the last flush included",
            under: "time of the same writes to the BTT alone",
            target: Target::AtMost(1.1),
            method: Method::Here(|effort| sustained(effort, 1)),
        },
        Row {
            name: "sustained-1-bypassed",
            over: "writes past the full cache",
            under: "write of one writer",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| bypassed(effort, 1)),
        },
        Row {
            name: "sustained-2-writers",
            over: "time of writes through the cache, the last flush included",
            under: "time of the same writes to the BTT alone",
            target: Target::AtMost(1.15),
            method: Method::Here(|effort| sustained(effort, 2)),
        },
        Row {
            name: "sustained-2-bypassed",
            over: "writes past the full cache",
            under: "write of two writers",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| bypassed(effort, 2)),
        },
        Row {
            name: "optane-mean",
            over: "cached write, mean",
            under: "BTT write on emulated Optane, mean",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| emulated(effort, "optane", Percentile::Mean)),
        },
        Row {
            name: "optane-99.99",
            over: "cached write, 99.99th percentile",
            under: "BTT write on emulated Optane, 99.99th percentile",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| emulated(effort, "optane", Percentile::P9999)),
        },
        Row {
            name: "pcm-mean",
            over: "cached write, mean",
            under: "BTT write on emulated PCM, mean",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| emulated(effort, "pcm", Percentile::Mean)),
        },
        Row {
            name: "pcm-99.99",
            over: "cached write, 99.99th percentile",
            under: "BTT write on emulated PCM, 99.99th percentile",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| emulated(effort, "pcm", Percentile::P9999)),
        },
        Row {
            name: "residence-1",
            over: "time in the cache, 99th percentile",
            under: "block at 1 write/s",
            target: Target::AtMost(1.0),
            method: Method::Here(|_| residence(1.0, 2)),
        },
        Row {
            name: "residence-100",
            over: "time in the cache, 99th percentile",
            under: "block at 100 writes/s",
            target: Target::AtMost(1.0),
            method: Method::Here(|_| residence(100.0, 100)),
        },
        Row {
            name: "residence-10000",
            over: "time in the cache, 99th percentile",
            under: "block at 10,000 writes/s",
            target: Target::AtMost(1.0),
            method: Method::Here(|_| residence(1e4, 5_000)),
        },
        Row {
            name: "residence-100000",
            over: "time in the cache, 99th percentile",
            under: "block at 100,000 writes/s",
            target: Target::AtMost(1.0),
            method: Method::Here(|_| residence(1e5, 50_000)),
        },
        Row {
            name: "wake-ups",
            over: "threads woken",
            under: "1,000 writes under load",
            target: Target::AtMost(5.0),
            method: Method::Here(wake_ups),
        },
        Row {
            name: "idle",
            over: "nanoseconds of CPU",
            under: "second of silence",
            target: Target::AtMost(0.0),
            method: Method::Here(|_| idle()),
        },
        Row {
            name: "flush-512K",
            over: "time of a flush",
            under: "512 KiB of random writes",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| flush(effort, 512 << 10)),
        },
        Row {
            name: "flush-4M",
            over: "time of a flush",
            under: "4 MiB of random writes",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| flush(effort, 4 << 20)),
        },
        Row {
            name: "flush-32M",
            over: "time of a flush",
            under: "32 MiB of random writes",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| flush(effort, 32 << 20)),
        },
        Row {
            name: "flush-128M",
            over: "time of a flush",
            under: "128 MiB of random writes",
            target: Target::AtMost(1.0),
            method: Method::Here(|effort| flush(effort, 128 << 20)),
        },
        Row {
            name: "metadata",
            over: "bytes of metadata",
            under: "slot",
            target: Target::AtMost(32.0),
            method: Method::Here(|_| metadata()),
        },
    ],
};

fn acknowledgement(effort: Effort) -> anyhow::Result<Outcome> {
    // Left to the scheduler, who drains is now beside the writer and now in its place, and then not
    // there while it writes.
    let drained = || -> anyhow::Result<(Testbed, DrainedArray)> {
        let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), SLOTS)?;
        Ok((testbed, DrainedArray::new(SLOTS, BURST, Arc::new(tidegate_measure::medium::btt()?))?))
    };
    let (testbed, array) = on_core(1, drained)?;
    let bursts = (effort.steps as usize / BURST).max(1);
    // Bursts begin when everything of the one before is drained: the cache takes all of this one.
    let cached = || on_core(0, || testbed.bursts(bursts, BURST));
    let copied = || on_core(0, || array.bursts(bursts, BURST));
    Ok(Outcome::ratio(&Pairs::alternate(effort.pairs, cached, copied), "ns"))
}

fn sustained(effort: Effort, writers: usize) -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), SLOTS)?;
    let cached = || testbed.sustained(&*testbed.cache, effort.steps, writers);
    let alone = || testbed.sustained(&*testbed.device, effort.steps, writers);
    Ok(Outcome::ratio(&Pairs::alternate(effort.pairs, cached, alone), "ns"))
}

fn bypassed(effort: Effort, writers: usize) -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), SLOTS)?;
    testbed.sustained(&*testbed.cache, effort.steps, writers);
    let before = testbed.cache.counters();
    testbed.sustained(&*testbed.cache, effort.steps, writers);
    let after = testbed.cache.counters();
    let writes = after.cached + after.bypassed - before.cached - before.bypassed;
    Ok(Outcome::count(after.bypassed - before.bypassed, writes))
}

fn emulated(effort: Effort, profile: &str, which: Percentile) -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::slow_btt(profile)?), SLOTS)?;
    let writes = (effort.steps / 4).max(20_000);
    let cached = || testbed.latency(&*testbed.cache, writes, which);
    let alone = || testbed.latency(&*testbed.device, writes, which);
    Ok(Outcome::ratio(&Pairs::alternate(effort.pairs, cached, alone), "ns"))
}

/// Samples of a residence.
const STAYS: usize = 9;

/// The 99th percentile of the time in the cache, each sample over `writes` writes.
fn residence(rate: f64, writes: u32) -> anyhow::Result<Outcome> {
    let device = Arc::new(Intercepted { device: Arc::new(tidegate_measure::medium::btt()?), by: Arrivals::new() });
    let testbed = Testbed::new(device.clone(), SLOTS)?;
    let samples =
        (0..STAYS).map(|_| longest_stays(&testbed, &device.by, rate, writes)).collect::<anyhow::Result<Vec<f64>>>()?;
    Ok(Outcome::figure(&samples, "ms"))
}

fn longest_stays(testbed: &Testbed, arrivals: &Arrivals, rate: f64, writes: u32) -> anyhow::Result<f64> {
    let gap = Duration::from_secs_f64(1.0 / rate);
    arrivals.take_stays();
    let mut due = Instant::now();
    for _ in 0..writes {
        testbed.write_stamped(arrivals);
        due += gap;
        testbed::wait_until(due);
    }
    testbed.cache.flush()?;
    let mut stays = arrivals.take_stays();
    stays.sort_by(f64::total_cmp);
    let p99 = stays[(stays.len() * 99 / 100).min(stays.len() - 1)];
    Ok(p99 / 1e6)
}

fn wake_ups(effort: Effort) -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), SLOTS)?;
    let before = testbed.pool.wake_ups();
    let writes = u64::from(effort.steps);
    testbed.sustained(&*testbed.cache, effort.steps, 1);
    Ok(Outcome::count((testbed.pool.wake_ups() - before) * 1000, writes))
}

fn idle() -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), SLOTS)?;
    testbed.sustained(&*testbed.cache, 10_000, 1);
    Ok(Outcome::count(idle_cpu_nanoseconds(&testbed.pool, Duration::from_secs(2))?, 2))
}

fn flush(effort: Effort, bytes: u64) -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), SLOTS)?;
    testbed.sustained(&*testbed.cache, effort.steps, 1);
    let times: Vec<f64> = (0..effort.pairs).map(|_| testbed.flush_after(bytes / 4096)).collect();
    Ok(Outcome::figure(&times, "ms"))
}

/// Milliseconds of a flush after `writes` writes through a cache of `slots` slots, each time it is
/// called.
pub(crate) fn flush_milliseconds(slots: u32, writes: u64) -> anyhow::Result<impl Fn() -> f64> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), slots)?;
    Ok(move || testbed.flush_after(writes))
}

fn metadata() -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(Arc::new(tidegate_measure::medium::btt()?), SLOTS)?;
    Ok(Outcome::figure(&[testbed.cache.metadata_per_slot()], "bytes"))
}
