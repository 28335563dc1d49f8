//! The topic `transit-experiments`: whether the figures of the transit paper come out again, on its
//! platform in virtual time and on threads here.
//!
//! Every row reads figures of [`experiments`], in their quick form. A figure is measured when the
//! first row asks for it, and once.

use crate::target::{Outcome, Row, Target, Topic};
use anyhow::{Context, ensure};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use tidegate_measure::workload::Effort;
use tidegate_reproduction::caiti::stacks::Kind;
use tidegate_reproduction::figure::{Figure, Series};
use tidegate_reproduction::{self as experiments, EXPERIMENTS, Experiment, Scale};
use tidegate_reproduction::{page, verdicts};

/// How far a ratio may be from the paper's.
const OFF_MAX: f64 = 0.3;

/// Values that differ by less are taken as equal when orders are compared.
const TIE: f64 = 0.05;

/// The topic's table.
pub const TOPIC: Topic = Topic {
    name: "transit-experiments",
    about: "the transit paper's figures again: 36 virtual cores over Optane, and threads here",
    rows: &[
        Row::here(
            "order",
            "pairs of subjects in another order than the paper's, depth 128, that no ablation of the same run puts right",
            "figure",
            Target::AtMost(0.0),
            |_| order_explained("and BTT"),
        ),
        Row::here("order-told", "the same, costs fitted to nothing", "figure", Target::AtMost(0.0), |_| {
            order_explained("told")
        }),
        ratio("dax", |_| over_paper(Kind::Dax)),
        ratio("nova", |_| over_paper(Kind::Nova)),
        ratio("pmbd", |_| over_paper(Kind::Pmbd)),
        ratio("pmbd-70", |_| over_paper(Kind::Pmbd70)),
        ratio("lru", |_| over_paper(Kind::Lru)),
        ratio("coa", |_| over_paper(Kind::Coa)),
        Row::here(
            "tidegate-gain",
            "throughput of Tidegate, 8 jobs",
            "of Caiti as published",
            Target::AtLeast(1.2),
            |_| gain(),
        ),
        Row::here(
            "tidegate-worst",
            "worst time per request of Tidegate",
            "of Caiti as published",
            Target::AtMost(1.05),
            |_| worst(),
        ),
        Row::here("pmbd-tail", "99.99th percentile of PMBD, depth 1024", "of Tidegate", Target::AtLeast(10.0), |_| {
            tail()
        }),
        Row::here("flat", "greatest time of transit over cache sizes", "least", Target::AtMost(1.1), |_| flat()),
        Row::here(
            "stalls-staging",
            "caches that stage whose share of stalls in the paper lies outside of what ablations of the same run give",
            "figure",
            Target::AtMost(0.0),
            |_| stalls_explained(),
        ),
        Row::here(
            "threads-order-1",
            "pairs in another order than the paper's, one thread here, that no ablation of the same run puts right",
            "figure",
            Target::AtMost(0.0),
            |_| order_here("1 writer", &[ONE_MORE_NUMBER]),
        ),
        Row::here(
            "threads-order-2",
            "the same, two threads, and more cores among the ablations",
            "figure",
            Target::AtMost(0.0),
            |_| order_here("2 writers", &[ONE_MORE_NUMBER, "platform-cores"]),
        ),
        Row::here(
            "report",
            "figures that are missing, empty, or not opened in Chromium",
            "report",
            Target::AtMost(0.0),
            |_| report(),
        ),
    ],
};

/// The experiment each of whose places has one number more that was fitted.
const ONE_MORE_NUMBER: &str = "platform-reasons";

type Measure = fn(Effort) -> anyhow::Result<Outcome>;

const fn ratio(name: &'static str, measure: Measure) -> Row {
    Row::here(
        name,
        "time per request over Caiti's, depth 128",
        "the same in the paper",
        Target::Within(OFF_MAX),
        measure,
    )
}

