//! What single acts cost in virtual time: of a processor, of memories, of disks.
//!
//! A [`Profile`] is one platform: a [`Figure`] for each act, with the source of each number.
//! [`TimedRegion`] and [`TimedDisk`] charge them to whoever runs, through a [`Timeline`]. What is
//! not in here (arithmetic, branches, cache misses outside a region) costs nothing, so a prediction
//! errs to the fast side.
//!
//! Times are picoseconds, because one streamed line takes a few nanoseconds and a fraction.

mod disk;
mod profiles;
mod queue;
mod region;

pub use disk::TimedDisk;
pub use profiles::{DISKS, PROFILES, REFERENCE, UnknownProfile, disk_by_name};
pub use queue::Queue;
pub use region::TimedRegion;

use std::borrow::Cow;
use std::fmt;

/// One number of a profile, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The time of one act, in picoseconds.
    pub ps: u64,
    /// Who measured it, and how it follows from that.
    pub source: Cow<'static, str>,
}

/// What a core does, one act at a time, whatever memory it works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Storing a line past the caches.
    StreamLine,
    /// Storing a line that the core's caches have.
    StoreLine,
    /// Copying a line out of the core's caches.
    CopyLine,
    /// Loading or storing a word that the core's caches have.
    Word,
    /// Beginning the write-back of a line.
    FlushLine,
    /// A fence with nothing to wait for.
    Fence,
    /// Loading or storing an atomic.
    Access,
    /// A locked instruction: a swap, the taking of a free lock.
    Locked,
    /// From the release of a lock, or a store that another core waits for, to that core's going on.
    HandOff,
    /// From unparking a thread that sleeps to its running on.
    WakeUp,
    /// Giving the core up with nobody to take it.
    Yield,
    /// From one thread to another on one core.
    Switch,
    /// Entering the kernel and coming back.
    SystemCall,
}

impl Act {
    /// Every act, in the order of [`CoreCosts`].
    pub const ALL: [Act; 13] = [
        Act::StreamLine,
        Act::StoreLine,
        Act::CopyLine,
        Act::Word,
        Act::FlushLine,
        Act::Fence,
        Act::Access,
        Act::Locked,
        Act::HandOff,
        Act::WakeUp,
        Act::Yield,
        Act::Switch,
        Act::SystemCall,
    ];

    /// Its name in reports and files.
    pub const fn name(self) -> &'static str {
        match self {
            Act::StreamLine => "stream-line",
            Act::StoreLine => "store-line",
            Act::CopyLine => "copy-line",
            Act::Word => "word",
            Act::FlushLine => "flush-line",
            Act::Fence => "fence",
            Act::Access => "atomic-access",
            Act::Locked => "locked-instruction",
            Act::HandOff => "hand-off",
            Act::WakeUp => "wake-up",
            Act::Yield => "yield",
            Act::Switch => "switch",
            Act::SystemCall => "system-call",
        }
    }
}

/// What a core costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreCosts {
    /// By [`Act`], in the order of [`Act::ALL`].
    pub figures: [Figure; Act::ALL.len()],
    /// Lines that a core's own caches keep.
    pub cached_lines: usize,
    /// Whether a line stays in them when it is flushed.
    pub flush_keeps: bool,
}

impl CoreCosts {
    /// The time of `count` acts, in picoseconds.
    pub fn ps(&self, act: Act, count: u64) -> u64 {
        self.figures[act as usize].ps * count
    }

    fn ns(&self, act: Act) -> u64 {
        self.ps(act, 1).div_ceil(1000)
    }

    /// What the virtual cores' own acts cost.
    pub fn of_cores(&self) -> tidegate_virtual_cores::Costs {
        tidegate_virtual_cores::Costs {
            access_ns: self.ns(Act::Access),
            locked_ns: self.ns(Act::Locked),
            handoff_ns: self.ns(Act::HandOff),
            wake_up_ns: self.ns(Act::WakeUp),
            yield_ns: self.ns(Act::Yield),
            switch_ns: self.ns(Act::Switch),
            ..tidegate_virtual_cores::Costs::default()
        }
    }
}

