//! Destaging: when a disk cache writes its dirty blocks to its disk, and how many at once.
//!
//! Blocks that wait may be overwritten meanwhile, and then cost the disk one write less; and a disk
//! that is left alone answers reads sooner. But a cache full of dirty blocks makes writers wait for
//! the disk. So while writers are busy no block is written below half of the limit of dirty blocks;
//! above it the disk gets the more of the time the closer the limit comes, and all of it from there
//! on. When writers pause, or blocks have waited for the longest time allowed, everything is
//! written.
//!
//! From the limit on, writers share the disk's time, and blocks that cost it more than their part
//! may wait: each for two sweeps. So a block is written by the third sweep that comes past it,
//! where it is by the first one otherwise: while writers press, that is how old it can become, and
//! the longest time allowed holds only if three sweeps take no longer. Below the limit no block is
//! postponed, nor while writers pause.

use std::time::Duration;

/// Share of the limit below which busy writers are left alone.
const LOW: f64 = 0.5;

/// Writers that wrote nothing for this time have paused.
const PAUSE: Duration = Duration::from_millis(50);

/// The share of the time that the disk gets at least when it gets any.
const DUTY_MIN: f64 = 0.05;

/// The longest wait between two steps, and between two looks at a cache where nothing is to be
/// done.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// How long a step is to take: a request of somebody else waits no longer for the disk.
const STEP: Duration = Duration::from_millis(5);

/// The duration of a step from the limit on: larger writes are faster.
const STEP_PRESSED: Duration = Duration::from_millis(25);

/// The part of the limit that such a step takes at most, unless that is less than any other takes:
/// what is on its way to the disk is no room yet.
const STEP_PRESSED_SHARE: u32 = 32;

/// Blocks of a step while it is not known how fast the disk is.
const BLOCKS_FIRST: u32 = 64;

/// Fewest and most blocks of a step.
const BLOCKS: (u32, u32) = (16, 4096);

/// Weight of the newest measurement: one part in so many.
const NEWEST: f64 = 8.0;

/// How many dirty blocks a cache may have, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Dirty blocks; more may come, but then the disk is never left alone.
    pub dirty_blocks: u32,
    /// How long a block may stay dirty before it is written.
    pub age: Duration,
}

/// What an operator allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Bytes that may be dirty; None: any number.
    pub dirty_bytes: Option<u64>,
    /// Parts of the cache in a hundred that may be dirty.
    pub dirty_percent: u8,
    /// How long a block may stay dirty.
    pub age: Duration,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps { dirty_bytes: None, dirty_percent: 70, age: Duration::from_secs(30) }
    }
}

impl Caps {
    /// The limits of a cache of `blocks` blocks of `block_size` bytes: at least one block.
    pub fn limits(&self, blocks: u32, block_size: u32) -> Limits {
        let by_percent = u64::from(blocks) * u64::from(self.dirty_percent.min(100)) / 100;
        let by_bytes = self.dirty_bytes.map_or(u64::MAX, |bytes| bytes / u64::from(block_size));
        let least = by_percent.min(by_bytes).max(1);
        Limits { dirty_blocks: u32::try_from(least).unwrap_or(blocks), age: self.age }
    }
}

/// What a cache is like at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Blocks that are dirty.
    pub dirty: u32,
    /// Writes that there were since the cache was opened.
    pub writes: u64,
}

/// Which dirty blocks a sweep writes of those it comes past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SweepScope {
    /// All that is dirty.
    #[default]
    Everything,
    /// All that is dirty, except that a short run of dirty blocks may be postponed to the next
    /// sweep, each block twice. A run is followed to its ends: a disk writes neighbours for less.
    Neighbours,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Write at most so many blocks of this scope to the disk, and call [`Destage::measured`].
    Destage(u32, SweepScope),
    /// Look again after this time.
    Wait(Duration),
    /// Nothing is dirty: sleep until something is.
    Park,
}

/// The pace of destaging one cache.
#[derive(Clone, Debug)]
pub struct Destage {
    limits: Limits,
    /// How long a block takes, in nanoseconds.
    block_ns: Option<f64>,
    /// How long the last step took, if its wait is still to come.
    to_wait_for: Option<Duration>,
    writes_seen: u64,
    /// When writes were last seen to have come.
    wrote_at: Duration,
    /// Since when something has been dirty.
    dirty_since: Option<Duration>,
    /// Blocks that are to be written because of their age.
    aged: u32,
}

