//! A region whose verbs take virtual time.
//!
//! 1. A line is *near* a core if that core touched it last and has not touched as many others since
//!    that push it out. What is not near is handed over by a core that has it, or else fetched from
//!    the medium. A line that another core stores to is near no longer; a streamed one is near
//!    nobody.
//! 2. Loads wait for what they fetch. Stores do not; but a line's way to the medium begins only
//!    when it is there.
//! 3. Flushes and streams queue at the medium, which all cores share. A core waits when the medium
//!    is too far behind, and at a fence until all that it sent has arrived.

use super::{Act, CoreCosts, Memory, Profile, Queue, Timeline, VirtualTime};
use std::sync::{Mutex, MutexGuard};
use tidegate_media::{LINE_BYTES, LineOrder, Poison, Region, Sealed};

/// No line.
const NONE: u64 = u64::MAX;

/// A region that takes the time of a memory.
pub struct TimedRegion<R, T = VirtualTime> {
    region: R,
    timeline: T,
    processor: CoreCosts,
    memory: Memory,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writes: Queue,
    reads: Queue,
    threads: Vec<Thread>,
}

/// What is known of one thread, which stays on its core.
struct Thread {
    /// The lines near it, by the remainder of their number.
    near: Box<[u64]>,
    /// When the last line that it stored to without waiting is there.
    fetched_ps: u64,
    /// When all that it sent has arrived.
    arrived_ps: u64,
    /// What was charged too little so far: less than a nanosecond.
    rest_ps: u64,
}

impl<R: Region> TimedRegion<R> {
    /// `region` with the times of the persistent memory of `profile`, on virtual cores.
    pub fn persistent(region: R, profile: &Profile) -> TimedRegion<R> {
        TimedRegion::new(region, profile.processor.clone(), profile.memory.clone(), VirtualTime)
    }

    /// `region` with the times of the DRAM of `profile`, on virtual cores.
    pub fn dram(region: R, profile: &Profile) -> TimedRegion<R> {
        TimedRegion::new(region, profile.processor.clone(), profile.dram.clone(), VirtualTime)
    }
}

impl<R: Region, T: Timeline> TimedRegion<R, T> {
    /// `region` with the times of `memory`, charged to `timeline`.
    pub fn new(region: R, processor: CoreCosts, memory: Memory, timeline: T) -> TimedRegion<R, T> {
        TimedRegion { region, timeline, processor, memory, state: Mutex::default() }
    }

    /// The region below.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// Charges the calling thread what `act` adds up, if its time is told.
    fn timed(&self, act: impl FnOnce(&mut Access<'_>)) {
        let Some(thread) = self.timeline.thread() else { return };
        let mut state = self.state.lock().expect("no holder of this lock panics");
        while state.threads.len() <= thread {
            let near = vec![NONE; self.processor.cached_lines].into();
            state.threads.push(Thread { near, fetched_ps: 0, arrived_ps: 0, rest_ps: 0 });
        }
        let begin_ns = self.timeline.now_ns();
        let now_ps = begin_ns * 1000 + state.threads[thread].rest_ps;
        let mut access = Access { processor: &self.processor, memory: &self.memory, state, thread, now_ps };
        act(&mut access);
        let end_ps = access.now_ps;
        access.own().rest_ps = end_ps % 1000;
        drop(access);
        self.timeline.charge(end_ps / 1000 - begin_ns);
    }
}

/// Lines that were not near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Missed {
    /// From the medium.
    fetched: u64,
    /// By another core.
    handed: u64,
}

/// One verb under way: its time passes here, and is charged at its end.
struct Access<'a> {
    processor: &'a CoreCosts,
    memory: &'a Memory,
    state: MutexGuard<'a, State>,
    thread: usize,
    now_ps: u64,
}

