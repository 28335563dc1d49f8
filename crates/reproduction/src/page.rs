//! Figures as one HTML file that needs no other: charts as SVG, every value in a table below, light
//! and dark.

use super::figure::{BESIDE, Chart, Figure, Origin, Point, Series};
use super::verdicts::{Claim, JudgedRow, Judgement, Reproduced};
use std::fmt::Write;

/// Width of a chart's drawing, in its own units; the page scales it.
const WIDTH: f64 = 720.0;

/// Height of a chart's drawing.
const HEIGHT: f64 = 300.0;

/// Height of one of many small charts.
const SMALL_HEIGHT: f64 = 110.0;

/// Room for the numbers left of a chart, and for the names below.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 28.0;

/// Colours of what is compared, the same in every figure, told apart by people who do not tell red
/// from green, on white and on black.
const COLOURS: [(&str, &str); 58] = [
    ("not levelled", "#555555"),
    ("a move in 1000 writes", "#66ccee"),
    ("a move in 100 writes", "#4477aa"),
    ("a move in 10 writes", "#ee7733"),
    ("as published", "#66ccee"),
    ("past the cache before it is full", "#4477aa"),
    ("slots filled past the caches", "#228833"),
    ("drainers that watch", "#ccbb44"),
    ("2 drainers", "#ee6677"),
    ("as many drainers as idle cores", "#aa3377"),
    ("device write", "#4477aa"),
    ("software above", "#bbbbbb"),
    ("metadata", "#4477aa"),
    ("evict and write", "#cc3311"),
    ("bypass", "#ee7733"),
    ("cache write", "#66ccee"),
    ("enqueue", "#228833"),
    ("cache read", "#88aadd"),
    ("device read", "#aa3377"),
    ("on its way to PMem", "#ccbb44"),
    ("flushes, beside", "#555555"),
    ("DAX", "#555555"),
    ("NOVA", "#997700"),
    ("NOVA, log never walked", "#ddaa99"),
    ("PMem", "#8c8c8c"),
    ("BTT", "#4477aa"),
    ("PMBD", "#ee6677"),
    ("PMBD-70", "#aa3377"),
    ("LRU", "#ccbb44"),
    ("COA", "#228833"),
    ("Caiti", "#66ccee"),
    ("Caiti w/o EE", "#88aadd"),
    ("Caiti w/o BP", "#ddaa99"),
    ("Tidegate", "#ee7733"),
    ("Tidegate, reads forgotten", "#ccbb44"),
    ("Tidegate, reads taken in the second time", "#cc3311"),
    ("Tidegate, write-only", "#ddaa99"),
    ("Classic", "#4477aa"),
    ("UBJ", "#aa3377"),
    ("Tinca", "#66ccee"),
    ("fileserver", "#4477aa"),
    ("webproxy", "#ccbb44"),
    ("Classic, no flushes", "#66ccee"),
    ("Classic, no metadata", "#228833"),
    ("no journal", "#997700"),
    ("no journal, no flushes", "#ccbb44"),
    ("no journal, no metadata", "#8c8c8c"),
    ("ext4", "#4477aa"),
    ("ext4, data=ordered", "#228833"),
    ("Classic in memory", "#66ccee"),
    ("mount", "#ccbb44"),
    ("mount, two states", "#997700"),
    ("direct path", "#ee7733"),
    ("/dev/shm", "#8c8c8c"),
    ("stores", "#ccbb44"),
    ("stores, CXL", "#ee7733"),
    ("disk, O_DIRECT", "#4477aa"),
    ("disk, O_DIRECT | O_DSYNC", "#66ccee"),
];

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1d1d1f; --dim: #6b6b70; --line: #d9d9de; --ground: #fff; }
@media (prefers-color-scheme: dark) { :root { --text: #eee; --dim: #9a9aa2; --line: #3a3a40; --ground: #161618; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--ground); max-width: 56rem; margin: 0 auto;
  padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 0; } .paper, .note, .legend { color: var(--dim); font-size: .875rem; }
svg { width: 100%; min-width: 34rem; height: auto; display: block; margin: .5rem 0; } svg text { fill: var(--dim); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); } .whisker { stroke: var(--text); }
.legend span { white-space: nowrap; margin-right: 1em; } .legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin-right: .35em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: .15rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
.verdicts td:last-child { text-align: left; white-space: normal; min-width: 16rem; } pre { overflow-x: auto; max-height: 20rem; font-size: .75rem; }
summary { cursor: pointer; font-size: .875rem; }";

