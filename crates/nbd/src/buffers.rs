//! The two buffers of a connection: bytes that arrived and wait to be understood, and replies that wait to be sent.
//!
//! Both are kept for the connection's life, so that a request allocates nothing.

use crate::limits::{GATHERED_BYTES_MAX, INPUT_BYTES, OUTPUT_BYTES_MAX};
use std::io::{ErrorKind, Read, Result, Write};

/// Where both buffers start: enough for a handshake and single requests, and little enough for thousands of idle connections.
const BUFFER_BYTES_MIN: usize = 8 << 10;

/// Bytes from the client, of a capacity that grows to [`INPUT_BYTES`] as soon as a read fills what there is.
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { bytes: vec![0; BUFFER_BYTES_MIN], start: 0, end: 0 }
    }

    /// What arrived and was not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
    }

    /// Reads once, as much as there is and fits, and returns how much that was: 0 at the stream's end.
    ///
    /// What is unread moves to the front first. It is the beginning of one request, and each byte moves once.
    pub(crate) fn fill_from(&mut self, stream: &mut impl Read) -> Result<usize> {
        if self.end == self.bytes.len() {
            self.bytes.resize(INPUT_BYTES, 0);
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        debug_assert!(self.end < self.bytes.len(), "no request needs more than the buffer holds");
        loop {
            match stream.read(&mut self.bytes[self.end..]) {
                Ok(len) => {
                    self.end += len;
                    return Ok(len);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Bytes for the client, of a capacity that grows to what the longest reply so far needed.
pub(crate) struct Output {
    bytes: Vec<u8>,
    len: usize,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { bytes: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it is time to send, even with more requests at hand.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= GATHERED_BYTES_MAX
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends `len` bytes for the caller to fill; they hold anything.
    pub(crate) fn space(&mut self, len: usize) -> &mut [u8] {
        let (start, end) = (self.len, self.len + len);
        if end > self.bytes.len() {
            debug_assert!(end <= OUTPUT_BYTES_MAX);
            self.bytes.resize(end.next_power_of_two().clamp(BUFFER_BYTES_MIN, OUTPUT_BYTES_MAX.max(end)), 0);
        }
        self.len = end;
        &mut self.bytes[start..end]
    }

    /// Takes back what was appended since there were `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len);
        self.len = len;
    }

    pub(crate) fn send_to(&mut self, stream: &mut impl Write) -> Result<()> {
        if self.len > 0 {
            stream.write_all(&self.bytes[..self.len])?;
            stream.flush()?;
            self.len = 0;
        }
        Ok(())
    }
}
