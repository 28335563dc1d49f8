//! The VFS: which files it takes over, and which go through to the VFS for Unix.

use crate::abi::{CANTOPEN, FileObject, OK, OPEN_CREATE, OPEN_MAIN_DB, OPEN_MAIN_JOURNAL, Vfs};
use crate::database::{self, Database, DatabaseObject};

use crate::files::Files;
use crate::journal::{self, JournalObject};
use crate::open_databases::{OpenDatabase, open_databases};
use crate::real_file::{OwnFile, RealFile};
use crate::sqlite::{Sqlite, sqlite};
use crate::status::{CommitCounts, Support};
use crate::transaction::{JournalPhase, MountTransaction};
use crate::{descriptor, group};
use std::ffi::{c_char, c_int};

const NAME: &std::ffi::CStr = c"tidegate";
const UNIX: &std::ffi::CStr = c"unix";

/// Bytes of our objects. That of a database has the file's below behind it.
const OBJECT_BYTES: usize = size_of::<DatabaseObject>();
const _: () = assert!(OBJECT_BYTES.is_multiple_of(8) && size_of::<JournalObject>() <= OBJECT_BYTES);

/// Registers the VFS, unless it was. Returns whether it is there.
pub(crate) fn register(sqlite: &Sqlite) -> bool {
    // SAFETY: L5, and the names are texts.
    let (own, unix) = unsafe { ((sqlite.find)(NAME.as_ptr()), (sqlite.find)(UNIX.as_ptr())) };
    if !own.is_null() || unix.is_null() {
        return !own.is_null();
    }
    // SAFETY: L4.
    unsafe { descriptor::watch(unix) };
    // SAFETY: L4: it has the members of its version, and later ones are not used.
    let mut vfs = unsafe { (*unix).clone() };
    vfs.file_bytes += c_int::try_from(OBJECT_BYTES).unwrap_or(c_int::MAX - vfs.file_bytes);
    (vfs.next, vfs.name) = (std::ptr::null_mut(), NAME.as_ptr());
    (vfs.open, vfs.delete) = (open, delete);
    // SAFETY: L5. SQLite has it until the process ends, as the library stays loaded.
    unsafe { (sqlite.register)(Box::into_raw(Box::new(vfs)), 0) == OK }
}

fn unix() -> Option<*mut Vfs> {
    // SAFETY: L5, and the name is a text.
    sqlite().map(|sqlite| unsafe { (sqlite.find)(UNIX.as_ptr()) }).filter(|unix| !unix.is_null())
}

unsafe extern "C" fn open(
    _: *mut Vfs,
    name: *const c_char,
    object: *mut FileObject,
    flags: c_int,
    given: *mut c_int,
) -> c_int {
    // SAFETY: L3: no methods say that nothing is to be closed.
    unsafe { (*object).methods = std::ptr::null() };
    let Some(unix) = unix() else { return CANTOPEN };
    if flags & OPEN_MAIN_DB != 0 && !name.is_null() {
        // SAFETY: the caller's.
        return unsafe { open_database(unix, name, object, flags, given) };
    }
    if flags & OPEN_MAIN_JOURNAL != 0
        && !name.is_null()
        // SAFETY: L2.
        && let Some(database) = unsafe { database_of(name) }
    {
        // SAFETY: the caller's, and L1.
        return unsafe { open_journal(database, name, object, flags, given) };
    }
    // SAFETY: L4: the object has more bytes than this one needs.
    unsafe { ((*unix).open)(unix, name, object, flags, given) }
}

/// # Safety
/// Those of SQLite's call.
unsafe fn open_database(
    unix: *mut Vfs,
    name: *const c_char,
    object: *mut FileObject,
    flags: c_int,
    given: *mut c_int,
) -> c_int {
    // SAFETY: L3: the object has the bytes that the VFS asks for.
    let below = unsafe { object.byte_add(OBJECT_BYTES) };
    // SAFETY: L4 and L2.
    let (code, descriptor) = descriptor::of(|| unsafe { ((*unix).open)(unix, name, below, flags, given) });
    if code != OK {
        return code;
    }
    // SAFETY: it is open.
    let real = unsafe { RealFile::new(below) };
    let support = match descriptor {
        Some(descriptor) if group::is_supported(descriptor) => Support::Groups,
        Some(_) => Support::NotOnMount,
        None => Support::UnknownDescriptor,
    };
    let files = Files {
        unix,
        real,
        support,
        counts: CommitCounts::default(),
        descriptor: descriptor.unwrap_or(-1),
        name,
        journal_name: std::ptr::null(),
        journal: None,
        is_synced: false,
        is_named: support != Support::Groups || real.len().is_ok_and(|len| len > 0),
    };
    let database = Database { transaction: MountTransaction::default(), files, journal_has_ended: false };
    let database = Box::into_raw(Box::new(database));
    if support == Support::Groups {
        open_databases().push(OpenDatabase {
            name: name.addr(),
            journal: None,
            database: database.expose_provenance(),
        });
    }
    let methods = if support == Support::Groups { &database::GROUPED } else { &database::PASSED };
    // SAFETY: L3: the object has room for this.
    unsafe { object.cast::<DatabaseObject>().write(DatabaseObject { base: FileObject { methods }, database }) };
    OK
}

/// The database on a mount whose journal has this name.
///
/// # Safety
/// `name` is that of a journal that SQLite opens (L2).
unsafe fn database_of(name: *const c_char) -> Option<*mut Database> {
    // SAFETY: L5 and the caller's.
    let of_database = unsafe { (sqlite()?.filename_database)(name) };
    let mut open = open_databases();
    let found = open.iter_mut().find(|open| open.name == of_database.addr())?;
    found.journal = Some(name.addr());
    Some(std::ptr::with_exposed_provenance_mut(found.database))
}

/// # Safety
/// Those of SQLite's call, and `database` is open (L1).
unsafe fn open_journal(
    database: *mut Database,
    name: *const c_char,
    object: *mut FileObject,
    flags: c_int,
    given: *mut c_int,
) -> c_int {
    // SAFETY: L1.
    let opened = unsafe { &mut *database };
    opened.files.journal_name = name;
    opened.close_journal();
    let mut given_flags = flags;
    if flags & OPEN_CREATE != 0 {
        opened.transaction.reset(JournalPhase::Idle);
    } else {
        // One that an earlier process left: SQLite rolls it back.
        // SAFETY: L4 and L2.
        match unsafe { OwnFile::open(opened.files.unix, name, flags) } {
            Ok((own, flags)) => (opened.files.journal, given_flags) = (Some(own), flags),
            Err(code) => return code,
        }
    }
    if !given.is_null() {
        // SAFETY: L3.
        unsafe { *given = given_flags };
    }
    let methods = &raw const journal::METHODS;
    // SAFETY: L3: the object has room for this.
    unsafe { object.cast::<JournalObject>().write(JournalObject { base: FileObject { methods }, database }) };
    OK
}

unsafe extern "C" fn delete(_: *mut Vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    let journal = open_databases().iter().find(|open| open.journal == Some(name.addr())).map(|open| open.database);
    if let Some(database) = journal {
        // SAFETY: L1: its connection removes its journal.
        let database = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Database>(database) };
        return database.delete_journal(sync_directory);
    }
    // SAFETY: L4 and L2.
    unix().map_or(CANTOPEN, |unix| unsafe { ((*unix).delete)(unix, name, sync_directory) })
}
