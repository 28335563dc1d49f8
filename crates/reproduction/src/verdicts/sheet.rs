//! The figures of a run under the claims of one row, and the rules by which a claim is judged.

use super::{Claim, Judgement};
use crate::Scale;
use crate::figure::{Figure, Origin, Point, Series};

/// How far a ratio may be from the paper's.
const OFF_MAX: f64 = 0.3;

/// How many times larger or smaller an effect may be than the paper's.
const EFFECT_TIMES_MAX: f64 = 2.0;

/// How many times larger or smaller a quantity may be than the paper's and have its size at all.
const QUANTITY_TIMES_MAX: f64 = 2.0;

/// Values that differ by less have no order.
const TIE: f64 = 0.02;

/// The figures of a run, and the claims so far.
pub(super) struct Sheet<'a> {
    figures: Vec<&'a Figure>,
    claims: Vec<Claim>,
}

/// One place of one figure, where subjects are compared.
pub(super) struct Place<'s, 'a> {
    sheet: &'s mut Sheet<'a>,
    figure: &'static str,
    place: String,
}

impl<'a> Sheet<'a> {
    /// A sheet over those of `figures` that verdicts may rest on.
    pub(super) fn of(figures: &'a [Figure]) -> Sheet<'a> {
        Sheet { figures: figures.iter().filter(|figure| may_judge(figure)).collect(), claims: Vec::new() }
    }

    pub(super) fn into_claims(self) -> Vec<Claim> {
        self.claims
    }

    pub(super) fn at(&mut self, figure: &'static str, place: impl Into<String>) -> Place<'_, 'a> {
        Place { sheet: self, figure, place: place.into() }
    }

    fn series(&self, figure: &str, label: &str) -> Option<&'a Series> {
        let found = self.figures.iter().find(|found| found.id == figure)?;
        found.series.iter().find(|series| series.label == label)
    }

    fn point(&self, figure: &str, label: &str, place: &str) -> Option<&'a Point> {
        let points = &self.series(figure, label)?.points;
        points.iter().find(|point| point.place == place && point.median.is_finite())
    }

    /// The value of `label` at `place`, if the run has it and it is finite.
    pub(super) fn value(&self, figure: &str, label: &str, place: &str) -> Option<f64> {
        self.point(figure, label, place).map(|point| point.median)
    }

    /// All values of `label`, in the figure's order, if there are any and each is finite.
    pub(super) fn values(&self, figure: &str, label: &str) -> Option<Vec<f64>> {
        let values: Vec<f64> = self.series(figure, label)?.points.iter().map(|point| point.median).collect();
        (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(values)
    }

    /// What `over` has over what `under` has, in the mean over the places of `figure`.
    pub(super) fn mean_quotient(&self, figure: &str, over: &str, under: &str) -> Option<f64> {
        self.figures.iter().find(|found| found.id == figure)?.mean_quotient(over, under)
    }

    /// The places of `label`, in the figure's order; `otherwise` if the run has none, so that what
    /// is claimed there is listed.
    pub(super) fn places_or(&self, figure: &str, label: &str, otherwise: &[&str]) -> Vec<String> {
        match self.series(figure, label) {
            Some(series) if !series.points.is_empty() => {
                series.points.iter().map(|point| point.place.clone()).collect()
            }
            _ => otherwise.iter().map(|place| (*place).to_owned()).collect(),
        }
    }

    fn claim(
        &mut self,
        what: impl Into<String>,
        here: Option<f64>,
        paper: Option<f64>,
        judge: impl Fn(f64) -> Judgement,
    ) {
        self.claims.push(Claim { what: what.into(), here, paper, holds: here.map_or(Judgement::NotRun, judge) });
    }

    /// `here` is the paper's ratio.
    pub(super) fn ratio(&mut self, what: impl Into<String>, here: Option<f64>, paper: f64) {
        let here = here.filter(|here| here.is_finite() && *here > 0.0);
        self.claim(what, here, Some(paper), |here| judge_ratio(here, paper));
    }

    /// `here` is a quantity of the paper's with its own unit: only the distance is judged.
    pub(super) fn quantity(&mut self, what: impl Into<String>, here: Option<f64>, paper: f64) {
        let here = here.filter(|here| here.is_finite());
        self.claim(what, here, Some(paper), |here| judge_distances(&[here / paper]));
    }

    /// `here` is a share of the paper's, in percent: the rest to 100 is judged too.
    pub(super) fn percentage(&mut self, what: impl Into<String>, here: Option<f64>, paper: f64) {
        let here = here.filter(|here| here.is_finite());
        self.claim(what, here, Some(paper), |here| judge_distances(&[here / paper, (100.0 - here) / (100.0 - paper)]));
    }

    /// `less` is less than `more`; both values stand in the claim as their ratio.
    pub(super) fn less(&mut self, what: impl Into<String>, less: Option<f64>, more: Option<f64>) {
        let both = less.zip(more).filter(|(less, more)| less.is_finite() && more.is_finite());
        // Two zeroes are a tie; anything is infinitely more than nothing.
        let here = both.map(|(less, more)| if less == more { 1.0 } else { less / more });
        self.claim(what, here, None, |here| judge_order(here, 1.0));
    }

    /// `here` is less than `bound`.
    pub(super) fn below(&mut self, what: impl Into<String>, here: Option<f64>, bound: f64) {
        let here = here.filter(|here| here.is_finite());
        self.claim(what, here, None, |here| judge_order(here, bound));
    }

    /// There are none of what is counted.
    pub(super) fn none(&mut self, what: impl Into<String>, count: Option<f64>) {
        let judge = |count: f64| if count > 0.0 { Judgement::Contradicted } else { Judgement::AsPublished };
        self.claim(what, count.filter(|count| count.is_finite()), None, judge);
    }

    /// The paper shows this, and the run has nothing to judge it by.
    pub(super) fn not_run(&mut self, what: impl Into<String>) {
        self.claims.push(Claim { what: what.into(), here: None, paper: None, holds: Judgement::NotRun });
    }

    fn as_input(&mut self) {
        let claim = self.claims.last_mut().expect("a claim was made");
        if claim.holds != Judgement::NotRun {
            claim.holds = Judgement::Input;
        }
    }
}

