//! A power cut: the durable contents, the stores pending at that instant, and every image they may
//! leave.
//!
//! An image is one choice per line, and the lines choose independently (rule 4): a prefix of the
//! line's word stores (rule 6) with any subset of its other stores (rule 5). The choices of lines
//! multiply, so a cut in the middle of a block of data has 2^64 images and more. Words that
//! recovery never reads may therefore be *reduced* ([`Reduction`]): none of them, all, one, all but
//! one, or a random subset arrives.

use crate::image::{Image, in_memory};
use std::fmt;
use std::ops::Range;
use tidegate_media::{LINE_BYTES, LineOrder};
use tidegate_virtual_cores::{Rng, mix};

/// The power fails: what is durable at that instant, and what may or may not be.
#[derive(Clone, Debug)]
pub struct Cut {
    durable: Image,
    pending: Vec<Store>,
    order: LineOrder,
    fences: u64,
}

/// A store, or the part of one that falls into one aligned word, that no fence has made durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    /// Offset of the word.
    pub(crate) at: u64,
    /// The bits stored.
    pub(crate) mask: u64,
    /// Their values; zero outside the mask.
    pub(crate) value: u64,
    pub(crate) kind: StoreKind,
    /// Its place in the order in which stores became visible.
    pub(crate) seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// By `write`.
    Copied,
    /// By `stream`.
    Streamed,
    /// By `store_u64`.
    Ordered,
}

impl Store {
    pub(crate) fn put(&self, image: &mut Image) {
        image.put(self.at, self.mask, self.value);
    }

    fn over(&self, old: u64) -> u64 {
        (old & !self.mask) | (self.value & self.mask)
    }

    fn line(&self) -> u64 {
        self.at / LINE_BYTES
    }
}

/// Which words may be tried in fewer than all combinations, and how many images of one cut are too
/// many.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// Byte ranges that recovery never reads. A word store in one is not reduced.
    pub ranges: Vec<Range<u64>>,
    /// How many random subsets of the reduced words are tried beside none, all, one and all but
    /// one.
    pub random_subsets: u32,
    /// With more images than this, corners and samples stand for all.
    pub images_max: u64,
    /// How many random images are then drawn.
    pub samples: u32,
    /// Chooses the one word and the random subsets.
    pub seed: u64,
}

impl Reduction {
    /// Every image, as long as there are not more than 2^20 of them.
    pub fn none() -> Reduction {
        Reduction { ranges: Vec::new(), random_subsets: 0, images_max: 1 << 20, samples: 4096, seed: 0 }
    }

    /// Every combination but for words in `ranges`.
    pub fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Reduction {
        Reduction { ranges: ranges.into_iter().collect(), random_subsets: 1, ..Reduction::none() }
    }

    fn covers(&self, line: &[Store]) -> bool {
        let plain = line.iter().all(|store| store.kind != StoreKind::Ordered);
        plain && self.ranges.iter().any(|range| line.iter().all(|store| range.contains(&store.at)))
    }
}

/// How many images a cut may leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// The logarithm to base 2 of the number of all images, before any reduction.
    pub all_log2: f64,
    /// How many [`Cut::images`] gives.
    pub given: u64,
    /// Whether those are samples because there were more than [`Reduction::images_max`].
    pub sampled: bool,
}

impl Cut {
    pub(crate) fn new(durable: Image, pending: Vec<Store>, order: LineOrder, fences: u64) -> Cut {
        Cut { durable, pending, order, fences }
    }

    pub(crate) fn order(&self) -> LineOrder {
        self.order
    }

    pub(crate) fn pending(&self) -> &[Store] {
        &self.pending
    }

