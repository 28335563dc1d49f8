//! The figures of a run under the claims of one row, and the rules by which a claim is judged.

use super::{Claim, Judgement};
use crate::figure::{Figure, Origin, Point};

/// How far a ratio may be from the paper's.
const OFF_MAX: f64 = 0.3;

/// How many times larger or smaller an effect may be than the paper's.
const EFFECT_TIMES_MAX: f64 = 2.0;

/// Values that differ by less have no order.
const TIE: f64 = 0.02;

/// The figures of a run, and the claims so far.
pub(super) struct Sheet<'a> {
    figures: &'a [Figure],
    claims: Vec<Claim>,
}

/// One place of one figure, where subjects are compared.
pub(super) struct Place<'s, 'a> {
    sheet: &'s mut Sheet<'a>,
    figure: &'static str,
    place: String,
}

impl<'a> Sheet<'a> {
    pub(super) fn of(figures: &'a [Figure]) -> Sheet<'a> {
        Sheet { figures, claims: Vec::new() }
    }

    pub(super) fn into_claims(self) -> Vec<Claim> {
        self.claims
    }

    pub(super) fn at(&mut self, figure: &'static str, place: impl Into<String>) -> Place<'_, 'a> {
        Place { sheet: self, figure, place: place.into() }
    }

    /// The figure `id`, if the run has it.
    pub(super) fn figure(&self, id: &str) -> Option<&'a Figure> {
        self.figures.iter().find(|figure| figure.id == id)
    }

    fn point(&self, figure: &str, label: &str, place: &str) -> Option<&'a Point> {
        self.figure(figure)?.point(label, place)
    }

    /// The value of `label` at `place`, if the run has it.
    pub(super) fn value(&self, figure: &str, label: &str, place: &str) -> Option<f64> {
        self.point(figure, label, place).map(|point| point.median)
    }

    /// The places of `label`, in the figure's order; `otherwise` if the run lacks the figure, so
    /// that what is claimed there is listed.
    pub(super) fn places_or(&self, figure: &str, label: &str, otherwise: &[&str]) -> Vec<String> {
        let series = self.figure(figure).and_then(|found| found.series.iter().find(|one| one.label == label));
        match series {
            Some(series) => series.points.iter().map(|point| point.place.clone()).collect(),
            None => otherwise.iter().map(|place| (*place).to_owned()).collect(),
        }
    }

    /// `here` is the paper's ratio.
    pub(super) fn ratio(&mut self, what: impl Into<String>, here: Option<f64>, paper: f64) {
        let holds = here.map_or(Judgement::NotRun, |here| judge_ratio(here, paper));
        self.claims.push(Claim { what: what.into(), here, paper: Some(paper), holds });
    }

    /// `here` is a quantity of the paper's with its own unit: only the distance is judged.
    pub(super) fn quantity(&mut self, what: impl Into<String>, here: Option<f64>, paper: f64) {
        let near = |here: f64| (here / paper - 1.0).abs() <= OFF_MAX;
        let holds =
            here.map_or(Judgement::NotRun, |here| if near(here) { Judgement::AsPublished } else { Judgement::InShape });
        self.claims.push(Claim { what: what.into(), here, paper: Some(paper), holds });
    }

    /// `less` is less than `more`; both values stand in the claim as their ratio.
    pub(super) fn less(&mut self, what: impl Into<String>, less: Option<f64>, more: Option<f64>) {
        // Two zeroes are a tie.
        let here = less.zip(more).map(|(less, more)| if less == more { 1.0 } else { less / more });
        self.below(what, here, 1.0);
    }

    /// `here` is less than `bound`.
    pub(super) fn below(&mut self, what: impl Into<String>, here: Option<f64>, bound: f64) {
        let holds =
            |here: f64| if here < bound * (1.0 - TIE) { Judgement::AsPublished } else { Judgement::Contradicted };
        self.claims.push(Claim { what: what.into(), here, paper: None, holds: here.map_or(Judgement::NotRun, holds) });
    }

    /// `here` is at most `bound`.
    pub(super) fn at_most(&mut self, what: impl Into<String>, here: Option<f64>, bound: f64) {
        let holds = |here: f64| if here <= bound { Judgement::AsPublished } else { Judgement::Contradicted };
        self.claims.push(Claim { what: what.into(), here, paper: None, holds: here.map_or(Judgement::NotRun, holds) });
    }

    /// The paper shows this, and the run has nothing to judge it by.
    pub(super) fn not_run(&mut self, what: impl Into<String>) {
        self.claims.push(Claim { what: what.into(), here: None, paper: None, holds: Judgement::NotRun });
    }

    fn as_input(&mut self) {
        let claim = self.claims.last_mut().expect("a claim was made");
        claim.holds = Judgement::Input;
    }
}

impl Place<'_, '_> {
    fn point(&self, label: &str) -> Option<Point> {
        self.sheet.point(self.figure, label, &self.place).cloned()
    }

    /// What `over` takes over what `under` takes, against the paper's ratio.
    pub(super) fn ratio(mut self, over: &str, under: &str, paper: f64) -> Self {
        let what = format!("{over} ÷ {under}, {} ({})", self.place, self.figure);
        let points = self.point(over).zip(self.point(under));
        let here = points.as_ref().map(|(over, under)| over.median / under.median);
        self.sheet.ratio(what, here, paper);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Chart, Series};

    fn figure(values: &[(&str, Point)]) -> Figure {
        let one = |(label, point): &(&str, Point)| Series { label: (*label).to_owned(), points: vec![point.clone()] };
        Figure {
            id: "f".to_owned(),
            paper: String::new(),
            title: String::new(),
            chart: Chart::Bars,
            unit: String::new(),
            baseline: None,
            notes: Vec::new(),
            series: values.iter().map(one).collect(),
            run: None,
        }
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
        let figures =
            [figure(&[("fitted", point(2.0).as_input()), ("base", point(1.0).as_input()), ("free", point(3.0))])];
        let mut sheet = Sheet::of(&figures);
        sheet
            .at("f", "here")
            .ratio("fitted", "base", 2.0)
            .ratio("free", "base", 3.1)
            .ratio("absent", "base", 3.1)
            .least("base", &["fitted", "free"])
            .least("free", &["base"]);
        let found: Vec<Judgement> = sheet.into_claims().iter().map(|claim| claim.holds).collect();
        assert_eq!(
            found,
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
        let found: Vec<Judgement> = sheet.into_claims().iter().map(|claim| claim.holds).collect();
        assert_eq!(found, [Judgement::Contradicted, Judgement::Contradicted, Judgement::AsPublished]);
    }
}
