//! Which of many keys is asked for next: all alike, few of them far more often, or the newest.
//!
//! Zipfian keys are drawn as YCSB draws them, by the method of Gray et al. (SIGMOD 1994, § 3.2),
//! and scattered, so that those in demand do not lie side by side.

use std::fmt;
use tidegate_sim::{Rng, mix};

/// How requests spread over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Spread {
    /// Each key as often as any other.
    Uniform,
    /// The n-th in demand 1/n^0.99 times as often as the first.
    Zipfian,
    /// The n-th in demand 1/n^0.99 times as often as the first, and the newest keys are those in
    /// demand.
    Latest,
    /// Nine requests of ten ask for a hundredth of the keys.
    HotSpot,
    /// All ask for the same key.
    One,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Spread::Uniform => "uniform",
            Spread::Zipfian => "zipfian",
            Spread::Latest => "latest",
            Spread::HotSpot => "hot spot",
            Spread::One => "one alone",
        })
    }
}

/// YCSB's exponent.
const THETA: f64 = 0.99;

/// Keys from 0 on.
#[derive(Clone, Debug)]
pub struct Keys {
    spread: Spread,
    count: u64,
    /// Σ 1/n^θ over all keys.
    zeta: f64,
    eta: f64,
}

impl Keys {
    /// At least one key, up to `count`, the last one the newest.
    pub fn new(spread: Spread, count: u64) -> Keys {
        let weight = |rank: u64| (rank as f64).powf(-THETA);
        let zeta: f64 = match spread {
            Spread::Zipfian | Spread::Latest => (1..=count).map(weight).sum(),
            Spread::Uniform | Spread::HotSpot | Spread::One => 1.0,
        };
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - (1.0 + weight(2)) / zeta);
        Keys { spread, count, zeta, eta }
    }

    /// The next key.
    pub fn draw(&self, random: &mut Rng) -> u64 {
        match self.spread {
            Spread::Uniform => random.below(self.count),
            Spread::Zipfian => mix(self.rank(random)) % self.count,
            Spread::Latest => self.count - 1 - self.rank(random),
            Spread::HotSpot if random.one_in(10) => random.below(self.count),
            Spread::HotSpot => random.below((self.count / 100).max(1)),
            Spread::One => self.count / 2,
        }
    }

    /// A rank, 0 the most in demand.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranks are below a count")]
    fn rank(&self, random: &mut Rng) -> u64 {
        const STEPS: u64 = 1 << 53;
        let chance = random.below(STEPS) as f64 / STEPS as f64;
        let share = chance * self.zeta;
        if share < 1.0 {
            return 0;
        }
        if share < 1.0 + 0.5_f64.powf(THETA) {
            return 1.min(self.count - 1);
        }
        let rank = self.count as f64 * (self.eta * chance - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 1000;
    const DRAWS: u32 = 100_000;

    /// How often each key was drawn, most in demand first.
    fn drawn(spread: Spread) -> Vec<u32> {
        let (keys, mut random) = (Keys::new(spread, KEYS), Rng::new(5));
        let mut counts = vec![0; 1000];
        (0..DRAWS).for_each(|_| counts[usize::try_from(keys.draw(&mut random)).unwrap_or(usize::MAX)] += 1);
        counts
    }

    /// Shares by the sums of 1/n^0.99: 5.29 over a hundred keys, 7.73 over a thousand.
    #[test]
    fn few_keys_are_in_demand_by_the_law_of_zipf() {
        let counts = drawn(Spread::Latest);
        let share = |count: u32| f64::from(count) / f64::from(DRAWS);
        assert!((share(counts[999]) - 1.0 / 7.73).abs() < 0.01, "{}", share(counts[999]));
        let hundred: u32 = counts[900..].iter().sum();
        assert!((share(hundred) - 5.29 / 7.73).abs() < 0.03, "{}", share(hundred));
    }

    #[test]
    fn keys_in_demand_lie_apart() {
        let counts = drawn(Spread::Zipfian);
        let most = counts.iter().copied().max().unwrap_or(0);
        assert!(most > DRAWS / 10 && counts.iter().filter(|count| **count > DRAWS / 100).count() < 20);
        let halves = counts[..500].iter().sum::<u32>().max(counts[500..].iter().sum());
        assert!(halves < DRAWS * 8 / 10, "{halves}");
    }

    #[test]
    fn the_latest_key_is_the_one_most_in_demand() {
        let counts = drawn(Spread::Latest);
        assert!(counts[999] > counts[998] && counts[998] > counts[990], "{:?}", &counts[990..]);
        assert!(counts[..500].iter().sum::<u32>() < DRAWS / 5);
    }

    #[test]
    fn a_hot_spot_takes_nine_of_ten() {
        let hot: u32 = drawn(Spread::HotSpot)[..10].iter().sum();
        assert!((89_000..92_000).contains(&hot), "{hot}");
        assert!(drawn(Spread::Uniform).iter().all(|count| (50..160).contains(count)));
    }
}