    /// Whether everything is durable: the cut leaves one image.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Each image that this cut may leave, once; those that differ only in reduced words in fewer
    /// combinations.
    pub fn images(&self, reduction: &Reduction) -> Images<'_> {
        Images::new(self, reduction)
    }

    /// The image with nothing that is pending.
    pub fn least(&self) -> &Image {
        &self.durable
    }

    /// The image with everything that is pending.
    pub fn most(&self) -> Image {
        let mut image = self.durable.clone();
        self.pending.iter().for_each(|store| store.put(&mut image));
        image
    }

    /// One legal image at random, more often than not near one with all or nothing.
    pub fn sample(&self, rng: &mut Rng) -> Image {
        let mut image = self.durable.clone();
        let usual = Odds::any(rng);
        for line in self.lines() {
            let odds = if rng.one_in(4) { Odds::any(rng) } else { usual };
            self.sample_line(&line, odds, rng, &mut image);
        }
        image
    }

    /// The words in which `image` differs from the durable contents: offset, durable word, word in
    /// the image.
    pub fn difference(&self, image: &Image) -> Vec<(u64, u64, u64)> {
        let mut words: Vec<u64> = self.pending.iter().map(|store| store.at).collect();
        words.sort_unstable();
        words.dedup();
        let pairs = words.into_iter().map(|at| (at, self.durable.load_u64(at), image.load_u64(at)));
        pairs.filter(|(_, durable, here)| durable != here).collect()
    }

    /// The pending stores, line by line, each line's in order.
    fn lines(&self) -> Vec<Vec<Store>> {
        let mut stores = self.pending.clone();
        stores.sort_by_key(Store::line);
        stores.chunk_by(|one, next| one.line() == next.line()).map(<[Store]>::to_vec).collect()
    }

    fn is_ordered(&self, store: &Store) -> bool {
        self.order == LineOrder::Prefix && store.kind == StoreKind::Ordered
    }

    fn sample_line(&self, line: &[Store], odds: Odds, rng: &mut Rng, image: &mut Image) {
        let ordered = line.iter().filter(|store| self.is_ordered(store)).count();
        let mut prefix = odds.prefix(ordered, rng);
        for store in line {
            let arrives = if self.is_ordered(store) {
                prefix = prefix.saturating_sub(1);
                prefix > 0
            } else {
                odds.arrives(rng)
            };
            if arrives {
                store.put(image);
            }
        }
    }

    /// Every content of one line: the choices of an axis.
    fn axis(&self, line: &[Store], images_max: u64) -> Axis {
        let mut at: Vec<u64> = line.iter().map(|store| store.at).collect();
        at.sort_unstable();
        at.dedup();
        let ordered = line.iter().filter(|store| self.is_ordered(store)).count();
        let mut axis = Axis { at, choices: Vec::new(), log2: 0.0 };
        let mut choices = 0.0;
        for prefix in 0..=ordered {
            let words: Vec<Vec<u64>> = axis.at.iter().map(|at| self.outcomes(line, *at, prefix)).collect();
            let product: f64 = words.iter().map(|outcomes| outcomes.len() as f64).product();
            choices += product;
            if choices <= images_max as f64 {
                push_product(&words, &mut axis.choices);
            }
        }
        axis.choices.sort_unstable();
        axis.choices.dedup();
        axis.log2 = if choices <= images_max as f64 { axis.choices.len() as f64 } else { choices }.log2();
        axis
    }

    /// What the word at `at` may hold when the first `prefix` word stores of its line have arrived.
    fn outcomes(&self, line: &[Store], at: u64, prefix: usize) -> Vec<u64> {
        let mut outcomes = vec![self.durable.load_u64(at)];
        let mut ordered = 0;
        for store in line {
            let in_order = self.is_ordered(store);
            ordered += usize::from(in_order);
            if store.at != at {
                continue;
            }
            if !in_order {
                outcomes.extend(outcomes.clone().into_iter().map(|old| store.over(old)));
            } else if ordered <= prefix {
                outcomes.iter_mut().for_each(|outcome| *outcome = store.over(*outcome));
            }
            outcomes.sort_unstable();
            outcomes.dedup();
        }
        outcomes
    }

    /// The words of the reduced lines, and the few combinations of them that are tried.
    fn pool(&self, lines: &[&Vec<Store>], reduction: &Reduction) -> Option<Axis> {
        let mut at: Vec<u64> = lines.iter().flat_map(|line| line.iter().map(|store| store.at)).collect();
        at.sort_unstable();
        at.dedup();
        let all = self.most();
        at.retain(|at| self.durable.load_u64(*at) != all.load_u64(*at));
        if at.is_empty() {
            return None;
        }
        let mut rng = Rng::new(reduction.seed ^ mix(all.hash()));
        let one = rng.index(at.len());
        let mut sets = vec![Vec::new(), vec![true; at.len()]];
        sets.push((0..at.len()).map(|word| word == one).collect());
        sets.push((0..at.len()).map(|word| word != one).collect());
        for _ in 0..reduction.random_subsets {
            sets.push(at.iter().map(|_| rng.one_in(2)).collect());
        }
        let word = |set: &Vec<bool>, index: usize| {
            let from = if set.get(index).copied().unwrap_or(false) { &all } else { &self.durable };
            from.load_u64(at[index])
        };
        let mut choices: Vec<Vec<u64>> =
            sets.iter().map(|set| (0..at.len()).map(|index| word(set, index)).collect()).collect();
        choices.sort_unstable();
        choices.dedup();
        let log2 = (choices.len() as f64).log2();
        Some(Axis { at, choices, log2 })
    }

    /// How many contents a reduced line has in truth, as a logarithm to base 2.
    fn line_log2(&self, line: &[Store]) -> f64 {
        let mut at: Vec<u64> = line.iter().map(|store| store.at).collect();
        at.sort_unstable();
        at.dedup();
        at.into_iter().map(|at| (self.outcomes(line, at, 0).len() as f64).log2()).sum()
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a power cut after fence {} with {} words pending", self.fences, self.pending.len())
    }
}

/// How likely a sampled image is to hold a pending store.
#[derive(Clone, Copy)]
struct Odds(u64);

