//! The threads that drain a write cache: how they sleep, wake and end.

use crate::cpu_gate::CpuGate;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use tidegate_media::{BlockDevice, Region, Result};
use tidegate_policy::writeback::backlog::BacklogLimit;
use tidegate_policy::writeback::backoff::{Backoff, Next};
use tidegate_write_cache::{Doorbell, WriteCache};

/// Blocks that one step may evict.
const STEP: u32 = 64;

/// How a [`DrainPool`] works.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Threads, at least one.
    pub threads: usize,
    /// How long draining what waits may take: the limit of slots follows from it.
    /// [`Duration::MAX`]: no limit.
    pub drain_within: Duration,
}

/// What draining at the end came to.
#[derive(Debug)]
pub struct Drained {
    /// Bytes that are still in slots, because the device failed.
    pub bytes_left: u64,
    /// What the last flush said.
    pub flushed: Result<()>,
}

/// Threads that drain one cache until this is finished or dropped. What is in the cache when it is
/// dropped stays there.
#[derive(Debug)]
pub struct DrainPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    ending: AtomicBool,
    /// Handles of the threads, and whether each is parked. The first is the one that the cache
    /// wakes.
    members: Mutex<Vec<Member>>,
    /// Times that a thread of the pool woke another.
    wake_ups: AtomicU64,
}

#[derive(Debug)]
struct Member {
    thread: Thread,
    /// Whether the thread is to be unparked when there is work for it.
    parked: bool,
    /// Whether the cache has seen that it is parked.
    settled: bool,
}

impl Shared {
    /// Wakes the first member, or the next one that is parked if `another`.
    fn wake(&self, another: bool) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let parked = members.iter_mut().skip(usize::from(another)).find(|member| member.parked);
        if let Some(member) = parked {
            member.parked = false;
            member.thread.unpark();
            self.wake_ups.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn set_parked(&self, index: usize, parked: bool) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members[index].parked = parked;
        members[index].settled = false;
    }

    fn settle(&self, index: usize) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)[index].settled = true;
    }

    fn is_parked(&self, index: usize) -> bool {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)[index].parked
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }
}

/// The cache's way to wake the first thread.
struct Bell(Arc<Shared>);

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.wake(false);
    }
}

impl DrainPool {
    /// Starts threads that drain `cache`, and takes its doorbell.
    pub fn start<R: Region + 'static>(cache: &Arc<WriteCache<R>>, setup: Setup) -> io::Result<DrainPool> {
        let mut pool = DrainPool { shared: Arc::default(), threads: Vec::new() };
        let backlog = BacklogLimit::new(setup.drain_within, cache.slots());
        cache.limit_slots(backlog.limit());
        let backlog = Arc::new(Mutex::new(backlog));
        for index in 0..setup.threads.max(1) {
            let (cache, shared, backlog) = (cache.clone(), pool.shared.clone(), backlog.clone());
            let member = move || work(index, &cache, &shared, &backlog);
            let thread = thread::Builder::new().name(format!("drain-{index}")).stack_size(256 << 10).spawn(member)?;
            let mut members = pool.shared.members.lock().unwrap_or_else(PoisonError::into_inner);
            members.push(Member { thread: thread.thread().clone(), parked: false, settled: false });
            pool.threads.push(thread);
        }
        cache.set_doorbell(Box::new(Bell(pool.shared.clone())));
        Ok(pool)
    }

    /// Times that a thread was woken, by the cache or by another thread.
    pub fn wake_ups(&self) -> u64 {
        self.shared.wake_ups.load(Ordering::Relaxed)
    }

    /// Whether every thread sleeps until it is woken.
    pub fn is_asleep(&self) -> bool {
        self.shared
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .all(|member| member.parked && member.settled)
    }

    fn end(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A thread that panicked said so; what it drained is in the device or still in its
            // slot.
            let _ = thread.join();
        }
    }

    /// Ends the threads, drains the cache and flushes it. `progress` is told the bytes left, now
    /// and then.
    pub fn finish<R: Region>(mut self, cache: &WriteCache<R>, mut progress: impl FnMut(u64)) -> Drained {
        self.end();
        let (mut cursor, mut scratch) = (0, scratch(cache));
        while let Ok(step) = cache.drain_step(STEP, &mut cursor, &mut scratch)
            && step.more
        {
            progress(cache.bytes_left());
        }
        let flushed = cache.flush();
        Drained { bytes_left: cache.bytes_left(), flushed }
    }
}

impl Drop for DrainPool {
    fn drop(&mut self) {
        self.end();
    }
}

fn scratch<R: Region>(cache: &WriteCache<R>) -> Box<[u8]> {
    vec![0; cache.geometry().block_size as usize].into()
}

/// One thread's work, until the pool ends or the device fails.
fn work<R: Region>(index: usize, cache: &WriteCache<R>, shared: &Arc<Shared>, backlog: &Mutex<BacklogLimit>) {
    // The first thread works whenever there is something to drain, so it alone decides for the
    // cache.
    let mut gate = (index == 0).then(|| CpuGate::new(cache));
    let (mut backoff, mut cursor, mut scratch) = (Backoff::default(), index * 17, scratch(cache));
    while !shared.is_ending() {
        let begin = Instant::now();
        // The cache remembers its failure and returns it from later writes and flushes.
        let Ok(step) = cache.drain_step(STEP, &mut cursor, &mut scratch) else { return };
        let shut = gate.as_mut().and_then(|gate| gate.after_step(step.evicted));
        match backoff.after_step(step.evicted) {
            Next::GoOn => {
                let limit =
                    backlog.lock().unwrap_or_else(PoisonError::into_inner).measured(step.evicted, begin.elapsed());
                limit.into_iter().for_each(|limit| cache.limit_slots(limit));
                if step.evicted == STEP && step.more {
                    shared.wake(true);
                }
            }
            // Nothing comes but what a writer had begun before.
            Next::Sleep(_) if shut.is_some() => park(index, cache, shared, shut),
            Next::Sleep(time) => thread::sleep(time),
            Next::Park => park(index, cache, shared, shut),
        }
    }
}

/// Sleeps until the thread is woken, or until the time `until`.
fn park<R: Region>(index: usize, cache: &WriteCache<R>, shared: &Arc<Shared>, until: Option<Instant>) {
    shared.set_parked(index, true);
    // Only the first is woken by the cache, so only it has to look again.
    if index == 0 && !cache.may_sleep() {
        shared.set_parked(index, false);
        return;
    }
    if until.is_none() {
        shared.settle(index);
    }
    while shared.is_parked(index) && !shared.is_ending() {
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => {
                cache.stay_awake();
                break;
            }
            Some(left) => thread::park_timeout(left),
        }
    }
    shared.set_parked(index, false);
}
