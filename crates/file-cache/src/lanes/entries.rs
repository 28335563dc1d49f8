//! Entries: how they lose their bytes, are freed, and are given up.

use crate::error::FileError;
use crate::lanes::file::FileId;
use crate::lanes::lane::{Lane, Renewal};
use crate::lanes::segments::Loss;
use crate::lanes::slots::{Slot, Standing};
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
        let mut chain = self.file(file)?.out_of_sync;
        self.slots.occupy(number, extent, version, &mut chain);
        let cached = self.file_mut(file)?;
        cached.out_of_sync = chain;
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
            let left = self.slots.lose(loss.slot, loss.bytes);
            let Slot { version, standing, .. } = self.slots.used(loss.slot);
            if left > 0 {
                if standing == Standing::Marked {
                    self.spoil(loss.slot, version);
                }
                continue;
            }
            self.clean.remove(loss.slot);
            let cached = self.file_mut(file)?;
            if cached.tail == Some(loss.slot) {
                cached.tail = None;
            }
            let mut chain = cached.out_of_sync;
            if self.slots.begin_to_die(loss.slot, &mut chain) {
                self.file_mut(file)?.out_of_sync = chain;
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
        self.clean.remove(slot);
        let Some(extent) = self.slots.free(slot) else { return };
        let at = self.medium.plan.block_at(extent.unit);
        let is_renewed = |renew: &Renewal| renew(at..at + extent.class.bytes());
        // One that cannot be renewed is left until the pool is opened anew.
        if !self.exposed.contains(&extent.unit) || self.renew.as_ref().is_none_or(is_renewed) {
            self.exposed.remove(&extent.unit);
            self.blocks.give(extent.unit, extent.class);
        }
    }

    /// Its bytes are read from below from now on.
    pub(crate) fn drop_slot(&mut self, number: u32, extent: &Extent) -> Result<(), FileError> {
        let file = FileId(extent.file);
        self.note_dropped(file)?;
        let cached = self.file(file)?;
        let own: Vec<_> =
            cached.newest.within(extent.offset..extent.end()).into_iter().filter(|(_, of)| *of == number).collect();
        for (range, _) in own {
            let losses = self.file_mut(file)?.newest.remove(range);
            self.lose(file, &losses)?;
        }
        Ok(())
    }
}
