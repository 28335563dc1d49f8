//! Connections with clients: a thread for each, limits on their number and on their handshakes, and
//! an orderly end for all of them.

use crate::fronts::Protocol;
use crate::fronts::vhost_user::Attached;
use crate::log_ratelimit::LogRatelimit;
use crate::sockets::access::Peers;
use crate::sockets::listen::Stream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_block_export::{Export, PollBudget};
use tidegate_nbd::{Exports, Service, serve};

/// Connections served at once unless the plan says otherwise; a client beyond them is turned away.
pub(crate) const CONNECTIONS_MAX: usize = 16384;

/// How long requests in progress may take to finish when the server ends, and then again once their
/// connections are cut.
pub(crate) const FINISHING_MAX: Duration = Duration::from_secs(5);

/// Small, as there are as many stacks as connections; the buffers lie elsewhere.
const THREAD_STACK_BYTES: usize = 256 << 10;

/// What is offered on each kind of socket: the same exports, with or without encryption.
pub struct Services {
    /// On unix sockets.
    pub unix: Service,
    /// On TCP.
    pub tcp: Service,
}

/// Numbers of clients.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ConnectionCounts {
    /// Connections now.
    pub open: u64,
    /// Connections that were let in.
    pub admitted: u64,
    /// Turned away because there were too many, or no thread for one more.
    pub over_limit: u64,
    /// Turned away because of who they were.
    pub strangers: u64,
}

impl ConnectionCounts {
    /// What came since `before`.
    pub fn since(self, before: ConnectionCounts) -> ConnectionCounts {
        ConnectionCounts {
            open: self.open,
            admitted: self.admitted.saturating_sub(before.admitted),
            over_limit: self.over_limit.saturating_sub(before.over_limit),
            strangers: self.strangers.saturating_sub(before.strangers),
        }
    }
}

/// The terms on which clients are served.
pub struct Terms {
    /// What they are served.
    pub services: Services,
    /// Who may connect to unix sockets.
    pub peers: Peers,
    /// How many may be connected at once.
    pub connections_max: usize,
    /// Whether threads of connections may poll for their clients, also of those that are connected.
    pub busy_poll: bool,
}

/// By which entrance a client came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnteredBy {
    /// The entrance's number, which no other one of the process has.
    pub entrance: u64,
    /// Its protocol.
    pub protocol: Protocol,
}

/// A connection that the server has.
struct ClientConnection {
    stream: Stream,
    by: EnteredBy,
    /// Set before its socket is shut down, whose closing its reader then sees.
    is_cut: AtomicBool,
}

/// All connections of the server, and what they are served.
pub struct Connections {
    exports: Arc<Exports>,
    poll_budget: Arc<PollBudget>,
    /// Those of the next client. A client that is connected keeps its own.
    terms: RwLock<Arc<Terms>>,
    live: Mutex<Live>,
    one_ended: Condvar,
    /// Set once, before the sockets are shut down, whose closing the readers then see.
    ending: AtomicBool,
    attached: Attached,
    crowded: LogRatelimit,
    strangers: LogRatelimit,
    counts: ConnectionOutcomes,
}

/// What became of those who connected. Relaxed everywhere: only numbers are read.
#[derive(Default)]
struct ConnectionOutcomes {
    admitted: AtomicU64,
    over_limit: AtomicU64,
    strangers: AtomicU64,
}

#[derive(Default)]
struct Live {
    next: u64,
    /// Each connection, to end it by.
    streams: BTreeMap<u64, Arc<ClientConnection>>,
}

impl Connections {
    /// No connections yet, to be served on these `terms`.
    pub fn new(terms: Terms) -> Arc<Connections> {
        let unix = &terms.services.unix;
        unix.poll_budget.allow(terms.busy_poll);
        Arc::new(Connections {
            exports: Arc::clone(&unix.exports),
            poll_budget: Arc::clone(&unix.poll_budget),
            terms: RwLock::new(Arc::new(terms)),
            live: Mutex::default(),
            one_ended: Condvar::new(),
            ending: AtomicBool::new(false),
            attached: Attached::default(),
            crowded: LogRatelimit::default(),
            strangers: LogRatelimit::default(),
            counts: ConnectionOutcomes::default(),
        })
    }

