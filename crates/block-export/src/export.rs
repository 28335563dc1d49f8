//! Exports: a block device under a name, as a range of bytes.
//!
//! Clients address bytes, devices take blocks. Whole blocks go straight to the device; a block of
//! which a client writes some bytes is read, changed and written. That must not undo what another
//! client writes to the block in between. So the block's stripe is locked: exclusively by a thread
//! that reads and writes back, shared by threads that write whole blocks. Reads take no lock: the
//! device shows each block old or new.

use crate::counters::{ConnectionCounters, Counters, ExportCounters};
use crate::flush_latency::FlushLatency;
use crate::span::{Partial, Span};
use std::sync::{Arc, RwLock};
use tidegate_media::{BlockDevice, Durability, ExtentKind, Geometry, Lba, LbaRange, Result};

/// Block size of a device that can be exported.
pub const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// The longest write that reaches a device in one call, where an export says so.
pub const WHOLE_WRITE_BYTES_MAX: u32 = 1 << 20;

/// Calls of the device that one [`Export::extents`] may cost. A device may tell of few blocks at a
/// time.
pub const EXTENT_CALLS_MAX: usize = 16 << 10;

/// Neighbouring blocks share a stripe, so that most writes of whole blocks take one lock.
const STRIPE_BYTES: u64 = 256 << 10;
const STRIPES: usize = 64;
const _: () = assert!(STRIPE_BYTES.is_multiple_of(BLOCK_BYTES_MAX as u64) && STRIPES.is_power_of_two());
// A write in one piece takes each lock once.
const _: () = assert!((WHOLE_WRITE_BYTES_MAX as u64).div_ceil(STRIPE_BYTES) < STRIPES as u64);

/// A block device under a name.
pub struct Export {
    name: String,
    description: String,
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    block_shift: u32,
    stripes: [Stripe; STRIPES],
    counters: Counters,
    flush_latency: FlushLatency,
    writes: WriteSplitting,
}

/// How writes of whole blocks reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteSplitting {
    /// Cut where that is convenient.
    InPieces,
    /// In one call, up to [`WHOLE_WRITE_BYTES_MAX`].
    Whole,
}

/// Memory for one block of which a range covers a part. It is allocated at first use.
#[derive(Default)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    fn block(&mut self, bytes: usize) -> &mut [u8] {
        self.0.resize(bytes, 0);
        &mut self.0
    }
}

/// A lock on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Stripe(RwLock<()>);

/// What a write puts into a range of bytes.
#[derive(Clone, Copy)]
enum Content<'a> {
    Bytes(&'a [u8]),
    Zeroes(Zeroing),
}

/// Whether zeroes may become holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// As the device likes best.
    AnyWay,
    /// As data, which takes its place on the medium now.
    AsData,
}

/// What is written where zeroes have to be data: as much as one call of the device takes.
static ZEROES: [u8; 256 << 10] = [0; 256 << 10];
const _: () = assert!(ZEROES.len() as u64 == STRIPE_BYTES);

impl<'a> Content<'a> {
    fn split(self, at: usize) -> (Content<'a>, Content<'a>) {
        match self {
            Content::Bytes(bytes) => {
                let (front, back) = bytes.split_at(at);
                (Content::Bytes(front), Content::Bytes(back))
            }
            Content::Zeroes(_) => (self, self),
        }
    }

    fn put_into(self, out: &mut [u8]) {
        match self {
            Content::Bytes(bytes) => out.copy_from_slice(bytes),
            Content::Zeroes(_) => out.fill(0),
        }
    }
}

impl Export {
    /// Offers `device` as `name`, with `description` for people. A front may limit their lengths.
    pub fn new(name: &str, description: &str, device: Arc<dyn BlockDevice>) -> Export {
        let geometry = device.geometry();
        Export {
            name: name.to_owned(),
            description: description.to_owned(),
            device,
            geometry,
            block_shift: geometry.block_size.trailing_zeros(),
            stripes: std::array::from_fn(|_| Stripe::default()),
            counters: Counters::new(),
            flush_latency: FlushLatency::default(),
            writes: WriteSplitting::InPieces,
        }
    }

