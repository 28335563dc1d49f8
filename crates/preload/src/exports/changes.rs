//! Functions that shorten files, or change what a path names.

use crate::asked::{GivenPath, Named, named};
use crate::follow::{Aim, Source, change};
use crate::names::Change;
use crate::{asked, follow, guarded, names, next, process};
use libc::{AT_FDCWD, c_char, c_int, c_uint, dev_t, mode_t, off_t};
use rustix::io::Errno;

/// What a path that came from C names; a bad address names nothing.
///
/// # Safety
/// L1.
unsafe fn what(folder: c_int, path: *const c_char, follow: bool) -> Named {
    // SAFETY: L1.
    named(unsafe { GivenPath::new(folder, path) }, follow)
}

/// The contents of the file at `path` are going to be cut.
///
/// # Safety
/// L1.
pub(super) unsafe fn settle_contents(folder: c_int, path: *const c_char) {
    // SAFETY: L1.
    if let Named::File(file, _) = unsafe { what(folder, path, true) } {
        follow::settle_held(file);
    }
}

/// The attributes of what is at `path` are going to be set: the same, and if it is a folder, it
/// changes until the answer's end.
///
/// # Safety
/// L1.
pub(super) unsafe fn attributing(folder: c_int, path: *const c_char) -> Option<Change> {
    if !process::names_are_held() {
        return None;
    }
    // SAFETY: L1.
    match unsafe { what(folder, path, true) } {
        Named::Folder(folder) => Some(names::change_of_folder(folder)),
        _ => None,
    }
}

/// A name is going to lead elsewhere. If it was the last one, nobody will look for the file.
///
/// # Safety
/// L1.
unsafe fn settle_other_names(folder: c_int, path: *const c_char) {
    // SAFETY: L1.
    if let Named::File(file, 2..) = unsafe { what(folder, path, false) } {
        follow::settle_held(file);
    }
}

/// What `path` names is going to be made, removed or renamed, until the answer's end.
///
/// # Safety
/// L1.
unsafe fn changing(folder: c_int, path: *const c_char) -> Option<Change> {
    // SAFETY: L1.
    (!path.is_null()).then(|| names::change(folder, unsafe { GivenPath::new(folder, path) }))
}

/// The same by being opened.
///
/// # Safety
/// L1.
pub(super) unsafe fn changing_by_opening(folder: c_int, path: *const c_char) -> Option<Change> {
    // SAFETY: L1.
    (!path.is_null()).then(|| names::change_by_opening(folder, unsafe { GivenPath::new(folder, path) }))
}

/// What is at `path` is going to have another name.
///
/// # Safety
/// L1.
unsafe fn settle_renamed(folder: c_int, path: *const c_char) {
    // SAFETY: L1.
    match unsafe { what(folder, path, false) } {
        Named::File(file, _) => follow::settle_held(file),
        Named::Folder(_) => follow::settle_all(),
        Named::Nothing => {}
    }
}

/// Opens by `call`; nothing is kept of what it cuts. If a file may be made, with `mode`, it may be
/// a young one.
///
/// # Safety
/// L1.
pub(super) unsafe fn opened(
    folder: c_int,
    path: *const c_char,
    (flags, mode): (c_int, Option<mode_t>),
    call: impl FnOnce() -> c_int,
) -> c_int {
    let makes = flags & libc::O_CREAT != 0 && !path.is_null();
    // SAFETY: L1.
    let given = unsafe { GivenPath::new(folder, path) };
    let young = || mode.filter(|_| makes).and_then(|mode| names::create(folder, given, flags, mode));
    if let Some(fd) = guarded(young) {
        follow::opened(fd);
        names::learn(fd);
        return fd;
    }
    // SAFETY: L1.
    let made = if makes { unsafe { changing_by_opening(folder, path) } } else { None };
    let fd = if flags & libc::O_TRUNC == 0 {
        call()
    } else {
        // SAFETY: L1.
        change(|| unsafe { settle_contents(folder, path) }, call)
    };
    if fd >= 0 {
        made.into_iter().for_each(|change| change.opened(fd));
        follow::opened(fd);
    }
    names::during([made], || fd)
}

