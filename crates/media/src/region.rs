//! The seam at the medium: persistent memory as an engine sees it.
//!
//! Eight verbs. A store becomes *visible* to other threads at once and *durable* only when the
//! thread that flushed or streamed it has passed a fence. `docs/media-model.md` says what a power
//! cut leaves of anything in between; the simulator implements that text.

use crate::error::{Poison, Sealed};

/// Bytes that travel to the medium together: one cache line. Offsets into a region are cut into
/// lines from 0.
pub const LINE_BYTES: u64 = 64;

/// Persistent memory as an engine sees it: a row of bytes at offsets `0..len`.
///
/// Offsets and lengths outside the region are a mistake of the caller, and panic. A store to bytes
/// that the medium refuses (a file cut short, a full file system) seals the region: every later
/// [`Region::fence`] reports it, so nothing is acknowledged on the strength of a lost store.
pub trait Region: Send + Sync {
    /// Bytes in the region.
    fn len(&self) -> u64;

    /// Copies `out.len()` bytes from offset `at`. Words of 8 aligned bytes are not torn by
    /// concurrent stores; anything larger may be a mixture.
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison>;

    /// Loads the aligned 8-byte word at `at`, never torn. Later reads by this thread are not moved
    /// before it.
    fn load_u64(&self, at: u64) -> Result<u64, Poison>;

    /// Stores `bytes`: visible, not durable. Any subset of its aligned 8-byte words may survive a
    /// cut.
    fn write(&self, at: u64, bytes: &[u8]);

    /// Stores `bytes` past the CPU's caches: like [`Region::write`], and counts as flushed. Other
    /// threads may not see it before this thread's next fence.
    fn stream(&self, at: u64, bytes: &[u8]);

    /// Stores one aligned word: not torn, not even by a power cut. Earlier stores of this thread
    /// are visible to whoever sees it.
    fn store_u64(&self, at: u64, word: u64);

    /// Begins the write-back of every line that `at..at + len` touches.
    fn flush(&self, at: u64, len: u64);

    /// On return, what *this thread* flushed or streamed is durable as it was when flushed. What
    /// another thread flushed is not covered. `Err` when a store was lost: the region is sealed.
    fn fence(&self) -> Result<(), Sealed>;

    /// In which order the word stores to one line reach the medium.
    fn line_order(&self) -> LineOrder {
        LineOrder::NATIVE
    }

    /// Whether the region has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A region that several processes store to, each of which may die at any time.
pub trait ExchangeWords: Region {
    /// Stores `new` in the aligned word at `at` if `old` is there, as one act, and says what was
    /// there. No access of this thread is moved across it. As any other store, it lasts once it was
    /// flushed and a fence has passed.
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison>;
}

/// What a power cut may leave of several [`Region::store_u64`] to one line that no fence separates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrder {
    /// A prefix of them, in the order of the program (x86).
    Prefix,
    /// Any of them (aarch64).
    Any,
}

impl LineOrder {
    /// The order of the processor this was compiled for.
    pub const NATIVE: LineOrder = if cfg!(target_arch = "x86_64") { LineOrder::Prefix } else { LineOrder::Any };
}

impl<R: Region + ?Sized> Region for std::sync::Arc<R> {
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        (**self).read(at, out)
    }
    #[track_caller]
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        (**self).load_u64(at)
    }
    #[track_caller]
    fn write(&self, at: u64, bytes: &[u8]) {
        (**self).write(at, bytes);
    }
    #[track_caller]
    fn stream(&self, at: u64, bytes: &[u8]) {
        (**self).stream(at, bytes);
    }
    #[track_caller]
    fn store_u64(&self, at: u64, word: u64) {
        (**self).store_u64(at, word);
    }
    #[track_caller]
    fn flush(&self, at: u64, len: u64) {
        (**self).flush(at, len);
    }
    #[track_caller]
    fn fence(&self) -> Result<(), Sealed> {
        (**self).fence()
    }
    fn line_order(&self) -> LineOrder {
        (**self).line_order()
    }
}

impl<R: ExchangeWords + ?Sized> ExchangeWords for std::sync::Arc<R> {
    #[track_caller]
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        (**self).exchange_u64(at, old, new)
    }
}
