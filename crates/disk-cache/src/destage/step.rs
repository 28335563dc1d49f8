//! Destaging: dirty blocks go to the disk, in the order of their numbers, and turn clean when the
//! disk has confirmed a flush.
//!
//! A sweep over the disk looks for dirty blocks a part of its way at a time, so that it also takes
//! blocks ahead of it that turned dirty since it began. There, blocks have been gathering for as
//! long as possible, and neighbours go to the disk together.
//!
//! One or two blocks without dirty neighbours cost most disks as much as several that have some.
//! Where its caller lets it, a sweep *postpones* such a short run: the next ones take it along,
//! with the neighbours that it has by then. Most find some if most dirty blocks have some; if not,
//! none is postponed. A postponed block is as safe as any that is dirty. Each is postponed
//! [`POSTPONED_MAX`] times at most: the sweep after that writes it to the disk, even if it is
//! written to meanwhile. A sweep all of whose steps are for [`SweepScope::Everything`] postpones no
//! block: a caller that wants all blocks on the disk waits for such a sweep.
//!
//! Such a sweep also follows each run to both its ends when it takes it: blocks that turned dirty
//! there since the look go along. It takes as many blocks like that as the cache has, and no more,
//! so that it ends although writers go on.
//!
//! Writers without room take a part of the blocks that the sweep under way has found, and work
//! beside it: two ways over the disk would find blocks that have gathered for half as long. The
//! sweep tries the blocks that such a writer has in hand once more at its end, so that no sweep
//! ends before those are on the disk.
//!
//! A block is *destaging* from the moment it is copied until the flush is over; no other thread
//! writes it to the disk meanwhile, or an older content could arrive after a newer one. It may be
//! written in the cache in between: then it stays dirty. After a failed flush the fate of all
//! writes since the last good one, by any thread, is unknown: all of these blocks stay dirty, and
//! are written again.

use crate::cache::DiskCache;
use crate::destage::destager::Doorbell;
use crate::destage::sweep::{SHORT_MAX, ShortRuns, Sweep, neighbours};
use crate::index::{BlockState, Cached, IndexStripe};
use std::sync::Arc;
use tidegate_media::sync::{Ordering, yield_now};
use tidegate_media::{AlignedBytes, Error, Lba, Region, Run, Sealed};
use tidegate_policy::writeback::destage::SweepScope;

/// What a call of [`DiskCache::destage_step`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestageStep {
    /// Blocks written to the disk.
    pub written: u32,
    /// Blocks that turned clean.
    pub cleaned: u32,
    /// Writes that this took.
    pub runs: u32,
    /// Blocks that could not be written, and why. They stay dirty.
    pub failed: Vec<(Lba, Error)>,
    /// Why the disk's flush failed, if it did. Everything written stays dirty.
    pub flush_failed: Option<Error>,
    /// Whether the sweep goes on behind this step: there are blocks that it had no budget for, or
    /// that somebody else was writing to the disk.
    pub more: bool,
}

/// Blocks that one step writes at most.
const STEP_BLOCKS_MAX: u32 = 4096;
/// Bytes that one step copies at most.
const STEP_BYTES_MAX: u32 = 16 << 20;
/// Looks of a sweep at so many dirty blocks as there are; what turns dirty meanwhile takes more of
/// them.
const LOOKS: usize = 16;
/// Looks of a sweep at most: the last one goes to the end, whatever writers do.
const LOOKS_MAX: usize = 3 * LOOKS;
/// Blocks of a look at least, and the part of a cache's blocks: each look passes over all of them.
const LOOK_BLOCKS_MIN: usize = 64;
const LOOK_SHARE: usize = 128;
impl<R: Region> DiskCache<R> {
    /// Writes up to `blocks_max` dirty blocks to the disk, flushes it, and turns them clean. Any
    /// number of threads may do so at once.
    ///
    /// Blocks are tried in sweeps over the disk. When [`DestageStep::more`] is false a sweep has
    /// ended; what failed or came since is tried by the next one.
    ///
    /// Where the disk is to keep the order of commits, a step is a part of bringing a group there,
    /// and the group's end that of a sweep.
    pub fn destage_step(&self, blocks_max: u32) -> DestageStep {
        self.destage_step_in(blocks_max, SweepScope::Everything)
    }

