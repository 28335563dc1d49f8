//! Destaging in the order of commits: at every instant the disk alone holds all commits up to some
//! moment, and none after it.
//!
//! All stripes are locked for a moment, and commits are *cut* into those before and those after.
//! The blocks that are dirty then are a *group*, and are put in place on the disk as one, by its
//! journal; see `disk_journal.rs`. Meanwhile writers go on. Where one of them commits a block of
//! the group anew, the block of the memory with the content of the cut is *kept* for the group, and
//! free when the group has ended. Then those of the group turn clean that were not committed since.
//! There is one group at a time.
//!
//! - *A transaction is on one side of the cut*: a committing thread holds the stripes of all its
//!   blocks from before its first store that counts until it is durable, and the cut has all
//!   stripes.
//! - *A commit acknowledged before another begins* is not after the cut when the other is before
//!   it, for the same reason.
//! - *A group's content of a block stays*: it lies in a block that an entry names and that is not
//!   clean, or in one that is kept. Neither is given up or written.
//! - *A block turns clean* when the journal says, durably, that there is no group: until then its
//!   content might be missing on the disk.
//! - *The memory is cut or its process killed*: kept blocks are free, as no entry names them. Dirty
//!   blocks are dirty still. If the journal tells of a group, it is put in place first: its blocks
//!   all are dirty still, so no reader has read them from the disk. Only then is a new group made.
//! - *The journal does not give a group back that counts*: everything dirty becomes a group in its
//!   place, with newer contents of some of its blocks and with others; all of its own are in that.
//!   Until the header of the new one is durable, the disk alone cannot be put in order, as before;
//!   with the memory the same is done again after a cut. If the memory does not have every block of
//!   it, no block is written, and the first that is missing is named.
//! - *The memory does not give a block back* of a group that counts: the journal has it. Of one
//!   that is being copied to the journal: the group is given up.
//! - *The disk fails*: the step is done again. After a flush that failed, everything since the last
//!   good one. No write goes past a block that cannot be read or written, as that would break the
//!   order.

use crate::cache::DiskCache;
use crate::destage::disk_journal::Journal;
use crate::destage::order::{Group, Order, Stage};
use crate::destage::step::DestageStep;
use crate::destage::sweep::neighbours;
use tidegate_layout::disk_cache::{JournalRecord, TrustedJournal};
use tidegate_media::{AlignedBytes, Error, Lba, Region, Result};

/// Why a step ended early: the block, and what the disk or the memory said.
type Refusal = (Lba, Error);

/// What a journal says that nobody has looked at yet.
enum Found {
    /// There is no group any more.
    Settled(TrustedJournal),
    /// This header tells of a group that cannot be read.
    Damaged(TrustedJournal, Error),
}

impl<R: Region> DiskCache<R> {
    /// Looks at the journal when the cache is opened. If the disk fails it is looked at again
    /// before the first group.
    pub(crate) fn settle_order(&self) {
        let Some(order) = &self.destager.order else { return };
        let journal = Journal { disk: &*self.disk, plan: order.plan };
        if let Ok(Found::Settled(header)) = self.settled(journal, order.uuid) {
            order.under_way.lock().stage = Stage::Idle(header);
        }
    }

    /// A part of bringing a group to the disk, of up to `blocks_max` blocks; a new group if none is
    /// under way. [`DestageStep::more`] is false when the group has ended, or cannot go on.
    pub(crate) fn step_in_order(&self, order: &Order, blocks_max: u32) -> DestageStep {
        let mut under_way = order.under_way.lock();
        let mut progress = DestageStep::default();
        let stage = std::mem::replace(&mut under_way.stage, Stage::Unknown);
        let (stage, refusal) = self.advance(order, stage, self.step_blocks(blocks_max), &mut progress);
        under_way.stage = stage;
        // One that was given up has not ended.
        under_way.ended += u64::from(refusal.is_none() && matches!(under_way.stage, Stage::Idle(_)));
        progress.failed.extend(refusal);
        progress.more = progress.failed.is_empty() && progress.flush_failed.is_none() && under_way.is_busy();
        progress
    }

    /// Brings what was committed before the call to the disk.
    pub(crate) fn bring_in_order(&self, order: &Order) -> Result<()> {
        let wanted = {
            let under_way = order.under_way.lock();
            // A group under way may be of a cut before it.
            under_way.ended + if under_way.is_busy() { 2 } else { 1 }
        };
        loop {
            if order.under_way.lock().ended >= wanted {
                return Ok(());
            }
            let progress = self.step_in_order(order, u32::MAX);
            let failed = progress.failed.into_iter().map(|(_, error)| error).next();
            failed.or(progress.flush_failed).map_or(Ok(()), Err)?;
        }
    }

