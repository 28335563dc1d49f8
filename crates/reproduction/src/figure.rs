//! The result of an experiment, in a form that is kept in a file and drawn later.

use crate::Scale;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use tidegate_measure::Estimate;

/// One figure or table of a paper, measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name here, and of its file.
    pub id: String,
    /// What the paper calls it.
    pub paper: String,
    /// What it shows.
    pub title: String,
    /// How it is drawn.
    pub chart: Chart,
    /// The unit of every value.
    pub unit: String,
    /// The series that ratios are taken over, the paper's too.
    pub baseline: Option<String>,
    /// What a reader has to know of how it was measured, and where it differs from the paper's.
    pub notes: Vec<String>,
    /// What was compared.
    pub series: Vec<Series>,
    /// How its values came about; None: it was not run by an experiment.
    #[serde(default)]
    pub run: Option<Provenance>,
}

/// What somebody needs who wants to see the same values again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command that repeats it.
    pub command: String,
    /// Where it ran: the machine's processor, cores and kernel, and what the values are times of.
    pub machine: String,
    /// Where its random numbers begin.
    pub seed: String,
    /// How large the run was; None: it was not told, and no verdict rests on the figure.
    #[serde(default)]
    pub scale: Option<Scale>,
}

/// How a figure is drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chart {
    /// Bars in groups: a group for each place, a bar for each series.
    Bars,
    /// A line for each series over places that grow by factors.
    Lines,
    /// Points over time, one small chart for each series.
    Points,
    /// A bar for each place, made of a part for each series; [`BESIDE`] is no part of it.
    Stacks,
    /// A row for each place, with a span from `low` to `high` for each series.
    Spans,
}

/// The series of a stack that is told and not drawn: what ran beside.
pub const BESIDE: &str = "flushes, beside";

/// One of the things compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Its values.
    pub points: Vec<Point>,
}

/// A value with its spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The place's name: a group of bars, a size.
    pub place: String,
    /// The median of the samples, or the one value.
    pub median: f64,
    /// Lower end of the 95 % interval of the median.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// The paper's value over its baseline's at the same place, where it gives one.
    pub published: Option<f64>,
    /// Every sample, in the order in which they were taken.
    #[serde(default)]
    pub samples: Vec<f64>,
    /// Where the value comes from.
    #[serde(default)]
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A run.
    #[default]
    Measured,
    /// A run whose costs were fitted so that it comes out as in the paper: it shows nothing.
    Input,
}

impl Point {
    /// A point from samples of one quantity.
    pub fn of(place: impl Into<String>, samples: &[f64], published: Option<f64>) -> Point {
        let Estimate { median, low, high, .. } = Estimate::of(samples);
        let samples = samples.to_vec();
        Point { place: place.into(), median, low, high, published, samples, origin: Origin::Measured }
    }

    /// A point from one value that is the whole truth, as a count, or virtual time, which has no
    /// noise.
    pub fn exact(place: impl Into<String>, value: f64, published: Option<f64>) -> Point {
        Point::of(place, &[value], published)
    }

    /// This point, which costs were fitted to.
    #[must_use]
    pub fn as_input(self) -> Point {
        Point { origin: Origin::Input, ..self }
    }
}

impl Figure {
    /// Refuses a value that is no number: JSON has none, and what was written could not be read.
    pub(crate) fn ensure_finite(&self) -> anyhow::Result<()> {
        for (series, point) in self.series.iter().flat_map(|series| series.points.iter().map(move |at| (series, at))) {
            let mut values = point.samples.iter().chain([&point.median, &point.low, &point.high]);
            if let Some(value) = values.find(|value| !value.is_finite()) {
                anyhow::bail!("{}: {} at {} is {value}, which is no measurement", self.id, series.label, point.place);
            }
        }
        Ok(())
    }

    /// The point of the series `label` at `place`.
    pub fn point(&self, label: &str, place: &str) -> Option<&Point> {
        let series = self.series.iter().find(|series| series.label == label)?;
        series.points.iter().find(|point| point.place == place)
    }

    /// What `over` has over what `under` has: the mean over all places of `over`. None: a value is
    /// missing, or makes no ratio.
    pub(crate) fn mean_quotient(&self, over: &str, under: &str) -> Option<f64> {
        let places = &self.series.iter().find(|series| series.label == over)?.points;
        let at = |point: &Point| {
            let below = self.point(under, &point.place)?.median;
            Some(point.median / below).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        };
        let sum = places.iter().map(at).sum::<Option<f64>>()?;
        (!places.is_empty()).then(|| sum / places.len() as f64)
    }

    /// The value of the baseline at `place`.
    pub fn baseline_at(&self, place: &str) -> Option<f64> {
        self.point(self.baseline.as_ref()?, place).map(|point| point.median)
    }

    /// All of it as lines of comma-separated values, a line for each sample.
    pub fn csv(&self) -> String {
        let mut csv = "figure,series,place,sample,value,unit,median,low,high,published,origin\n".to_owned();
        for series in &self.series {
            for point in &series.points {
                let published = point.published.map_or(String::new(), |ratio| ratio.to_string());
                for (nth, value) in point.samples.iter().enumerate() {
                    let [id, label, place, unit] =
                        [&self.id, &series.label, &point.place, &self.unit].map(|text| csv_cell(text));
                    let Point { median, low, high, origin, .. } = point;
                    let _ = writeln!(
                        csv,
                        "{id},{label},{place},{nth},{value},{unit},{median},{low},{high},{published},{origin:?}"
                    );
                }
            }
        }
        csv
    }
}

/// A cell of comma-separated values (RFC 4180).
pub fn csv_cell(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Bytes as people write them.
pub(crate) fn bytes_in_words(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_is_a_line_with_its_names_quoted_where_need_be() {
        let points =
            vec![Point::of("1 KiB, cold", &[3.0, 1.0, 2.0], Some(1.5)), Point::exact("b", 7.0, None).as_input()];
        let figure = Figure {
            id: "f".to_owned(),
            paper: String::new(),
            title: String::new(),
            chart: Chart::Bars,
            unit: "ns".to_owned(),
            baseline: None,
            notes: Vec::new(),
            series: vec![Series { label: "the \"old\" one".to_owned(), points }],
            run: None,
        };
        let csv = figure.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 3 + 1);
        assert_eq!(lines[1], "f,\"the \"\"old\"\" one\",\"1 KiB, cold\",0,3,ns,2,1,3,1.5,Measured");
        assert_eq!(lines[4], "f,\"the \"\"old\"\" one\",b,0,7,ns,7,7,7,,Input");
        let read: Figure =
            serde_json::from_str(&serde_json::to_string(&figure).unwrap_or_default()).expect("as written");
        assert_eq!(read, figure);
        assert!(figure.ensure_finite().is_ok());
        let point = Point::exact("c", f64::INFINITY, None);
        let figure = Figure { series: vec![Series { label: "d".to_owned(), points: vec![point] }], ..figure };
        assert!(figure.ensure_finite().is_err_and(|error| error.to_string().starts_with("f: d at c is inf")));
    }

    #[test]
    fn sizes_are_written_in_their_largest_unit() {
        assert_eq!(
            [64, 512, 4096, 131_072, 1 << 20, 1536].map(bytes_in_words),
            ["64 B", "512 B", "4 KiB", "128 KiB", "1 MiB", "1536 B"]
        );
    }
}