    /// Does a [destage step](DiskCache::destage_step) with the `scope` of its sweep. A sweep leaves
    /// nothing out, and follows no run, if all of its steps take everything. Where the order of
    /// commits is kept, nothing is ever left out.
    pub fn destage_step_in(&self, blocks_max: u32, scope: SweepScope) -> DestageStep {
        if let Some(order) = &self.destager.order {
            return self.step_in_order(order, blocks_max);
        }
        let lbas = self.next_of(&mut self.destager.sweep.lock(), blocks_max, scope);
        let mut progress = DestageStep::default();
        let passed_over = self.destage(&lbas, &mut progress);
        progress.more = self.destager.sweep.lock().goes_on_with(passed_over);
        if progress.more && progress.written == 0 {
            yield_now();
        }
        progress
    }

    /// Does a destage step of a sweep of the caller's own.
    pub(crate) fn step_of(&self, sweep: &mut Sweep, blocks_max: u32) -> DestageStep {
        if let Some(order) = &self.destager.order {
            return self.step_in_order(order, blocks_max);
        }
        let lbas = self.next_of(sweep, blocks_max, SweepScope::Everything);
        let mut progress = DestageStep::default();
        // Whoever writes the others to the disk gives room too.
        self.destage(&lbas, &mut progress);
        progress.more = sweep.goes_on_with(Vec::new());
        progress
    }

    /// A part of the sweep under way, by one who is not to end it, nor begin the next; None: none
    /// is under way, or no more of it is to be had.
    pub(crate) fn step_beside(&self, blocks_max: u32) -> Option<DestageStep> {
        if self.destager.order.is_some() {
            return None;
        }
        let lbas = self.taken_beside(&mut self.destager.sweep.lock(), blocks_max);
        if lbas.is_empty() {
            return None;
        }
        let mut progress = DestageStep::default();
        let mut not_done = self.destage(&lbas, &mut progress);
        match progress.flush_failed {
            Some(_) => not_done = lbas,
            None => not_done.extend(progress.failed.iter().map(|(lba, _)| lba.0)),
        }
        let mut sweep = self.destager.sweep.lock();
        sweep.beside.clear();
        sweep.again.extend(not_done);
        Some(progress)
    }

    /// Writes those of `lbas` to the disk that are dirty, flushes, and turns them clean. They
    /// ascend. Returns those that somebody else is writing to the disk.
    pub(crate) fn destage(&self, lbas: &[u64], progress: &mut DestageStep) -> Vec<u64> {
        let failures = self.flush_failures();
        let mut bytes = AlignedBytes::zeroed(lbas.len() * self.geometry.block_size as usize);
        let (copied, passed_over) = self.copy_out(lbas, &mut bytes, progress);
        if copied.is_empty() {
            return passed_over;
        }
        let written = self.write_out(copied, &bytes, progress);
        let flushed = self.flush_disk_since(failures);
        self.settle(&written, flushed.is_ok(), progress);
        progress.flush_failed = flushed.err();
        passed_over
    }

    /// Whether nothing is left to drain; from then on the doorbell is rung when there is. To be
    /// asked just before sleeping.
    pub fn may_sleep(&self) -> bool {
        // SeqCst on both sides: a writer counts its block and then looks here, this thread does it
        // the other way round.
        self.destager.asleep.store(true, Ordering::SeqCst);
        let nothing = self.table.dirty.load(Ordering::SeqCst) == 0;
        if !nothing {
            self.destager.asleep.store(false, Ordering::SeqCst);
        }
        nothing
    }

