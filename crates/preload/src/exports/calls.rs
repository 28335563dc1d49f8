//! The kernel's calls by their numbers: those that have an export are made by it.

use super::{attributes, changes, numbers, syncs, unseen, writes};
use crate::{asked, descriptors, follow, names, next};
use libc::{c_char, c_int, c_long, c_uint, dev_t, mode_t, open_how};

/// As in libc. Calls that write, sync, close, open, rename, cut or date are made by the exports;
/// queues of requests are announced.
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
    let words = [a, b, c, d, e, f];
    // SAFETY: L1: the arguments are those of the function of the same name.
    let taken = unsafe {
        that_writes(number, words)
            .or_else(|| that_syncs_or_numbers(number, words))
            .or_else(|| that_maps(number, words))
            .or_else(|| that_opens(number, words))
            .or_else(|| that_changes(number, words))
            .or_else(|| that_sets_attributes(number, words))
    };
    if let Some(answer) = taken {
        return answer;
    }
    if [libc::SYS_io_uring_setup, libc::SYS_io_setup].contains(&number) {
        follow::abandon_process();
    }
    if begins_a_process(number) {
        descriptors::share();
    }
    // SAFETY: L1.
    unsafe { next::syscall(number, a, b, c, d, e, f) }
}

/// Whether the process that begins may share this one's memory, but not its descriptors.
fn begins_a_process(number: c_long) -> bool {
    match number {
        libc::SYS_clone | libc::SYS_clone3 => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork => true,
        _ => false,
    }
}

/// A word as a path.
fn path(word: c_long) -> *const c_char {
    word as *const c_char
}

/// # Safety
/// L1 for the function of the call's name.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the kernel itself cuts its registers")]
unsafe fn that_writes(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    let (fd, bytes) = (a as c_int, b as *const _);
    // SAFETY: the caller's promise. On 64 bits the kernel takes an offset from one word, and
    // ignores the one behind it.
    Some(unsafe {
        match number {
            libc::SYS_write => writes::write(fd, bytes, c as usize) as c_long,
            libc::SYS_pwrite64 => writes::pwrite(fd, bytes, c as usize, d) as c_long,
            libc::SYS_writev => writes::writev(fd, b as *const _, c as c_int) as c_long,
            libc::SYS_pwritev => writes::pwritev(fd, b as *const _, c as c_int, d) as c_long,
            libc::SYS_pwritev2 => writes::pwritev2(fd, b as *const _, c as c_int, d, f as c_int) as c_long,
            libc::SYS_sendfile => writes::sendfile(fd, b as c_int, c as *mut _, d as usize) as c_long,
            libc::SYS_copy_file_range => {
                writes::copy_file_range(fd, b as *mut _, c as c_int, d as *mut _, e as usize, f as c_uint) as c_long
            }
            libc::SYS_splice => {
                writes::splice(fd, b as *mut _, c as c_int, d as *mut _, e as usize, f as c_uint) as c_long
            }
            libc::SYS_ioctl => writes::ioctl(fd, b as _, c as *mut _).into(),
            _ => return None,
        }
    })
}

/// # Safety
/// L1 for the function of the call's name.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the kernel itself cuts its registers")]
unsafe fn that_maps(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    let (at, len) = (a as *mut _, b as usize);
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            libc::SYS_mmap => unseen::mmap(at, len, c as c_int, d as c_int, e as c_int, f) as c_long,
            libc::SYS_mprotect => unseen::mprotect(at, len, c as c_int).into(),
            libc::SYS_pkey_mprotect => unseen::pkey_mprotect(at, len, c as c_int, d as c_int).into(),
            libc::SYS_munmap => unseen::munmap(at, len).into(),
            libc::SYS_mremap => unseen::mremap(at, len, c as usize, d as c_int, e as *mut _) as c_long,
            _ => return None,
        }
    })
}

/// # Safety
/// L1 for the function of the call's name.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the kernel itself cuts its registers")]
unsafe fn that_syncs_or_numbers(number: c_long, [a, b, c, ..]: [c_long; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            libc::SYS_fsync => syncs::fsync(fd).into(),
            libc::SYS_fdatasync => syncs::fdatasync(fd).into(),
            libc::SYS_syncfs => syncs::syncfs(fd).into(),
            libc::SYS_sync => {
                syncs::sync();
                0
            }
            libc::SYS_close => numbers::close(fd).into(),
            libc::SYS_close_range => numbers::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => numbers::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => numbers::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => numbers::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => numbers::fcntl(fd, b as c_int, c as *mut _).into(),
            _ => return None,
        }
    })
}