/// The figures of the experiment `name`.
pub(crate) fn figures(name: &str) -> anyhow::Result<Vec<Figure>> {
    static MEASURED: Mutex<Vec<(String, Vec<Figure>)>> = Mutex::new(Vec::new());
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, figures)) = measured.iter().find(|(known, _)| known == name) {
        return Ok(figures.clone());
    }
    let experiment = EXPERIMENTS.iter().find(|one| one.name == name).context("no experiment has this name")?;
    let figures = in_own_folder(experiment)?;
    measured.push((name.to_owned(), figures.clone()));
    Ok(figures)
}

fn in_own_folder(experiment: &Experiment) -> anyhow::Result<Vec<Figure>> {
    let folder = tidegate_measure::medium::ScratchPath::new();
    std::fs::create_dir(folder.as_path())?;
    let found = experiments::run(experiment, Scale::QUICK, folder.as_path())
        .and_then(|_| experiments::figures_in(folder.as_path()));
    std::fs::remove_dir_all(folder.as_path())?;
    found
}

/// The figure `id` of `experiment`, in its quick form.
pub(crate) fn figure(experiment: &str, id: &str) -> anyhow::Result<Figure> {
    figures(experiment)?.into_iter().find(|figure| figure.id == id).with_context(|| format!("no figure {id}"))
}

fn series<'a>(figure: &'a Figure, label: &str) -> anyhow::Result<&'a Series> {
    figure.series.iter().find(|series| series.label == label).with_context(|| format!("{} has no {label}", figure.id))
}

/// What `figure` says of `label` at `place`.
pub(crate) fn value(figure: &Figure, label: &str, place: &str) -> anyhow::Result<f64> {
    let point = series(figure, label)?.points.iter().find(|point| point.place == place);
    Ok(point.with_context(|| format!("{} has no {place}", figure.id))?.median)
}

/// Whether `one` is less than `other` by more than a tie.
fn less(one: f64, other: f64) -> bool {
    one < other * (1.0 - TIE)
}

/// Pairs that are inverted at `place` of the figure of reasons, and at no place after it the right
/// way round.
fn order_explained(place: &str) -> anyhow::Result<Outcome> {
    let figure = figure(ONE_MORE_NUMBER, "platform-reasons")?;
    let places: Vec<&str> = series(&figure, Kind::Caiti.label())?.points.iter().map(|one| one.place.as_str()).collect();
    let from = places.iter().position(|one| *one == place).with_context(|| format!("no place {place}"))?;
    Ok(Outcome::count(never_in_order(&figure, &places[from..]), 1))
}

fn never_in_order(figure: &Figure, places: &[&str]) -> u64 {
    pairs(figure).filter(|pair| places.iter().all(|place| is_inverted(figure, *pair, place))).count() as u64
}

/// Two subjects, the one that takes less time in the paper first.
type Pair<'a> = (&'a str, &'a str);

/// The pairs of `figure` that the paper has in an order.
fn pairs(figure: &Figure) -> impl Iterator<Item = Pair<'_>> {
    let published = |one: &Series| one.points.iter().find_map(|point| point.published);
    let pairs = figure.series.iter().flat_map(|low| figure.series.iter().map(move |high| (low, high)));
    let differ = pairs.filter(move |(low, high)| match (published(low), published(high)) {
        (Some(low), Some(high)) => less(low, high),
        _ => false,
    });
    differ.map(|(low, high)| (&*low.label, &*high.label))
}

/// Whether `figure` has the pair in the other order at `place`.
fn is_inverted(figure: &Figure, (low, high): Pair<'_>, place: &str) -> bool {
    let at = |label| value(figure, label, place);
    matches!((at(low), at(high)), (Ok(low), Ok(high)) if less(high, low))
}

/// Pairs that are inverted at `place` on threads here, and at every place of every one of the
/// experiments `ablations`.
fn order_here(place: &str, ablations: &[&str]) -> anyhow::Result<Outcome> {
    let here = figure("writers", "fig-5a")?;
    let ablations = ablations.iter().map(|name| figure(name, name)).collect::<anyhow::Result<Vec<Figure>>>()?;
    Ok(Outcome::count(inverted_everywhere(&here, place, &ablations), 1))
}