/// The page: the verdicts of `rows`, which were judged from `figures`, and each figure.
pub fn html(figures: &[Figure], rows: &[JudgedRow]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\"><title>Tidegate: the experiments</title><style>{STYLE}</style></head><body>\n<h1>The experiments</h1>\n\
         <p class=\"note\">Medians; whiskers and brackets are 95 % intervals. Ratios stand beside the published ones: the machines \
         differ, so the order of the bars is what can be compared. A value in italics is an input: costs were fitted to it.</p>\n"
    );
    page.push_str(&verdicts(rows));
    figures.iter().for_each(|figure| page.push_str(&section(figure)));
    page.push_str("</body></html>\n");
    page
}

/// The table at the head: each row of the papers, and how it came out.
fn verdicts(rows: &[JudgedRow]) -> String {
    let tally = [Reproduced::Fully, Reproduced::InShape, Reproduced::Not, Reproduced::NotRun]
        .map(|verdict| format!("{} {verdict}", rows.iter().filter(|row| row.verdict() == verdict).count()));
    let in_part = |row: &&JudgedRow| row.verdict() != Reproduced::NotRun && row.count(Judgement::NotRun) > 0;
    let mut table = format!(
        "<section id=\"verdicts\"><h2>Verdicts</h2>\n<p class=\"note\">Each row is judged from the figures below, by claims: a ratio is as published if it \
         is on the paper's side of 1, within 30 % of the paper's, and its effect between half and twice the paper's. A row is reproduced if all claims \
         are as published, in shape if none is contradicted. Figures of the smoke form, and those that do not tell their scale, are not judged. {}; {} with \
         claims that were not run.</p>\n<div class=\"wide\"><table class=\"verdicts\"><tr><th>row</th><th>judged on</th><th>verdict</th><th>as \
         published</th><th>in shape</th><th>contradicted</th><th>inputs</th><th>not run</th></tr>\n",
        tally.join(", "),
        rows.iter().filter(in_part).count(),
    );
    for judged in rows {
        let count = |holds| judged.count(holds);
        let _ = writeln!(
            table,
            "<tr><td><a href=\"#row-{}\">{}</a></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            judged.row.name,
            escaped(judged.row.paper),
            escaped(judged.row.judged_on),
            judged.in_words(),
            count(Judgement::AsPublished),
            count(Judgement::InShape),
            count(Judgement::Contradicted),
            count(Judgement::Input),
            escaped(&judged.not_run()),
        );
    }
    table.push_str("</table></div>\n");
    rows.iter().for_each(|judged| table.push_str(&claims(judged)));
    table + "</section>\n"
}

/// A row's claims, with the paper's values and ours.
fn claims(judged: &JudgedRow) -> String {
    let row = judged.row;
    let mut list = format!(
        "<details id=\"row-{}\"><summary>{}: {} ({})</summary>\n<p class=\"note\">If it comes out otherwise: {}.</p>\n\
         <div class=\"wide\"><table><tr><th>claim</th><th>here</th><th>paper</th><th></th></tr>\n",
        row.name,
        escaped(row.paper),
        escaped(row.shows),
        judged.in_words(),
        escaped(row.cause),
    );
    for Claim { what, here, paper, holds } in &judged.claims {
        let [here, paper] = [here, paper].map(|value| value.map_or(String::new(), number));
        let _ = writeln!(list, "<tr><td>{}</td><td>{here}</td><td>{paper}</td><td>{holds}</td></tr>", escaped(what));
    }
    list + "</table></div></details>\n"
}