    /// Serves `stream`, which entered `by` one of the entrances, on a thread of its own, or turns
    /// it away.
    pub fn admit(self: &Arc<Self>, stream: Stream, by: EnteredBy) {
        let terms = self.terms();
        if self.is_strange(&stream, &terms.peers) {
            return;
        }
        let connection = Arc::new(ClientConnection { stream, by, is_cut: AtomicBool::new(false) });
        let Some(admitted) = self.register(&connection, terms.connections_max) else { return };
        let number = admitted.number;
        let work = move || admitted.serve(&connection, &terms.services);
        let name = format!("client {number}");
        let spawned = thread::Builder::new().name(name).stack_size(THREAD_STACK_BYTES).spawn(work);
        if let Err(error) = spawned {
            self.counts.over_limit.fetch_add(1, Ordering::Relaxed);
            if let Some(more) = self.crowded.ask() {
                tracing::warn!("rejected connection {number}: no thread for it: {error}{more}");
            }
        }
    }

    /// What is offered, the default export first.
    pub fn exports(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter()
    }

    /// The busy-poll budget of all that is served.
    pub(crate) fn poll_budget(&self) -> &PollBudget {
        &self.poll_budget
    }

    /// Those on which the next client is served.
    pub fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.terms.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves clients on these `terms` from the next one on.
    pub fn set_terms(&self, terms: Terms) {
        self.poll_budget.allow(terms.busy_poll);
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
    }

    /// Cuts the connections that `may_stay` refuses, each of a client that entered by this
    /// entrance; how many. Their requests that have arrived are still answered.
    pub fn cut(&self, may_stay: impl Fn(&Stream, EnteredBy) -> bool) -> usize {
        // Asking for the groups of a user may take long, and new clients are not to wait for it.
        let all: Vec<_> = self.live().streams.values().map(Arc::clone).collect();
        let cut = all.iter().filter(|connection| !may_stay(&connection.stream, connection.by));
        cut.map(|connection| {
            connection.is_cut.store(true, Ordering::Release);
            connection.stream.shut_down(Shutdown::Read);
        })
        .count()
    }

    /// What became of those who connected so far.
    pub fn counts(&self) -> ConnectionCounts {
        let open = self.live().streams.len() as u64;
        let ConnectionOutcomes { admitted, over_limit, strangers } = &self.counts;
        let [admitted, over_limit, strangers] = [admitted, over_limit, strangers].map(|of| of.load(Ordering::Relaxed));
        ConnectionCounts { open, admitted, over_limit, strangers }
    }

    fn is_strange(&self, stream: &Stream, peers: &Peers) -> bool {
        let Stream::Unix(stream) = stream else { return false };
        let stranger = match peers.stranger(stream) {
            Ok(None) => return false,
            Ok(Some(stranger)) => stranger,
            Err(error) => {
                tracing::warn!("rejected connection: the system does not tell its user: {error}");
                return true;
            }
        };
        self.counts.strangers.fetch_add(1, Ordering::Relaxed);
        if let Some(more) = self.strangers.ask() {
            tracing::warn!(
                "rejected connection of process {} from uid {}, gid {} (not allowed){more}",
                stranger.pid,
                stranger.uid,
                stranger.gid
            );
        }
        true
    }

    fn register(self: &Arc<Self>, connection: &Arc<ClientConnection>, connections_max: usize) -> Option<Admitted> {
        let mut live = self.live();
        let number = live.next;
        live.next += 1;
        if live.streams.len() >= connections_max {
            drop(live);
            self.counts.over_limit.fetch_add(1, Ordering::Relaxed);
            if let Some(more) = self.crowded.ask() {
                tracing::warn!("rejected connection {number}: {connections_max} connections are the limit{more}");
            }
            return None;
        }
        live.streams.insert(number, Arc::clone(connection));
        Some(Admitted { number, connections: Arc::clone(self) })
    }

