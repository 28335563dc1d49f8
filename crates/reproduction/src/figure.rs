//! The result of an experiment, in a form that is kept in a file and drawn later.

use serde::{Deserialize, Serialize};
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
}

impl Point {
    /// A point from samples of one quantity.
    pub fn of(place: impl Into<String>, samples: &[f64], published: Option<f64>) -> Point {
        let Estimate { median, low, high, .. } = Estimate::of(samples);
        Point { place: place.into(), median, low, high, published }
    }
}

impl Figure {
    /// The value of the baseline at `place`.
    pub fn baseline_at(&self, place: &str) -> Option<f64> {
        let label = self.baseline.as_ref()?;
        let series = self.series.iter().find(|series| series.label == *label)?;
        series.points.iter().find(|point| point.place == place).map(|point| point.median)
    }
}
