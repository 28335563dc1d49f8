//! An idle connection keeps no timer, and little memory.

use crate::script::exports_of;
use std::io::{self, ErrorKind};
use std::sync::Mutex;
use std::time::Duration;
use tidegate_nbd::{End, Stream, serve};
use tidegate_nbd_client::ram::Ram;

/// A stream that gives one burst, is silent for as long as it is waited for with a limit, and ends
/// when it is waited for without.
struct Burst(Mutex<(Vec<u8>, Vec<String>)>);

impl Burst {
    fn note(&self, what: String) {
        self.0.lock().unwrap().1.push(what);
    }
}

impl Stream for Burst {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        let (rest, noted) = &mut *self.0.lock().unwrap();
        if rest.is_empty() {
            noted.push(format!("wait with {} bytes", out.len()));
            let limited =
                noted.iter().rev().find(|what| what.starts_with("limit")).is_some_and(|what| what.contains("Some"));
            return if limited { Err(ErrorKind::WouldBlock.into()) } else { Ok(0) };
        }
        let len = out.len().min(rest.len());
        out[..len].copy_from_slice(&rest[..len]);
        rest.drain(..len);
        Ok(len)
    }

    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
        if self.0.lock().unwrap().0.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { self.receive(out) }
    }

    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn limit_waiting(&self, limit: Option<Duration>) -> io::Result<()> {
        self.note(format!("limit {limit:?}"));
        Ok(())
    }

    fn limit_sending(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

fn noted(requests: &[u8]) -> Vec<String> {
    let handshake = b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00";
    let burst = Burst(Mutex::new(([&handshake[..], requests].concat(), Vec::new())));
    assert_eq!(serve(&exports_of(Ram::new(4096, 256)), &burst).unwrap(), End::Closed);
    burst.0.into_inner().unwrap().1
}

fn request(command: u8, len: u32) -> Vec<u8> {
    [b"\x25\x60\x95\x13\x00\x00\x00", &[command][..], &[0; 16], &len.to_be_bytes()].concat()
}

#[test]
fn small_requests_need_no_timer_and_little_memory() {
    let waits_in =
        |bytes: usize| ["limit Some(1s)".to_owned(), "limit None".to_owned(), format!("wait with {bytes} bytes")];
    assert_eq!(noted(&[]), waits_in(2048));
    assert_eq!(noted(&request(0, 4096)), waits_in(2048));
    assert_eq!(noted(&[request(1, 4096), vec![1; 4096]].concat()), waits_in(8192));
}

#[test]
fn memory_that_requests_needed_is_given_back_after_a_tick_of_silence() {
    let first_wait_in = |bytes: usize| {
        let then = ["limit None".to_owned(), "wait with 2048 bytes".to_owned()];
        [&["limit Some(1s)".to_owned(), format!("wait with {bytes} bytes")][..], &then].concat()
    };
    assert_eq!(noted(&[request(1, 700_000), vec![1; 700_000]].concat()), first_wait_in(256 << 10));
    // Of long answers too: a timer runs though the input is small.
    assert_eq!(noted(&request(0, 1 << 20)), first_wait_in(2048));
}