    /// Rings `doorbell` from now on.
    pub fn set_doorbell(&self, doorbell: Arc<dyn Doorbell>) {
        *self.destager.doorbell.lock() = Some(doorbell);
    }

    /// Blocks of a step that may take up to `blocks_max`.
    pub(crate) fn step_blocks(&self, blocks_max: u32) -> usize {
        blocks_max.min(STEP_BLOCKS_MAX).min(STEP_BYTES_MAX / self.geometry.block_size).max(1) as usize
    }

    /// The next blocks of `sweep`, in order. One that is over begins anew.
    fn next_of(&self, sweep: &mut Sweep, blocks_max: u32, scope: SweepScope) -> Vec<u64> {
        if sweep.is_through() {
            let (again, beside) = (std::mem::take(&mut sweep.again), std::mem::take(&mut sweep.beside));
            let unseen = again.is_empty().then_some(0);
            *sweep = Sweep { lbas: again, unseen, beside, ..Sweep::default() };
            sweep.lbas.sort_unstable();
            sweep.lbas.dedup();
        }
        sweep.scope = scope;
        self.taken(sweep, blocks_max, scope)
    }

    /// The next blocks of `sweep`, for one who works beside it. What is tried again is left to the
    /// sweep itself: or it and writers could hand each other what the disk refuses, and never end.
    fn taken_beside(&self, sweep: &mut Sweep, blocks_max: u32) -> Vec<u64> {
        if sweep.looks == 0 {
            return Vec::new();
        }
        sweep.beside = self.taken(sweep, blocks_max, sweep.scope);
        sweep.beside.clone()
    }

    /// The next blocks of `sweep`, unless it is through.
    fn taken(&self, sweep: &mut Sweep, blocks_max: u32, scope: SweepScope) -> Vec<u64> {
        let limit = self.step_blocks(blocks_max);
        while sweep.lbas.len() - sweep.next < limit
            && let Some(from) = sweep.unseen.take()
        {
            self.look_ahead(sweep, from, scope);
        }
        // What is tried again is taken as it is.
        let follows = scope == SweepScope::Neighbours && sweep.looks > 0;
        let mut lbas = Vec::with_capacity(limit.min(sweep.lbas.len() - sweep.next));
        while lbas.len() < limit
            && let Some(&lba) = sweep.lbas.get(sweep.next)
        {
            sweep.next += 1;
            if follows {
                let before = self.dirty_among((sweep.at..lba).rev(), sweep, limit - lbas.len() - 1);
                lbas.extend(before.into_iter().rev());
            }
            lbas.push(lba);
            if follows {
                let end = sweep.lbas.get(sweep.next).copied().or(sweep.unseen).unwrap_or(self.geometry.blocks);
                lbas.extend(self.dirty_among(lba + 1..end, sweep, limit - lbas.len()));
            }
            sweep.at = lbas.last().map_or(sweep.at, |last| last + 1);
        }
        lbas
    }

    /// Of `beside`, the blocks that go on from an end of a run, up to the first that does not wait
    /// for the disk: it turned dirty since `sweep` looked, or was left out, and what is between has
    /// turned dirty.
    fn dirty_among(&self, beside: impl Iterator<Item = u64>, sweep: &mut Sweep, blocks_max: usize) -> Vec<u64> {
        let room = (self.medium.plan.blocks as usize).saturating_sub(sweep.followed).min(blocks_max);
        let waits = |lba: &u64| self.table.index.lock_for(*lba).get(*lba).is_some_and(|cached| cached.state.waits());
        let dirty: Vec<u64> = beside.take(room).take_while(waits).collect();
        sweep.followed += dirty.len();
        dirty
    }