    /// Passes each write of whole blocks, of up to [`WHOLE_WRITE_BYTES_MAX`] bytes, to the device
    /// in one call, however it arrives: for a device that puts several blocks in place as one.
    #[must_use]
    pub fn with_whole_writes(self) -> Export {
        Export { writes: WriteSplitting::Whole, ..self }
    }

    /// The name by which clients ask for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A sentence for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Blocks and promises of the device below, as they were at the beginning.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether the export refuses changes now, before the device does. A device that began writable
    /// refuses writes itself.
    pub fn refuses_changes(&self) -> bool {
        self.geometry.read_only && self.is_read_only()
    }

    /// Whether the device is read-only now, for clients that connect now.
    pub fn is_read_only(&self) -> bool {
        self.device.geometry().read_only
    }

    /// Bytes in the export.
    pub fn bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    /// Whether a write of `len` bytes from `offset` on has to be one call of the device.
    pub fn writes_whole(&self, offset: u64, len: u64) -> bool {
        let in_blocks = (offset | len) & (self.block_bytes() as u64 - 1) == 0;
        self.writes == WriteSplitting::Whole && in_blocks && len <= WHOLE_WRITE_BYTES_MAX.into()
    }

    /// Rounds `offset` down to the start of its block.
    pub fn block_start(&self, offset: u64) -> u64 {
        offset >> self.block_shift << self.block_shift
    }

    /// Requests of clients so far.
    pub fn counters(&self) -> ExportCounters {
        self.counters.read()
    }

