//! A client that is a row of bytes: its requests are written beforehand, its answers are kept.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_block_export::Export;
use tidegate_media::BlockDevice;
use tidegate_nbd::{ConnectionError, End, Exports, Service, Stream, serve};
use tidegate_nbd_client::ram::Ram;

/// A stream that gives `sent` in pieces and then ends.
pub(crate) struct Script<'a>(Mutex<Lines<'a>>);

struct Lines<'a> {
    sent: &'a [u8],
    piece_bytes: Box<dyn FnMut() -> usize + Send + 'a>,
    got: Vec<u8>,
}

impl Stream for Script<'_> {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap();
        let len = (lines.piece_bytes)().clamp(1, out.len()).min(lines.sent.len());
        let (now, later) = lines.sent.split_at(len);
        out[..len].copy_from_slice(now);
        lines.sent = later;
        Ok(len)
    }

    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(out)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().got.extend_from_slice(bytes);
        Ok(())
    }

    fn limit_waiting(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn limit_sending(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

/// What the server answers to `sent`, and how the connection ends.
pub(crate) fn play(service: &Service, sent: &[u8]) -> (Vec<u8>, Result<End, ConnectionError>) {
    play_in_pieces(service, sent, || usize::MAX)
}

/// The answers to `sent`, received in pieces as long as `piece_bytes` says, and how the connection
/// ends.
pub(crate) fn play_in_pieces(
    service: &Service,
    sent: &[u8],
    piece_bytes: impl FnMut() -> usize + Send,
) -> (Vec<u8>, Result<End, ConnectionError>) {
    let script = Script(Mutex::new(Lines { sent, piece_bytes: Box::new(piece_bytes), got: Vec::new() }));
    let end = serve(service, &script);
    (script.0.into_inner().unwrap().got, end)
}

/// `disk`, 4 KiB in blocks of 512 bytes, and `frozen`, 64 KiB in blocks of 4096 bytes that cannot
/// be written.
pub(crate) fn disk_and_frozen() -> Service {
    let disk = Export::new("disk", "a small disk", Arc::new(Ram::new(512, 8)));
    let frozen = Export::new("frozen", "", Arc::new(Ram::read_only(4096, 16)));
    Service::plain(Exports::new(vec![disk, frozen]).expect("two good exports"))
}

/// `device` as the export `disk`.
pub(crate) fn exports_of(device: impl BlockDevice + 'static) -> Service {
    Service::plain(Exports::new(vec![Export::new("disk", "", Arc::new(device))]).expect("a good export"))
}
