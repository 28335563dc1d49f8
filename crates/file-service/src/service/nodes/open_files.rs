//! The regular files that programs have open, or that the pool is not done with.
//!
//! A file that is only read is read below. Its first change makes it a file of the pool, and from
//! then on the pool is asked for everything about its contents, until nobody has it open and all of
//! it is below. If the pool has no record for one more file, the file is written below as long as
//! it is open: its syncs are the kernel's. So is a file that bypasses the pool.

mod errno;
mod gone;
pub(crate) mod leases;
pub(crate) mod mappings;
pub(crate) mod placement;
pub(crate) mod privileges;
mod shares;
mod writes;

use crate::pool::read_admission::ReadAdmission;
use crate::service::nodes::groups::FileGroups;
use crate::service::nodes::open_files::errno::{errno_of, refused_as};
use crate::service::nodes::open_files::leases::{FileLease, Leases};
use crate::service::nodes::open_files::mappings::Mappings;
use crate::service::nodes::open_files::placement::Requested;
use crate::service::nodes::open_files::privileges::PossiblePrivileges;
use crate::service::nodes::open_files::writes::point_of;
pub(crate) use crate::service::nodes::open_files::writes::{FileEnd, WriteAt, word_of_now};
use rustix::io::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use tidegate_access_trace::ContextBoard;
use tidegate_file_cache::{
    BackingFile, Fallocate, FileError, FileIdentity, FileLength, FilePool, PoolFile, Sought, Synced,
};
use tidegate_layout::file_cache::modified_time;
use tidegate_media::MappedRegion;
use tidegate_mount_status::{FileStates, MountCounts, ReadsByPattern};
use tidegate_policy::placement::Bypass;
use tidegate_policy::writeback::shares::Shares;
use tidegate_source_files::Route;
use tidegate_source_files::SyncTimes;
use tidegate_source_files::backing::OpenedFile;
use tidegate_source_files::name_log::{Made, NameLog};
use tidegate_source_files::nameless::KeptFile;
use tidegate_source_files::recovery::hint_of;

/// The pool, and the files of it.
pub(crate) struct OpenFiles {
    pub(crate) names: Arc<NameLog>,
    pub(crate) pool: FilePool<MappedRegion>,
    files: Mutex<HashMap<FileIdentity, Counted>>,
    began: Instant,
    /// The time that the pool was told last.
    told: Mutex<Duration>,
    /// Syncs by programs that completed in persistent memory.
    syncs: SyncTimes,
    /// Bytes of files without a place in the pool that were read below.
    read_below: AtomicU64,
    /// Reads of them that were answered from below.
    pub(crate) admission: ReadAdmission,
    /// Such reads of files without a place in the pool.
    reads_below: AtomicU64,
    /// Groups of writes that were committed.
    groups: AtomicU64,
    /// Requests of the kernel that were answered.
    requests: AtomicU64,
    /// Syncs of files beside the pool.
    syncs_beside: AtomicU64,
    /// What programs wrote that waits for the disk.
    shares: Mutex<Shares>,
    /// Writes that made room first.
    held_back: AtomicU64,
    /// Threads that make room now.
    payers: AtomicUsize,
    pub(crate) leases: Leases,
    pub(crate) mappings: Mappings,
    /// Files that stay beside the pool.
    pub(crate) bypass: Bypass,
    /// Where programs with the direct path say their contexts, if they can.
    pub(crate) board: OnceLock<ContextBoard>,
    /// Why files are not written back, if the last step of write-back failed.
    pub(crate) obstacle: Mutex<Option<FileError>>,
}

struct Counted {
    file: Arc<OpenFile>,
    /// How often programs have it open.
    opens: u64,
    /// Whether the kernel forgot it when it had no name that the kernel knew.
    is_unreachable: bool,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading, and writing where that is allowed.
    Read,
    /// Writing, and nothing less.
    Write,
    /// Writing, as it was opened before: if SOURCE can only be read now, then later.
    WriteAgain,
}

/// Whether a read or write wants to be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// As others are.
    Usual,
    /// Where it is cached already: `O_DIRECT`.
    Direct,
}

/// Whether a file runs with privileges of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileged {
    /// It may.
    Maybe,
    /// It was just made, and has none.
    No,
}

