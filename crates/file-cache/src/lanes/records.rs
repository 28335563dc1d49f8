//! Records: how a file gets one, and loses it.

use crate::below::{BackingStatus, FileIdentity, Stamp};
use crate::error::FileError;
use crate::lanes::file::{FileId, Record};
use crate::lanes::lane::Lane;
use crate::lanes::slots::Chain;
use tidegate_layout::file_cache::TrustedRecord;
use tidegate_media::Region;

pub(crate) fn words_of(identity: FileIdentity) -> [u64; 3] {
    [identity.device, identity.inode, identity.generation]
}

impl<R: Region> Lane<R> {
    /// Makes the record of a file that has none: all of it is durable below, as `status` says.
    pub(crate) fn make_record(&mut self, file: FileId, status: BackingStatus) -> Result<(), FileError> {
        let cached = self.file(file)?;
        let trusted = TrustedRecord {
            identity: words_of(cached.identity),
            hint: cached.hint.clone(),
            size: status.len,
            void: self.version,
            version: self.version + 1,
            stamp: status.stamp.word(),
            modified: cached.modified,
        };
        self.counters.syncs_below += 1;
        self.version = trusted.version;
        self.medium.put_record(file.0, &trusted)?;
        let TrustedRecord { size, void, version, stamp, modified, .. } = trusted;
        let cached = self.file_mut(file)?;
        cached.cut_below = None;
        cached.was_synced_below();
        cached.record = Some(Record { size, version, void, stamp, modified });
        Ok(())
    }

    /// Before the cache changes the file below: its mark is no longer that of a file nobody
    /// touched, durably. Says how often it was touched.
    pub(crate) fn touch(&mut self, file: FileId) -> Result<u64, FileError> {
        if std::mem::take(&mut self.file_mut(file)?.room_stamp) != 0 {
            self.unsynced.set_room_stamp(file.0, 0);
        }
        let cached = self.file_mut(file)?;
        cached.touched += 1;
        let touched = cached.touched;
        cached.changed_below = true;
        cached.modified_below = 0;
        if let Some(record) = &mut cached.record
            && ![0, Stamp::DISPLACED.word()].contains(&record.stamp)
        {
            // The file below is about to change, its time of modification too.
            (record.stamp, record.modified) = (0, cached.modified);
            let modified = record.modified;
            self.medium.store_modified(file.0, modified);
            self.medium.store_stamp(file.0, 0);
            self.medium.fence()?;
        }
        Ok(touched)
    }

    /// Before what the cache has of a file goes to another one, durably: whatever is found in its
    /// place was changed by others, also if this is interrupted.
    pub(crate) fn is_displaced(&mut self, file: FileId) -> Result<(), FileError> {
        if let Some(record) = &mut self.file_mut(file)?.record {
            record.stamp = Stamp::DISPLACED.word();
            self.medium.store_stamp(file.0, Stamp::DISPLACED.word());
            self.medium.fence()?;
        }
        Ok(())
    }

    /// Room was reserved for a file that was known by a mark, and nothing else was done to it since
    /// it was touched for that. It is known by the mark `now` until the power fails: the file below
    /// may be found with the time of the reservation then, as the one that was put back is not
    /// durable.
    pub(crate) fn room_was_reserved(&mut self, file: FileId, touched: u64, now: Stamp) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        if cached.touched == touched {
            cached.room_stamp = now.word();
            self.unsynced.set_room_stamp(file.0, now.word());
        }
        Ok(())
    }

    /// The pool knows nothing of the file any more, durably; all of it is below, durably. With its
    /// record its entries count no longer.
    pub(crate) fn forget_contents(&mut self, file: FileId) -> Result<(), FileError> {
        self.note_dropped(file)?;
        let cached = self.file_mut(file)?;
        let has_record = cached.record.take().is_some();
        let with_bytes = std::mem::take(&mut cached.newest).into_slots();
        cached.out_of_sync = Chain::default();
        cached.tail = None;
        let of_file = |slot: &u32| self.slots.get(*slot).is_some_and(|slot| slot.extent.file == file.0);
        let (own, others): (Vec<u32>, Vec<u32>) = std::mem::take(&mut self.dying).into_iter().partition(of_file);
        self.dying = others;
        let all: Vec<u32> = with_bytes.chain(own).collect();
        if has_record {
            // The next file with this record must not find them clean.
            self.free_on_medium(&all);
            self.medium.store_record_state(file.0, 0);
            self.medium.fence()?;
        }
        all.into_iter().for_each(|slot| self.free_slot(slot));
        Ok(())
    }
}
