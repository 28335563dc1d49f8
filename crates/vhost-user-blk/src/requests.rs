//! Requests of a guest, carried out on an export.
//!
//! Data passes through a buffer of the disk's own: the guest may change its memory while the volume
//! reads it, and a block whose checksum is taken must not change meanwhile.

use crate::chain::{NoSuchMemory, RequestChain};
use crate::virtio::{
    DISCARD_BYTES_MAX, DISCARD_RANGES_MAX, IDENTITY_BYTES, RequestRange, RequestStart, SECTOR_BYTES, ZEROES_BYTES_MAX,
    capacity_bytes, status,
};
use std::time::Instant;
use tidegate_block_export::{ConnectionCounters, Export, RequestKind, Scratch, WHOLE_WRITE_BYTES_MAX, Zeroing};
use tidegate_media::Durability;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use vm_memory::GuestMemoryMmap;
use zerocopy::{FromZeros, IntoBytes};

/// Bytes that pass through the buffer at a time: a write that a volume puts in place as a whole is
/// never cut.
const BUFFER_BYTES: usize = WHOLE_WRITE_BYTES_MAX as usize;

/// Why a request has no header, or its answer no place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswerable {
    /// Header or status are missing.
    Chain,
    /// They are at no address of the guest.
    Address,
}

impl From<NoSuchMemory> for Unanswerable {
    fn from(_: NoSuchMemory) -> Unanswerable {
        Unanswerable::Address
    }
}

/// How a request failed, as its status says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestError {
    /// The request or the volume is at fault.
    Failed,
    /// Disks here do not do that.
    Unsupported,
}

impl From<NoSuchMemory> for RequestError {
    fn from(_: NoSuchMemory) -> RequestError {
        RequestError::Failed
    }
}

impl From<tidegate_media::Error> for RequestError {
    fn from(_: tidegate_media::Error) -> RequestError {
        RequestError::Failed
    }
}

/// What one queue needs to carry out requests.
pub(crate) struct Executor<'e> {
    export: &'e Export,
    tally: &'e ConnectionCounters<'e>,
    identity: [u8; IDENTITY_BYTES],
    durability: Durability,
    buffer: Vec<u8>,
    scratch: Scratch,
    /// When the last request ended, or the next one was found.
    now: Instant,
}