/// Every sample of a figure, and how to have them again.
fn origin(figure: &Figure) -> String {
    let Some(run) = &figure.run else { return String::new() };
    format!(
        "<details><summary>Raw data</summary>\n<p class=\"note\">Command: <code>{}</code>. Machine: {}. Seed: {}.</p>\n<pre>{}</pre></details>\n",
        escaped(&run.command),
        escaped(&run.machine),
        escaped(&run.seed),
        escaped(&figure.csv()),
    )
}

fn section(figure: &Figure) -> String {
    let chart = match figure.chart {
        Chart::Bars => bars(figure),
        Chart::Lines => lines(figure),
        Chart::Stacks => stacks(figure),
        Chart::Spans => spans(figure),
        Chart::Points => figure.series.iter().map(|series| points(figure, series)).collect(),
    };
    let notes: String = figure.notes.iter().map(|note| format!("<p class=\"note\">{}</p>\n", escaped(note))).collect();
    let table = if matches!(figure.chart, Chart::Points | Chart::Spans) { String::new() } else { table(figure) };
    format!(
        "<section id=\"{}\"><h2>{}</h2><p class=\"paper\">{}; {}</p>\n{}{chart}{table}{notes}{}</section>\n",
        escaped(&figure.id),
        escaped(&figure.title),
        escaped(&figure.paper),
        escaped(&figure.unit),
        legend(figure),
        origin(figure),
    )
}

fn legend(figure: &Figure) -> String {
    let mut legend = "<p class=\"legend\">".to_owned();
    for series in &figure.series {
        let _ =
            write!(legend, "<span><i style=\"background:{}\"></i>{}</span> ", colour(series), escaped(&series.label));
    }
    legend + "</p>\n"
}

/// The places of a figure in the order of its first series.
fn places(figure: &Figure) -> Vec<&str> {
    figure.series.first().map_or(Vec::new(), |series| series.points.iter().map(|point| point.place.as_str()).collect())
}

/// The points of `series`, each with the number of its place: a series may lack some.
fn placed<'a>(places: &'a [&str], series: &'a Series) -> impl Iterator<Item = (usize, &'a Point)> {
    series.points.iter().filter_map(|point| Some((places.iter().position(|place| *place == point.place)?, point)))
}

/// The greatest end of a value; 1 where all are 0, so that there is something to draw against.
fn greatest(series: &[Series]) -> f64 {
    ends(series, |point| point.high).reduce(f64::max).unwrap_or(1.0)
}

/// The least end of a value, not counting zeroes, which no factor leads to.
fn least(series: &[Series]) -> f64 {
    ends(series, |point| point.low).reduce(f64::min).unwrap_or(1.0)
}

/// The ends of all values that have a place on a scale by factors.
fn ends(series: &[Series], end: fn(&Point) -> f64) -> impl Iterator<Item = f64> {
    let points = series.iter().flat_map(|series| &series.points);
    points.map(end).filter(|value| value.is_finite() && *value > 0.0)
}

/// Powers of ten that a scale by factors goes through, at most: what is less lies at its foot.
const DECADES_MAX: f64 = 9.0;

/// A vertical scale from values to the drawing's units: straight from 0, or by factors where values
/// differ by more than 30 times.
struct Scale {
    low: f64,
    high: f64,
    by_factors: bool,
    height: f64,
}

