//! A device or a memory with something done at its accesses: made slower, watched, or overtaken in
//! the middle.

use crate::disk::SECTOR_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_media::{BlockDevice, Durability, ExchangeWords, Lba, LineOrder, Poison, Region, Result, Sealed};

/// What is done at the reads, writes and flushes of a device, around the device's own; each is only
/// passed on unless it is given here.
pub trait Intercept: Send + Sync {
    /// Does a read of `device`.
    fn read<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, out: &mut [u8]) -> Result<()> {
        device.read(at, out)
    }

    /// Does a write of `device`.
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        device.write(at, data, durability)
    }

    /// Does a flush of `device`.
    fn flush<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        device.flush()
    }
}

/// A device whose reads, writes and flushes go through an [`Intercept`], and whose other requests
/// are passed on.
pub struct Intercepted<D: ?Sized, I> {
    /// The device.
    pub device: Arc<D>,
    /// What is done.
    pub by: I,
}

impl<D: BlockDevice + ?Sized, I: Intercept> BlockDevice for Intercepted<D, I> {
    tidegate_media::forward!(self => self.device; geometry, discard, write_zeroes, extent);

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.by.read(&*self.device, at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.by.write(&*self.device, at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.by.flush(&*self.device)
    }
}

/// Lets so many reads, writes and flushes of a device through; those behind them fail, as when it
/// has gone.
#[derive(Debug)]
pub struct Ending(AtomicU64);

impl Ending {
    /// After this many of them.
    pub fn after(accesses: u64) -> Ending {
        Ending(AtomicU64::new(accesses))
    }

    fn pass(&self) -> Result<()> {
        let one_less = |left: u64| left.checked_sub(1);
        let passed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        passed.map(drop).map_err(|_| Poison { at: 0, len: SECTOR_BYTES }.into())
    }
}

impl Intercept for Ending {
    fn read<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, out: &mut [u8]) -> Result<()> {
        self.pass()?;
        device.read(at, out)
    }

    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.pass()?;
        device.write(at, data, durability)
    }

    fn flush<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        self.pass()?;
        device.flush()
    }
}

/// What is done at the accesses of a memory, around the memory's own; each is only passed on unless
/// it is given here.
pub trait InterceptMemory: Send + Sync {
    /// Does a read of `memory`.
    fn read<R: Region + ?Sized>(&self, memory: &R, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        memory.read(at, out)
    }

    /// Does a write to `memory`.
    fn write<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        memory.write(at, bytes);
    }

    /// Does a streamed write to `memory`.
    fn stream<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        memory.stream(at, bytes);
    }

    /// Does the store of a word to `memory`.
    fn store_u64<R: Region + ?Sized>(&self, memory: &R, at: u64, word: u64) {
        memory.store_u64(at, word);
    }

    /// Does a flush of `memory`.
    fn flush<R: Region + ?Sized>(&self, memory: &R, at: u64, len: u64) {
        memory.flush(at, len);
    }

    /// Does a fence of `memory`.
    fn fence<R: Region + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        memory.fence()
    }
}

/// A memory whose accesses go through an [`InterceptMemory`], but for loads of words, which are
/// passed on.
pub struct InterceptedMemory<R: ?Sized, I> {
    /// The memory.
    pub memory: Arc<R>,
    /// What is done.
    pub by: I,
}

impl<R: ExchangeWords + ?Sized, I: InterceptMemory> ExchangeWords for InterceptedMemory<R, I> {
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        self.memory.exchange_u64(at, old, new)
    }
}

impl<R: Region + ?Sized, I: InterceptMemory> Region for InterceptedMemory<R, I> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.by.read(&*self.memory, at, out)
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.memory.load_u64(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.by.write(&*self.memory, at, bytes);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.by.stream(&*self.memory, at, bytes);
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.by.store_u64(&*self.memory, at, word);
    }

    fn flush(&self, at: u64, len: u64) {
        self.by.flush(&*self.memory, at, len);
    }

    fn fence(&self) -> Result<(), Sealed> {
        self.by.fence(&*self.memory)
    }

    fn line_order(&self) -> LineOrder {
        self.memory.line_order()
    }
}
