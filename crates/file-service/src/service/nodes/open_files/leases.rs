//! Files lent to programs, which write them without asking: see `docs/decisions/0038`.
//!
//! Whoever claims a file must not meet a request that is under way: its answer would be in the
//! kernel's caches when the program writes. So each request about a file raises the file's count
//! before it takes the file's state. A claim reads the count, has the kernel drop what it has, and
//! takes the state for itself. If the count is the same then, every earlier request was answered
//! before the kernel dropped its answer, and every later one finds the lease.

use super::placement::Requested;
use super::{OpenFile, OpenFiles, OpenState, ServedFrom, errno_of, point_of};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, Result};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidegate_file_cache::{FileError, PoolFile, PoolLease, Sharer, lease_room};
use tidegate_file_wire::{LOCATES, Read};
use tidegate_fuse::{Handle, NodeId};
use tidegate_host::threads::DemandBell;
use tidegate_layout::file_cache::{Class, LeaseGrant, modified_time};
use tidegate_media::{MappedPart, Region};

/// Bytes of a lease log: room for 2,044 writes that were not taken over.
const LOG_BYTES: u64 = 64 << 10;
/// Bytes of one that several processes are to have: a process that slept finds what the others
/// wrote, up to some 7,000 writes.
const COMMON_LOG_BYTES: u64 = 256 << 10;
/// A lease for so many bytes of the pool, at least one: each takes a log and a chunk of 1 MiB, or
/// more chunks as long as there is room.
const BYTES_PER_LEASE: u64 = 8 << 20;
/// Leases of one file that were not released, the one that goes on among them.
const LEASES_PER_FILE_MAX: usize = 4;
/// A lease that nobody has mapped yet is not taken back before this.
const UNMAPPED_MAX: Duration = Duration::from_secs(5);

/// What one file has to do with leases.
pub(crate) struct FileLease {
    /// Requests so far.
    requests: AtomicU64,
    /// Whether the file may be lent: only whoever has its state for itself makes it so.
    is_lent: AtomicBool,
    /// Whether the kernel may have pages of the file.
    has_pages: AtomicBool,
    /// Whether a program wrote it by a shared mapping of the kernel, while it was open.
    pub(super) is_mapped: AtomicBool,
    /// Whether the kernel is to keep no pages: programs have pages of the pool mapped.
    is_direct: AtomicBool,
    /// Whether several programs had one lease.
    is_common: AtomicBool,
    /// Whether a program upgraded its mappings, and gives them back when that is wanted.
    is_upgraded: AtomicBool,
    /// Whether somebody waits for that.
    is_recalled: AtomicBool,
}

impl FileLease {
    /// Of a file that is opened: the kernel may have pages of it.
    pub(super) fn unknown() -> FileLease {
        FileLease {
            requests: AtomicU64::new(0),
            is_lent: AtomicBool::new(false),
            has_pages: AtomicBool::new(true),
            is_mapped: AtomicBool::new(false),
            is_direct: AtomicBool::new(false),
            is_common: AtomicBool::new(false),
            is_upgraded: AtomicBool::new(false),
            is_recalled: AtomicBool::new(false),
        }
    }

    /// A request about the file begins, and has not taken the file's state yet.
    pub(crate) fn begin_request(&self) {
        // Relaxed: the state's lock, which comes next, orders this with the look of a claim.
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Notes that the kernel may have pages of the file; whether it may have had some before.
    pub(crate) fn may_have_pages(&self) -> bool {
        // Relaxed: see `begin_request`.
        let had_pages = self.has_pages.load(Ordering::Relaxed);
        if !had_pages {
            self.has_pages.store(true, Ordering::Relaxed);
        }
        had_pages
    }

    /// Whether the kernel may have pages. Asked by whoever has the file's state for itself.
    fn has_pages(&self) -> bool {
        self.has_pages.load(Ordering::Relaxed)
    }

    /// Whether the kernel may have pages, which are about to be dropped. Asked after
    /// [`FileLease::requests`].
    pub(crate) fn take_pages(&self) -> bool {
        self.has_pages.swap(false, Ordering::Relaxed)
    }

    /// Notes that a program has the file mapped, shared and writable: its stores ask nobody.
    pub(crate) fn note_mapped(&self) {
        self.is_mapped.store(true, Ordering::Relaxed);
    }

    /// Notes that no program has the kernel's pages mapped any more.
    pub(crate) fn note_not_mapped(&self) {
        self.is_mapped.store(false, Ordering::Relaxed);
    }

    /// Notes whether a program has upgraded its mappings. Nobody waits for them then.
    pub(crate) fn set_upgraded(&self, upgraded: bool) {
        self.is_recalled.store(false, Ordering::Relaxed);
        self.is_upgraded.store(upgraded, Ordering::Relaxed);
    }

    /// Whether a program is to give its mappings back from now on: whether it can.
    pub(super) fn recall(&self) -> bool {
        let can = self.is_upgraded.load(Ordering::Relaxed);
        self.is_recalled.fetch_or(can, Ordering::Relaxed);
        can
    }

    /// Whether somebody waits for mappings that were upgraded.
    pub(crate) fn is_recalled(&self) -> bool {
        self.is_recalled.load(Ordering::Relaxed)
    }

    /// Notes whether the kernel is to keep no pages; what held before. Sequentially consistent, as
    /// whoever opens the file adds its handle and asks then, and whoever maps it looks at the
    /// handles then: one of the two sees the other.
    pub(crate) fn set_direct(&self, direct: bool) -> bool {
        self.is_direct.swap(direct, Ordering::SeqCst)
    }

    /// Whether the kernel is to keep no pages.
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::SeqCst)
    }

    /// Whether a program was seen to have the file mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped.load(Ordering::Relaxed)
    }
}

