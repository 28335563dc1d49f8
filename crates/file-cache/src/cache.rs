//! The cache itself: what a lane holds, how it is opened, which files it has.

use crate::backing::{BackingFile, FileIdentity, Refused};
use crate::blocks::Blocks;
use crate::file::{File, Record};
use crate::format::{OpenError, lane_plan};
use crate::medium::{LaneElement, Medium, ring_plan};
use crate::recover::{is_empty, settle_metadata};
use crate::segments::Loss;
use crate::unsynced::{Unsynced, bytes_in};
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_layout::file_cache::{Extent, PATH_HINT_BYTES_MAX, TrustedRecord, VolatileFile};
use tidegate_media::sync::{Mutex, MutexGuard};
use tidegate_media::{Error, Region, Sealed};
use tidegate_wal::{Loaded, RedoRing};

/// A file of the lane, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u32);

/// When a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// When its bytes are in DRAM that outlives the process: an ordinary write.
    Asynchronous,
    /// When its bytes, all of them or none, are in persistent memory: `O_SYNC`, `O_DSYNC`, `RWF_DSYNC`.
    Synchronous,
}

/// How a sync ended. Everything is durable in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// In persistent memory: a cut in the middle leaves all of it or nothing of it.
    Atomically,
    /// In the file below, for want of room in the pool: a cut in the middle may leave some of it.
    Below,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file below refused: the program gets this errno.
    #[error(transparent)]
    Below(#[from] Refused),
    /// The persistent memory or the shared memory failed: `EIO`.
    #[error(transparent)]
    Memory(#[from] Error),
    /// More files are open than the lane has records for: the file goes past the cache.
    #[error("the lane has no record for one more file")]
    TooManyFiles,
    /// The path hint is longer than a record takes: the file goes past the cache.
    #[error("a path of {0} bytes does not fit into a record")]
    PathTooLong(usize),
    /// The lane has counted 2^43 commits: what it holds can be recovered, and the pool has to be laid out anew.
    #[error("the lane has used up its versions: recover it, and format the pool anew")]
    Worn,
    /// The number is no open file's.
    #[error("no file has the number {0}")]
    NotOpen(u32),
}

impl From<Sealed> for FileError {
    fn from(sealed: Sealed) -> FileError {
        FileError::Memory(sealed.into())
    }
}

/// How full a lane is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// In DRAM and nowhere else.
    pub dirty: u64,
    /// In entries that are newer than the file below.
    pub out_of_sync: u64,
    /// Bytes of the pool's blocks, used or not.
    pub pool: u64,
    /// Bytes of the blocks in DRAM, used or not.
    pub dram: u64,
}

/// What was done since the lane was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Syncs and synchronous writes that ended in persistent memory.
    pub commits: u64,
    /// Those among them that put bytes behind others in their block.
    pub lengthened: u64,
    /// Syncs and synchronous writes that ended in the file below: those that are not atomic.
    pub below: u64,
    /// Bytes committed.
    pub bytes_committed: u64,
    /// Bytes written back.
    pub bytes_written_back: u64,
    /// Syncs of files below.
    pub syncs_below: u64,
}

/// One lane of a pool, with its files.
pub struct FileCache<R> {
    state: Mutex<State<R>>,
    /// Held by whoever writes back. Taken before the state.
    pub(crate) sweep: Mutex<()>,
}

/// Everything of a lane, under one lock.
pub(crate) struct State<R> {
    pub(crate) medium: Medium<R>,
    pub(crate) ring: RedoRing<LaneElement>,
    /// The newest commit's.
    pub(crate) version: u64,
    pub(crate) files: Vec<Option<File>>,
    pub(crate) blocks: Blocks,
    /// What entries say that are not free.
    pub(crate) slots: Vec<Option<Slot>>,
    pub(crate) free_slots: Vec<u32>,
    /// Entries without a newest byte, freed by a store that is not durable yet.
    pub(crate) dying: Vec<u32>,
    /// Entries whose bytes are below too, with their versions, the first one to be given up first.
    pub(crate) clean: VecDeque<(u32, u64)>,
    pub(crate) unsynced: Unsynced,
    pub(crate) counters: Counters,
}

