//! Two subjects in turn, and the ratio that many such turns give.
//!
//! Each pair of samples is taken back to back, and every second pair in the other order, so that a
//! machine that slows down or speeds up meets both sides alike. A pair is kept as its ratio. The
//! interval around the median ratio is read off the sorted ratios themselves: with n of them, the
//! k-th from either end encloses the true median with the probability that n fair coins show at
//! least k heads and at least k tails. No shape of the noise is assumed.

use serde::{Deserialize, Serialize};
use std::convert::Infallible;

/// Below this many pairs a median is too loose to judge by.
pub const PAIRS_MIN: i64 = 9;

/// Above this many, the coins are too many for floating point.
pub const PAIRS_MAX: i64 = 999;

/// How sure an interval is to enclose the true median.
const CONFIDENCE: f64 = 0.95;

/// Samples of two subjects, pair by pair, both in one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    over: Vec<f64>,
    under: Vec<f64>,
}

impl Pairs {
    /// Samples `over` and `under` in turn, `pairs` times, after one sample of each that only warms
    /// up.
    pub fn alternate(pairs: u16, mut over: impl FnMut() -> f64, mut under: impl FnMut() -> f64) -> Pairs {
        let taken: Result<Pairs, Infallible> = Pairs::try_alternate(pairs, || Ok(over()), || Ok(under()));
        let Ok(taken) = taken;
        taken
    }

    /// Samples `over` and `under` in turn, as [`Pairs::alternate`] does, until a sample fails.
    pub fn try_alternate<E>(
        pairs: u16,
        mut over: impl FnMut() -> Result<f64, E>,
        mut under: impl FnMut() -> Result<f64, E>,
    ) -> Result<Pairs, E> {
        over()?;
        under()?;
        let mut taken = Pairs { over: Vec::with_capacity(pairs.into()), under: Vec::with_capacity(pairs.into()) };
        for pair in 0..pairs {
            if pair % 2 == 0 {
                taken.over.push(over()?);
                taken.under.push(under()?);
            } else {
                taken.under.push(under()?);
                taken.over.push(over()?);
            }
        }
        Ok(taken)
    }

    /// The samples above the fraction bar.
    pub fn over(&self) -> Estimate {
        Estimate::of(&self.over)
    }

    /// The samples below the fraction bar.
    pub fn under(&self) -> Estimate {
        Estimate::of(&self.under)
    }

    /// Over ÷ under, pair by pair.
    pub fn ratio(&self) -> Estimate {
        let ratios: Vec<f64> = self.over.iter().zip(&self.under).map(|(over, under)| over / under).collect();
        Estimate::of(&ratios)
    }
}

/// What a handful of samples say about the quantity behind them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The middle of the sorted samples.
    pub median: f64,
    /// Lower end of the 95 % interval of the median.
    pub low: f64,
    /// Upper end of the 95 % interval of the median.
    pub high: f64,
    /// The smallest sample.
    pub least: f64,
    /// The largest sample.
    pub greatest: f64,
    /// How many samples there were.
    pub samples: usize,
}

impl Estimate {
    /// Estimates from at least one sample. Fewer than six enclose nothing with 95 %: the interval
    /// is then all of them.
    pub fn of(samples: &[f64]) -> Estimate {
        assert!(!samples.is_empty(), "no samples to estimate from");
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let rank = interval_rank(sorted.len());
        Estimate {
            median: f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]),
            low: sorted[rank],
            high: sorted[last - rank],
            least: sorted[0],
            greatest: sorted[last],
            samples: sorted.len(),
        }
    }
}

/// How many samples to leave out at either end so that the rest still enclose the median with
/// [`CONFIDENCE`].
fn interval_rank(samples: usize) -> usize {
    let mut rank = 0;
    let mut ways = 1.0; // to choose `rank` of the samples
    let mut outside = 2.0 * 0.5_f64.powi(i32::try_from(samples).expect("samples are counted in dozens"));
    loop {
        ways *= (samples - rank) as f64 / (rank + 1) as f64;
        outside += 2.0 * ways * 0.5_f64.powi(i32::try_from(samples).expect("samples are counted in dozens"));
        if outside > 1.0 - CONFIDENCE || 2 * (rank + 1) >= samples {
            return rank;
        }
        rank += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of the sign test: 5 % two-sided leaves 0 of 6, 0 of 8, 1 of 9, 2 of 12, 3 of 15, 5 of
    /// 21 outside.
    #[test]
    fn interval_ranks_are_those_of_the_sign_test() {
        let expected = [(1, 0), (2, 0), (5, 0), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (21, 5), (25, 7)];
        for (samples, rank) in expected {
            assert_eq!(interval_rank(samples), rank, "of {samples} samples");
        }
    }

    #[test]
    fn nine_samples_are_judged_by_the_second_and_the_eighth() {
        let estimate = Estimate::of(&[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0]);
        let expected = Estimate { median: 5.0, low: 2.0, high: 8.0, least: 1.0, greatest: 9.0, samples: 9 };
        assert_eq!(estimate, expected);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Estimate::of(&[4.0, 1.0, 2.0, 10.0]).median, 3.0);
    }

    /// Pairs 12/4, 2/1, 5/5: the ratio of the medians would be 5/4, the median of the ratios is 2.
    #[test]
    fn ratios_are_taken_within_a_pair() {
        let pairs = Pairs { over: vec![12.0, 2.0, 5.0], under: vec![4.0, 1.0, 5.0] };
        assert_eq!(pairs.ratio().median, 2.0);
        assert_eq!((pairs.over().median, pairs.under().median), (5.0, 4.0));
    }

    #[test]
    fn a_sample_that_fails_ends_the_run() {
        let mut taken = 0;
        let over = || {
            taken += 1;
            if taken < 3 { Ok(1.0) } else { Err("no more") }
        };
        assert_eq!(Pairs::try_alternate(9, over, || Ok(1.0)), Err("no more"));
        assert_eq!(taken, 3);
    }

    #[test]
    fn every_second_pair_is_taken_in_the_other_order() {
        let order = std::cell::RefCell::new(String::new());
        let note = |who| {
            order.borrow_mut().push(who);
            1.0
        };
        Pairs::alternate(3, || note('a'), || note('b'));
        assert_eq!(*order.borrow(), "ab ab ba ab".replace(' ', ""));
    }
}
