//! Program contexts: how each of them reads and writes, and how soon it does so again.
//!
//! A context follows a few runs of consecutive bytes. A request that goes on where a run ends is
//! consecutive; one that goes back into its run begins another pass, and bytes up to the end of
//! earlier passes are repeated. What is repeated without order is told by a sample of pages
//! ([`Touches`]). Contexts are a table of fixed size; in a full row the one used least lately gives
//! way, and is learnt anew if it comes again.

use super::touches::{Earlier, SAMPLED, Touches};
use super::{FilePage, IoRequest, PAGE_BYTES, TierSlots, mixed};
use std::fmt;

/// Contexts of a row of the table.
const WAYS: usize = 4;

/// Rows of the table.
const ROWS: usize = 64;

/// Runs that a context follows.
const RUNS: usize = 4;

/// Pages after which older ones count half.
const WINDOW_PAGES: u32 = 128;

/// Sampled touches after which older ones count half. Few would let chance take a context for
/// cluster-hot and back, and each time its pages leave their tier.
const HOT_WINDOW_SAMPLES: u32 = 1024;

/// A request of so many pages is consecutive by itself.
const LONG_PAGES: u32 = 16;

/// Sampled touches that a pattern needs, and repeated ones that an expectation needs.
const HOT_SAMPLES_MIN: u32 = 16;
const SAMPLES_MIN: u32 = 4;

/// Sampled touches of which nothing was touched before, after which it is not expected to be
/// touched again.
const FIRSTS_MIN: u32 = 32;

/// The least number of sampled touches that a mean is of.
const TURNOVER_MIN: u32 = 16;

/// The share of a new sample in a mean.
const SAMPLE_SHARE: f32 = 1.0 / 16.0;

/// Bytes that all contexts take, however many there are.
pub(super) const CONTEXT_BYTES_MAX: usize = ROWS * WAYS * size_of::<Row>();

/// How a program context reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessPattern {
    /// Consecutive pages, repeated.
    Looping,
    /// Pages repeated soon, not consecutive.
    ClusterHot,
    /// Consecutive pages, once.
    Sequential,
    /// Anything else.
    Random,
}

impl AccessPattern {
    /// Every pattern, in the order of their numbers.
    pub const ALL: [AccessPattern; 4] =
        [AccessPattern::Looping, AccessPattern::ClusterHot, AccessPattern::Sequential, AccessPattern::Random];

    /// Returns its place among all.
    pub const fn number(self) -> usize {
        self as usize
    }
}

impl fmt::Display for AccessPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessPattern::Looping => "looping",
            AccessPattern::ClusterHot => "cluster-hot",
            AccessPattern::Sequential => "sequential",
            AccessPattern::Random => "random",
        })
    }
}

/// What is known of a context apart from pages and times: it holds for the program's next run too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearntPattern {
    /// The context.
    pub context: u64,
    /// Pages that it touched lately, those of them that were consecutive, and in a repeated pass.
    pub pages: [u32; 3],
    /// Sampled touches lately, and those of them that came soon after an earlier one.
    pub sampled: [u32; 2],
    /// Sampled touches of pages that were not touched before, and of others.
    pub touches: [u32; 2],
    /// The mean share of the latter.
    pub again_share: f32,
    /// Touches of all contexts between two of one page, in the mean.
    pub interval: f32,
    /// Pages of its longest run that it began again.
    pub loop_pages: u32,
}

impl LearntPattern {
    /// Whether a table could have come to this. What is read from a file may be anything.
    fn is_possible(&self) -> bool {
        let Self { pages: [pages, consecutive, looped], sampled: [sampled, hot], again_share, interval, .. } = *self;
        let is_share = (0.0..=1.0).contains(&again_share);
        let is_counted = pages <= 2 * WINDOW_PAGES && consecutive <= pages && looped <= pages && hot <= sampled;
        is_share && is_counted && sampled <= HOT_WINDOW_SAMPLES && interval.is_finite() && interval >= 0.0
    }
}

/// When a page of a context is expected to be touched again, in touches of pages by all contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expected {
    /// Too little was seen.
    Unknown,
    /// Not within reach of the sample.
    Never,
    /// After so many.
    After {
        /// The mean interval of those that were touched again.
        interval: f32,
        /// The share of pages that were.
        share: f32,
    },
}

/// A run of consecutive bytes.
#[derive(Clone, Copy, Default)]
struct ByteRun {
    file: u64,
    start: u64,
    next: u64,
    /// Bytes before this were in an earlier pass.
    again_until: u64,
}

/// How a request goes on from those before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Nothing,
    ARun,
    AnEarlierPass,
}

