//! The transaction of one connection: its journal and its writes stay in memory, until one atomic
//! group has all writes.
//!
//! | phase | the journal | writes to the database |
//! | --- | --- | --- |
//! | `Idle` | has ended, or is a file of an earlier run | go through |
//! | `Gathering` | is in memory | are gathered, and reads see them |
//! | `Batch` | SQLite has it by itself | are gathered until SQLite ends the batch |
//! | `OnDisk` | is a file, and goes on there | go through |
//!
//! Invariants:
//! 1. Outside of `Gathering` and `Batch` nothing is gathered.
//! 2. While anything is gathered, no byte of it is in the file.
//! 3. The file changes in `Gathering` by whole groups only. If a group fails, the journal becomes a
//!    durable file first ([`MountTransaction::fall_back`]), as if it had been one all the time.
//!
//! SQLite writes no page to the database before its old bytes are in the journal, and says when a
//! transaction's last page was written (`SQLITE_FCNTL_SYNC`). From 3 and that follows: whoever is
//! killed, the file has the whole transaction, or none of it, or a hot journal beside it that every
//! SQLite rolls back.

use crate::abi::{Code, FULL, IOERR_WRITE};
use tidegate_file_cache::{GroupBytes, GroupWrite};

/// Most gathered bytes, and most bytes of a journal in memory: a mount takes groups of 64 MiB.
pub(crate) const MEMORY_BYTES_MAX: usize = 48 << 20;

/// Bytes of the zeroes that end a journal which is not removed or truncated.
pub(crate) const JOURNAL_END_BYTES: usize = 28;

/// Tries of a group: a reader that takes no locks may end one.
const GROUP_TRIES: usize = 3;