impl Destage {
    /// Of a cache with nothing known about it.
    pub fn new(limits: Limits) -> Destage {
        Destage {
            limits,
            block_ns: None,
            to_wait_for: None,
            writes_seen: 0,
            wrote_at: Duration::ZERO,
            dirty_since: None,
            aged: 0,
        }
    }

    /// What to do at the time `now`, told since any moment, when the cache is like `load`.
    pub fn next(&mut self, now: Duration, load: Load) -> Turn {
        if load.writes != self.writes_seen {
            (self.writes_seen, self.wrote_at) = (load.writes, now);
        }
        if load.dirty == 0 {
            (self.dirty_since, self.aged, self.to_wait_for) = (None, 0, None);
            return Turn::Park;
        }
        self.note_age(now, load.dirty);
        let share = f64::from(load.dirty) / f64::from(self.limits.dirty_blocks);
        let paused = now.saturating_sub(self.wrote_at) >= PAUSE;
        if share >= 1.0 {
            self.to_wait_for = None;
            return Turn::Destage(self.step_blocks_pressed(), SweepScope::Neighbours);
        }
        if paused {
            self.to_wait_for = None;
            return Turn::Destage(self.step_blocks(STEP), SweepScope::Everything);
        }
        if share < LOW && self.aged == 0 {
            self.to_wait_for = None;
            return Turn::Wait(WAIT_MAX);
        }
        match self.to_wait_for.take() {
            Some(took) => Turn::Wait(pause_after(took, duty(share))),
            None => Turn::Destage(self.step_blocks(STEP), SweepScope::Everything),
        }
    }

    /// A step of `blocks` blocks took `took`.
    pub fn measured(&mut self, blocks: u32, took: Duration) {
        self.to_wait_for = Some(took);
        self.aged = self.aged.saturating_sub(blocks);
        if blocks > 0 {
            let now = took.as_secs_f64() * 1e9 / f64::from(blocks);
            self.block_ns = Some(mean(self.block_ns, now));
        }
    }

    /// Returns the back-pressure on writers, for threads that do not share this.
    pub fn throttle(&self) -> Throttle {
        Throttle { dirty_blocks: self.limits.dirty_blocks, block_ns: self.block_ns.unwrap_or(0.0) }
    }

    /// Blocks that became dirty before the oldest allowed time are to be written now. Their number
    /// is not known; all that are dirty then are written, which takes them in.
    fn note_age(&mut self, now: Duration, dirty: u32) {
        let since = *self.dirty_since.get_or_insert(now);
        if now.saturating_sub(since) >= self.limits.age {
            self.aged = dirty;
            self.dirty_since = Some(now);
        }
    }

    fn step_blocks(&self, time: Duration) -> u32 {
        let Some(block_ns) = self.block_ns else { return BLOCKS_FIRST };
        let fits = time.as_secs_f64() * 1e9 / block_ns.max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between the two")]
        let fits = fits.clamp(f64::from(BLOCKS.0), f64::from(BLOCKS.1)) as u32;
        fits
    }

    fn step_blocks_pressed(&self) -> u32 {
        let share = self.limits.dirty_blocks / STEP_PRESSED_SHARE;
        self.step_blocks(STEP_PRESSED).min(share.max(self.step_blocks(STEP)))
    }
}

/// Back-pressure: how long a write is delayed while the disk does not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttle {
    /// Dirty blocks up to which no write is delayed.
    dirty_blocks: u32,
    /// How long the disk takes for a block, in nanoseconds; 0 if it is not known.
    block_ns: f64,
}

impl Throttle {
    /// Returns the delay for each block that a writer writes while `dirty` of `blocks` blocks are
    /// dirty.
    ///
    /// It is zero up to the limit and grows from there on, to twice the disk's time for a block if
    /// no block is clean. So writers become as slow as the disk before they have to wait for it.
    pub fn delay(&self, dirty: u32, blocks: u32) -> Duration {
        let (over, room) = (dirty.saturating_sub(self.dirty_blocks), blocks.saturating_sub(self.dirty_blocks));
        let share = f64::from(over) / f64::from(room.max(1));
        Duration::from_secs_f64(self.block_ns * 1e-9 * 2.0 * share.min(1.0))
    }
}