#[derive(Clone, Copy, Default)]
struct Row {
    key: u64,
    /// 0: no context is here.
    used: u32,
    runs: [ByteRun; RUNS],
    pages: u32,
    consecutive: u32,
    looped: u32,
    sampled: u32,
    hot: u32,
    /// When the context was first seen.
    since: u32,
    firsts: u32,
    agains: u32,
    /// The mean share of sampled touches whose page was touched before.
    again_share: f32,
    /// The mean interval of those.
    interval: f32,
    /// Consecutive pages that still count as repeated: of an earlier table's loop, whose places are
    /// not known here.
    credit: u32,
}

/// Every context.
pub(super) struct Contexts {
    rows: Box<[Row]>,
    touches: Touches,
    /// Touches of pages up to now.
    now: u32,
    slots: u32,
    /// Touches that come within so many are soon.
    soon: u32,
    /// Sampled touches in as many as there are slots; the share of repeated ones is a mean of about
    /// so many, so that a program's next file does not yet speak against reading files again.
    turnover: u32,
    current: usize,
    /// The page in which the current request goes on from the one before it.
    continued: Option<FilePage>,
}

impl Contexts {
    /// Makes a table without contexts, for tiers of these sizes.
    pub(super) fn new(slots: TierSlots) -> Contexts {
        Contexts {
            rows: vec![Row::default(); ROWS * WAYS].into(),
            touches: Touches::new(slots.all()),
            now: 1,
            slots: slots.all(),
            soon: slots.nvm / 2,
            turnover: (slots.all() / SAMPLED).max(TURNOVER_MIN),
            current: 0,
            continued: None,
        }
    }

    /// Learns from a request, whose context is the current one from now on.
    pub(super) fn learn(&mut self, request: &IoRequest) {
        self.current = self.find(request.context);
        let row = &mut self.rows[self.current];
        row.used = self.now;
        let page = FilePage { file: request.file, page: request.offset / PAGE_BYTES };
        let follows = row.follow(request);
        let within_page = follows != Follows::Nothing && !request.offset.is_multiple_of(PAGE_BYTES);
        self.continued = within_page.then_some(page);
        for (page, _) in request.pages().filter(|(page, _)| Some(*page) != self.continued) {
            let past = self.touches.touch(page.hash(), self.now);
            self.now = self.now.wrapping_add(1).max(1);
            row.sample(past, self.soon, self.turnover);
        }
    }

    /// Makes a context the current one if it is known, and says whether it is.
    pub(super) fn resume(&mut self, context: u64) -> bool {
        let known = self.known(context);
        self.current = known.unwrap_or(self.current);
        self.continued = None;
        known.is_some()
    }

    /// Returns the pattern of a context, if it is known.
    pub(super) fn pattern_of(&self, context: u64) -> Option<AccessPattern> {
        self.known(context).map(|at| self.rows[at].pattern())
    }

    /// Returns what is known of every context, the one used last first.
    pub(super) fn known_contexts(&self) -> Vec<LearntPattern> {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| row.used != 0 && row.pages > 0).collect();
        rows.sort_by_key(|row| self.now.wrapping_sub(row.used));
        let known = |row: &Row| LearntPattern {
            context: row.key,
            pages: [row.pages, row.consecutive, row.looped],
            sampled: [row.sampled, row.hot],
            touches: [row.firsts, row.agains],
            again_share: row.again_share,
            interval: row.interval,
            loop_pages: row.loop_pages(),
        };
        rows.into_iter().map(known).collect()
    }

    /// Takes over what was known of contexts. Of those that this table knows itself, nothing.
    pub(super) fn take_over(&mut self, known: &[LearntPattern]) {
        // Of two in one place, the one used last stays.
        for known in known.iter().rev().filter(|known| known.is_possible()) {
            if self.known(known.context).is_some() {
                continue;
            }
            let at = self.find(known.context);
            let row = &mut self.rows[at];
            [row.pages, row.consecutive, row.looped] = known.pages;
            [row.sampled, row.hot] = known.sampled;
            [row.firsts, row.agains] = known.touches;
            (row.again_share, row.interval) = (known.again_share, known.interval);
            row.credit = known.loop_pages;
        }
    }

    /// Returns whether the current request touches `page` right after the request before it did.
    pub(super) fn is_continued(&self, page: FilePage) -> bool {
        self.continued == Some(page)
    }

    /// Returns the number of touches up to now; it wraps around.
    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// Returns the pattern of the current context.
    pub(super) fn pattern(&self) -> AccessPattern {
        self.rows[self.current].pattern()
    }

    /// Returns when pages that the current context touches are expected to be touched again.
    pub(super) fn expected(&self) -> Expected {
        let row = &self.rows[self.current];
        if row.agains >= SAMPLES_MIN && row.again_share > SAMPLE_SHARE / 2.0 {
            return Expected::After { interval: row.interval, share: row.again_share };
        }
        let is_old = self.now.wrapping_sub(row.since) > 4 * self.slots;
        if is_old && row.firsts >= FIRSTS_MIN { Expected::Never } else { Expected::Unknown }
    }

    fn known(&self, key: u64) -> Option<usize> {
        ways_of(key).find(|at| self.rows[*at].used != 0 && self.rows[*at].key == key)
    }

    fn find(&mut self, key: u64) -> usize {
        if let Some(at) = self.known(key) {
            return at;
        }
        let idle = |row: &Row| if row.used == 0 { u32::MAX } else { self.now.wrapping_sub(row.used) };
        let at = ways_of(key).max_by_key(|at| idle(&self.rows[*at])).expect("a row has ways");
        self.rows[at] = Row { key, used: self.now, since: self.now, ..Row::default() };
        at
    }
}

