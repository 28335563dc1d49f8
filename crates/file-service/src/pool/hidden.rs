//! SOURCE out of sight: its permissions while it is mounted elsewhere.
//!
//! While a pool may have what the files lack, nobody is to take the files in SOURCE for the current
//! ones. A mount over SOURCE itself covers it. Otherwise only the owner may enter SOURCE until it
//! has everything again; the mount's root shows the permissions that SOURCE had.

use crate::lifecycle::failure::ServiceFailure;
use crate::pool::record::MountRecord;
use crate::source::SourceDirectory;
use rustix::fs::{Mode, fchmod};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// The record of a pool in use.
pub(crate) struct Hidden {
    pool: PathBuf,
    record: Mutex<MountRecord>,
}

impl Hidden {
    /// Writes the record beside `pool`, and then hides SOURCE unless the mount covers it.
    pub(crate) fn begin(
        pool: PathBuf,
        record: MountRecord,
        source: &SourceDirectory,
        cover: Cover,
    ) -> Result<Hidden, ServiceFailure> {
        record.write(&pool)?;
        if cover == Cover::Mode {
            set_mode(source, HIDDEN)?;
        }
        Ok(Hidden { pool, record: Mutex::new(record) })
    }

    /// The permissions that the mount's root shows.
    pub(crate) fn mode(&self) -> u32 {
        self.record().mode
    }

    /// Changes the permissions that the mount's root shows, and that SOURCE gets at the end.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), ServiceFailure> {
        let mut record = self.record();
        record.mode = mode;
        record.write(&self.pool)
    }

    /// Shows SOURCE, which has everything again.
    pub(crate) fn end(&self, source: &SourceDirectory) -> Result<(), ServiceFailure> {
        set_mode(source, self.mode())?;
        MountRecord::remove(&self.pool)
    }

    fn record(&self) -> MutexGuard<'_, MountRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set_mode(source: &SourceDirectory, mode: u32) -> Result<(), ServiceFailure> {
    let changed = fchmod(source.root(), Mode::from_raw_mode(mode & 0o7777));
    changed.map_err(|errno| ServiceFailure::System { doing: "changing the permissions of SOURCE", error: errno.into() })
}

/// Shows SOURCE as `record` says it was, after a recovery without a mount.
pub(crate) fn show(source: &SourceDirectory, record: &MountRecord) -> Result<(), ServiceFailure> {
    set_mode(source, record.mode)
}
