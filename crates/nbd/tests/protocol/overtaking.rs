//! Requests that overtake others of their connection, and those that must not be lost by it.

use crate::connections::{attach, detach};
use crate::script::exports_of;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_block_export::{Export, RequestKind};
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Poison, Result};
use tidegate_nbd::{ConnectionError, End, Exports, Service, serve};
use tidegate_nbd_client::client::{Client, Cookie, Dialect, Operation};
use tidegate_nbd_client::ram::Ram;

/// Longer than any test takes.
const FOREVER: Duration = Duration::from_secs(20);

/// More than a server calls long.
const LONG: Duration = Duration::from_millis(1);

/// A device that holds flushes, discards and writes with FUA back while its barrier is closed.
#[derive(Clone)]
struct Gated(Arc<(Ram, Barrier)>);

#[derive(Default)]
struct Barrier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    arrived: usize,
    left: usize,
    /// A block that cannot be read.
    bad_block: Option<u64>,
}

impl Gated {
    fn new() -> Gated {
        Gated(Arc::new((Ram::new(4096, 4096), Barrier::default())))
    }

    fn barrier(&self) -> &Barrier {
        &self.0.1
    }
}

impl Barrier {
    fn set_closed(&self, closed: bool) {
        self.state.lock().unwrap().closed = closed;
        self.changed.notify_all();
    }

    fn wait_for(&self, mut condition: impl FnMut(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, FOREVER, |state| !condition(state)).unwrap();
        assert!(!waited.1.timed_out(), "the device waits for ever");
    }

    fn pass(&self) {
        self.state.lock().unwrap().arrived += 1;
        self.changed.notify_all();
        self.wait_for(|state| !state.closed);
        self.state.lock().unwrap().left += 1;
        self.changed.notify_all();
    }
}

impl BlockDevice for Gated {
    tidegate_media::forward!(self => self.0.0; geometry, write_zeroes, extent);

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let bad = self.barrier().state.lock().unwrap().bad_block;
        if bad.is_some_and(|bad| (at.0..at.0 + out.len() as u64 / 4096).contains(&bad)) {
            return Err(Poison { at: 0, len: 4096 }.into());
        }
        self.0.0.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        if durability == Durability::Fua {
            self.barrier().pass();
        }
        self.0.0.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.barrier().pass();
        self.0.0.flush()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.barrier().pass();
        self.0.0.discard(range)
    }
}

/// Executes `operation` so slowly and so often that the server no longer expects it to be quick.
fn show_slowness(client: &mut Client<UnixStream>, barrier: &Barrier, operation: Operation<'_>) {
    for _ in 0..6 {
        let before = barrier.state.lock().unwrap().arrived;
        barrier.set_closed(true);
        client.submit(operation).unwrap();
        barrier.wait_for(|state| state.arrived > before);
        let since = Instant::now();
        while since.elapsed() < LONG {
            thread::yield_now();
        }
        barrier.set_closed(false);
        client.complete().unwrap().outcome.unwrap();
    }
}

fn complete(client: &mut Client<UnixStream>) -> Cookie {
    let completion = client.complete().unwrap();
    completion.outcome.unwrap();
    completion.cookie
}

#[test]
fn a_read_overtakes_what_takes_long() {
    let data = vec![7; 4096];
    for (slow, known) in [
        (Operation::Flush, false),
        (Operation::Write { offset: 8192, data: &data, durability: Durability::Fua }, false),
        (Operation::Trim { offset: 0, len: 2 << 20 }, true),
    ] {
        let device = Gated::new();
        let exports = Arc::new(exports_of(device.clone()));
        let (mut client, server) = attach(&exports, Dialect::Structured);
        client.stream().set_read_timeout(Some(FOREVER)).unwrap();
        if !known {
            show_slowness(&mut client, device.barrier(), slow);
        }
        device.barrier().set_closed(true);
        let slow = client.submit(slow).unwrap();
        let read = client.submit(Operation::Read { offset: 4096, len: 4096 }).unwrap();
        let write = Operation::Write { offset: 0, data: &data, durability: Durability::Volatile };
        let write = client.submit(write).unwrap();
        assert_eq!([complete(&mut client), complete(&mut client)], [read, write]);
        device.barrier().set_closed(false);
        assert_eq!(complete(&mut client), slow);
        detach((client, server));
    }
}