/// Bytes of a node's pages that are not the file's. The kernel is to be told when no request of the
/// thread is under way any more. Of a length it is told nothing: the attributes that it was given
/// while the file was lent are valid for no time, so it asks.
pub(crate) struct StalePages(pub(crate) NodeId, pub(crate) Range<u64>);

/// Every lease that was granted.
#[derive(Default)]
pub(crate) struct Leases {
    granted: Mutex<HashMap<PoolLease, Granted>>,
    /// Inode of the file that is about to be lent; 0: none is.
    lending: AtomicU64,
    stale: Mutex<Vec<StalePages>>,
    has_stale: AtomicBool,
    /// Leases whose programs asked for more blocks.
    asked: Mutex<Vec<PoolLease>>,
    /// Wakes the thread that refills these.
    pub(crate) refills: DemandBell,
    pub(crate) counts: LeaseCounts,
}

/// What was done about leases; relaxed: it is read for people.
#[derive(Default)]
pub(crate) struct LeaseCounts {
    pub(crate) granted: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) extended: AtomicU64,
    pub(crate) reaped: AtomicU64,
}

#[derive(Clone)]
struct Granted {
    file: Arc<OpenFile>,
    /// Those that it was granted by, or joined by, and that are still open.
    handles: BTreeSet<Handle>,
    /// Whether several processes have it, or had.
    is_common: bool,
    /// When it was granted, or joined last.
    at: Instant,
}

/// How long a lease that nobody has mapped stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Its program may be about to map it.
    Usual,
    /// One of its programs has left it: others may have it, or be about to.
    OneLeft,
    /// Nobody has the file open by which it was granted.
    None,
}

