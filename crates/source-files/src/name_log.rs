//! The log of a mount's names: what is done to names in SOURCE is in the pool, durably, before the
//! file system below has it so.
//!
//! An operation is done between [`NameLog::begin`] and [`Naming::record`]. A file system that may
//! lose an earlier operation and keep a later one gets no log; there, a sync waits for SOURCE.

use crate::SourceDirectory;
use crate::backing::{OpenedFile, refused};
use rustix::fs::Statx;
use rustix::io::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_file_cache::Refused;
use tidegate_host::files::ordered_names::has_ordered_names;
use tidegate_host::threads::Periodic;
use tidegate_layout::file_cache::{NameChange, NodeIdentity};
use tidegate_media::MappedRegion;
use tidegate_namespace_log::{
    MadeFile, NamesWriting, NamespaceCounters, NamespaceError, NamespaceLog, NamespaceSource,
};

/// How often operations are committed that no program syncs.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long the log keeps an operation before SOURCE is synced for it.
const SYNC_AFTER: Duration = Duration::from_secs(5);

type Log = NamespaceLog<Arc<MappedRegion>>;

/// A file that was made through this mount, before anything is stored in it below.
pub type Made = MadeFile<Arc<MappedRegion>>;

/// The log, if there is one.
pub struct NameLog {
    log: Option<Arc<Log>>,
    source: Arc<SourceDirectory>,
    /// Whether the log's failure was told.
    is_told: AtomicBool,
    /// Whether it was told that SOURCE cannot be synced, since it could.
    is_sync_told: AtomicBool,
}

/// The right to do one operation on names after the other.
pub struct Naming<'a> {
    names: &'a NameLog,
    writing: Option<NamesWriting<'a, Arc<MappedRegion>>>,
}

/// An inode that an operation is about, and the path of a name of it.
pub struct Subject {
    /// The path of a name of it, from SOURCE on.
    pub path: Vec<u8>,
    /// Which inode it is.
    pub node: NodeIdentity,
}

impl NameLog {
    /// Goes on with the log of the pool on `region`, whose operations `source` has, if that is one
    /// for a log.
    pub fn resume(
        region: &Arc<MappedRegion>,
        source: &Arc<SourceDirectory>,
    ) -> std::result::Result<NameLog, NamespaceError> {
        if !has_ordered_names(source.root()).map_err(refused)? {
            tracing::info!(
                "SOURCE is not on ext4 with a journal or XFS: the first sync of a file and syncs of directories wait for it"
            );
            return Ok(NameLog::absent(source));
        }
        let names = NameLog::resumed(region, source)?;
        if let Err(errno) = names.settle() {
            tracing::warn!(
                "SOURCE cannot be changed: {errno}; names stay as they are until it can, and the pool keeps what it has"
            );
        }
        Ok(names)
    }

    /// The log of the pool on `region`, whatever SOURCE is.
    pub fn resumed(
        region: &Arc<MappedRegion>,
        source: &Arc<SourceDirectory>,
    ) -> std::result::Result<NameLog, NamespaceError> {
        let below: Arc<dyn NamespaceSource> = source.clone();
        match Log::resume(Arc::clone(region), below) {
            Ok(log) => Ok(NameLog { log: Some(Arc::new(log)), ..NameLog::absent(source) }),
            Err(NamespaceError::NoLog) => Ok(NameLog::absent(source)),
            Err(error) => Err(error),
        }
    }

    /// Has SOURCE make durable what an earlier server did there, unless that was done. Nothing is
    /// recorded before.
    pub fn settle(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        log.settle().map_err(|error| self.refused_or_failed(log, &error))
    }

    /// No log.
    pub fn absent(source: &Arc<SourceDirectory>) -> NameLog {
        NameLog {
            log: None,
            source: Arc::clone(source),
            is_told: AtomicBool::new(false),
            is_sync_told: AtomicBool::new(false),
        }
    }

    /// Whether there is a log.
    pub fn is_kept(&self) -> bool {
        self.log.is_some()
    }