/// A regular file that is open.
pub(crate) struct OpenFile {
    identity: FileIdentity,
    state: RwLock<OpenState>,
    /// Privileges that a write has to take away.
    pub(crate) privileges: PossiblePrivileges,
    /// What reaches the file if it has no name, or may not be opened.
    kept: Mutex<Option<Arc<KeptFile>>>,
    /// Whether direct writes went below, and whether a program synced them since.
    owes_direct: AtomicBool,
    syncs_direct: AtomicBool,
    /// Whether it is noted that it lost its last name.
    is_noted_gone: AtomicBool,
    pub(crate) groups: FileGroups,
    pub(crate) lease: FileLease,
}

struct OpenState {
    backing: Arc<OpenedFile>,
    /// The file below as the cache has it, if the file was made through this mount.
    made: Option<Arc<Made>>,
    can_write: bool,
    hint: Vec<u8>,
    /// Whether the file bypasses the pool, by the name that it was opened by.
    is_bypassed: bool,
    served_from: ServedFrom,
}

/// Where the contents are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedFrom {
    /// At the file below, which has everything: nothing was changed.
    File,
    /// In the pool.
    Pool(PoolFile),
    /// At the file below, as the pool has no room for the file's record, or the file bypasses it.
    BesidePool,
}

impl OpenFiles {
    pub(crate) fn new(pool: FilePool<MappedRegion>, names: Arc<NameLog>) -> OpenFiles {
        OpenFiles {
            names,
            pool,
            files: Mutex::default(),
            began: Instant::now(),
            told: Mutex::default(),
            syncs: SyncTimes::default(),
            read_below: AtomicU64::new(0),
            admission: ReadAdmission::new(),
            reads_below: AtomicU64::new(0),
            groups: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            syncs_beside: AtomicU64::new(0),
            shares: Mutex::default(),
            held_back: AtomicU64::new(0),
            payers: AtomicUsize::new(0),
            leases: Leases::default(),
            mappings: Mappings::default(),
            bypass: Bypass::default(),
            board: OnceLock::new(),
            obstacle: Mutex::default(),
        }
    }

    /// Tells the pool the time, by which it dates writes, and says what it was told: later than all
    /// that was written before.
    pub(crate) fn tick(&self) -> Duration {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = self.began.elapsed().max(*told + Duration::from_millis(1));
        self.pool.tick(to_millis(*told));
        *told
    }

    /// Takes over a file of the pool that recovery found below.
    pub(crate) fn adopt(&self, backing: Arc<OpenedFile>, hint: Vec<u8>) -> std::result::Result<(), FileError> {
        let identity = backing.identity();
        let found: Arc<dyn BackingFile> = backing.clone();
        let number = self.pool.open_file(&found, &hint)?;
        backing.set_modified(modified_time(self.pool.modified(number)?).map(point_of));
        let served_from = ServedFrom::Pool(number);
        // What the pool has of a file stays there, until it is written back and nobody has it open.
        let state = OpenState { backing, made: None, can_write: true, hint, is_bypassed: false, served_from };
        let file = OpenFile::new(identity, state);
        self.files().insert(identity, Counted::new(Arc::new(file), 0));
        Ok(())
    }

    /// The file, if it is open or the pool is not done with it.
    pub(crate) fn get(&self, identity: FileIdentity) -> Option<Arc<OpenFile>> {
        let file = self.files().get(&identity)?.file.clone();
        file.lease.begin_request();
        Some(file)
    }

    /// Whether a program has the file open.
    pub(crate) fn is_open(&self, identity: FileIdentity) -> bool {
        self.files().get(&identity).is_some_and(|known| known.opens > 0)
    }

    /// Whether the files below have everything.
    pub(crate) fn is_written_back(&self) -> bool {
        let fill = self.pool.fill();
        fill.dirty == 0 && fill.out_of_sync == 0 && self.pool.detached().is_empty()
    }

    /// How many files are in which state.
    pub(crate) fn states(&self) -> FileStates {
        let mut states = FileStates { retained: self.pool.detached().len() as u64, ..FileStates::default() };
        let known: Vec<_> = self.files().values().map(|known| (known.file.clone(), known.opens)).collect();
        for (file, opens) in known {
            states.open += u64::from(opens > 0);
            let state = file.read_state();
            match state.served_from {
                ServedFrom::File => {}
                ServedFrom::Pool(_) => states.in_pool += 1,
                ServedFrom::BesidePool if state.is_bypassed => states.bypassed += 1,
                ServedFrom::BesidePool => states.beside_pool += 1,
            }
        }
        states
    }

