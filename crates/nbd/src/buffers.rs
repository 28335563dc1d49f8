//! The two buffers of a connection: bytes that arrived and wait to be understood, and replies that
//! wait to be sent.
//!
//! Both are kept as large as requests made them, so that the next one needs no allocation, until
//! the connection is idle.

use crate::limits::{GATHERED_BYTES_MAX, IDLE_INPUT_BYTES, IDLE_OUTPUT_BYTES, INPUT_BYTES, OUTPUT_BYTES_MAX};
use crate::stream::Stream;
use memmap2::MmapMut;
use std::io::Result;
use std::ops::{Deref, DerefMut};

/// What both begin with: enough for most handshakes, and a page together.
const FIRST_BYTES: usize = 2 << 10;

/// Longer buffers are mappings of their own.
const HEAP_BYTES_MAX: usize = 32 << 10;

/// A row of bytes. A long one goes back to the system when it is dropped, which an allocator would
/// leave to chance: after a burst on thousands of connections that is the difference between
/// megabytes and gigabytes.
enum Room {
    Heap(Vec<u8>),
    Mapping(MmapMut),
}

impl Room {
    /// `len` bytes, which hold anything.
    fn of(len: usize) -> Room {
        let mapped = if len > HEAP_BYTES_MAX { MmapMut::map_anon(len).ok() } else { None };
        mapped.map_or_else(|| Room::Heap(vec![0; len]), Room::Mapping)
    }

    /// A longer row that begins with the first `kept` bytes of this one.
    fn grow(&mut self, len: usize, kept: usize) {
        let mut longer = Room::of(len);
        longer[..kept].copy_from_slice(&self[..kept]);
        *self = longer;
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Room::Heap(bytes) => bytes,
            Room::Mapping(bytes) => bytes,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Room::Heap(bytes) => bytes,
            Room::Mapping(bytes) => bytes,
        }
    }
}

/// Bytes from the client, in a buffer that grows while it is filled to the brim.
pub(crate) struct Input {
    bytes: Room,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { bytes: Room::of(FIRST_BYTES), start: 0, end: 0 }
    }

    /// What arrived and was not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds more memory than an idle connection should.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes.len() > IDLE_INPUT_BYTES
    }

    /// Gives memory back, if all is consumed.
    pub(crate) fn shrink(&mut self) {
        if self.start == self.end && self.is_large() {
            *self = Input::new();
        }
    }

    /// Reads once, as much as there is and fits, and returns how much that was: 0 at the stream's
    /// end.
    ///
    /// What is unread moves to the front first. It is the beginning of one request, and each byte
    /// moves once.
    pub(crate) fn fill_from(&mut self, receive: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<usize> {
        // Full to the brim: either one request is longer than the buffer, or more of them wait than
        // it holds.
        let brimful = self.end == self.bytes.len();
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if brimful && self.bytes.len() < INPUT_BYTES {
            self.bytes.grow((4 * self.bytes.len()).min(INPUT_BYTES), self.end);
        }
        debug_assert!(self.end < self.bytes.len(), "no request needs more than the buffer holds");
        let len = receive(&mut self.bytes[self.end..])?;
        self.end += len;
        Ok(len)
    }
}

/// A payload that is put together before any of it is used.
pub(crate) struct Gathered {
    bytes: Room,
    len: usize,
}

impl Gathered {
    /// None of `len` bytes yet.
    pub(crate) fn of(len: usize) -> Gathered {
        Gathered { bytes: Room::of(len), len: 0 }
    }

    /// The next ones; there are no more than was said.
    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.bytes[self.len..self.len + piece.len()].copy_from_slice(piece);
        self.len += piece.len();
    }

    /// Those that came so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Bytes for the client, of a capacity that grows to what the longest reply so far needed.
pub(crate) struct Output {
    bytes: Room,
    len: usize,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { bytes: Room::of(FIRST_BYTES), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// All of it, as if it were sent.
    pub(crate) fn take(&mut self) -> &[u8] {
        let len = std::mem::take(&mut self.len);
        &self.bytes[..len]
    }

    /// Whether it holds more memory than an idle connection should.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes.len() > IDLE_OUTPUT_BYTES
    }

    /// Gives memory back, if all is sent.
    pub(crate) fn shrink(&mut self) {
        if self.len == 0 && self.is_large() {
            self.bytes = Room::of(FIRST_BYTES);
        }
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
            self.bytes.grow(end.next_power_of_two().min(OUTPUT_BYTES_MAX.max(end)), start);
        }
        self.len = end;
        &mut self.bytes[start..end]
    }

    /// Takes back what was appended since there were `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len);
        self.len = len;
    }

    pub(crate) fn send_to(&mut self, stream: &impl Stream) -> Result<()> {
        if self.len > 0 {
            stream.send(&self.bytes[..self.len])?;
            self.len = 0;
        }
        Ok(())
    }
}
