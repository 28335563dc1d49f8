//! The machine: virtual threads, their cores and clocks, and the loop that goes from one to the
//! next.
//!
//! 1. One thread runs at a time, and another is chosen at points only.
//! 2. A thread waits for a lock, for an unparking, or for a time; a lock's release wakes all that
//!    wait for it, and they try again.
//! 3. A thread's clock is its core's. It never goes back.
//! 4. Off the run loop nothing here lets another thread go on: neither before, nor after, nor while
//!    an ended machine unwinds the threads that it left.

use crate::flaw::{Flaw, FlawKind, Survey, Use};
use crate::order::{Chooser, Order};
use crate::random::Rng;
use crate::slots;
use crate::trace::Trace;
use corosensei::Coroutine;
use corosensei::stack::DefaultStack;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

/// Kinds of points, as the trace has them.
pub(crate) const LOAD: u64 = 1;
pub(crate) const STORE: u64 = 2;
pub(crate) const CHANGE: u64 = 3;
pub(crate) const FENCE: u64 = 4;
pub(crate) const LOCK: u64 = 5;
const YIELD: u64 = 6;
const WAIT: u64 = 7;
const PARK: u64 = 8;
const SLEEP: u64 = 9;

const STACK_BYTES: usize = 256 << 10;

/// Accesses in a row without a point after which their thread is taken to go on for ever: far more
/// than anyone makes under one lock.
const ACCESSES_MAX: u64 = 1 << 22;

/// What happens in which order, and when it is enough.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Makes every choice.
    pub seed: u64,
    /// How many virtual cores there are; threads name theirs.
    pub cores: u32,
    /// How the seed chooses.
    pub order: Order,
    /// What each point costs its core.
    pub costs: Costs,
    /// Points after which the threads are taken to wait for each other in circles.
    pub points_max: u64,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
    /// Whether [`Ended::uses`] is wanted.
    pub survey: bool,
}

impl Plan {
    /// A machine of `cores` cores, without a limit to speak of.
    pub fn new(seed: u64, cores: u32, order: Order) -> Plan {
        Plan { seed, cores, order, costs: Costs::default(), points_max: u64::MAX, flaw: None, survey: false }
    }
}

/// What points cost in virtual time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A load, store or fence of an atomic.
    pub access_ns: u64,
    /// A locked instruction: a swap, a compare-and-swap, the taking of a free lock.
    pub locked_ns: u64,
    /// From the release of a lock to the next holder's running on.
    pub handoff_ns: u64,
    /// From an unparking to the thread's running on.
    pub wake_up_ns: u64,
    /// Giving way once; at least 1.
    pub yield_ns: u64,
    /// From one thread to another on the same core.
    pub switch_ns: u64,
    /// How long a thread keeps its core while others want it.
    pub slice_ns: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            access_ns: 1,
            locked_ns: 1,
            handoff_ns: 1,
            wake_up_ns: 1,
            yield_ns: 1,
            switch_ns: 1,
            slice_ns: 3_000_000,
        }
    }
}

/// How a machine ended.
#[derive(Debug)]
pub enum How {
    /// Every thread returned.
    Finished,
    /// A thread called [`stop`].
    Stopped,
    /// These threads wait for something that nobody does any more.
    Deadlock(Vec<usize>),
    /// More than [`Plan::points_max`] points, or a thread that comes to no point any more.
    TooLong,
    /// This thread panicked with this.
    Panicked(usize, Box<dyn Any + Send>),
}

/// What a machine did.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub how: How,
    /// A digest of every choice, point and note.
    pub hash: u64,
    /// Points passed.
    pub points: u64,
    /// Times that another thread went on.
    pub switches: u64,
    /// Each core's clock, in nanoseconds.
    pub clocks_ns: Vec<u64>,
    /// Where threads gave way or waited for a lock.
    pub waits: Vec<Wait>,
    /// Where a [`Flaw`] could be.
    pub uses: Vec<Use>,
}

/// A place in the code where threads gave way or waited for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The place.
    pub place: &'static Location<'static>,
    /// How many times.
    pub times: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Waits for the lock at this place.
    Waiting(usize),
    Parked,
    Done,
}

struct Thread {
    core: usize,
    token: u32,
    status: Status,
    /// Whether an unparking came before the parking.
    permit: bool,
    /// When it can go on, by its core's clock.
    ready_at_ns: u64,
}