/// Where the table has a context, if it has it.
fn ways_of(key: u64) -> std::ops::Range<usize> {
    let row = usize::try_from(mixed(key) % ROWS as u64).expect("below a usize");
    row * WAYS..(row + 1) * WAYS
}

impl Row {
    fn pattern(&self) -> AccessPattern {
        let most = |count: u32, of: u32| 2 * count >= of;
        if most(self.looped, self.pages) {
            AccessPattern::Looping
        } else if most(self.consecutive + self.looped, self.pages) {
            AccessPattern::Sequential
        } else if self.sampled >= HOT_SAMPLES_MIN && most(self.hot, self.sampled) {
            AccessPattern::ClusterHot
        } else {
            AccessPattern::Random
        }
    }

    /// Pages of the longest run that was begun again, or may be yet.
    fn loop_pages(&self) -> u32 {
        let bytes = self.runs.iter().map(|run| run.again_until.saturating_sub(run.start)).max().unwrap_or(0);
        u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX).max(self.credit)
    }

    /// Follows the run that `request` goes on with, or begins one.
    fn follow(&mut self, request: &IoRequest) -> Follows {
        let (from, end) = (request.offset, request.offset + u64::from(request.bytes));
        let goes_on = |run: &ByteRun| run.file == request.file && run.start < run.next && run.next == from;
        let goes_back = |run: &ByteRun| run.file == request.file && (run.start..run.next).contains(&from);
        let follows = if let Some(run) = self.runs.iter_mut().find(|run| goes_on(run)) {
            run.next = end;
            if from < run.again_until { Follows::AnEarlierPass } else { Follows::ARun }
        } else if let Some(run) = self.runs.iter_mut().find(|run| goes_back(run)) {
            run.again_until = run.again_until.max(run.next);
            run.next = end;
            Follows::Nothing
        } else {
            let shortest = self.runs.iter_mut().min_by_key(|run| run.next - run.start).expect("there are runs");
            *shortest = ByteRun { file: request.file, start: from, next: end, again_until: 0 };
            Follows::Nothing
        };
        self.weigh(follows, request);
        follows
    }

    fn weigh(&mut self, follows: Follows, request: &IoRequest) {
        let pages = u32::try_from(request.pages().count()).unwrap_or(u32::MAX).min(WINDOW_PAGES);
        match follows {
            Follows::AnEarlierPass => self.looped += pages,
            Follows::ARun if self.credit > 0 => {
                self.credit = self.credit.saturating_sub(pages);
                self.looped += pages;
            }
            Follows::ARun => self.consecutive += pages,
            Follows::Nothing if pages >= LONG_PAGES => self.consecutive += pages,
            Follows::Nothing => {}
        }
        self.pages += pages;
        if self.pages > WINDOW_PAGES {
            (self.pages, self.consecutive, self.looped) = (self.pages / 2, self.consecutive / 2, self.looped / 2);
        }
    }

    fn sample(&mut self, past: Earlier, soon: u32, turnover: u32) {
        let again = match past {
            Earlier::Unsampled => return,
            Earlier::First => {
                self.firsts = self.firsts.saturating_add(1);
                0.0
            }
            Earlier::Again(interval) => {
                // The first few count alike.
                let share = SAMPLE_SHARE.max(1.0 / (self.agains + 1) as f32);
                self.interval += share * (interval as f32 - self.interval);
                self.agains = self.agains.saturating_add(1);
                self.hot += u32::from(interval <= soon);
                1.0
            }
        };
        let all = self.firsts.saturating_add(self.agains).min(turnover);
        self.again_share += (again - self.again_share) / all as f32;
        self.sampled += 1;
        if self.sampled > HOT_WINDOW_SAMPLES {
            (self.sampled, self.hot) = (self.sampled / 2, self.hot / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::IoKind;
    use super::*;

    const SLOTS: TierSlots = TierSlots { dram: 512, nvm: 512 };

    fn request(context: u64, page: u64, pages: u32) -> IoRequest {
        let bytes = pages * u32::try_from(PAGE_BYTES).expect("small");
        IoRequest { file: context, offset: page * PAGE_BYTES, bytes, kind: IoKind::Read, context, now_ms: 0 }
    }

    fn after(pages: impl Iterator<Item = u64>) -> Contexts {
        let mut contexts = Contexts::new(SLOTS);
        pages.for_each(|page| contexts.learn(&request(7, page, 1)));
        contexts
    }

    #[test]
    fn four_patterns_are_told_apart() {
        let far = |nth: u64| mixed(nth) % 100_000;
        assert_eq!(after((0..1000).cycle().take(3000)).pattern(), AccessPattern::Looping);
        assert_eq!(after(0..3000).pattern(), AccessPattern::Sequential);
        assert_eq!(after((0..3000).map(far)).pattern(), AccessPattern::Random);
        assert_eq!(after((0..3000).map(|nth| far(nth) % 60 * 7)).pattern(), AccessPattern::ClusterHot);
    }

    #[test]
    fn a_loop_is_known_within_its_second_pass() {
        assert_eq!(after(0..1000).pattern(), AccessPattern::Sequential);
        assert_eq!(after((0..1000).chain(0..200)).pattern(), AccessPattern::Looping);
    }

    #[test]
    fn small_requests_are_consecutive_bytes() {
        let mut contexts = Contexts::new(SLOTS);
        let small = |nth: u64| IoRequest { offset: nth * 1024, bytes: 1024, ..request(1, 0, 1) };
        (0..400).for_each(|nth| contexts.learn(&small(nth)));
        assert_eq!(contexts.pattern(), AccessPattern::Sequential);
        assert_eq!(contexts.now(), 101, "each page was touched once");
    }

    #[test]
    fn an_interval_is_expected_again() {
        let expected = after((0..1000).cycle().take(4000)).expected();
        let Expected::After { interval, share } = expected else { panic!("it is known") };
        assert!((990.0..1010.0).contains(&interval) && share > 0.9, "{expected:?}");
        assert_eq!(after(0..600).expected(), Expected::Unknown);
        assert_eq!(after(0..6000).expected(), Expected::Never);
    }

    #[test]
    fn what_is_known_of_a_context_holds_in_the_next_table() {
        let far = |nth: u64| mixed(nth) % 100_000;
        let before = after((0..1000).cycle().take(3000));
        let mut next = Contexts::new(SLOTS);
        next.take_over(&before.known_contexts());
        assert_eq!(next.pattern_of(7), Some(AccessPattern::Looping));
        assert_eq!(next.known_contexts(), before.known_contexts());
        next.resume(7);
        assert_eq!(next.expected(), before.expected());
        (0..1000).for_each(|page| next.learn(&request(7, page, 1)));
        assert_eq!(next.pattern(), AccessPattern::Looping, "its first pass is none more");
        (1000..2000).for_each(|page| next.learn(&request(7, page, 1)));
        assert_eq!(next.pattern(), AccessPattern::Sequential, "it loops no more");
        let mut next = Contexts::new(SLOTS);
        next.take_over(&before.known_contexts());
        let other = after((0..3000).map(far)).known_contexts();
        next.take_over(&other);
        assert_eq!(next.pattern_of(7), Some(AccessPattern::Looping), "it knows better itself");
    }

    #[test]
    fn what_no_table_comes_to_is_not_taken_over() {
        let good = after((0..1000).cycle().take(3000)).known_contexts()[0];
        let spoilt: [fn(&mut LearntPattern); 6] = [
            |known| known.pages[0] = u32::MAX,
            |known| known.pages[2] = known.pages[0] + 1,
            |known| known.sampled[1] = known.sampled[0] + 1,
            |known| known.again_share = f32::NAN,
            |known| known.again_share = -1.0,
            |known| known.interval = f32::INFINITY,
        ];
        for (number, spoil) in spoilt.into_iter().enumerate() {
            let (mut known, mut contexts) = (good, Contexts::new(SLOTS));
            spoil(&mut known);
            contexts.take_over(&[known]);
            assert_eq!(contexts.pattern_of(7), None, "{number}");
        }
    }

    #[test]
    fn contexts_are_bounded_and_the_idle_ones_give_way() {
        let mut contexts = Contexts::new(SLOTS);
        (0..100_000).for_each(|context| contexts.learn(&request(context, 0, 1)));
        assert_eq!(contexts.rows.iter().filter(|row| row.used != 0).count(), ROWS * WAYS);
    }
}