/// Rule 6: whether `figure` tells its scale, and its values mean something at that scale.
fn may_judge(figure: &Figure) -> bool {
    let scale = figure.run.as_ref().and_then(|run| run.scale);
    scale.is_some_and(|scale| [Scale::FULL, Scale::QUICK].contains(&scale))
}

/// `over` as a ratio to `under`, if both are finite and greater than 0.
pub(super) fn quotient(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    let [over, under] = [over, under].map(|value| value.filter(|value| value.is_finite() && *value > 0.0));
    over.zip(under).map(|(over, under)| over / under)
}

impl Place<'_, '_> {
    fn point(&self, label: &str) -> Option<Point> {
        self.sheet.point(self.figure, label, &self.place).cloned()
    }

    /// What `over` takes over what `under` takes, against the paper's ratio.
    pub(super) fn ratio(mut self, over: &str, under: &str, paper: f64) -> Self {
        let what = format!("{over} ÷ {under}, {} ({})", self.place, self.figure);
        let points = self.point(over).zip(self.point(under));
        let (above, below) = points.as_ref().map(|(over, under)| (over.median, under.median)).unzip();
        self.sheet.ratio(what, quotient(above, below), paper);
        self.end(points);
        self
    }

    /// `less` is less than each of `more`.
    pub(super) fn least(mut self, less: &str, more: &[&str]) -> Self {
        for other in more {
            let what = format!("{less} < {other}, {} ({})", self.place, self.figure);
            let points = self.point(less).zip(self.point(other));
            let values = points.as_ref().map(|(less, more)| (less.median, more.median)).unzip();
            self.sheet.less(what, values.0, values.1);
            self.end(points);
        }
        self
    }

    fn end(&mut self, points: Option<(Point, Point)>) {
        if points.is_some_and(|(one, other)| [one, other].iter().all(|point| point.origin == Origin::Input)) {
            self.sheet.as_input();
        }
    }
}

/// Rules 1 and 2 of the verdicts.
fn judge_ratio(here: f64, paper: f64) -> Judgement {
    let effect = (here - 1.0) / (paper - 1.0);
    let near = (here / paper - 1.0).abs() <= OFF_MAX;
    let is_effect = (here - 1.0).abs() > TIE;
    match effect > 0.0 && is_effect {
        true if near && (1.0 / EFFECT_TIMES_MAX..=EFFECT_TIMES_MAX).contains(&effect) => Judgement::AsPublished,
        true => Judgement::InShape,
        false => Judgement::Contradicted,
    }
}

