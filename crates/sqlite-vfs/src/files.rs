//! The files of one connection: its database, and its journal if that is a file.

use crate::abi::{Code, FULL, IOERR_WRITE, OPEN_CREATE, OPEN_MAIN_JOURNAL, OPEN_READWRITE, SYNC_FULL, Vfs};
use crate::real_file::{OwnFile, RealFile, result};
use crate::status::{CommitCounts, Support};
use crate::transaction::{JOURNAL_END_BYTES, Storage};
use crate::{file_attributes, group};
use std::ffi::{CStr, c_char, c_int};
use std::io;
use tidegate_file_cache::GroupWrite;

/// See the preamble.
pub(crate) struct Files {
    pub(crate) unix: *mut Vfs,
    pub(crate) real: RealFile,
    pub(crate) support: Support,
    pub(crate) counts: CommitCounts,
    /// The database's, for groups.
    pub(crate) descriptor: c_int,
    /// SQLite's name of the database.
    pub(crate) name: *const c_char,
    /// SQLite's name of the journal, once it opened one.
    pub(crate) journal_name: *const c_char,
    pub(crate) journal: Option<OwnFile>,
    /// Whether nothing was written but by groups since the last sync.
    pub(crate) is_synced: bool,
    /// Whether the file's own name is durable.
    pub(crate) is_named: bool,
}

impl Storage for Files {
    fn len(&mut self) -> Result<u64, Code> {
        match file_attributes::len(self.descriptor) {
            // As the VFS for Unix has it: on some file systems a new file begins with one byte.
            Some(len) if self.support == Support::Groups => Ok(if len == 1 { 0 } else { len }),
            _ => self.real.len(),
        }
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), Code> {
        match self.real.read(at, buffer) {
            // The VFS for Unix has filled the rest with zeroes.
            crate::abi::IOERR_SHORT_READ => Ok(()),
            code => result(code),
        }
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Code> {
        self.is_synced = false;
        result(self.real.write(at, data))
    }

    fn truncate(&mut self, len: u64) -> Result<(), Code> {
        self.is_synced = false;
        result(self.real.truncate(len))
    }

    fn write_group(&mut self, writes: &[GroupWrite<'_>]) -> Result<(), Code> {
        group::write(self.descriptor, writes)
            .map_err(|error| if error.kind() == io::ErrorKind::StorageFull { FULL } else { IOERR_WRITE })?;
        self.counts.groups += 1;
        if !self.is_named {
            // A journal in the directory would have synced that.
            result(self.real.sync_normal())?;
            self.is_named = true;
        }
        Ok(())
    }

    fn keep_journal(&mut self, journal: &[u8]) -> Result<(), Code> {
        let flags = OPEN_READWRITE | OPEN_CREATE | OPEN_MAIN_JOURNAL;
        // SAFETY: L4 and L2: the connection has its journal open, so this is its name.
        let (own, _) = unsafe { OwnFile::open(self.unix, self.journal_name, flags) }?;
        let file = own.file();
        // What an earlier journal left behind this one would be read as its end.
        let kept = result(file.truncate(0)).and_then(|()| write_journal(file, journal));
        match kept {
            Ok(()) => {
                self.counts.journals += 1;
                self.journal = Some(own);
                Ok(())
            }
            Err(code) => {
                // A part of a journal must not stay: later transactions would not be in it.
                file.truncate(0);
                own.close();
                self.delete_journal(0);
                Err(code)
            }
        }
    }
}

/// Writes a journal whose first bytes come last: before them it is none to any SQLite.
fn write_journal(file: RealFile, journal: &[u8]) -> Result<(), Code> {
    let (first, rest) = journal.split_at(JOURNAL_END_BYTES.min(journal.len()));
    result(file.write(first.len() as u64, rest))?;
    result(file.sync(SYNC_FULL))?;
    result(file.write(0, first))?;
    result(file.sync(SYNC_FULL))
}

impl Files {
    /// Whether the database's name leads to another file by now. `None`: the kernel does not tell.
    pub(crate) fn has_moved(&self) -> Option<bool> {
        if self.name.is_null() {
            return None;
        }
        // SAFETY: L2: the database is open.
        file_attributes::has_moved(self.descriptor, unsafe { CStr::from_ptr(self.name) })
    }

    /// Removes the journal's file.
    pub(crate) fn delete_journal(&self, sync_directory: c_int) -> Code {
        // SAFETY: L4, and L2: the database is open.
        unsafe { ((*self.unix).delete)(self.unix, self.journal_name, sync_directory) }
    }

    /// Syncs the database, unless groups have done so.
    pub(crate) fn sync(&mut self, flags: c_int) -> Code {
        if self.is_synced && self.support == Support::Groups {
            return crate::abi::OK;
        }
        let synced = self.real.sync(flags);
        self.is_synced = synced == crate::abi::OK;
        synced
    }
}
