//! Sources asked again and again, each on a thread of its own: one that does not answer leaves the
//! others live. No thread is waited for at the end, as one may wait for its source for a while.

use crate::sources::{AskFailure, SourceAnswer, Sources, WatchedSource};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A source, and its last two answers.
#[derive(Clone, Debug)]
pub(crate) struct PolledSource {
    /// The source.
    pub(crate) source: WatchedSource,
    /// The answer before the last.
    pub(crate) former: Option<SourceAnswer>,
    /// The last answer, and when it came.
    pub(crate) last: Option<(Instant, SourceAnswer)>,
    /// Why the last question had no answer.
    pub(crate) failure: Option<String>,
    /// Since when a question waits for its answer.
    pub(crate) asked: Option<Instant>,
}

impl PolledSource {
    /// A source that was not asked yet.
    pub(crate) fn new(source: WatchedSource) -> PolledSource {
        PolledSource { source, former: None, last: None, failure: None, asked: None }
    }

    /// Takes an answer in, or why none came. One that has ended stays as it was until it is not
    /// found any more.
    pub(crate) fn hear(&mut self, answer: Result<Option<SourceAnswer>, AskFailure>) {
        self.asked = None;
        self.failure = None;
        match answer {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let last = self.last.replace((Instant::now(), answer));
                self.former = last.map(|(_, answer)| answer);
            }
            Err(failure) => self.failure = Some(failure.cause()),
        }
    }
}

/// Sources that are asked, until this is dropped.
pub(crate) struct Polling(Arc<PollState>);

#[derive(Default)]
struct PollState {
    polled: Mutex<Polled>,
    ended: Condvar,
}

#[derive(Default)]
struct Polled {
    sources: Vec<PolledSource>,
    ends: bool,
    /// Whether the sources were looked for at least once.
    is_complete: bool,
}

impl Polling {
    /// Begins to look for sources every `interval`, and to ask each of them.
    pub(crate) fn begin(sources: impl Sources, interval: Duration) -> std::io::Result<Polling> {
        let (state, sources) = (Arc::new(PollState::default()), Arc::new(sources));
        let of_thread = Arc::clone(&state);
        let find = move || while of_thread.look(&sources, interval) && of_thread.waits(interval) {};
        thread::Builder::new().name("sources".to_owned()).spawn(find)?;
        Ok(Polling(state))
    }

    /// Every source as it is known now; None: none was looked for yet.
    pub(crate) fn now(&self) -> Option<Vec<PolledSource>> {
        let polled = self.0.polled();
        polled.is_complete.then(|| polled.sources.clone())
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.polled().ends = true;
        self.0.ended.notify_all();
    }
}

