//! Numbers that the layers of a volume keep about their work, each with its name, unit and meaning,
//! so that code that shows them needs to know none of them.

use serde::{Deserialize, Serialize};
use tidegate_btt::Btt;
use tidegate_media::{BlockDevice, MappedRegion, Region};
use tidegate_write_cache::WriteCache;

/// One number.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Which layer and what, in words joined by underscores: `region_fences`.
    pub name: String,
    /// What it counts.
    pub help: String,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// What one of it is.
    pub unit: Unit,
    /// Which of several such numbers it is, if there are several: a word, and what it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<(String, String)>,
    /// The number.
    pub value: u64,
}

/// How a number behaves.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Time, in nanoseconds.
    Nanoseconds,
}

impl Metric {
    /// A number of things that only grows.
    pub fn counter(name: &str, help: &str, unit: Unit, value: u64) -> Metric {
        Metric { name: name.to_owned(), help: help.to_owned(), kind: MetricKind::Counter, unit, label: None, value }
    }

    /// A number of things there are now.
    pub fn gauge(name: &str, help: &str, unit: Unit, value: u64) -> Metric {
        Metric { kind: MetricKind::Gauge, ..Metric::counter(name, help, unit, value) }
    }

    /// What came since `before`, if it only grows; else how it is now.
    pub fn since(&self, before: &Metric) -> Metric {
        match self.kind {
            MetricKind::Counter => Metric { value: self.value.saturating_sub(before.value), ..self.clone() },
            MetricKind::Gauge => self.clone(),
        }
    }

    /// The one of several such numbers that is about the `label` called `of`.
    pub fn labelled(self, label: &str, of: &str) -> Metric {
        Metric { label: Some((label.to_owned(), of.to_owned())), ..self }
    }

    /// The number, if it only grows.
    pub fn counted(&self) -> Option<u64> {
        (self.kind == MetricKind::Counter).then_some(self.value)
    }

    /// The name with its unit: `region_stored_bytes`.
    fn name_with_unit(&self) -> String {
        match self.unit {
            Unit::Count => self.name.clone(),
            Unit::Bytes => format!("{}_bytes", self.name),
            Unit::Nanoseconds => format!("{}_seconds", self.name),
        }
    }

    /// The name with its unit, and which of several metrics it is: `disk_errors_write`.
    pub fn full_name(&self) -> String {
        let name = self.name_with_unit();
        self.label.as_ref().map_or(name.clone(), |(_, of)| format!("{name}_{of}"))
    }

    /// The number in the unit that the full name says.
    pub fn in_unit(&self) -> f64 {
        match self.unit {
            Unit::Count | Unit::Bytes => self.value as f64,
            Unit::Nanoseconds => self.value as f64 / 1e9,
        }
    }

    /// Returns the name that Prometheus is told.
    pub fn metric_name(&self) -> String {
        match self.kind {
            MetricKind::Counter => format!("tidegate_{}_total", self.name_with_unit()),
            MetricKind::Gauge => format!("tidegate_{}", self.name_with_unit()),
        }
    }

    /// Returns the kind that Prometheus is told.
    pub fn metric_kind(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// A layer of a volume that keeps numbers.
pub trait MetricSource: Send + Sync {
    /// All its numbers, always the same ones in the same order.
    fn metrics(&self) -> Vec<Metric>;
}

impl<R: Region> MetricSource for Btt<R> {
    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::counter("table_moved_blocks", "Blocks moved to level wear", Unit::Count, self.moved())]
    }
}

impl MetricSource for WriteCache<MappedRegion> {
    fn metrics(&self) -> Vec<Metric> {
        let tidegate_write_cache::Counters {
            cached,
            replaced,
            bypassed,
            forced,
            evicted,
            stalled,
            stalled_ns,
            read_hits,
            wake_ups,
            flushes,
            slots_used,
            slots_limit,
        } = self.counters();
        let counter = |name, help, value| Metric::counter(name, help, Unit::Count, value);
        let gauge = |name, help, value| Metric::gauge(name, help, Unit::Count, value);
        let block_bytes = self.geometry().block_size.into();
        vec![
            counter("cache_written_blocks", "Blocks written into slots", cached),
            counter("cache_replaced_blocks", "Of these, blocks in the place of an older version", replaced),
            counter(
                "cache_bypassed_blocks",
                "Blocks written past the cache because no slot or no core was free",
                bypassed,
            ),
            counter("cache_forced_blocks", "Blocks written past the cache because of FUA", forced),
            counter("cache_evicted_blocks", "Blocks written from slots to the region", evicted),
            counter("cache_stalls", "Requests that had to evict or wait for an eviction", stalled),
            Metric::counter("cache_stall", "Time of those", Unit::Nanoseconds, stalled_ns),
            counter("cache_read_blocks", "Blocks read from slots", read_hits),
            counter("cache_wake_ups", "Times a writer woke a draining thread", wake_ups),
            counter("cache_flushes", "Flushes", flushes),
            gauge("cache_dirty_slots", "Slots whose block is not yet in the region", slots_used),
            gauge("cache_slots_limit", "Slots that may be used now", slots_limit),
            Metric::gauge("cache_block", "Bytes of a slot's block", Unit::Bytes, block_bytes),
        ]
    }
}