    /// Looks for the dirty blocks of a part of the way, `from` some block on.
    fn look_ahead(&self, sweep: &mut Sweep, from: u64, scope: SweepScope) {
        let mut found = Vec::new();
        for stripe in 0..self.table.index.stripes() {
            found.extend(self.table.index.lock(stripe).all_dirty().filter(|lba| *lba >= from));
        }
        let dirty = usize::try_from(self.dirty_blocks()).expect("blocks of a cache");
        let part = (dirty / LOOKS).max(self.medium.plan.blocks as usize / LOOK_SHARE).max(LOOK_BLOCKS_MIN);
        sweep.looks += 1;
        if found.len() > part && sweep.looks < LOOKS_MAX {
            sweep.unseen = Some(*found.select_nth_unstable(part).1);
            found.truncate(part);
        }
        found.sort_unstable();
        if scope == SweepScope::Neighbours {
            self.postpone(&mut found, from, sweep.unseen);
        }
        sweep.lbas.drain(..sweep.next);
        sweep.next = 0;
        sweep.lbas.append(&mut found);
    }

    /// Leaves short runs of `found` out, which is what is dirty `from` some block up to `unseen`.
    /// Where more than half of it is short, only single blocks; where more than half is single
    /// blocks, nothing: those would find no neighbours later.
    fn postpone(&self, found: &mut Vec<u64>, from: u64, unseen: Option<u64>) {
        let short = ShortRuns::of(found, from, unseen);
        let longest = match found.len() / 2 {
            half if short.alone > half => return,
            half if short.blocks() > half => 1,
            _ => SHORT_MAX,
        };
        let mut postponed = Vec::new();
        for run in short.runs.into_iter().filter(|run| run.len() <= longest) {
            // A block that may not stay goes, and its neighbour with it.
            if found[run.clone()].iter().all(|lba| self.table.index.lock_for(*lba).postpone(*lba)) {
                postponed.extend_from_slice(&found[run]);
            }
        }
        found.retain(|lba| postponed.binary_search(lba).is_err());
    }

    /// Copies the dirty ones among `lbas`, one behind the other, and marks them; then those that
    /// are marked already.
    fn copy_out(&self, lbas: &[u64], bytes: &mut [u8], progress: &mut DestageStep) -> (Vec<u64>, Vec<u64>) {
        let size = self.geometry.block_size as usize;
        let mut copied = Vec::with_capacity(lbas.len());
        let mut passed_over = Vec::new();
        for &lba in lbas {
            let mut stripe = self.table.index.lock_for(lba);
            let Some(cached) = stripe.get(lba) else { continue };
            match cached.state {
                BlockState::Clean | BlockState::Volatile => continue,
                BlockState::Destaging | BlockState::Overtaken => {
                    passed_over.push(lba);
                    continue;
                }
                BlockState::Dirty | BlockState::Postponed(_) => {}
            }
            let place = copied.len() * size;
            match self.copy_block(lba, cached, &mut bytes[place..place + size]) {
                Ok(()) => {
                    stripe.update(lba, Cached { state: BlockState::Destaging, ..cached });
                    copied.push(lba);
                }
                Err(error) => progress.failed.push((Lba(lba), error)),
            }
        }
        (copied, passed_over)
    }

    /// Writes runs of neighbours, and what is in a run that failed block by block. Returns what was
    /// written; the rest is unmarked.
    fn write_out(&self, copied: Vec<u64>, bytes: &[u8], progress: &mut DestageStep) -> Vec<u64> {
        let spans = neighbours(&copied, self.geometry.block_size);
        let failed = self.write_spans(&copied, &spans, bytes, progress);
        let singles: Vec<(usize, usize)> = failed
            .iter()
            .filter(|((from, until), _)| until - from > 1)
            .flat_map(|((from, until), _)| (*from..*until).map(|index| (index, index + 1)))
            .collect();
        let mut refused: Vec<((usize, usize), Error)> =
            failed.into_iter().filter(|((from, until), _)| until - from == 1).collect();
        refused.extend(self.write_spans(&copied, &singles, bytes, progress));
        for ((from, _), error) in refused.iter().cloned() {
            progress.failed.push((Lba(copied[from]), error));
        }
        let (lost, written): (Vec<_>, Vec<_>) =
            copied.into_iter().enumerate().partition(|(index, _)| refused.iter().any(|((from, _), _)| from == index));
        let lost: Vec<u64> = lost.into_iter().map(|(_, lba)| lba).collect();
        self.settle(&lost, false, progress);
        progress.written = u32::try_from(written.len()).expect("at most a step's blocks");
        self.tally.destaged.add(written.len() as u64);
        written.into_iter().map(|(_, lba)| lba).collect()
    }

