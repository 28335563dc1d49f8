//! Hit ratios on traces for which they are known: by formula, by a bound, or by what the policies
//! were made for.

use super::Replacement;
use std::collections::HashMap;

const KEYS: usize = 10_000;
const SLOTS: u32 = 1_000;
const REQUESTS: usize = 400_000;

/// Numbers from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    /// Evenly from 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How probable each key is: the n-th in proportion to 1/n^`skew`.
fn zipf(skew: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-skew)).collect();
    let all: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / all).collect()
}

/// Keys drawn independently of each other.
fn drawn(probable: &[f64], requests: usize) -> Vec<u64> {
    let sums: Vec<f64> = probable.iter().scan(0.0, |sum, p| Some((*sum += p, *sum).1)).collect();
    let mut numbers = Numbers(42);
    let mut draw = || {
        let number = numbers.next();
        sums.partition_point(|sum| *sum < number).min(KEYS - 1) as u64
    };
    (0..requests).map(|_| draw()).collect()
}

/// The share of requests that were hits, without the first fifth.
fn hit_ratio(replacement: Replacement, trace: &[u64]) -> f64 {
    let (mut policy, mut where_is, mut keys) =
        (replacement.over(SLOTS), HashMap::new(), vec![u64::MAX; SLOTS as usize]);
    let (mut free, mut hits) = ((0..SLOTS).collect::<Vec<_>>(), 0);
    for (time, key) in trace.iter().enumerate() {
        if let Some(slot) = where_is.get(key) {
            policy.touch(*slot);
            hits += usize::from(time >= trace.len() / 5);
            continue;
        }
        let slot = free.pop().or_else(|| policy.victim(&mut |_| true)).expect("a slot");
        where_is.remove(&keys[slot as usize]);
        keys[slot as usize] = *key;
        where_is.insert(*key, slot);
        policy.insert(slot, *key);
    }
    hits as f64 / (trace.len() - trace.len() / 5) as f64
}

/// The ratio of a cache whose keys stay for a time T after a request, T such that it is full:
/// `stays` tells the probability that a key of probability p is there.
fn by_characteristic_time(probable: &[f64], stays: fn(f64) -> f64) -> f64 {
    let held = |time: f64| probable.iter().map(|p| stays(p * time)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if held(middle) < f64::from(SLOTS) { low = middle } else { high = middle }
    }
    probable.iter().map(|p| p * stays(p * low)).sum()
}

#[test]
fn least_recently_used_has_the_ratio_of_the_formula() {
    for skew in [0.6, 0.8, 1.0] {
        let probable = zipf(skew);
        // Che, Tung and Wang's approximation.
        let expected = by_characteristic_time(&probable, |x| 1.0 - (-x).exp());
        let found = hit_ratio(Replacement::Lru, &drawn(&probable, REQUESTS));
        assert!((found - expected).abs() < 0.005, "{skew}: {found:.4}, expected {expected:.4}");
    }
}

#[test]
fn no_policy_beats_the_best_and_all_beat_chance() {
    let probable = zipf(1.0);
    let trace = drawn(&probable, REQUESTS);
    let best: f64 = probable[..SLOTS as usize].iter().sum();
    // First in, first out, and random replacement.
    let chance = by_characteristic_time(&probable, |x| x / (1.0 + x));
    let lru = hit_ratio(Replacement::Lru, &trace);
    for replacement in Replacement::ALL {
        let found = hit_ratio(replacement, &trace);
        assert!((chance - 0.005..best + 0.005).contains(&found), "{replacement}: {chance:.3} {found:.3} {best:.3}");
        let frugal = matches!(replacement, Replacement::Sieve | Replacement::TwoQueues | Replacement::S3Fifo);
        assert!(!frugal || found > lru + 0.02, "{replacement}: {found:.3}, lru {lru:.3}");
    }
}

#[test]
fn a_loop_of_one_block_more_than_fits_never_hits_the_least_recently_used() {
    let trace: Vec<u64> = (0..u64::from(SLOTS + 1)).cycle().take(20 * SLOTS as usize).collect();
    assert!(hit_ratio(Replacement::Lru, &trace) == 0.0);
    assert!(hit_ratio(Replacement::TwoQueues, &trace) > 0.5);
}

#[test]
fn scans_take_less_from_those_made_for_them() {
    let requests = drawn(&zipf(0.9), REQUESTS);
    // After each 2,000 requests, 2,000 blocks that are never wanted again.
    let scan = |nth: usize| (KEYS + nth * 2_000..KEYS + (nth + 1) * 2_000).map(|key| key as u64);
    let pieces = requests.chunks(2_000).enumerate();
    let trace: Vec<u64> = pieces.flat_map(|(nth, piece)| piece.iter().copied().chain(scan(nth))).collect();
    let ratio = |replacement| hit_ratio(replacement, &trace);
    let (lru, clock) = (ratio(Replacement::Lru), ratio(Replacement::Clock));
    for replacement in [Replacement::Sieve, Replacement::TwoQueues, Replacement::S3Fifo] {
        let found = ratio(replacement);
        assert!(found > lru * 1.3 && found > clock * 1.1, "{replacement}: {found:.3}, lru {lru:.3}, clock {clock:.3}");
    }
}
