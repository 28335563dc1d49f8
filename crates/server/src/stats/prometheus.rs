//! Numbers in Prometheus's text format, version 0.0.4.

use crate::sockets::connections::ConnectionCounts;
use crate::stats::latency::Latencies;
use crate::stats::registry::Metric;
use crate::stats::snapshot::{RequestCounts, Snapshot, VolumeCounts};
use std::fmt::{Display, Write};

/// The buckets end at powers of two nanoseconds: from 1 µs to 17 s.
const BUCKET_BITS: std::ops::RangeInclusive<u32> = 10..=34;

/// A snapshot in Prometheus's text format.
pub fn text(snapshot: &Snapshot) -> String {
    let mut text = MetricsText::default();
    text.connections(&snapshot.connections);
    text.family("tidegate_uptime_seconds", "gauge", "Seconds since clients could connect");
    text.sample("tidegate_uptime_seconds", &[], snapshot.up_ns as f64 / 1e9);
    text.volumes(&snapshot.volumes);
    text.requests(&snapshot.volumes);
    let things: Vec<_> = snapshot.volumes.iter().map(Measured::of).collect();
    text.readings(&things);
    text.into_string()
}

/// One of several things that count.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// What tells it from the others.
    pub labels: Vec<(&'a str, String)>,
    /// What it counts.
    pub metrics: Vec<Metric>,
}

impl Measured<'_> {
    fn of(volume: &VolumeCounts) -> Measured<'_> {
        Measured { labels: vec![("volume", volume.name.clone())], metrics: volume.readings.clone() }
    }
}

/// A text that grows, family by family.
#[derive(Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// The whole text.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Begins a family: a name, its kind as Prometheus calls it, and what it means.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}").expect("a string takes all");
    }

    /// Adds a sample of the family that was begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "{name}{labels} {value}").expect("a string takes all");
    }

    fn connections(&mut self, counts: &ConnectionCounts) {
        let ConnectionCounts { open, admitted, over_limit, strangers } = *counts;
        self.family("tidegate_connections_open", "gauge", "Connections with clients now");
        self.sample("tidegate_connections_open", &[], open);
        self.family("tidegate_connections_admitted_total", "counter", "Connections that were let in");
        self.sample("tidegate_connections_admitted_total", &[], admitted);
        let name = "tidegate_connections_turned_away_total";
        self.family(name, "counter", "Connections that were turned away");
        self.sample(name, &[("reason", "limit")], over_limit);
        self.sample(name, &[("reason", "stranger")], strangers);
    }

    /// What the volumes are, as labels of a number that is always 1.
    fn volumes(&mut self, volumes: &[VolumeCounts]) {
        let name = "tidegate_volume_info";
        self.family(
            name,
            "gauge",
            "What a volume is: its format, what its memory survives, and what is done with writes in front of a disk",
        );
        for VolumeCounts { name: volume, format, domain, disk, .. } in volumes {
            let mode = disk.as_ref().map_or("", |disk| disk.mode.as_str());
            self.sample(name, &[("volume", volume), ("format", format), ("domain", domain), ("mode", mode)], 1);
        }
    }

    fn requests(&mut self, volumes: &[VolumeCounts]) {
        let all = || volumes.iter().flat_map(|volume| volume.requests.iter().map(move |of| (volume.name.as_str(), of)));
        let name = "tidegate_request_errors_total";
        self.family(name, "counter", "Requests that failed");
        all().for_each(|(volume, of)| self.sample(name, &[("volume", volume), ("kind", &of.kind)], of.errors));
        let name = "tidegate_request_bytes_total";
        self.family(name, "counter", "Bytes of requests that did not fail");
        all().for_each(|(volume, of)| self.sample(name, &[("volume", volume), ("kind", &of.kind)], of.bytes));
        self.family(
            "tidegate_request_duration_seconds",
            "histogram",
            "Time of requests from their arrival to their reply",
        );
        all().for_each(|(volume, of)| self.durations(volume, of));
    }

    fn durations(&mut self, volume: &str, counts: &RequestCounts) {
        let times: &Latencies = &counts.times;
        let labels = [("volume", volume), ("kind", counts.kind.as_str())];
        let bucket = "tidegate_request_duration_seconds_bucket";
        for bits in BUCKET_BITS {
            let ns = 1_u64 << bits;
            let le = format!("{}", ns as f64 / 1e9);
            self.sample(bucket, &[labels[0], labels[1], ("le", &le)], times.count_below(ns));
        }
        self.sample(bucket, &[labels[0], labels[1], ("le", "+Inf")], times.count());
        self.sample("tidegate_request_duration_seconds_sum", &labels, times.sum_ns as f64 / 1e9);
        self.sample("tidegate_request_duration_seconds_count", &labels, times.count());
    }

    /// Adds the numbers of `things`. Things may have different numbers, so each number is shown for
    /// all that have it.
    pub fn readings<'t>(&mut self, things: &'t [Measured<'t>]) {
        let mut done: Vec<&str> = Vec::new();
        for Metric { name, .. } in things.iter().flat_map(|thing| &thing.metrics) {
            if done.contains(&name.as_str()) {
                continue;
            }
            done.push(name);
            let same = |thing: &'t Measured<'t>| {
                thing.metrics.iter().filter(|of| of.name == *name).map(|of| (&thing.labels, of))
            };
            let having: Vec<_> = things.iter().flat_map(same).collect();
            let first = having[0].1;
            let full = first.metric_name();
            self.family(&full, first.metric_kind(), &first.help);
            for (labels, of) in having {
                let own = of.label.iter().map(|(label, of)| (label.as_str(), of.as_str()));
                let all: Vec<_> = labels.iter().map(|(label, of)| (*label, of.as_str())).chain(own).collect();
                self.sample(&full, &all, of.in_unit());
            }
        }
    }
}

/// A label's value as the format writes it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