impl PollState {
    fn polled(&self) -> MutexGuard<'_, Polled> {
        self.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `interval`. False: it is the end.
    fn waits(&self, interval: Duration) -> bool {
        let waited = self.ended.wait_timeout_while(self.polled(), interval, |polled| !polled.ends);
        !waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    /// Looks which sources there are. A new one gets its thread, and those that are gone lose
    /// theirs. False: it is the end.
    fn look(self: &Arc<PollState>, sources: &Arc<impl Sources>, interval: Duration) -> bool {
        let found = sources.find();
        let mut polled = self.polled();
        polled.sources.retain(|known| found.iter().any(|source| source.is(&known.source)));
        for source in found {
            match polled.sources.iter_mut().find(|known| known.source.is(&source)) {
                Some(known) => known.source = source,
                None => polled.sources.push(self.begin(sources, source, interval)),
            }
        }
        polled.is_complete = true;
        !polled.ends
    }

    /// Starts the thread of a source.
    fn begin(
        self: &Arc<PollState>,
        sources: &Arc<impl Sources>,
        source: WatchedSource,
        interval: Duration,
    ) -> PolledSource {
        let mut polled = PolledSource::new(source.clone());
        let (state, sources) = (Arc::clone(self), Arc::clone(sources));
        let ask = move || while state.ask(&*sources, &source) && state.waits(interval) {};
        if let Err(error) = thread::Builder::new().name("source".to_owned()).spawn(ask) {
            polled.failure = Some(format!("there is no thread to ask it: {error}"));
        }
        polled
    }

    /// Asks a source once. False: it is gone.
    fn ask(&self, sources: &impl Sources, source: &WatchedSource) -> bool {
        if !self.change(source, |polled| polled.asked = Some(Instant::now())) {
            return false;
        }
        let answer = sources.ask(source);
        self.change(source, |polled| polled.hear(answer))
    }

    /// Changes what is known of a source. False: it is gone.
    fn change(&self, source: &WatchedSource, change: impl FnOnce(&mut PolledSource)) -> bool {
        let mut polled = self.polled();
        polled.sources.iter_mut().find(|known| known.source.is(source)).map(change).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::ServerProcess;
    use crate::sources::tests::silent;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use tidegate_server::sockets::connections::ConnectionCounts;
    use tidegate_server::stats::snapshot::Snapshot;

    const SOON: Duration = Duration::from_millis(1);

    fn server(pid: u32) -> WatchedSource {
        WatchedSource::Server(ServerProcess { pid, user: 0, locked: Vec::new() })
    }

    /// Two servers, of which the second answers only when it is told to; and the first tells that
    /// it is asked.
    struct TwoServers {
        asked: Mutex<Sender<u64>>,
        answers: Mutex<Receiver<()>>,
        count: std::sync::atomic::AtomicU64,
        gone: Mutex<Receiver<()>>,
    }

    impl Sources for TwoServers {
        fn find(&self) -> Vec<WatchedSource> {
            let is_gone = self.gone.lock().expect("no panic").try_recv().is_ok();
            if is_gone { vec![server(1)] } else { vec![server(1), server(2)] }
        }

        fn ask(&self, source: &WatchedSource) -> Result<Option<SourceAnswer>, AskFailure> {
            if source.is(&server(2)) {
                // The test says when, or has ended.
                let _ = self.answers.lock().expect("no panic").recv();
                return Err(silent());
            }
            let count = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _ = self.asked.lock().expect("no panic").send(count);
            let connections = ConnectionCounts::default();
            let snapshot = Snapshot { pid: 1, up_ns: count, connections, volumes: Vec::new() };
            Ok(Some(SourceAnswer::Server(Box::new(snapshot))))
        }
    }

    fn two_servers() -> (TwoServers, Receiver<u64>, Sender<()>, Sender<()>) {
        let ((asked, hear), (answer, answers), (leave, gone)) = (channel(), channel(), channel());
        let count = std::sync::atomic::AtomicU64::new(1);
        let sources =
            TwoServers { asked: Mutex::new(asked), answers: Mutex::new(answers), count, gone: Mutex::new(gone) };
        (sources, hear, answer, leave)
    }

    #[test]
    fn a_source_that_does_not_answer_leaves_the_others_live() {
        let (sources, hear, answer, _leave) = two_servers();
        let polling = Polling::begin(sources, SOON).expect("a thread");
        for _ in 0..5 {
            hear.recv().expect("the first is asked again and again");
        }
        let now = polling.now().expect("it has looked");
        let [live, stuck] = &now[..] else { panic!("{now:?}") };
        assert!(live.former.is_some() && live.last.is_some() && live.failure.is_none(), "{live:?}");
        assert!(stuck.last.is_none(), "{stuck:?}");
        answer.send(()).expect("it is asked");
        while polling.now().is_some_and(|now| now[1].failure.is_none()) {
            hear.recv().expect("the first is asked again and again");
        }
        let now = polling.now().expect("it has looked");
        assert_eq!(now[1].failure.as_deref(), Some("no answer within 10 s"));
    }

    #[test]
    fn a_source_that_is_gone_is_not_shown_and_its_thread_ends() {
        let (sources, hear, answer, leave) = two_servers();
        let state = PollState::default();
        let (state, sources) = (Arc::new(state), Arc::new(sources));
        assert!(state.look(&sources, SOON));
        hear.recv().expect("it is asked");
        leave.send(()).expect("the sources are there");
        assert!(state.look(&sources, SOON));
        assert_eq!(state.polled().sources.len(), 1);
        drop(answer);
        assert!(!state.ask(&*sources, &server(2)), "there is none to ask");
        drop(Polling(Arc::clone(&state)));
        assert!(!state.waits(Duration::from_secs(3600)), "the end is not waited for");
    }

    #[test]
    fn the_last_answer_stays_when_no_further_one_comes() {
        let (sources, _hear, ..) = two_servers();
        let mut polled = PolledSource::new(server(1));
        polled.hear(sources.ask(&server(1)));
        polled.hear(Err(silent()));
        assert!(polled.last.is_some() && polled.failure.is_some() && polled.former.is_none());
        polled.hear(sources.ask(&server(1)));
        assert!(polled.failure.is_none() && polled.former.is_some());
    }
}
