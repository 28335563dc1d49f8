//! Numbers of a volume's region: what was stored, and how its mirror is.

use crate::stats::registry::{Metric, MetricSource, Unit};
use std::ops::Add;
use tidegate_media::{Counters, MappedRegion};
use tidegate_volume_region::VolumeRegion;

impl MetricSource for VolumeRegion {
    fn metrics(&self) -> Vec<Metric> {
        let Some(mirror) = self.mirror() else { return metrics_of(self.reader().counters()) };
        let counted = mirror.sides().into_iter().flatten().map(MappedRegion::counters);
        let sum = counted.fold(Counters::default(), Add::add);
        let gauge = |name, help, value| Metric::gauge(name, help, Unit::Count, value);
        let mut metrics = metrics_of(sum);
        metrics.extend([
            gauge("mirror_sides", "Sides of the mirror that have every write", self.live().count() as u64),
            gauge("mirror_generation", "Openings of the mirror and changes of its state", mirror.page().generation),
            Metric::counter(
                "mirror_repaired_lines",
                "Lines of 64 bytes that one side could not give and got from the other",
                Unit::Count,
                mirror.repaired_lines(),
            ),
        ]);
        metrics
    }
}

/// What one region counted, or both sides of a mirror together.
fn metrics_of(counters: Counters) -> Vec<Metric> {
    let Counters { bytes_stored, lines_flushed, lines_256_touched, fences } = counters;
    let counter = |name, help, unit, value| Metric::counter(name, help, unit, value);
    vec![
        counter("region_stored", "Bytes stored to the region", Unit::Bytes, bytes_stored),
        counter("region_flushed_lines", "Lines of 64 bytes flushed or streamed", Unit::Count, lines_flushed),
        counter("region_touched_256_byte_lines", "Lines of 256 bytes of those", Unit::Count, lines_256_touched),
        counter("region_fences", "Fences", Unit::Count, fences),
    ]
}
