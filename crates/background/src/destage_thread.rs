//! The thread that moves a cache's dirty blocks to its disk, at the pace of
//! [`tidegate_policy::writeback::destage`].
//!
//! It never works on behalf of a writer, and a writer never waits for it. When the disk refuses
//! blocks it tries the others, and the refused ones again after a while, at most every few seconds.
//! Blocks that it refuses only for now ([`Misuse::NotNow`]) are no sign of a disk in trouble: the
//! others go on at once, and when there are no others, the next sweep begins a moment later. A
//! caller that wants all of them on the disk now asks for a [`Destager::flush`], which ends after
//! two sweeps over the dirty blocks at most, even while writers go on.

use crate::dirty_age::Ages;
use crate::step::Step;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use tidegate_media::{Error, Lba, Misuse};
use tidegate_policy::writeback::destage::{Caps, Destage, Limits, Load, SweepScope, Throttle, Turn};

/// Blocks of a step that somebody waits for.
const STEP_WANTED: u32 = 1024;

/// The first and the longest pause before refused blocks are tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The first and the longest pause before blocks are tried again that were refused for now.
const NOT_NOW: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Refusals that are remembered of a sweep.
const REFUSALS_MAX: usize = 16;

/// A cache with blocks that its disk does not have.
pub trait Dirty: Send + Sync + 'static {
    /// What it is like now.
    fn load(&self) -> Load;

    /// Blocks that it can hold.
    fn blocks(&self) -> u32;

    /// What `caps` are in its blocks.
    fn limits(&self, caps: &Caps) -> Limits;

    /// Writes at most `blocks_max` dirty blocks to the disk, in sweeps over all that were dirty
    /// when the sweep began, and over some that turned dirty since. A sweep all of whose steps take
    /// everything postpones nothing.
    fn step(&self, blocks_max: u32, scope: SweepScope) -> Step;

    /// Whether a step may go on with a sweep that somebody else began.
    fn shares_sweeps(&self) -> bool {
        false
    }

    /// Whether nothing is dirty; from then on `bell` is rung once something is.
    fn may_sleep(&self) -> bool;

    /// `bell` is the one to ring.
    fn set_bell(&self, bell: Bell);
}

/// How long blocks that were refused are left alone.
struct Pauses {
    retry: Duration,
    not_now: Duration,
    /// Whether blocks were refused for now in the sweep under way, and nothing reached the disk
    /// since.
    put_off: bool,
}

impl Pauses {
    fn new() -> Pauses {
        Pauses { retry: RETRY.0, not_now: NOT_NOW.0, put_off: false }
    }

    /// The pause behind `step`, if there is to be one.
    fn behind(&mut self, step: &Step) -> Option<Duration> {
        let is_for_now = |(_, error): &(Lba, Error)| *error == Error::Misuse(Misuse::NotNow);
        if step.cleaned > 0 {
            *self = Pauses::new();
            return None;
        }
        if step.not_durable.is_some() || !step.refused.iter().all(is_for_now) {
            self.retry = (self.retry * 2).min(RETRY.1);
            return Some(self.retry);
        }
        self.retry = RETRY.0;
        self.put_off |= !step.refused.is_empty();
        // The rest of the sweep is about other blocks.
        let ends = !step.more && std::mem::take(&mut self.put_off);
        let longer = (self.not_now * 2).min(NOT_NOW.1);
        ends.then(|| std::mem::replace(&mut self.not_now, longer))
    }
}

/// Wakes the thread.
#[derive(Clone, Debug)]
pub struct Bell(Thread);

impl Bell {
    /// Something is dirty.
    pub fn ring(&self) {
        self.0.unpark();
    }
}

/// What a sweep over all dirty blocks left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepFailures {
    /// Blocks that the disk refused.
    pub refused: u64,
    /// The first few of them, and why.
    pub first: Vec<(Lba, Error)>,
    /// Why the disk could not make durable what was written, if so.
    pub not_durable: Option<Error>,
}

impl SweepFailures {
    /// Whether everything is on the disk.
    pub fn is_nothing(&self) -> bool {
        *self == SweepFailures::default()
    }

