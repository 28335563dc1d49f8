//! A thread that accepts clients of sockets, and one for each client, on which it is answered.

use crate::control::watchers::{WATCHERS_MAX, Watcher, Watchers};
use crate::sockets::accept::{ACCEPT_PAUSE, is_no_lack};
use crate::sockets::listen::Listener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle, Scope};

/// A thread that answers, until this is dropped.
pub(crate) struct Answering {
    /// Its other end is the thread's: closing this one ends the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    /// A thread that accepts clients of `listeners`, and one for each client that it has `answer`
    /// serve.
    pub(crate) fn begin(
        name: &'static str,
        listeners: Vec<Listener>,
        answer: impl Fn(Watcher<'_>, &UnixStream) + Send + Sync + 'static,
    ) -> io::Result<Answering> {
        let (alive, end) = UnixStream::pair()?;
        let work = move || {
            let watchers = Watchers::new(WATCHERS_MAX);
            let answer = |watcher: Watcher<'_>| answer(watcher, &end);
            // What somebody waits for has ended when the scope does.
            thread::scope(|threads| {
                let answers = Answers { name, threads, watchers: &watchers, answer: &answer };
                answer_until(&end, &listeners, &answers);
                watchers.close();
            });
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Answering { alive: Some(alive), thread: Some(thread) })
    }
}

/// How clients of one kind of socket are answered.
struct Answers<'scope, 'env, A> {
    name: &'static str,
    threads: &'scope Scope<'scope, 'env>,
    watchers: &'env Watchers,
    answer: &'env A,
}

/// Has everyone who connects to `listeners` answered, until the other side of `end` closes. Many
/// may come, so the end is looked at before each.
fn answer_until<'env>(
    end: &UnixStream,
    listeners: &[Listener],
    answers: &Answers<'_, 'env, impl Fn(Watcher<'env>) + Sync>,
) {
    let mut pause = false;
    loop {
        let mut watched = vec![PollFd::new(end, PollFlags::IN)];
        if !pause {
            watched.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        let limit = pause.then_some(ACCEPT_PAUSE);
        // An interrupted wait finds nobody and begins again.
        let _ = poll(&mut watched, limit.as_ref());
        pause = false;
        for listener in listeners {
            if has_ended(end) {
                return;
            }
            pause |= !answers.answer_next(listener);
        }
        // Also where there is nobody to listen for.
        if has_ended(end) {
            return;
        }
    }
}

/// Whether the other side of `end` closed.
fn has_ended(end: &UnixStream) -> bool {
    let mut watched = [PollFd::new(end, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // An interrupted look is repeated before the next client.
    poll(&mut watched, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

impl<'env, A: Fn(Watcher<'env>) + Sync> Answers<'_, 'env, A> {
    /// Has the next client that waits answered, if one does; false if the system has no room for
    /// it.
    fn answer_next(&self, listener: &Listener) -> bool {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) => return is_no_lack(&error),
        };
        let (watcher, answer) = (self.watchers.seat(stream), self.answer);
        let thread = thread::Builder::new().name(format!("{}, client", self.name));
        let begun = thread.spawn_scoped(self.threads, move || answer(watcher));
        begun
            .inspect_err(|error| tracing::warn!("a client of {} is not answered: no thread for it: {error}", self.name))
            .is_ok()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; its sockets are closed all the same.
            let _ = thread.join();
        }
    }
}
