//! Where the time of one job's requests goes.
//!
//! A watch knows which phase the first job is in, and adds the time since the last change to it. It
//! learns of changes from the job itself, from wrappers around the cache's memory and the device
//! below, and from a staging cache when it has no slot. In virtual time a look at the clock takes
//! no time, so the sums hold no time of the watch's own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_baselines::barrier::FlushWait;
use tidegate_baselines::staging::Room;
use tidegate_media::{BlockDevice, Durability, Lba, Poison, Region, Result, Sealed};
use tidegate_sim::{Intercept, InterceptMemory};
use tidegate_virtual_cores::{now_ns, thread_number};

/// What a request is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The system call, the file system, the block layer.
    Software,
    /// Waiting for a flush of the journal.
    Flush,
    /// Finding a slot, or that there is none.
    Metadata,
    /// Evicting, and waiting for what is evicted.
    Stall,
    /// Writing past the cache.
    Bypass,
    /// Copying into a slot.
    CacheWrite,
    /// Linking the slot: a queue, or lists.
    Enqueue,
    /// Copying out of a slot.
    CacheRead,
    /// Reading the device.
    DeviceRead,
}

impl Phase {
    /// Every phase, in the order of a request.
    pub const ALL: [Phase; 9] = [
        Phase::Software,
        Phase::Flush,
        Phase::Metadata,
        Phase::Stall,
        Phase::Bypass,
        Phase::CacheWrite,
        Phase::Enqueue,
        Phase::CacheRead,
        Phase::DeviceRead,
    ];

    /// As the figures call it.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Software => "software above",
            Phase::Flush => "cache flush",
            Phase::Metadata => "metadata",
            Phase::Stall => "evict and write",
            Phase::Bypass => "bypass",
            Phase::CacheWrite => "cache write",
            Phase::Enqueue => "enqueue",
            Phase::CacheRead => "cache read",
            Phase::DeviceRead => "device read",
        }
    }
}

/// Moments of one request, in nanoseconds of its core's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// The block it writes.
    pub lba: u64,
    /// The program begins it.
    pub begun: u64,
    /// It reaches the device.
    pub arrived: u64,
    /// Its block lies in a slot.
    pub filled: u64,
    /// The device is done with it.
    pub done: u64,
    /// The program has it back.
    pub back: u64,
}

/// Requests of one sort, and the time they took inside the device, but for waiting for flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// How many.
    pub count: u64,
    /// Nanoseconds of all of them.
    pub ns: u64,
}

/// What a watch saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Nanoseconds of each phase, in the order of [`Phase::ALL`].
    pub phases: [u64; Phase::ALL.len()],
    /// Requests that wrote a slot and did nothing else; that met a stall; that went past the cache.
    pub cached: Sort,
    /// See `cached`.
    pub stalled: Sort,
    /// See `cached`.
    pub bypassed: Sort,
    /// Nanoseconds that the journal's flushes took.
    pub flushes_ns: u64,
    /// The first requests.
    pub moments: Vec<Moments>,
    /// Blocks written to the device by others than the job, and when that ended.
    pub evictions: Vec<(u64, u64)>,
}

/// Requests whose moments are kept.
const MOMENTS: usize = 100;

struct State {
    seen: Seen,
    phase: Phase,
    since: u64,
    request: Moments,
    /// Nanoseconds that the request waited for flushes.
    held_ns: u64,
    reading: bool,
    met: [bool; Phase::ALL.len()],
}

/// Watches the first job.
pub struct Watch {
    /// What a write of the job to the device below is: a stall, or a bypass.
    below: Phase,
    state: Mutex<State>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("below", &self.below).finish_non_exhaustive()
    }
}

impl Watch {
    /// A watch of a cache whose writers' own writes to the device are `below`.
    pub fn new(below: Phase) -> Watch {
        let state = State {
            seen: Seen::default(),
            phase: Phase::Software,
            since: 0,
            request: Moments::default(),
            held_ns: 0,
            reading: false,
            met: [false; Phase::ALL.len()],
        };
        Watch { below, state: Mutex::new(state) }
    }

    // All run on one thread of the system, and no lock is held over a point: nobody waits here.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what it saw so far.
    pub fn start(&self) {
        let mut state = self.state();
        state.seen = Seen::default();
        state.since = now_ns();
    }

    /// What it saw.
    pub fn seen(&self) -> Seen {
        self.state().seen.clone()
    }

