//! The object of a rollback journal: in the memory of its connection's transaction, or a file.

use crate::abi::{Code, FileObject, IOERR_SHORT_READ, IOERR_WRITE, Methods, NOTFOUND, OK};
use crate::database::Database;
use crate::real_file::{RealFile, code};
use crate::transaction::{JournalPhase, ends_journal};
use std::ffi::{c_int, c_void};

/// What SQLite has.
#[repr(C)]
pub(crate) struct JournalObject {
    pub(crate) base: FileObject,
    pub(crate) database: *mut Database,
}

pub(crate) static METHODS: Methods = Methods {
    version: 1,
    close,
    read,
    write,
    truncate,
    sync,
    file_size,
    lock: no_lock,
    unlock: no_lock,
    check_reserved_lock,
    file_control,
    sector_size,
    device_characteristics,
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

/// # Safety
/// L1. The database is open as long as its journal.
unsafe fn of<'a>(object: *mut FileObject) -> &'a mut Database {
    // SAFETY: L1: the object begins with this, and one thread uses a connection.
    unsafe { &mut *(*object.cast::<JournalObject>()).database }
}

impl Database {
    /// The journal's file, if the journal is one.
    fn journal_file(&self) -> Option<RealFile> {
        let file = self.files.journal.as_ref().filter(|_| self.transaction.phase() != JournalPhase::Gathering);
        file.map(|own| own.file())
    }

    pub(crate) fn close_journal(&mut self) -> Code {
        self.journal_has_ended = false;
        self.files.journal.take().map_or(OK, |own| own.close())
    }

    fn write_journal(&mut self, at: u64, data: &[u8]) -> Code {
        if ends_journal(at, data) {
            return self.end_journal(|file| file.write(at, data));
        }
        if let Some(file) = self.journal_file().filter(|_| !(self.journal_has_ended && at == 0)) {
            return file.write(at, data);
        }
        if self.transaction.phase() != JournalPhase::Gathering {
            // A file that has ended says so to everybody, and may stay.
            self.close_journal();
            self.transaction.begin();
        }
        code(self.transaction.write_journal(&mut self.files, at, data))
    }

    fn truncate_journal(&mut self, len: u64) -> Code {
        if len == 0 {
            return self.end_journal(|file| file.truncate(0));
        }
        match self.journal_file() {
            Some(file) => file.truncate(len),
            None => {
                self.transaction.truncate_journal(len);
                OK
            }
        }
    }

    /// Ends the transaction, if its journal is in memory, or does `end` to the file.
    fn end_journal(&mut self, end: impl FnOnce(RealFile) -> Code) -> Code {
        match self.journal_file() {
            None => code(self.transaction.end(&mut self.files)),
            Some(file) => {
                let ended = end(file);
                if ended == OK {
                    self.journal_has_ended = true;
                    self.transaction.reset(JournalPhase::Idle);
                }
                ended
            }
        }
    }

    /// Removes the journal, which SQLite has closed.
    pub(crate) fn delete_journal(&mut self, sync_directory: c_int) -> Code {
        if self.transaction.phase() == JournalPhase::Gathering {
            return code(self.transaction.end(&mut self.files));
        }
        match self.files.delete_journal(sync_directory) {
            // It was never there.
            OK | crate::abi::IOERR_DELETE_NOENT => {
                self.transaction.reset(JournalPhase::Idle);
                OK
            }
            failed => failed,
        }
    }

    fn read_journal(&self, at: u64, buffer: &mut [u8]) -> Code {
        if let Some(file) = self.journal_file() {
            return file.read(at, buffer);
        }
        let journal = self.transaction.journal();
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(journal.len());
        let present = (journal.len() - from).min(buffer.len());
        buffer[..present].copy_from_slice(&journal[from..from + present]);
        buffer[present..].fill(0);
        if present == buffer.len() { OK } else { IOERR_SHORT_READ }
    }

    fn journal_len(&self) -> Result<u64, Code> {
        self.journal_file().map_or(Ok(self.transaction.journal().len() as u64), RealFile::len)
    }
}

unsafe extern "C" fn close(object: *mut FileObject) -> c_int {
    // SAFETY: L1.
    unsafe { of(object) }.close_journal()
}

unsafe extern "C" fn read(object: *mut FileObject, buffer: *mut c_void, len: c_int, at: i64) -> c_int {
    let (Ok(len), Ok(at)) = (usize::try_from(len), u64::try_from(at)) else { return IOERR_SHORT_READ };
    // SAFETY: L1 and L3.
    unsafe { of(object).read_journal(at, std::slice::from_raw_parts_mut(buffer.cast(), len)) }
}

unsafe extern "C" fn write(object: *mut FileObject, data: *const c_void, len: c_int, at: i64) -> c_int {
    let (Ok(len), Ok(at)) = (usize::try_from(len), u64::try_from(at)) else { return IOERR_WRITE };
    // SAFETY: L1 and L3.
    unsafe { of(object).write_journal(at, std::slice::from_raw_parts(data.cast(), len)) }
}

unsafe extern "C" fn truncate(object: *mut FileObject, len: i64) -> c_int {
    // SAFETY: L1.
    unsafe { of(object) }.truncate_journal(u64::try_from(len).unwrap_or(0))
}

unsafe extern "C" fn sync(object: *mut FileObject, flags: c_int) -> c_int {
    // SAFETY: L1. What is in memory has nothing to sync.
    unsafe { of(object) }.journal_file().map_or(OK, |file| file.sync(flags))
}

unsafe extern "C" fn file_size(object: *mut FileObject, place: *mut i64) -> c_int {
    // SAFETY: L1.
    match unsafe { of(object) }.journal_len() {
        Ok(len) => {
            // SAFETY: L3.
            unsafe { *place = i64::try_from(len).unwrap_or(i64::MAX) };
            OK
        }
        Err(code) => code,
    }
}

/// A journal belongs to the holder of its database's locks.
unsafe extern "C" fn no_lock(_: *mut FileObject, _: c_int) -> c_int {
    OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut FileObject, place: *mut c_int) -> c_int {
    // SAFETY: L3.
    unsafe { *place = 0 };
    OK
}

unsafe extern "C" fn file_control(_: *mut FileObject, _: c_int, _: *mut c_void) -> c_int {
    NOTFOUND
}

/// SQLite asks the database for these two.
unsafe extern "C" fn sector_size(_: *mut FileObject) -> c_int {
    0
}

unsafe extern "C" fn device_characteristics(_: *mut FileObject) -> c_int {
    0
}