/// `known` after `now` came to it. One measurement counts at most double: an interrupted thread
/// tells nothing about the disk.
fn mean(known: Option<f64>, now: f64) -> f64 {
    let known = known.unwrap_or(now);
    known + (now.min(known * 2.0) - known) / NEWEST
}

/// The share of the time that the disk gets, while the dirty share of the limit is `share`.
fn duty(share: f64) -> f64 {
    ((share - LOW) / (1.0 - LOW)).clamp(DUTY_MIN, 1.0)
}

/// The pause after a step that took `took`, so that steps take the share `duty` of the time.
fn pause_after(took: Duration, duty: f64) -> Duration {
    took.mul_f64((1.0 - duty) / duty).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);
    const LIMITS: Limits = Limits { dirty_blocks: 10_000, age: Duration::from_secs(30) };

    fn load(dirty: u32, writes: u64) -> Load {
        Load { dirty, writes }
    }

    /// A cache of 14,000 blocks in front of a disk that takes 20 µs for a block, written to with
    /// `writes_per_ms`, for `time`. Answers the most blocks that were dirty after the first tenth,
    /// and the blocks that were written to the disk.
    fn run(writes_per_ms: u32, time: Duration) -> (u32, u32) {
        let mut destage = Destage::new(LIMITS);
        let (mut now, mut dirty, mut writes, mut most, mut destaged) = (Duration::ZERO, 0_u32, 0_u64, 0, 0);
        while now < time {
            let took = match destage.next(now, load(dirty, writes)) {
                Turn::Destage(blocks, _) => {
                    let blocks = blocks.min(dirty);
                    destage.measured(blocks, blocks * 20 * US);
                    (dirty, destaged) = (dirty - blocks, destaged + blocks);
                    blocks * 20 * US
                }
                Turn::Wait(time) => time,
                Turn::Park => MS,
            }
            .max(10 * US);
            let came = u32::try_from(took.as_micros()).expect("short") * writes_per_ms / 1000;
            (dirty, writes, now) = ((dirty + came).min(14_000), writes + u64::from(came.max(1)), now + took);
            most = if now > time / 10 { most.max(dirty) } else { most };
        }
        (most, destaged)
    }

    #[test]
    fn a_load_that_the_disk_can_bear_stays_below_the_limit() {
        // The disk takes 50 blocks a millisecond.
        for writes_per_ms in [5, 20, 40] {
            let (most, destaged) = run(writes_per_ms, Duration::from_secs(10));
            assert!(most <= LIMITS.dirty_blocks, "{writes_per_ms}: {most}");
            let written = writes_per_ms * 10_000;
            assert!(destaged > written * 9 / 10 - LIMITS.dirty_blocks, "{writes_per_ms}: {destaged} of {written}");
        }
    }

    #[test]
    fn a_load_that_is_too_much_finds_the_disk_always_busy() {
        let (_, destaged) = run(100, Duration::from_secs(10));
        assert!(destaged > 50 * 10_000 * 98 / 100, "{destaged}");
    }

    #[test]
    fn busy_writers_are_left_alone_while_little_is_dirty() {
        let mut destage = Destage::new(LIMITS);
        let turns = (0..100).map(|nth| destage.next(10 * MS * nth, load(4_900, u64::from(nth))));
        assert!(turns.into_iter().all(|turn| turn == Turn::Wait(WAIT_MAX)));
        assert!(matches!(destage.next(1001 * MS, load(5_100, 101)), Turn::Destage(..)));
    }

    #[test]
    fn when_writers_pause_everything_is_written() {
        let mut destage = Destage::new(LIMITS);
        assert_eq!(destage.next(MS, load(0, 0)), Turn::Park);
        assert_eq!(destage.next(10 * MS, load(5, 1)), Turn::Wait(WAIT_MAX));
        assert_eq!(destage.next(59 * MS, load(5, 1)), Turn::Wait(WAIT_MAX));
        assert_eq!(destage.next(60 * MS, load(5, 1)), Turn::Destage(BLOCKS_FIRST, SweepScope::Everything));
        destage.measured(5, MS);
        assert_eq!(destage.next(61 * MS, load(0, 1)), Turn::Park);
    }

    #[test]
    fn only_from_the_limit_on_blocks_may_be_left_out() {
        let scope = |dirty, ms: u32| {
            let mut destage = Destage::new(LIMITS);
            destage.next(MS, load(dirty, 1));
            destage.measured(64, MS);
            match (0..50)
                .map(|nth| destage.next(MS * (ms + nth), load(dirty, 1)))
                .find(|turn| !matches!(turn, Turn::Wait(_)))
            {
                Some(Turn::Destage(_, scope)) => scope,
                turn => panic!("{turn:?}"),
            }
        };
        assert_eq!([10_000, 14_000].map(|dirty| scope(dirty, 2)), [SweepScope::Neighbours; 2]);
        assert_eq!([9_999, 6_000].map(|dirty| scope(dirty, 2)), [SweepScope::Everything; 2]);
        assert_eq!(scope(30, 60), SweepScope::Everything, "writers pause");
    }

    #[test]
    fn old_blocks_are_written_although_writers_are_busy() {
        let mut destage = Destage::new(LIMITS);
        let mut at = |ms: u32, dirty| destage.next(MS * ms, load(dirty, u64::from(ms)));
        assert_eq!(at(1, 30), Turn::Wait(WAIT_MAX));
        assert_eq!(at(30_000, 30), Turn::Wait(WAIT_MAX));
        assert_eq!(at(30_001, 30), Turn::Destage(BLOCKS_FIRST, SweepScope::Everything));
        destage.measured(30, MS);
        assert_eq!(destage.next(MS * 30_002, load(2, 30_002)), Turn::Wait(WAIT_MAX), "those are young");
    }

    #[test]
    fn the_disk_gets_the_more_of_the_time_the_closer_the_limit_comes() {
        let pause = |dirty| {
            let mut destage = Destage::new(LIMITS);
            destage.measured(64, MS);
            destage.next(2 * MS, load(dirty, 2))
        };
        assert_eq!(pause(5_001), Turn::Wait(19 * MS), "one part in twenty");
        assert_eq!(pause(7_500), Turn::Wait(MS), "half of the time");
        assert_eq!(pause(9_000), Turn::Wait(MS / 4), "four parts in five");
    }

    #[test]
    fn steps_take_the_time_they_are_meant_to_take() {
        let mut destage = Destage::new(LIMITS);
        (0..20).for_each(|_| destage.measured(100, 100 * 20 * US));
        assert_eq!(destage.next(MS, load(20_000, 1)), Turn::Destage(312, SweepScope::Neighbours));
        let mut small = Destage { limits: Limits { dirty_blocks: 1000, ..LIMITS }, ..destage.clone() };
        assert_eq!(small.next(MS, load(2000, 1)), Turn::Destage(250, SweepScope::Neighbours), "no shorter than others");
        let mut large = Destage { limits: Limits { dirty_blocks: 1 << 20, ..LIMITS }, ..destage.clone() };
        assert_eq!(large.next(MS, load(1 << 20, 1)), Turn::Destage(1250, SweepScope::Neighbours));
        (0..99).for_each(|_| destage.measured(1, Duration::from_secs(1)));
        assert_eq!(destage.next(MS, load(20_000, 1)), Turn::Destage(BLOCKS.0, SweepScope::Neighbours));
    }

    #[test]
    fn writers_become_as_slow_as_the_disk_before_nothing_is_clean() {
        let mut destage = Destage::new(LIMITS);
        assert_eq!(destage.throttle().delay(14_000, 14_000), Duration::ZERO, "nothing is known of the disk");
        destage.measured(100, 100 * 20 * US);
        let held = [0, 10_000, 11_000, 12_000, 14_000].map(|dirty| destage.throttle().delay(dirty, 14_000));
        assert_eq!(held, [Duration::ZERO, Duration::ZERO, 10 * US, 20 * US, 40 * US]);
    }

    #[test]
    fn the_smaller_of_the_caps_counts() {
        let caps = |dirty_bytes, dirty_percent| Caps { dirty_bytes, dirty_percent, ..Caps::default() };
        let limit = |caps: Caps| caps.limits(1000, 4096).dirty_blocks;
        assert_eq!(limit(Caps::default()), 700);
        assert_eq!(limit(caps(Some(40_960), 70)), 10);
        assert_eq!(limit(caps(Some(u64::MAX), 30)), 300);
        assert_eq!(limit(caps(Some(1), 0)), 1);
        assert_eq!(limit(caps(None, 255)), 1000);
    }
}
