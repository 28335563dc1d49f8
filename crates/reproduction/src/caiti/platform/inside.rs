//! Inside a request: Fig. 6 (where its time goes), Fig. 7 (a hundred of them one after the other),
//! and the cost of a slot (§ 5.1).

use super::load::{self, Load};
use super::testbed::{Platform, Room, Testbed};
use super::watch::{Moments, Phase, Seen, Sort, Watch};
use super::{CACHE_BYTES, frame, platforms, point, room, writes};
use crate::caiti::stacks::Kind;
use crate::figure::{Chart, Figure, Series};
use crate::{Scale, figure};
use anyhow::Context;
use std::sync::Arc;
use tidegate_baselines::raw::RawPmem;
use tidegate_baselines::staging::{Buffers, Coa, Lru, Pmbd, Pmbd70, Rule};
use tidegate_media::{BlockDevice, Durability, Lba, MappedRegion};
use tidegate_write_cache::{Options, WriteCache, bytes_for};

/// What Fig. 6 compares.
const KINDS: [Kind; 8] =
    [Kind::Pmbd, Kind::Pmbd70, Kind::Lru, Kind::Coa, Kind::Caiti, Kind::CaitiLazy, Kind::CaitiStrict, Kind::Tidegate];

/// What a job saw of `kind`: writes, or reads after the cache was filled by writes.
fn seen(kind: Kind, platform: &Platform, scale: Scale, reads_percent: u32) -> anyhow::Result<Seen> {
    let below = match kind {
        Kind::Caiti | Kind::CaitiLazy | Kind::Tidegate | Kind::Btt => Phase::Bypass,
        _ => Phase::Stall,
    };
    let watch = Arc::new(Watch::new(below));
    let platform = platform.clone().watched(watch.clone());
    // The paper's test writes 4 GB, eight times the cache.
    let room = Room { bytes: 8 * CACHE_BYTES, ..room(1) };
    let load = Load { reads_percent, blocks: room.bytes / 4096, ..writes(scale) };
    load::run(&platform, Testbed::of(kind, &platform, room)?, &load)?;
    Ok(watch.seen())
}

/// The paper's share of a pwrite's time that is "cache eviction and write" (§ 5.2). Its 0 for Caiti
/// is left out: nothing here tells its waits for a slot from its lookups, so no run could differ.
fn published_stall(kind: Kind) -> Option<f64> {
    match kind {
        Kind::Pmbd => Some(40.5),
        Kind::Pmbd70 => Some(25.3),
        Kind::Lru => Some(40.0),
        Kind::Coa => Some(32.7),
        _ => None,
    }
}

/// Fig. 6.
pub fn breakdown(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for platform in platforms()? {
        let writes = KINDS.map(|kind| seen(kind, &platform, scale, 0).map(|seen| (kind, seen)));
        let reads = KINDS.map(|kind| seen(kind, &platform, scale, 100).map(|seen| (kind, seen)));
        let (writes, reads) = (all(writes)?, all(reads)?);
        figures.push(shares("fig-6a", &platform, "Fig. 6a", "Where the time of a write goes", &writes));
        figures.push(shares("fig-6b", &platform, "Fig. 6b", "Where the time of a read goes", &reads));
        figures.extend(sorts(&platform, &writes));
    }
    figures.push(stalls(scale)?);
    Ok(figures)
}

/// The share of stalls, one fitted number after the other.
fn stalls(scale: Scale) -> anyhow::Result<Figure> {
    let steps = [
        ("told", Platform::told()?),
        ("streaming fitted", Platform::fitted()?),
        ("and software", Platform::fitted_to_caiti()?),
        ("and BTT", Platform::fitted_to_btt()?),
    ];
    let mut figure = frame("stalls", &steps[0].1, "Fig. 6a", "", Chart::Bars, "% of the time");
    (figure.id, figure.baseline) = ("platform-stalls".to_owned(), None);
    figure.title = "What explains the differences to the paper: the share of a write's time that is a stall".to_owned();
    figure.notes = vec![
        "Places as in \"What explains the differences to the paper: time per request\". The whole is the time of the writes, which has their waiting for \
         the journal's flushes in it, as in the paper's bars. A stall waits for the translation table: where that is slower, the share grows."
            .to_owned(),
    ];
    for kind in KINDS.into_iter().filter(|kind| published_stall(*kind).is_some()) {
        let share = |(place, platform): &(&str, Platform)| {
            let seen = seen(kind, platform, scale, 0)?;
            let whole = seen.phases.iter().sum::<u64>();
            let stalled = seen.phases[Phase::Stall as usize] as f64 / whole.max(1) as f64;
            Ok(point(*place, stalled * 100.0, published_stall(kind)))
        };
        let points = steps.iter().map(share).collect::<anyhow::Result<Vec<figure::Point>>>()?;
        figure.series.push(Series { label: kind.label().to_owned(), points });
    }
    Ok(figure)
}

