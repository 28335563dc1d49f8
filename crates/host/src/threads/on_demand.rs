//! A thread that works as long as there is something to do, and sleeps until a bell rings.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Wakes the thread. While the thread is at work, or waits for a while only, a ring costs no system
/// call.
#[derive(Clone, Default)]
pub struct DemandBell(Arc<Demand>);

#[derive(Default)]
struct Demand {
    state: Mutex<DemandState>,
    changed: Condvar,
    /// Whether it rang and the thread has not begun to look yet, or is looking.
    is_awake: AtomicBool,
}

#[derive(Default)]
struct DemandState {
    rang: bool,
    stops: bool,
}

impl DemandBell {
    /// Has the thread look again if it sleeps.
    pub fn ring(&self) {
        // AcqRel: what was done before is seen by the thread, which clears this before it sleeps.
        if self.0.is_awake.swap(true, Ordering::AcqRel) {
            return;
        }
        self.0.state().rang = true;
        self.0.changed.notify_one();
    }
}

impl Demand {
    fn state(&self) -> MutexGuard<'_, DemandState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the thread is to look again. False: it is the end.
    fn waits(&self, pause: Option<Duration>) -> bool {
        let state = self.state();
        let state = match pause {
            Some(pause) => {
                let waited = self.changed.wait_timeout_while(state, pause, |state| !state.stops);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.changed.wait_while(state, |state| !state.rang && !state.stops);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner);
                state.rang = false;
                state
            }
        };
        !state.stops
    }
}

/// The thread, until this is dropped.
pub struct OnDemand {
    bell: DemandBell,
    thread: Option<JoinHandle<()>>,
}

impl OnDemand {
    /// Starts the thread, which sleeps until `bell` rings. `act` says after how long it wants to be
    /// called again; `None`: when the bell rings next, or if it rang since it was called.
    pub fn start(
        name: &str,
        bell: DemandBell,
        act: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> io::Result<OnDemand> {
        OnDemand::start_after(None, name, bell, act)
    }

    /// Starts the thread, which begins by such a pause.
    pub(super) fn start_after(
        mut pause: Option<Duration>,
        name: &str,
        bell: DemandBell,
        mut act: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> io::Result<OnDemand> {
        let of_thread = bell.clone();
        let run = move || {
            let shared = &*of_thread.0;
            while shared.waits(pause) {
                pause = act();
                if pause.is_none() {
                    // AcqRel, as in `ring`: who rings from now on is heard, and what was done by
                    // those who rang before is looked at once more.
                    shared.is_awake.swap(false, Ordering::AcqRel);
                    pause = act();
                    if pause.is_some() {
                        shared.is_awake.store(true, Ordering::Release);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(OnDemand { bell, thread: Some(thread) })
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.bell.0.state().stops = true;
        self.bell.0.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has written nothing wrong; what it left is done at the end.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::channel;

    #[test]
    fn a_ring_is_heard_whenever_it_comes() {
        let (bell, todo) = (DemandBell::default(), Arc::new(AtomicU64::new(0)));
        let (told, heard) = channel();
        let of_thread = todo.clone();
        let thread = OnDemand::start("on-demand", bell.clone(), move || {
            let done = of_thread.swap(0, Ordering::AcqRel);
            (done > 0).then(|| told.send(done).expect("somebody hears")).map(|()| Duration::ZERO)
        })
        .expect("started");
        let mut left = 0;
        for round in 0..2000 {
            todo.fetch_add(1, Ordering::AcqRel);
            left += 1;
            bell.ring();
            // At times it is at work, at times it sleeps.
            while round % 3 == 0 && left > 0 {
                left -= heard.recv().expect("it is heard");
            }
        }
        while left > 0 {
            left -= heard.recv().expect("it is heard");
        }
        drop(thread);
        bell.ring();
    }

    #[test]
    fn a_thread_that_sleeps_for_long_ends_at_once() {
        let bell = DemandBell::default();
        let (told, heard) = channel();
        let act = move || {
            told.send(()).expect("somebody hears");
            Some(Duration::from_secs(3600))
        };
        let thread = OnDemand::start("on-demand", bell.clone(), act).expect("started");
        bell.ring();
        heard.recv().expect("it was called");
        drop(thread);
    }
}
