//! Ways to write files that no export sees: their files are not held.

use crate::mapped::Move;
use crate::{follow, guarded, mapped, names, next};
use libc::{
    aiocb, c_char, c_int, c_uint, c_void, off_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, sigevent, size_t,
};

macro_rules! maps {
    ($($name:ident),*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(
            at: *mut c_void,
            len: size_t,
            access: c_int,
            flags: c_int,
            fd: c_int,
            from: off_t,
        ) -> *mut c_void {
            // SAFETY: L1.
            let call = || unsafe { next::mmap(at, len, access, flags, fd, from) };
            // SHARED_VALIDATE has SHARED's bit.
            let shared = flags & libc::MAP_SHARED != 0 && flags & libc::MAP_ANONYMOUS == 0;
            if shared { mapped::map(fd, len, (access, flags), call) } else { call() }
        }
    )* };
}

maps!(mmap, mmap64);

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn mprotect(at: *mut c_void, len: size_t, access: c_int) -> c_int {
    // SAFETY: L1.
    mapped::protect(at, len, access, || unsafe { next::mprotect(at, len, access) })
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pkey_mprotect(at: *mut c_void, len: size_t, access: c_int, key: c_int) -> c_int {
    // SAFETY: L1.
    mapped::protect(at, len, access, || unsafe { next::pkey_mprotect(at, len, access, key) })
}

/// As in libc.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    // SAFETY: L1.
    mapped::unmap(at, len, || unsafe { next::munmap(at, len) })
}

/// As in libc.
///
/// # Safety
/// L1, L4.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn mremap(
    from: *mut c_void,
    len: size_t,
    new_len: size_t,
    how: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // SAFETY: L1, L4.
    mapped::remap(&Move { from, len, new_len, how, to }, || unsafe { next::mremap(from, len, new_len, how, to) })
}

/// # Safety
/// L1: `request` is null or one.
unsafe fn abandon(request: *const aiocb) {
    // SAFETY: the caller's promise.
    if let Some(request) = unsafe { request.as_ref() } {
        follow::abandon_unseen(request.aio_fildes);
        guarded(|| names::settle_in(request.aio_fildes));
    }
}

macro_rules! asynchronous {
    ($($write:ident, $fsync:ident, $list:ident);*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $write(request: *mut aiocb) -> c_int {
            // SAFETY: L1.
            unsafe {
                abandon(request);
                next::aio_write(request)
            }
        }

        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $fsync(how: c_int, request: *mut aiocb) -> c_int {
            // SAFETY: L1; where that is refused, libc does not look at the request.
            unsafe {
                if [libc::O_SYNC, libc::O_DSYNC].contains(&how) {
                    abandon(request);
                }
                next::aio_fsync(how, request)
            }
        }

        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $list(
            mode: c_int,
            list: *const *mut aiocb,
            count: c_int,
            event: *mut sigevent,
        ) -> c_int {
            // Where that is refused, libc does not look at the list.
            if !list.is_null() && [libc::LIO_WAIT, libc::LIO_NOWAIT].contains(&mode) {
                for index in 0..usize::try_from(count).unwrap_or(0) {
                    // SAFETY: L1: the list has as many places.
                    unsafe { abandon(*list.add(index)) };
                }
            }
            // SAFETY: L1.
            unsafe { next::lio_listio(mode, list, count, event) }
        }
    )* };
}

asynchronous!(aio_write, aio_fsync, lio_listio; aio_write64, aio_fsync64, lio_listio64);

macro_rules! queues {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => { $(
        /// As in the library that has it.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
            follow::abandon_process();
            // SAFETY: L1.
            unsafe { next::$name($($argument),*) }
        }
    )* };
}

queues! {
    io_setup(events: c_uint, context: *mut c_void);
    io_uring_setup(entries: c_uint, parameters: *mut c_void);
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
}

macro_rules! spawns {
    ($($name:ident),*) => { $(
        /// As in libc. What its actions open is opened inside of libc: no name is held that one of
        /// them could be.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name(
            child: *mut pid_t,
            program: *const c_char,
            actions: *const posix_spawn_file_actions_t,
            how: *const posix_spawnattr_t,
            arguments: *const *mut c_char,
            environment: *const *mut c_char,
        ) -> c_int {
            let changes = [(!actions.is_null()).then(names::change_anywhere)];
            // SAFETY: L1.
            names::during(changes, || unsafe { next::$name(child, program, actions, how, arguments, environment) })
        }
    )* };
}

spawns!(posix_spawn, posix_spawnp);