fn inverted_everywhere(here: &Figure, place: &str, ablations: &[Figure]) -> u64 {
    let everywhere = |figure: &Figure, pair: Pair<'_>| {
        let mut places = figure.series.iter().flat_map(|series| series.points.iter().map(|point| &*point.place));
        places.all(|place| is_inverted(figure, pair, place))
    };
    let unexplained = |pair: &Pair<'_>| ablations.iter().all(|figure| everywhere(figure, *pair));
    pairs(here).filter(|pair| is_inverted(here, *pair, place)).filter(unexplained).count() as u64
}

/// Caches that stage whose published share of stalls is not between those of two ablations.
fn stalls_explained() -> anyhow::Result<Outcome> {
    let figure = figure("platform-inside", "platform-stalls")?;
    let mut outside = 0;
    for kind in Kind::STAGING {
        let points = &series(&figure, kind.label())?.points;
        let published = points.iter().find_map(|point| point.published).context("the paper has it")?;
        let spans = points.iter().any(|point| point.median <= published)
            && points.iter().any(|point| point.median >= published);
        outside += u64::from(!spans);
    }
    Ok(Outcome::count(outside, 1))
}

fn over_paper(kind: Kind) -> anyhow::Result<Outcome> {
    let figure = figure(ONE_MORE_NUMBER, "platform-reasons")?;
    let place = "and BTT";
    let ours = value(&figure, kind.label(), place)? / value(&figure, Kind::Caiti.label(), place)?;
    let published = series(&figure, kind.label())?.points.iter().find_map(|point| point.published);
    Ok(Outcome::figure(&[ours / published.context("the paper has it")?], "×"))
}

fn gain() -> anyhow::Result<Outcome> {
    let figure = figure("platform-tried", "platform-tried-fitted")?;
    let place = "8 × 32";
    Ok(Outcome::figure(&[value(&figure, "as published", place)? / value(&figure, "Tidegate", place)?], "×"))
}

fn worst() -> anyhow::Result<Outcome> {
    let mut worst = 0.0_f64;
    for id in ["platform-tried-told", "platform-tried-fitted"] {
        let figure = figure("platform-tried", id)?;
        let (published, ours) = (series(&figure, "as published")?, series(&figure, "Tidegate")?);
        let ratios = published.points.iter().zip(&ours.points).map(|(published, ours)| ours.median / published.median);
        worst = ratios.fold(worst, f64::max);
    }
    Ok(Outcome::figure(&[worst], "×"))
}

fn tail() -> anyhow::Result<Outcome> {
    let figure = figure("platform-depth", "platform-fig-5d-fitted")?;
    let of = |kind: Kind| value(&figure, kind.label(), "1024");
    Ok(Outcome::figure(&[of(Kind::Pmbd)? / of(Kind::Tidegate)?], "×"))
}

fn flat() -> anyhow::Result<Outcome> {
    let figure = figure("platform-capacity", "platform-table-1-fitted")?;
    let mut greatest = 0.0_f64;
    for kind in [Kind::Caiti, Kind::Tidegate] {
        let values = || series(&figure, kind.label()).map(|one| one.points.iter().map(|point| point.median));
        greatest = greatest.max(values()?.fold(0.0, f64::max) / values()?.fold(f64::MAX, f64::min));
    }
    Ok(Outcome::figure(&[greatest], "×"))
}

/// Every experiment's figures on one page, opened at the widths of a desk and of a phone.
fn report() -> anyhow::Result<Outcome> {
    let (mut all, mut wrong) = (Vec::new(), 0);
    for experiment in EXPERIMENTS {
        let found = figures(experiment.name)?;
        wrong += experiment.figures.iter().filter(|id| found.iter().all(|figure| figure.id != **id)).count() as u64;
        all.extend(found);
    }
    let empty = |figure: &&Figure| figure.series.is_empty() || figure.series.iter().any(|one| one.points.is_empty());
    wrong += all.iter().filter(empty).count() as u64;
    let file = tidegate_measure::medium::ScratchPath::new();
    let page_path = file.as_path().with_extension("html");
    std::fs::write(&page_path, page::html(&all, &verdicts::judged(&all)))?;
    let opened = [(1280, 2000), (390, 2000)].map(|size| opens(&page_path, size));
    std::fs::remove_file(&page_path)?;
    for opened in opened {
        match opened {
            Ok(()) => {}
            Err(error) if error.downcast_ref::<std::io::Error>().is_some() => {
                return Ok(Outcome::missing("chromium", "apt-get install chromium"));
            }
            Err(_) => wrong += 1,
        }
    }
    Ok(Outcome::count(wrong, 1))
}