    /// Writes spans of what was copied; returns those that the disk refused.
    pub(crate) fn write_spans(
        &self,
        copied: &[u64],
        spans: &[(usize, usize)],
        bytes: &[u8],
        progress: &mut DestageStep,
    ) -> Vec<((usize, usize), Error)> {
        let size = self.geometry.block_size as usize;
        let runs: Vec<Run<'_>> = spans
            .iter()
            .map(|(from, until)| Run { at: self.on_disk(copied[*from]), data: &bytes[from * size..until * size] })
            .collect();
        if runs.is_empty() {
            return Vec::new();
        }
        progress.runs += u32::try_from(runs.len()).expect("at most a step's blocks");
        self.tally.destage_writes.add(runs.len() as u64);
        let answers = self.write_to_disk(&runs);
        spans.iter().zip(answers).filter_map(|(span, answer)| Some((*span, answer.err()?))).collect()
    }

    /// How often a flush of the disk failed so far.
    pub(crate) fn flush_failures(&self) -> u64 {
        *self.destager.flush_failures.lock()
    }

    /// Flushes the disk. `Err` also if a flush failed since there were `failures`: what was written
    /// since then is in doubt.
    pub(crate) fn flush_disk_since(&self, failures: u64) -> Result<(), Error> {
        let mut all_failures = self.destager.flush_failures.lock();
        let taken = self.destager.first_blocks.take();
        let flushed = self.disk.flush();
        match &flushed {
            Ok(()) => {
                self.settle_start(taken, *all_failures);
                self.tally.disk_flushes.add(1);
                self.destager.disk_settled.store(true, Ordering::Release);
            }
            Err(_) => *all_failures += 1,
        }
        flushed?;
        match *all_failures == failures {
            true => Ok(()),
            false => Err(Error::Sealed(Sealed::SyncFailed { errno: EIO })),
        }
    }

    /// Ends the destaging of `written`. If the disk was `flushed`, those not committed since turn
    /// clean.
    fn settle(&self, written: &[u64], flushed: bool, progress: &mut DestageStep) {
        for &lba in written {
            let mut stripe = self.table.index.lock_for(lba);
            let cached = stripe.get(lba).expect("a block stays cached while it is destaged");
            let clean = flushed && cached.state == BlockState::Destaging;
            match clean {
                true => self.turn_clean(&mut stripe, lba, cached, progress),
                false => stripe.update(lba, Cached { state: BlockState::Dirty, ..cached }),
            }
        }
    }

    /// The disk holds block `lba` as it is `cached`, and has confirmed a flush since.
    pub(crate) fn turn_clean(&self, stripe: &mut IndexStripe, lba: u64, cached: Cached, progress: &mut DestageStep) {
        // Neither flushed nor fenced: if it is lost, the block is only written once more.
        self.medium.store_state(cached.entry, self.medium.plan.holding_word(lba, cached.block, cached.counter, true));
        self.table.dirty.fetch_sub(1, Ordering::Relaxed);
        progress.cleaned += 1;
        stripe.update(lba, Cached { state: BlockState::Clean, ..cached });
        self.table.index.turned_clean(stripe, lba, cached.entry);
        self.destager.settle_doubt(lba);
    }

    /// Where a block of the cache's size lies, in the disk's own blocks.
    pub(crate) fn on_disk(&self, lba: u64) -> Lba {
        Lba(lba * self.disk_blocks_each)
    }
}

