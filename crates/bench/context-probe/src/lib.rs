//! A library under unchanged programs that looks for the program context of each of their reads and
//! writes, as the direct path does, measures how long that takes, and unwinds the stack each time
//! to verify what was found.
//!
//! When the program ends, the file that `REPORT` names gets one line of JSON:
//!
//! | key | |
//! | --- | --- |
//! | `calls` | contexts that were looked for |
//! | `known` | those whose key was known |
//! | `wrong` | those of them that unwinding denied |
//! | `contexts` | different contexts, at most `CONTEXTS_MAX` |
//! | `median_ns` | how long one took in the median, the clock's own time taken off |
//! | `clock_ns` | the clock's own time |
//! | `sum` | a digest of the contexts that there were, which is the same in every run |
//!
//! # The law of the unsafe code
//!
//! - **L1** Exports are called as libc's own functions of the same name may be called; what the
//!   next definition gets is what they got.

use libc::{c_int, c_void, off_t, size_t, ssize_t};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use tidegate_preload_common::{guarded, next};
use tidegate_program_context::{ProgramContexts, StackTop};

/// Names the file of the report in the environment.
const REPORT: &str = "TIDEGATE_CONTEXT_REPORT";
/// Contexts that are told apart.
const CONTEXTS_MAX: usize = 1024;
/// Times up to this are counted, in nanoseconds; longer ones as this.
const NS_MAX: usize = 65_535;

static PROGRAM: ProgramContexts = ProgramContexts::new();
static TIMES: [AtomicU32; NS_MAX + 1] = [const { AtomicU32::new(0) }; NS_MAX + 1];
static SEEN: [AtomicU64; CONTEXTS_MAX] = [const { AtomicU64::new(0) }; CONTEXTS_MAX];
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Called by the loader before the program begins.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

extern "C" fn start() {
    guarded(|| {
        next::find_all();
        // Each one is verified here, with the clock stopped.
        PROGRAM.configure(5, u32::MAX);
    });
    // SAFETY: it has no conditions.
    unsafe { libc::atexit(end) };
}

fn probe(top: StackTop) {
    let began = Instant::now();
    let found = PROGRAM.of_call(top);
    let ns = usize::try_from(began.elapsed().as_nanos()).unwrap_or(NS_MAX).min(NS_MAX);
    TIMES[ns].fetch_add(1, Ordering::Relaxed);
    WRONG.fetch_add(u64::from(PROGRAM.unwound() != found), Ordering::Relaxed);
    see(found);
}

/// Notes a context in the first place that is free from its own one on.
fn see(context: u64) {
    let first = usize::try_from(context % CONTEXTS_MAX as u64).unwrap_or(0);
    for place in SEEN[first..].iter().chain(&SEEN[..first]) {
        let there = place.compare_exchange(0, context, Ordering::Relaxed, Ordering::Relaxed);
        if there.is_ok() || there == Err(context) {
            return;
        }
    }
}

/// The time that half of all did not exceed, in nanoseconds.
fn median(times: impl Iterator<Item = u64> + Clone) -> usize {
    let half = times.clone().sum::<u64>().div_ceil(2);
    let mut below = 0;
    let at_half = times.enumerate().find(|(_, count)| {
        below += count;
        below >= half
    });
    at_half.map_or(0, |(ns, _)| ns)
}

/// What the clock itself takes, in nanoseconds.
fn clock_ns() -> usize {
    let mut times = vec![0_u64; NS_MAX + 1];
    for _ in 0..10_000 {
        let began = Instant::now();
        let ns = usize::try_from(began.elapsed().as_nanos()).unwrap_or(NS_MAX).min(NS_MAX);
        times[ns] += 1;
    }
    median(times.iter().copied())
}

extern "C" fn end() {
    let Some(path) = std::env::var_os(REPORT) else { return };
    let times = || TIMES.iter().map(|count| u64::from(count.load(Ordering::Relaxed)));
    let calls: u64 = times().sum();
    // Each call was unwound once to verify it; those that were unwound to be found have no key yet.
    let known = (2 * calls).saturating_sub(PROGRAM.counts().unwound);
    let seen = || SEEN.iter().map(|context| context.load(Ordering::Relaxed)).filter(|context| *context != 0);
    let (clock, sum) = (clock_ns(), seen().fold(0, u64::wrapping_add));
    let (wrong, contexts) = (WRONG.load(Ordering::Relaxed), seen().count());
    let median = median(times()).saturating_sub(clock);
    let mut line = String::new();
    // A string takes all that is written to it.
    let _ = writeln!(
        line,
        "{{\"calls\":{calls},\"known\":{known},\"wrong\":{wrong},\"contexts\":{contexts},\"median_ns\":{median},\
         \"clock_ns\":{clock},\"sum\":{sum}}}"
    );
    if let Err(error) = std::fs::write(&path, line) {
        eprintln!("{}: {error}", path.display());
    }
}

macro_rules! probed {
    ($($name:ident = $next:ident($fd:ident, $bytes:ident as $kind:ty, $len:ident $(, $at:ident)?);)*) => { $(
        /// As in libc.
        ///
        /// # Safety
        /// L1.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($fd: c_int, $bytes: $kind, $len: size_t $(, $at: off_t)?) -> ssize_t {
            let top = StackTop::here();
            guarded(|| probe(top));
            // SAFETY: L1.
            unsafe { next::$next($fd, $bytes, $len $(, $at)?) }
        }
    )* };
}

probed! {
    read = read(fd, bytes as *mut c_void, len);
    pread = pread(fd, bytes as *mut c_void, len, at);
    pread64 = pread(fd, bytes as *mut c_void, len, at);
    write = write(fd, bytes as *const c_void, len);
    pwrite = pwrite(fd, bytes as *const c_void, len, at);
    pwrite64 = pwrite(fd, bytes as *const c_void, len, at);
}