/// The flags, and how paths are resolved, of the `len` bytes at `how` that an `openat2` gets. None:
/// the kernel refuses them, or has no such call. It is asked to open what has no name, to read them
/// first.
///
/// # Safety
/// L1.
#[expect(clippy::cast_possible_truncation, reason = "as the kernel itself cuts its registers")]
unsafe fn asked_of_openat2(how: c_long, len: c_long) -> Option<(c_int, u64)> {
    let kept = asked::errno();
    let nothing = c"".as_ptr() as c_long;
    // SAFETY: L1; the kernel reads no address that it may not read.
    unsafe { next::syscall(libc::SYS_openat2, libc::AT_FDCWD.into(), nothing, how, len, 0, 0) };
    let takes_them = asked::errno() == libc::ENOENT;
    asked::set_errno(kept);
    let how = how as *const open_how;
    // SAFETY: L1; the kernel has read them, and takes none that are shorter than these.
    takes_them.then(|| unsafe {
        ((&raw const (*how).flags).read_unaligned() as c_int, (&raw const (*how).resolve).read_unaligned())
    })
}

/// # Safety
/// L1 for the function of the call's name.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the kernel itself cuts its registers")]
unsafe fn that_opens(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            libc::SYS_openat => changes::openat(a as c_int, path(b), c as c_int, d as mode_t).into(),
            libc::SYS_openat2 => {
                let Some((flags, resolve)) = asked_of_openat2(c, d) else {
                    return Some(next::syscall(number, a, b, c, d, e, f));
                };
                // Below a root of its own a path leads elsewhere than it says.
                let has_root = resolve & libc::RESOLVE_IN_ROOT != 0;
                let changes = [(flags & libc::O_CREAT != 0 && has_root).then(names::change_anywhere)];
                let call = || names::during(changes, || next::syscall(number, a, b, c, d, 0, 0) as c_int);
                changes::opened(a as c_int, path(b), (flags, None), call).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => changes::open(path(a), b as c_int, c as mode_t).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => changes::creat(path(a), b as mode_t).into(),
            _ => return None,
        }
    })
}

/// # Safety
/// L1 for the function of the call's name.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the kernel itself cuts its registers")]
unsafe fn that_changes(number: c_long, [a, b, c, d, e, _]: [c_long; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            libc::SYS_ftruncate => changes::ftruncate(fd, b).into(),
            libc::SYS_truncate => changes::truncate(path(a), b).into(),
            libc::SYS_fallocate => changes::fallocate(fd, b as c_int, c, d).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => changes::rename(path(a), path(b)).into(),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            libc::SYS_renameat => changes::renameat(fd, path(b), c as c_int, path(d)).into(),
            libc::SYS_renameat2 => changes::renameat2(fd, path(b), c as c_int, path(d), e as c_uint).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => changes::unlink(path(a)).into(),
            libc::SYS_unlinkat => changes::unlinkat(fd, path(b), c as c_int).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => changes::link(path(a), path(b)).into(),
            libc::SYS_linkat => changes::linkat(fd, path(b), c as c_int, path(d), e as c_int).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_symlink => changes::symlink(path(a), path(b)).into(),
            libc::SYS_symlinkat => changes::symlinkat(path(a), b as c_int, path(c)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mkdir => changes::mkdir(path(a), b as mode_t).into(),
            libc::SYS_mkdirat => changes::mkdirat(fd, path(b), c as mode_t).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rmdir => changes::rmdir(path(a)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mknod => changes::mknod(path(a), b as mode_t, c as dev_t).into(),
            libc::SYS_mknodat => changes::mknodat(fd, path(b), c as mode_t, d as dev_t).into(),
            _ => return None,
        }
    })
}

/// # Safety
/// L1 for the function of the call's name.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the kernel itself cuts its registers")]
unsafe fn that_sets_attributes(number: c_long, [a, b, c, d, e, _]: [c_long; 6]) -> Option<c_long> {
    let (fd, name, value) = (a as c_int, path(b), c as *const _);
    let (len, flags) = (d as usize, e as c_int);
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => attributes::utime(path(a), b as *const _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => attributes::utimes(path(a), b as *const _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => attributes::futimesat(fd, path(b), c as *const _).into(),
            // The kernel takes a null path, which libc's own function refuses.
            libc::SYS_utimensat => {
                let changes = [attributes::dating(fd, path(b))];
                let call = || next::syscall(number, a, b, c, d, 0, 0);
                names::during(changes, || follow::change(|| attributes::settle_dated(fd, path(b)), call))
            }
            libc::SYS_setxattr => attributes::setxattr(path(a), name, value, len, flags).into(),
            libc::SYS_lsetxattr => attributes::lsetxattr(path(a), name, value, len, flags).into(),
            libc::SYS_fsetxattr => attributes::fsetxattr(fd, name, value, len, flags).into(),
            libc::SYS_removexattr => attributes::removexattr(path(a), name).into(),
            libc::SYS_lremovexattr => attributes::lremovexattr(path(a), name).into(),
            libc::SYS_fremovexattr => attributes::fremovexattr(fd, name).into(),
            _ => return None,
        }
    })
}