struct State {
    plan: Plan,
    chooser: Chooser,
    trace: Trace,
    threads: Vec<Thread>,
    /// Threads that can go on, ascending.
    ready: Vec<usize>,
    /// How many wait for a lock.
    waiting: usize,
    current: usize,
    /// Whether `ready`, or a clock that decides, changed since the last choice.
    changed: bool,
    points: u64,
    /// Accesses since the last point.
    accesses: u64,
    switches: u64,
    clocks_ns: Vec<u64>,
    /// Timed: the clock up to which the current thread goes on unless something changes.
    horizon_ns: u64,
    /// Timed: when each core's thread has to let others of the core go on.
    slices_end_ns: Vec<u64>,
    /// Timed: the thread each core ran last.
    last_on_core: Vec<usize>,
    waits: Vec<Wait>,
    survey: Survey,
    over: Option<How>,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    static UNWINDING: Cell<bool> = const { Cell::new(false) };
}

type Work = Box<dyn FnOnce()>;

/// Virtual threads on virtual cores, ready to run.
pub struct Machine {
    plan: Plan,
    threads: Vec<(usize, u32, Work)>,
}

impl Machine {
    /// A machine without threads.
    pub fn new(plan: Plan) -> Machine {
        assert!(plan.cores > 0, "a machine has a core");
        Machine { plan, threads: Vec::new() }
    }

    /// Adds a thread that runs `work` on core `core`, and answers [`token`] with its number among
    /// the threads, from 0, which is given back.
    pub fn spawn(&mut self, core: u32, work: impl FnOnce() + 'static) -> usize {
        assert!(core < self.plan.cores, "core {core} of a machine of {}", self.plan.cores);
        assert!(self.threads.len() < slots::THREADS_MAX, "more threads than a machine has room for");
        let number = self.threads.len();
        let token = u32::try_from(number).expect("few threads");
        self.threads.push((core as usize, token, Box::new(work)));
        number
    }

    /// Runs every thread, until all have returned or the machine ends otherwise. Threads that have
    /// not returned are then unwound.
    ///
    /// # Panics
    ///
    /// If called on a virtual core.
    pub fn run(self) -> Ended {
        assert!(STATE.with_borrow(Option::is_none), "a machine does not run on a virtual core");
        let count = self.threads.len();
        let mut state = State::new(self.plan, &self.threads);
        let mut coroutines: Vec<Thunk> =
            self.threads.into_iter().enumerate().map(|(number, (_, _, work))| coroutine(number, work)).collect();
        if count == 0 {
            state.over = Some(How::Finished);
        } else {
            state.first();
        }
        STATE.set(Some(state));
        while let Some(thread) = current() {
            let resumed = catch_unwind(AssertUnwindSafe(|| coroutines[thread].resume(()).as_return().is_some()));
            match resumed {
                Ok(false) => {}
                Ok(true) => with_state(State::returned),
                Err(panic) => with_state(|state| state.over = Some(How::Panicked(thread, panic))),
            }
        }
        // From here on nothing lets another thread go on: what unwinding does is not part of the
        // run.
        let state = STATE.take().expect("it was put there");
        coroutines.into_iter().for_each(recycle);
        Ended {
            how: state.over.expect("the loop ended by it"),
            hash: state.trace.digest(),
            points: state.points,
            switches: state.switches,
            clocks_ns: state.clocks_ns,
            waits: state.waits,
            uses: state.survey.uses,
        }
    }
}

type Thunk = Coroutine<(), (), (), DefaultStack>;

fn coroutine(number: usize, work: Work) -> Thunk {
    let kept = STACKS.with_borrow_mut(Vec::pop);
    let stack = kept.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is memory for a stack"));
    Coroutine::with_stack(stack, move |yielder, ()| slots::enter(number, yielder, work))
}

fn recycle(mut coroutine: Thunk) {
    if !coroutine.done() {
        // A destructor may panic on what its thread left half done; the run is over.
        UNWINDING.set(true);
        let _ = catch_unwind(AssertUnwindSafe(|| coroutine.force_unwind()));
        UNWINDING.set(false);
    }
    if coroutine.done() {
        STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
    }
}

fn current() -> Option<usize> {
    STATE.with_borrow(|state| state.as_ref().filter(|state| state.over.is_none()).map(|state| state.current))
}

fn with_state<T>(act: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(|state| act(state.as_mut().expect("a machine runs")))
}

/// `act` on the machine that the caller runs on, if it runs on one.
fn if_inside<T>(act: impl FnOnce(&mut State) -> T) -> Option<T> {
    STATE.with_borrow_mut(|state| state.as_mut().map(act))
}

/// Does `act` to the machine, and leaves the calling thread if that chose another one.
fn step(act: impl FnOnce(&mut State)) {
    let leave = if_inside(|state| {
        let own = state.current;
        act(state);
        (state.current != own || state.over.is_some()).then_some(own)
    });
    if let Some(Some(own)) = leave {
        slots::leave(own);
    }
}

