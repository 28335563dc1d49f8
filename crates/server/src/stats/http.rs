//! The least of HTTP: metrics for Prometheus, a page for browsers, and the last hour for that page.

use crate::control::watchers::Watcher;
use crate::stats::history::History;
use crate::stats::page::Document;
use crate::stats::prometheus;
use crate::stats::snapshot::Observed;
use std::io;
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// How long a scrape may take, from its connection to its end.
const SCRAPE_PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a request that are looked at.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The kind of the metrics' text, as Prometheus knows it.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What there is to be asked for.
pub(crate) struct Shown<'a> {
    /// The server now.
    pub observed: &'a Observed,
    /// Its last hour.
    pub history: &'a History,
}

/// Answers the scrape that `watcher` brings.
pub(crate) fn answer_one(watcher: &Watcher<'_>, shown: &Shown<'_>) {
    if let Err(error) = scraped(watcher, shown) {
        tracing::debug!("a scrape of the metrics ended: {error}");
    }
}

fn scraped(watcher: &Watcher<'_>, shown: &Shown<'_>) -> io::Result<()> {
    let deadline = Instant::now() + SCRAPE_PATIENCE;
    let request = request_line(watcher, deadline)?;
    tracing::debug!("the metrics are asked by {}: {request}", watcher.stream().peer());
    watcher.send(watcher.make(|| shown.answer_to(&request)).as_bytes(), deadline)?;
    // Closing at once after the client's last bytes could take the answer back.
    watcher.stream().shut_down(Shutdown::Write);
    Ok(())
}

impl Shown<'_> {
    /// The answer to a request with this first line.
    fn answer_to(&self, request: &str) -> String {
        let mut words = request.split(' ');
        let (Some("GET"), Some(target)) = (words.next(), words.next()) else {
            return plain("405 Method Not Allowed", "only GET is answered\n");
        };
        match target.split_once('?').unwrap_or((target, "")) {
            ("/metrics", _) => plain("200 OK", &prometheus::text(&self.observed.snapshot())),
            ("/history", query) => self.history(query),
            ("/", _) => page(),
            _ => plain("404 Not Found", "the counters are at /metrics, and a page of them at /\n"),
        }
    }

    /// The last hour, or what came after so many seconds of the server's uptime.
    fn history(&self, query: &str) -> String {
        let after = match query.strip_prefix("after=").map(str::parse) {
            _ if query.is_empty() => Duration::ZERO,
            Some(Ok(seconds)) => Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            _ => return plain("400 Bad Request", "ask for /history, or for /history?after=SECONDS of the uptime\n"),
        };
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let body = self.history.json(&self.observed.snapshot(), after_ns);
        answer("200 OK", &[("Content-Type", "application/json")], &body)
    }
}

/// An answer in text.
fn plain(status: &str, body: &str) -> String {
    answer(status, &[("Content-Type", CONTENT_TYPE)], body)
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

/// The first line of a request, once all its head has arrived.
fn request_line(watcher: &Watcher<'_>, deadline: Instant) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let len = watcher.receive(&mut piece, deadline)?;
        if len == 0 || head.len() + len > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&piece[..len]);
    }
    Ok(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned())
}
