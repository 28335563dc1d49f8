//! The disk of a storm: every request is a point, may be the last, and may take its time.

use crate::mutant::{Mislaid, Mutant};
use crate::staged::Stage;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_crashcheck::disk_cache::LostFlush;
use tidegate_layout::disk_cache::JournalPlan;
use tidegate_media::sync::yield_now;
use tidegate_media::{Backing, BlockDevice, Durability, Lba, LbaRange, Result, Run};
use tidegate_sim::{Content, Disk, mix};
use tidegate_virtual_cores::{is_inside, point};

/// Kinds of requests, as the trace has them: none that a memory has.
const READ: u64 = 9;
const WRITE: u64 = 10;
const FLUSH: u64 = 11;
const DISCARD: u64 = 12;
const ZEROES: u64 = 13;
const FLUSHED: u64 = 14;

/// A disk on a stage.
pub(crate) struct StagedDisk {
    disk: Arc<Disk>,
    stage: Arc<Stage>,
    stall: Stall,
    /// How often the thread whose flush has failed gives way before it is told.
    turns_to_fail: u64,
    /// The flush of a group that is left out, if one is.
    lost: Mutex<Option<LostFlush>>,
}

/// When a disk stops for a while.
#[derive(Default)]
pub(crate) struct Stall {
    /// Requests until it does. 0: never.
    left: AtomicU64,
    /// How often the thread that asked gives way before it is answered.
    turns: AtomicU64,
    /// Stalls during which other threads went on.
    overtaken: AtomicU64,
}

impl Stall {
    /// The `request`-th request from now on waits for `turns` turns of others.
    pub(crate) fn at(&self, request: u64, turns: u64) {
        self.turns.store(turns, Ordering::Relaxed);
        self.left.store(request, Ordering::Relaxed);
    }

    /// Stalls during which other threads went on, since this was last asked.
    pub(crate) fn take_overtaken(&self) -> u64 {
        self.left.store(0, Ordering::Relaxed);
        self.overtaken.swap(0, Ordering::Relaxed)
    }

    fn pass(&self, stage: &Stage) {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        if left > 1 {
            return;
        }
        let before = stage.passed();
        (0..self.turns.load(Ordering::Relaxed)).for_each(|_| yield_now());
        if stage.passed() > before {
            self.overtaken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl StagedDisk {
    /// `disk`, which has this journal if it is an ordered one.
    pub(crate) fn new(
        disk: Arc<Disk>,
        stage: &Arc<Stage>,
        turns_to_fail: u64,
        journal: Option<JournalPlan>,
    ) -> StagedDisk {
        let lost = match (stage.mutant(), journal) {
            (Mutant::Mislaid(Mislaid::GroupFlush(after)), Some(journal)) => Some(LostFlush::new(journal, after)),
            _ => None,
        };
        StagedDisk { disk, stage: stage.clone(), stall: Stall::default(), turns_to_fail, lost: Mutex::new(lost) }
    }

    /// The disk itself.
    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    pub(crate) fn stall(&self) -> &Stall {
        &self.stall
    }

    fn lost(&self) -> MutexGuard<'_, Option<LostFlush>> {
        self.lost.lock().expect("no holder panics")
    }

    fn write_run(&self, run: &Run<'_>) -> Result<()> {
        self.write(run.at, run.data, Durability::Volatile)
    }

    fn pass(&self, kind: u64, at: Lba, content: u64) {
        self.stage.pass((4 << 60 | kind << 56 | at.0) ^ content.rotate_left(17), kind == FLUSH);
        if is_inside() {
            self.stall.pass(&self.stage);
        }
    }
}

impl Backing for StagedDisk {
    /// In an order that changes from call to call: none is promised.
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        let shift = usize::try_from(mix(self.stage.passed()) % 64).expect("small");
        let order = (0..runs.len()).map(|index| (index + shift) % runs.len());
        let mut answers: Vec<_> = order.map(|index| (index, self.write_run(&runs[index]))).collect();
        answers.sort_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

impl BlockDevice for StagedDisk {
    tidegate_media::forward!(self => self.disk; geometry, extent);

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.pass(READ, at, 0);
        self.disk.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.pass(WRITE, at, Content::of(data).0);
        self.lost().iter_mut().for_each(|lost| lost.note(at, data));
        self.disk.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.pass(FLUSH, Lba(0), 0);
        let lost = self.lost().as_mut().is_some_and(LostFlush::is_due);
        if lost || self.stage.mutant() == Mutant::Mislaid(Mislaid::DiskFlushes) {
            return Ok(());
        }
        let flushed = self.disk.flush();
        // The answer takes its way.
        point(FLUSHED);
        if flushed.is_err() && is_inside() {
            (0..self.turns_to_fail).for_each(|_| yield_now());
        }
        flushed
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.pass(DISCARD, range.first, range.blocks);
        self.disk.discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.pass(ZEROES, range.first, range.blocks);
        self.disk.write_zeroes(range, durability)
    }
}
