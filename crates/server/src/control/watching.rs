//! The sockets through which a running server is watched: control sockets and metrics. A thread for
//! each kind accepts clients, which are answered side by side.

use crate::control::last_words::LastWords;
use crate::control::socket::{self, Report};
use crate::control::watchers::{WATCHERS_MAX, Watcher, Watchers};
use crate::failure::Failure;
use crate::options::{Plan, VolumePlan};
use crate::sockets::accept::{ACCEPT_PAUSE, is_no_lack};
use crate::sockets::connections::Connections;
use crate::sockets::listen::{ListenAddress, Listener, SocketAccess};
use crate::stats::history::{History, SAMPLE_EVERY};
use crate::stats::http::{self, Shown};
use crate::stats::snapshot::{Observed, ObservedVolume};
use crate::stats::terms::MetricsTerms;
use crate::volume::compose::Volume;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle, Scope};
use std::time::Instant;
use tidegate_host::threads::Periodic;
use tidegate_media::Access;

/// The sockets, open until this is dropped.
pub struct Watching {
    /// Where the control sockets are.
    pub control: Vec<PathBuf>,
    answering: Answering,
    metrics: MetricsAnswering,
    observed: Arc<Observed>,
    /// Empty as long as no metrics were answered.
    history: Arc<History>,
}

/// Answers to those who ask for metrics, if anywhere, until this is dropped.
#[derive(Default)]
struct MetricsAnswering(Option<MetricsPort>);

/// How metrics are answered from now on.
pub struct MetricsChange(Change);

enum Change {
    /// At another port, or nowhere.
    Port(MetricsAnswering),
    /// At the same port, on other terms.
    Terms(MetricsTerms),
}

/// A port at which metrics are answered.
struct MetricsPort {
    place: ListenAddress,
    /// Those of the next client.
    terms: Arc<RwLock<Arc<MetricsTerms>>>,
    _answering: Answering,
    /// Takes the samples of the last hour.
    _sampling: Periodic,
}

/// A thread that answers.
struct Answering {
    /// Its other end is the thread's: closing this one ends the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// Opens the sockets that `plan` asks for, to tell of `volumes`, each of which clients find at
    /// its `uris`. Failures are told as `report` words them.
    pub fn begin(
        plan: &Plan,
        volumes: &[Volume],
        connections: &Arc<Connections>,
        uris: Vec<Vec<String>>,
        report: Report,
    ) -> Result<Watching, Failure> {
        let observed = Arc::new(observed(plan, volumes, connections, uris));
        let controls = socket::open(plan, report)?;
        let control = controls.iter().filter_map(|listener| listener.place().into_path()).collect();
        let asked = Arc::clone(&observed);
        let answering = Answering::begin("control", controls, move |watcher, end| {
            socket::answer_one(watcher, &asked, end, report);
        });
        let answering = answering.map_err(Failure::system("starting a thread"))?;
        let (metrics, history) = (MetricsAnswering::default(), Arc::new(History::new()));
        let mut watching = Watching { control, answering, metrics, observed, history };
        watching.metrics = watching.open_metrics(plan)?;
        Ok(watching)
    }

    /// Where metrics are answered.
    pub fn metrics(&self) -> Option<String> {
        self.metrics.0.as_ref().map(MetricsPort::url)
    }

    /// Prepares the answers of metrics that `plan` asks for, where those of `former` are given now.
    /// The token and the identity are read anew. Nothing changes before the exchange.
    ///
    /// # Errors
    /// The port cannot be opened, or the token or the identity not be read.
    pub fn prepare_metrics(&self, plan: &Plan, former: &Plan) -> Result<MetricsChange, Failure> {
        if plan.metrics == former.metrics {
            return Ok(MetricsChange(Change::Terms(MetricsTerms::of(plan)?)));
        }
        Ok(MetricsChange(Change::Port(self.open_metrics(plan)?)))
    }

    /// Answers metrics from now on as it was prepared.
    pub fn exchange_metrics(&mut self, MetricsChange(change): MetricsChange) {
        match change {
            Change::Port(metrics) => self.metrics = metrics,
            Change::Terms(terms) => {
                if let Some(port) = &self.metrics.0 {
                    port.set_terms(terms);
                }
            }
        }
    }

    /// Answers where `plan` asks for it, beside what is answered already.
    fn open_metrics(&self, plan: &Plan) -> Result<MetricsAnswering, Failure> {
        let Some(address) = plan.metrics else { return Ok(MetricsAnswering::default()) };
        let terms = Arc::new(RwLock::new(Arc::new(MetricsTerms::of(plan)?)));
        let listener = Listener::bind(&ListenAddress::Tcp(address), SocketAccess::OWN);
        let listener = listener.map_err(|failure| failure.named_by("--metrics tcp:ADDRESS:PORT"))?;
        let place = listener.place();
        let (observed, history) = (Arc::clone(&self.observed), Arc::clone(&self.history));
        let of_next = Arc::clone(&terms);
        let answering = Answering::begin("metrics", vec![listener], move |watcher, _| {
            let terms = Arc::clone(&of_next.read().unwrap_or_else(PoisonError::into_inner));
            http::answer_one(&watcher, &Shown { observed: &observed, history: &history }, &terms);
        });
        let no_thread = Failure::system("starting a thread");
        let _answering = answering.map_err(&no_thread)?;
        let _sampling = self.sampling().map_err(no_thread)?;
        Ok(MetricsAnswering(Some(MetricsPort { place, terms, _answering, _sampling })))
    }

    /// A thread that adds to the history, whose next interval begins now.
    fn sampling(&self) -> io::Result<Periodic> {
        let (observed, history) = (Arc::clone(&self.observed), Arc::clone(&self.history));
        history.record(&observed.snapshot());
        Periodic::start("history", SAMPLE_EVERY, move || history.record(&observed.snapshot()))
    }

    /// Tells from now on that clients find each volume at its `uris`.
    pub fn tell_uris(&self, uris: Vec<Vec<String>>) {
        for (volume, uris) in self.observed.volumes.iter().zip(uris) {
            *volume.uris.lock().unwrap_or_else(PoisonError::into_inner) = uris;
        }
    }

    /// Closes the sockets, whose files go. Who waits for the end is still there.
    pub fn end(self) -> Arc<LastWords> {
        let Watching { answering, metrics, observed, .. } = self;
        drop((answering, metrics));
        Arc::clone(&observed.last_words)
    }
}

impl MetricsPort {
    fn url(&self) -> String {
        let terms = self.terms.read().unwrap_or_else(PoisonError::into_inner);
        format!("{}://{}/metrics", terms.scheme(), self.place)
    }

    fn set_terms(&self, terms: MetricsTerms) {
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
    }
}

fn observed(plan: &Plan, volumes: &[Volume], connections: &Arc<Connections>, uris: Vec<Vec<String>>) -> Observed {
    let volume = |((plan, volume), uris): ((&VolumePlan, &Volume), Vec<String>)| ObservedVolume {
        pmem: plan.pmem.clone(),
        format: volume.facts.format.word().to_owned(),
        domain: volume.facts.domain.clone(),
        layers: volume.layers.clone(),
        disk: volume.disk.clone(),
        read_only: volume.access != Access::ReadWrite,
        uris: Mutex::new(uris),
    };
    let volumes = plan.volumes.iter().zip(volumes).zip(uris).map(volume).collect();
    Observed { connections: Arc::clone(connections), volumes, since: Instant::now(), last_words: Arc::default() }
}

impl Answering {
    /// A thread that accepts clients of `listeners`, and one for each client that it has `answer`
    /// serve.
    fn begin(
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
