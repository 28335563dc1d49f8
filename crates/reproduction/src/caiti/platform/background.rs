//! Threads on virtual cores beside the writers: those that drain a transit cache, as the program's
//! pool does it, and the one beside a staging cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_media::{BlockDevice, Region};
use tidegate_policy::writeback::backlog::BacklogLimit;
use tidegate_policy::writeback::backoff::{Backoff, Next};
use tidegate_virtual_cores::{charge, now_ns, park, pass_time, thread_number, unpark};
use tidegate_write_cache::{Doorbell, WriteCache};

/// Linux lets a sleeper that is no real-time thread sleep so much longer (`PR_SET_TIMERSLACK`).
const TIMER_SLACK: Duration = Duration::from_micros(50);

/// How long the thread beside a staging cache sleeps when it finds nothing to do.
const BESIDE_PAUSE: Duration = Duration::from_micros(100);

/// Blocks that one step may evict.
const STEP: u32 = 64;

/// Between two looks of a thread that watches.
const LOOK_NS: u64 = 100;

/// What a thread beside the writers does.
pub(super) type Work = Box<dyn FnOnce()>;

/// Those beside the writers. All run on one thread of the system, so no lock in here is ever waited
/// for.
#[derive(Debug, Default)]
pub(super) struct BackgroundThreads {
    over: AtomicBool,
    members: Mutex<Vec<Member>>,
    /// What waking a thread takes of the one who wakes it.
    call_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    thread: Option<usize>,
    parked: bool,
}

impl BackgroundThreads {
    /// Threads, `members` of them, to wake one of which takes `call_ns`.
    pub(super) fn of(members: u32, call_ns: u64) -> BackgroundThreads {
        let members = vec![Member::default(); members as usize];
        BackgroundThreads { over: AtomicBool::new(false), members: Mutex::new(members), call_ns }
    }

    /// The writers are done: everybody returns.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        let parked: Vec<usize> = self.with(|members| members.iter().filter_map(|member| member.thread).collect());
        parked.into_iter().for_each(unpark);
    }

    /// Whether the writers are done.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn with<T>(&self, act: impl FnOnce(&mut [Member]) -> T) -> T {
        act(&mut self.members.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes the first member, or the next one that is parked if `another`.
    fn wake(&self, another: bool) {
        let parked = self.with(|members| {
            let member = members.iter_mut().skip(usize::from(another)).find(|member| member.parked)?;
            member.parked = false;
            member.thread
        });
        if let Some(thread) = parked {
            charge(self.call_ns);
            unpark(thread);
        }
    }

    /// Member `index` drains `cache` until the writers are done.
    pub(super) fn drain<R: Region>(
        &self,
        index: usize,
        cache: &WriteCache<R>,
        backlog: &Mutex<BacklogLimit>,
        watching: bool,
    ) {
        let (mut backoff, mut cursor) = (Backoff::default(), index * 17);
        let mut scratch = vec![0; cache.geometry().block_size as usize];
        self.with(|members| members[index].thread = thread_number());
        while !self.is_over() {
            let begin = now_ns();
            let step = cache.drain_step(STEP, &mut cursor, &mut scratch).expect("the device writes");
            match backoff.after_step(step.evicted) {
                Next::GoOn => {
                    let time = Duration::from_nanos(now_ns() - begin);
                    let limit = backlog.lock().unwrap_or_else(PoisonError::into_inner).measured(step.evicted, time);
                    limit.into_iter().for_each(|limit| cache.limit_slots(limit));
                    if step.evicted == STEP && step.more {
                        self.wake(true);
                    }
                }
                Next::Sleep(_) | Next::Park if watching => pass_time(LOOK_NS),
                Next::Sleep(time) => rest(time),
                Next::Park => self.park(index, cache),
            }
        }
    }

    fn park<R: Region>(&self, index: usize, cache: &WriteCache<R>) {
        self.with(|members| members[index].parked = true);
        if index == 0 && !cache.may_sleep() {
            self.with(|members| members[index].parked = false);
            return;
        }
        while self.with(|members| members[index].parked) && !self.is_over() {
            park();
        }
        self.with(|members| members[index].parked = false);
    }

    /// Does `step` again and again until the writers are done, with a pause when it says that there
    /// is nothing to do.
    pub(super) fn step_until_over(&self, step: impl Fn() -> bool) {
        while !self.is_over() {
            if step() {
                pass_time(LOOK_NS);
            } else {
                rest(BESIDE_PAUSE);
            }
        }
    }
}

fn rest(time: Duration) {
    pass_time(u64::try_from((time + TIMER_SLACK).as_nanos()).expect("sleeps are short"));
}

/// The cache's way to wake the first member.
pub(super) struct Bell(pub(super) Arc<BackgroundThreads>);

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.wake(false);
    }
}
