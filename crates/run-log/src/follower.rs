//! A thread that does something from time to time, until nobody needs it any more.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The thread. It ends when this is dropped, and that is awaited.
pub(super) struct Follower {
    /// None: it is to end.
    go_on: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Does `act` again and again, `pause` apart.
    pub(super) fn start(pause: Duration, mut act: impl FnMut() + Send + 'static) -> io::Result<Follower> {
        let (go_on, ended) = mpsc::channel();
        let follow = move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                act();
            }
        };
        let thread = thread::Builder::new().name("follower".to_owned()).spawn(follow)?;
        Ok(Follower { go_on: Some(go_on), thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.go_on = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it was told when it came.
            let _ = thread.join();
        }
    }
}
