//! Opening a lane as an earlier process left it, without a look at the files below.
//!
//! Entries and records come from persistent memory; unsynced writes come from the memory that
//! outlived the process, unless the machine restarted. Each file is *detached* until the file below
//! is found for it.

pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod format;
pub(crate) mod load;
pub(crate) mod recover;

use crate::below::FileIdentity;
use crate::cache::FileCache;
use crate::counters::Counters;
use crate::lanes::file::{File, FileId, Record};
use crate::lanes::lane::Lane;
use crate::lanes::leases::found::EndOf;
use crate::lanes::records::words_of;
use crate::lanes::slots::Slots;
use crate::open::format::{PoolOpenError, broken_rule, lane_plan};
use crate::open::load::{Contents, Counted, load};
use crate::region_io::Medium;
use crate::tiers::dram::{Unsynced, Written};
use crate::tiers::nvm::{Blocks, FILE_OF_LOGS};
use crate::tiers::placement::placement;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tidegate_layout::file_cache::{TrustedRecord, VolatileFile};
use tidegate_media::Region;
use tidegate_media::sync::Mutex;
use tidegate_policy::placement::NamedPlacement;

impl<R: Region> FileCache<R> {
    /// Opens lane `lane` of the pool on `region`, for this process alone: the caller holds the lock
    /// that says so. `dram` is memory of [`crate::dram_bytes`] that outlives the process: zeroes,
    /// or what the last process that had the lane open left there.
    pub fn open(region: R, lane: u32, dram: Arc<dyn Region>) -> Result<FileCache<R>, PoolOpenError> {
        let plan = lane_plan(&region, lane)?;
        let medium = Medium { region, plan };
        let Contents { records, mut entries, version, ring, leases, chunks, times } = load(&medium)?;
        let ended = if dram.load_u64(0)? == 0 { EndOf::Machine } else { EndOf::Process };
        if ended == EndOf::Machine {
            leases.iter().try_for_each(|lease| lease.take_back(&medium))?;
        }
        let (unsynced, left) = Unsynced::open(dram, plan.files)?;
        let logs = leases.iter().map(|found| (found.lease.unit, found.lease.class, FILE_OF_LOGS));
        let logs = logs.chain(times.iter().map(|found| (found.page.unit, found.page.class, FILE_OF_LOGS)));
        let used = entries.iter().map(|entry| (entry.extent.unit, entry.extent.class, entry.extent.file)).chain(logs);
        let blocks = Blocks::with_used(plan.chunks, used);
        let blocks = blocks.ok_or_else(|| broken_rule(plan.entry_at(0), "no two entries have the same block"))?;
        let mut lane = Lane {
            medium,
            ring,
            version,
            files: (0..plan.files).map(|_| None).collect(),
            by_identity: BTreeMap::new(),
            free_files: Vec::new(),
            blocks,
            exposed: HashSet::new(),
            renew: None,
            slots: Slots::new(plan.entries),
            dying: Vec::new(),
            spoilt: Vec::new(),
            clean: placement(NamedPlacement::default(), plan.entries),
            unsynced,
            leases: BTreeMap::new(),
            short_of_room: None,
            counters: Counters::default(),
            now: 0,
        };
        entries.sort_unstable_by_key(|entry| (entry.version, entry.slot));
        let logs = leases.iter().map(|found| found.slot).chain(chunks.iter().map(|found| found.slot));
        let logs = logs.chain(times.iter().map(|found| found.slot));
        lane.slots.begin(entries.iter().map(|entry| entry.slot).chain(logs));
        lane.take_over(&records, &entries)?;
        lane.take_over_unsynced(left)?;
        lane.take_over_leases(&leases, &chunks, ended)?;
        lane.take_over_times(&times, ended)?;
        lane.forget_what_is_below()?;
        Ok(FileCache { lane: Mutex::new(lane), sweep: Mutex::new(()) })
    }
}

impl<R: Region> Lane<R> {
    /// Files and entries as the records say, in the order of the entries' versions.
    fn take_over(&mut self, records: &BTreeMap<u32, TrustedRecord>, entries: &[Counted]) -> Result<(), PoolOpenError> {
        for (number, record) in records {
            let TrustedRecord { identity: [device, inode, generation], size, void, version, stamp, modified, .. } =
                *record;
            let mut file = File::detached(FileIdentity { device, inode, generation }, &record.hint, size);
            file.record = Some(Record { size, version, void, stamp, modified });
            file.modified = modified;
            self.add_file(FileId(*number), file);
        }
        for Counted { slot, version, extent, is_clean } in entries {
            let file = FileId(extent.file);
            if *is_clean {
                self.index_clean(file, *slot, extent, *version)?;
            } else {
                self.index_entry(file, *slot, extent, *version)?;
            }
            let cached = self.file_mut(file)?;
            cached.size = cached.size.max(extent.end());
        }
        self.slots.began();
        Ok(())
    }

    /// The unsynced writes of a process that was killed, and the lengths that it saw.
    fn take_over_unsynced(&mut self, left: BTreeMap<u32, (VolatileFile, Written)>) -> Result<(), PoolOpenError> {
        for (number, (raw, written)) in left {
            let [device, inode, generation] = raw.identity();
            let identity = FileIdentity { device, inode, generation };
            if self.files[number as usize].is_none() {
                if written.is_empty() && raw.modified.get() == 0 {
                    self.unsynced.end_file(number);
                    continue;
                }
                self.add_file(FileId(number), File::detached(identity, raw.path_hint(), raw.size.get()));
            }
            let file = self.file_mut(FileId(number))?;
            if file.identity != identity {
                return Err(broken_rule(0, "unsynced writes belong to the file that has their number"));
            }
            file.written = written;
            file.room_stamp = raw.room_stamp.get();
            if raw.modified.get() != 0 {
                file.modified = raw.modified.get();
            }
            file.take_over_size(raw.size.get(), raw.grows_to.get());
        }
        for (number, file) in (0..).zip(&self.files) {
            match file {
                Some(file) if !self.unsynced.has_file(number)? => {
                    self.unsynced
                        .begin_file(number, &VolatileFile::new(words_of(file.identity), &file.hint, file.size));
                    self.unsynced.set_modified(number, file.modified);
                }
                Some(file) => {
                    self.unsynced.set_size(number, file.size);
                    self.unsynced.set_modified(number, file.modified);
                }
                None => self.free_files.push(FileId(number)),
            }
        }
        self.free_files.reverse();
        Ok(())
    }

    pub(crate) fn add_file(&mut self, number: FileId, file: File) {
        self.by_identity.insert(file.identity, number);
        self.files[number.0 as usize] = Some(Box::new(file));
    }
}