    /// Begins an operation: called before it is done below. Taken before every other lock.
    pub fn begin(&self) -> Result<Naming<'_>> {
        let Some(log) = &self.log else { return Ok(Naming { names: self, writing: None }) };
        let writing = log.begin().map_err(|error| self.refused_or_failed(log, &error))?;
        Ok(Naming { names: self, writing: Some(writing) })
    }

    /// Makes every operation durable that was recorded before.
    pub fn commit(&self) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| log.commit()).map_err(|error| self.failed(&error))
    }

    /// Makes SOURCE durable. The log forgets then what was recorded before, if `may_forget` or if
    /// room becomes scarce: the log alone tells that a file was removed and is not missing.
    pub fn sync_source(&self, may_forget: impl FnOnce() -> Result<bool>) -> Result<()> {
        self.settle()?;
        let mark = self.log.as_ref().map(|log| log.mark());
        self.source.sync().map_err(|refused| Errno::from_raw_os_error(refused.errno))?;
        let (Some(log), Some(mark)) = (&self.log, mark) else { return Ok(()) };
        if !may_forget()? && !is_filling(log) {
            return Ok(());
        }
        log.durable_below(mark).map_err(|error| self.failed(&error))
    }

    /// The file that was just made and recorded as `opened`, as the cache gets it.
    pub fn made(&self, opened: &Arc<OpenedFile>) -> Option<Arc<Made>> {
        let log = self.log.as_ref()?;
        Some(Arc::new(MadeFile::new(opened.clone(), Arc::clone(log))))
    }

    /// What the operation is about that was done to the inode of `about`, at `path`. None: no
    /// record is made of it, as the inode has no name or is on another file system.
    pub fn subject(&self, path: Option<Vec<u8>>, about: &Statx) -> Option<Subject> {
        let identity = self.source.identity(about);
        let path = path.filter(|_| identity.device == 0 && self.is_kept())?;
        Some(Subject { path, node: NodeIdentity { inode: identity.inode, generation: identity.generation } })
    }

    /// What was done, and bytes of records that SOURCE may lack.
    pub fn counters(&self) -> (NamespaceCounters, u64) {
        self.log.as_ref().map_or_else(Default::default, |log| (log.counters(), log.fill().0))
    }

    /// Starts the thread that commits operations and has SOURCE catch up by `sync_source`.
    pub fn start(
        self: &Arc<NameLog>,
        sync_source: impl Fn() -> Result<()> + Send + 'static,
    ) -> std::io::Result<Periodic> {
        let (names, mut waits_since) = (Arc::clone(self), None);
        Periodic::start("names", LOOK_EVERY, move || names.look(&mut waits_since, &sync_source))
    }

    /// Failures are told once, and each later operation gets them.
    fn look(&self, waits_since: &mut Option<Instant>, sync_source: &dyn Fn() -> Result<()>) {
        let Some(log) = self.log.as_ref().filter(|_| self.commit().is_ok()) else { return };
        if log.is_unsettled() {
            match self.settle() {
                Ok(()) => tracing::info!("SOURCE can be changed again"),
                Err(_) => return,
            }
        }
        if log.fill().0 == 0 {
            *waits_since = None;
            return;
        }
        let waits = waits_since.get_or_insert_with(Instant::now).elapsed();
        if waits >= SYNC_AFTER || is_filling(log) {
            *waits_since = None;
            match sync_source() {
                Ok(()) => self.is_sync_told.store(false, Ordering::Relaxed),
                // Relaxed: one thread looks.
                Err(errno) if !self.is_sync_told.swap(true, Ordering::Relaxed) => tracing::warn!(
                    "SOURCE cannot be synced: {errno}; the pool keeps the operations, and it is tried again"
                ),
                Err(_) => {}
            }
        }
    }

    /// Every operation is durable in SOURCE, and the log is empty. No operation comes any more.
    pub fn end(&self) -> Result<()> {
        self.commit()?;
        self.sync_source(|| Ok(true))
    }

    /// An operation did not begin: what SOURCE says before it takes changes is no failure of the
    /// log.
    fn refused_or_failed(&self, log: &Log, error: &NamespaceError) -> Errno {
        match *error {
            NamespaceError::Source(Refused { errno }) if log.is_unsettled() => Errno::from_raw_os_error(errno),
            _ => self.failed(error),
        }
    }

    fn failed(&self, error: &NamespaceError) -> Errno {
        // Relaxed: whoever is first tells.
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::error!("no name in SOURCE is changed any more: {error}");
        }
        Errno::IO
    }
}

/// Whether operations will soon wait for room in the log.
fn is_filling(log: &Log) -> bool {
    let (bytes, bytes_max) = log.fill();
    bytes >= bytes_max / 2
}

impl Naming<'_> {
    /// Records an operation that was just done.
    pub fn record(&mut self, change: &NameChange<'_>) -> Result<()> {
        let names = self.names;
        let Some(writing) = &mut self.writing else { return Ok(()) };
        writing.record(change).map(drop).map_err(|error| names.failed(&error))
    }

    /// Does without a record of an operation that was just done: SOURCE has it durably.
    pub fn without_record(&mut self) -> Result<()> {
        let names = self.names;
        let Some(writing) = &mut self.writing else { return Ok(()) };
        writing.without_record().map_err(|error| names.failed(&error))
    }

    /// An operation of several steps, of which the last ones ended so. If they failed, the first
    /// ones have no record.
    pub fn completed<T>(&mut self, ended: Result<T>) -> Result<T> {
        if ended.is_err() {
            self.without_record()?;
        }
        ended
    }
}