/// Whether the caller runs on a virtual core.
pub fn is_inside() -> bool {
    STATE.with_borrow(Option::is_some)
}

/// A point: another thread may go on. `kind` becomes part of the trace.
pub fn point(kind: u64) {
    // A thread that panics takes its frames down in one go: nobody could run beside a half of that.
    if std::thread::panicking() {
        return;
    }
    step(|state| state.point(kind));
}

/// Adds `word` to the trace.
pub fn note(word: u64) {
    if_inside(|state| state.trace.add(word));
    access();
}

/// What a lock guards is accessed: no point, but a thread that does nothing else ends the machine.
pub(crate) fn access() {
    if !std::thread::panicking() {
        step(State::access);
    }
}

/// Moves the clock of the calling thread's core on.
pub fn charge(ns: u64) {
    if_inside(|state| state.charge(ns));
}

/// The clock of the calling thread's core, in nanoseconds. 0 on a plain thread.
pub fn now_ns() -> u64 {
    if_inside(|state| state.clock_ns()).unwrap_or(0)
}

/// The number of the calling thread. None on a plain thread.
pub fn thread_number() -> Option<usize> {
    if_inside(|state| state.current)
}

/// The token of the calling thread: its number, or what [`set_token`] said. None on a plain thread.
pub fn token() -> Option<u32> {
    STATE.with_borrow(|state| state.as_ref().map(|state| state.threads[state.current].token))
}

/// Changes the token of the calling thread. False on a plain thread.
pub fn set_token(token: u32) -> bool {
    if_inside(|state| state.threads[state.current].token = token).is_some()
}

/// The calling thread begins something new: what it loaded until now it has not seen.
pub fn begin() {
    if_inside(|state| state.survey.begin(state.current));
}

/// The calling thread loads `value` from what `key` stands for. Answers what it is to see.
pub fn loaded(place: &'static Location<'static>, key: u64, value: u64) -> u64 {
    let survey = |state: &mut State| {
        let watched = state.plan.survey || state.plan.flaw.is_some_and(|flaw| flaw.kind == FlawKind::Recheck);
        if watched { state.looks(place, key, value) } else { value }
    };
    if_inside(survey).unwrap_or(value)
}

/// The calling thread stores to what `key` stands for.
pub fn stored(key: u64) {
    if_inside(|state| {
        if state.plan.survey || state.plan.flaw.is_some() {
            state.survey.stored(state.current, key);
        }
    });
}

/// Whether what the calling thread does at `place` is broken.
pub(crate) fn is_flawed(kind: FlawKind, place: &'static Location<'static>) -> bool {
    let flawed = |state: &mut State| {
        if state.plan.survey && kind == FlawKind::Change {
            state.survey.count(kind, place);
        }
        state.plan.flaw.is_some_and(|flaw| flaw.is_at(kind, place))
    };
    if_inside(flawed).unwrap_or(false)
}

/// Points so far, if they are of interest.
pub(crate) fn points_surveyed() -> Option<u64> {
    if_inside(|state| state.plan.survey.then_some(state.points)).flatten()
}

/// The lock taken at `place` has made a difference.
pub(crate) fn used_lock(place: &'static Location<'static>) {
    if_inside(|state| state.survey.count(FlawKind::Lock, place));
}

/// Ends the machine: no thread does anything more.
pub fn stop() {
    step(|state| state.over = Some(How::Stopped));
}

/// Waits until somebody unparks the calling thread, or has done so since it last waited.
pub fn park() {
    step(State::park);
}

/// Lets thread `number` go on that parks, or will.
pub fn unpark(number: usize) {
    step(|state| state.unpark(number));
}

/// Waits for `ns` nanoseconds of virtual time; untimed, gives way.
pub fn pass_time(ns: u64) {
    step(|state| state.pass_time(ns));
}

#[track_caller]
pub(crate) fn give_way() {
    if is_inside() {
        let place = Location::caller();
        step(|state| {
            state.waited(place);
            state.give_way(YIELD);
        });
    } else {
        std::thread::yield_now();
    }
}

/// Waits for a release of the lock at `place`.
#[track_caller]
pub(crate) fn wait_for(place: usize) {
    assert!(is_inside(), "a thread that is unwound meets a lock that another one holds");
    let caller = Location::caller();
    step(|state| {
        state.waited(caller);
        state.wait(place);
    });
}

/// Whether the calling thread is one that an ended machine unwinds.
pub(crate) fn is_unwinding() -> bool {
    UNWINDING.get()
}

