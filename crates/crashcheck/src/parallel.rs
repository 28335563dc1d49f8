//! One list of scripts, dealt out to two threads.

use crate::checker::Failure;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Deals `scripts` out to two threads and returns what `judge` says on each. After a failure
/// nothing more is dealt.
pub(crate) fn on_two_threads<S, T: Send>(
    scripts: impl Iterator<Item = S> + Send,
    judge: impl Fn(&mut dyn Iterator<Item = S>) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (scripts, stop) = (Mutex::new(scripts), AtomicBool::new(false));
    let work = || {
        let mut dealt = std::iter::from_fn(|| {
            // Relaxed: a thread that sees it late judges one script more.
            let stopped = stop.load(Ordering::Relaxed);
            if stopped { None } else { scripts.lock().expect("no script is made by panicking").next() }
        });
        judge(&mut dealt).inspect_err(|_| stop.store(true, Ordering::Relaxed))
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let ended = threads.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.into_iter().collect()
    })
}
