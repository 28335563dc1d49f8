//! Clean entries: the file below has their bytes too.
//!
//! An entry is *marked* clean on the medium after the file below was synced and what that sync
//! covers is void; it counts then in the next process as well. The mark says that the entry alone
//! has all of its bytes, so:
//!
//! - An entry of which a newer one has a part gets no mark, and loses it before the newer one can
//!   become clean: its last word frees it, flushed before the next commit's first fence.
//! - A block is used again only after the last word of a marked entry has freed it, durably.
//! - A mark counts only as long as the record has a stamp and the file below has the same one. When
//!   the lane changes the file below, the stamp goes first. Opening a lane takes marks away,
//!   durably, that do not count.
//!
//! A file that nobody has open and that is below *rests*: its record and its clean entries stay,
//! the file below is closed. When it is opened again, they count if its stamp is the same.

use crate::below::{BackingFile, BackingStatus, FileIdentity, Stamp};
use crate::cache::FileCache;
use crate::error::FileError;
use crate::lanes::file::{Attachment, File, FileId};
use crate::lanes::lane::Lane;
use crate::lanes::records::words_of;
use crate::lanes::slots::{Slot, Standing};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::{Extent, VolatileFile};
use tidegate_media::Region;

/// Entries that are given up together: one fence makes it durable.
const GIVEN_UP_TOGETHER: usize = 16;

impl<R: Region> FileCache<R> {
    /// Forgets a file that rests, before somebody changes it past the cache.
    pub fn forget_resting(&self, identity: FileIdentity) -> Result<(), FileError> {
        let mut lane = self.lane();
        match lane.by_identity.get(&identity).copied() {
            Some(known) if lane.file(known)?.is_resting() => lane.forget(known),
            _ => Ok(()),
        }
    }

    /// Whether a file rests.
    pub(crate) fn rests(&self, identity: FileIdentity) -> bool {
        let lane = self.lane();
        let known = lane.by_identity.get(&identity).and_then(|known| lane.file(*known).ok());
        known.is_some_and(File::is_resting)
    }

    /// How many more files may be opened until more than half of the records are those of open
    /// files.
    pub(crate) fn spare_records(&self) -> usize {
        let lane = self.lane();
        let open = lane.files.iter().flatten().filter(|file| !file.is_resting()).count();
        (lane.medium.plan.files as usize / 2 + 1).saturating_sub(open)
    }

    /// Bytes in clean entries.
    pub(crate) fn clean_bytes(&self) -> u64 {
        self.lane().slots.clean_bytes()
    }

    /// Looks whether somebody else changed an open file, and gives up its clean entries then.
    pub fn revalidate(&self, file: FileId) -> Result<(), FileError> {
        let backing = self.lane().file(file)?.backing()?.clone();
        let status = backing.status()?;
        self.lane().doubt_clean(file, status)
    }
}

impl<R: Region> Lane<R> {
    /// The file below has an entry's bytes too, durably, and the entry is void.
    pub(crate) fn has_become_clean(&mut self, number: u32) {
        let Slot { extent, newest, .. } = self.slots.used(number);
        self.placed_clean(number, &extent);
        if newest == u64::from(extent.length) {
            self.slots.mark(number, Standing::Marked);
            self.medium.store_clean(number, &extent);
            self.medium.flush_entry(number);
        }
    }

    /// A marked entry counts, and has the newest bytes of its file.
    pub(crate) fn index_clean(
        &mut self,
        file: FileId,
        number: u32,
        extent: &Extent,
        version: u64,
    ) -> Result<(), FileError> {
        self.slots.occupy_clean(number, extent, version);
        self.placed_clean(number, extent);
        let losses = self.file_mut(file)?.newest.put(extent.offset..extent.end(), number);
        if !losses.is_empty() {
            self.note_dropped(file)?;
        }
        self.lose(file, &losses)
    }

    /// A newer entry has a part of a marked one, or a cut took it: the mark has to go.
    pub(crate) fn spoil(&mut self, number: u32, version: u64) {
        self.medium.store_state(number, version, 0);
        self.spoilt.push(number);
    }

    /// Has the last words of marked entries say that they are free, durable with the next fence.
    pub(crate) fn free_on_medium(&self, numbers: &[u32]) {
        for number in numbers {
            if let Some(Slot { version, .. }) = self.slots.get(*number).filter(may_be_marked) {
                self.medium.store_state(*number, version, 0);
                self.medium.flush_entry(*number);
            }
        }
    }