impl Leases {
    fn granted(&self) -> MutexGuard<'_, HashMap<PoolLease, Granted>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the kernel is to be told.
    pub(crate) fn note_stale(&self, stale: StalePages) {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner).push(stale);
        // Release, with the acquire of `has_stale`.
        self.has_stale.store(true, Ordering::Release);
    }

    /// Whether the kernel is to be told anything.
    pub(crate) fn has_stale(&self) -> bool {
        self.has_stale.load(Ordering::Acquire)
    }

    /// What the kernel is to be told, which the caller does.
    pub(crate) fn take_stale(&self) -> Vec<StalePages> {
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_stale.store(false, Ordering::Release);
        std::mem::take(&mut *stale)
    }

    fn of_file(&self, file: &Arc<OpenFile>) -> usize {
        self.granted().values().filter(|granted| Arc::ptr_eq(&granted.file, file)).count()
    }

    /// A program asked for more blocks for its lease.
    fn note_asked(&self, lease: PoolLease) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(lease);
        self.refills.ring();
    }

    /// The leases whose programs asked since this was called.
    pub(crate) fn take_asked(&self) -> Vec<PoolLease> {
        std::mem::take(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A handle is closed: the leases that were granted by it, and by none that is still open.
    pub(crate) fn without_handle(&self, handle: Handle) -> Vec<PoolLease> {
        let mut granted = self.granted();
        let is_left = |granted: &mut Granted| granted.handles.remove(&handle) && granted.handles.is_empty();
        granted.iter_mut().filter_map(|(lease, granted)| is_left(granted).then_some(*lease)).collect()
    }
}

impl OpenFiles {
    /// Whether the file may be lent: then the kernel may not rely on its attributes.
    pub(crate) fn is_lent(&self, file: &OpenFile) -> bool {
        let _state = file.read_state();
        file.lease.is_lent.load(Ordering::Relaxed)
    }

    /// Makes a file one of the pool, if it has room for the file's record. Says whether it is one.
    pub(crate) fn is_made_pooled(&self, file: &OpenFile) -> Result<bool> {
        Ok(matches!(self.changing(file)?.served_from, ServedFrom::Pool(_)))
    }

    /// Lends a file, of which the kernel dropped everything after `requests` requests. None: not
    /// now.
    pub(crate) fn lend(
        &self,
        (file, handle): (&Arc<OpenFile>, Handle),
        requests: u64,
        asked: Range<u64>,
    ) -> Result<Option<LeaseGrant>> {
        if !self.has_room_for_lease(file) {
            return Ok(None);
        }
        let state = file.write_state();
        let ServedFrom::Pool(number) = state.served_from else { return Ok(None) };
        // A read that was counted before may have given the kernel pages since they were dropped.
        let is_used = file.lease.requests() != requests || file.lease.has_pages();
        if is_used || file.groups.is_used() {
            return Ok(None);
        }
        self.names.commit()?;
        self.end_lease(file, &state)?;
        self.note_change(&state)?;
        let room = self.room_for(&state, number, asked)?;
        let Some((lease, grant)) = self.lent_with_log(file, number, &room)? else { return Ok(None) };
        // The lease syncs what was written past the pool, as a sync does.
        if file.owes_direct.load(Ordering::Relaxed) {
            file.syncs_direct.store(true, Ordering::Relaxed);
        }
        // Relaxed: it is stored while this thread has the state for itself.
        file.lease.is_lent.store(true, Ordering::Relaxed);
        let handles = BTreeSet::from([handle]);
        let granted = Granted { file: Arc::clone(file), handles, is_common: false, at: Instant::now() };
        self.leases.granted().insert(lease, granted);
        self.leases.counts.granted.fetch_add(1, Ordering::Relaxed);
        self.say_leased();
        Ok(Some(grant))
    }

    /// Lends a file with the largest log that is of use and has room.
    fn lent_with_log(
        &self,
        file: &OpenFile,
        number: PoolFile,
        room: &Range<u64>,
    ) -> Result<Option<(PoolLease, LeaseGrant)>> {
        // Relaxed: it only has the log be larger.
        let is_common = file.lease.is_common.load(Ordering::Relaxed);
        for bytes in is_common.then_some(COMMON_LOG_BYTES).into_iter().chain([LOG_BYTES]) {
            let class = Class::holding(bytes).ok_or(Errno::IO)?;
            match self.pool.lend(number, room.clone(), class).map_err(|error| errno_of(&error)) {
                Ok(None) => {}
                // A claim for which there is no room is made again later.
                Err(Errno::NOSPC | Errno::DQUOT) => break,
                lent => return lent,
            }
        }
        Ok(None)
    }

    /// Has a program that knows its lease as `own`, or another one, share the lease of a file that
    /// goes on, to write `asked`. None: there is none, or no room for that.
    pub(crate) fn join(
        &self,
        file: &OpenFile,
        (handle, own): (Handle, u64),
        asked: &Range<u64>,
    ) -> Result<Option<LeaseGrant>> {
        let state = file.read_state();
        // Relaxed: whoever lends the file has its state for itself.
        let ServedFrom::Pool(number) = state.served_from else { return Ok(None) };
        let Some(lease) = self.pool.lease_of(number).filter(|_| file.lease.is_lent.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        let is_holder = self.pool.lease_numbered(number, own) == Some(lease);
        let by = if is_holder { Sharer::Holder } else { Sharer::Another };
        // Noted first: it is not taken back before it is mapped.
        let mut granted = self.leases.granted();
        let Some(known) = granted.get_mut(&lease) else { return Ok(None) };
        if by == Sharer::Another {
            (known.at, known.is_common) = (Instant::now(), true);
            // Relaxed: it only has the next log be larger.
            file.lease.is_common.store(true, Ordering::Relaxed);
        }
        known.handles.insert(handle);
        drop(granted);
        let joined = || self.pool.join(number, asked, by).map_err(|error| errno_of(&error));
        let mut grant = joined()?;
        if grant.is_none() {
            let widened = self.pool.widen(number, self.room_for(&state, number, asked.clone())?);
            match widened.map_err(|error| errno_of(&error)) {
                // As a claim for which there is no room.
                Err(Errno::NOSPC | Errno::DQUOT) => return Ok(None),
                widened => widened?,
            }
            grant = joined()?;
        }
        let is_new = grant.is_some() && by == Sharer::Another;
        self.leases.counts.joined.fetch_add(u64::from(is_new), Ordering::Relaxed);
        Ok(grant)
    }

    /// Says on the board which files have leases: programs ask for a share before they use them.
    fn say_leased(&self) {
        if let Some(board) = self.board.get() {
            let granted = self.leases.granted();
            // Relaxed: it is a hint.
            let lent = granted.values().filter(|granted| granted.file.lease.is_lent.load(Ordering::Relaxed));
            let soon = self.leases.lending.load(Ordering::Relaxed);
            board.say_leased(lent.map(|granted| granted.file.identity.inode).chain((soon != 0).then_some(soon)));
        }
    }

    /// A file is about to be lent, or none.
    pub(crate) fn say_lending(&self, file: Option<&OpenFile>) {
        self.leases.lending.store(file.map_or(0, |file| file.identity.inode), Ordering::Relaxed);
        self.say_leased();
    }

    /// Whether a file is about to be lent.
    pub(crate) fn is_being_lent(&self, file: &OpenFile) -> bool {
        self.leases.lending.load(Ordering::Relaxed) == file.identity.inode
    }

    fn has_room_for_lease(&self, file: &Arc<OpenFile>) -> bool {
        let most = (self.pool.region().len() / BYTES_PER_LEASE).max(1);
        (self.pool.leases().len() as u64) < most && self.leases.of_file(file) < LEASES_PER_FILE_MAX
    }

    /// Where a program that is about to write `asked` may write by a lease: from the file's
    /// beginning to some way behind its end, if that is no more than the file has below.
    pub(super) fn room_for(&self, state: &OpenState, number: PoolFile, asked: Range<u64>) -> Result<Range<u64>> {
        let size = self.pool.size(number).map_err(|error| errno_of(&error))?;
        let about = tidegate_source_files::about(state.backing.descriptor())?;
        let allocated = state.backing.bytes_below(about.stx_blocks.saturating_mul(512), size);
        Ok(lease_room(size, allocated, asked))
    }

    /// Ends the lease of a file, if it has one, for a request that needs the file itself.
    pub(super) fn end_lease(&self, file: &OpenFile, state: &OpenState) -> Result<()> {
        if self.withdraw(file, state)? {
            self.leases.counts.ended.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the lease of a file, if it has one, for a request that does not come to the contents.
    pub(crate) fn end_lease_of(&self, file: &OpenFile) -> Result<()> {
        self.end_lease(file, &file.read_state())
    }

    /// Ends the lease of a file. False: there was none.
    fn withdraw(&self, file: &OpenFile, state: &OpenState) -> Result<bool> {
        // Relaxed: whoever lends the file has its state for itself.
        if !file.lease.is_lent.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let ServedFrom::Pool(number) = state.served_from else { return Ok(false) };
        self.pool.revoke(number).map_err(|error| errno_of(&error))?;
        follow_time(self, (state, number), || Ok(())).map_err(|error| errno_of(&error))?;
        // Release: whoever does not see a lease any more sees that it was revoked.
        let was_lent = file.lease.is_lent.swap(false, Ordering::AcqRel);
        self.say_leased();
        Ok(was_lent)
    }

    /// Takes over what was written by the lease of a file, if it has one, and what programs said of
    /// stores to its mapped pages: time and length are the file's then. The lease goes on.
    pub(super) fn follow_lease(&self, file: &OpenFile, state: &OpenState) -> Result<()> {
        match state.served_from {
            ServedFrom::Pool(number) if file.lease.is_lent.load(Ordering::Relaxed) || file.lease.is_direct() => {
                follow_time(self, (state, number), || Ok(())).map_err(|error| errno_of(&error))
            }
            _ => Ok(()),
        }
    }

    /// Has write-back know when programs changed the files that are lent or mapped.
    pub(crate) fn follow_leases(&self) {
        let lent: Vec<_> = self.leases.granted().values().map(|granted| granted.file.clone()).collect();
        for file in lent.into_iter().chain(self.mapped_files()) {
            if let Err(errno) = self.follow_lease(&file, &file.read_state()) {
                tracing::debug!("the time of a lent file is not known: {errno}");
            }
        }
    }

    /// The lease of a file that its program calls so, if it goes on.
    fn lease_numbered(&self, file: &OpenFile, number: u64) -> Option<(PoolFile, PoolLease)> {
        let ServedFrom::Pool(pooled) = file.read_state().served_from else { return None };
        Some((pooled, self.pool.lease_numbered(pooled, number)?))
    }

    /// Lends new blocks for a lease. False: it was ended, or there are none. From now on the lease
    /// is refilled before its program has to ask.
    pub(crate) fn extend(&self, file: &OpenFile, number: u64) -> Result<bool> {
        let Some((_, lease)) = self.lease_numbered(file, number) else { return Ok(false) };
        let extended = self.pool.extend(lease).map_err(|error| errno_of(&error))?;
        self.leases.note_asked(lease);
        self.leases.counts.extended.fetch_add(u64::from(extended), Ordering::Relaxed);
        Ok(extended)
    }

    /// Reads for a program that has a lease of the file, or says where pages lie. False: it was
    /// ended.
    pub(crate) fn read_leased(&self, file: &OpenFile, by: Requested, read: &mut Read) -> Result<bool> {
        let asked = read.asked().ok_or(Errno::INVAL)?;
        let Some((pooled, lease)) = self.lease_numbered(file, read.lease.get()) else { return Ok(false) };
        if self.pool.lease_of(pooled) != Some(lease) {
            return Ok(false);
        }
        if read.how.get() == LOCATES {
            let runs = self.pool.locate(pooled, &asked).map_err(|error| errno_of(&error))?;
            read.tell(runs.iter().map(|run| (run.at, run.pool_at, run.bytes)));
            return Ok(true);
        }
        let out = read.room(asked.end - asked.start);
        let (done, below) = self.pool.read_leased(pooled, asked.start, out).map_err(|error| errno_of(&error))?;
        self.note_read((file, pooled), (asked.start, done, below), by);
        read.len = u32::try_from(done).unwrap_or(0).into();
        Ok(true)
    }

    /// A program has left a lease of the file.
    pub(crate) fn leave(&self, file: &OpenFile, number: u64, pool: BorrowedFd<'_>) -> Result<()> {
        let Some((_, lease)) = self.lease_numbered(file, number) else { return Ok(()) };
        self.reap(lease, Grace::OneLeft, pool)
    }

    /// Takes back the leases that nobody has mapped.
    pub(crate) fn reap_all(&self, pool: BorrowedFd<'_>) {
        for lease in self.pool.leases() {
            if let Err(errno) = self.reap(lease, Grace::Usual, pool) {
                tracing::warn!("a lease that its program has left is not taken back: {errno}");
            }
        }
    }

    /// Takes a lease back, unless a process has its log mapped. Its end is stored before the last
    /// question; a program maps the log, which takes a lock, and looks at the lease then: either
    /// the question finds the lock, or the program finds the end. So a lease may be taken back also
    /// before its program has mapped it: that would only be slow.
    pub(crate) fn reap(&self, lease: PoolLease, patience: Grace, pool: BorrowedFd<'_>) -> Result<()> {
        let Some(log) = self.pool.log_of(lease) else {
            self.leases.granted().remove(&lease);
            return Ok(());
        };
        let is_mapped = || {
            let mapped = MappedPart::is_mapped(pool, log.start, log.end - log.start);
            mapped.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let granted = self.leases.granted().get(&lease).cloned();
        let may_stay = match patience {
            Grace::Usual => true,
            Grace::OneLeft => granted.as_ref().is_some_and(|granted| granted.is_common),
            Grace::None => false,
        };
        let is_young = |granted: &Granted| granted.at.elapsed() < UNMAPPED_MAX && !self.pool.is_revoked(lease);
        if may_stay && (granted.as_ref().is_some_and(is_young) || is_mapped()?) {
            return Ok(());
        }
        // Another one may have joined since.
        let is_open = |granted: &Granted| patience == Grace::None && !granted.handles.is_empty();
        if self.leases.granted().get(&lease).is_some_and(is_open) {
            return Ok(());
        }
        if let Some(Granted { file, .. }) = &granted {
            let state = file.read_state();
            if matches!(state.served_from, ServedFrom::Pool(number) if self.pool.lease_of(number) == Some(lease)) {
                self.withdraw(file, &state)?;
            }
        }
        if !self.pool.is_revoked(lease) || is_mapped()? {
            return Ok(());
        }
        self.pool.release(lease).map_err(|error| errno_of(&error))?;
        self.leases.granted().remove(&lease);
        self.leases.counts.reaped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The backing knows when programs changed the file without a request, after `act`. It is not
/// synced in between: the pool would take a time for one that the file below has.
pub(super) fn follow_time<T>(
    files: &OpenFiles,
    (state, number): (&OpenState, PoolFile),
    act: impl FnOnce() -> std::result::Result<T, FileError>,
) -> std::result::Result<T, FileError> {
    state.backing.change_modified(|modified| {
        let done = act()?;
        if let Some(time) = modified_time(files.pool.modified(number)?) {
            *modified = Some(point_of(time));
        }
        Ok(done)
    })
}