impl Scale {
    fn of(series: &[Series], height: f64) -> Scale {
        let (low, high) = (least(series), greatest(series));
        match high / low > 30.0 {
            true => {
                let top = high.log10().ceil();
                let foot = low.log10().floor().max(top - DECADES_MAX);
                Scale { low: 10_f64.powf(foot), high: 10_f64.powf(top), by_factors: true, height }
            }
            false => Scale { low: 0.0, high: high * 1.05, by_factors: false, height },
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.by_factors {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        (self.height - BOTTOM) * (1.0 - share) + 6.0 * share
    }

    /// Values that get a line and a number.
    fn marks(&self) -> Vec<f64> {
        if self.by_factors {
            // In a low drawing only as many as can be told apart.
            let factor = if self.height > SMALL_HEIGHT { 10.0 } else { 100.0 };
            return std::iter::successors(Some(self.low), |mark| Some(mark * factor))
                .take_while(|mark| *mark <= self.high * 1.01)
                .collect();
        }
        let raw = self.high / 5.0;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * magnitude).find(|step| *step >= raw).unwrap_or(raw);
        (0..=5_u8).map(|nth| f64::from(nth) * step).take_while(|mark| *mark <= self.high).collect()
    }

    fn grid(&self) -> String {
        self.marks().into_iter().fold(String::new(), |mut grid, mark| {
            let y = self.y(mark);
            let _ = write!(
                grid,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.0}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                short(mark)
            );
            grid
        })
    }
}

fn drawing(height: f64, label: &str, content: &str) -> String {
    let label = escaped(label);
    format!(
        "<div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">{content}</svg></div>\n"
    )
}

fn bars(figure: &Figure) -> String {
    let (scale, places) = (Scale::of(&figure.series, HEIGHT), places(figure));
    let group = (WIDTH - LEFT) / places.len().max(1) as f64;
    let bar = group * 0.86 / figure.series.len().max(1) as f64;
    let mut content = scale.grid();
    for (nth, series) in figure.series.iter().enumerate() {
        for (at, point) in placed(&places, series) {
            let x = LEFT + group * (at as f64 + 0.07) + bar * nth as f64;
            let (top, floor) = (scale.y(point.median), HEIGHT - BOTTOM);
            let _ = write!(
                content,
                "<g><title>{}</title><rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" rx=\"2\"/>{}</g>",
                hover(figure, series, point),
                x + bar * 0.06,
                bar * 0.88,
                (floor - top).max(0.0),
                colour(series),
                whisker(&scale, x + bar / 2.0, point),
            );
        }
    }
    for (at, place) in places.iter().enumerate() {
        content.push_str(&place_name(LEFT + group * (at as f64 + 0.5), HEIGHT, place));
    }
    drawing(HEIGHT, &figure.title, &content)
}

/// Bars of parts, one on top of the other, from 0 to the tallest.
fn stacks(figure: &Figure) -> String {
    let parts = || figure.series.iter().filter(|series| series.label != BESIDE);
    let places = places(figure);
    let sum = |at: usize| parts().filter_map(|series| series.points.get(at)).map(|point| point.median).sum::<f64>();
    let high = (0..places.len()).map(sum).fold(f64::MIN_POSITIVE, f64::max);
    let scale = Scale { low: 0.0, high, by_factors: false, height: HEIGHT };
    let step = (WIDTH - LEFT) / places.len().max(1) as f64;
    let mut content = scale.grid();
    for (at, place) in places.iter().enumerate() {
        let mut below = 0.0;
        for series in parts() {
            let Some(point) = series.points.get(at) else { continue };
            let (top, floor) = (scale.y(below + point.median), scale.y(below));
            let _ = write!(
                content,
                "<g><title>{}</title><rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/></g>",
                hover(figure, series, point),
                LEFT + step * (at as f64 + 0.15),
                step * 0.7,
                floor - top,
                colour(series),
            );
            below += point.median;
        }
        content.push_str(&place_name(LEFT + step * (at as f64 + 0.5), HEIGHT, place));
    }
    drawing(HEIGHT, &figure.title, &content)
}