/// What an entry says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) extent: Extent,
    pub(crate) version: u64,
    /// Its bytes that no newer entry has.
    pub(crate) newest: u64,
}

impl<R: Region> FileCache<R> {
    /// Opens lane `lane` of the pool on `region`, for this process alone: the caller holds the lock that says so. `dram` is zeroed memory of
    /// [`crate::dram_bytes`] that outlives the process. What a former process left in the lane has to be recovered before.
    pub fn open(region: R, lane: u32, dram: Arc<dyn Region>) -> Result<FileCache<R>, OpenError> {
        let plan = lane_plan(&region, lane)?;
        settle_metadata(&region, &plan)?;
        let version = is_empty(&region, &plan)?.ok_or(OpenError::NotRecovered)?;
        let ring = Loaded::begin(&region, ring_plan(&plan))?.finish(&region)?;
        let unsynced = Unsynced::new(dram, plan.files)?;
        let state = State {
            medium: Medium { region, plan },
            ring,
            version,
            files: (0..plan.files).map(|_| None).collect(),
            blocks: Blocks::new(plan.chunks),
            slots: vec![None; plan.entries as usize],
            free_slots: (0..plan.entries).rev().collect(),
            dying: Vec::new(),
            clean: VecDeque::new(),
            unsynced,
            counters: Counters::default(),
        };
        Ok(FileCache { state: Mutex::new(state), sweep: Mutex::new(()) })
    }

    /// Caches a file. `path_hint` is where recovery looks first. A file that is here already (the same identity) keeps its number, and has to be
    /// closed as often as it was opened.
    pub fn open_file(&self, backing: Arc<dyn BackingFile>, path_hint: &[u8]) -> Result<FileId, FileError> {
        if path_hint.len() > PATH_HINT_BYTES_MAX {
            return Err(FileError::PathTooLong(path_hint.len()));
        }
        let mut state = self.state();
        let identity = backing.identity();
        let known = state.files.iter().position(|file| file.as_ref().is_some_and(|file| file.identity == identity));
        if let Some(number) = known {
            let file = state.files[number].as_mut().expect("it was just found");
            file.opens += 1;
            return Ok(FileId(u32::try_from(number).expect("few files")));
        }
        let size = backing.status()?.len;
        let free = state.files.iter().position(Option::is_none).ok_or(FileError::TooManyFiles)?;
        let number = u32::try_from(free).expect("few files");
        state.unsynced.begin_file(number, &VolatileFile::new(words_of(identity), path_hint, size));
        state.files[free] = Some(File::new(backing, path_hint, size));
        Ok(FileId(number))
    }

    /// The opposite of [`FileCache::open_file`]. What is not below yet stays here: unsynced writes until the file is synced or drained, synced
    /// ones until they are written back.
    pub fn close(&self, file: FileId) -> Result<(), FileError> {
        let mut state = self.state();
        let closed = state.file_mut(file)?;
        closed.opens = closed.opens.saturating_sub(1);
        state.forget_if_done(file)
    }

    /// The file's length in bytes, as the program sees it.
    pub fn size(&self, file: FileId) -> Result<u64, FileError> {
        let mut state = self.state();
        let file = state.file_mut(file)?;
        file.look_below()?;
        Ok(file.size)
    }

    /// Every file that is open, or not all below yet.
    pub fn files(&self) -> Vec<(FileId, FileIdentity)> {
        let state = self.state();
        let files = (0..).zip(&state.files);
        files.filter_map(|(number, file)| Some((FileId(number), file.as_ref()?.identity))).collect()
    }

    /// How full the lane is.
    pub fn fill(&self) -> Fill {
        let state = self.state();
        let files = || state.files.iter().flatten();
        let entries = files().flat_map(|file| &file.out_of_sync);
        Fill {
            dirty: files().map(|file| bytes_in(&file.written)).sum(),
            out_of_sync: entries.filter_map(|(_, slot)| Some(state.slots[*slot as usize]?.newest)).sum(),
            pool: state.medium.plan.data_bytes(),
            dram: state.unsynced.bytes(),
        }
    }

