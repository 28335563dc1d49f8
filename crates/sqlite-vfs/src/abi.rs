//! SQLite's C interface as far as a VFS needs it: files, their methods, the VFS itself, and the
//! table of functions that SQLite hands to an extension.
//!
//! Layouts are those of `sqlite3.h` and `sqlite3ext.h`; SQLite only ever appends to them.

use std::ffi::{c_char, c_int, c_void};

/// A result code of SQLite.
pub(crate) type Code = c_int;

pub(crate) const OK: Code = 0;
pub(crate) const ERROR: Code = 1;
pub(crate) const FULL: Code = 13;
pub(crate) const NOTFOUND: Code = 12;
pub(crate) const CANTOPEN: Code = 14;
pub(crate) const IOERR_SHORT_READ: Code = 10 | (2 << 8);
pub(crate) const IOERR_DELETE_NOENT: Code = 10 | (23 << 8);
pub(crate) const IOERR_WRITE: Code = 10 | (3 << 8);
pub(crate) const OK_LOAD_PERMANENTLY: Code = 1 << 8;

pub(crate) const OPEN_CREATE: c_int = 0x4;
pub(crate) const OPEN_READWRITE: c_int = 0x2;
pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
pub(crate) const OPEN_MAIN_JOURNAL: c_int = 0x800;

pub(crate) const LOCK_SHARED: c_int = 1;
pub(crate) const SYNC_NORMAL: c_int = 2;
pub(crate) const SYNC_FULL: c_int = 3;
pub(crate) const IOCAP_BATCH_ATOMIC: c_int = 0x4000;

pub(crate) const FCNTL_SIZE_HINT: c_int = 5;
pub(crate) const FCNTL_VFSNAME: c_int = 12;
pub(crate) const FCNTL_PRAGMA: c_int = 14;
pub(crate) const FCNTL_MMAP_SIZE: c_int = 18;
pub(crate) const FCNTL_HAS_MOVED: c_int = 20;
pub(crate) const FCNTL_SYNC: c_int = 21;
pub(crate) const FCNTL_BEGIN_ATOMIC_WRITE: c_int = 31;
pub(crate) const FCNTL_COMMIT_ATOMIC_WRITE: c_int = 32;
pub(crate) const FCNTL_ROLLBACK_ATOMIC_WRITE: c_int = 33;

/// `sqlite3_file`: the beginning of every file object. No methods: it is not open.
#[repr(C)]
pub(crate) struct FileObject {
    pub(crate) methods: *const Methods,
}

/// A function of a file that takes the file alone.
pub(crate) type Plain = unsafe extern "C" fn(*mut FileObject) -> c_int;
/// A function of a file that takes a number.
pub(crate) type Numbered = unsafe extern "C" fn(*mut FileObject, c_int) -> c_int;

/// `sqlite3_io_methods`.
#[repr(C)]
pub(crate) struct Methods {
    pub(crate) version: c_int,
    pub(crate) close: Plain,
    pub(crate) read: unsafe extern "C" fn(*mut FileObject, *mut c_void, c_int, i64) -> c_int,
    pub(crate) write: unsafe extern "C" fn(*mut FileObject, *const c_void, c_int, i64) -> c_int,
    pub(crate) truncate: unsafe extern "C" fn(*mut FileObject, i64) -> c_int,
    pub(crate) sync: Numbered,
    pub(crate) file_size: unsafe extern "C" fn(*mut FileObject, *mut i64) -> c_int,
    pub(crate) lock: Numbered,
    pub(crate) unlock: Numbered,
    pub(crate) check_reserved_lock: unsafe extern "C" fn(*mut FileObject, *mut c_int) -> c_int,
    pub(crate) file_control: unsafe extern "C" fn(*mut FileObject, c_int, *mut c_void) -> c_int,
    pub(crate) sector_size: Plain,
    pub(crate) device_characteristics: Plain,
    // Version 2, which a journal lacks.
    pub(crate) shm_map: Option<ShmMap>,
    pub(crate) shm_lock: Option<unsafe extern "C" fn(*mut FileObject, c_int, c_int, c_int) -> c_int>,
    pub(crate) shm_barrier: Option<unsafe extern "C" fn(*mut FileObject)>,
    pub(crate) shm_unmap: Option<Numbered>,
    // Version 3, which a database on a mount lacks: a mapping does not have what is gathered.
    pub(crate) fetch: Option<unsafe extern "C" fn(*mut FileObject, i64, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) unfetch: Option<unsafe extern "C" fn(*mut FileObject, i64, *mut c_void) -> c_int>,
}

/// `xShmMap`: the region's number, its size, whether to extend, where the address goes.
pub(crate) type ShmMap = unsafe extern "C" fn(*mut FileObject, c_int, c_int, c_int, *mut *mut c_void) -> c_int;

/// Any function of the system or of SQLite, to be cast.
pub(crate) type Function = unsafe extern "C" fn();

/// `xOpen`.
pub(crate) type Open = unsafe extern "C" fn(*mut Vfs, *const c_char, *mut FileObject, c_int, *mut c_int) -> c_int;