    /// Counts a connection that uses the export as long as the result lives.
    pub fn count_connection(&self) -> ConnectionCounters<'_> {
        self.counters.open()
    }

    /// Whether flushes and writes with FUA take long.
    pub fn flush_latency(&self) -> &FlushLatency {
        &self.flush_latency
    }

    /// Fills `out` with the bytes from `offset` on.
    pub fn read(&self, offset: u64, out: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        let span = Span::cut(offset, out.len() as u64, self.block_shift);
        let (head, rest) = out.split_at_mut(span.head.map_or(0, |part| part.len()));
        let (whole, tail) = rest.split_at_mut(self.byte_len(span.whole));
        if let Some(part) = span.head {
            self.read_partial(part, head, scratch)?;
        }
        if !whole.is_empty() {
            self.device.read(span.whole.first, whole)?;
        }
        if let Some(part) = span.tail {
            self.read_partial(part, tail, scratch)?;
        }
        Ok(())
    }

    /// Writes `data` from `offset` on.
    pub fn write(&self, offset: u64, data: &[u8], durability: Durability, scratch: &mut Scratch) -> Result<()> {
        self.place(offset, data.len() as u64, Content::Bytes(data), durability, scratch)
    }

    /// Makes `len` bytes from `offset` on read as zeroes.
    pub fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        (zeroing, durability): (Zeroing, Durability),
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.place(offset, len, Content::Zeroes(zeroing), durability, scratch)
    }

    /// Writes `len` bytes from `offset` on, by one call of the device if that is how writes reach
    /// it.
    fn place(
        &self,
        offset: u64,
        len: u64,
        content: Content<'_>,
        durability: Durability,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.writes_whole(offset, len) {
            return self.put_as_one(offset, len, content, durability);
        }
        self.put(Span::cut(offset, len, self.block_shift), content, durability, scratch)
    }

    /// Whether zeroing `len` bytes from `offset` on costs less than writing them. A block covered
    /// in part is read and written like any other.
    pub fn zeroes_fast(&self, offset: u64, len: u64) -> bool {
        let span = Span::cut(offset, len, self.block_shift);
        self.geometry.fast_zeroes && span.head.is_none() && span.tail.is_none()
    }

    /// Reads `len` bytes from `offset` on and drops them, so that caches below have them.
    pub fn cache(&self, offset: u64, len: u64, scratch: &mut Scratch) -> Result<()> {
        let block = scratch.block(self.block_bytes());
        for lba in self.covering(offset, len).iter() {
            self.device.read(lba, block)?;
        }
        Ok(())
    }

    /// Tells data from holes from `offset` on: at most `extents_max` extents, neighbours of
    /// different kind, from the start of the range up to its end or less far. Blocks covered in
    /// part count with the bytes in the range.
    pub fn extents(&self, offset: u64, len: u64, extents_max: usize) -> Result<Vec<(u64, ExtentKind)>> {
        let (mut at, end) = (offset, offset + len);
        let mut extents: Vec<(u64, ExtentKind)> = Vec::new();
        for _ in 0..EXTENT_CALLS_MAX {
            if at == end {
                break;
            }
            let asked = self.covering(at, end - at);
            let found = self.device.extent(asked)?;
            debug_assert!((1..=asked.blocks).contains(&found.blocks), "{found:?} of {asked:?}");
            let stop = ((asked.first.0 + found.blocks) << self.block_shift).min(end);
            let full = extents.len() == extents_max;
            match extents.last_mut() {
                Some((bytes, kind)) if *kind == found.kind => *bytes += stop - at,
                _ if full => break,
                _ => extents.push((stop - at, found.kind)),
            }
            at = stop;
        }
        Ok(extents)
    }

    /// Bytes of the largest write that the device puts in place as a whole just now.
    pub fn atomic_bytes(&self) -> u32 {
        let Geometry { atomic_blocks, block_size, .. } = self.device.geometry();
        atomic_blocks.saturating_mul(block_size)
    }

    /// Whether the device puts more than one block in place as a whole just now.
    pub fn puts_blocks_as_one(&self) -> bool {
        self.device.geometry().atomic_blocks > 1
    }

    /// The blocks that have bytes in a range.
    fn covering(&self, offset: u64, len: u64) -> LbaRange {
        let first = offset >> self.block_shift;
        LbaRange { first: Lba(first), blocks: (offset + len).div_ceil(1 << self.block_shift) - first }
    }

    /// Tells the device that `len` bytes from `offset` on are no longer needed. Blocks that the
    /// range covers in part stay.
    pub fn trim(&self, offset: u64, len: u64, durability: Durability) -> Result<()> {
        let whole = Span::cut(offset, len, self.block_shift).whole;
        for run in self.stripe_runs(whole) {
            let _beside_others = self.stripe(run.first).read().expect(HOLDER_PANICKED);
            self.device.discard(run)?;
        }
        match durability {
            Durability::Fua => self.flush(),
            Durability::Volatile => Ok(()),
        }
    }

    /// Makes every write that completed before durable.
    pub fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    /// Puts `content` into `span`. What the device takes in one piece carries `durability` itself;
    /// more pieces are made durable together, by one flush at the end.
    fn put(&self, span: Span, content: Content<'_>, durability: Durability, scratch: &mut Scratch) -> Result<()> {
        let each = if self.pieces(&span) > 1 { Durability::Volatile } else { durability };
        let (head, rest) = content.split(span.head.map_or(0, |part| part.len()));
        let (mut whole, tail) = rest.split(self.byte_len_for(span.whole, rest));
        if let Some(part) = span.head {
            self.patch(part, head, each, scratch)?;
        }
        for run in self.stripe_runs(span.whole) {
            let (now, later) = whole.split(self.byte_len_for(run, whole));
            self.put_whole(run, now, each)?;
            whole = later;
        }
        if let Some(part) = span.tail {
            self.patch(part, tail, each, scratch)?;
        }
        if each != durability { self.flush() } else { Ok(()) }
    }

    /// Writes whole blocks of any stripes by one call, beside others who write whole blocks.
    fn put_as_one(&self, offset: u64, len: u64, content: Content<'_>, durability: Durability) -> Result<()> {
        let range = self.covering(offset, len);
        if range.blocks == 0 {
            return Ok(());
        }
        let zeroes;
        let content = match content {
            Content::Zeroes(Zeroing::AsData) => {
                zeroes = vec![0; self.byte_len(range)];
                Content::Bytes(&zeroes)
            }
            content => content,
        };
        if self.stripe_runs(range).next() == Some(range) {
            // Most writes: nothing is allocated for them.
            return self.put_whole(range, content, durability);
        }
        // All threads take them in the order of their numbers, so no two wait for each other, even
        // behind an exclusive lock.
        let mut stripes: Vec<usize> = self.stripe_runs(range).map(|run| self.stripe_index(run.first)).collect();
        stripes.sort_unstable();
        let _beside_others: Vec<_> =
            stripes.into_iter().map(|index| self.stripes[index].0.read().expect(HOLDER_PANICKED)).collect();
        self.put_locked(range, content, durability)
    }

    /// Writes whole blocks of one stripe, beside others who do.
    fn put_whole(&self, run: LbaRange, content: Content<'_>, durability: Durability) -> Result<()> {
        let _beside_others = self.stripe(run.first).read().expect(HOLDER_PANICKED);
        self.put_locked(run, content, durability)
    }

    /// Writes whole blocks whose stripes are locked.
    fn put_locked(&self, run: LbaRange, content: Content<'_>, durability: Durability) -> Result<()> {
        match content {
            Content::Bytes(bytes) => self.device.write(run.first, bytes, durability),
            Content::Zeroes(Zeroing::AnyWay) => self.device.write_zeroes(run, durability),
            Content::Zeroes(Zeroing::AsData) => self.device.write(run.first, &ZEROES[..self.byte_len(run)], durability),
        }
    }

    /// Changes some bytes of a block, alone in its stripe.
    fn patch(&self, part: Partial, content: Content<'_>, durability: Durability, scratch: &mut Scratch) -> Result<()> {
        let _alone = self.stripe(part.lba).write().expect(HOLDER_PANICKED);
        let block = scratch.block(self.block_bytes());
        self.device.read(part.lba, block)?;
        content.put_into(&mut block[part.start..part.end]);
        self.device.write(part.lba, block, durability)
    }

    fn read_partial(&self, part: Partial, out: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        let block = scratch.block(self.block_bytes());
        self.device.read(part.lba, block)?;
        out.copy_from_slice(&block[part.start..part.end]);
        Ok(())
    }

    /// How many calls of the device a write of `span` takes.
    fn pieces(&self, span: &Span) -> u64 {
        let shift = self.stripe_shift();
        let runs = match span.whole.blocks {
            0 => 0,
            blocks => ((span.whole.first.0 + blocks - 1) >> shift) - (span.whole.first.0 >> shift) + 1,
        };
        runs + u64::from(span.head.is_some()) + u64::from(span.tail.is_some())
    }

    /// `range`, cut where stripes end.
    fn stripe_runs(&self, range: LbaRange) -> impl Iterator<Item = LbaRange> + use<> {
        let (mut next, end, shift) = (range.first.0, range.end(), self.stripe_shift());
        std::iter::from_fn(move || {
            let first = next;
            next = end.min(((first >> shift) + 1) << shift);
            (first < end).then(|| LbaRange { first: Lba(first), blocks: next - first })
        })
    }

    fn stripe(&self, lba: Lba) -> &RwLock<()> {
        &self.stripes[self.stripe_index(lba)].0
    }

    fn stripe_index(&self, lba: Lba) -> usize {
        let index = (lba.0 >> self.stripe_shift()) % STRIPES as u64;
        usize::try_from(index).expect("an index of a small array")
    }

    /// Blocks in a stripe's run, as a power of two.
    fn stripe_shift(&self) -> u32 {
        STRIPE_BYTES.trailing_zeros() - self.block_shift
    }

    fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }

    /// Bytes of `range`, whose buffer exists.
    fn byte_len(&self, range: LbaRange) -> usize {
        usize::try_from(range.blocks << self.block_shift).expect("a buffer of this length exists")
    }

    /// Where to split `content` behind `range`; zeroes have no length.
    fn byte_len_for(&self, range: LbaRange, content: Content<'_>) -> usize {
        match content {
            Content::Bytes(_) => self.byte_len(range),
            Content::Zeroes(_) => 0,
        }
    }
}

const HOLDER_PANICKED: &str = "the stripe's last holder panicked";