#[test]
fn the_flush_at_the_end_of_a_long_write_is_overtaken_too() {
    let device = Gated::new();
    let exports = Arc::new(exports_of(device.clone()));
    let (mut client, server) = attach(&exports, Dialect::Extended);
    client.stream().set_read_timeout(Some(FOREVER)).unwrap();
    let small = Operation::Write { offset: 0, data: &[1; 4096], durability: Durability::Fua };
    show_slowness(&mut client, device.barrier(), small);
    device.barrier().set_closed(true);
    let data = vec![9; 1 << 20];
    let long = client.submit(Operation::Write { offset: 100, data: &data, durability: Durability::Fua }).unwrap();
    let read = client.submit(Operation::Read { offset: 0, len: 4096 }).unwrap();
    assert_eq!(complete(&mut client), read);
    device.barrier().set_closed(false);
    assert_eq!(complete(&mut client), long);
    let mut seen = vec![0; data.len()];
    client.read(100, &mut seen).unwrap();
    assert!(seen == data, "the bytes differ");
    detach((client, server));
}

#[test]
fn writes_that_are_put_together_first_are_overtaken_and_arrive_whole() {
    let device = Gated::new();
    let export = Export::new("disk", "", Arc::new(device.clone())).with_whole_writes();
    let exports = Arc::new(Service::plain(Exports::new(vec![export]).unwrap()));
    let (mut client, server) = attach(&exports, Dialect::Structured);
    client.stream().set_read_timeout(Some(FOREVER)).unwrap();
    let small = Operation::Write { offset: 0, data: &[1; 4096], durability: Durability::Fua };
    show_slowness(&mut client, device.barrier(), small);
    device.barrier().set_closed(true);
    let data: Vec<u8> = (0..1 << 20_u32).map(|at| (at % 251) as u8).collect();
    let write = |offset| Operation::Write { offset, data: &data, durability: Durability::Fua };
    let long = client.submit(write(0)).unwrap();
    let read = client.submit(Operation::Read { offset: 2 << 20, len: 4096 }).unwrap();
    assert_eq!(complete(&mut client), read);
    // The first one fills what may wait beside: this one is done before what follows it.
    let longer = client.submit(write(1 << 20)).unwrap();
    device.barrier().wait_for(|state| state.arrived == 6 + 2);
    device.barrier().set_closed(false);
    let mut answered = [complete(&mut client), complete(&mut client)];
    answered.sort();
    assert_eq!(answered, [long, longer]);
    let mut seen = vec![0; 2 << 20];
    client.read(0, &mut seen).unwrap();
    assert!(seen == [&data[..], &data].concat(), "the bytes differ");
    detach((client, server));
}

#[test]
fn quick_flushes_stay_in_order() {
    let exports = Arc::new(exports_of(Ram::new(4096, 64)));
    let (mut client, server) = attach(&exports, Dialect::Simple);
    let sent: Vec<Cookie> = (0..200)
        .map(|number| {
            let operation = if number % 2 == 0 { Operation::Flush } else { Operation::Read { offset: 0, len: 1 } };
            client.submit(operation).unwrap()
        })
        .collect();
    let answered: Vec<Cookie> = sent.iter().map(|_| complete(&mut client)).collect();
    assert_eq!(answered, sent);
    detach((client, server));
}