/// `sqlite3_vfs`, version 3. Functions that are handed on as they are have no types here.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct Vfs {
    pub(crate) version: c_int,
    pub(crate) file_bytes: c_int,
    pub(crate) path_bytes_max: c_int,
    pub(crate) next: *mut Vfs,
    pub(crate) name: *const c_char,
    pub(crate) data: *mut c_void,
    pub(crate) open: Open,
    pub(crate) delete: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int,
    pub(crate) access: Function,
    pub(crate) full_pathname: Function,
    pub(crate) dl_open: Option<Function>,
    pub(crate) dl_error: Option<Function>,
    pub(crate) dl_sym: Option<Function>,
    pub(crate) dl_close: Option<Function>,
    pub(crate) randomness: Function,
    pub(crate) sleep: Function,
    pub(crate) current_time: Function,
    pub(crate) last_error: Option<Function>,
    pub(crate) current_time_int64: Option<Function>,
    pub(crate) set_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, Option<Function>) -> c_int>,
    pub(crate) get_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> Option<Function>>,
    pub(crate) next_system_call: Option<Function>,
}

/// Places of functions in `sqlite3_api_routines`, in pointers from its beginning.
pub(crate) mod routine {
    pub(crate) const LIBVERSION_NUMBER: usize = 67;
    pub(crate) const MPRINTF: usize = 69;
    pub(crate) const VFS_FIND: usize = 141;
    pub(crate) const VFS_REGISTER: usize = 142;
    /// Since 3.32.
    pub(crate) const FILENAME_DATABASE: usize = 246;
}

/// The first version whose table has all of [`routine`]: 3.32.0.
pub(crate) const VERSION_MIN: c_int = 3_032_000;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::{FileObject, Methods, Vfs, routine};
    use std::mem::offset_of;
    use std::process::Command;

    /// What a C program says of the header: sizes, and places of members. SQLite's structs have
    /// been these since 3.8; the VFS is registered with them in every later one.
    const LAYOUTS: &str = r#"
        #include <sqlite3.h>
        #include <stddef.h>
        #include <stdio.h>
        int main(void) {
            printf("%zu %zu %zu\n", sizeof(sqlite3_file), sizeof(sqlite3_io_methods), sizeof(sqlite3_vfs));
            printf("%zu %zu %zu %zu\n", offsetof(sqlite3_io_methods, xClose), offsetof(sqlite3_io_methods, xFileControl),
                offsetof(sqlite3_io_methods, xShmMap), offsetof(sqlite3_io_methods, xUnfetch));
            printf("%zu %zu %zu %zu\n", offsetof(sqlite3_vfs, pNext), offsetof(sqlite3_vfs, xOpen),
                offsetof(sqlite3_vfs, xRandomness), offsetof(sqlite3_vfs, xNextSystemCall));
            return 0;
        }
    "#;

    #[test]
    fn structs_are_laid_out_as_in_the_header() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("layouts.c"), folder.path().join("layouts"));
        std::fs::write(&source, LAYOUTS).unwrap();
        let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).status();
        assert!(compiled.expect("apt-get install gcc").success(), "apt-get install libsqlite3-dev");
        let said = Command::new(&program).output().unwrap();
        let expected = [
            vec![size_of::<FileObject>(), size_of::<Methods>(), size_of::<Vfs>()],
            vec![
                offset_of!(Methods, close),
                offset_of!(Methods, file_control),
                offset_of!(Methods, shm_map),
                offset_of!(Methods, unfetch),
            ],
            vec![
                offset_of!(Vfs, next),
                offset_of!(Vfs, open),
                offset_of!(Vfs, randomness),
                offset_of!(Vfs, next_system_call),
            ],
        ];
        let numbers = |line: &str| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<usize>>();
        let found: Vec<_> = std::str::from_utf8(&said.stdout).unwrap().lines().map(numbers).collect();
        assert_eq!(found, expected);
        assert_eq!(found[0], [8, 152, 168], "sizes that are pinned: see docs/reference/compatibility.md");
    }

    #[test]
    fn places_of_functions_are_those_of_the_header() {
        let header = std::fs::read_to_string("/usr/include/sqlite3ext.h")
            .expect("the header is installed: apt-get install libsqlite3-dev");
        let table = header.split_once("struct sqlite3_api_routines {").unwrap().1.split_once("\n};").unwrap().0;
        let without_comments: String =
            table.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
        let members: Vec<_> = without_comments.split(';').collect();
        let place = |name: &str| members.iter().position(|member| member.contains(&format!("(*{name})")));
        assert_eq!(place("libversion_number"), Some(routine::LIBVERSION_NUMBER));
        assert_eq!(place("mprintf"), Some(routine::MPRINTF));
        assert_eq!(place("vfs_find"), Some(routine::VFS_FIND));
        assert_eq!(place("vfs_register"), Some(routine::VFS_REGISTER));
        assert_eq!(place("filename_database"), Some(routine::FILENAME_DATABASE));
    }
}