    /// Counts a request of the kernel.
    pub(crate) fn count_request(&self) {
        // Relaxed: it is read for people, who compare nothing with it.
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done since the mount began; `below` are the syncs of the files there.
    pub(crate) fn counts(&self, below: &SyncTimes) -> MountCounts {
        let (counters, stores) = (self.pool.counters(), self.pool.region().counters());
        let (names, _) = self.names.counters();
        let (timed_syncs, timed_syncs_ns) = self.syncs.read();
        let (disk_syncs, disk_syncs_ns) = below.read();
        let [placed_by_stack, placed_by_thread] = self.board.get().map(ContextBoard::counts).unwrap_or_default();
        MountCounts {
            up_ns: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            requests: self.requests.load(Ordering::Relaxed),
            names: names.recorded,
            names_below: names.syncs_below,
            syncs: counters.commits,
            syncs_below: counters.below + self.syncs_beside.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            leases_granted: self.leases.counts.granted.load(Ordering::Relaxed),
            leases_ended: self.leases.counts.ended.load(Ordering::Relaxed),
            leases_joined: self.leases.counts.joined.load(Ordering::Relaxed),
            leases_extended: self.leases.counts.extended.load(Ordering::Relaxed),
            leases_reaped: self.leases.counts.reaped.load(Ordering::Relaxed),
            mappings_upgraded: self.mappings.upgraded.load(Ordering::Relaxed),
            mappings_recalled: self.mappings.recalled.load(Ordering::Relaxed),
            adopted_bytes: counters.bytes_adopted,
            synced_bytes: counters.bytes_committed,
            written_back_bytes: counters.bytes_written_back,
            reads_dram: counters.reads_dram,
            reads_pool: counters.reads_pool,
            reads_below: counters.reads_below + self.reads_below.load(Ordering::Relaxed),
            direct_bytes: counters.bytes_written_direct,
            // Relaxed: it is read for people.
            held_back: self.held_back.load(Ordering::Relaxed),
            admitted_bytes: counters.bytes_admitted,
            read_dram_bytes: counters.bytes_read_dram,
            read_pool_bytes: counters.bytes_read_pool,
            read_below_bytes: counters.bytes_read_below + self.read_below.load(Ordering::Relaxed),
            timed_syncs,
            timed_syncs_ns,
            disk_syncs,
            disk_syncs_ns,
            reads_by_pattern: ReadsByPattern::of(&counters.by_pattern),
            reads_kept: self.board.get().map_or(0, ContextBoard::kept_reads),
            placed_by_stack,
            placed_by_thread,
            lines_flushed: stores.lines_flushed,
            fences: stores.fences,
        }
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.files().len()
    }

    /// Opens a file that was just made and recorded.
    pub(crate) fn open_made(
        &self,
        (route, made): (&Route, OpenedFile),
        privileges: Privileged,
    ) -> Result<Arc<OpenFile>> {
        let file = self.open((made.identity(), route), Access::Read, || Ok((made, true)))?;
        // No other request knows the file yet.
        if privileges == Privileged::No {
            file.privileges.begin_look();
        }
        let mut state = file.write_state();
        if state.served_from == ServedFrom::File {
            state.made = self.names.made(&state.backing);
        }
        drop(state);
        Ok(file)
    }

    /// Opens a file once more. `open` opens it below, for writing too if asked; it is
    /// called if the file is not open yet, or not for that.
    pub(crate) fn open(
        &self,
        (identity, route): (FileIdentity, &Route),
        access: Access,
        open: impl FnOnce() -> Result<(OpenedFile, bool)>,
    ) -> Result<Arc<OpenFile>> {
        if let Some(file) = self.open_known(identity) {
            let allowed = if access == Access::Read { Ok(()) } else { file.allow_writing(open) };
            return match allowed {
                Ok(()) => {
                    self.look_again(&file);
                    Ok(file)
                }
                Err(errno) => {
                    self.close(file);
                    Err(errno)
                }
            };
        }
        let (backing, can_write) = open()?;
        let hint = hint_of(route);
        let is_bypassed = route.path().is_some_and(|path| self.bypass.of(&path).is_some());
        let (backing, served_from) = (Arc::new(backing), ServedFrom::File);
        let state = OpenState { backing, made: None, can_write, hint, is_bypassed, served_from };
        let opened = Arc::new(OpenFile::new(identity, state));
        // Another thread may have been faster: then this thread uses that one's file.
        let mut files = self.files();
        let known = files.entry(identity).or_insert_with(|| Counted::new(opened.clone(), 0));
        known.opens += 1;
        let file = known.file.clone();
        file.lease.begin_request();
        drop(files);
        file.take_over(opened);
        self.look_again(&file);
        Ok(file)
    }

    /// Whatever the pool has of a file that is opened counts if nobody changed the file below. If
    /// that cannot be told, the file is read below.
    fn look_again(&self, file: &OpenFile) {
        let state = file.read_state();
        let looked = match state.served_from {
            ServedFrom::Pool(number) => self.pool.revalidate(number),
            ServedFrom::File if state.may_wake() && self.pool.rests(file.identity) => {
                drop(state);
                self.wake(file)
            }
            ServedFrom::File | ServedFrom::BesidePool => Ok(()),
        };
        if let Err(error) = looked {
            tracing::debug!("the pool's copy of a file is not used: {error}");
        }
    }

    /// Makes a file that can be written one of the pool, if it is not.
    fn wake(&self, file: &OpenFile) -> std::result::Result<(), FileError> {
        let mut state = file.write_state();
        if state.may_wake() {
            state.served_from = ServedFrom::Pool(self.pool.open_file(&state.below(), &state.hint)?);
        }
        Ok(())
    }

    fn open_known(&self, identity: FileIdentity) -> Option<Arc<OpenFile>> {
        let mut files = self.files();
        let known = files.get_mut(&identity)?;
        known.opens += 1;
        known.file.lease.begin_request();
        Some(known.file.clone())
    }

    /// The opposite of [`OpenFiles::open`].
    pub(crate) fn close(&self, file: Arc<OpenFile>) {
        let mut files = self.files();
        let Some(known) = files.get_mut(&file.identity) else { return };
        known.opens = known.opens.saturating_sub(1);
        // A mapping by the kernel holds its handle: with the last one, all have ended.
        known.file.lease.is_mapped.fetch_and(known.opens > 0, Ordering::Relaxed);
        if known.is_unused() {
            files.remove(&file.identity);
        }
    }

    /// Has the pool forget every file, as at the end of a mount: what is left of a file that was
    /// cut is a sync below.
    pub(crate) fn drain_all(&self) -> std::result::Result<(), FileError> {
        self.let_go()?;
        for file in self.all() {
            if let ServedFrom::Pool(number) = file.read_state().served_from {
                self.pool.drain(number)?;
            }
        }
        self.let_go()
    }

    /// Every file.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.files().values().map(|known| known.file.clone()).collect()
    }

