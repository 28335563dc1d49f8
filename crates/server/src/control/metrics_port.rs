//! A port at which metrics are answered over HTTP: to everyone on this machine, or on terms.

use crate::control::answering::Answering;
use crate::control::watchers::Watcher;
use crate::failure::Failure;
use crate::options::Plan;
use crate::sockets::listen::{ListenAddress, Listener, SocketAccess};
use crate::stats::http::{self, Shown};
use crate::stats::terms::MetricsTerms;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// A port at which metrics are answered, until this is dropped. Its threads sleep while nobody
/// asks.
pub struct MetricsPort {
    place: ListenAddress,
    /// Those of the next client.
    terms: Arc<RwLock<Arc<MetricsTerms>>>,
    _answering: Answering,
}

impl MetricsPort {
    /// Answers at `/metrics` of the port `plan.metrics` with the `text` of that moment, in
    /// Prometheus's format. `plan.metrics_token` and `plan.tls` say to whom; nothing else of the
    /// plan matters. None: the plan has no port.
    ///
    /// Up to 32 clients are answered side by side, each by a call of `text`.
    ///
    /// # Errors
    /// The port cannot be opened, or the token or the identity not be read.
    pub fn of_text(
        plan: &Plan,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Option<MetricsPort>, Failure> {
        let answer = move |watcher: &Watcher<'_>, terms: &MetricsTerms| {
            http::answer_one(watcher, &Shown::Text(&text), terms);
        };
        plan.metrics.map(|address| MetricsPort::open(plan, address, answer)).transpose()
    }

    /// Has `answer` serve the clients of a port, on the terms of `plan`.
    pub(super) fn open(
        plan: &Plan,
        address: SocketAddr,
        answer: impl Fn(&Watcher<'_>, &MetricsTerms) + Send + Sync + 'static,
    ) -> Result<MetricsPort, Failure> {
        let terms = Arc::new(RwLock::new(Arc::new(MetricsTerms::of(plan)?)));
        let listener = Listener::bind(&ListenAddress::Tcp(address), SocketAccess::OWN);
        let listener = listener.map_err(|failure| failure.named_by("--metrics tcp:ADDRESS:PORT"))?;
        let place = listener.place();
        let of_next = Arc::clone(&terms);
        let answering = Answering::begin("metrics", vec![listener], move |watcher, _| {
            let terms = Arc::clone(&of_next.read().unwrap_or_else(PoisonError::into_inner));
            answer(&watcher, &terms);
        });
        let _answering = answering.map_err(Failure::system("starting a thread"))?;
        Ok(MetricsPort { place, terms, _answering })
    }

    /// Where metrics are answered.
    pub fn url(&self) -> String {
        let terms = self.terms.read().unwrap_or_else(PoisonError::into_inner);
        format!("{}://{}/metrics", terms.scheme(), self.place)
    }

    pub(super) fn set_terms(&self, terms: MetricsTerms) {
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
    }
}