    /// What follows `stage`, and what was in the way.
    fn advance(
        &self,
        order: &Order,
        stage: Stage,
        most: usize,
        progress: &mut DestageStep,
    ) -> (Stage, Option<Refusal>) {
        let journal = Journal { disk: &*self.disk, plan: order.plan };
        match stage {
            Stage::Unknown => match self.settled(journal, order.uuid) {
                Ok(Found::Settled(header)) => self.advance(order, Stage::Idle(header), most, progress),
                Ok(Found::Damaged(header, why)) => self.replace_damaged(journal, header, why, most),
                Err(error) => (Stage::Unknown, Some((Lba(order.plan.header_at(0)), error))),
            },
            Stage::Idle(header) => {
                let lbas = self.cut();
                if lbas.is_empty() {
                    return (Stage::Idle(header), None);
                }
                self.copy_some(journal, Group { lbas, header: header.again() }, 0, Vec::new(), most)
            }
            Stage::Copying { group, next, records } => self.copy_some(journal, group, next, records, most),
            Stage::Declaring { group } => self.declare(journal, group),
            Stage::Placing { group, next } => self.put_some(journal, group, next, most, progress),
            Stage::Retiring { group } => self.retire_group(journal, group, progress),
        }
    }

    /// What the journal says, when all that it tells of is in place as far as it can be read.
    fn settled(&self, journal: Journal<'_>, uuid: [u8; 16]) -> Result<Found> {
        self.flush_disk_since(self.flush_failures())?;
        let newest = journal.newest(uuid)?;
        let counts = match newest.blocks {
            0 => newest,
            _ => match journal.whole_group(&newest) {
                Err(why) => return Ok(Found::Damaged(newest, why)),
                Ok(records) => {
                    self.doubt_start(records.iter().map(|record| record.lba.get()))?;
                    journal.put_in_place(&newest, &records, || self.flush_disk_since(self.flush_failures()))?
                }
            },
        };
        let header = counts.retired();
        self.written(journal, &header)?;
        Ok(Found::Settled(header))
    }

    /// Makes everything dirty a group in the place of the one that `header` tells of and the
    /// journal does not give back, if the memory has all of that.
    fn replace_damaged(
        &self,
        journal: Journal<'_>,
        header: TrustedJournal,
        why: Error,
        most: usize,
    ) -> (Stage, Option<Refusal>) {
        if let Some((lba, missing)) = self.first_missing(journal, &header) {
            let rule = "the memory has every block of a group that the journal does not give back";
            let error = journal.corrupt(rule, lba, &format!("{missing}; of the journal: {why}"));
            return (Stage::Unknown, Some((Lba(lba), error)));
        }
        self.copy_some(journal, Group { lbas: self.cut(), header: header.again() }, 0, Vec::new(), most)
    }

    /// Where a block belongs of the group of `header` that the memory does not have, or may not,
    /// and what is known of it.
    fn first_missing(&self, journal: Journal<'_>, header: &TrustedJournal) -> Option<(u64, String)> {
        let is_dirty = |lba: u64| self.table.index.lock_for(lba).get(lba).is_some_and(|cached| cached.state.is_dirty());
        match journal.records_of(header) {
            Ok(records) => {
                let missing = records.iter().map(|record| record.lba.get()).find(|lba| !is_dirty(*lba))?;
                Some((missing, format!("not block {missing}")))
            }
            // Nobody knows which blocks it has; but the memory has not lost any, and has as many.
            Err(_) if self.lost().is_nothing() && self.dirty_blocks() >= u64::from(header.blocks) => None,
            Err(_) => Some((journal.plan.records_at(), format!("perhaps not all {} of them", header.blocks))),
        }
    }

    /// Cuts the commits, and returns what is dirty, ascending.
    fn cut(&self) -> Vec<u64> {
        let mut stripes: Vec<_> = (0..self.table.index.stripes()).map(|stripe| self.table.index.lock(stripe)).collect();
        stripes.iter_mut().for_each(|stripe| stripe.cut());
        drop(stripes);
        let mut lbas = Vec::new();
        for stripe in 0..self.table.index.stripes() {
            lbas.extend(self.table.index.lock(stripe).all_of_the_cut());
        }
        lbas.sort_unstable();
        lbas
    }