    /// The job begins a request.
    pub fn begin(&self, lba: Lba, reading: bool) {
        self.enter(Phase::Software);
        let mut state = self.state();
        state.request = Moments { lba: lba.0, begun: now_ns(), ..Moments::default() };
        (state.reading, state.held_ns) = (reading, 0);
        state.met = [false; Phase::ALL.len()];
    }

    /// The request reaches the device.
    pub fn arrive(&self) {
        self.enter(Phase::Metadata);
        self.state().request.arrived = now_ns();
    }

    /// The device is done with the request.
    pub fn end(&self) {
        self.enter(Phase::Software);
        let mut state = self.state();
        let request = Moments { done: now_ns(), ..state.request };
        let ns = request.done - request.arrived - state.held_ns;
        let met = |phase: Phase| state.met[phase as usize];
        let (stalled, bypassed) = (met(Phase::Stall), met(Phase::Bypass));
        let seen = &mut state.seen;
        let sort = match (stalled, bypassed) {
            (true, _) => &mut seen.stalled,
            (_, true) => &mut seen.bypassed,
            _ => &mut seen.cached,
        };
        sort.count += 1;
        sort.ns += ns;
        if seen.moments.len() < MOMENTS {
            seen.moments.push(request);
        }
    }

    /// The program has the request back.
    pub fn back(&self) {
        let mut state = self.state();
        if let Some(last) = state.seen.moments.last_mut().filter(|last| last.back == 0) {
            last.back = now_ns();
        }
    }

    /// The request finds no slot, or goes on with one: what it does or waits for in between is a
    /// stall.
    pub fn in_want(&self, room: Room) {
        self.enter(match room {
            Room::Wanted => Phase::Stall,
            Room::Made => Phase::Metadata,
        });
    }

    /// The request waits for a flush, or goes on.
    pub fn held(&self, held: FlushWait) {
        let since = self.state().since;
        match held {
            FlushWait::Begins => self.enter(Phase::Flush),
            FlushWait::Ends => self.enter(Phase::Metadata),
        };
        if held == FlushWait::Ends && watched() {
            self.state().held_ns += now_ns() - since;
        }
    }

    /// A flush of the journal took `ns`.
    pub fn flushed(&self, ns: u64) {
        self.state().seen.flushes_ns += ns;
    }

    /// The calling thread goes on to `phase`; returns what it was at. Threads other than the job's
    /// are not watched.
    fn enter(&self, phase: Phase) -> Phase {
        if !watched() {
            return phase;
        }
        let (mut state, now) = (self.state(), now_ns());
        let (before, since) = (state.phase, state.since);
        state.seen.phases[before as usize] += now - since;
        (state.phase, state.since) = (phase, now);
        state.met[phase as usize] = true;
        before
    }

    fn during<T>(&self, phase: Phase, act: impl FnOnce() -> T) -> T {
        let before = self.enter(phase);
        let done = act();
        self.enter(before);
        done
    }

    fn filled(&self) {
        if watched() {
            self.enter(Phase::Enqueue);
            self.state().request.filled = now_ns();
        }
    }

    fn is_reading(&self) -> bool {
        self.state().reading
    }
}

/// Whether the calling thread is the first job.
fn watched() -> bool {
    thread_number() == Some(0)
}

/// Watches the memory of a cache's slots.
pub(super) struct OfSlots(pub(super) Arc<Watch>);

impl InterceptMemory for OfSlots {
    fn read<R: Region + ?Sized>(&self, memory: &R, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let phase = if self.0.is_reading() { Phase::CacheRead } else { self.0.below };
        self.0.during(phase, || memory.read(at, out))
    }

    fn write<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        self.0.enter(Phase::CacheWrite);
        memory.write(at, bytes);
        self.0.filled();
    }

    fn stream<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        self.0.enter(Phase::CacheWrite);
        memory.stream(at, bytes);
        self.0.filled();
    }

    fn fence<R: Region + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        // The end of filling a slot.
        let fenced = self.0.during(Phase::CacheWrite, || memory.fence());
        self.0.filled();
        fenced
    }
}

/// Watches the device below a cache.
pub(super) struct BelowCache(pub(super) Arc<Watch>);

impl Intercept for BelowCache {
    fn read<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, out: &mut [u8]) -> Result<()> {
        self.0.during(Phase::DeviceRead, || device.read(at, out))
    }

    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        if watched() {
            return self.0.during(self.0.below, || device.write(at, data, durability));
        }
        let written = device.write(at, data, durability);
        let mut state = self.0.state();
        if state.seen.moments.len() <= MOMENTS && state.seen.evictions.len() < 4 * MOMENTS {
            state.seen.evictions.push((at.0, now_ns()));
        }
        written
    }
}