    /// What was done since the lane was opened.
    pub fn counters(&self) -> Counters {
        self.state().counters
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock()
    }
}

pub(crate) fn words_of(identity: FileIdentity) -> [u64; 3] {
    [identity.device, identity.inode, identity.generation]
}

impl<R: Region> State<R> {
    pub(crate) fn file(&self, file: FileId) -> Result<&File, FileError> {
        self.files.get(file.0 as usize).and_then(Option::as_ref).ok_or(FileError::NotOpen(file.0))
    }

    pub(crate) fn file_mut(&mut self, file: FileId) -> Result<&mut File, FileError> {
        self.files.get_mut(file.0 as usize).and_then(Option::as_mut).ok_or(FileError::NotOpen(file.0))
    }

    /// The program sees this length from now on.
    pub(crate) fn set_size(&mut self, file: FileId, size: u64) -> Result<(), FileError> {
        self.file_mut(file)?.size = size;
        self.unsynced.set_size(file.0, size);
        Ok(())
    }

    /// Makes the record of a file that has none: at its first sync. Its creation and all that the kernel's path wrote get durable first.
    pub(crate) fn ensure_record(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file(file)?;
        if cached.record.is_some() {
            return Ok(());
        }
        cached.backing.sync()?;
        let status = cached.backing.status()?;
        let trusted = TrustedRecord {
            identity: words_of(cached.identity),
            hint: cached.hint.clone(),
            size: status.len,
            void: self.version,
            version: self.version + 1,
            stamp: status.stamp,
        };
        self.counters.syncs_below += 1;
        self.version = trusted.version;
        self.medium.put_record(file.0, &trusted)?;
        let TrustedRecord { size, void, version, stamp, .. } = trusted;
        let cached = self.file_mut(file)?;
        cached.cut_below = None;
        cached.record = Some(Record { size, version, void, stamped: stamp != 0 });
        Ok(())
    }

    /// Before the cache changes the file below: its mark is no longer that of a file nobody touched, durably.
    pub(crate) fn touch(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        cached.touched += 1;
        if let Some(record) = &mut cached.record
            && record.stamped
        {
            record.stamped = false;
            self.medium.store_stamp(file.0, 0);
            self.medium.fence()?;
        }
        Ok(())
    }

    /// Entries lost bytes to newer ones, or to a cut. Those that have none left are freed: at once if they are void, durably; otherwise with the next commit.
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

    /// Gives up entries whose bytes are below too, until there is one less. False when there is none.
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

    /// A file that nobody has open and that is below leaves the lane.
    pub(crate) fn forget_if_done(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file(file)?;
        if cached.opens > 0 || !cached.is_below() {
            return Ok(());
        }
        self.forget_contents(file)?;
        self.unsynced.end_file(file.0);
        self.files[file.0 as usize] = None;
        Ok(())
    }

    /// The pool knows nothing of the file any more, durably; all of it is below, durably. With its record its entries count no longer.
    pub(crate) fn forget_contents(&mut self, file: FileId) -> Result<(), FileError> {
        let cached = self.file_mut(file)?;
        if cached.record.take().is_some() {
            self.medium.store_record_state(file.0, 0);
            self.medium.fence()?;
        }
        let cached = self.file_mut(file)?;
        cached.newest = Default::default();
        cached.out_of_sync.clear();
        cached.tail = None;
        cached.dropped += 1;
        let of_file = |slot: &Option<Slot>| slot.is_some_and(|slot| slot.extent.file == file.0);
        self.dying.retain(|slot| !of_file(&self.slots[*slot as usize]));
        let slots: Vec<u32> = (0..).zip(&self.slots).filter(|(_, slot)| of_file(slot)).map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.free_slot(slot));
        Ok(())
    }
}

impl<R> FileCache<R> {
    /// The region.
    pub fn into_region(self) -> R {
        self.state.into_inner().medium.region
    }
}
