//! How what a process wrote becomes the lane's.

use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::Lane;
use crate::lanes::lease::LentBlock;
use crate::lanes::leases::gather::{Adopted, Gathered};
use crate::tiers::placement::ProgramAccess;
use tidegate_layout::file_cache::{Change, LEASE_CLASS, LeaseElement, LeaseMark, LeasePlan, NOT_CLOSED, VERSION_MAX};
use tidegate_media::sync::{Ordering, fence};
use tidegate_media::{Error, Region};
use tidegate_policy::placement::IoKind;
use zerocopy::{FromZeros, IntoBytes};

/// Of so many places in a commit the placement hears.
const PLACES_TOLD_MAX: usize = 32;

/// How taking over elements ended.
enum Adoption {
    /// All that were wanted are taken over.
    Enough,
    /// One broke a rule.
    RuleBroken,
}

impl<R: Region> Lane<R> {
    pub(super) fn load_word(&self, at: u64) -> Result<u64, FileError> {
        Ok(self.medium.region.load_u64(at).map_err(Error::from)?)
    }

    /// Takes over what counts so far of a file's lease, which goes on. One that breaks a rule ends.
    pub(crate) fn adopt(&mut self, file: FileId) -> Result<(), FileError> {
        self.adopt_at_most(file, u64::MAX).map(drop)
    }

    /// Takes over about `most` elements of a file's lease, which goes on unless one breaks a rule.
    /// Says whether there are more.
    pub(crate) fn adopt_at_most(&mut self, file: FileId, most: u64) -> Result<bool, FileError> {
        let Some(slot) = self.file(file)?.lease else { return Ok(false) };
        let Some(lease) = self.leases.get(&slot) else { return Ok(false) };
        let (plan, adopted) = (lease.plan, lease.adopted);
        let visible = self.load_word(plan.visible_at())?;
        if visible == adopted || most == 0 {
            return Ok(false);
        }
        match self.adopt_until(slot, adopted.saturating_add(most), visible)? {
            Adoption::Enough => Ok(self.leases.get(&slot).is_some_and(|lease| visible > lease.adopted)),
            Adoption::RuleBroken => self.revoke(file).map(|()| false),
        }
    }

    /// Takes over what counts so far of every lease that goes on. A log that cannot be read holds
    /// nobody else up: whoever asks for its file is told.
    pub(crate) fn adopt_all(&mut self) {
        let files: Vec<FileId> = self.leases.values().map(|lease| lease.file).collect();
        // A revoked lease may be one of a file that is gone.
        files.into_iter().for_each(|file| drop(self.adopt(file)));
    }

    /// Ends the lease of a file, if it has one.
    pub(crate) fn revoke(&mut self, file: FileId) -> Result<(), FileError> {
        let Some(slot) = self.file(file)?.lease else { return Ok(()) };
        self.close_log(slot)?;
        self.file_mut(file)?.lease = None;
        Ok(())
    }

    /// Takes over what counts of a lease that ends, once and for all.
    pub(super) fn close_log(&mut self, slot: u32) -> Result<(), FileError> {
        let Some(lease) = self.leases.get(&slot) else { return Ok(()) };
        let closed = self.stop(&lease.plan)?;
        self.adopt_until(slot, closed, closed)?;
        self.medium.store_lease(slot, LeaseMark::Closed, self.version);
        self.medium.flush_entry(slot);
        Ok(self.medium.fence()?)
    }

    /// Has nobody write by the lease of this log any more, and says how many elements count.
    pub(super) fn stop(&self, plan: &LeasePlan) -> Result<u64, FileError> {
        self.medium.region.store_u64(plan.lease_at(), 0);
        // SeqCst pairs with the fence between a process' store of `visible` and its look at
        // `lease`: one of the two sees the other's store.
        fence(Ordering::SeqCst);
        let mut closed = self.load_word(plan.closed_at())?;
        if closed == NOT_CLOSED {
            closed = self.load_word(plan.visible_at())?;
            self.medium.region.store_u64(plan.closed_at(), closed);
        }
        Ok(closed)
    }

    /// Takes over the elements before number `until`, or those up to the end of the write that has
    /// the one before number `enough`, in as many commits as the ring asks for. It ends at one that
    /// breaks a rule, too: it is its own process' loss, with all later ones. A commit ends where a
    /// write does, unless that write alone has more elements than one takes.
    fn adopt_until(&mut self, slot: u32, enough: u64, until: u64) -> Result<Adoption, FileError> {
        // One element of each commit is the log's.
        let most = self.medium.plan.commit_elements_max().saturating_sub(1).max(1);
        loop {
            let Some(adopted) = self.leases.get(&slot).map(|lease| lease.adopted) else { return Ok(Adoption::Enough) };
            let wanted = usize::try_from(enough.saturating_sub(adopted)).unwrap_or(usize::MAX).max(1);
            let mut elements = self.next_elements(slot, until, wanted.min(most) + 1)?;
            if elements.len() > wanted && elements[wanted - 1].goes_on_in(&elements[wanted]) {
                elements = self.next_elements(slot, until, most + 1)?;
            }
            if elements.is_empty() {
                return Ok(if adopted == until { Adoption::Enough } else { Adoption::RuleBroken });
            }
            // What breaks a rule behind the last one is met the next time.
            let ends = |end: &usize| elements.get(*end).is_none_or(|next| !elements[end - 1].goes_on_in(next));
            let last = elements.len().min(most);
            let enough_at = (wanted..=last).find(ends);
            let end = enough_at.or_else(|| (1..=last).rev().find(ends)).unwrap_or(last);
            elements.truncate(end);
            self.adopt_elements(slot, &elements)?;
            if enough_at.is_some() {
                return Ok(Adoption::Enough);
            }
        }
    }