/// Rows of spans over one time axis.
fn spans(figure: &Figure) -> String {
    /// Height of a row, and how many are drawn at most.
    const ROW: f64 = 4.0;
    let rows = figure.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
    let height = ROW * rows as f64 + BOTTOM;
    let end = greatest(&figure.series);
    let x = |time: f64| LEFT + (WIDTH - LEFT) * time / end;
    let mut content = String::new();
    for nth in 0..=4_u8 {
        let time = end * f64::from(nth) / 4.0;
        let _ = write!(
            content,
            "<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"0\" y2=\"{1:.1}\"/>{2}",
            x(time),
            height - BOTTOM,
            place_name(x(time).clamp(LEFT + 20.0, WIDTH - 30.0), height, &format!("{time:.0} {}", figure.unit)),
        );
    }
    for series in &figure.series {
        for point in &series.points {
            let row: f64 = point.place.parse().unwrap_or(0.0);
            let _ = write!(
                content,
                "<g><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/></g>",
                hover(figure, series, point),
                x(point.low),
                row * ROW,
                (x(point.high) - x(point.low)).max(0.3),
                ROW * 0.8,
                colour(series),
            );
        }
    }
    drawing(height, &figure.title, &content)
}

fn lines(figure: &Figure) -> String {
    let (scale, places) = (Scale::of(&figure.series, HEIGHT), places(figure));
    let step = (WIDTH - LEFT) / places.len().max(1) as f64;
    let x = |at: usize| LEFT + step * (at as f64 + 0.5);
    let mut content = scale.grid();
    for series in &figure.series {
        let corners: Vec<String> =
            placed(&places, series).map(|(at, point)| format!("{:.1},{:.1}", x(at), scale.y(point.median))).collect();
        let colour = colour(series);
        let _ = write!(
            content,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            corners.join(" ")
        );
        for (at, point) in placed(&places, series) {
            let _ = write!(
                content,
                "<g><title>{}</title>{}<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/></g>",
                hover(figure, series, point),
                whisker(&scale, x(at), point),
                x(at),
                scale.y(point.median),
            );
        }
    }
    places.iter().enumerate().for_each(|(at, place)| content.push_str(&place_name(x(at), HEIGHT, place)));
    drawing(HEIGHT, &figure.title, &content)
}

/// One series as points over time, on the scale of the whole figure.
fn points(figure: &Figure, series: &Series) -> String {
    let scale = Scale::of(&figure.series, SMALL_HEIGHT);
    let step = (WIDTH - LEFT) / series.points.len().max(1) as f64;
    let mut content = scale.grid();
    for (at, point) in series.points.iter().enumerate() {
        let _ = write!(
            content,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.6\" fill=\"{}\"/>",
            LEFT + step * (at as f64 + 0.5),
            scale.y(point.median),
            colour(series),
        );
    }
    content.push_str(&place_name(LEFT + (WIDTH - LEFT) / 2.0, SMALL_HEIGHT, &series.label));
    drawing(SMALL_HEIGHT, &format!("{}: {}", figure.title, series.label), &content)
}

fn whisker(scale: &Scale, x: f64, point: &Point) -> String {
    let (top, end) = (scale.y(point.high), scale.y(point.low));
    format!("<line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{end:.1}\"/>")
}

fn place_name(x: f64, height: f64, name: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", height - 8.0, escaped(name))
}

fn hover(figure: &Figure, series: &Series, point: &Point) -> String {
    let text = format!("{}, {}: {} {}", series.label, point.place, number(point.median), figure.unit);
    escaped(&text)
}

/// Columns that say something: no intervals of what has none, no ratios without a baseline, no
/// empty column of the paper's.
fn table(figure: &Figure) -> String {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let intervals = points().any(|point| point.low < point.high);
    let mut table = "<div class=\"wide\"><table><tr><th></th>".to_owned();
    for place in places(figure) {
        let published = points().any(|point| point.place == place && point.published.is_some());
        let over = figure.baseline.as_deref().map(|over| format!("<th>÷ {}</th>", escaped(over))).unwrap_or_default();
        let columns =
            [if intervals { "<th>[95 %]</th>" } else { "" }, &over, if published { "<th>paper</th>" } else { "" }];
        let _ = write!(table, "<th>{}</th>{}", escaped(place), columns.concat());
    }
    table.push_str("</tr>\n");
    for series in &figure.series {
        let _ = write!(table, "<tr><td>{}</td>", escaped(&series.label));
        for point in &series.points {
            let value = number(point.median);
            let value = if point.origin == Origin::Input { format!("<i>{value}</i>") } else { value };
            let _ = write!(table, "<td>{value}</td>");
            if intervals {
                let _ = write!(table, "<td>{}–{}</td>", number(point.low), number(point.high));
            }
            if figure.baseline.is_some() {
                let ratio = figure.baseline_at(&point.place).map_or(String::new(), |base| number(point.median / base));
                let _ = write!(table, "<td>{ratio}</td>");
            }
            if points().any(|other| other.place == point.place && other.published.is_some()) {
                let _ = write!(table, "<td>{}</td>", point.published.map_or(String::new(), number));
            }
        }
        table.push_str("</tr>\n");
    }
    table + "</table></div>\n"
}

