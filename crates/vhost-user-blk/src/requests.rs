//! Requests of a guest, carried out on an export.
//!
//! Data passes through a buffer of the disk's own: the guest may change its memory while the volume
//! reads it, and a block whose checksum is taken must not change meanwhile.

use crate::budget::MachineAccess;
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

/// Bytes that are moved in no time.
const SHORT_BYTES_MAX: usize = 256 << 10;

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

/// The header of a request, how long its parts are, and where they lie.
#[derive(Clone, Copy)]
pub(crate) struct Request<'c> {
    chain: &'c RequestChain,
    memory: &'c GuestMemoryMmap,
    kind: u32,
    sector: u64,
    /// Bytes behind the header.
    given_bytes: usize,
    /// Bytes that the answer has before its status.
    answer_bytes: usize,
}

impl<'c> Request<'c> {
    /// Bytes of data in both directions.
    pub(crate) fn data_bytes(&self) -> u64 {
        (self.given_bytes + self.answer_bytes) as u64
    }

    /// The request at the beginning of `chain`.
    pub(crate) fn read(chain: &'c RequestChain, memory: &'c GuestMemoryMmap) -> Result<Request<'c>, Unanswerable> {
        let answer_bytes = chain.answer.bytes().checked_sub(1).ok_or(Unanswerable::Chain)?;
        let given_bytes = chain.asked.bytes().checked_sub(size_of::<RequestStart>()).ok_or(Unanswerable::Chain)?;
        let mut start = RequestStart::new_zeroed();
        chain.asked.copy_to(memory, 0, start.as_mut_bytes())?;
        Ok(Request { chain, memory, kind: start.kind.get(), sector: start.sector.get(), given_bytes, answer_bytes })
    }

    /// Copies what is `skip` bytes behind the header into `out`.
    fn take(&self, skip: usize, out: &mut [u8]) -> Result<(), NoSuchMemory> {
        self.chain.asked.copy_to(self.memory, size_of::<RequestStart>() + skip, out)
    }

    /// Copies `data` to `skip` bytes behind the beginning of the answer.
    fn put(&self, skip: usize, data: &[u8]) -> Result<(), NoSuchMemory> {
        self.chain.answer.copy_from(self.memory, skip, data)
    }
}

