//! The destaging thread on a cache that is a list: dirty blocks reach the disk, flushes end,
//! refusals are named, sleepers are woken.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_background::{Bell, Destager, Dirty, FirstStep, Step, SweepFailures, Ticket};
use tidegate_disk_cache::{
    Checksums, Contents, DiskCache, FormatSpec, Options, format_ordered, identify, lay_out_journal,
};
use tidegate_media::{BlockDevice, Durability, Error, InTurn, Lba, Misuse, Poison};
use tidegate_policy::writeback::destage::{Caps, Limits, Load, SweepScope};
use tidegate_sim::{Disk, Region};

/// A cache that never writes before it is asked to: its writers are always busy.
#[derive(Default)]
struct List(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    dirty: BTreeSet<u64>,
    /// What is left of the sweep under way.
    sweep: Vec<u64>,
    /// Blocks that the disk refuses.
    bad: BTreeSet<u64>,
    /// Those that it refuses only for now, and how often a sweep of nothing else ended.
    not_now: BTreeSet<u64>,
    sweeps_put_off: u32,
    /// Whether odd blocks are left out whenever they may be.
    picky: bool,
    /// Whether each step finds a new dirty block behind it.
    restless: bool,
    bell: Option<Bell>,
    asleep: bool,
    looks: u64,
    /// Looks of a thread whose release was not begun.
    early_looks: u64,
    released: bool,
}

fn poison(lba: u64) -> Error {
    Poison { at: lba * 512, len: 512 }.into()
}

impl List {
    fn write(&self, lba: u64) {
        self.write_at_once(lba..lba + 1);
    }

    /// Writes all of them in one act: the thread sees none of them without the others.
    fn write_at_once(&self, lbas: Range<u64>) {
        let mut inner = self.0.lock().unwrap();
        inner.dirty.extend(lbas);
        if std::mem::take(&mut inner.asleep) {
            inner.bell.as_ref().unwrap().ring();
        }
    }

    fn dirty(&self) -> Vec<u64> {
        self.0.lock().unwrap().dirty.iter().copied().collect()
    }
}

impl Dirty for List {
    fn load(&self) -> Load {
        let mut inner = self.0.lock().unwrap();
        inner.looks += 1;
        inner.early_looks += u64::from(!inner.released);
        Load { dirty: u32::try_from(inner.dirty.len()).unwrap(), writes: inner.looks }
    }

    fn blocks(&self) -> u32 {
        1000
    }

    fn limits(&self, caps: &Caps) -> Limits {
        caps.limits(1000, 512)
    }

    fn step(&self, blocks_max: u32, scope: SweepScope) -> Step {
        let mut inner = self.0.lock().unwrap();
        if inner.sweep.is_empty() {
            inner.sweep = inner.dirty.iter().copied().collect();
        }
        let many = inner.sweep.len().min(blocks_max as usize);
        let mut next: Vec<u64> = inner.sweep.drain(..many).collect();
        if inner.picky && scope == SweepScope::Neighbours {
            next.retain(|lba| lba.is_multiple_of(2));
        }
        let (not_now, others): (Vec<u64>, Vec<u64>) = next.into_iter().partition(|lba| inner.not_now.contains(lba));
        let (bad, good): (Vec<u64>, Vec<u64>) = others.into_iter().partition(|lba| inner.bad.contains(lba));
        good.iter().for_each(|lba| assert!(inner.dirty.remove(lba)));
        if inner.restless {
            let next = inner.looks + 1_000_000;
            inner.looks += 1;
            inner.dirty.insert(next);
        }
        inner.sweeps_put_off += u32::from(!not_now.is_empty() && inner.sweep.is_empty());
        let put_off = not_now.into_iter().map(|lba| (Lba(lba), Misuse::NotNow.into()));
        let refused = bad.into_iter().map(|lba| (Lba(lba), poison(lba))).chain(put_off).collect();
        Step { cleaned: u32::try_from(good.len()).unwrap(), refused, not_durable: None, more: !inner.sweep.is_empty() }
    }

    fn may_sleep(&self) -> bool {
        let mut inner = self.0.lock().unwrap();
        inner.asleep = inner.dirty.is_empty();
        inner.asleep
    }

