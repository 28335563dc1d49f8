//! The sockets through which a running server is watched: control sockets and metrics. A thread for
//! each kind accepts clients, which are answered side by side.

use crate::control::answering::Answering;
use crate::control::last_words::LastWords;
use crate::control::metrics_port::MetricsPort;
use crate::control::socket::{self, Report};
use crate::failure::Failure;
use crate::options::{Plan, VolumePlan};
use crate::sockets::connections::Connections;
use crate::stats::history::{History, SAMPLE_EVERY};
use crate::stats::http::{self, Shown};
use crate::stats::snapshot::{Observed, ObservedVolume};
use crate::stats::terms::MetricsTerms;
use crate::volume::compose::Volume;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
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
struct MetricsAnswering(Option<SampledPort>);

/// A port at which metrics are answered, and the samples of the last hour.
struct SampledPort {
    port: MetricsPort,
    _sampling: Periodic,
}

/// How metrics are answered from now on.
pub struct MetricsChange(Change);

enum Change {
    /// At another port, or nowhere.
    Port(MetricsAnswering),
    /// At the same port, on other terms.
    Terms(MetricsTerms),
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
        self.metrics.0.as_ref().map(|sampled| sampled.port.url())
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
                if let Some(sampled) = &self.metrics.0 {
                    sampled.port.set_terms(terms);
                }
            }
        }
    }

    /// Answers where `plan` asks for it, beside what is answered already.
    fn open_metrics(&self, plan: &Plan) -> Result<MetricsAnswering, Failure> {
        let Some(address) = plan.metrics else { return Ok(MetricsAnswering::default()) };
        let (observed, history) = (Arc::clone(&self.observed), Arc::clone(&self.history));
        let port = MetricsPort::open(plan, address, move |watcher, terms| {
            http::answer_one(watcher, &Shown::Server { observed: &observed, history: &history }, terms);
        })?;
        let _sampling = self.sampling().map_err(Failure::system("starting a thread"))?;
        Ok(MetricsAnswering(Some(SampledPort { port, _sampling })))
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