/// Has Chromium draw the page; a picture of more than a plain ground shows that it did.
fn opens(page: &Path, (width, height): (u32, u32)) -> anyhow::Result<()> {
    const PLAIN_BYTES: u64 = 20_000;
    let picture = page.with_extension(format!("{width}.png"));
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("file://{}", page.display()))
        .output()?;
    let bytes = std::fs::metadata(&picture).map_or(0, |found| found.len());
    // Nothing there means that nothing was drawn, which the size tells.
    let _ = std::fs::remove_file(&picture);
    ensure!(output.status.success() && bytes > PLAIN_BYTES, "Chromium drew {bytes} bytes ({})", output.status);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
pub(crate) mod tests {
    use super::*;
    use tidegate_reproduction::figure::{Chart, Point};

    /// A figure of these series, about nothing.
    pub(crate) fn figure_of(series: impl Iterator<Item = Series>) -> Figure {
        Figure {
            id: "f".to_owned(),
            paper: String::new(),
            title: String::new(),
            chart: Chart::Bars,
            unit: String::new(),
            baseline: None,
            notes: Vec::new(),
            series: series.collect(),
            run: None,
        }
    }

    fn with(values: &[(f64, f64)]) -> Figure {
        let one = |(published, ours): &(f64, f64)| Series {
            label: published.to_string(),
            points: vec![Point::of("here", &[*ours], Some(*published))],
        };
        figure_of(values.iter().map(one))
    }

    #[test]
    fn a_pair_counts_only_if_no_ablation_puts_it_right() {
        let mut figure = with(&[(1.0, 30.0), (2.0, 20.0), (3.0, 25.0)]);
        assert_eq!(never_in_order(&figure, &["here"]), 2);
        for (series, value) in figure.series.iter_mut().zip([10.0, 20.0, 9.0]) {
            series.points.push(Point::of("ablated", &[value], None));
        }
        assert_eq!(never_in_order(&figure, &["here", "ablated"]), 1, "the first two are in order now");
        assert_eq!(never_in_order(&figure, &["ablated"]), 2);
    }

    #[test]
    fn pairs_in_another_order_are_counted_and_ties_are_not() {
        let inverted = |figure: &Figure, place| inverted_everywhere(figure, place, &[]);
        assert_eq!(inverted(&with(&[(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]), "here"), 0);
        assert_eq!(inverted(&with(&[(1.0, 10.0), (2.0, 30.0), (3.0, 20.0)]), "here"), 1);
        assert_eq!(inverted(&with(&[(1.0, 30.0), (2.0, 20.0), (3.0, 10.0)]), "here"), 3);
        assert_eq!(inverted(&with(&[(1.0, 10.0), (1.01, 9.0), (3.0, 9.9)]), "here"), 0, "too near each other");
        assert_eq!(inverted(&with(&[(1.0, 30.0), (2.0, 20.0)]), "elsewhere"), 0);
    }

    #[test]
    fn a_pair_here_counts_only_if_it_is_inverted_in_every_ablation_too() {
        let here = with(&[(1.0, 30.0), (2.0, 20.0)]);
        let (right, wrong) = (with(&[(1.0, 10.0), (2.0, 20.0)]), with(&[(1.0, 2.0), (2.0, 1.0)]));
        assert_eq!(inverted_everywhere(&here, "here", std::slice::from_ref(&wrong)), 1);
        assert_eq!(inverted_everywhere(&here, "here", &[wrong, right]), 0);
    }
}