type Found = Vec<(Kind, Seen)>;

fn all(found: [anyhow::Result<(Kind, Seen)>; KINDS.len()]) -> anyhow::Result<Found> {
    found.into_iter().collect()
}

/// The parts of each kind's time, and beside them the journal's flushes.
fn shares(name: &str, platform: &Platform, paper: &str, title: &str, found: &Found) -> Figure {
    let mut figure = frame(name, platform, paper, title, Chart::Stacks, "% of the time");
    figure.baseline = None;
    figure.notes.push(
        "Watching costs no virtual time. Writes wait for flushes of the journal but in Tidegate (\"cache flush\"), reads do not; the flushes' own time is \
         given beside, as a share of the requests'. The paper's number is its share of \"cache eviction and write\"."
            .to_owned(),
    );
    let total = |seen: &Seen| seen.phases.iter().sum::<u64>().max(1) as f64;
    for phase in Phase::ALL {
        let share = |(kind, seen): &(Kind, Seen)| {
            let published = (phase == Phase::Stall && name == "fig-6a").then(|| published_stall(*kind)).flatten();
            point(kind.label(), seen.phases[phase as usize] as f64 / total(seen) * 100.0, published)
        };
        let series = Series { label: phase.label().to_owned(), points: found.iter().map(share).collect() };
        if series.points.iter().any(|point| point.median > 0.0) {
            figure.series.push(series);
        }
    }
    let flushes = |(kind, seen): &(Kind, Seen)| point(kind.label(), seen.flushes_ns as f64 / total(seen) * 100.0, None);
    figure.series.push(Series { label: figure::BESIDE.to_owned(), points: found.iter().map(flushes).collect() });
    figure
}

/// Fig. 6c and 6d.
fn sorts(platform: &Platform, found: &Found) -> [Figure; 2] {
    let mut counts = frame("fig-6c", platform, "Fig. 6c", "Which way writes went", Chart::Stacks, "% of the writes");
    let title = "Mean time inside the device, by the way a write went";
    let mut means = frame("fig-6d", platform, "Fig. 6d", title, Chart::Bars, "ns");
    for (label, of) in [
        (Phase::CacheWrite, (|seen| seen.cached) as fn(&Seen) -> Sort),
        (Phase::Stall, |seen| seen.stalled),
        (Phase::Bypass, |seen| seen.bypassed),
    ] {
        let count = |(kind, seen): &(Kind, Seen)| {
            let all = seen.cached.count + seen.stalled.count + seen.bypassed.count;
            point(kind.label(), of(seen).count as f64 / all.max(1) as f64 * 100.0, None)
        };
        let mean =
            |(kind, seen): &(Kind, Seen)| point(kind.label(), of(seen).ns as f64 / of(seen).count.max(1) as f64, None);
        let series = |points| Series { label: label.label().to_owned(), points };
        counts.series.push(series(found.iter().map(count).collect()));
        means.series.push(series(found.iter().map(mean).collect()));
    }
    counts.baseline = None;
    means.baseline = None;
    [counts, means]
}

/// The series of a request's way from the device to the program.
pub const WAY_BACK: &str = "software, on the way back";

/// Fig. 7.
pub fn timeline(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let platform = Platform::fitted()?;
    [Kind::Caiti, Kind::Btt].into_iter().map(|kind| timeline_of(kind, &platform, scale)).collect()
}