    /// Copies up to `most` blocks of the group to the journal, and with the last of them the
    /// records.
    fn copy_some(
        &self,
        journal: Journal<'_>,
        mut group: Group,
        next: usize,
        mut records: Vec<JournalRecord>,
        most: usize,
    ) -> (Stage, Option<Refusal>) {
        let lbas = &group.lbas[next..group.lbas.len().min(next + most)];
        let size = self.geometry.block_size as usize;
        let bytes = match self.copy_of_the_cut(lbas, |_, _| false) {
            Ok(bytes) => bytes,
            // The memory does not give a block back: whoever writes it anew helps the next group
            // and not this one.
            Err(refusal) => return (Stage::Idle(self.given_up(&group)), Some(refusal)),
        };
        if let Err(error) = journal.write_blocks(next, &bytes) {
            let refusal = (Lba(lbas[0]), error);
            return (Stage::Copying { group, next, records }, Some(refusal));
        }
        records.extend(lbas.iter().zip(bytes.chunks_exact(size)).map(|(lba, block)| JournalRecord::of(*lba, block)));
        if records.len() < group.lbas.len() {
            let next = records.len();
            return (Stage::Copying { group, next, records }, None);
        }
        let failures = self.flush_failures();
        if let Err(error) = journal.write_records(&records).and_then(|()| self.flush_disk_since(failures)) {
            return refused(group, error, |group| Stage::Copying { group, next: 0, records: Vec::new() });
        }
        group.header.blocks = u32::try_from(records.len()).expect("no more than the cache has");
        group.header.records_sum = JournalRecord::sum_of_all(&records);
        self.declare(journal, group)
    }

    /// Makes the group count, all of which is in the journal.
    fn declare(&self, journal: Journal<'_>, group: Group) -> (Stage, Option<Refusal>) {
        // From then on it may be put in place without the memory.
        let doubted = self.doubt_start(group.lbas.iter().copied()).map_err(Error::from);
        match doubted.and_then(|()| self.written(journal, &group.header)) {
            Ok(()) => (Stage::Placing { group, next: 0 }, None),
            Err(error) => refused(group, error, |group| Stage::Declaring { group }),
        }
    }

    /// Writes up to `most` blocks of the group where they belong, and with the last of them
    /// flushes.
    fn put_some(
        &self,
        journal: Journal<'_>,
        group: Group,
        next: usize,
        most: usize,
        progress: &mut DestageStep,
    ) -> (Stage, Option<Refusal>) {
        let until = group.lbas.len().min(next + most);
        let lbas = &group.lbas[next..until];
        let from_journal =
            |index: usize, out: &mut [u8]| journal.read_one(&group.header, next + index, lbas[index], out).is_ok();
        let bytes = match self.copy_of_the_cut(lbas, from_journal) {
            Ok(bytes) => bytes,
            Err(refusal) => return (Stage::Placing { group, next }, Some(refusal)),
        };
        let failed = self.write_spans(lbas, &neighbours(lbas, self.geometry.block_size), &bytes, progress);
        if let Some(((from, _), error)) = failed.into_iter().next() {
            let refusal = (Lba(lbas[from]), error);
            return (Stage::Placing { group, next }, Some(refusal));
        }
        progress.written += u32::try_from(lbas.len()).expect("at most a step's blocks");
        self.tally.destaged.add(lbas.len() as u64);
        if until < group.lbas.len() {
            return (Stage::Placing { group, next: until }, None);
        }
        match self.flush_disk_since(self.flush_failures()) {
            Ok(()) => self.retire_group(journal, group, progress),
            Err(error) => {
                progress.flush_failed = Some(error);
                (Stage::Placing { group, next: 0 }, None)
            }
        }
    }

    /// Ends the group, all of which is in place.
    fn retire_group(&self, journal: Journal<'_>, group: Group, progress: &mut DestageStep) -> (Stage, Option<Refusal>) {
        let header = group.header.retired();
        match self.written(journal, &header) {
            Ok(()) => {
                self.end(&group.lbas, progress);
                (Stage::Idle(header), None)
            }
            Err(error) => refused(group, error, |group| Stage::Retiring { group }),
        }
    }

    /// Makes `header` the one that counts, durably.
    fn written(&self, journal: Journal<'_>, header: &TrustedJournal) -> Result<()> {
        let failures = self.flush_failures();
        journal.write_header(header)?;
        self.flush_disk_since(failures)
    }

