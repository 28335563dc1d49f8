//! Entries: how they lose their bytes, are freed, and are given up.

use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::{Lane, Slot};
use crate::lanes::segments::Loss;
use tidegate_layout::file_cache::Extent;
use tidegate_media::Region;

impl<R: Region> Lane<R> {
    /// An entry counts, and has the newest bytes of its file.
    pub(crate) fn index_entry(
        &mut self,
        file: FileId,
        number: u32,
        extent: &Extent,
        version: u64,
    ) -> Result<(), FileError> {
        self.slots[number as usize] = Some(Slot { extent: *extent, version, newest: u64::from(extent.length) });
        let cached = self.file_mut(file)?;
        cached.out_of_sync.insert((version, number));
        let losses = cached.newest.put(extent.offset..extent.end(), number);
        if let Some(record) = &mut cached.record
            && extent.end() > record.size
        {
            record.size = extent.end();
            cached.tail = Some(number);
        }
        self.lose(file, &losses)
    }

    /// Entries lost bytes to newer ones, or to a cut. Those that have none left are freed: at once
    /// if they are void, durably; otherwise with the next commit.
    pub(crate) fn lose(&mut self, file: FileId, losses: &[Loss]) -> Result<(), FileError> {
        for loss in losses {
            let Some(slot) = &mut self.slots[loss.slot as usize] else { continue };
            slot.newest -= loss.bytes;
            if slot.newest > 0 {
                continue;
            }
            let version = slot.version;
            let cached = self.file_mut(file)?;
            if cached.tail == Some(loss.slot) {
                cached.tail = None;
            }
            if cached.out_of_sync.remove(&(version, loss.slot)) {
                self.medium.store_state(loss.slot, version, 0);
                self.dying.push(loss.slot);
            } else {
                self.free_slot(loss.slot);
            }
        }
        Ok(())
    }

    /// The entry is free, durably: it and its block may be used again.
    pub(crate) fn free_slot(&mut self, slot: u32) {
        if let Some(Slot { extent, .. }) = self.slots[slot as usize].take() {
            self.blocks.give(extent.unit, extent.class);
            self.free_slots.push(slot);
        }
    }

    /// Gives up entries whose bytes are below too, until there is one less. False when there is
    /// none.
    pub(crate) fn give_up_clean(&mut self) -> Result<bool, FileError> {
        while let Some((number, version)) = self.clean.pop_front() {
            let Some(slot) = self.slots[number as usize].filter(|slot| slot.version == version) else { continue };
            self.drop_slot(FileId(slot.extent.file), number, &slot)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Its bytes are read from below from now on.
    fn drop_slot(&mut self, file: FileId, number: u32, slot: &Slot) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        cached.dropped += 1;
        let all = slot.extent.offset..slot.extent.end();
        let own: Vec<_> = cached.newest.within(all).into_iter().filter(|(_, of)| *of == number).collect();
        for (range, _) in own {
            let losses = self.file_mut(file)?.newest.remove(range);
            self.lose(file, &losses)?;
        }
        Ok(())
    }
}