/// The lock at `place` was released.
pub(crate) fn released(place: usize) {
    if_inside(|state| state.released(place));
}

impl State {
    /// What the thread on its core sees at `key`: `value`, or what it saw there before if its
    /// second look is left out.
    fn looks(&mut self, place: &'static Location<'static>, key: u64, value: u64) -> u64 {
        let before = self.survey.last_seen(self.current, key).unwrap_or(value);
        if self.plan.survey && value != before {
            self.survey.count(FlawKind::Recheck, place);
        }
        let left_out = self.plan.flaw.is_some_and(|flaw| flaw.is_at(FlawKind::Recheck, place));
        let sees = if left_out { before } else { value };
        self.survey.sees(self.current, key, sees);
        sees
    }

    fn new(plan: Plan, threads: &[(usize, u32, Work)]) -> State {
        let cores = plan.cores as usize;
        let mut rng = Rng::new(plan.seed);
        State {
            chooser: Chooser::new(plan.order, rng.next_u64(), threads.len()),
            trace: Trace::default(),
            ready: (0..threads.len()).collect(),
            threads: threads
                .iter()
                .map(|(core, token, _)| Thread {
                    core: *core,
                    token: *token,
                    status: Status::Ready,
                    permit: false,
                    ready_at_ns: 0,
                })
                .collect(),
            waiting: 0,
            current: 0,
            changed: true,
            points: 0,
            accesses: 0,
            switches: 0,
            clocks_ns: vec![0; cores],
            horizon_ns: 0,
            slices_end_ns: vec![0; cores],
            last_on_core: vec![usize::MAX; cores],
            waits: Vec::new(),
            survey: Survey::default(),
            over: None,
            plan,
        }
    }

    fn timed(&self) -> bool {
        self.plan.order == Order::Timed
    }

    fn core(&self) -> usize {
        self.threads[self.current].core
    }

    fn clock_ns(&self) -> u64 {
        self.clocks_ns[self.core()]
    }

    fn charge(&mut self, ns: u64) {
        let core = self.core();
        self.clocks_ns[core] += ns;
    }

    /// The thread that begins.
    fn first(&mut self) {
        let thread = if self.timed() { self.furthest_behind() } else { self.chooser.at_point(0, 0, &self.ready) };
        self.go_on_with(thread);
    }

    fn point(&mut self, kind: u64) {
        self.count(kind);
        let costs = &self.plan.costs;
        self.charge(if matches!(kind, CHANGE | LOCK) { costs.locked_ns } else { costs.access_ns });
        let thread =
            if self.timed() { self.in_time() } else { self.chooser.at_point(self.points, self.current, &self.ready) };
        self.go_on_with(thread);
    }

    /// Off the points the thread goes on, unless it has done so for too long.
    fn access(&mut self) {
        self.accesses += 1;
        if self.accesses > ACCESSES_MAX {
            self.over.get_or_insert(How::TooLong);
        }
    }

    fn count(&mut self, kind: u64) {
        self.points += 1;
        self.accesses = 0;
        self.trace.add(kind);
        if self.points > self.plan.points_max {
            self.over.get_or_insert(How::TooLong);
        }
    }

    fn give_way(&mut self, kind: u64) {
        self.count(kind);
        self.charge(self.plan.costs.yield_ns.max(1));
        if self.timed() {
            // Whoever shares the core comes first.
            let core = self.core();
            self.slices_end_ns[core] = 0;
            self.changed = true;
        }
        self.instead();
    }

    /// The current thread gives way or cannot go on: chooses another.
    fn instead(&mut self) {
        if self.ready.is_empty() {
            return self.nobody_left();
        }
        let thread = if self.timed() {
            self.furthest_behind()
        } else {
            self.chooser.instead(self.points, self.current, &self.ready)
        };
        self.go_on_with(thread);
    }

    fn nobody_left(&mut self) {
        let waits = |thread: &Thread| matches!(thread.status, Status::Waiting(_) | Status::Parked);
        let stuck: Vec<usize> =
            self.threads.iter().enumerate().filter(|(_, thread)| waits(thread)).map(|(number, _)| number).collect();
        self.over.get_or_insert(if stuck.is_empty() { How::Finished } else { How::Deadlock(stuck) });
    }

    fn go_on_with(&mut self, thread: usize) {
        if thread == self.current {
            return;
        }
        self.switches += 1;
        self.trace.add(0x100 + thread as u64);
        self.current = thread;
    }

    fn rest(&mut self, status: Status) {
        let current = self.current;
        self.threads[current].status = status;
        self.ready.retain(|thread| *thread != current);
        self.changed = true;
    }

