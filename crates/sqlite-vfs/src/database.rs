//! The object of a database: what is gathered of a transaction, over the file below.

use crate::abi::{self, Code, FileObject, IOERR_SHORT_READ, IOERR_WRITE, Methods, NOTFOUND, OK};
use crate::files::Files;
use crate::open_databases;
use crate::real_file::code;
use crate::sqlite::sqlite;
use crate::status::{self, Support};
use crate::transaction::{JournalPhase, MountTransaction};
use std::ffi::{CStr, c_char, c_int, c_void};

/// One connection's database. Its journal has a pointer to it.
pub(crate) struct Database {
    pub(crate) transaction: MountTransaction,
    pub(crate) files: Files,
    /// Whether the journal's file, if there is one, has ended: the next journal is in memory.
    pub(crate) journal_has_ended: bool,
}

/// What SQLite has. The object of the file below lies behind it.
#[repr(C)]
pub(crate) struct DatabaseObject {
    pub(crate) base: FileObject,
    pub(crate) database: *mut Database,
}

/// The methods of a database on a mount.
pub(crate) static GROUPED: Methods = methods(2);
/// The methods of another database.
pub(crate) static PASSED: Methods = methods(3);

const fn methods(version: c_int) -> Methods {
    Methods {
        version,
        close,
        read,
        write,
        truncate,
        sync,
        file_size,
        lock,
        unlock,
        check_reserved_lock,
        file_control,
        sector_size,
        device_characteristics,
        shm_map: Some(shm_map),
        shm_lock: Some(shm_lock),
        shm_barrier: Some(shm_barrier),
        shm_unmap: Some(shm_unmap),
        fetch: Some(fetch),
        unfetch: Some(unfetch),
    }
}

/// # Safety
/// L1.
unsafe fn of<'a>(object: *mut FileObject) -> &'a mut Database {
    // SAFETY: L1: the object begins with this, the box lives until it is closed, and no other
    // thread uses it.
    unsafe { &mut *(*object.cast::<DatabaseObject>()).database }
}