fn timeline_of(kind: Kind, platform: &Platform, scale: Scale) -> anyhow::Result<Figure> {
    let seen = seen(kind, platform, scale, 0)?;
    let origin = seen.moments.first().context("requests were watched")?.begun;
    let name = format!("fig-7-{}", kind.label().to_lowercase());
    let title = format!("A hundred writes one after the other: {}", kind.label());
    let mut figure = frame(&name, platform, "Fig. 7", &title, Chart::Spans, "µs");
    figure.baseline = None;
    let span = |label: &str, ends: &dyn Fn(&Moments) -> Option<(u64, u64)>| {
        let of_request = |(nth, moments): (usize, &Moments)| {
            let (low, high) = ends(moments)?;
            let [low, high] = [low, high].map(|ns| ns.saturating_sub(origin) as f64 / 1e3);
            Some(figure::Point { low, high, ..point(nth.to_string(), high - low, None) })
        };
        Series { label: label.to_owned(), points: seen.moments.iter().enumerate().filter_map(of_request).collect() }
    };
    figure.series.push(span(Phase::Software.label(), &|one| Some((one.begun, one.arrived))));
    if kind == Kind::Btt {
        figure.series.push(span("device write", &|one| Some((one.arrived, one.done))));
    } else {
        figure.series.push(span(Phase::CacheWrite.label(), &|one| Some((one.arrived, one.filled.max(one.arrived)))));
        figure.series.push(span(Phase::Enqueue.label(), &|one| Some((one.filled.max(one.arrived), one.done))));
        let evicted = |one: &Moments| {
            let end = seen.evictions.iter().find(|(lba, end)| *lba == one.lba && *end >= one.filled)?.1;
            Some((one.done, end.max(one.done)))
        };
        figure.series.push(span("on its way to PMem", &evicted));
    }
    figure.series.push(span(WAY_BACK, &|one| Some((one.done, one.back.max(one.done)))));
    figure.series.retain(|series| !series.points.is_empty());
    let (mut before, mut all) = (0, 0);
    for one in &seen.moments {
        before += one.arrived - one.begun;
        all += one.back.max(one.done) - one.begun;
    }
    let share = before as f64 / f64::from(u32::try_from(all).unwrap_or(u32::MAX)) * 100.0;
    figure.notes.push(format!(
        "{share:.0} % of a write's time pass before it reaches the device; in the paper, 54 % of Caiti's. How the software's time is divided between the way \
         there and the way back was measured on another machine."
    ));
    Ok(figure)
}

/// § 5.1: metadata of a slot.
pub fn metadata(_: Scale) -> anyhow::Result<Vec<Figure>> {
    let slots = u32::try_from(CACHE_BYTES / 4096)?;
    let memory = MappedRegion::anonymous(bytes_for(slots, 4096))?;
    let ours = WriteCache::create(memory, device()?, Options::new([1; 16], slots))?.metadata_per_slot();
    let mut figure = frame("metadata", &Platform::told()?, "§ 5.1", "Metadata of a slot", Chart::Bars, "bytes");
    figure.id = "metadata".to_owned();
    figure.title = "Metadata of a slot".to_owned();
    figure.baseline = None;
    figure.notes = vec![
        "Counted in the code that runs here, with every slot in use: the transit cache has a header, a link and a share of the sets; those that stage a \
         state, a place in the table, a place in the list of free slots, and the lists of their rule. Caiti is the transit cache with the published \
         rules, and has the same slots. The paper's numbers are of its kernel code: Caiti 102 bytes (40 of them a lock, 33 for the work queue), PMBD \
         and LRU 84, COA 102."
            .to_owned(),
    ];
    let bar = |label: &str, bytes: f64| Series { label: label.to_owned(), points: vec![point("bytes", bytes, None)] };
    figure.series = vec![
        bar(Kind::Tidegate.label(), ours),
        bar(Kind::Caiti.label(), ours),
        bar(Kind::Pmbd.label(), metadata_of::<Pmbd>(slots)?),
        bar(Kind::Pmbd70.label(), metadata_of::<Pmbd70>(slots)?),
        bar(Kind::Lru.label(), metadata_of::<Lru>(slots)?),
        bar(Kind::Coa.label(), metadata_of::<Coa>(slots)?),
    ];
    Ok(vec![figure])
}

/// A device below caches of which only the metadata are looked at.
fn device() -> anyhow::Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(RawPmem::new(MappedRegion::anonymous(8 * CACHE_BYTES)?, 4096)?))
}

/// Bytes beside each of `slots` slots, after more blocks were written than there are slots.
fn metadata_of<P: Rule>(slots: u32) -> anyhow::Result<f64> {
    let memory = Arc::new(MappedRegion::anonymous(CACHE_BYTES)?);
    let cache = Buffers::<P>::over(memory, device()?, slots)?;
    (0..8 * CACHE_BYTES / 4096).try_for_each(|lba| cache.write(Lba(lba), &[1; 4096], Durability::Volatile))?;
    Ok(cache.metadata_bytes() as f64 / f64::from(slots))
}
