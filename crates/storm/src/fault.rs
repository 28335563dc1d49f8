//! Faults: what goes wrong with the memory, the disk or the clock during a life or a recovery.
//! The seed chooses which, where and when.
//!
//! What is asked of the engines then: nobody reads what was never written; an error is told to the
//! next flush and to every later write; what was acknowledged as durable is there once the fault
//! is over; nobody waits for ever.

use crate::marks::{self, Mark};
use crate::script::{Bent, Setting};
use crate::stack_base::Base;
use std::cell::RefCell;
use std::ops::Range;
use tidegate_layout::disk_cache::CURSORS_AT;
use tidegate_media::LINE_BYTES;
use tidegate_sim::{Disk, DiskFault, PoisonedStore, Region, Rng};

/// What goes wrong.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Lines of the memory cannot be read, and fare so when stored to.
    Poison(Range<u64>, PoisonedStore),
    /// The memory's file ends here.
    CutShort(u64),
    /// Reads of these blocks of the disk fail.
    Reads(Range<u64>),
    /// Writes of them fail.
    Writes(Range<u64>),
    /// The disk's next flush fails.
    Flush,
    /// The disk answers flushes, and does not make them.
    Lies,
}

impl Fault {
    /// Any that may befall `setting`.
    pub(crate) fn any(rng: &mut Rng, setting: &Setting) -> Fault {
        match setting.base {
            Base::Table => of_memory(rng, &parts_of_table(setting)),
            Base::Disk | Base::Files => of_disk(rng, setting.blocks),
            Base::DiskCache if rng.one_in(2) => of_disk(rng, setting.blocks),
            Base::OrderedDisk if rng.one_in(2) => of_ordered_disk(rng, setting),
            Base::DiskCache | Base::OrderedDisk => of_memory(rng, &parts_of_cache(setting)),
        }
    }

    /// What a script with this `bent` meets in every life, if that may befall `setting`.
    pub(crate) fn of_bent(bent: Bent, rng: &mut Rng, setting: &Setting) -> Option<Fault> {
        match (bent, setting.base) {
            (Bent::FlushesFail, Base::Disk | Base::DiskCache | Base::OrderedDisk) => Some(Fault::Flush),
            (Bent::StoresAreLost, Base::Table) => Some(loses(&parts_of_table(setting)[0], rng)),
            (Bent::StoresAreLost, Base::DiskCache | Base::OrderedDisk) => Some(loses(&parts_of_cache(setting)[1], rng)),
            _ => None,
        }
    }

    /// Makes it so.
    pub(crate) fn befall(&self, region: &Region, disk: &Disk) {
        match self {
            Fault::Poison(bytes, stores) => region.poison(bytes.start, bytes.end - bytes.start, *stores),
            Fault::CutShort(end) => region.cut_short(*end),
            Fault::Reads(blocks) => disk.fail(DiskFault::ReadFails(blocks.clone())),
            Fault::Writes(blocks) => disk.fail(DiskFault::WriteFails(blocks.clone())),
            Fault::Flush => disk.fail(DiskFault::NextFlushFails),
            Fault::Lies => disk.fail(DiskFault::FlushesLie),
        }
    }

    /// What is reached when a request meets it.
    pub(crate) fn mark(&self) -> Mark {
        match self {
            Fault::Poison(_, PoisonedStore::Kept) => marks::MET_POISON,
            Fault::Poison(_, PoisonedStore::Heals) => marks::MET_HEALING,
            Fault::Poison(_, PoisonedStore::Lost) => marks::MET_LOSS,
            Fault::CutShort(_) => marks::MET_END,
            Fault::Reads(_) => marks::MET_BAD_READ,
            Fault::Writes(_) => marks::MET_BAD_WRITE,
            Fault::Flush | Fault::Lies => marks::MET_DEAD_DISK,
        }
    }
}

