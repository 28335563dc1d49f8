//! A part of a region as a region of its own.

use std::sync::Arc;
use tidegate_media::{LineOrder, Poison, Region, Sealed};

/// `len` bytes of a region, from `from` on.
pub(super) struct Span<R> {
    region: Arc<R>,
    from: u64,
    len: u64,
}

impl<R: Region> Span<R> {
    /// The part of `region` from `from` to `end`.
    pub(super) fn new(region: Arc<R>, from: u64, end: u64) -> Span<R> {
        assert!(from <= end && end <= region.len(), "a part lies inside");
        Span { region, from, len: end - from }
    }

    fn inside(&self, at: u64, len: u64) -> u64 {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "outside of the part");
        self.from + at
    }
}

impl<R: Region> Region for Span<R> {
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(self.inside(at, out.len() as u64), out)
    }
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.region.load_u64(self.inside(at, 8))
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write(self.inside(at, bytes.len() as u64), bytes);
    }
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.region.stream(self.inside(at, bytes.len() as u64), bytes);
    }
    fn store_u64(&self, at: u64, word: u64) {
        self.region.store_u64(self.inside(at, 8), word);
    }
    fn flush(&self, at: u64, len: u64) {
        self.region.flush(self.inside(at, len), len);
    }
    fn fence(&self) -> Result<(), Sealed> {
        self.region.fence()
    }
    fn line_order(&self) -> LineOrder {
        self.region.line_order()
    }
}