    /// The next elements before number `until` that are as they may be, at most `most`.
    fn next_elements(&mut self, slot: u32, until: u64, most: usize) -> Result<Vec<Adopted>, FileError> {
        let mut elements: Vec<Adopted> = Vec::new();
        let Some(lease) = self.leases.get(&slot) else { return Ok(elements) };
        let until = until.min(lease.adopted + u64::from(lease.plan.elements));
        for number in (lease.adopted..until).take(most) {
            let mut raw = LeaseElement::new_zeroed();
            self.medium.region.read(lease.plan.element_at(number), raw.as_mut_bytes()).map_err(Error::from)?;
            let Ok(extent) = raw.check(number, lease.file.0, &self.medium.plan) else { break };
            let lent = usize::try_from(number - lease.adopted).ok().and_then(|place| lease.lent.get(place));
            let Some(LentBlock { entry, .. }) = lent.filter(|lent| lent.unit == extent.unit) else { break };
            elements.push(Adopted { slot: *entry, extent, modified: raw.modified.get() });
        }
        Ok(elements)
    }

    /// Commits entries that name the blocks where the bytes lie, each with a version of its own.
    fn adopt_elements(&mut self, slot: u32, elements: &[Adopted]) -> Result<(), FileError> {
        let Some(lease) = self.leases.get(&slot) else { return Ok(()) };
        let (file, adopted, first) = (lease.file, lease.adopted + elements.len() as u64, self.version + 1);
        if self.version + elements.len() as u64 > VERSION_MAX {
            return Err(FileError::Worn);
        }
        self.medium.region.store_u64(lease.plan.taken_at(), adopted);
        // SeqCst: no block of these elements is used for anything else before that is seen.
        fence(Ordering::SeqCst);
        self.note_adopted(file, elements)?;
        self.place_adopted((slot, file), elements)?;
        let Gathered { entries, spare } = self.gather(elements);
        let (last, entries) = (self.version + entries.len() as u64, (first..).zip(&entries));
        let entry =
            |(version, element): (u64, &Adopted)| Change::Entry { slot: element.slot, extent: element.extent, version };
        let mut changes: Vec<Change> = entries.clone().map(entry).collect();
        changes.push(Change::Lease { slot, mark: LeaseMark::open(adopted), version: last });
        self.commit_changes(&changes)?;
        if let Some(lease) = self.leases.get_mut(&slot) {
            lease.adopted = adopted;
            lease.lent.drain(..elements.len());
        }
        for LentBlock { unit, entry } in spare {
            self.blocks.give(unit, LEASE_CLASS);
            self.slots.give_back(entry);
        }
        for (version, Adopted { slot, extent, .. }) in entries {
            self.counters.bytes_adopted += u64::from(extent.length);
            self.index_entry(file, *slot, extent, version)?;
            self.has_written(file, extent.end())?;
        }
        Ok(())
    }

    /// The placement hears of what was written, as of other programs' requests: of contiguous bytes
    /// once, and of so many places at most that a busy program does not keep the service busy.
    fn place_adopted(&mut self, (slot, file): (u32, FileId), elements: &[Adopted]) -> Result<(), FileError> {
        let Some(lease) = self.leases.get(&slot) else { return Ok(()) };
        let (plan, first) = (lease.plan, lease.adopted);
        let (said, committed) = (self.load_word(plan.context_at())?, self.load_word(plan.committed_at())?);
        let context = if said == 0 { self.file(file)?.context } else { said };
        let kind = if first < committed { IoKind::SyncWrite } else { IoKind::Write };
        let runs = elements.chunk_by(|one, next| one.extent.end() == next.extent.offset);
        for run in runs.take(PLACES_TOLD_MAX) {
            let at = run[0].extent.offset;
            let bytes = run.iter().map(|element| u64::from(element.extent.length)).sum();
            self.note_write(file, &ProgramAccess { at, bytes, kind, context })?;
        }
        Ok(())
    }

    /// Length and time that the file comes to have, for whoever completes the commit after a kill;
    /// the time is durable with the commit.
    fn note_adopted(&mut self, file: FileId, elements: &[Adopted]) -> Result<(), FileError> {
        let cached = self.file(file)?;
        let end = elements.iter().map(|element| element.extent.end()).fold(0, u64::max);
        if end > cached.size {
            let durable = cached.record.map_or(0, |record| record.size);
            self.unsynced.grows_to(file.0, end.max(durable));
        }
        let said = elements.iter().rev().map(|element| element.modified).find(|modified| *modified != 0);
        if let Some(modified) = said {
            self.file_mut(file)?.modified = modified;
            self.unsynced.set_modified(file.0, modified);
        }
        self.begin_modified(file).map(drop)
    }
}
