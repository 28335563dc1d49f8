//! A thread that does something a few times a second.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread, until this is dropped.
pub struct Periodic {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Starts the thread.
    pub fn start(name: &str, every: Duration, mut act: impl FnMut() + Send + 'static) -> io::Result<Periodic> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let of_thread = Arc::clone(&stop);
        let run = move || {
            while !stops(&of_thread, every) {
                act();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Periodic { stop, thread: Some(thread) })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has written nothing wrong; what it left is done at the end.
            let _ = thread.join();
        }
    }
}

/// Waits until it is time again; true: it is the end.
fn stops(stop: &(Mutex<bool>, Condvar), every: Duration) -> bool {
    let (stops, bell) = stop;
    let stops = stops.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = bell.wait_timeout_while(stops, every, |stops| !*stops);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}