macro_rules! opens {
    ($($name:ident $(= $at:ident)?);*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1, L4.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: L1, L4.
            unsafe { opened(AT_FDCWD, path, (flags, Some(mode)), || next::open(path, flags, mode)) }
        }

        $(/// As in libc.
        ///
        /// # Safety
        /// L1, L4.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $at(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: L1, L4.
            unsafe { opened(folder, path, (flags, Some(mode)), || next::openat(folder, path, flags, mode)) }
        })?
    )* };
}

// The names that begin with underscores are what `open` becomes in programs compiled with
// fortification, or libc's own second names.
opens!(open = openat; open64 = openat64; __open_2 = __openat_2; __open64_2 = __openat64_2; __open; __open64);

macro_rules! creates {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(path: *const c_char, mode: mode_t) -> c_int {
            // SAFETY: L1.
            unsafe { opened(AT_FDCWD, path, (libc::O_CREAT | libc::O_TRUNC, None), || next::creat(path, mode)) }
        }
    )* };
}

creates!(creat, creat64);

macro_rules! invents {
    ($($name:ident = $next:ident($($argument:ident),*);)*) => { $(
        /// As in libc: opens a file with a name that nobody had.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(template: *mut c_char $(, $argument: c_int)*) -> c_int {
            // SAFETY: L1.
            let changes = unsafe { [changing(AT_FDCWD, template)] };
            // SAFETY: L1.
            let fd = names::during(changes, || unsafe { next::$next(template $(, $argument)*) });
            if fd >= 0 {
                follow::opened(fd);
            }
            fd
        }
    )* };
}

invents! {
    mkstemp = mkstemp();
    mkstemp64 = mkstemp();
    mkostemp = mkostemp(flags);
    mkostemp64 = mkostemp(flags);
    mkstemps = mkstemps(ending);
    mkstemps64 = mkstemps(ending);
    mkostemps = mkostemps(ending, flags);
    mkostemps64 = mkostemps(ending, flags);
}

macro_rules! truncates {
    ($($by_path:ident, $by_fd:ident, $allocate:ident, $reserve:ident);*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $by_path(path: *const c_char, size: off_t) -> c_int {
            // SAFETY: L1.
            change(|| unsafe { settle_contents(AT_FDCWD, path) }, || unsafe { next::truncate(path, size) })
        }

        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $by_fd(fd: c_int, size: off_t) -> c_int {
            // SAFETY: L1.
            let call = || unsafe { next::ftruncate(fd, size) };
            if asked::size_of(fd).is_some_and(|now| now <= size) {
                return in_place(fd, call);
            }
            change(|| asked::file_of(fd).into_iter().for_each(follow::settle_held), || in_place(fd, call))
        }

        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $allocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
            // SAFETY: L1.
            let call = || unsafe { next::fallocate(fd, mode, at, len) };
            if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 {
                return in_place(fd, call);
            }
            change(|| asked::file_of(fd).into_iter().for_each(follow::settle_held), || in_place(fd, call))
        }

        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $reserve(fd: c_int, at: off_t, len: off_t) -> c_int {
            // SAFETY: L1.
            in_place(fd, || unsafe { next::posix_fallocate(fd, at, len) })
        }
    )* };
}

truncates!(truncate, ftruncate, fallocate, posix_fallocate; truncate64, ftruncate64, fallocate64, posix_fallocate64);

