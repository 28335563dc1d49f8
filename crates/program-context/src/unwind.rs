//! The frames of a call, by the unwinder that C++ and Rust have their exceptions from.

use crate::modules::Modules;
use libc::{c_int, c_void};

unsafe extern "C" {
    fn _Unwind_Backtrace(step: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int, state: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// Go on with the next frame.
const GO_ON: c_int = 0;
/// No further ones: any other number than [`GO_ON`] says so.
const ENOUGH: c_int = 4;
/// Frames after which the program's own are not looked for any more.
const FRAMES_OF_OURS_MAX: u32 = 32;

struct Walk<'a> {
    modules: &'a Modules,
    sum: u64,
    left: u32,
    ours: u32,
}

/// The sum of the return addresses of the innermost `frames` frames of the program. Never 0.
pub(crate) fn context(modules: &Modules, frames: u32) -> u64 {
    let mut walk = Walk { modules, sum: 0, left: frames, ours: 0 };
    // SAFETY: S3; `step` is called with a frame and this walk.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.sum.max(1)
}

unsafe extern "C" fn step(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: S3: it is the one that `context` has, and nobody uses it meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    // SAFETY: S3: the unwinder's own.
    let address = unsafe { _Unwind_GetIP(frame) };
    if walk.modules.is_ours(address) {
        walk.ours += 1;
        return if walk.ours < FRAMES_OF_OURS_MAX { GO_ON } else { ENOUGH };
    }
    // Whatever is no code of a module, the unwinder would read to find out how to go on. It may be
    // no address at all, where a coroutine's stack begins.
    let Some(address) = walk.modules.in_every_run(address) else { return ENOUGH };
    walk.sum = walk.sum.wrapping_add(address);
    walk.left -= 1;
    if walk.left > 0 { GO_ON } else { ENOUGH }
}