fn colour(series: &Series) -> &'static str {
    COLOURS.iter().find(|(label, _)| *label == series.label).map_or("#777777", |(_, colour)| colour)
}

/// A round number in as few characters as will do.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", value / 1e6),
        size if size >= 1e4 => format!("{}k", value / 1e3),
        0.0 => "0".to_owned(),
        size if size < 1e-3 => format!("{value:e}"),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Provenance;
    use crate::verdicts::judged;

    fn figure(chart: Chart) -> Figure {
        let series = |label: &str, factor: f64| Series {
            label: label.to_owned(),
            points: (1..=3_u8)
                .map(|at| Point::of(format!("size {at}"), &[f64::from(at) * factor; 9], (at == 2).then_some(1.25)))
                .collect(),
        };
        Figure {
            id: "f".to_owned(),
            paper: "A paper".to_owned(),
            title: "Time & <space>".to_owned(),
            chart,
            unit: "ns".to_owned(),
            baseline: Some("base".to_owned()),
            notes: vec!["As \"said\"".to_owned()],
            series: vec![series("base", 2.0), series("rival", 5.0)],
            run: None,
        }
    }

    #[test]
    fn every_value_is_drawn_and_told_with_its_ratio_and_the_papers() {
        let page = html(&[figure(Chart::Bars)], &[]);
        assert_eq!(page.matches("<rect ").count(), 6);
        assert!(page.contains("<title>rival, size 3: 15.0 ns</title>"));
        assert!(page.contains("<td>15.0</td><td>2.50</td></tr>"), "no interval, and nothing of the paper's");
        assert!(page.contains("<td>2.50</td><td>1.25</td>"));
        let page = html(&[figure(Chart::Lines), figure(Chart::Points)], &[]);
        assert_eq!((page.matches("<polyline ").count(), page.matches("<circle ").count()), (2, 12));
    }

    #[test]
    fn a_series_without_the_first_place_is_drawn_at_its_own_places() {
        for (chart, drawn, at) in [(Chart::Bars, "<rect ", "x=\""), (Chart::Lines, "<circle ", "cx=\"")] {
            let (whole, mut lacking) = (figure(chart), figure(Chart::Bars));
            lacking.chart = whole.chart.clone();
            lacking.series[1].points.remove(0);
            let last = |figure: Figure| {
                let page = html(&[figure], &[]);
                let mark = page.rsplit(drawn).next().expect("something is drawn").to_owned();
                mark.split(at).nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
            };
            assert!(last(whole.clone()).is_some());
            assert_eq!(last(whole), last(lacking));
        }
    }

    #[test]
    fn verdicts_stand_at_the_head_and_raw_data_with_each_figure() {
        let mut drawn = figure(Chart::Bars);
        drawn.series[0].points[0].origin = Origin::Input;
        drawn.run = Some(Provenance {
            command: "bench experiments f".to_owned(),
            machine: "none".to_owned(),
            seed: "<7>".to_owned(),
            scale: Some(crate::Scale::QUICK),
        });
        let figures = [drawn];
        let page = html(&figures, &judged(&figures));
        assert!(
            page.find("<h2>Verdicts</h2>").unwrap_or(usize::MAX) < page.find("Time &amp; &lt;space&gt;").unwrap_or(0)
        );
        assert_eq!(page.matches("<details id=\"row-").count(), 35);
        assert!(page.contains("0 reproduced, 0 reproduced in shape, 0 not reproduced, 35 not run; 0 with claims"));
        let missing = "<td>not run</td><td>0</td><td>0</td><td>0</td><td>0</td><td>Tidegate ÷ Classic, 1 replica (tinca-fig-10a);";
        assert!(page.contains(missing), "each claim that was not run is told");
        assert!(page.contains("Command: <code>bench experiments f</code>. Machine: none. Seed: &lt;7&gt;."));
        assert!(page.contains("f,rival,size 3,8,15,ns,15,15,15,,Measured") && page.contains("<td><i>2.00</i></td>"));
    }

    #[test]
    fn parts_are_stacked_and_what_ran_beside_is_only_told() {
        let mut stack = figure(Chart::Stacks);
        stack.series[1].label = BESIDE.to_owned();
        let page = html(&[stack], &[]);
        assert_eq!(page.matches("<rect ").count(), 3);
        assert!(page.contains(&format!("<td>{BESIDE}</td><td>5.00</td>")));
        let mut rows = figure(Chart::Spans);
        for (nth, point) in rows.series.iter_mut().flat_map(|series| series.points.iter_mut().enumerate()) {
            (point.place, point.low, point.high) = (nth.to_string(), 1.0, 2.0);
        }
        assert_eq!(html(&[rows], &[]).matches("<rect ").count(), 6);
    }

    #[test]
    fn intervals_are_told_where_there_are_any() {
        let mut wide = figure(Chart::Bars);
        wide.series[0].points[0].low = 1.5;
        assert!(html(&[wide], &[]).contains("<td>15.0</td><td>15.0–15.0</td><td>2.50</td>"));
    }

    #[test]
    fn text_cannot_become_markup() {
        let page = html(&[figure(Chart::Bars)], &[]);
        assert!(
            page.contains("Time &amp; &lt;space&gt;")
                && page.contains("As &quot;said&quot;")
                && !page.contains("<space>")
        );
    }

    #[test]
    fn values_far_apart_are_drawn_by_factors() {
        let mut far = figure(Chart::Lines);
        far.series[1].points[2].high = 10_000.0;
        let scale = Scale::of(&far.series, HEIGHT);
        assert!(scale.by_factors && scale.marks() == [1.0, 10.0, 100.0, 1000.0, 10_000.0], "{:?}", scale.marks());
        assert!(scale.y(10_000.0) < scale.y(100.0) && scale.y(100.0) < scale.y(2.0));
        let near = Scale::of(&figure(Chart::Lines).series, HEIGHT);
        assert!(!near.by_factors && near.marks()[0] == 0.0);
    }

    #[test]
    fn a_zero_stretches_no_scale() {
        let of = |values: &[f64]| {
            let points = values.iter().map(|value| Point::exact("here", *value, None)).collect();
            Scale::of(&[Series { label: "images".to_owned(), points }], HEIGHT)
        };
        let floor = HEIGHT - BOTTOM;
        let two = of(&[0.0, 50_000.0]);
        assert!(!two.by_factors && two.marks() == [0.0, 20_000.0, 40_000.0], "{:?}", two.marks());
        assert!(two.y(0.0) == floor && two.y(50_000.0) < two.y(40_000.0));
        let three = of(&[0.0, 5.0, 50_000.0]);
        assert!(three.by_factors && three.marks() == [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert!(three.y(0.0) == floor && three.y(5.0) < floor && three.y(50_000.0) < three.y(5.0));
        let tiny = of(&[1e-200, 50_000.0]);
        assert_eq!(tiny.marks().len(), 10, "{:?}", tiny.marks());
        let nothing = of(&[0.0, 0.0]);
        assert!(nothing.y(0.0) == floor && nothing.marks().len() > 1);
    }
}