/// A change that the next sync is to make durable by the kernel. Where each write is a sync, some
/// kernels sync it at once, so it is one here.
fn in_place(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let mut answer = 0;
    let followed = follow::write(fd, Aim::Anywhere, Source::Unknown, || {
        answer = call();
        isize::from(answer == 0)
    });
    if followed < 0 { -1 } else { answer }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: L1.
    unsafe { renamed(AT_FDCWD, old, AT_FDCWD, new, || next::rename(old, new)) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn renameat(
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
) -> c_int {
    // SAFETY: L1.
    unsafe { renamed(from, old, to, new, || next::renameat(from, old, to, new)) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn renameat2(
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: L1.
    unsafe { renamed(from, old, to, new, || next::renameat2(from, old, to, new, flags)) }
}

/// # Safety
/// L1.
unsafe fn renamed(
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let prepare = || {
        // SAFETY: L1. What is at the new path goes, or is exchanged: either way it is no longer
        // there.
        unsafe {
            settle_renamed(from, old);
            settle_renamed(to, new);
        }
    };
    // SAFETY: L1.
    let changes = unsafe { [changing(from, old), changing(to, new)] };
    names::during(changes, || change(prepare, call))
}

/// Removes the name `path` by `call`, or as a young file's.
///
/// # Safety
/// L1.
unsafe fn removed(folder: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    if names::are_there() {
        // SAFETY: L1.
        if let Named::File(file, 1) = unsafe { what(folder, path, false) } {
            names::removing(file);
        }
    }
    // SAFETY: L1.
    let given = unsafe { GivenPath::new(folder, path) };
    guarded(|| names::remove(folder, given)).unwrap_or_else(|| {
        // SAFETY: L1.
        let changes = unsafe { [changing(folder, path)] };
        // SAFETY: L1.
        names::during(changes, || change(|| unsafe { settle_other_names(folder, path) }, call))
    })
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: L1.
    unsafe { removed(AT_FDCWD, path, || next::unlink(path)) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: L1.
    let call = || unsafe { next::unlinkat(folder, path, flags) };
    if flags == 0 {
        // SAFETY: L1.
        unsafe { removed(folder, path, call) }
    } else {
        // SAFETY: L1.
        let changes = unsafe { [changing(folder, path)] };
        names::during(changes, call)
    }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn remove(path: *const c_char) -> c_int {
    // SAFETY: L1.
    unsafe { removed(AT_FDCWD, path, || next::remove(path)) }
}

macro_rules! makes {
    ($($name:ident($folder:expr, $path:ident) = ($($argument:ident: $kind:ty),*);)*) => { $(
        /// As in libc: changes what a folder has, and no file.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: L1.
            let changes = unsafe { [changing($folder, $path)] };
            // SAFETY: L1.
            names::during(changes, || unsafe { next::$name($($argument),*) })
        }
    )* };
}

makes! {
    symlink(AT_FDCWD, path) = (target: *const c_char, path: *const c_char);
    symlinkat(folder, path) = (target: *const c_char, folder: c_int, path: *const c_char);
    mkdir(AT_FDCWD, path) = (path: *const c_char, mode: mode_t);
    mkdirat(folder, path) = (folder: c_int, path: *const c_char, mode: mode_t);
    rmdir(AT_FDCWD, path) = (path: *const c_char);
    mkfifo(AT_FDCWD, path) = (path: *const c_char, mode: mode_t);
    mkfifoat(folder, path) = (folder: c_int, path: *const c_char, mode: mode_t);
    mknod(AT_FDCWD, path) = (path: *const c_char, mode: mode_t, device: dev_t);
    mknodat(folder, path) = (folder: c_int, path: *const c_char, mode: mode_t, device: dev_t);
}

/// As in libc, where it is what `mknod` was in programs that were linked long ago.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn __xmknod(
    version: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: L1.
    unsafe { __xmknodat(version, AT_FDCWD, path, mode, device) }
}

/// As in libc, where it is what `mknodat` was in programs that were linked long ago.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn __xmknodat(
    version: c_int,
    folder: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // There is no other version on machines of 64 bits. Newer libraries have this function for such
    // programs alone, so it is not to be found by its name.
    if version != 0 {
        return follow::failed(Errno::INVAL);
    }
    // SAFETY: L1.
    unsafe { mknodat(folder, path, mode, *device) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: L1.
    let changes = unsafe { [changing(AT_FDCWD, template)] };
    // SAFETY: L1.
    names::during(changes, || unsafe { next::mkdtemp(template) })
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn link(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: L1.
    unsafe { linked((AT_FDCWD, old, 0), AT_FDCWD, new, || next::link(old, new)) }
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn linkat(
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: L1.
    unsafe { linked((from, old, flags), to, new, || next::linkat(from, old, to, new, flags)) }
}

/// A file gets one more name, which its holder has to know of if the other one is a young file's.
///
/// # Safety
/// L1.
unsafe fn linked(
    (from, old, flags): (c_int, *const c_char, c_int),
    to: c_int,
    new: *const c_char,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if process::names_are_held() {
        // SAFETY: L1.
        match unsafe { what(from, old, flags & libc::AT_SYMLINK_FOLLOW != 0) } {
            Named::File(file, _) => follow::settle_held(file),
            // Without a path it is the file behind the descriptor.
            _ => asked::file_of(from).into_iter().for_each(follow::settle_held),
        }
    }
    // SAFETY: L1.
    let changes = unsafe { [changing(to, new)] };
    names::during(changes, call)
}