    /// Adds what a step of the sweep left behind.
    pub fn add(&mut self, step: Step) {
        self.refused += step.refused.len() as u64;
        let room = REFUSALS_MAX - self.first.len();
        self.first.extend(step.refused.into_iter().take(room));
        self.not_durable = step.not_durable.or(self.not_durable.take());
    }
}

/// A thread that destages one cache until this is dropped.
#[derive(Debug)]
pub struct Destager {
    shared: Arc<Shared>,
    /// Blocks of the cache, and how many of them may be dirty.
    blocks: u32,
    limit: u32,
    /// Whether others begin sweeps too that its steps go on with.
    shares_sweeps: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ending: AtomicBool,
    /// Whether the disk is left as it is, until [`Destager::release`].
    held: AtomicBool,
    progress: Mutex<Sweeps>,
    /// A sweep has ended, or the thread has.
    ended: Condvar,
    /// The back-pressure on writers, as of the last step.
    throttle: Mutex<Throttle>,
    /// Since when no block has been dirty for longer; none is, if None.
    dirty_since: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Sweeps {
    /// Sweeps that have ended.
    done: u64,
    /// The sweep whose end somebody waits for, counted like that.
    wanted: u64,
    /// Whether a sweep is under way.
    under_way: bool,
    /// What the sweep under way leaves behind so far.
    leaves: SweepFailures,
    /// What the last whole sweep left behind.
    left: SweepFailures,
    over: bool,
}

impl Sweeps {
    /// Whether somebody waits for the end of a sweep.
    fn is_wanted(&self) -> bool {
        self.wanted > self.done
    }
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Sweeps> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) && !self.is_ending()
    }

    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dirty_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.dirty_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on the sweep may have taken its look at what is dirty. Its `scope`: everything if
    /// somebody waits for its end, and whoever comes to wait from here on waits for the end of the
    /// next.
    fn begin_step(&self, scope: SweepScope) -> SweepScope {
        let mut progress = self.progress();
        progress.under_way = true;
        if progress.is_wanted() { SweepScope::Everything } else { scope }
    }
}

/// When a new thread begins to write to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstStep {
    /// At once.
    AtStart,
    /// At [`Destager::release`].
    AtRelease,
}

/// A flush that was asked for: the number of the sweep that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

impl Destager {
    /// Starts the thread.
    pub fn start<D: Dirty>(cache: Arc<D>, caps: Caps) -> io::Result<Destager> {
        Destager::start_heard(cache, caps, FirstStep::AtStart, |_| ())
    }

    /// Starts the thread, which writes to the disk from `first` on. `hear` is told what each step
    /// did, before anybody else; the thread waits for it.
    pub fn start_heard<D: Dirty>(
        cache: Arc<D>,
        caps: Caps,
        first: FirstStep,
        hear: impl FnMut(&Step) + Send + 'static,
    ) -> io::Result<Destager> {
        let held = AtomicBool::new(first == FirstStep::AtRelease);
        let shared = Arc::new(Shared { held, ..Shared::default() });
        let (blocks, limits, shares_sweeps) = (cache.blocks(), cache.limits(&caps), cache.shares_sweeps());
        let its = Arc::clone(&shared);
        let work = move || {
            cache.set_bell(Bell(thread::current()));
            work(&*cache, &its, limits, hear);
            its.progress().over = true;
            its.ended.notify_all();
        };
        let thread = thread::Builder::new().name("destage".to_owned()).stack_size(256 << 10).spawn(work)?;
        Ok(Destager { shared, blocks, limit: limits.dirty_blocks, shares_sweeps, thread: Some(thread) })
    }

    /// Lets a thread that waits for it write to the disk.
    pub fn release(&self) {
        self.shared.held.store(false, Ordering::Release);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }

    /// Asks for everything that is dirty now to be written at once.
    pub fn flush(&self) -> Ticket {
        let mut progress = self.shared.progress();
        // A sweep under way may be past a block that turned dirty since.
        let sweep = progress.done + 1 + u64::from(progress.under_way || self.shares_sweeps);
        progress.wanted = progress.wanted.max(sweep);
        drop(progress);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
        Ticket(sweep)
    }