/// What a transaction does to files.
pub(crate) trait Storage {
    /// Length of the database.
    fn len(&mut self) -> Result<u64, Code>;
    /// Reads into the whole buffer, with zeroes behind the file's end.
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), Code>;
    /// Writes at once.
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Code>;
    /// Sets the length at once.
    fn truncate(&mut self, len: u64) -> Result<(), Code>;
    /// Writes all, durably, or nothing.
    fn write_group(&mut self, writes: &[GroupWrite<'_>]) -> Result<(), Code>;
    /// Makes the journal a file with these bytes, durably, or has none: a part of it is no journal.
    /// A group that failed may be in the database as a whole.
    fn keep_journal(&mut self, journal: &[u8]) -> Result<(), Code>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JournalPhase {
    #[default]
    Idle,
    Gathering,
    Batch,
    OnDisk,
}

/// See the preamble.
#[derive(Debug, Default)]
pub(crate) struct MountTransaction {
    phase: JournalPhase,
    journal: Vec<u8>,
    gathered: GroupBytes,
    /// Sum of the gathered writes: no less than what is gathered.
    gathered_bytes: usize,
    /// The database's length, once a write or a truncation was gathered.
    len: Option<u64>,
    /// The file's length, which nobody else changes while the connection writes.
    len_of_file: Option<u64>,
}

/// Whether this write to a journal ends its transaction: SQLite writes no other zeroes of this
/// length there.
pub(crate) fn ends_journal(at: u64, data: &[u8]) -> bool {
    at == 0 && data.len() == JOURNAL_END_BYTES && data.iter().all(|byte| *byte == 0)
}

impl MountTransaction {
    pub(crate) fn phase(&self) -> JournalPhase {
        self.phase
    }

    /// Begins a transaction whose journal is in memory.
    pub(crate) fn begin(&mut self) {
        self.reset(JournalPhase::Gathering);
    }

    /// Begins a batch of writes of a SQLite that has such.
    pub(crate) fn begin_batch(&mut self) {
        self.reset(JournalPhase::Batch);
    }

    /// Forgets everything: the file has none of what is gathered.
    pub(crate) fn reset(&mut self, phase: JournalPhase) {
        *self = MountTransaction { phase, ..MountTransaction::default() };
    }

    /// The journal in memory.
    pub(crate) fn journal(&self) -> &[u8] {
        &self.journal
    }

    /// Writes to the journal in memory. If it becomes too long, it has become a file.
    pub(crate) fn write_journal(&mut self, storage: &mut impl Storage, at: u64, data: &[u8]) -> Result<(), Code> {
        let from = usize::try_from(at).map_err(|_| FULL)?;
        let end = from.checked_add(data.len()).ok_or(FULL)?;
        if end > self.journal.len() {
            self.journal.resize(end, 0);
        }
        self.journal[from..end].copy_from_slice(data);
        if end > MEMORY_BYTES_MAX { self.fall_back(storage) } else { Ok(()) }
    }

    /// Cuts the journal in memory.
    pub(crate) fn truncate_journal(&mut self, len: u64) {
        self.journal.resize(usize::try_from(len).unwrap_or(usize::MAX).min(self.journal.len()), 0);
    }

    /// The database's length as its connection sees it.
    pub(crate) fn len(&self, storage: &mut impl Storage) -> Result<u64, Code> {
        self.len.map_or_else(|| storage.len(), Ok)
    }

    /// Reads from the database. Returns whether the whole buffer lies before its end; there are
    /// zeroes behind that.
    pub(crate) fn read(&self, storage: &mut impl Storage, at: u64, buffer: &mut [u8]) -> Result<bool, Code> {
        let len = self.len(storage)?;
        let present = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len());
        let (before, behind) = buffer.split_at_mut(present);
        behind.fill(0);
        if !before.is_empty() {
            storage.read(at, before)?;
            self.gathered.copy_over(at, before);
        }
        Ok(behind.is_empty())
    }

    /// Whether reads and the length are the file's own.
    pub(crate) fn is_transparent(&self) -> bool {
        self.len.is_none()
    }

    /// Writes to the database. If too much is gathered, the journal has become a file.
    pub(crate) fn write(&mut self, storage: &mut impl Storage, at: u64, data: &[u8]) -> Result<(), Code> {
        if !matches!(self.phase, JournalPhase::Gathering | JournalPhase::Batch) {
            return storage.write(at, data);
        }
        if self.gathered_bytes + data.len() > MEMORY_BYTES_MAX {
            self.make_room(storage)?;
            if self.phase == JournalPhase::OnDisk {
                return storage.write(at, data);
            }
        }
        let end = at + data.len() as u64;
        self.len = Some(self.len_before(storage)?.max(end));
        self.gathered.put(at, data);
        self.gathered_bytes += data.len();
        Ok(())
    }

    /// Counts what is gathered, and lets the journal become a file if that is too much.
    fn make_room(&mut self, storage: &mut impl Storage) -> Result<(), Code> {
        self.gathered_bytes = self.gathered.count();
        if self.gathered_bytes < MEMORY_BYTES_MAX / 2 { Ok(()) } else { self.fall_back(storage) }
    }

    /// Sets the database's length.
    pub(crate) fn truncate(&mut self, storage: &mut impl Storage, len: u64) -> Result<(), Code> {
        if !matches!(self.phase, JournalPhase::Gathering | JournalPhase::Batch) {
            return storage.truncate(len);
        }
        self.len_before(storage)?;
        self.gathered.truncate(len);
        self.len = Some(len);
        Ok(())
    }

    /// The length before a change; asks the file once in a transaction.
    fn len_before(&mut self, storage: &mut impl Storage) -> Result<u64, Code> {
        let of_file = self.len_of_file.map_or_else(|| storage.len(), Ok)?;
        self.len_of_file = Some(of_file);
        Ok(self.len.unwrap_or(of_file))
    }

    /// The transaction's last page was written: the file has all of it now, or the journal is a
    /// file.
    pub(crate) fn flush(&mut self, storage: &mut impl Storage) -> Result<(), Code> {
        self.write_group(storage).or_else(|_| self.fall_back(storage))
    }

    /// Ends a batch: the file has all of it, or none.
    pub(crate) fn commit_batch(&mut self, storage: &mut impl Storage) -> Result<(), Code> {
        let committed = self.write_group(storage);
        self.reset(JournalPhase::Idle);
        committed
    }

    /// The journal ends, in whatever way. What was written since the last flush is in the file now,
    /// or was lost by an error, after which SQLite drops its pages.
    pub(crate) fn end(&mut self, storage: &mut impl Storage) -> Result<(), Code> {
        let ended = self.write_group(storage);
        match ended {
            Ok(()) => self.reset(JournalPhase::Idle),
            Err(_) => self.forget_writes(),
        }
        ended
    }

    fn write_group(&mut self, storage: &mut impl Storage) -> Result<(), Code> {
        let Some(len) = self.len else { return Ok(()) };
        let writes = self.gathered.writes();
        if !writes.is_empty() {
            let mut tries = (0..GROUP_TRIES).map(|_| storage.write_group(&writes));
            let last = tries.by_ref().find(|written| matches!(written, Ok(()) | Err(FULL)));
            if let Err(code) = last.unwrap_or(Err(IOERR_WRITE)) {
                // All of it may be there.
                self.len_of_file = storage.len().ok().or(self.len_of_file);
                return Err(code);
            }
        }
        // A file that is longer than its header says is whole, so this may come later.
        if self.len_of_file.is_some_and(|of_file| of_file > len) {
            storage.truncate(len)?;
        }
        self.len_of_file = Some(len);
        self.forget_writes();
        Ok(())
    }

    fn forget_writes(&mut self) {
        self.gathered = GroupBytes::default();
        (self.gathered_bytes, self.len) = (0, None);
    }

    /// Has the journal become a file, and only then what is gathered part of the database. From
    /// then on everything is as without this VFS.
    pub(crate) fn fall_back(&mut self, storage: &mut impl Storage) -> Result<(), Code> {
        if self.phase != JournalPhase::Gathering {
            return Err(FULL);
        }
        storage.keep_journal(&self.journal)?;
        let written = self.gathered.writes().iter().try_for_each(|run| storage.write(run.at, run.data));
        let cut = written.and_then(|()| match self.len {
            Some(len) if self.len_of_file.is_some_and(|of_file| of_file > len) => storage.truncate(len),
            _ => Ok(()),
        });
        // If this failed, SQLite rolls back by the file, as it would after any write that fails.
        self.reset(JournalPhase::OnDisk);
        cut
    }
}

#[cfg(test)]
mod tests;