#[test]
fn more_than_may_wait_beside_is_done_before() {
    let device = Gated::new();
    let exports = Arc::new(exports_of(device.clone()));
    let (mut client, server) = attach(&exports, Dialect::Structured);
    device.barrier().set_closed(true);
    let mut sent: Vec<Cookie> =
        (0..200).map(|_| client.submit(Operation::Trim { offset: 0, len: 2 << 20 }).unwrap()).collect();
    // One at the barrier from each of the connection's threads: there are no more of them.
    device.barrier().wait_for(|state| state.arrived == 2);
    device.barrier().set_closed(false);
    let mut answered: Vec<Cookie> = sent.iter().map(|_| complete(&mut client)).collect();
    sent.sort();
    answered.sort();
    assert_eq!(answered, sent);
    detach((client, server));
}

#[test]
fn nothing_is_sent_inside_a_reply_without_chunks() {
    for dialect in [Dialect::Simple, Dialect::Structured] {
        let device = Gated::new();
        let exports = Arc::new(exports_of(device.clone()));
        let (mut client, server) = attach(&exports, dialect);
        let data: Vec<u8> = (0..8 << 20_u32).map(|at| (at % 253) as u8).collect();
        client.write(0, &data, Durability::Volatile).unwrap();
        device.barrier().set_closed(true);
        let trim = client.submit(Operation::Trim { offset: 12 << 20, len: 2 << 20 }).unwrap();
        device.barrier().wait_for(|state| state.arrived == 1);
        // The answer does not fit into the socket: the server is in the middle of it until the
        // client takes some.
        let read = client.submit(Operation::Read { offset: 0, len: 8 << 20 }).unwrap();
        device.barrier().set_closed(false);
        device.barrier().wait_for(|state| state.left == 8);
        let mut answered = Vec::new();
        for _ in 0..2 {
            let completion = client.complete().unwrap();
            let seen = completion.outcome.unwrap();
            assert!(seen.is_empty() || seen == data, "the bytes differ");
            answered.push(completion.cookie);
        }
        answered.sort();
        assert_eq!(answered, [trim, read]);
        detach((client, server));
    }
}

#[test]
fn nothing_follows_a_reply_that_broke_off() {
    let device = Gated::new();
    let exports = Arc::new(exports_of(device.clone()));
    let (near, far) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || serve(&exports, &far));
    let mut client = Client::connect(near, "", Dialect::Simple).unwrap();
    device.barrier().set_closed(true);
    device.barrier().state.lock().unwrap().bad_block = Some(64);
    client.submit(Operation::Trim { offset: 12 << 20, len: 2 << 20 }).unwrap();
    device.barrier().wait_for(|state| state.arrived == 1);
    client.submit(Operation::Read { offset: 0, len: 4 << 20 }).unwrap();
    let mut stream = client.stream();
    let mut row = vec![0; 16 + (256 << 10)];
    stream.read_exact(&mut row).unwrap();
    assert_eq!(row[4..8], [0; 4], "the read began well");
    device.barrier().set_closed(false);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "the discard's reply would be taken for data");
    assert!(matches!(server.join().unwrap(), Err(ConnectionError::BrokenReply { .. })));
}

#[test]
fn a_client_that_leaves_gets_what_it_asked_for_first() {
    let device = Gated::new();
    let exports = Arc::new(exports_of(device.clone()));
    let (mut client, server) = attach(&exports, Dialect::Simple);
    device.barrier().set_closed(true);
    client.submit(Operation::Trim { offset: 0, len: 4 << 20 }).unwrap();
    device.barrier().wait_for(|state| state.arrived == 1);
    let mut stream = client.disconnect().unwrap();
    device.barrier().set_closed(false);
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(reply.len(), 16);
    assert_eq!(server.join().unwrap(), End::Disconnected);
    let counters = exports.exports.iter().next().unwrap().counters();
    assert_eq!(counters.of(RequestKind::Trim).requests, 1);
    // All pieces of the range passed before the reply went out.
    assert_eq!(device.barrier().state.lock().unwrap().left, 16);
}
