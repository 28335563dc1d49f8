//! How SQLite starts the extension.

use crate::abi::{self, Code, Function, Vfs, routine};
use crate::sqlite::{self, Sqlite};
use crate::vfs;
use std::ffi::{c_char, c_int, c_void};

/// Registers the VFS `tidegate`; what SQLite calls when it loads the library.
///
/// # Safety
/// SQLite calls it as `sqlite3ext.h` says: `error` can be written to, and `routines` is its table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    database: *mut c_void,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> Code {
    // SAFETY: the caller's.
    unsafe { sqlite3_tidegate_init(database, error, routines) }
}

/// Registers the VFS `tidegate`, under a name that no other extension has: for programs that link
/// this library and hand this to `sqlite3_auto_extension`.
///
/// # Safety
/// As for [`sqlite3_extension_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_tidegate_init(
    _database: *mut c_void,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> Code {
    // SAFETY: L5.
    let Some(functions) = (unsafe { table(routines.cast()) }) else {
        // SAFETY: L3 and L5: every version has this function.
        unsafe { say(error, routines.cast()) };
        return abi::ERROR;
    };
    if vfs::register(sqlite::set(functions)) { abi::OK_LOAD_PERMANENTLY } else { abi::ERROR }
}

/// # Safety
/// L5.
unsafe fn table(routines: *const Option<Function>) -> Option<Sqlite> {
    if routines.is_null() {
        return None;
    }
    // SAFETY: L5, and every version has this member.
    let version = unsafe { (*routines.add(routine::LIBVERSION_NUMBER))? };
    // SAFETY: L5: the member has this type.
    let version = unsafe { std::mem::transmute::<Function, extern "C" fn() -> c_int>(version)() };
    if version < abi::VERSION_MIN {
        return None;
    }
    // SAFETY: L5, and the version has these members, of these types.
    unsafe {
        Some(Sqlite {
            find: std::mem::transmute::<Function, unsafe extern "C" fn(*const c_char) -> *mut Vfs>(
                (*routines.add(routine::VFS_FIND))?,
            ),
            register: std::mem::transmute::<Function, unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>(
                (*routines.add(routine::VFS_REGISTER))?,
            ),
            filename_database: std::mem::transmute::<Function, unsafe extern "C" fn(*const c_char) -> *const c_char>(
                (*routines.add(routine::FILENAME_DATABASE))?,
            ),
            print: std::mem::transmute::<Function, unsafe extern "C" fn(*const c_char, ...) -> *mut c_char>(
                (*routines.add(routine::MPRINTF))?,
            ),
        })
    }
}

/// # Safety
/// L3 for `error`, and L5.
unsafe fn say(error: *mut *mut c_char, routines: *const Option<Function>) {
    if routines.is_null() || error.is_null() {
        return;
    }
    // SAFETY: L5: every version has this member.
    if let Some(print) = unsafe { *routines.add(routine::MPRINTF) } {
        // SAFETY: L5: the member has this type, and the text is a format without arguments.
        unsafe {
            let print = std::mem::transmute::<Function, unsafe extern "C" fn(*const c_char, ...) -> *mut c_char>(print);
            *error = print(c"tidegate needs SQLite 3.32 or newer".as_ptr());
        }
    }
}