    /// The length of a file, as programs see it: None, if it is that of the file below.
    pub(crate) fn size(&self, file: &OpenFile) -> Result<Option<u64>> {
        // First: a commit of the group waits for the state.
        let of_group = file.groups.end_of_open();
        let state = file.read_state();
        let size = match (state.served_from, of_group) {
            (ServedFrom::Pool(number), _) => {
                self.follow_lease(file, &state)?;
                self.pool.size(number).map_err(|error| errno_of(&error))?
            }
            (ServedFrom::File | ServedFrom::BesidePool, None) => return Ok(None),
            (ServedFrom::File | ServedFrom::BesidePool, Some(_)) => {
                tidegate_source_files::about(state.backing.descriptor())?.stx_size
            }
        };
        Ok(Some(size.max(of_group.unwrap_or(0))))
    }

    /// Copies bytes from offset `at`; fewer at the end of the file only. What a direct read finds
    /// only below does not come to the pool.
    pub(crate) fn read(&self, file: &OpenFile, at: u64, out: &mut [u8], by: Requested) -> Result<usize> {
        let state = file.read_state();
        self.end_lease(file, &state)?;
        file.lease.may_have_pages();
        match state.served_from {
            ServedFrom::Pool(number) => {
                let (read, below) = self.pool.read_and_tell(number, at, out).map_err(|error| errno_of(&error))?;
                self.note_read((file, number), (at, read, below), by);
                Ok(read)
            }
            ServedFrom::File | ServedFrom::BesidePool => {
                let read = state.backing.read(at, out).map_err(|refused| refused_as(&refused))?;
                // Relaxed: it is read for people.
                self.read_below.fetch_add(read as u64, Ordering::Relaxed);
                self.reads_below.fetch_add(1, Ordering::Relaxed);
                if state.can_write && state.served_from == ServedFrom::File && by.caching == Caching::Usual {
                    self.admission.note(file.identity, at, read);
                }
                Ok(read)
            }
        }
    }