    /// Whether the flush has ended; then, what it left behind.
    pub fn is_flushed(&self, ticket: Ticket) -> Option<SweepFailures> {
        let progress = self.shared.progress();
        (progress.done >= ticket.0 || progress.over).then(|| progress.left.clone())
    }

    /// Waits for the end of the flush, at most until `deadline`. What it left behind; None: it is
    /// still under way.
    pub fn wait_until(&self, ticket: Ticket, deadline: Instant) -> Option<SweepFailures> {
        let mut progress = self.shared.progress();
        while progress.done < ticket.0 && !progress.over {
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.shared.ended.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(progress.left.clone())
    }

    /// How long a writer is to be delayed for each block while `dirty` blocks are dirty.
    pub fn write_delay(&self, dirty: u64) -> Duration {
        match u32::try_from(dirty) {
            Ok(dirty) if dirty <= self.limit => Duration::ZERO,
            dirty => self.shared.throttle().delay(dirty.unwrap_or(u32::MAX), self.blocks),
        }
    }

    /// Ends the thread's work, and returns when it has ended. What is dirty stays so.
    pub fn stop(&self) {
        self.shared.ending.store(true, Ordering::Release);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
        let mut progress = self.shared.progress();
        while !progress.over && self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let waited = self.shared.ended.wait_timeout(progress, RETRY.0);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// For how long the oldest dirty block has been dirty at most, as far as this thread has seen;
    /// zero if none is.
    pub fn dirty_for(&self) -> Duration {
        self.shared.dirty_since().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// What the last whole sweep left behind.
    pub fn left(&self) -> SweepFailures {
        self.shared.progress().left.clone()
    }
}

impl Drop for Destager {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked said so; what is dirty stays in the cache.
            let _ = thread.join();
        }
    }
}

/// The thread's work, until the end.
fn work<D: Dirty>(cache: &D, shared: &Shared, limits: Limits, mut hear: impl FnMut(&Step)) {
    while shared.is_held() {
        thread::park();
    }
    let begin = Instant::now();
    let mut destage = Destage::new(limits);
    let mut pauses = Pauses::new();
    let mut ages = Ages::new(cache.shares_sweeps());
    // Where the disk keeps the order of commits, blocks turn clean only with the last step of a
    // group.
    let mut spent = Duration::ZERO;
    while !shared.is_ending() {
        let load = cache.load();
        ages.saw(Instant::now(), load.dirty);
        *shared.dirty_since() = ages.since();
        let turn = match shared.progress().is_wanted() {
            true => Turn::Destage(STEP_WANTED, SweepScope::Everything),
            false => destage.next(begin.elapsed(), load),
        };
        match turn {
            Turn::Destage(blocks, scope) => {
                let scope = shared.begin_step(scope);
                let step_begin = Instant::now();
                ages.begins(step_begin, scope);
                let step = cache.step(blocks, scope);
                spent += step_begin.elapsed();
                if step.cleaned > 0 || !step.more {
                    destage.measured(step.cleaned, std::mem::take(&mut spent));
                }
                *shared.throttle() = destage.throttle();
                let pause = pauses.behind(&step);
                ages.ended(&step);
                hear(&step);
                note(shared, step);
                // Nobody who waits for a flush is kept waiting.
                pause.into_iter().for_each(|pause| sleep(shared, Some(pause)));
            }
            Turn::Wait(time) => sleep(shared, Some(time)),
            Turn::Park if cache.may_sleep() => sleep(shared, None),
            Turn::Park => {}
        }
    }
}

/// Keeps what a step did, and tells those who wait if it ended a sweep.
fn note(shared: &Shared, step: Step) {
    let mut progress = shared.progress();
    progress.under_way = step.more;
    let ended = !step.more;
    progress.leaves.add(step);
    if ended {
        progress.done += 1;
        progress.left = std::mem::take(&mut progress.leaves);
        shared.ended.notify_all();
    }
}

/// Sleeps until the bell or a flush wakes the thread, or for `time`.
fn sleep(shared: &Shared, time: Option<Duration>) {
    // Whoever wakes the thread leaves a token, so a call before this line is not lost.
    match time {
        _ if shared.is_ending() || shared.progress().is_wanted() => {}
        Some(time) => thread::park_timeout(time),
        None => thread::park(),
    }
}
