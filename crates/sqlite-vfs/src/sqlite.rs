//! Functions that the VFS has from the SQLite that loaded it: it links to none.

use crate::abi::Vfs;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// Functions of the SQLite that loaded the extension.
#[derive(Clone, Copy)]
pub(crate) struct Sqlite {
    pub(crate) find: unsafe extern "C" fn(*const c_char) -> *mut Vfs,
    pub(crate) register: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub(crate) filename_database: unsafe extern "C" fn(*const c_char) -> *const c_char,
    pub(crate) print: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
}

static SQLITE: OnceLock<Sqlite> = OnceLock::new();

/// Takes the functions that an extension was given. A second loading gets the same ones.
pub(crate) fn set(functions: Sqlite) -> &'static Sqlite {
    SQLITE.get_or_init(|| functions)
}

/// The functions, once the extension was loaded.
pub(crate) fn sqlite() -> Option<&'static Sqlite> {
    SQLITE.get()
}
