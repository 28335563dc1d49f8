//! Connections with clients: a thread for each, a limit on their number, and an orderly end for all of them.

use crate::listen::Stream;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_nbd::{Exports, serve};

/// Connections served at once; a client beyond them is turned away.
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// How long requests in progress may take to finish when the server ends.
const DRAIN_SECONDS_MAX: u64 = 5;

/// A reply buffer for each connection and its stack have to fit into memory many times over.
const THREAD_STACK_BYTES: usize = 512 << 10;

/// All connections of the server, and what they are served.
pub(crate) struct Connections {
    exports: Exports,
    live: Mutex<Live>,
    one_ended: Condvar,
    /// Set once, before the sockets are shut down, whose closing the readers then see.
    ending: AtomicBool,
}

#[derive(Default)]
struct Live {
    next: u64,
    /// A second handle to each connection, to end it by.
    streams: BTreeMap<u64, Stream>,
}

impl Connections {
    /// No connections yet, to be served `exports`.
    pub(crate) fn new(exports: Exports) -> Arc<Connections> {
        Arc::new(Connections {
            exports,
            live: Mutex::default(),
            one_ended: Condvar::new(),
            ending: AtomicBool::new(false),
        })
    }

    /// Serves `stream` on a thread of its own, or turns it away.
    pub(crate) fn admit(self: &Arc<Self>, stream: Stream) {
        let Some(admitted) = self.register(&stream) else { return };
        let number = admitted.number;
        let work = move || admitted.serve(stream);
        let name = format!("client {number}");
        if let Err(error) = thread::Builder::new().name(name).stack_size(THREAD_STACK_BYTES).spawn(work) {
            tracing::warn!("client {number} turned away: no thread for it: {error}");
        }
    }

    fn register(self: &Arc<Self>, stream: &Stream) -> Option<Admitted> {
        let mut live = self.live();
        let number = live.next;
        live.next += 1;
        if live.streams.len() >= CONNECTIONS_MAX {
            tracing::warn!("client {number} turned away: {CONNECTIONS_MAX} connections are the limit");
            return None;
        }
        match stream.try_clone() {
            Ok(handle) => live.streams.insert(number, handle),
            Err(error) => {
                tracing::warn!("client {number} turned away: {error}");
                return None;
            }
        };
        Some(Admitted { number, connections: Arc::clone(self) })
    }

    /// Ends every connection: requests that arrived are finished and answered, within a limit of time.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        for (direction, seconds) in [(Shutdown::Read, DRAIN_SECONDS_MAX), (Shutdown::Both, DRAIN_SECONDS_MAX)] {
            self.live().streams.values().for_each(|stream| stream.shut_down(direction));
            let left = self.wait_until_none(Duration::from_secs(seconds));
            if left == 0 {
                return;
            }
            tracing::warn!("{left} connections still busy after {seconds} s");
        }
    }

    /// Waits until no connection is left, or `limit` has passed; how many are left.
    fn wait_until_none(&self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        let mut live = self.live();
        while !live.streams.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            live = self.one_ended.wait_timeout(live, left).expect(HOLDER_PANICKED).0;
        }
        live.streams.len()
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().expect(HOLDER_PANICKED)
    }
}

const HOLDER_PANICKED: &str = "nothing that holds this lock panics";

/// A connection's place among the live ones; given up when dropped, however its thread ends.
struct Admitted {
    number: u64,
    connections: Arc<Connections>,
}

impl Admitted {
    fn serve(self, stream: Stream) {
        let number = self.number;
        tracing::info!("client {number} connected");
        match serve(&self.connections.exports, Interruptible { stream, ending: &self.connections.ending }) {
            Ok(end) => tracing::info!("client {number} ended: {end:?}"),
            Err(error) => tracing::info!("client {number} ended: {error}"),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.live().streams.remove(&self.number);
        self.connections.one_ended.notify_all();
    }
}

/// A stream that ends once the server ends, even while the client goes on sending: a socket shut down for reading
/// still gives what is in its buffer.
struct Interruptible<'a> {
    stream: Stream,
    ending: &'a AtomicBool,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ending.load(Ordering::Acquire) {
            return Ok(0);
        }
        self.stream.read(out)
    }
}

impl Write for Interruptible<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