    /// Ends every connection: requests that arrived are finished and answered within `patience`.
    /// Those whose connection is cut then have as long again. How many are still under way.
    pub fn end(&self, patience: Duration) -> usize {
        self.ending.store(true, Ordering::Release);
        let mut left = 0;
        for direction in [Shutdown::Read, Shutdown::Both] {
            self.live().streams.values().for_each(|connection| connection.stream.shut_down(direction));
            left = self.wait_until_none(patience);
            if left == 0 {
                break;
            }
            tracing::warn!("{left} connections still busy after {} s", patience.as_secs_f32());
        }
        left
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
    fn serve(self, connection: &ClientConnection, services: &Services) {
        let (number, stream) = (self.number, &connection.stream);
        self.connections.counts.admitted.fetch_add(1, Ordering::Relaxed);
        tracing::info!("client {number} connected");
        tracing::debug!("client {number} is {}", stream.peer());
        let end = match connection.by.protocol {
            Protocol::Nbd => self.serve_nbd(connection, services),
            Protocol::VhostUserBlk(volume) => self.serve_monitor(stream, volume),
        };
        tracing::info!("client {number} ended: {end}");
    }

    fn serve_nbd(&self, connection: &ClientConnection, services: &Services) -> String {
        let service = match connection.stream {
            Stream::Unix(_) => &services.unix,
            Stream::Tcp(_) => &services.tcp,
        };
        match serve(service, &Interruptible { connection, ending: &self.connections.ending }) {
            Ok(end) => format!("{end:?}"),
            Err(error) => error.to_string(),
        }
    }

    fn serve_monitor(&self, stream: &Stream, volume: usize) -> String {
        let Stream::Unix(socket) = stream else { return "it is not on a unix socket".to_owned() };
        let is_ending = || self.connections.ending.load(Ordering::Acquire);
        let poll_budget = self.connections.poll_budget();
        match (self.connections.exports().nth(volume), socket.try_clone()) {
            (Some(export), Ok(socket)) => self
                .connections
                .attached
                .serve(self.number, (volume, export), poll_budget, socket, is_ending)
                .to_owned(),
            (None, _) => format!("there is no volume {volume}"),
            (_, Err(error)) => format!("the system has no descriptor for it: {error}"),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.live().streams.remove(&self.number);
        self.connections.one_ended.notify_all();
    }
}

/// A stream that ends once the server ends or the connection is cut, even while the client goes on
/// sending: a socket shut down for reading still gives what is in its buffer.
struct Interruptible<'a> {
    connection: &'a ClientConnection,
    ending: &'a AtomicBool,
}

impl Interruptible<'_> {
    fn is_over(&self) -> bool {
        self.connection.is_cut.load(Ordering::Acquire) || self.ending.load(Ordering::Acquire)
    }
}

impl tidegate_nbd::Stream for Interruptible<'_> {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        if self.is_over() { Ok(0) } else { self.connection.stream.receive(out) }
    }

    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
        if self.is_over() { Ok(0) } else { self.connection.stream.receive_now(out) }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.connection.stream.send(bytes)
    }

    fn limit_waiting(&self, limit: Option<Duration>) -> io::Result<()> {
        self.connection.stream.limit_waiting(limit)
    }

    fn limit_sending(&self, limit: Option<Duration>) -> io::Result<()> {
        self.connection.stream.limit_sending(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;
    use tidegate_media::{BlockDevice, Result};
    use tidegate_nbd::Exports;
    use tidegate_nbd_client::client::{Client, Dialect, Operation};
    use tidegate_nbd_client::ram::Ram;
    use tidegate_sim::{Intercept, Intercepted};

    /// A flush meets somebody when it begins, and again before it ends.
    struct Meeting(Arc<Barrier>);

    impl Intercept for Meeting {
        fn flush<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
            self.0.wait();
            self.0.wait();
            device.flush()
        }
    }

    #[test]
    fn a_request_that_does_not_finish_is_counted_at_the_end() {
        let meeting = Arc::new(Barrier::new(2));
        let device = Arc::new(Ram::new(4096, 8));
        let device: Arc<dyn BlockDevice> = Arc::new(Intercepted { device, by: Meeting(Arc::clone(&meeting)) });
        let service = || Service::plain(Exports::new(vec![Export::new("", "", Arc::clone(&device))]).unwrap());
        let services = Services { unix: service(), tcp: service() };
        let connections =
            Connections::new(Terms { services, peers: Peers::default(), connections_max: 1, busy_poll: true });
        let (near, far) = UnixStream::pair().unwrap();
        connections.admit(Stream::Unix(far), EnteredBy { entrance: 0, protocol: Protocol::Nbd });
        let mut client = Client::connect(near, "", Dialect::Simple).unwrap();
        client.submit(Operation::Flush).unwrap();
        meeting.wait();
        assert_eq!(connections.end(Duration::from_millis(10)), 1);
        meeting.wait();
        assert_eq!(connections.end(FINISHING_MAX), 0);
    }
}