    /// Cuts or lengthens a file.
    pub(crate) fn truncate(&self, file: &OpenFile, size: u64) -> Result<()> {
        file.groups.change();
        let state = file.read_state();
        self.end_lease(file, &state)?;
        self.note_change(&state)?;
        match state.served_from {
            ServedFrom::Pool(number) => self.pool.truncate(number, size).map_err(|error| errno_of(&error)),
            ServedFrom::File | ServedFrom::BesidePool => {
                self.pool.forget_resting(file.identity).map_err(|error| errno_of(&error))?;
                state.below().set_len(size).map_err(|refused| refused_as(&refused))
            }
        }
    }

    /// Whether the file is one of the pool.
    pub(crate) fn is_pooled(&self, file: &OpenFile) -> bool {
        matches!(file.read_state().served_from, ServedFrom::Pool(_))
    }

    /// Makes everything durable that was written to a file before, and done to names.
    pub(crate) fn sync(&self, file: &OpenFile) -> Result<()> {
        self.names.commit()?;
        let state = file.read_state();
        self.end_lease(file, &state)?;
        match state.served_from {
            ServedFrom::Pool(number) => {
                let began = Instant::now();
                if self.pool.sync(number).map_err(|error| errno_of(&error))? == Synced::Atomically {
                    self.syncs.count(began);
                }
                // Relaxed: see `write_direct`.
                if file.owes_direct.load(Ordering::Relaxed) {
                    file.syncs_direct.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
            ServedFrom::File | ServedFrom::BesidePool => {
                self.syncs_beside.fetch_add(1, Ordering::Relaxed);
                state.below().sync_with_times().map_err(|refused| refused_as(&refused))
            }
        }
    }

    /// Changes the room of a range.
    pub(crate) fn fallocate(
        &self,
        file: &OpenFile,
        at: u64,
        len: u64,
        how: Fallocate,
        length: FileLength,
    ) -> Result<()> {
        let state = file.read_state();
        self.end_lease(file, &state)?;
        match state.served_from {
            ServedFrom::Pool(number) => {
                self.pool.fallocate(number, at, len, how, length).map_err(|error| errno_of(&error))
            }
            ServedFrom::File | ServedFrom::BesidePool => {
                self.pool.forget_resting(file.identity).map_err(|error| errno_of(&error))?;
                state.made.iter().for_each(|made| made.note_change());
                state.backing.fallocate_to(at, len, how, length).map_err(|refused| refused_as(&refused))
            }
        }
    }

    /// Where data or a hole begins at `at` or later.
    pub(crate) fn seek(&self, file: &OpenFile, at: u64, sought: Sought) -> Result<Option<u64>> {
        let state = file.read_state();
        self.end_lease(file, &state)?;
        match state.served_from {
            ServedFrom::Pool(number) => self.pool.seek(number, at, sought).map_err(|error| errno_of(&error)),
            ServedFrom::File | ServedFrom::BesidePool => {
                state.backing.seek(at, sought).map_err(|refused| refused_as(&refused))
            }
        }
    }

    /// The file's state, for a change of its contents: it is a file of the pool then, if it does
    /// not bypass the pool, which has a record for it.
    fn changing<'a>(&self, file: &'a OpenFile) -> Result<RwLockReadGuard<'a, OpenState>> {
        loop {
            let state = file.read_state();
            if state.served_from != ServedFrom::File {
                return Ok(state);
            }
            drop(state);
            let mut state = file.write_state();
            if state.served_from == ServedFrom::File && state.is_bypassed {
                self.pool.forget_resting(file.identity).map_err(|error| errno_of(&error))?;
                state.served_from = ServedFrom::BesidePool;
            } else if state.served_from == ServedFrom::File {
                state.served_from = match self.pool.open_file(&state.below(), &state.hint) {
                    Ok(number) => ServedFrom::Pool(number),
                    Err(FileError::TooManyFiles) => ServedFrom::BesidePool,
                    Err(error) => return Err(errno_of(&error)),
                };
            }
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileIdentity, Counted>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn new(file: Arc<OpenFile>, opens: u64) -> Counted {
        Counted { file, opens, is_unreachable: false }
    }

    /// Whether nobody but the caller works with the file, and the pool is done with it. A file
    /// whose state is being changed is in use, and so is one that another thread has got: it may
    /// make it a file of the pool.
    fn is_unused(&self) -> bool {
        let is_below = |state: RwLockReadGuard<'_, OpenState>| !matches!(state.served_from, ServedFrom::Pool(_));
        // One is the table's, one the caller's. Others are made under the table's lock alone.
        let is_got = Arc::strong_count(&self.file) > 2;
        self.opens == 0 && !is_got && self.file.state.try_read().is_ok_and(is_below)
    }
}

impl OpenState {
    /// Whether the file may become one of the pool though nothing of it is changed.
    fn may_wake(&self) -> bool {
        self.served_from == ServedFrom::File && self.can_write && !self.is_bypassed
    }

    /// The file below, as the cache has it.
    fn below(&self) -> Arc<dyn BackingFile> {
        match &self.made {
            Some(made) => made.clone(),
            None => self.backing.clone(),
        }
    }
}

impl OpenFile {
    /// Has the file below opened for writing by `open`, unless it is.
    fn allow_writing(&self, open: impl FnOnce() -> Result<(OpenedFile, bool)>) -> Result<()> {
        if self.read_state().can_write {
            return Ok(());
        }
        let (backing, can_write) = open()?;
        self.replace_backing((Arc::new(backing), can_write));
        Ok(())
    }

    /// Takes over the descriptor of `other`, the same file opened by another thread, if only that
    /// one can be written.
    fn take_over(&self, other: Arc<OpenFile>) {
        let Some(OpenState { backing, can_write: true, .. }) = Arc::into_inner(other).map(OpenFile::into_state) else {
            return;
        };
        self.replace_backing((backing, true));
    }

    fn replace_backing(&self, (backing, can_write): (Arc<OpenedFile>, bool)) {
        let mut state = self.write_state();
        if state.can_write {
            return;
        }
        if self.is_kept() {
            backing.note_removal();
        }
        (state.backing, state.made, state.can_write) = (backing, None, can_write);
    }

    fn into_state(self) -> OpenState {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the pool forget the file, if everything of it is below. Says whether the pool has
    /// nothing of it.
    fn leave_pool(&self, pool: &FilePool<MappedRegion>) -> std::result::Result<bool, FileError> {
        let mut state = self.write_state();
        let settle = || state.backing.settle();
        match state.served_from {
            ServedFrom::Pool(number) if !pool.close_if_done(number, settle)? => return Ok(false),
            ServedFrom::Pool(_) => state.served_from = ServedFrom::File,
            ServedFrom::File | ServedFrom::BesidePool => settle()?,
        }
        state.backing.set_modified(None);
        Ok(true)
    }

    /// The file that is open, without a pool.
    #[cfg(test)]
    pub(crate) fn of_test(source: &tidegate_source_files::SourceDirectory, file: std::fs::File) -> Arc<OpenFile> {
        let backing = Arc::new(OpenedFile::new(source, file.into()).expect("readable"));
        let (identity, served_from) = (backing.identity(), ServedFrom::File);
        let state =
            OpenState { backing, made: None, can_write: true, hint: Vec::new(), is_bypassed: false, served_from };
        Arc::new(OpenFile::new(identity, state))
    }

    fn new(identity: FileIdentity, state: OpenState) -> OpenFile {
        OpenFile {
            identity,
            state: RwLock::new(state),
            privileges: PossiblePrivileges::unknown(),
            kept: Mutex::default(),
            owes_direct: AtomicBool::new(false),
            syncs_direct: AtomicBool::new(false),
            is_noted_gone: AtomicBool::new(false),
            groups: FileGroups::default(),
            lease: FileLease::unknown(),
        }
    }

    fn note_gone_once(&self, note_gone: impl Fn(FileIdentity) -> Result<()>) -> Result<()> {
        // Relaxed: a second note does no harm.
        if !self.is_noted_gone.load(Ordering::Relaxed) {
            note_gone(self.identity)?;
            self.is_noted_gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether something reaches the file without its name.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Keeps what reaches the file, which loses its name, for as long as the pool may need it.
    pub(crate) fn keep(&self, kept: Arc<KeptFile>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        self.with_backing(OpenedFile::note_removal);
    }

    /// Whether it never had a name, or programs took the last one away.
    fn has_no_name(&self) -> bool {
        self.with_backing(OpenedFile::has_no_name)
    }

    /// Calls `look` with the file below.
    pub(crate) fn with_backing<T>(&self, look: impl FnOnce(&OpenedFile) -> T) -> T {
        look(&self.read_state().backing)
    }

    /// The file below.
    pub(crate) fn backing(&self) -> Arc<OpenedFile> {
        Arc::clone(&self.read_state().backing)
    }

    fn read_state(&self) -> RwLockReadGuard<'_, OpenState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, OpenState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time in the pool's unit.
pub(crate) fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::write_back::write_back;
    use rustix::fs::OFlags;
    use std::os::unix::fs::MetadataExt;
    use std::sync::mpsc;
    use tidegate_file_cache::Persistence;
    use tidegate_file_cache::{PoolSpec, dram_bytes, format};
    use tidegate_media::Region;
    use tidegate_source_files::SourceDirectory;

    /// A folder with two files, and a pool for them.
    fn testbed() -> (tempfile::TempDir, Arc<SourceDirectory>, OpenFiles) {
        let folder = tempfile::tempdir().expect("a folder");
        ["one", "other"].iter().for_each(|name| std::fs::write(folder.path().join(name), b"old").expect("made"));
        let source = Arc::new(SourceDirectory::open(folder.path()).expect("a directory"));
        let region = Arc::new(MappedRegion::anonymous(16 << 20).expect("memory"));
        format(&*region, &PoolSpec::usual([7; 16])).expect("laid out");
        let bytes = dram_bytes(&*region, 1 << 20).expect("laid out");
        let memory = |_| -> std::result::Result<Arc<dyn Region>, _> {
            Ok(Arc::new(MappedRegion::anonymous(bytes).expect("memory")))
        };
        let pool = FilePool::open(&region, memory).expect("a pool");
        let names = Arc::new(NameLog::absent(&source));
        (folder, source, OpenFiles::new(pool, names))
    }

    fn open(files: &OpenFiles, source: &SourceDirectory, name: &str, wait: impl FnOnce()) -> Arc<OpenFile> {
        let route = Route::Names(vec![name.as_bytes().into()]);
        let opened = || OpenedFile::new(source, source.open_at(&route, OFlags::RDWR).expect("it is there"));
        let identity = opened().expect("readable").identity();
        let opened = || {
            wait();
            Ok((opened().expect("readable"), true))
        };
        files.open((identity, &route), Access::Write, opened).expect("opened")
    }

    #[test]
    fn a_file_below_that_takes_long_to_open_keeps_no_other_waiting() {
        let (_folder, source, files) = testbed();
        let (begun, wait_for_begin) = mpsc::channel();
        let (go, wait_for_go) = mpsc::channel::<()>();
        std::thread::scope(|threads| {
            let slow = threads.spawn(|| {
                open(&files, &source, "one", move || {
                    begun.send(()).expect("the test listens");
                    wait_for_go.recv().expect("the test goes on");
                })
            });
            wait_for_begin.recv().expect("it begins");
            files.close(open(&files, &source, "other", || {}));
            // Meanwhile the same file is opened and closed, and opened once more.
            files.close(open(&files, &source, "one", || {}));
            let again = open(&files, &source, "one", || {});
            go.send(()).expect("it waits");
            let slow = slow.join().expect("it ends");
            assert!(Arc::ptr_eq(&slow, &again), "one file has one state");
            files.close(slow);
            assert_eq!(files.len(), 1);
            files.close(again);
            assert_eq!(files.len(), 0);
        });
    }

    #[test]
    fn a_file_that_is_busy_keeps_no_other_waiting_and_is_let_go_later() {
        let (_folder, source, files) = testbed();
        let [busy, other] = ["one", "other"].map(|name| open(&files, &source, name, || {}));
        let changed = busy.clone();
        let held = changed.write_state();
        files.close(busy);
        files.close(other);
        assert_eq!(files.len(), 1);
        drop(held);
        drop(changed);
        files.let_go().expect("nothing is to be written");
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn a_closed_file_stays_until_it_is_below() {
        let (folder, source, files) = testbed();
        let file = open(&files, &source, "one", || {});
        files.write(&file, 0, b"new", Persistence::Synchronous).expect("written");
        files.close(file);
        files.let_go().expect("nothing refuses");
        assert_eq!((files.len(), std::fs::read(folder.path().join("one")).expect("readable")), (1, b"old".to_vec()));
        files.pool.write_back_step(0, u64::MAX).expect("written back");
        files.let_go().expect("nothing refuses");
        assert_eq!((files.len(), std::fs::read(folder.path().join("one")).expect("readable")), (0, b"new".to_vec()));
        assert!(files.pool.files().is_empty());
    }

    /// Such a thread may make it a file of the pool, as one that admits a read.
    #[test]
    fn a_closed_file_stays_while_another_thread_works_with_it() {
        let (_folder, source, files) = testbed();
        let file = open(&files, &source, "one", || {});
        let identity = file.identity;
        let got = files.get(identity).expect("it is open");
        files.close(file);
        files.let_go().expect("nothing is to be written");
        files.wake(&got).expect("it is one of the pool");
        assert!(files.get(identity).is_some_and(|known| Arc::ptr_eq(&known, &got)), "the pool's file has an owner");
        drop(got);
        files.let_go().expect("nothing refuses");
        assert!(files.get(identity).is_none() && files.pool.files().is_empty());
    }

    /// Where no log of names says when the loss of a name is durable, as here.
    #[test]
    fn of_a_file_that_nobody_reaches_the_pool_has_nothing_once_it_is_below() {
        let (folder, source, files) = testbed();
        let clean_after = |name: &str, is_forgotten_early: bool| {
            let file = open(&files, &source, name, || {});
            let identity = file.identity;
            files.write(&file, 0, &[5; 9000], Persistence::Synchronous).expect("written");
            std::fs::remove_file(folder.path().join(name)).expect("removed");
            file.with_backing(OpenedFile::note_removal);
            files.close(file);
            let forget = || files.nobody_reaches(&[identity]);
            is_forgotten_early.then(forget);
            files.let_go().expect("nothing refuses");
            assert!(files.pool.fill().out_of_sync > 0, "its name may come back");
            files.pool.write_back_step(0, u64::MAX).expect("written back");
            files.let_go().expect("nothing refuses");
            let clean = files.pool.clean_bytes();
            forget();
            (clean, files.pool.clean_bytes())
        };
        assert_eq!(clean_after("one", true), (0, 0));
        let (clean, left) = clean_after("other", false);
        assert!(clean >= 9000 && left == 0, "until the kernel forgets it, a program may link it: {clean}, {left}");
    }

    /// Nobody has to unmount for that, and the room reserved behind the end goes too.
    #[test]
    fn a_closed_file_that_was_cut_leaves_the_pool() {
        let (folder, source, files) = testbed();
        let file = open(&files, &source, "one", || {});
        files.write(&file, 0, &[5; 9000], Persistence::Synchronous).expect("written");
        files.pool.write_back_step(0, u64::MAX).expect("written back");
        files.truncate(&file, 2).expect("cut");
        files.close(file);
        files.let_go().expect("nothing refuses");
        assert_eq!(files.len(), 1);
        write_back(&files, |_| false).expect("written back");
        files.let_go().expect("nothing refuses");
        assert_eq!((files.len(), std::fs::read(folder.path().join("one")).expect("readable")), (0, vec![5; 2]));
    }

    /// Whether room for its beginning is reserved or counted.
    #[test]
    fn a_short_file_is_lent_with_little_room_behind_it() {
        let (_folder, source, files) = testbed();
        let file = open(&files, &source, "one", || {});
        files.write(&file, 0, &[5; 9000], Persistence::Asynchronous).expect("written");
        let state = file.read_state();
        let ServedFrom::Pool(number) = state.served_from else { panic!("it is the pool's") };
        assert_eq!(files.room_for(&state, number, 9000..9100), Ok(0..2 << 20));
    }

    #[test]
    fn a_file_that_leaves_the_pool_has_the_room_that_it_needs_and_its_time() {
        let (folder, source, files) = testbed();
        let file = open(&files, &source, "one", || {});
        files.write(&file, 0, &[5; 9000], Persistence::Synchronous).expect("written");
        let written = file.with_backing(OpenedFile::modified).expect("it was written to");
        files.close(file);
        files.pool.write_back_step(0, u64::MAX).expect("written back");
        files.let_go().expect("nothing refuses");
        let about = std::fs::metadata(folder.path().join("one")).expect("it is there");
        assert_eq!((about.len(), about.blocks() * 512), (9000, 12288));
        assert_eq!((about.mtime(), about.mtime_nsec()), (written.tv_sec, written.tv_nsec));
    }
}