/// Rule 3, of a value over the paper's: the one that is furthest from 1 decides.
fn judge_distances(ratios: &[f64]) -> Judgement {
    let all = |near: fn(f64) -> bool| ratios.iter().all(|ratio| near(*ratio));
    match () {
        () if all(|ratio| (ratio - 1.0).abs() <= OFF_MAX) => Judgement::AsPublished,
        () if all(|ratio| (1.0 / QUANTITY_TIMES_MAX..=QUANTITY_TIMES_MAX).contains(&ratio)) => Judgement::InShape,
        () => Judgement::Contradicted,
    }
}

/// Rule 4.
fn judge_order(here: f64, bound: f64) -> Judgement {
    if here < bound * (1.0 - TIE) { Judgement::AsPublished } else { Judgement::Contradicted }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figure::{Chart, Provenance};

    /// A figure that ran at `scale`, or says nothing of how it was run.
    pub(in crate::verdicts) fn figure_at(scale: Option<Scale>, id: &str, series: &[(&str, &[Point])]) -> Figure {
        let one = |(label, points): &(&str, &[Point])| Series { label: (*label).to_owned(), points: points.to_vec() };
        let run = |scale: Scale| Provenance {
            command: String::new(),
            machine: String::new(),
            seed: String::new(),
            scale: Some(scale),
        };
        Figure {
            id: id.to_owned(),
            paper: String::new(),
            title: String::new(),
            chart: Chart::Bars,
            unit: String::new(),
            baseline: None,
            notes: Vec::new(),
            series: series.iter().map(one).collect(),
            run: scale.map(run),
        }
    }

    /// A figure that verdicts may rest on.
    pub(in crate::verdicts) fn figure(id: &str, series: &[(&str, &[Point])]) -> Figure {
        figure_at(Some(Scale::QUICK), id, series)
    }

    fn found(sheet: Sheet<'_>) -> Vec<Judgement> {
        sheet.into_claims().iter().map(|claim| claim.holds).collect()
    }

    #[test]
    fn a_ratio_is_judged_by_its_side_of_one_its_distance_and_its_effect() {
        assert_eq!(judge_ratio(3.3, 3.6), Judgement::AsPublished);
        assert_eq!(judge_ratio(2.0, 3.6), Judgement::InShape);
        assert_eq!(judge_ratio(0.9, 3.6), Judgement::Contradicted);
        assert_eq!(judge_ratio(1.01, 3.6), Judgement::Contradicted, "too small an effect is none");
        assert_eq!(judge_ratio(1.25, 1.06), Judgement::InShape, "near, and four times the effect");
        assert_eq!(judge_ratio(1.08, 1.06), Judgement::AsPublished);
        assert_eq!(judge_ratio(0.97, 1.06), Judgement::Contradicted, "near, and on the other side");
        assert_eq!((judge_ratio(0.3, 0.4), judge_ratio(0.1, 0.4)), (Judgement::AsPublished, Judgement::InShape));
    }

    #[test]
    fn what_was_fitted_is_not_judged_and_what_is_missing_is_told() {
        let point = |value: f64| Point::exact("here", value, None);
        let [fitted, base, free] = [point(2.0).as_input(), point(1.0).as_input(), point(3.0)];
        let figures = [figure("f", &[("fitted", &[fitted]), ("base", &[base]), ("free", &[free])])];
        let mut sheet = Sheet::of(&figures);
        sheet
            .at("f", "here")
            .ratio("fitted", "base", 2.0)
            .ratio("free", "base", 3.1)
            .ratio("absent", "base", 3.1)
            .least("base", &["fitted", "free"])
            .least("free", &["base"]);
        assert_eq!(
            found(sheet),
            [
                Judgement::Input,
                Judgement::AsPublished,
                Judgement::NotRun,
                Judgement::Input,
                Judgement::AsPublished,
                Judgement::Contradicted
            ]
        );
    }

    #[test]
    fn values_that_are_nearly_alike_have_no_order() {
        let mut sheet = Sheet::of(&[]);
        sheet.less("a tie", Some(1.0), Some(1.01));
        sheet.less("nothing on either side", Some(0.0), Some(0.0));
        sheet.less("an order", Some(1.0), Some(1.1));
        sheet.less("something and nothing", Some(1.0), Some(0.0));
        sheet.less("nothing and something", Some(0.0), Some(1.0));
        sheet.below("just a bound", Some(1.09), 1.1);
        sheet.below("a bound", Some(1.07), 1.1);
        let [yes, no] = [Judgement::AsPublished, Judgement::Contradicted];
        assert_eq!(found(sheet), [no, no, yes, no, yes, no, yes]);
    }

    #[test]
    fn values_that_make_no_ratio_are_not_run() {
        let [zero, one, unknown] = [0.0, 1.0, f64::NAN].map(|value| [Point::exact("here", value, None)]);
        let figures = [figure("f", &[("zero", &zero), ("one", &one), ("unknown", &unknown), ("none", &[])])];
        let mut sheet = Sheet::of(&figures);
        sheet
            .at("f", "here")
            .ratio("zero", "one", 0.5)
            .ratio("one", "zero", 2.0)
            .ratio("zero", "zero", 2.0)
            .ratio("one", "unknown", 2.0)
            .ratio("none", "one", 2.0)
            .least("one", &["unknown"]);
        sheet.ratio("nothing over something", Some(0.0), 0.5);
        sheet.quantity("something over nothing", Some(f64::INFINITY), 8000.0);
        sheet.percentage("nothing of nothing", Some(f64::NAN), 50.0);
        sheet.below("without a size", Some(f64::NAN), 1.0);
        sheet.none("without a count", Some(f64::NAN));
        let claims = sheet.into_claims();
        assert_eq!(claims.len(), 11);
        assert!(claims.iter().all(|claim| claim.holds == Judgement::NotRun && claim.here.is_none()), "{claims:?}");
        let sheet = Sheet::of(&figures);
        assert_eq!((sheet.values("f", "none"), sheet.values("f", "unknown")), (None, None));
        assert_eq!(sheet.values("f", "zero"), Some(vec![0.0]));
        assert_eq!(sheet.places_or("f", "none", &["elsewhere"]), ["elsewhere"]);
    }

    #[test]
    fn a_quantity_beyond_twice_the_papers_is_contradicted() {
        let judged = |here: f64| {
            let mut sheet = Sheet::of(&[]);
            sheet.quantity("blocks", Some(here), 8000.0);
            found(sheet)[0]
        };
        assert_eq!(judged(8192.0), Judgement::AsPublished);
        assert_eq!((judged(5000.0), judged(16_000.0)), (Judgement::InShape, Judgement::InShape));
        assert_eq!((judged(3999.0), judged(16_001.0)), (Judgement::Contradicted, Judgement::Contradicted));
        assert_eq!(judged(0.0), Judgement::Contradicted);
    }

    #[test]
    fn a_percentage_is_judged_by_what_is_left_of_100_too() {
        let judged = |here: f64, paper: f64| {
            let mut sheet = Sheet::of(&[]);
            sheet.percentage("hits", Some(here), paper);
            found(sheet)[0]
        };
        assert_eq!((judged(94.0, 93.0), judged(50.0, 54.0)), (Judgement::AsPublished, Judgement::AsPublished));
        assert_eq!(judged(88.0, 93.0), Judgement::InShape, "near, and 12 misses for 7");
        assert_eq!(judged(70.0, 93.0), Judgement::Contradicted, "near, and 30 misses for 7");
        assert_eq!(judged(93.0, 65.0), Judgement::Contradicted, "7 misses for 35");
        assert_eq!(judged(5.0, 25.0), Judgement::Contradicted, "a fifth, and nearly as much is left");
    }

    #[test]
    fn only_figures_that_tell_a_scale_of_some_size_are_judged() {
        let points = |value: f64| [Point::exact("here", value, None)];
        let of = |scale: Option<Scale>| {
            let figures = [figure_at(scale, "f", &[("over", &points(2.0)), ("under", &points(1.0))])];
            let mut sheet = Sheet::of(&figures);
            sheet.at("f", "here").ratio("over", "under", 2.0);
            found(sheet)[0]
        };
        let judged = [Some(Scale::FULL), Some(Scale::QUICK)].map(of);
        assert_eq!(judged, [Judgement::AsPublished; 2]);
        assert_eq!([Some(Scale::SMOKE), None].map(of), [Judgement::NotRun; 2]);
    }
}