    /// What `lbas` held at the cut, one behind the other. It stays where it lies until the group
    /// has ended, so no lock is held while it is copied. What the memory does not give back may
    /// come from `elsewhere`, by its place among them.
    fn copy_of_the_cut(
        &self,
        lbas: &[u64],
        elsewhere: impl Fn(usize, &mut [u8]) -> bool,
    ) -> Result<AlignedBytes, Refusal> {
        let size = self.geometry.block_size as usize;
        let mut bytes = AlignedBytes::zeroed(lbas.len() * size);
        for (index, (lba, out)) in lbas.iter().zip(bytes.chunks_exact_mut(size)).enumerate() {
            let of_the_cut = self.table.index.lock_for(*lba).of_the_cut(*lba);
            match self.copy_block(*lba, of_the_cut, out) {
                Err(error) if !elsewhere(index, out) => return Err((Lba(*lba), error)),
                _ => {}
            }
        }
        Ok(bytes)
    }

    /// The disk has the group: what was not committed since is clean, and what was kept is free.
    fn end(&self, lbas: &[u64], progress: &mut DestageStep) {
        for &lba in lbas {
            let mut stripe = self.table.index.lock_for(lba);
            let kept = stripe.no_longer_kept(lba);
            match kept {
                Some(block) => {
                    drop(stripe);
                    self.table.free_list.give_block(block);
                }
                None => {
                    let cached = stripe.get(lba).expect("a block of a group stays cached");
                    self.turn_clean(&mut stripe, lba, cached, progress);
                }
            }
        }
    }

    /// Gives a group up of which nothing counts yet: what was kept for it is free, and the rest
    /// waits for the next cut. Returns the header that counts.
    fn given_up(&self, group: &Group) -> TrustedJournal {
        for &lba in &group.lbas {
            let mut stripe = self.table.index.lock_for(lba);
            let kept = stripe.no_longer_kept(lba);
            if kept.is_none() {
                stripe.waits_for_the_next_cut(lba);
            }
            drop(stripe);
            kept.into_iter().for_each(|block| self.table.free_list.give_block(block));
        }
        TrustedJournal { sequence: group.header.sequence - 1, blocks: 0, ..group.header }
    }
}

/// A stage to be tried again, and why it has to be.
fn refused(group: Group, error: Error, again: impl FnOnce(Group) -> Stage) -> (Stage, Option<Refusal>) {
    let first = Lba(group.lbas[0]);
    (again(group), Some((first, error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checksums, Contents, FormatSpec, Options, format_ordered, lay_out_journal};
    use std::sync::Arc;
    use tidegate_layout::disk_cache::CachePlan;
    use tidegate_media::{BlockDevice, Durability, InTurn};
    use tidegate_sim::{Disk, DiskFault, PoisonedStore, Region};

    /// Whoever waits for a group to end, while another's step gives one up, must not take that for
    /// its end.
    #[test]
    fn a_group_that_is_given_up_or_refused_has_not_ended() {
        let plan = CachePlan::cut(8, 512, 64, 16).ordered(8);
        let (journal, region) = (plan.journal().expect("it is ordered"), Arc::new(Region::new(plan.end())));
        let disk = Arc::new(Disk::new(journal.end(), 512));
        let spec = FormatSpec { block_size: 512, disk_blocks: 64, ring_slots: 16, uuid: [7; 16], disk: [9; 32] };
        lay_out_journal(&InTurn(disk.clone()), journal, spec.uuid).expect("laid out");
        format_ordered(8, Checksums::Absent, &*region, &spec, Contents::Zeroed).expect("laid out");
        let cache = DiskCache::open(region.clone(), Arc::new(InTurn(disk.clone())), Options::default());
        let cache = cache.expect("it opens");
        let order = cache.destager.order.as_ref().expect("it is ordered");
        let ended = || order.under_way.lock().ended;
        let write = |lba, tag| cache.write(Lba(lba), &[tag; 512], Durability::Volatile).expect("written");

        write(1, 1);
        disk.fail(DiskFault::WriteFails(0..journal.end()));
        assert!(!cache.step_in_order(order, 8).failed.is_empty() && ended() == 0, "the disk refuses");
        assert!(cache.bring_in_order(order).is_err());
        disk.mend();
        cache.bring_in_order(order).expect("it goes on");
        let before = ended();
        write(2, 1);
        region.poison(plan.data_at, 8 * 512, PoisonedStore::Heals);
        assert!(!cache.step_in_order(order, 8).failed.is_empty() && ended() == before, "it was given up");
        assert!(cache.bring_in_order(order).is_err() && ended() == before);
        write(2, 2);
        cache.bring_in_order(order).expect("it has all of it again");
        assert!(ended() > before);
    }
}