impl Database {
    /// Whether transactions can be groups.
    pub(crate) fn has_groups(&self) -> bool {
        self.files.support == Support::Groups
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Code {
        if self.transaction.is_transparent() {
            return self.files.real.read(at, buffer);
        }
        match self.transaction.read(&mut self.files, at, buffer) {
            Ok(true) => OK,
            Ok(false) => IOERR_SHORT_READ,
            Err(code) => code,
        }
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Code {
        let written = code(self.transaction.write(&mut self.files, at, data));
        // After this error SQLite takes a journal instead of a batch.
        if written != OK && self.transaction.phase() == JournalPhase::Batch { IOERR_WRITE } else { written }
    }

    /// The transaction's last page was written. A transaction of several databases goes by files.
    fn flush(&mut self, has_super_journal: bool) -> Code {
        let files = &mut self.files;
        match self.transaction.phase() {
            JournalPhase::Gathering if has_super_journal => code(self.transaction.fall_back(files)),
            JournalPhase::Gathering => code(self.transaction.flush(files)),
            JournalPhase::Idle | JournalPhase::Batch | JournalPhase::OnDisk => OK,
        }
    }

    fn begin_batch(&mut self) -> Code {
        if self.transaction.phase() != JournalPhase::Idle {
            return IOERR_WRITE;
        }
        self.transaction.begin_batch();
        OK
    }

    fn commit_batch(&mut self) -> Code {
        let committed = self.transaction.commit_batch(&mut self.files);
        committed.map_or(IOERR_WRITE, |()| OK)
    }

    fn drop_batch(&mut self) -> Code {
        if self.transaction.phase() == JournalPhase::Batch {
            self.transaction.reset(JournalPhase::Idle);
        }
        OK
    }

    /// Gives locks back. What was not committed by then is lost, as a journal that stays is rolled
    /// back.
    fn unlock(&mut self, level: c_int) -> Code {
        if level <= abi::LOCK_SHARED && self.transaction.phase() != JournalPhase::Idle {
            self.transaction.reset(JournalPhase::Idle);
        }
        // SAFETY: L4.
        unsafe { (self.files.real.methods().unlock)(self.files.real.object(), level) }
    }

    /// # Safety
    /// `argument` is what the operation wants.
    unsafe fn control(&mut self, operation: c_int, argument: *mut c_void) -> Code {
        match operation {
            // SAFETY: the caller's.
            abi::FCNTL_PRAGMA if unsafe { self.answer_pragma(argument.cast()) } => return OK,
            // SAFETY: the caller's.
            abi::FCNTL_VFSNAME => return unsafe { self.name(argument.cast()) },
            _ if !self.has_groups() => {}
            abi::FCNTL_SYNC => return self.flush(!argument.is_null()),
            abi::FCNTL_BEGIN_ATOMIC_WRITE => return self.begin_batch(),
            abi::FCNTL_COMMIT_ATOMIC_WRITE => return self.commit_batch(),
            abi::FCNTL_ROLLBACK_ATOMIC_WRITE => return self.drop_batch(),
            // The group gives the file its length.
            abi::FCNTL_SIZE_HINT
                if matches!(self.transaction.phase(), JournalPhase::Gathering | JournalPhase::Batch) =>
            {
                return OK;
            }
            abi::FCNTL_HAS_MOVED => {
                if let Some(moved) = self.files.has_moved() {
                    // SAFETY: the operation has a number, for the answer.
                    unsafe { *argument.cast::<c_int>() = moved.into() };
                    return OK;
                }
            }
            abi::FCNTL_MMAP_SIZE => {
                // SAFETY: the operation has a number, in and out.
                unsafe { *argument.cast::<i64>() = 0 };
                return OK;
            }
            _ => {}
        }
        // SAFETY: the caller's.
        unsafe { self.files.real.control(operation, argument) }
    }

    /// # Safety
    /// `words` are those of a pragma: the answer's place, its name, its value.
    unsafe fn answer_pragma(&self, words: *mut *mut c_char) -> bool {
        // SAFETY: the caller's.
        let name = unsafe { *words.add(1) };
        // SAFETY: the caller's: a text, or null.
        let is_ours = !name.is_null() && unsafe { CStr::from_ptr(name) }.to_bytes().eq_ignore_ascii_case(STATUS);
        let Some(sqlite) = sqlite().filter(|_| is_ours) else { return false };
        let text = status::text(self.files.support, self.files.counts);
        // SAFETY: L5, the format takes one text, and the place is the caller's.
        unsafe { *words = (sqlite.print)(c"%s".as_ptr(), text.as_ptr()) };
        true
    }

    /// # Safety
    /// `place` is one for a text.
    unsafe fn name(&self, place: *mut *mut c_char) -> Code {
        // SAFETY: the caller's.
        let named = unsafe { self.files.real.control(abi::FCNTL_VFSNAME, place.cast()) };
        if let Some(sqlite) = sqlite().filter(|_| named == OK) {
            // SAFETY: L5, and the format takes one text of SQLite's and frees it.
            unsafe { *place = (sqlite.print)(c"tidegate/%z".as_ptr(), *place) };
        }
        named
    }
}

const STATUS: &[u8] = b"tidegate_status";

unsafe extern "C" fn close(object: *mut FileObject) -> c_int {
    // SAFETY: L1: the box is given back once.
    let database = unsafe { Box::from_raw((*object.cast::<DatabaseObject>()).database) };
    open_databases::forget((&raw const *database).addr());
    database.files.real.close()
}

unsafe extern "C" fn read(object: *mut FileObject, buffer: *mut c_void, len: c_int, at: i64) -> c_int {
    let (Ok(len), Ok(at)) = (usize::try_from(len), u64::try_from(at)) else { return IOERR_SHORT_READ };
    // SAFETY: L1 and L3.
    unsafe { of(object).read(at, std::slice::from_raw_parts_mut(buffer.cast(), len)) }
}

unsafe extern "C" fn write(object: *mut FileObject, data: *const c_void, len: c_int, at: i64) -> c_int {
    let (Ok(len), Ok(at)) = (usize::try_from(len), u64::try_from(at)) else { return IOERR_WRITE };
    // SAFETY: L1 and L3.
    unsafe { of(object).write(at, std::slice::from_raw_parts(data.cast(), len)) }
}

unsafe extern "C" fn truncate(object: *mut FileObject, len: i64) -> c_int {
    // SAFETY: L1.
    let database = unsafe { of(object) };
    let len = u64::try_from(len).unwrap_or(0);
    code(database.transaction.truncate(&mut database.files, len))
}

unsafe extern "C" fn sync(object: *mut FileObject, flags: c_int) -> c_int {
    // SAFETY: L1.
    unsafe { of(object) }.files.sync(flags)
}

unsafe extern "C" fn file_size(object: *mut FileObject, place: *mut i64) -> c_int {
    // SAFETY: L1.
    let database = unsafe { of(object) };
    match database.transaction.len(&mut database.files) {
        Ok(len) => {
            // SAFETY: L3.
            unsafe { *place = i64::try_from(len).unwrap_or(i64::MAX) };
            OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn lock(object: *mut FileObject, level: c_int) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    // SAFETY: L4.
    unsafe { (real.methods().lock)(real.object(), level) }
}

unsafe extern "C" fn unlock(object: *mut FileObject, level: c_int) -> c_int {
    // SAFETY: L1.
    unsafe { of(object) }.unlock(level)
}

unsafe extern "C" fn check_reserved_lock(object: *mut FileObject, place: *mut c_int) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    // SAFETY: L4 and L3.
    unsafe { (real.methods().check_reserved_lock)(real.object(), place) }
}

unsafe extern "C" fn file_control(object: *mut FileObject, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: L1, and the argument is what the operation wants (L3).
    unsafe { of(object).control(operation, argument) }
}

unsafe extern "C" fn sector_size(object: *mut FileObject) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    // SAFETY: L4.
    unsafe { (real.methods().sector_size)(real.object()) }
}

unsafe extern "C" fn device_characteristics(object: *mut FileObject) -> c_int {
    // SAFETY: L1.
    let database = unsafe { of(object) };
    let real = database.files.real;
    // SAFETY: L4.
    let of_file = unsafe { (real.methods().device_characteristics)(real.object()) };
    if database.has_groups() { of_file | abi::IOCAP_BATCH_ATOMIC } else { of_file }
}

unsafe extern "C" fn shm_map(
    object: *mut FileObject,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    place: *mut *mut c_void,
) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    // SAFETY: L4 and L3.
    real.methods().shm_map.map_or(NOTFOUND, |map| unsafe { map(real.object(), region, bytes, extend, place) })
}

unsafe extern "C" fn shm_lock(object: *mut FileObject, offset: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    // SAFETY: L4.
    real.methods().shm_lock.map_or(NOTFOUND, |lock| unsafe { lock(real.object(), offset, count, flags) })
}

unsafe extern "C" fn shm_barrier(object: *mut FileObject) {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    if let Some(barrier) = real.methods().shm_barrier {
        // SAFETY: L4.
        unsafe { barrier(real.object()) };
    }
}

unsafe extern "C" fn shm_unmap(object: *mut FileObject, delete: c_int) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    // SAFETY: L4.
    real.methods().shm_unmap.map_or(OK, |unmap| unsafe { unmap(real.object(), delete) })
}

unsafe extern "C" fn fetch(object: *mut FileObject, at: i64, len: c_int, place: *mut *mut c_void) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    // SAFETY: L3: no page of a mapping, unless the file below has one.
    unsafe { *place = std::ptr::null_mut() };
    let methods = real.methods();
    let fetch = if methods.version >= 3 { methods.fetch } else { None };
    // SAFETY: L4 and L3.
    fetch.map_or(OK, |fetch| unsafe { fetch(real.object(), at, len, place) })
}

unsafe extern "C" fn unfetch(object: *mut FileObject, at: i64, page: *mut c_void) -> c_int {
    // SAFETY: L1.
    let real = unsafe { of(object) }.files.real;
    let methods = real.methods();
    let unfetch = if methods.version >= 3 { methods.unfetch } else { None };
    // SAFETY: L4, and the page came from the file below.
    unfetch.map_or(OK, |unfetch| unsafe { unfetch(real.object(), at, page) })
}
