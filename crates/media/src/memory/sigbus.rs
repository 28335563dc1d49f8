//! The answer to a memory access that the medium refuses: SIGBUS in a leaf routine becomes that
//! routine's failure.
//!
//! The kernel sends SIGBUS to the thread whose access hit bad memory, a page past the end of a file
//! that was cut short, or a page that a full file system cannot allocate. If that thread stands in
//! a leaf routine, it goes on at the routine's landing pad (gVisor's safecopy does the same); no
//! other thread notices. Any other SIGBUS goes to the handler that was there before. A thread that
//! blocks SIGBUS is killed by the kernel, as everywhere.

use super::leaf;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Who handled SIGBUS before; set before the handler is installed, so the handler always finds it.
static PREVIOUS: OnceLock<Previous> = OnceLock::new();

/// What installing answered: [`NOT_YET`], [`BEING_INSTALLED`], [`DONE`], or behind that the error
/// number.
static INSTALLED: AtomicI32 = AtomicI32::new(NOT_YET);
const NOT_YET: i32 = -2;
const BEING_INSTALLED: i32 = -1;
const DONE: i32 = 0;

struct Previous(libc::sigaction);

// SAFETY: `sigaction` is plain numbers and the address of a function of this process.
unsafe impl Send for Previous {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Previous {}

/// Installs the handler, once in the life of the process. While another thread is at it, that is
/// awaited.
pub(super) fn install() -> io::Result<()> {
    loop {
        match try_install() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::yield_now(),
            end => return end,
        }
    }
}

/// Installs the handler without waiting: EBUSY while another thread is at it, or this one, below a
/// signal handler; or was at it when this process was forked.
pub(super) fn try_install() -> io::Result<()> {
    // Acquire: whoever finds the handler installed finds who handled the signal before.
    match INSTALLED.compare_exchange(NOT_YET, BEING_INSTALLED, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let installed = install_first();
            let answer = installed.as_ref().err().map_or(DONE, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
            INSTALLED.store(answer, Ordering::Release);
            installed
        }
        Err(DONE) => Ok(()),
        Err(BEING_INSTALLED) => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        Err(errno) => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn install_first() -> io::Result<()> {
    // SAFETY: all zeroes is a valid sigaction (default handling, empty mask).
    let (mut before, mut ours): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: both pointers are valid or null; asking changes nothing.
    check(unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) })?;
    PREVIOUS.get_or_init(|| Previous(before));
    ours.sa_sigaction = on_sigbus as extern "C" fn(_, _, _) as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `ours` names a handler of the signature that SA_SIGINFO asks for, and the handler is
    // async-signal-safe: it reads two statics, edits its own saved context, and calls only
    // sigaction, raise or the previous handler.
    check(unsafe { libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut()) })
}

fn check(answer: i32) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler; for SIGBUS it carries an
    // address.
    let (code, fault) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Positive codes but BUS_MCEERR_AO (memory found bad in the background) are about the
    // interrupted instruction.
    let by_this_instruction = code > 0 && code != libc::BUS_MCEERR_AO;
    // SAFETY: `context` is this running handler's own.
    if by_this_instruction && unsafe { leaf::abandon(context.cast(), fault) } {
        return;
    }
    pass_on(signal, info, context, by_this_instruction);
}

/// Does what would have happened without this handler.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void, by_this_instruction: bool) {
    let Some(Previous(previous)) = PREVIOUS.get() else { return };
    match previous.sa_sigaction {
        libc::SIG_IGN if !by_this_instruction => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeroes is the default handling. The instruction then faults again, and
            // that ends the process; a signal that somebody sent is raised again, and is delivered
            // when this handler returns.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &default, ptr::null_mut());
                if !by_this_instruction {
                    libc::raise(signal);
                }
            }
        }
        address if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO set, whoever installed it gave the address of a function of
            // this signature.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(address) };
            handler(signal, info, context);
        }
        address => {
            // SAFETY: without SA_SIGINFO, it is the address of a function of this signature.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(address) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests;