    fn set_bell(&self, bell: Bell) {
        self.0.lock().unwrap().bell = Some(bell);
    }
}

fn started() -> (Arc<List>, Destager) {
    let list = Arc::new(List::default());
    let destager = Destager::start(Arc::clone(&list), Caps::default()).unwrap();
    (list, destager)
}

fn flushed(destager: &Destager) -> SweepFailures {
    destager.wait_until(destager.flush(), Instant::now() + Duration::from_secs(60)).expect("a flush ends")
}

#[test]
fn a_flush_takes_everything_along() {
    let (list, destager) = started();
    assert!(flushed(&destager).is_nothing(), "nothing is dirty");
    for round in 0..20 {
        (0..100).for_each(|lba| list.write(round * 1000 + lba));
        assert!(flushed(&destager).is_nothing());
        assert_eq!(list.dirty(), [0; 0]);
    }
}

#[test]
fn a_thread_that_is_held_leaves_the_disk_alone_until_its_release() {
    let held = || {
        let list = Arc::new(List::default());
        list.0.lock().unwrap().dirty.extend(0..1000);
        let destager = Destager::start_heard(Arc::clone(&list), Caps::default(), FirstStep::AtRelease, |_| ()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while list.0.lock().unwrap().bell.is_none() {
            assert!(Instant::now() < deadline, "the thread starts");
            std::thread::yield_now();
        }
        let bell = list.0.lock().unwrap().bell.clone();
        for _ring in 0..100 {
            bell.iter().for_each(Bell::ring);
            std::thread::yield_now();
        }
        (list, destager)
    };
    let (list, destager) = held();
    let ticket = destager.flush();
    list.0.lock().unwrap().released = true;
    destager.release();
    assert!(destager.wait_until(ticket, Instant::now() + Duration::from_secs(60)).unwrap().is_nothing());
    assert_eq!((list.dirty().len(), list.0.lock().unwrap().early_looks), (0, 0));
    let (list, destager) = held();
    destager.stop();
    assert_eq!((list.dirty().len(), list.0.lock().unwrap().early_looks), (1000, 0), "an end needs no release");
}

/// A group of an ordered disk is under way that somebody else began, by a writer without room for
/// example; what was written since is none of it.
#[test]
fn a_flush_that_goes_on_with_a_group_of_somebody_else_brings_what_came_after_it_too() {
    let region = Region::new(1 << 15);
    let spec = FormatSpec { block_size: 512, disk_blocks: 64, ring_slots: 16, uuid: [7; 16], disk: [9; 32] };
    format_ordered(64, Checksums::Absent, &region, &spec, Contents::Zeroed).unwrap();
    let journal = identify(&region).unwrap().unwrap().journal().unwrap();
    let disk = Arc::new(Disk::new(journal.end(), 512));
    lay_out_journal(&InTurn(disk.clone()), journal, spec.uuid).unwrap();
    let cache = Arc::new(DiskCache::open(region, Arc::new(InTurn(disk.clone())), Options::default()).unwrap());
    let write = |lba| cache.write(Lba(lba), &[1; 512], Durability::Volatile).unwrap();
    (0..4).for_each(write);
    assert!(cache.destage_step(1).more, "a group is under way");
    write(9);
    let idle = Caps { dirty_percent: 100, ..Caps::default() };
    let destager = Destager::start(Arc::clone(&cache), idle).unwrap();
    let ticket = destager.flush();
    assert_eq!(ticket, Ticket(2), "the first end is that of the group under way");
    assert!(destager.wait_until(ticket, Instant::now() + Duration::from_secs(60)).unwrap().is_nothing());
    let mut shown = [0; 512];
    disk.read(Lba(9), &mut shown).unwrap();
    assert_eq!((shown[0], cache.dirty_blocks()), (1, 0));
}

#[test]
fn a_sweep_that_somebody_waits_for_leaves_nothing_out() {
    let (list, destager) = started();
    list.0.lock().unwrap().picky = true;
    for _round in 0..20 {
        // More odd ones than the limit of 700, so that the thread presses until it is asked for all
        // of them.
        list.write_at_once(0..2000);
        let deadline = Instant::now() + Duration::from_secs(60);
        while list.dirty().len() > 1000 {
            assert!(Instant::now() < deadline, "the even ones go");
            std::thread::yield_now();
        }
        assert!(list.dirty().iter().all(|lba| lba % 2 == 1), "the odd ones are left out");
        assert!(flushed(&destager).is_nothing());
        assert_eq!(list.dirty(), [0; 0]);
    }
}

#[test]
fn a_flush_ends_although_writers_do_not() {
    let (list, destager) = started();
    list.0.lock().unwrap().restless = true;
    (0..500).for_each(|lba| list.write(lba));
    assert!(flushed(&destager).is_nothing());
    assert!(list.dirty().iter().all(|lba| *lba >= 1_000_000), "what was dirty before is on the disk");
}

#[test]
fn a_flush_names_what_the_disk_refused_and_moves_the_rest() {
    let (list, destager) = started();
    list.0.lock().unwrap().bad.extend([3, 70]);
    (0..100).for_each(|lba| list.write(lba));
    let left = flushed(&destager);
    assert_eq!((left.refused, &left.first[..]), (2, &[(Lba(3), poison(3)), (Lba(70), poison(70))][..]));
    assert_eq!(list.dirty(), [3, 70]);
    list.0.lock().unwrap().bad.clear();
    assert!(flushed(&destager).is_nothing());
    assert_eq!((list.dirty(), destager.left()), (Vec::new(), SweepFailures::default()));
}

/// Waits for `many` sweeps that end with blocks refused for now, and says how long that took.
fn sweeps_put_off(list: &List, many: u32) -> Duration {
    let (begin, seen) = (Instant::now(), list.0.lock().unwrap().sweeps_put_off);
    while list.0.lock().unwrap().sweeps_put_off < seen + many {
        assert!(begin.elapsed() < Duration::from_secs(20), "blocks that are refused for now are left alone");
        std::thread::yield_now();
    }
    begin.elapsed()
}

#[test]
fn blocks_that_are_refused_for_now_hold_up_nobody() {
    let (list, destager) = started();
    // More than the limit, so that writers are not waited for; several steps of a sweep have
    // nothing else.
    list.0.lock().unwrap().not_now.extend(100..900);
    (100..900).for_each(|lba| list.write(lba));
    sweeps_put_off(&list, 10);
    let took = sweeps_put_off(&list, 20);
    assert!(took >= Duration::from_millis(200), "it tries again and again, 20 sweeps in {took:?}");
    // As if each were a failure, they would be tried after 5 s by now.
    let begin = Instant::now();
    [3, 950].into_iter().for_each(|lba| list.write(lba));
    while list.dirty().len() > 800 {
        assert!(begin.elapsed() < Duration::from_secs(2), "the others are tried at once");
        std::thread::yield_now();
    }
    assert_eq!(flushed(&destager).refused, 800, "a flush does not wait for them, and tells of them");
    list.0.lock().unwrap().not_now.clear();
    assert!(flushed(&destager).is_nothing());
}

#[test]
fn a_sleeper_is_woken_by_what_turns_dirty_beyond_the_limit() {
    let (list, _destager) = started();
    for _ in 0..3 {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !list.0.lock().unwrap().asleep {
            assert!(Instant::now() < deadline, "it does not sleep");
            std::thread::yield_now();
        }
        // Above the limit of 700 it does not wait for a pause of the writers.
        (0..900).for_each(|lba| list.write(lba));
        while list.dirty().len() > 400 {
            assert!(Instant::now() < deadline, "it does not wake");
            std::thread::yield_now();
        }
        list.0.lock().unwrap().dirty.clear();
        list.0.lock().unwrap().sweep.clear();
    }
}

#[test]
fn a_flush_after_the_end_of_the_thread_says_what_was_left() {
    let (list, destager) = started();
    list.write(5);
    let ticket = destager.flush();
    drop(destager.wait_until(ticket, Instant::now() + Duration::from_secs(60)));
    assert!(destager.is_flushed(ticket).is_some_and(|left| left.is_nothing()));
    drop(destager);
    assert_eq!(list.dirty(), [0; 0]);
}
