//! Which descriptor the VFS for Unix opens for a file: it tells nobody, but opens files by a
//! function that can be replaced (`xSetSystemCall`).
//!
//! A descriptor of our own would not do: to close it would drop all locks that the process has on
//! the file.

use crate::abi::{Function, OK, Vfs};
use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// How the VFS for Unix opens a file: path, flags, mode.
type OpenCall = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;

static NEXT: OnceLock<OpenCall> = OnceLock::new();

thread_local! {
    /// The last descriptor that this thread opened, while it watches.
    static OPENED: Cell<Option<c_int>> = const { Cell::new(None) };
}

unsafe extern "C" fn open_and_note(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let Some(next) = NEXT.get() else { return -1 };
    // SAFETY: the caller's arguments, for the function that it would have called.
    let descriptor = unsafe { next(path, flags, mode) };
    if descriptor >= 0 {
        OPENED.set(Some(descriptor));
    }
    descriptor
}

/// Notes from now on what is opened. Without effect if this SQLite has no such functions.
///
/// # Safety
/// `unix` is the VFS for Unix (L4).
pub(crate) unsafe fn watch(unix: *mut Vfs) {
    let name = c"open".as_ptr();
    // SAFETY: L4.
    let (version, get, set) = unsafe { ((*unix).version, (*unix).get_system_call, (*unix).set_system_call) };
    let (true, Some(get), Some(set)) = (version >= 3, get, set) else { return };
    // SAFETY: L4, and the name is a text.
    let Some(next) = (unsafe { get(unix, name) }) else { return };
    // SAFETY: the VFS calls what is under this name with these arguments.
    NEXT.get_or_init(|| unsafe { std::mem::transmute::<Function, OpenCall>(next) });
    // SAFETY: as above, and the VFS calls this function instead.
    let replaced = unsafe {
        let noting = std::mem::transmute::<OpenCall, Function>(open_and_note);
        set(unix, name, Some(noting))
    };
    debug_assert_eq!(replaced, OK);
}

/// Runs `open`, and returns the descriptor that it opened last; `None`: it used another one again.
pub(crate) fn of(open: impl FnOnce() -> c_int) -> (c_int, Option<c_int>) {
    OPENED.set(None);
    let code = open();
    (code, OPENED.take())
}
