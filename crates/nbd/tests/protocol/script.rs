//! A client that is a row of bytes: what it sends is written beforehand, what it gets is kept.

use std::io::{self, Read, Write};
use std::sync::Arc;
use tidegate_media::BlockDevice;
use tidegate_nbd::ram::Ram;
use tidegate_nbd::{ConnectionError, End, Export, Exports, serve};

/// A stream that gives `sent` in pieces and then ends.
pub(crate) struct Script<'a> {
    sent: &'a [u8],
    piece_bytes: Box<dyn FnMut() -> usize + 'a>,
    got: Vec<u8>,
}

impl Read for Script<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = (self.piece_bytes)().clamp(1, out.len()).min(self.sent.len());
        let (now, later) = self.sent.split_at(len);
        out[..len].copy_from_slice(now);
        self.sent = later;
        Ok(len)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.got.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the server answers to `sent`, and how the connection ends.
pub(crate) fn play(exports: &Exports, sent: &[u8]) -> (Vec<u8>, Result<End, ConnectionError>) {
    play_in_pieces(exports, sent, || usize::MAX)
}

/// The same, with each piece as long as `piece_bytes` says.
pub(crate) fn play_in_pieces(
    exports: &Exports,
    sent: &[u8],
    piece_bytes: impl FnMut() -> usize,
) -> (Vec<u8>, Result<End, ConnectionError>) {
    let mut script = Script { sent, piece_bytes: Box::new(piece_bytes), got: Vec::new() };
    let end = serve(exports, &mut script);
    (script.got, end)
}

/// `disk`, 4 KiB in blocks of 512 bytes, and `frozen`, 64 KiB in blocks of 4096 bytes that cannot be written.
pub(crate) fn disk_and_frozen() -> Exports {
    let disk = Export::new("disk", "a small disk", Arc::new(Ram::new(512, 8)));
    let frozen = Export::new("frozen", "", Arc::new(Ram::read_only(4096, 16)));
    Exports::new(vec![disk, frozen]).expect("two good exports")
}

/// `device` as the export `disk`.
pub(crate) fn exports_of(device: impl BlockDevice + 'static) -> Exports {
    Exports::new(vec![Export::new("disk", "", Arc::new(device))]).expect("a good export")
}
