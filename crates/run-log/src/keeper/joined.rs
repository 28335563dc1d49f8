//! Files that several processes write: common ones.
//!
//! Such a file is in the table as everybody's. Each process notes where it writes
//! ([`crate::notes`]), before the kernel has the write and behind it, and asks for a sync; whoever
//! asks, it is about all that was noted. What nobody could note is found out by the process that
//! wrote it, as the table changed meanwhile, and put in doubt: the next sync is the kernel's, made
//! here, with the place locked, so that nothing is kept beside it that it would make void.
//!
//! A process that ends amid a write may have written what it did not note: if any write seems to be
//! under way when one ends, the file is in doubt. The last one that ends takes the hold with it.

use super::unheld::Refusal;
use super::{Hold, Keeper, add_one, lock};
use crate::ground::{Attributes, Below};
use crate::held_file::HeldFile;
use crate::kept::Place;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tidegate_media::Region;
use tidegate_preload_wire::notes::NOTED_BYTES_MAX;
use tidegate_preload_wire::{Answer, FileId};

/// How often somebody may come in between.
const JOINS_MAX: u32 = 8;

/// What is known of a common file, besides what is known of every held one.
pub(super) struct Common {
    /// The file's mark in the table and its place among the notes.
    pub(super) mark: u16,
    known: Mutex<Known>,
}

struct Known {
    members: HashSet<u64>,
    /// The next sync is the kernel's.
    doubt: bool,
    /// Appended bytes that are not kept lie behind it.
    base: u64,
    /// Bytes that the file has at least.
    size: u64,
    /// What a whole sync makes durable besides, as it was when it was last durable.
    attributes: Option<Attributes>,
}

impl Common {
    /// Of a file that `member` writes, and others whose writes were not noted so far.
    fn new(mark: u16, member: u64) -> Common {
        let known = Known { members: [member].into(), doubt: true, base: 0, size: 0, attributes: None };
        Common { mark, known: Mutex::new(known) }
    }
}

impl<R: Region> Keeper<R> {
    pub(super) fn join(&self, holder: u64, passed: OwnedFd) -> Option<Answer> {
        let file = HeldFile::of(&passed).ok()??;
        drop(passed);
        if file.takes_of_reserve() {
            return None;
        }
        self.join_file(holder, Arc::new(file))
    }

    /// `holder` writes `file` in common with others from now on, if it may. Whoever held it alone
    /// does so no more.
    pub(crate) fn join_file(&self, holder: u64, file: Arc<dyn Below>) -> Option<Answer> {
        let small = file.size().is_ok_and(|size| size <= NOTED_BYTES_MAX);
        if !small || !self.scope.has(file.path()) {
            return None;
        }
        let notes = self.notes.as_ref()?;
        // Two who join at once would end each other's.
        let _alone = lock(&self.joining);
        for _ in 0..JOINS_MAX {
            if let Some(hold) = self.of_file(file.id()) {
                if let Some(mark) = hold.let_in(holder) {
                    return Some(Answer::Joined { mark });
                }
                self.end_hold(&hold);
            }
            let family = self.kept.family().or_else(|| self.refuse(Refusal::Full))?;
            let mark = notes.begin()?;
            let common = Some(Common::new(mark, holder));
            if let Some(answer) = self.enter(holder, Arc::clone(&file), family, None, common) {
                return Some(answer);
            }
            notes.end(mark);
            // Somebody may have come to hold it alone meanwhile.
            self.of_file(file.id())?;
        }
        None
    }

    /// Syncs a common file for whoever asks and knows its mark: who does not has not heard what the
    /// disk refused before.
    pub(super) fn sync_common(&self, file: FileId, mark: u16, whole: bool) -> Answer {
        let Some(hold) = self.of_file(file) else { return Answer::NotHeld };
        let Some(common) = hold.common.as_ref().filter(|common| common.mark == mark) else { return Answer::NotHeld };
        let began = Instant::now();
        let mut kept = true;
        let answer = self.keep_of(&hold, |place| {
            let answer = self.keep_noted(place, common, whole);
            kept = answer == Answer::Done;
            if kept { answer } else { self.sync_by_kernel(place, common) }
        });
        match answer {
            Answer::Done if kept => hold.counts.keep(&self.tally, began),
            Answer::Done => add_one([&self.tally.by_kernel, &hold.counts.by_kernel]),
            // The program's own sync tells it what is wrong.
            _ => self.end_hold(&hold),
        }
        if answer == Answer::Done { answer } else { Answer::NotHeld }
    }

    /// Keeps what was noted, if that is all.
    fn keep_noted(&self, place: &mut Place, common: &Common, whole: bool) -> Answer {
        let Some(notes) = &self.notes else { return Answer::ByKernel };
        let mut known = lock(&common.known);
        let noted = notes.take(common.mark);
        // Behind the notes: what was appended and noted lies before the end.
        let Ok(size) = place.file().size() else { return Answer::ByKernel };
        let is_known = !whole || place.file().attributes().is_ok_and(|now| known.attributes == Some(now));
        let doubt = std::mem::take(&mut known.doubt) || noted.doubt;
        if doubt || !is_known || size < known.size {
            return Answer::ByKernel;
        }
        let mut ranges = noted.ranges;
        // What lies behind is being written, and noted when the kernel has it.
        let mut end = ranges.last().map_or(known.size, |(at, len)| known.size.max(at + len)).min(size);
        if noted.appended {
            ranges.extend(size.checked_sub(known.base).filter(|len| *len > 0).map(|len| (known.base, len)));
            end = size;
        }
        let answer = self.keep_in(place, end, 0, &ranges);
        if answer == Answer::Done {
            known.size = end;
            known.base = if noted.appended { end } else { known.base };
        }
        answer
    }

    /// Has the kernel bring the file to its disk, with all that was noted so far and more, and
    /// forgets what was kept of it.
    fn sync_by_kernel(&self, place: &mut Place, common: &Common) -> Answer {
        // Without another slot the hold ends, and the file's next one has a family of its own.
        if !place.has_another_slot() {
            return Answer::ByKernel;
        }
        let (size, attributes) = (place.file().size(), place.file().attributes());
        let synced = place.file().sync();
        // If it failed, what is kept stays: the kernel says so once.
        let brought = self.kept.is_brought(place, synced.is_ok());
        match (brought, size) {
            (true, Ok(size)) if matches!(self.kept.forget(place), Ok(Some(_))) => {
                let mut known = lock(&common.known);
                // It may have grown meanwhile.
                (known.base, known.size, known.attributes) = (size, place.size_min().unwrap_or(size), attributes.ok());
                Answer::Done
            }
            _ => Answer::ByKernel,
        }
    }
}

impl Hold {
    /// Lets `holder` write the file too, if it is common and stays so for now; its mark then.
    fn let_in(&self, holder: u64) -> Option<u16> {
        // Whoever ends the hold takes the place first.
        let place = lock(&self.place);
        let common = self.common.as_ref().filter(|_| place.is_some())?;
        lock(&common.known).members.insert(holder);
        Some(common.mark)
    }

    /// `holder` has ended, amid a write of the file perhaps, if that is common. Whether nobody else
    /// writes it then.
    pub(super) fn is_left_by(&self, holder: u64, is_being_written: impl Fn(u16) -> bool) -> bool {
        let Some(common) = &self.common else { return false };
        let mut known = lock(&common.known);
        let was_in = known.members.remove(&holder);
        known.doubt |= is_being_written(common.mark);
        was_in && known.members.is_empty()
    }
}