impl<'e> Executor<'e> {
    /// For a queue of the disk that offers `export`. Writes are durable when they are answered, or
    /// by the next flush, as `durability` says.
    pub(crate) fn new(export: &'e Export, tally: &'e ConnectionCounters<'e>, durability: Durability) -> Executor<'e> {
        let mut identity = [0; IDENTITY_BYTES];
        identity.iter_mut().zip(export.name().bytes()).for_each(|(place, byte)| *place = byte);
        let (buffer, scratch) = (Vec::new(), Scratch::default());
        Executor { export, tally, identity, durability, buffer, scratch, now: Instant::now() }
    }

    /// There is a request, after a wait.
    pub(crate) fn wake(&mut self) {
        self.now = Instant::now();
    }

    /// When the clock was read last: at the end of a request, or after a wait.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Carries out a request and writes its status. How many bytes of the answer were written.
    pub(crate) fn answer(&mut self, chain: &RequestChain, memory: &GuestMemoryMmap) -> Result<u32, Unanswerable> {
        let mut start = RequestStart::new_zeroed();
        let room = chain.answer.bytes().checked_sub(1).ok_or(Unanswerable::Chain)?;
        if chain.asked.bytes() < size_of::<RequestStart>() {
            return Err(Unanswerable::Chain);
        }
        chain.asked.copy_to(memory, 0, start.as_mut_bytes())?;
        let given = chain.asked.bytes() - size_of::<RequestStart>();
        let (kind, fate) = match start.kind.get() {
            VIRTIO_BLK_T_IN => (RequestKind::Read, self.read(&start, chain, memory)),
            VIRTIO_BLK_T_OUT => (RequestKind::Write, self.write(&start, chain, memory)),
            VIRTIO_BLK_T_FLUSH => (RequestKind::Flush, self.flush()),
            VIRTIO_BLK_T_DISCARD => (RequestKind::Trim, self.discard(given, chain, memory)),
            VIRTIO_BLK_T_WRITE_ZEROES => (RequestKind::WriteZeroes, self.write_zeroes(given, chain, memory)),
            VIRTIO_BLK_T_GET_ID => (RequestKind::Unknown, self.tell_identity(room, chain, memory)),
            _ => (RequestKind::Unknown, Err(RequestError::Unsupported)),
        };
        let told = if matches!(start.kind.get(), VIRTIO_BLK_T_IN | VIRTIO_BLK_T_GET_ID) { room } else { 0 };
        let (said, written) = match fate {
            Ok(_) => (status::GOOD, told),
            Err(RequestError::Failed) => (status::FAILED, 0),
            Err(RequestError::Unsupported) => (status::UNSUPPORTED, 0),
        };
        chain.answer.copy_from(memory, room, &[said])?;
        if start.kind.get() != VIRTIO_BLK_T_GET_ID {
            self.count(kind, fate.ok());
        }
        Ok(u32::try_from(written + 1).unwrap_or(u32::MAX))
    }

    fn count(&mut self, kind: RequestKind, bytes: Option<u64>) {
        let now = Instant::now();
        let took = now - self.now;
        if kind == RequestKind::Flush {
            self.export.flush_latency().learn_flush(took);
        }
        self.tally.answered(kind, bytes, took);
        self.now = now;
    }

    fn read(
        &mut self,
        start: &RequestStart,
        chain: &RequestChain,
        memory: &GuestMemoryMmap,
    ) -> Result<u64, RequestError> {
        let len = chain.answer.bytes() - 1;
        let offset = self.offset(start.sector.get(), len as u64)?;
        self.make_room(len);
        for from in (0..len).step_by(BUFFER_BYTES) {
            let piece = &mut self.buffer[..BUFFER_BYTES.min(len - from)];
            self.export.read(offset + from as u64, piece, &mut self.scratch)?;
            chain.answer.copy_from(memory, from, piece)?;
        }
        Ok(len as u64)
    }

    fn write(
        &mut self,
        start: &RequestStart,
        chain: &RequestChain,
        memory: &GuestMemoryMmap,
    ) -> Result<u64, RequestError> {
        let len = chain.asked.bytes() - size_of::<RequestStart>();
        let offset = self.offset(start.sector.get(), len as u64)?;
        if self.export.refuses_changes() {
            return Err(RequestError::Failed);
        }
        self.make_room(len);
        for from in (0..len).step_by(BUFFER_BYTES) {
            let piece = &mut self.buffer[..BUFFER_BYTES.min(len - from)];
            chain.asked.copy_to(memory, size_of::<RequestStart>() + from, piece)?;
            self.export.write(offset + from as u64, piece, self.durability, &mut self.scratch)?;
        }
        Ok(len as u64)
    }

    fn flush(&self) -> Result<u64, RequestError> {
        self.export.flush()?;
        Ok(0)
    }

    fn discard(&mut self, given: usize, chain: &RequestChain, memory: &GuestMemoryMmap) -> Result<u64, RequestError> {
        let mut bytes = 0;
        for range in self.ranges(given, (DISCARD_RANGES_MAX, DISCARD_BYTES_MAX), chain, memory)? {
            let (offset, len, flags) = range;
            if flags != 0 {
                return Err(RequestError::Unsupported);
            }
            self.export.trim(offset, len, self.durability)?;
            bytes += len;
        }
        Ok(bytes)
    }

    fn write_zeroes(
        &mut self,
        given: usize,
        chain: &RequestChain,
        memory: &GuestMemoryMmap,
    ) -> Result<u64, RequestError> {
        let mut bytes = 0;
        for (offset, len, flags) in self.ranges(given, (1, ZEROES_BYTES_MAX), chain, memory)? {
            let zeroing = match flags {
                0 => Zeroing::AsData,
                VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP => Zeroing::AnyWay,
                _ => return Err(RequestError::Unsupported),
            };
            self.export.write_zeroes(offset, len, (zeroing, self.durability), &mut self.scratch)?;
            bytes += len;
        }
        Ok(bytes)
    }

    /// The ranges that a request names, all of them checked: offset, bytes and flags of each.
    fn ranges(
        &self,
        given: usize,
        (ranges_max, bytes_max): (u32, u64),
        chain: &RequestChain,
        memory: &GuestMemoryMmap,
    ) -> Result<Vec<(u64, u64, u32)>, RequestError> {
        let count = given / size_of::<RequestRange>();
        if self.export.refuses_changes() || !given.is_multiple_of(size_of::<RequestRange>()) || count == 0 {
            return Err(RequestError::Failed);
        }
        if u32::try_from(count).map_or(true, |count| count > ranges_max) {
            return Err(RequestError::Unsupported);
        }
        let mut ranges = vec![RequestRange::new_zeroed(); count];
        chain.asked.copy_to(memory, size_of::<RequestStart>(), ranges.as_mut_bytes())?;
        let checked = ranges.iter().map(|range| {
            let len = u64::from(range.sectors.get()) * SECTOR_BYTES;
            if len > bytes_max {
                return Err(RequestError::Unsupported);
            }
            Ok((self.offset(range.sector.get(), len)?, len, range.flags.get()))
        });
        checked.collect()
    }

    fn tell_identity(&self, room: usize, chain: &RequestChain, memory: &GuestMemoryMmap) -> Result<u64, RequestError> {
        let len = room.min(IDENTITY_BYTES);
        chain.answer.copy_from(memory, 0, &self.identity[..len])?;
        Ok(len as u64)
    }

    /// Where a range of whole sectors begins, in bytes, if the disk has all of it.
    fn offset(&self, sector: u64, len: u64) -> Result<u64, RequestError> {
        let offset = sector.checked_mul(SECTOR_BYTES).filter(|_| len.is_multiple_of(SECTOR_BYTES));
        let offset = offset.ok_or(RequestError::Failed)?;
        let end = offset.checked_add(len).ok_or(RequestError::Failed)?;
        if end <= capacity_bytes(self.export) { Ok(offset) } else { Err(RequestError::Failed) }
    }

    /// Makes the buffer as long as a request of `len` bytes needs it.
    fn make_room(&mut self, len: usize) {
        let needed = len.min(BUFFER_BYTES);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
    }
}