impl Odds {
    const EIGHTHS: [u64; 6] = [0, 1, 4, 4, 7, 8];

    fn any(rng: &mut Rng) -> Odds {
        Odds(Odds::EIGHTHS[rng.index(Odds::EIGHTHS.len())])
    }

    fn arrives(self, rng: &mut Rng) -> bool {
        rng.below(8) < self.0
    }

    /// One more than the number of word stores that arrive.
    fn prefix(self, ordered: usize, rng: &mut Rng) -> usize {
        match self.0 {
            0 => 1,
            8 => ordered + 1,
            _ => rng.index(ordered + 1) + 1,
        }
    }
}

/// Words that choose together, and what they may hold.
#[derive(Clone, Debug)]
struct Axis {
    at: Vec<u64>,
    /// Each choice has one value per word.
    choices: Vec<Vec<u64>>,
    log2: f64,
}

impl Axis {
    fn put(&self, choice: usize, image: &mut Image) {
        for (at, value) in self.at.iter().zip(&self.choices[choice]) {
            image.store_u64(*at, *value);
        }
    }
}

/// Appends every way to take one of each word's outcomes.
fn push_product(words: &[Vec<u64>], into: &mut Vec<Vec<u64>>) {
    let mut chosen = vec![0usize; words.len()];
    loop {
        into.push(words.iter().zip(&chosen).map(|(outcomes, index)| outcomes[*index]).collect());
        if !step(&mut chosen, |word| words[word].len()) {
            return;
        }
    }
}

/// The next number of a counter whose digits have the bases `base`; false after the last.
fn step(digits: &mut [usize], base: impl Fn(usize) -> usize) -> bool {
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit += 1;
        if *digit < base(place) {
            return true;
        }
        *digit = 0;
    }
    false
}

/// The images of a cut, one after another.
///
/// [`Images::advance`] lends each one, which is the fast way; as an iterator it clones.
pub struct Images<'a> {
    cut: &'a Cut,
    axes: Vec<Axis>,
    chosen: Vec<usize>,
    image: Image,
    counts: Counts,
    rng: Rng,
    lines: Vec<Vec<Store>>,
    next: u64,
}

impl<'a> Images<'a> {
    fn new(cut: &'a Cut, reduction: &Reduction) -> Images<'a> {
        let lines = cut.lines();
        let (reduced, full): (Vec<_>, Vec<_>) = lines.iter().partition(|line| reduction.covers(line));
        let mut axes: Vec<Axis> = full.iter().map(|line| cut.axis(line, reduction.images_max)).collect();
        let full_log2: f64 = axes.iter().map(|axis| axis.log2).sum();
        let all_log2 = full_log2 + reduced.iter().map(|line| cut.line_log2(line)).sum::<f64>();
        // Last, because the words of the last axis change least often.
        axes.extend(cut.pool(&reduced, reduction));
        let given_log2: f64 = axes.iter().map(|axis| axis.log2).sum();
        let sampled = given_log2 > (reduction.images_max as f64).log2() + 1e-9;
        let given = if sampled {
            2 + 2 * lines.len() as u64 + u64::from(reduction.samples)
        } else {
            axes.iter().map(|axis| axis.choices.len() as u64).product()
        };
        let counts = Counts { all_log2, given, sampled };
        let rng = Rng::new(reduction.seed ^ mix(cut.durable.hash()));
        let chosen = vec![0; axes.len()];
        Images { cut, axes, chosen, image: cut.durable.clone(), counts, rng, lines, next: 0 }
    }

    /// How many images there are, and how many are given.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The next image.
    pub fn advance(&mut self) -> Option<&Image> {
        if self.next == self.counts.given {
            return None;
        }
        if self.counts.sampled {
            self.draw()
        } else {
            self.count_on()
        }
        self.next += 1;
        Some(&self.image)
    }

    fn count_on(&mut self) {
        if self.next == 0 {
            self.axes.iter().for_each(|axis| axis.put(0, &mut self.image));
            return;
        }
        for (axis, chosen) in self.axes.iter().zip(&mut self.chosen) {
            *chosen = (*chosen + 1) % axis.choices.len();
            axis.put(*chosen, &mut self.image);
            if *chosen != 0 {
                return;
            }
        }
    }

    /// The corners first: nothing, all, each line alone, all but each line. Then at random.
    fn draw(&mut self) {
        let corners = 2 + 2 * self.lines.len() as u64;
        if self.next >= corners {
            self.image = self.cut.sample(&mut self.rng);
            return;
        }
        self.image = self.cut.durable.clone();
        let alone = (in_memory(self.next) / 2).checked_sub(1);
        let rest = self.next % 2 == 1;
        for (index, line) in self.lines.iter().enumerate() {
            if (alone == Some(index)) != rest {
                line.iter().for_each(|store| store.put(&mut self.image));
            }
        }
    }
}

impl Iterator for Images<'_> {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        self.advance().cloned()
    }
}
