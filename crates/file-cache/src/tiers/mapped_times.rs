//! When programs stored to mapped pages, which they say themselves in the file's time page.
//!
//! A file that is mapped has a *time page* in the pool, and every program that has the file mapped
//! has that page too, locked like the others. With each `msync` that finds stored pages the program
//! stores a word there, and flushes it with what it stored: the lane is not asked.
//!
//! The lane *takes* the word when it is asked for the file's time, before it notes another one, and
//! when the mapping ends:
//!
//! 1. The word is flushed, and is the file's time, in the memory that outlives the process, and in
//!    the record. **Fence.**
//! 2. It is stored in the page as the word that was taken, and flushed: durable with the next
//!    fence, and so before any later time is. A power loss before that has it taken once more.
//!
//! So whoever finds a word in the page that was not taken knows that it is the file's newest time.
//! After a power loss the page is given up then. After a kill of the process it is kept as long as
//! a program has it locked.
//!
//! A program that is killed, or becomes another one, says nothing. The page has the number of the
//! processes that have the file mapped and have not said that they unmapped it: if that is not 0
//! when no lock is left, the mapping's end is the time.

use crate::error::FileError;
use crate::lanes::file::{FileId, MappedTime};
use crate::lanes::lane::Lane;
use crate::lanes::leases::found::EndOf;
use crate::tiers::nvm::FILE_OF_LOGS;
use tidegate_layout::file_cache::{
    Class, FileEntry, MappedRun, StoreTimes, TrustedTimePage, VERSION_MAX, modified_time,
};
use tidegate_media::{Error, Region};
use zerocopy::{FromZeros, IntoBytes};

/// A time page that an earlier process left.
pub(crate) struct FoundTimePage {
    /// The entry that names it.
    pub(crate) slot: u32,
    pub(crate) page: TrustedTimePage,
}

impl<R: Region> Lane<R> {
    /// Gives a file a time page, in a block of this class. False: there is no room.
    pub(crate) fn ensure_time_page(&mut self, file: FileId, class: Class) -> Result<bool, FileError> {
        if self.file(file)?.time_page.is_some() {
            return Ok(true);
        }
        if self.version == VERSION_MAX {
            return Err(FileError::Worn);
        }
        let Some((slot, unit)) = self.take(class, FILE_OF_LOGS)? else { return Ok(false) };
        let named = TrustedTimePage { file: file.0, unit, class };
        self.medium.stream_block(unit, 0, StoreTimes::new_zeroed().as_bytes());
        self.medium.put_entry(slot, FileEntry::time_page_words(&named, self.version + 1))?;
        self.version += 1;
        self.file_mut(file)?.time_page = Some(MappedTime { slot, unit, class, taken: 0 });
        Ok(true)
    }

    /// Where the file's time page lies, as a mapped page of it.
    pub(crate) fn time_page(&self, file: FileId) -> Result<Option<MappedRun>, FileError> {
        let run = |page: MappedTime| {
            let pool_at = self.medium.plan.block_at(page.unit);
            MappedRun { at: 0, pool_at, bytes: page.class.bytes() }
        };
        Ok(self.file(file)?.time_page.map(run))
    }

    /// Takes the time over that programs said in the file's time page, if they said one since.
    pub(crate) fn take_mapped_time(&mut self, file: FileId) -> Result<(), FileError> {
        let Some(page) = self.file(file)?.time_page else { return Ok(()) };
        let at = self.medium.plan.block_at(page.unit);
        let said = self.medium.region.load_u64(at + StoreTimes::STORED_AT).map_err(Error::from)?;
        // A program may have spoilt the word.
        if said == page.taken || modified_time(said).is_none() {
            return Ok(());
        }
        // Its program may have been killed before it did that.
        self.medium.region.flush(at + StoreTimes::STORED_AT, size_of::<u64>() as u64);
        self.has_time(file, said)?;
        self.medium.region.store_u64(at + StoreTimes::TAKEN_AT, said);
        self.medium.region.flush(at + StoreTimes::TAKEN_AT, size_of::<u64>() as u64);
        self.file_mut(file)?.time_page = Some(MappedTime { taken: said, ..page });
        Ok(())
    }

    /// The file was changed at this time, durably.
    fn has_time(&mut self, file: FileId, modified: u64) -> Result<(), FileError> {
        self.file_mut(file)?.modified = modified;
        self.unsynced.set_modified(file.0, modified);
        self.store_time(file)?;
        Ok(self.medium.fence()?)
    }

    /// Gives up the time page of a file that no program has mapped any more, durably. `now` is the
    /// time, if a program did not say that it has ended.
    pub(crate) fn end_time_page(&mut self, file: FileId, now: u64) -> Result<(), FileError> {
        self.take_mapped_time(file)?;
        let Some(page) = self.file(file)?.time_page else { return Ok(()) };
        let mut raw = StoreTimes::new_zeroed();
        self.medium.region.read(self.medium.plan.block_at(page.unit), raw.as_mut_bytes()).map_err(Error::from)?;
        if raw.mappers.get() != 0 && now != 0 {
            self.has_time(file, now)?;
        }
        self.free_entries([&page.slot].into_iter())?;
        self.blocks.give(page.unit, page.class);
        self.slots.give_back(page.slot);
        self.short_of_room = None;
        self.file_mut(file)?.time_page = None;
        Ok(())
    }

    /// Takes over what time pages say that an earlier process left. Without a machine's restart
    /// they stay: programs may have them mapped.
    pub(crate) fn take_over_times(&mut self, found: &[FoundTimePage], ended: EndOf) -> Result<(), FileError> {
        for FoundTimePage { slot, page } in found {
            let at = self.medium.plan.block_at(page.unit);
            let taken = self.medium.region.load_u64(at + StoreTimes::TAKEN_AT).map_err(Error::from)?;
            self.slots.take_this(*slot);
            let (file, TrustedTimePage { unit, class, .. }) = (FileId(page.file), *page);
            match self.file_mut(file) {
                Ok(cached) if cached.time_page.is_none() => {
                    cached.time_page = Some(MappedTime { slot: *slot, unit, class, taken });
                }
                // Nobody's. Whether a program has it mapped nobody asks: it stays until the machine
                // restarts.
                _ if ended == EndOf::Process => continue,
                _ => {
                    self.free_entries([slot].into_iter())?;
                    self.blocks.give(unit, class);
                    self.slots.give_back(*slot);
                    continue;
                }
            }
            if ended == EndOf::Machine {
                self.end_time_page(file, 0)?;
            }
        }
        Ok(())
    }
}