impl Access<'_> {
    fn own(&mut self) -> &mut Thread {
        &mut self.state.threads[self.thread]
    }

    fn act(&mut self, act: Act, count: u64) {
        self.now_ps += self.processor.ps(act, count);
    }

    /// Brings lines near; `exclusive` takes them from all other cores.
    fn touch(&mut self, lines: std::ops::Range<u64>, exclusive: bool) -> Missed {
        let mut missed = Missed::default();
        for line in lines {
            let own = self.own();
            let place = place(own, line);
            if own.near[place] != line {
                own.near[place] = line;
                let others = self.state.threads.iter().enumerate().filter(|(number, _)| *number != self.thread);
                match others.into_iter().any(|(_, other)| other.near[place] == line) {
                    true => missed.handed += 1,
                    false => missed.fetched += 1,
                }
            }
            if exclusive {
                let thread = self.thread;
                self.forget(line, |other| other != thread);
            }
        }
        missed
    }

    fn forget(&mut self, line: u64, of: impl Fn(usize) -> bool) {
        for (_, thread) in self.state.threads.iter_mut().enumerate().filter(|(number, _)| of(*number)) {
            let place = place(thread, line);
            if thread.near[place] == line {
                thread.near[place] = NONE;
            }
        }
    }

    fn missing_ps(&self, missed: Missed) -> u64 {
        let first_ps = match missed {
            Missed { fetched: 0, handed: 0 } => return 0,
            Missed { fetched: 0, .. } => self.processor.ps(Act::HandOff, 1),
            _ => self.memory.fetch.ps,
        };
        first_ps + self.memory.fetch_next.ps * (missed.fetched + missed.handed - 1)
    }

    fn load(&mut self, lines: std::ops::Range<u64>) {
        let missed = self.touch(lines, false);
        let there_ps = self.now_ps + self.missing_ps(missed);
        if missed.fetched > 0 {
            let medium_lines = (missed.fetched * LINE_BYTES).div_ceil(self.memory.line_bytes);
            let done_ps = self.state.reads.reserve(self.now_ps, medium_lines * self.memory.read_line.ps);
            self.now_ps = self.now_ps.max(done_ps);
        }
        self.now_ps = self.now_ps.max(there_ps);
    }

    fn store(&mut self, lines: std::ops::Range<u64>) {
        let missed = self.touch(lines, true);
        let there_ps = self.now_ps + self.missing_ps(missed);
        if missed != Missed::default() {
            let own = self.own();
            own.fetched_ps = own.fetched_ps.max(there_ps);
        }
    }

    /// Puts bytes on their way, in whole lines of the medium. The last of them then takes
    /// `latency_ps` to arrive.
    fn send(&mut self, at: u64, len: u64, latency_ps: u64) {
        let lines = lines(at, len, self.memory.line_bytes);
        let count = lines.end - lines.start;
        let from_ps = self.now_ps.max(self.own().fetched_ps);
        let sent_ps = self.state.writes.reserve(from_ps, count * self.memory.write_line.ps);
        let arrived_ps = sent_ps + latency_ps;
        let own = self.own();
        own.arrived_ps = own.arrived_ps.max(arrived_ps);
        self.now_ps = self.now_ps.max(sent_ps.saturating_sub(self.memory.ahead_lines * self.memory.write_line.ps));
    }
}

fn place(thread: &Thread, line: u64) -> usize {
    usize::try_from(line % thread.near.len() as u64).expect("a remainder of a length")
}

/// The numbers of the lines of `line_bytes` that `at..at + len` touches.
fn lines(at: u64, len: u64, line_bytes: u64) -> std::ops::Range<u64> {
    if len == 0 { 0..0 } else { at / line_bytes..(at + len - 1) / line_bytes + 1 }
}

impl<R: Region, T: Timeline> Region for TimedRegion<R, T> {
    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(at, out)?;
        let lines = lines(at, out.len() as u64, LINE_BYTES);
        self.timed(|access| {
            access.act(Act::CopyLine, lines.end - lines.start);
            access.load(lines);
        });
        Ok(())
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        let word = self.region.load_u64(at)?;
        self.timed(|access| {
            access.act(Act::Word, 1);
            access.load(lines(at, 8, LINE_BYTES));
        });
        Ok(word)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write(at, bytes);
        let lines = lines(at, bytes.len() as u64, LINE_BYTES);
        self.timed(|access| {
            access.act(Act::StoreLine, lines.end - lines.start);
            access.store(lines);
        });
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.region.stream(at, bytes);
        let lines = lines(at, bytes.len() as u64, LINE_BYTES);
        self.timed(|access| {
            access.act(Act::StreamLine, lines.end - lines.start);
            lines.for_each(|line| access.forget(line, |_| true));
            access.send(at, bytes.len() as u64, self.memory.arrival.ps);
        });
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.region.store_u64(at, word);
        self.timed(|access| {
            access.act(Act::Word, 1);
            access.store(lines(at, 8, LINE_BYTES));
        });
    }

    fn flush(&self, at: u64, len: u64) {
        self.region.flush(at, len);
        let lines = lines(at, len, LINE_BYTES);
        self.timed(|access| {
            access.act(Act::FlushLine, lines.end - lines.start);
            if !access.processor.flush_keeps {
                lines.for_each(|line| access.forget(line, |_| true));
            }
            access.send(at, len, self.memory.write_back.ps);
        });
    }

    fn fence(&self) -> Result<(), Sealed> {
        let answer = self.region.fence();
        self.timed(|access| {
            access.act(Act::Fence, 1);
            access.now_ps = access.now_ps.max(access.own().arrived_ps);
        });
        answer
    }

    fn line_order(&self) -> LineOrder {
        self.region.line_order()
    }
}