    fn wake(&mut self, thread: usize, at_ns: u64) {
        self.threads[thread].status = Status::Ready;
        self.threads[thread].ready_at_ns = at_ns;
        let place = self.ready.partition_point(|other| *other < thread);
        self.ready.insert(place, thread);
        self.changed = true;
    }

    fn returned(&mut self) {
        self.rest(Status::Done);
        self.instead();
    }

    fn waited(&mut self, place: &'static Location<'static>) {
        match self.waits.iter_mut().find(|wait| wait.place.line() == place.line() && wait.place == place) {
            Some(wait) => wait.times += 1,
            None => self.waits.push(Wait { place, times: 1 }),
        }
    }

    fn wait(&mut self, place: usize) {
        self.count(WAIT);
        self.waiting += 1;
        self.rest(Status::Waiting(place));
        self.instead();
    }

    fn released(&mut self, place: usize) {
        if self.waiting == 0 {
            return;
        }
        let at_ns = self.clock_ns() + self.plan.costs.handoff_ns;
        for thread in 0..self.threads.len() {
            if self.threads[thread].status == Status::Waiting(place) {
                self.waiting -= 1;
                self.wake(thread, at_ns);
            }
        }
    }

    fn park(&mut self) {
        self.count(PARK);
        let thread = &mut self.threads[self.current];
        if std::mem::take(&mut thread.permit) {
            return;
        }
        self.rest(Status::Parked);
        self.instead();
    }

    fn unpark(&mut self, number: usize) {
        let at_ns = self.clock_ns() + self.plan.costs.wake_up_ns;
        match self.threads[number].status {
            Status::Parked => self.wake(number, at_ns),
            Status::Ready | Status::Waiting(_) => self.threads[number].permit = true,
            Status::Done => {}
        }
        self.point(PARK);
    }

    fn pass_time(&mut self, ns: u64) {
        if !self.timed() {
            return self.give_way(SLEEP);
        }
        self.count(SLEEP);
        self.threads[self.current].ready_at_ns = self.clock_ns() + ns;
        self.changed = true;
        self.instead();
    }

    /// Timed: the current thread as long as no other core is further behind, and its slice lasts.
    fn in_time(&mut self) -> usize {
        if !self.changed && self.clock_ns() <= self.horizon_ns {
            return self.current;
        }
        self.furthest_behind()
    }

    /// Timed: the thread that can go on earliest; its core's clock is moved to that time.
    fn furthest_behind(&mut self) -> usize {
        let (mut best, mut second_ns) = ((u64::MAX, usize::MAX), u64::MAX);
        for core in 0..self.clocks_ns.len() {
            let Some(thread) = self.next_on_core(core) else { continue };
            let key = (self.starts_at_ns(thread), thread);
            if key < best {
                second_ns = best.0;
                best = key;
            } else {
                second_ns = second_ns.min(key.0);
            }
        }
        let (at_ns, thread) = best;
        let core = self.threads[thread].core;
        self.clocks_ns[core] = at_ns;
        if self.last_on_core[core] != thread {
            self.clocks_ns[core] += if self.last_on_core[core] == usize::MAX { 0 } else { self.plan.costs.switch_ns };
            self.last_on_core[core] = thread;
            self.slices_end_ns[core] = 0;
        }
        let shared = self.ready.iter().filter(|other| self.threads[**other].core == core).count() > 1;
        if self.slices_end_ns[core] <= self.clocks_ns[core] {
            self.slices_end_ns[core] = self.clocks_ns[core] + self.plan.costs.slice_ns.max(1);
        }
        self.horizon_ns = second_ns.min(if shared { self.slices_end_ns[core] - 1 } else { u64::MAX });
        self.changed = false;
        thread
    }

    fn starts_at_ns(&self, thread: usize) -> u64 {
        let thread = &self.threads[thread];
        self.clocks_ns[thread.core].max(thread.ready_at_ns)
    }

    /// Timed: the thread that core `core` goes on with: the one it ran last while its slice lasts,
    /// else the next in turn of those that are ready earliest.
    fn next_on_core(&self, core: usize) -> Option<usize> {
        let last = self.last_on_core[core];
        let in_slice = self.clocks_ns[core] < self.slices_end_ns[core];
        let turn = |thread: usize| {
            let same = thread == last;
            let distance = if same && !in_slice { usize::MAX } else { thread.wrapping_sub(last) % slots::THREADS_MAX };
            (self.starts_at_ns(thread), distance)
        };
        self.ready
            .iter()
            .copied()
            .filter(|thread| self.threads[*thread].core == core)
            .min_by_key(|thread| turn(*thread))
    }
}