    /// Gives up a few clean entries, none of a lent chunk, whose blocks nobody else gets. False
    /// when there is none.
    pub(crate) fn give_up_clean(&mut self) -> Result<bool, FileError> {
        if self.slots.clean_bytes() == 0 {
            return Ok(false);
        }
        let victims: Vec<u32> = std::iter::from_fn(|| self.victim()).take(GIVEN_UP_TOGETHER).collect();
        self.give_up(&victims)?;
        Ok(!victims.is_empty())
    }

    /// Gives up clean entries. Their bytes are read from below from now on.
    pub(crate) fn give_up(&mut self, numbers: &[u32]) -> Result<(), FileError> {
        self.free_on_medium(numbers);
        if numbers.iter().filter_map(|number| self.slots.get(*number)).any(|slot| may_be_marked(&slot)) {
            self.medium.fence()?;
        }
        for number in numbers {
            self.slots.mark(*number, Standing::Clean);
            self.drop_slot(*number, &self.slots.used(*number).extent)?;
        }
        Ok(())
    }

    /// Gives up all clean entries of a file.
    pub(crate) fn drop_clean(&mut self, file: FileId) -> Result<(), FileError> {
        let clean = self.clean_within(file, 0..u64::MAX)?;
        self.give_up(&clean)
    }

    /// The clean entries that have newest bytes of a range, each once.
    pub(crate) fn clean_within(&self, file: FileId, range: Range<u64>) -> Result<Vec<u32>, FileError> {
        let is_clean = |number: &u32| self.slots.used(*number).standing.is_clean();
        let with_bytes = self.file(file)?.newest.within(range).into_iter().map(|(_, number)| number);
        Ok(Vec::from_iter(with_bytes.filter(is_clean).collect::<BTreeSet<u32>>()))
    }

    /// Gives up the clean entries of a file that is not as its record says, although the lane
    /// changed nothing.
    pub(crate) fn doubt_clean(&mut self, file: FileId, status: BackingStatus) -> Result<(), FileError> {
        let cached = self.file(file)?;
        let strange = cached.record.is_some_and(|record| record.stamp != 0 && record.stamp != status.stamp.word());
        if strange && !cached.is_detached() { self.drop_clean(file) } else { Ok(()) }
    }

    /// The mark of a file that was as its record says became `after`, with the same contents.
    pub(crate) fn restamp(&mut self, file: FileId, before: Stamp, after: Stamp) -> Result<(), FileError> {
        if let Some(record) = &mut self.file_mut(file)?.record
            && before != Stamp::NONE
            && record.stamp == before.word()
            && before != after
        {
            record.stamp = after.word();
            self.medium.store_stamp(file.0, after.word());
        }
        Ok(())
    }

    /// Has a file rest.
    pub(crate) fn rest(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        cached.below = Attachment::Detached { cut_to: cached.size };
        cached.room.lose(&(0..u64::MAX));
        cached.tail = None;
        // Whoever changes the file below from now on does not say when.
        self.forget_modified(file)
    }

    /// A file that rests is opened. If it is not as its record says, it is as if it were new.
    pub(crate) fn wake(
        &mut self,
        file: FileId,
        backing: &Arc<dyn BackingFile>,
        hint: &[u8],
        status: BackingStatus,
    ) -> Result<(), FileError> {
        let record = self.file(file)?.record;
        if !record.is_some_and(|record| record.stamp == status.stamp.word() && record.size == status.len) {
            self.forget_contents(file)?;
            self.file_mut(file)?.hint = hint.to_vec();
        }
        let cached = self.file_mut(file)?;
        cached.below = Attachment::Attached(backing.clone());
        cached.size = status.len;
        (cached.modified, cached.modified_below) = (0, 0);
        (cached.changed_below, cached.cut_below) = (false, None);
        let raw = VolatileFile::new(words_of(cached.identity), &cached.hint, status.len);
        self.unsynced.begin_file(file.0, &raw);
        Ok(())
    }

    /// Forgets the resting file that was changed least lately, if there is one: another file needs
    /// its record.
    pub(crate) fn forget_a_resting_file(&mut self) -> Result<(), FileError> {
        let resting = |(number, file): (u32, &Option<Box<File>>)| {
            let file = file.as_deref().filter(|file| file.is_resting())?;
            Some((file.record.map_or(0, |record| record.version), FileId(number)))
        };
        let oldest = (0..).zip(&self.files).filter_map(resting).min();
        oldest.map_or(Ok(()), |(_, file)| self.forget(file))
    }
}

/// Whether the medium says that an entry is clean, or may still say so.
fn may_be_marked(slot: &Slot) -> bool {
    matches!(slot.standing, Standing::Marked | Standing::Dying)
}