/// What Linux calls an input or output error.
const EIO: i32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Contents, FormatSpec, Options, format};
    use std::sync::Barrier;
    use tidegate_layout::disk_cache::CachePlan;
    use tidegate_media::{BlockDevice, Durability, InTurn, Result};
    use tidegate_sim::{Disk, DiskFault, Intercept, Intercepted, Region};

    const DISK: u64 = 1 << 10;

    /// Whoever writes this block meets somebody before, and once more when he may go on.
    struct Meeting(Lba, Barrier);

    impl Intercept for Meeting {
        fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], how: Durability) -> Result<()> {
            if at == self.0 {
                self.1.wait();
                self.1.wait();
            }
            device.write(at, data, how)
        }
    }

    /// A cache of 96 blocks, all dirty and none beside another, and a sweep that has brought 16 of
    /// them to the disk.
    fn under_way(met: &Arc<Intercepted<Disk, Meeting>>) -> DiskCache<Region> {
        let region = Region::new(CachePlan::cut(96, 512, DISK, 16).end());
        let spec = FormatSpec { block_size: 512, disk_blocks: DISK, ring_slots: 16, uuid: [7; 16], disk: [9; 32] };
        format(&region, &spec, Contents::Zeroed).expect("laid out");
        let cache = DiskCache::open(region, Arc::new(InTurn(met.clone())), Options::default()).expect("it opens");
        (0..96).for_each(|nth| cache.write(Lba(10 * nth), &[1; 512], Durability::Volatile).expect("written"));
        assert!(cache.step_beside(8).is_none(), "no sweep is under way");
        assert!(cache.destage_step(16).more);
        cache
    }

    fn disk(meets_at: u64) -> Arc<Intercepted<Disk, Meeting>> {
        let device = Arc::new(Disk::new(DISK, 512));
        Arc::new(Intercepted { device, by: Meeting(Lba(meets_at), Barrier::new(2)) })
    }

    #[test]
    fn a_sweep_is_not_over_while_a_writer_without_room_has_some_of_it_in_hand() {
        let met = disk(160);
        let cache = under_way(&met);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| cache.step_beside(8));
            met.by.1.wait();
            let rest = cache.destage_step(96);
            assert_eq!((rest.cleaned, rest.more), (72, true), "it goes on behind what the writer took");
            let again = cache.destage_step(96);
            assert_eq!((again.written, again.more), (0, true), "and waits for that");
            met.by.1.wait();
            let beside = writer.join().expect("it ends").expect("a sweep is under way");
            assert_eq!(beside.cleaned, 8);
        });
        assert_eq!((cache.destage_step(96).more, cache.dirty_blocks()), (false, 0));
        assert!(cache.step_beside(8).is_none(), "it is over");
    }

    #[test]
    fn what_the_disk_refuses_a_writer_without_room_the_sweep_tries_again() {
        let met = disk(DISK);
        let cache = under_way(&met);
        met.device.fail(DiskFault::WriteFails(160..161));
        let beside = cache.step_beside(8).expect("a sweep is under way");
        assert_eq!((beside.cleaned, beside.failed.len()), (7, 1));
        let rest = cache.destage_step(96);
        assert_eq!((rest.cleaned, rest.more), (72, true));
        let again = cache.destage_step(96);
        assert_eq!((again.failed.len(), again.more), (1, false), "so whoever waits for its end hears of it");
        met.device.mend();

        assert!(cache.destage_step(96).failed.is_empty());
        (0..96).for_each(|nth| cache.write(Lba(10 * nth), &[2; 512], Durability::Volatile).expect("written"));
        assert!(cache.destage_step(16).more);
        met.device.fail(DiskFault::NextFlushFails);
        assert!(cache.step_beside(8).expect("a sweep is under way").flush_failed.is_some());
        while cache.destage_step(96).more {}
        assert_eq!(cache.dirty_blocks(), 0, "what was not flushed was written again by the same sweep");
    }
}