/// What a memory costs beside the core's own work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Waiting for a line that the caches do not have.
    pub fetch: Figure,
    /// Waiting for each following line of a run.
    pub fetch_next: Figure,
    /// From a streamed line's being on its way to its being durable.
    pub arrival: Figure,
    /// From a flushed line's being on its way to its being durable.
    pub write_back: Figure,
    /// The medium's being busy with one line that is written, whoever writes it.
    pub write_line: Figure,
    /// The medium's being busy with one line that is read, whoever reads it.
    pub read_line: Figure,
    /// Bytes of such a line; a power of two, 64 or more.
    pub line_bytes: u64,
    /// Lines on their way to the medium that a core may be ahead of it.
    pub ahead_lines: u64,
}

impl Memory {
    /// The figures by their names.
    pub fn figures(&self) -> [(&'static str, &Figure); 6] {
        [
            ("fetch", &self.fetch),
            ("fetch-next", &self.fetch_next),
            ("arrival", &self.arrival),
            ("write-back", &self.write_back),
            ("write-line", &self.write_line),
            ("read-line", &self.read_line),
        ]
    }
}

/// What a disk costs beside the system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its name.
    pub name: Cow<'static, str>,
    /// From a read's being asked for to its first byte.
    pub read: Figure,
    /// From a write's being asked for to its being in the disk.
    pub write: Figure,
    /// Making durable what is in the disk.
    pub flush: Figure,
    /// The disk's being busy with 4 KiB, whichever way they go.
    pub transfer_4k: Figure,
}

/// A platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Cores it has.
    pub cores: u32,
    /// Its cores.
    pub processor: CoreCosts,
    /// Its persistent memory.
    pub memory: Memory,
    /// Its DRAM.
    pub dram: Memory,
}

impl Profile {
    /// The profile of this name; [`REFERENCE`] is one of them.
    pub fn by_name(name: &str) -> Result<Profile, UnknownProfile> {
        profiles::by_name(name)
    }

    /// Every figure: its group, its name, itself.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, &'static str, &Figure)> {
        let processor = Act::ALL.iter().zip(&self.processor.figures).map(|(act, figure)| ("core", act.name(), figure));
        let of =
            |group: &'static str, memory| Memory::figures(memory).into_iter().map(move |(name, it)| (group, name, it));
        processor.chain(of("memory", &self.memory)).chain(of("dram", &self.dram))
    }
}

/// The whole profile, a line for each figure: to stand beside every result.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Profile { name, cores, processor, memory, .. } = self;
        let keeps = if processor.flush_keeps { "keeps" } else { "drops" };
        writeln!(
            f,
            "costs: {name}, {cores} cores that keep {} lines each, a flush {keeps} its line, memory in lines of {} bytes",
            processor.cached_lines, memory.line_bytes
        )?;
        self.figures().try_for_each(|(group, name, figure)| {
            let Figure { ps, source } = figure;
            let (whole, rest) = (ps / 1000, ps % 1000);
            writeln!(f, "  {:<26} {whole:>7}.{rest:03} ns  {source}", format!("{group} {name}"))
        })
    }
}

/// Who tells the time and lets it pass.
pub trait Timeline: Send + Sync {
    /// Nanoseconds since some moment, by the clock of the calling thread's core.
    fn now_ns(&self) -> u64;

    /// Lets time pass for the calling thread's core, which works or waits meanwhile.
    fn charge(&self, ns: u64);

    /// The calling thread, from 0; few numbers. None if its time is not told.
    fn thread(&self) -> Option<usize>;
}

/// The time of the virtual cores. That of plain threads is not told.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualTime;

impl Timeline for VirtualTime {
    fn now_ns(&self) -> u64 {
        tidegate_virtual_cores::now_ns()
    }

    fn charge(&self, ns: u64) {
        tidegate_virtual_cores::charge(ns);
    }

    fn thread(&self) -> Option<usize> {
        tidegate_virtual_cores::thread_number()
    }
}

#[cfg(test)]
mod tests;
