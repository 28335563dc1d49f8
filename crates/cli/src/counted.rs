//! A block device that counts what is asked of it: requests, failures, bytes and times, by kind.

use crate::latency::{Histogram, Latencies};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidegate_media::{BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, Result};

/// What can be asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes out.
    Read,
    /// Bytes in.
    Write,
    /// Make durable.
    Flush,
    /// Give up.
    Trim,
    /// Make zero.
    WriteZeroes,
    /// What is there.
    BlockStatus,
}

impl Kind {
    /// Every kind, in the order in which they are shown.
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim, Kind::WriteZeroes, Kind::BlockStatus];

    /// Its name, for people and scripts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => "flush",
            Kind::Trim => "trim",
            Kind::WriteZeroes => "write_zeroes",
            Kind::BlockStatus => "block_status",
        }
    }
}

/// Counts of one kind.
#[derive(Debug, Default)]
struct Tally {
    errors: AtomicU64,
    bytes: AtomicU64,
    times: Histogram,
}

/// What was counted of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests that failed.
    pub(crate) errors: u64,
    /// Bytes of those that did not.
    pub(crate) bytes: u64,
    /// How long all of them took.
    pub(crate) times: Latencies,
}

/// The counts of a device, by kind.
#[derive(Debug, Default)]
pub(crate) struct Requests([Tally; Kind::ALL.len()]);

impl Requests {
    /// What was counted of `kind`.
    pub(crate) fn of(&self, kind: Kind) -> Counts {
        let tally = &self.0[kind as usize];
        Counts {
            errors: tally.errors.load(Ordering::Relaxed),
            bytes: tally.bytes.load(Ordering::Relaxed),
            times: tally.times.snapshot(),
        }
    }

    /// Does `work`, and counts it. Relaxed: see [`Histogram::add`].
    fn count<T>(&self, kind: Kind, bytes: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let tally = &self.0[kind as usize];
        let began = Instant::now();
        let done = work();
        tally.times.add(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        match &done {
            Ok(_) => tally.bytes.fetch_add(bytes, Ordering::Relaxed),
            Err(_) => tally.errors.fetch_add(1, Ordering::Relaxed),
        };
        done
    }
}

/// A device and its counts.
pub(crate) struct Counted {
    device: Arc<dyn BlockDevice>,
    block_bytes: u64,
    requests: Arc<Requests>,
}

impl Counted {
    /// Counts what is asked of `device`.
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Counted {
        let block_bytes = u64::from(device.geometry().block_size);
        Counted { device, block_bytes, requests: Arc::default() }
    }

    /// The counts, for others to read.
    pub(crate) fn requests(&self) -> Arc<Requests> {
        Arc::clone(&self.requests)
    }

    fn bytes(&self, range: LbaRange) -> u64 {
        range.blocks * self.block_bytes
    }
}

impl BlockDevice for Counted {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.requests.count(Kind::Read, out.len() as u64, || self.device.read(at, out))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.requests.count(Kind::Write, data.len() as u64, || self.device.write(at, data, durability))
    }

    fn flush(&self) -> Result<()> {
        self.requests.count(Kind::Flush, 0, || self.device.flush())
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.requests.count(Kind::Trim, self.bytes(range), || self.device.discard(range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.requests.count(Kind::WriteZeroes, self.bytes(range), || self.device.write_zeroes(range, durability))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.requests.count(Kind::BlockStatus, 0, || self.device.extent(range))
    }
}
