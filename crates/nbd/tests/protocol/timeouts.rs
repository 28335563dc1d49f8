//! Clients that are slow, half gone, or silent.

use crate::script::disk_and_frozen;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tidegate_nbd::{ConnectionError, End, Service, Timeouts, serve};

const SHORT: Duration = Duration::from_millis(40);
const LONG: Duration = Duration::from_secs(1000);

type Served = JoinHandle<Result<End, ConnectionError>>;

fn connect(handshake: Duration, request: Duration) -> (UnixStream, Served) {
    let (near, far) = UnixStream::pair().unwrap();
    let service = Service { timeouts: Timeouts { handshake, request }, ..disk_and_frozen() };
    (near, thread::spawn(move || serve(&service, &far)))
}

/// A stream whose export is picked.
fn picked(request: Duration) -> (UnixStream, Served) {
    let (mut near, served) = connect(LONG, request);
    near.write_all(b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00").unwrap();
    let mut answer = [0; 18 + 10];
    near.read_exact(&mut answer).unwrap();
    (near, served)
}

fn write_request(len: u32) -> Vec<u8> {
    [b"\x25\x60\x95\x13\x00\x00\x00\x01", &[0; 16][..], &len.to_be_bytes()].concat()
}

#[test]
fn a_client_that_picks_no_export_in_time_is_left() {
    let (near, served) = connect(SHORT, LONG);
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::SlowHandshake { limit: SHORT })));
    drop(near);
}

#[test]
fn options_do_not_win_time() {
    let (mut near, served) = connect(SHORT, LONG);
    near.write_all(b"\x00\x00\x00\x03").unwrap();
    // Each option is answered, and the next one sent at once, until nobody answers.
    let mut reply = [0; 20];
    while near.write_all(b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00").is_ok() && near.read_exact(&mut reply).is_ok() {}
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::SlowHandshake { .. })));
}

#[test]
fn a_client_that_takes_no_answers_in_the_handshake_is_left() {
    let (mut near, served) = connect(SHORT, LONG);
    near.write_all(b"\x00\x00\x00\x03").unwrap();
    while near.write_all(b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00").is_ok() {}
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::SlowHandshake { limit: SHORT })));
}

#[test]
fn half_a_request_is_waited_for_only_so_long() {
    for sent in [&write_request(512)[..10], &write_request(512), &[&write_request(512)[..], &[0; 511]].concat()] {
        let (mut near, served) = picked(SHORT);
        near.write_all(sent).unwrap();
        assert!(matches!(served.join().unwrap(), Err(ConnectionError::SlowRequest { limit: SHORT })));
    }
}

#[test]
fn a_payload_of_drops_is_waited_for_only_so_long() {
    let (mut near, served) = picked(SHORT);
    // Refused, and skipped byte by byte: there is enough of it to go on for years.
    near.write_all(&write_request(u32::MAX)).unwrap();
    while near.write_all(b"x").is_ok() {
        thread::yield_now();
    }
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::SlowRequest { .. })));
}

#[test]
fn silence_between_requests_is_no_slowness() {
    let (mut near, served) = picked(SHORT);
    for _ in 0..3 {
        let since = Instant::now();
        while since.elapsed() < 3 * SHORT {
            thread::yield_now();
        }
        // In one piece, so that this client is never slow itself.
        near.write_all(&[&write_request(3)[..], b"abc"].concat()).unwrap();
        let mut reply = [1; 16];
        near.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4]);
    }
    drop(near);
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
}

#[test]
fn a_client_that_sends_no_more_still_gets_its_answers() {
    let (mut near, served) = picked(LONG);
    near.write_all(&[&write_request(3)[..], b"abc"].concat()).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    near.read_to_end(&mut reply).unwrap();
    assert_eq!(reply, [b"\x67\x44\x66\x98", &[0; 12][..]].concat());
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
}

#[test]
fn a_client_that_takes_no_more_answers_is_left() {
    let (mut near, served) = picked(LONG);
    near.shutdown(Shutdown::Read).unwrap();
    near.write_all(&[&write_request(3)[..], b"abc"].concat()).unwrap();
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::Stream(_))));
}
