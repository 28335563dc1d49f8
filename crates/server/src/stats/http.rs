//! The least of HTTP, with or without TLS: metrics for Prometheus, a page for browsers, and the
//! last hour for that page.
//!
//! If the server has a token for its metrics, numbers are for clients that show it. The page itself
//! has no numbers, and asks for the token.

use crate::control::watchers::Watcher;
use crate::stats::history::History;
use crate::stats::page::Document;
use crate::stats::prometheus;
use crate::stats::snapshot::Observed;
use crate::stats::terms::MetricsTerms;
use std::io;
use std::net::Shutdown;
use std::time::{Duration, Instant};
use tidegate_block_export::Export;
use tidegate_nbd::Stream;

/// How long a scrape may take, from its connection to its end.
const SCRAPE_PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a request that are looked at.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The kind of the metrics' text, as Prometheus knows it.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What there is to be asked for.
pub(crate) enum Shown<'a> {
    /// A server of volumes: its metrics, its last hour, and the page of both.
    Server {
        /// The server now.
        observed: &'a Observed,
        /// Its last hour.
        history: &'a History,
    },
    /// Metrics that are a text, and nothing else.
    Text(&'a dyn Fn() -> String),
}

/// Answers the scrape that `watcher` brings, on these `terms`.
pub(crate) fn answer_one(watcher: &Watcher<'_>, shown: &Shown<'_>, terms: &MetricsTerms) {
    if let Err(error) = scraped(watcher, shown, terms) {
        tracing::debug!("a scrape of the metrics ended: {error}");
    }
}

fn scraped(watcher: &Watcher<'_>, shown: &Shown<'_>, terms: &MetricsTerms) -> io::Result<()> {
    let within = Within { watcher, deadline: Instant::now() + SCRAPE_PATIENCE };
    match &terms.tls {
        None => talk(&within, &within, shown, terms)?,
        Some(tls) => {
            let encrypted = tls.over(&within)?;
            talk(&within, &encrypted, shown, terms)?;
            encrypted.close();
        }
    }
    // Closing at once after the client's last bytes could take the answer back.
    watcher.stream().shut_down(Shutdown::Write);
    Ok(())
}

/// Reads a request from `stream` and answers it there.
fn talk(within: &Within<'_>, stream: &impl Stream, shown: &Shown<'_>, terms: &MetricsTerms) -> io::Result<()> {
    let head = request_head(within, stream)?;
    let (request, peer) = (head.lines().next().unwrap_or_default(), || within.watcher.stream().peer());
    tracing::debug!("the metrics are asked by {}: {request}", peer());
    let admitted = if terms.admit(&head, peer) { Admitted::ToNumbers } else { Admitted::ToThePage };
    stream.send(within.watcher.make(|| shown.answer_to(request, admitted)).as_bytes())
}

/// What a client may see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admitted {
    ToNumbers,
    ToThePage,
}

/// The stream of a client that has to be through with its request and answer at a deadline.
struct Within<'w> {
    watcher: &'w Watcher<'w>,
    deadline: Instant,
}

impl Within<'_> {
    /// # Errors
    /// `TimedOut` once the deadline has passed.
    fn check(&self) -> io::Result<()> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }
}

impl Stream for Within<'_> {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        self.watcher.receive(out, self.deadline)
    }

    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
        self.watcher.stream().receive_now(out)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.watcher.send(bytes, self.deadline)
    }

    /// The deadline is the limit.
    fn limit_waiting(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    /// The deadline is the limit.
    fn limit_sending(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

impl Shown<'_> {
    /// The answer to a request with this first line, of a client that is admitted so far.
    fn answer_to(&self, request: &str, admitted: Admitted) -> String {
        let mut words = request.split(' ');
        let (Some("GET"), Some(target)) = (words.next(), words.next()) else {
            return plain("405 Method Not Allowed", "only GET is answered\n");
        };
        match (target.split_once('?').unwrap_or((target, "")), self) {
            (("/", _), Shown::Server { .. }) => page(),
            _ if admitted != Admitted::ToNumbers => unauthorized(),
            (("/metrics", _), Shown::Server { observed, .. }) => {
                plain("200 OK", &prometheus::text(&observed.snapshot()))
            }
            (("/metrics", _), Shown::Text(text)) => plain("200 OK", &text()),
            (("/history", query), Shown::Server { observed, history }) => last_hour(observed, history, query),
            (_, Shown::Server { .. }) => {
                plain("404 Not Found", "the counters are at /metrics, and a page of them at /\n")
            }
            (_, Shown::Text(_)) => plain("404 Not Found", "the counters are at /metrics\n"),
        }
    }
}

/// The last hour, or what came after so many seconds of the server's uptime.
fn last_hour(observed: &Observed, history: &History, query: &str) -> String {
    let after = match query.strip_prefix("after=").map(str::parse) {
        _ if query.is_empty() => Duration::ZERO,
        Some(Ok(seconds)) => Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        _ => return plain("400 Bad Request", "ask for /history, or for /history?after=SECONDS of the uptime\n"),
    };
    let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    let names = observed.connections.exports().map(Export::name);
    let body = history.json(observed.up_ns(), names, after_ns);
    answer("200 OK", &[("Content-Type", "application/json")], &body)
}

/// An answer in text.
fn plain(status: &str, body: &str) -> String {
    answer(status, &[("Content-Type", CONTENT_TYPE)], body)
}

/// An answer to a client that has not shown the token.
fn unauthorized() -> String {
    let headers = [("Content-Type", CONTENT_TYPE), ("WWW-Authenticate", "Bearer realm=\"tidegate metrics\"")];
    let body = "the metrics ask for a token: send the header `Authorization: Bearer TOKEN` with what is in the file of --metrics-token\n";
    answer("401 Unauthorized", &headers, body)
}

/// The page for browsers.
fn page() -> String {
    let Document { policy, body } = Document::new();
    let headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", &*policy),
        ("Referrer-Policy", "no-referrer"),
    ];
    answer("200 OK", &headers, &body)
}

/// An answer with these headers, those of every answer, and this body.
fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let length = body.len().to_string();
    let always = [
        ("Content-Length", &*length),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
    ];
    let headers: String = headers.iter().chain(&always).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}\r\n{body}")
}

/// The head of a request, once all of it has arrived.
fn request_head(within: &Within<'_>, stream: &impl Stream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let len = match stream.receive(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                within.check()?;
                continue;
            }
            received => received?,
        };
        if len == 0 || head.len() + len > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&piece[..len]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
