//! Ways to write files that no export sees: their files are not held.

use crate::{follow, next};
use libc::{aiocb, c_int, c_long, c_uint, c_void, off_t, sigevent, size_t};

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
            // SHARED_VALIDATE has SHARED's bit.
            if flags & libc::MAP_SHARED != 0 && flags & libc::MAP_ANONYMOUS == 0 {
                follow::mapping_shared(fd);
            }
            // SAFETY: L1.
            unsafe { next::mmap(at, len, access, flags, fd, from) }
        }
    )* };
}

maps!(mmap, mmap64);

/// # Safety
/// L1: `request` is null or one.
unsafe fn abandon(request: *const aiocb) {
    // SAFETY: the caller's promise.
    if let Some(request) = unsafe { request.as_ref() } {
        follow::abandon_unseen(request.aio_fildes);
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
            // SAFETY: L1.
            unsafe {
                abandon(request);
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
            if !list.is_null() {
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

/// As in libc. Calls that write, sync, close, open, rename or cut are made by the exports; queues of requests are announced.
///
/// # Safety
/// L1; arguments that a call does not have are read from where they would be, and handed on.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: L1: the arguments are those of the function of the same name.
    if let Some(answer) = unsafe { by_export(number, [a, b, c, d, e, f]) } {
        return answer;
    }
    if [libc::SYS_io_uring_setup, libc::SYS_io_setup].contains(&number) {
        follow::abandon_process();
    }
    // SAFETY: L1.
    unsafe { next::syscall(number, a, b, c, d, e, f) }
}

/// # Safety
/// L1 for the function of the call's name.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the kernel itself cuts its registers")]
unsafe fn by_export(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    use super::{changes, numbers, syncs, writes};
    let (fd, text) = (a as c_int, |word: c_long| word as *const _);
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            libc::SYS_write => writes::write(fd, text(b), c as usize) as c_long,
            libc::SYS_pwrite64 => writes::pwrite(fd, text(b), c as usize, d) as c_long,
            libc::SYS_writev => writes::writev(fd, b as *const _, c as c_int) as c_long,
            libc::SYS_sendfile => writes::sendfile(fd, b as c_int, c as *mut _, d as usize) as c_long,
            libc::SYS_copy_file_range => {
                writes::copy_file_range(fd, b as *mut _, c as c_int, d as *mut _, e as usize, f as c_uint) as c_long
            }
            libc::SYS_splice => {
                writes::splice(fd, b as *mut _, c as c_int, d as *mut _, e as usize, f as c_uint) as c_long
            }
            libc::SYS_fsync => syncs::fsync(fd).into(),
            libc::SYS_fdatasync => syncs::fdatasync(fd).into(),
            libc::SYS_syncfs => syncs::syncfs(fd).into(),
            libc::SYS_ftruncate => changes::ftruncate(fd, b).into(),
            libc::SYS_truncate => changes::truncate(text(a).cast(), b).into(),
            libc::SYS_fallocate => changes::fallocate(fd, b as c_int, c, d).into(),
            libc::SYS_openat => changes::openat(fd, text(b).cast(), c as c_int, d as _).into(),
            libc::SYS_renameat2 => {
                changes::renameat2(fd, text(b).cast(), c as c_int, text(d).cast(), e as c_uint).into()
            }
            libc::SYS_unlinkat => changes::unlinkat(fd, text(b).cast(), c as c_int).into(),
            libc::SYS_close => numbers::close(fd).into(),
            libc::SYS_close_range => numbers::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => numbers::dup(fd).into(),
            libc::SYS_dup3 => numbers::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_mmap => mmap(a as *mut _, b as usize, c as c_int, d as c_int, e as c_int, f) as c_long,
            _ => return None,
        }
    })
}