/// How a request failed, as its status says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestError {
    /// It has no status: its queue ends first.
    Over,
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
    access: MachineAccess,
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
    pub(crate) fn new(
        export: &'e Export,
        tally: &'e ConnectionCounters<'e>,
        access: MachineAccess,
        durability: Durability,
    ) -> Executor<'e> {
        let mut identity = [0; IDENTITY_BYTES];
        identity.iter_mut().zip(export.name().bytes()).for_each(|(place, byte)| *place = byte);
        let (buffer, scratch) = (Vec::new(), Scratch::default());
        Executor { export, tally, access, identity, durability, buffer, scratch, now: Instant::now() }
    }

    /// There is a request, after a wait.
    pub(crate) fn wake(&mut self) {
        self.now = Instant::now();
    }

    /// When the clock was read last: at the end of a request, or after a wait.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Whether `request` may take so long that answers before it should not wait for its own.
    pub(crate) fn may_last(&self, request: &Request<'_>) -> bool {
        match request.kind {
            VIRTIO_BLK_T_IN => request.answer_bytes > SHORT_BYTES_MAX,
            VIRTIO_BLK_T_OUT => request.given_bytes > SHORT_BYTES_MAX || self.durability == Durability::Fua,
            VIRTIO_BLK_T_FLUSH | VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => true,
            _ => false,
        }
    }

    /// Carries out a request and writes its status. How many bytes of the answer were written;
    /// none, not even the status, if it was `is_over` amid a long one.
    pub(crate) fn answer(
        &mut self,
        request: &Request<'_>,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<u32>, Unanswerable> {
        let (kind, fate) = match request.kind {
            VIRTIO_BLK_T_IN => (RequestKind::Read, self.read(request, is_over)),
            VIRTIO_BLK_T_OUT => (RequestKind::Write, self.write(request, is_over)),
            VIRTIO_BLK_T_FLUSH => (RequestKind::Flush, self.flush()),
            VIRTIO_BLK_T_DISCARD => (RequestKind::Trim, self.discard(request)),
            VIRTIO_BLK_T_WRITE_ZEROES => (RequestKind::WriteZeroes, self.write_zeroes(request)),
            VIRTIO_BLK_T_GET_ID => (RequestKind::Unknown, self.tell_identity(request)),
            _ => (RequestKind::Unknown, Err(RequestError::Unsupported)),
        };
        let has_data = matches!(request.kind, VIRTIO_BLK_T_IN | VIRTIO_BLK_T_GET_ID);
        let (said, written) = match fate {
            Ok(bytes) => (status::GOOD, if has_data { bytes } else { 0 }),
            Err(RequestError::Failed) => (status::FAILED, 0),
            Err(RequestError::Unsupported) => (status::UNSUPPORTED, 0),
            Err(RequestError::Over) => return Ok(None),
        };
        request.put(request.answer_bytes, &[said])?;
        if request.kind != VIRTIO_BLK_T_GET_ID {
            self.count(kind, fate.ok());
        }
        Ok(Some(u32::try_from(written + 1).unwrap_or(u32::MAX)))
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

    fn read(&mut self, request: &Request<'_>, is_over: impl Fn() -> bool) -> Result<u64, RequestError> {
        let offset = self.offset(request.sector, request.answer_bytes as u64)?;
        self.in_pieces(request.answer_bytes, is_over, |export, from, piece, scratch| {
            export.read(offset + from as u64, piece, scratch)?;
            Ok(request.put(from, piece)?)
        })
    }

    fn write(&mut self, request: &Request<'_>, is_over: impl Fn() -> bool) -> Result<u64, RequestError> {
        let offset = self.offset(request.sector, request.given_bytes as u64)?;
        self.check_access()?;
        let durability = self.durability;
        self.in_pieces(request.given_bytes, is_over, |export, from, piece, scratch| {
            request.take(from, piece)?;
            Ok(export.write(offset + from as u64, piece, durability, scratch)?)
        })
    }

    /// Moves `len` bytes, as many at a time as the buffer has. `move_piece` gets the bytes moved
    /// before, and the buffer.
    fn in_pieces(
        &mut self,
        len: usize,
        is_over: impl Fn() -> bool,
        mut move_piece: impl FnMut(&Export, usize, &mut [u8], &mut Scratch) -> Result<(), RequestError>,
    ) -> Result<u64, RequestError> {
        let needed = len.min(BUFFER_BYTES);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        for from in (0..len).step_by(BUFFER_BYTES) {
            if from > 0 && is_over() {
                return Err(RequestError::Over);
            }
            let piece = &mut self.buffer[..BUFFER_BYTES.min(len - from)];
            move_piece(self.export, from, piece, &mut self.scratch)?;
        }
        Ok(len as u64)
    }

    fn check_access(&self) -> Result<(), RequestError> {
        let refuses = self.access == MachineAccess::ReadOnly || self.export.refuses_changes();
        if refuses { Err(RequestError::Failed) } else { Ok(()) }
    }

    fn flush(&self) -> Result<u64, RequestError> {
        self.export.flush()?;
        Ok(0)
    }

    fn discard(&mut self, request: &Request<'_>) -> Result<u64, RequestError> {
        let ranges = self.ranges(request, (DISCARD_RANGES_MAX, DISCARD_BYTES_MAX, 0))?;
        for (offset, len, _) in &ranges {
            self.export.trim(*offset, *len, self.durability)?;
        }
        Ok(ranges.iter().map(|(_, len, _)| len).sum())
    }

    fn write_zeroes(&mut self, request: &Request<'_>) -> Result<u64, RequestError> {
        let unmap = VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
        let ranges = self.ranges(request, (1, ZEROES_BYTES_MAX, unmap))?;
        for (offset, len, flags) in &ranges {
            let zeroing = if *flags == unmap { Zeroing::AnyWay } else { Zeroing::AsData };
            self.export.write_zeroes(*offset, *len, (zeroing, self.durability), &mut self.scratch)?;
        }
        Ok(ranges.iter().map(|(_, len, _)| len).sum())
    }

    /// The ranges that a request names, all of them checked: offset, bytes and flags of each.
    fn ranges(
        &self,
        request: &Request<'_>,
        (ranges_max, bytes_max, flags_known): (u32, u64, u32),
    ) -> Result<Vec<(u64, u64, u32)>, RequestError> {
        self.check_access()?;
        let count = request.given_bytes / size_of::<RequestRange>();
        if !request.given_bytes.is_multiple_of(size_of::<RequestRange>()) || count == 0 {
            return Err(RequestError::Failed);
        }
        if u32::try_from(count).map_or(true, |count| count > ranges_max) {
            return Err(RequestError::Unsupported);
        }
        let mut ranges = vec![RequestRange::new_zeroed(); count];
        request.take(0, ranges.as_mut_bytes())?;
        let checked = ranges.iter().map(|range| {
            let (len, flags) = (u64::from(range.sectors.get()) * SECTOR_BYTES, range.flags.get());
            if len > bytes_max || flags & !flags_known != 0 {
                return Err(RequestError::Unsupported);
            }
            Ok((self.offset(range.sector.get(), len)?, len, flags))
        });
        checked.collect()
    }

    fn tell_identity(&self, request: &Request<'_>) -> Result<u64, RequestError> {
        let len = request.answer_bytes.min(IDENTITY_BYTES);
        request.put(0, &self.identity[..len])?;
        Ok(len as u64)
    }

    /// Where a range of whole sectors begins, in bytes, if the disk has all of it.
    fn offset(&self, sector: u64, len: u64) -> Result<u64, RequestError> {
        let offset = sector.checked_mul(SECTOR_BYTES).filter(|_| len.is_multiple_of(SECTOR_BYTES));
        let offset = offset.ok_or(RequestError::Failed)?;
        let end = offset.checked_add(len).ok_or(RequestError::Failed)?;
        if end <= capacity_bytes(self.export) { Ok(offset) } else { Err(RequestError::Failed) }
    }
}