/// The parts of a table's volume: those of which few lines matter first.
fn parts_of_table(setting: &Setting) -> [Range<u64>; 4] {
    let geometry = &setting.shape.geometry;
    let entries = u64::from(geometry.external_nlba) * 4;
    let map = geometry.mapoff..geometry.mapoff + entries;
    [
        map,
        geometry.logoff..geometry.logoff + u64::from(geometry.nfree) * 64,
        geometry.dataoff..geometry.mapoff,
        0..geometry.info2off,
    ]
}

/// The parts of a disk cache's memory: those of which few lines matter first.
fn parts_of_cache(setting: &Setting) -> [Range<u64>; 4] {
    let plan = &setting.plan;
    [
        CURSORS_AT..plan.ring_at,
        plan.entries_at..plan.entry_at(plan.blocks),
        plan.data_at..plan.end(),
        0..plan.entries_at,
    ]
}

fn of_memory(rng: &mut Rng, parts: &[Range<u64>; 4]) -> Fault {
    let part = &parts[[0, 0, 1, 1, 2, 3][rng.index(6)]];
    let from = line_of(part, rng);
    let stores = match rng.below(4) {
        0 => return Fault::CutShort(from),
        1 => PoisonedStore::Kept,
        2 => PoisonedStore::Heals,
        _ => PoisonedStore::Lost,
    };
    lines_from(from, stores, rng)
}

/// Any line of `part`.
fn line_of(part: &Range<u64>, rng: &mut Rng) -> u64 {
    let lines = (part.end - part.start).div_ceil(LINE_BYTES);
    part.start + rng.below(lines) * LINE_BYTES
}

/// Stores to a line or two of `part` are lost.
fn loses(part: &Range<u64>, rng: &mut Rng) -> Fault {
    let from = line_of(part, rng);
    lines_from(from, PoisonedStore::Lost, rng)
}

/// Poison in one or two lines.
fn lines_from(from: u64, stores: PoisonedStore, rng: &mut Rng) -> Fault {
    Fault::Poison(from..from + LINE_BYTES * (1 + rng.below(2)), stores)
}

fn of_disk(rng: &mut Rng, blocks: u64) -> Fault {
    let first = rng.below(blocks);
    let range = first..first + 1 + rng.below(blocks - first);
    match rng.below(4) {
        0 => Fault::Reads(range),
        1 => Fault::Writes(range),
        2 => Fault::Lies,
        _ => Fault::Flush,
    }
}

/// Anything but lies: one that lies keeps no order. Half of it concerns the journal alone.
fn of_ordered_disk(rng: &mut Rng, setting: &Setting) -> Fault {
    let (blocks, all) = (setting.blocks, setting.disk_blocks());
    let first = if rng.one_in(2) { rng.below(blocks) } else { blocks + rng.below(all - blocks) };
    let range = first..first + 1 + rng.below((all - first).min(blocks));
    match rng.below(3) {
        0 => Fault::Reads(range),
        1 => Fault::Writes(range),
        _ => Fault::Flush,
    }
}

/// A clock that jumps, and what it did.
struct Jumping {
    rng: Rng,
    now_ns: u64,
    back: u64,
}

thread_local! {
    static CLOCK: RefCell<Jumping> = RefCell::new(Jumping { rng: Rng::new(0), now_ns: 0, back: 0 });
}

/// Sets the clock that [`jumping_ns`] tells.
pub(crate) fn set_clock(seed: u64) {
    CLOCK.set(Jumping { rng: Rng::new(seed), now_ns: 1 << 40, back: 0 });
}

/// The time by a clock that is set forward and back, by anything from a nanosecond to hours.
pub(crate) fn jumping_ns() -> u64 {
    CLOCK.with_borrow_mut(|clock| {
        let size = clock.rng.below(44);
        let step_ns = clock.rng.below(1 << size);
        let back = clock.rng.one_in(4);
        clock.back += u64::from(back);
        clock.now_ns = if back { clock.now_ns.saturating_sub(step_ns) } else { clock.now_ns + step_ns };
        clock.now_ns
    })
}

/// How often it was set back since it was set.
pub(crate) fn clock_went_back() -> u64 {
    CLOCK.with_borrow(|clock| clock.back)
}
