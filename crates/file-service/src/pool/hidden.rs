//! SOURCE out of sight: its permissions while it is mounted elsewhere.
//!
//! While a pool may have what the files lack, nobody is to take the files in SOURCE for the current
//! ones. A mount over SOURCE itself covers it. Otherwise only the owner may enter SOURCE until it
//! has everything again; the mount's root shows the permissions that SOURCE had.

use crate::lifecycle::failure::{ServiceFailure, system};
use crate::pool::record::MountRecord;
use crate::pool::volatile::{NoteUnderWay, Volatile};
use rustix::fs::{Mode, fchmod, fsync};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tidegate_file_cache::FileIdentity;
use tidegate_source_files::SourceDirectory;
use tidegate_source_files::mark::PoolMark;

/// Only the owner may enter.
const HIDDEN: u32 = 0o700;

/// What keeps others out of SOURCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// The mount, which lies over it.
    Mount,
    /// Its permissions.
    Mode,
}

/// The record of a pool in use, and SOURCE's mark of the pool.
pub(crate) struct Hidden {
    pool: PathBuf,
    pool_id: String,
    record: Mutex<MountRecord>,
    /// Opened when a server of a mount with a log of names begins.
    under_way: OnceLock<NoteUnderWay>,
}

impl Hidden {
    /// Writes the record beside `pool`, marks SOURCE, and then hides it unless the mount covers it.
    pub(crate) fn begin(
        (pool, pool_id): (PathBuf, String),
        record: MountRecord,
        source: &SourceDirectory,
        cover: Cover,
    ) -> Result<Hidden, ServiceFailure> {
        let hidden = Hidden { pool, pool_id, record: Mutex::new(record), under_way: OnceLock::new() };
        hidden.write(&hidden.record(), source)?;
        if cover == Cover::Mode {
            set_mode(source, HIDDEN)?;
        }
        Ok(hidden)
    }

    /// What an earlier server of the same mount hid.
    pub(crate) fn resume(pool: (PathBuf, String), record: MountRecord) -> Hidden {
        Hidden { pool: pool.0, pool_id: pool.1, record: Mutex::new(record), under_way: OnceLock::new() }
    }

    /// The permissions that the mount's root shows.
    pub(crate) fn mode(&self) -> u32 {
        self.record().mode
    }

    /// Changes the permissions that the mount's root shows, and that SOURCE gets at the end.
    pub(crate) fn set_mode(&self, mode: u32, source: &SourceDirectory) -> Result<(), ServiceFailure> {
        let mut record = self.record();
        record.mode = mode;
        self.write(&record, source)
    }

    /// Notes that a file is about to lose its last name, for a recovery that finds no log of names.
    pub(crate) fn note_gone(&self, file: FileIdentity) -> rustix::io::Result<()> {
        let Some(volatile) = Volatile::of_id(&self.pool_id) else { return Ok(()) };
        volatile.note_gone(file).map_err(|error| errno_of(&error))
    }

    /// Prepares notes of operations under way: later a full `/dev/shm` keeps no file from being
    /// removed.
    pub(crate) fn prepare_notes(&self) -> Result<(), ServiceFailure> {
        self.under_way().map(|_| ()).map_err(|errno| ServiceFailure::System {
            doing: "making the file in /dev/shm that notes which file is about to be removed",
            error: errno.into(),
        })
    }

    /// Notes that the operation under way is about to take a file's last name: a log of names hears
    /// of it only once it is done.
    pub(crate) fn note_under_way(&self, file: FileIdentity) -> rustix::io::Result<()> {
        let Some(note) = self.under_way()? else { return Ok(()) };
        note.set(file).map_err(|error| errno_of(&error))
    }

    /// The operation was not done.
    pub(crate) fn forget_under_way(&self) {
        // A note that stays counts only for a file that is missing.
        let _ = self.under_way.get().map(NoteUnderWay::clear);
    }

    fn under_way(&self) -> rustix::io::Result<Option<&NoteUnderWay>> {
        if let Some(note) = self.under_way.get() {
            return Ok(Some(note));
        }
        let Some(volatile) = Volatile::of_id(&self.pool_id) else { return Ok(None) };
        let note = volatile.note_under_way().map_err(|error| errno_of(&error))?;
        Ok(Some(self.under_way.get_or_init(|| note)))
    }

    /// Shows SOURCE, which has everything again.
    pub(crate) fn end(&self, source: &SourceDirectory) -> Result<(), ServiceFailure> {
        show(source, &self.record(), &self.pool)
    }

    fn write(&self, record: &MountRecord, source: &SourceDirectory) -> Result<(), ServiceFailure> {
        record.write(&self.pool)?;
        let pool = std::path::absolute(&self.pool).map_err(ServiceFailure::of_file("find", &self.pool))?;
        let MountRecord { mode, inode, generation, .. } = *record;
        Ok(PoolMark { id: self.pool_id.clone(), pool, mode, inode, generation }.write(source)?)
    }

    fn record(&self) -> MutexGuard<'_, MountRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn set_mode(source: &SourceDirectory, mode: u32) -> Result<(), ServiceFailure> {
    let changed = fchmod(source.root(), Mode::from_raw_mode(mode & 0o7777)).and_then(|()| fsync(source.root()));
    changed.map_err(|errno| ServiceFailure::System { doing: "changing the permissions of SOURCE", error: errno.into() })
}

/// Shows SOURCE as `record` says it was: it has everything again, and `pool` belongs to no SOURCE.
/// The record goes last, as it is by the record that recovery finds the mark.
pub(crate) fn show(source: &SourceDirectory, record: &MountRecord, pool: &Path) -> Result<(), ServiceFailure> {
    set_mode(source, record.mode)?;
    source.remove_witness().map_err(system("removing the extended attribute user.tidegate.witness of SOURCE"))?;
    PoolMark::remove(source)?;
    MountRecord::remove(pool)
}
