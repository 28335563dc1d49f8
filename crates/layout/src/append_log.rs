//! The append-only log: a window of chunks on a region, and where the bytes of the log lie.
//!
//! Byte n of the log lies in chunk n / `chunk_bytes`. A chunk lies in the window, in the slot of
//! its number modulo the number of slots, until its slot is needed; and, once it was written back,
//! at the place of its number modulo `below_chunks` in the file or disk below.

use crate::on_media::{Broken, on_media, rule};
use std::mem::offset_of;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The first bytes of a superblock.
const LOG_MAGIC: [u8; 16] = *b"tidegate-applog\0";

/// The only version so far.
const LOG_VERSION: u32 = 1;

/// Bytes that each copy of the superblock has for itself.
const LOG_PAGE_BYTES: u64 = 4096;

/// Where the two copies of the superblock lie.
pub const LOG_SUPERBLOCKS_AT: [u64; 2] = [0, LOG_PAGE_BYTES];

/// Where the heads of the chunks lie: one line for each slot.
pub const LOG_HEADS_AT: u64 = 2 * LOG_PAGE_BYTES;

/// The shortest chunk: one sector of a disk.
const LOG_CHUNK_BYTES_MIN: u64 = 512;

/// The longest chunk.
const LOG_CHUNK_BYTES_MAX: u64 = 1 << 30;

/// The fewest chunks of a window: one is filled while another one is written back.
const LOG_CHUNKS_MIN: u32 = 2;

/// The most chunks of a window.
const LOG_CHUNKS_MAX: u32 = 1 << 20;

/// What the number of a chunk is combined with to say that the file below has it.
const BELOW_MARK: u64 = 0x6265_6c6f_7721_6c67;

on_media! {
    /// What the log is and where it begins; of two copies the valid one with the greater generation
    /// counts. The first copy is durable before the second one changes.
    pub struct LogSuperblock [128] {
        /// `tidegate-applog`, then zero
        0: magic: [u8; 16],
        /// the log's own identity
        16: uuid: [u8; 16],
        /// the identity of the file or disk below, as whoever made the log tells them apart
        32: below: [u8; 32],
        /// one more with each superblock written
        64: generation: U64,
        /// 1
        72: version: U32,
        /// slots of the window
        76: chunks: U32,
        /// bytes in a chunk, a power of two
        80: chunk_bytes: U64,
        /// chunks that the file or disk below has room for
        88: below_chunks: U64,
        /// the first byte of the log that was not dropped
        96: begin: U64,
        /// zero
        104: reserved: [u8; 20],
        /// CRC-32C of the first 124 bytes
        124: checksum: U32,
    }
}

on_media! {
    /// The head of the chunk in a slot. Bytes of the chunk count up to the length in `committed`,
    /// and the log ends in the first chunk that is not full.
    pub struct LogHead [64] {
        /// the chunk's number
        0: number: U64,
        /// the bits of the number, each inverted
        8: check: U64,
        /// bits 31..0: how many bytes of the chunk count; bits 63..32: CRC-32C of the number and of
        /// those bytes. 0: no byte counts
        16: committed: U64,
        /// the number, combined with `0x62656c6f77216c67` by exclusive or: the file below has the
        /// chunk. Anything else: it may lack it
        24: below: U64,
        /// zero
        32: reserved: [u8; 32],
    }
}

/// Which bytes of a chunk count, and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// How many, from the chunk's beginning on.
    pub len: u32,
    /// Checksum of the chunk's number and those bytes.
    pub sum: u32,
}

impl Committed {
    /// What the word says.
    pub fn of_word(word: u64) -> Committed {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        Committed { len: u32::from_le_bytes([a, b, c, d]), sum: u32::from_le_bytes([e, f, g, h]) }
    }

    /// The word that says so. It is 0 exactly if no byte counts.
    pub fn word(self) -> u64 {
        if self.len == 0 { 0 } else { u64::from(self.sum) << 32 | u64::from(self.len) }
    }
}

/// The checksum of a chunk, as bytes are added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSum {
    number: u64,
    len: u32,
    sum: u32,
}

impl ChunkSum {
    /// That of chunk `number` without bytes.
    pub fn new(number: u64) -> ChunkSum {
        ChunkSum { number, len: 0, sum: crc32c::crc32c(&number.to_le_bytes()) }
    }

    /// Adds bytes that follow; all of them lie in the chunk.
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.len = self.len.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    }

    /// The chunk's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the chunk's head says once they count.
    pub fn committed(&self) -> Committed {
        Committed { len: self.len, sum: self.sum }
    }
}

/// What a head says of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSlot {
    /// It has this chunk.
    Held {
        /// Its number.
        number: u64,
        /// Which of its bytes count.
        committed: Committed,
        /// Whether the file below has the chunk.
        is_below: bool,
    },
    /// It has none: its number was being stored, or never was.
    Blank,
}

impl LogHead {
    /// Where the number lies, from the head's beginning; its check follows.
    pub const NUMBER_AT: u64 = offset_of!(LogHead, number) as u64;
    /// Where the inverted number lies.
    pub const CHECK_AT: u64 = offset_of!(LogHead, check) as u64;
    /// Where the word lies that says which bytes count.
    pub const COMMITTED_AT: u64 = offset_of!(LogHead, committed) as u64;
    /// Where the word lies that says whether the file below has the chunk.
    pub const BELOW_AT: u64 = offset_of!(LogHead, below) as u64;

    /// The word which says that the file below has chunk `number`.
    pub fn below_word(number: u64) -> u64 {
        number ^ BELOW_MARK
    }

    /// What it says of slot `slot` of a log laid out by `plan`.
    pub fn check(&self, slot: u64, plan: &LogPlan) -> Result<LogSlot, Broken> {
        let (number, word) = (self.number.get(), self.committed.get());
        if self.check.get() != !number {
            rule(word == 0, "a chunk's number is followed by its inverse, or no byte of it counts", 8, self.check)?;
            return Ok(LogSlot::Blank);
        }
        rule(number % u64::from(plan.chunks) == slot, "a chunk lies in the slot of its number", 0, number)?;
        let committed = Committed::of_word(word);
        let is_possible = u64::from(committed.len) <= plan.chunk_bytes && (committed.len > 0 || word == 0);
        rule(is_possible, "no more bytes count than a chunk has", 16, committed.len)?;
        Ok(LogSlot::Held { number, committed, is_below: self.below.get() == LogHead::below_word(number) })
    }
}

/// Where the parts of a log lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlan {
    /// Bytes in a chunk.
    pub chunk_bytes: u64,
    /// Slots of the window.
    pub chunks: u32,
    /// Chunks that the file or disk below has room for.
    pub below_chunks: u64,
}

impl LogPlan {
    /// The plan of a log with chunks of `chunk_bytes` bytes on a region of `region_bytes` bytes, in
    /// front of `below_bytes` bytes: as many chunks as find room.
    pub fn new(region_bytes: u64, chunk_bytes: u64, below_bytes: u64) -> Result<LogPlan, Broken> {
        check_chunk_bytes(chunk_bytes)?;
        let heads = |chunks: u64| (LOG_HEADS_AT + 64 * chunks).next_multiple_of(LOG_PAGE_BYTES);
        let most = region_bytes.saturating_sub(LOG_HEADS_AT) / (chunk_bytes + 64);
        let fits = |chunks: &u64| heads(*chunks) + chunks * chunk_bytes <= region_bytes;
        let chunks = (most.saturating_sub(LOG_PAGE_BYTES / chunk_bytes + 1)..=most).rev().find(fits).unwrap_or(0);
        let chunks = u32::try_from(chunks).unwrap_or(LOG_CHUNKS_MAX).min(LOG_CHUNKS_MAX);
        let plan = LogPlan { chunk_bytes, chunks, below_chunks: below_bytes / chunk_bytes };
        plan.check().map(|()| plan)
    }

    fn check(&self) -> Result<(), Broken> {
        check_chunk_bytes(self.chunk_bytes)?;
        let chunks = LOG_CHUNKS_MIN..=LOG_CHUNKS_MAX;
        rule(chunks.contains(&self.chunks), "the window has 2 to 1048576 chunks", 76, self.chunks)?;
        rule(self.below_chunks > 0, "a chunk fits into what lies below", 88, self.below_chunks)
    }

    /// Bytes of a region that the log needs.
    pub fn region_bytes(&self) -> u64 {
        self.chunks_at() + u64::from(self.chunks) * self.chunk_bytes
    }

    /// Where the chunks lie.
    pub fn chunks_at(&self) -> u64 {
        (LOG_HEADS_AT + 64 * u64::from(self.chunks)).next_multiple_of(LOG_PAGE_BYTES)
    }

    /// The chunk that has byte `at` of the log.
    pub fn chunk_of(&self, at: u64) -> u64 {
        at / self.chunk_bytes
    }

    /// Where the head of chunk `number` lies.
    pub fn head_at(&self, number: u64) -> u64 {
        LOG_HEADS_AT + 64 * (number % u64::from(self.chunks))
    }

    /// Where byte `at` of the log lies in the window.
    pub fn byte_at(&self, at: u64) -> u64 {
        let slot = self.chunk_of(at) % u64::from(self.chunks);
        self.chunks_at() + slot * self.chunk_bytes + at % self.chunk_bytes
    }

    /// Where byte `at` of the log lies in the file or disk below.
    pub fn below_at(&self, at: u64) -> u64 {
        self.chunk_of(at) % self.below_chunks * self.chunk_bytes + at % self.chunk_bytes
    }
}

fn check_chunk_bytes(bytes: u64) -> Result<(), Broken> {
    let is_size = bytes.is_power_of_two() && (LOG_CHUNK_BYTES_MIN..=LOG_CHUNK_BYTES_MAX).contains(&bytes);
    rule(is_size, "a chunk has a power of two of bytes, 512 to 1 GiB", 80, bytes)
}

/// What a log is: a checked [`LogSuperblock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// The log's own identity.
    pub uuid: [u8; 16],
    /// The identity of what lies below.
    pub below: [u8; 32],
    /// One more with each superblock written.
    pub generation: u64,
    /// Where everything lies.
    pub plan: LogPlan,
    /// The first byte that was not dropped.
    pub begin: u64,
}

impl LogFacts {
    /// The superblock that says so.
    pub fn superblock(&self) -> LogSuperblock {
        let mut superblock = LogSuperblock {
            magic: LOG_MAGIC,
            uuid: self.uuid,
            below: self.below,
            generation: U64::new(self.generation),
            version: U32::new(LOG_VERSION),
            chunks: U32::new(self.plan.chunks),
            chunk_bytes: U64::new(self.plan.chunk_bytes),
            below_chunks: U64::new(self.plan.below_chunks),
            begin: U64::new(self.begin),
            reserved: [0; 20],
            checksum: U32::ZERO,
        };
        superblock.checksum = U32::new(superblock.digest());
        superblock
    }
}

impl LogSuperblock {
    /// What the log is, if these bytes are a superblock.
    pub fn check(&self) -> Result<LogFacts, Broken> {
        rule(self.has_magic(), "the magic is `tidegate-applog`", 0, format_args!("{:02x?}", self.magic))?;
        rule(self.checksum.get() == self.digest(), "the checksum is that of the superblock", 124, self.checksum)?;
        rule(self.version.get() == LOG_VERSION, "the version is known", 72, self.version)?;
        let plan = LogPlan {
            chunk_bytes: self.chunk_bytes.get(),
            chunks: self.chunks.get(),
            below_chunks: self.below_chunks.get(),
        };
        plan.check()?;
        let (generation, begin) = (self.generation.get(), self.begin.get());
        Ok(LogFacts { uuid: self.uuid, below: self.below, generation, plan, begin })
    }

    /// Whether these bytes claim to be a superblock, be it a damaged one.
    pub fn has_magic(&self) -> bool {
        self.magic == LOG_MAGIC
    }

    fn digest(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..124])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn facts() -> LogFacts {
        let plan = LogPlan { chunk_bytes: 512, chunks: 3, below_chunks: 9 };
        LogFacts { uuid: [1; 16], below: [2; 32], generation: 0x0304, plan, begin: 0x0506 }
    }

    #[test]
    fn a_superblock_to_the_byte() {
        let superblock = facts().superblock();
        let bytes = superblock.as_bytes();
        assert_eq!(&bytes[..16], b"tidegate-applog\0");
        assert_eq!((&bytes[16..32], &bytes[32..64]), (&[1; 16][..], &[2; 32][..]));
        assert_eq!(&bytes[64..88], &[4, 3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[88..104], &[9, 0, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[104..124], &[0; 20]);
        assert_eq!(superblock.check(), Ok(facts()));
    }

    #[test]
    fn every_changed_byte_of_a_superblock_is_noticed() {
        for byte in 0..size_of::<LogSuperblock>() {
            let mut bytes = [0; size_of::<LogSuperblock>()];
            bytes.copy_from_slice(facts().superblock().as_bytes());
            bytes[byte] ^= 4;
            assert!(LogSuperblock::read_from_bytes(&bytes).unwrap().check().is_err(), "byte {byte}");
        }
    }

    fn head(number: u64, committed: Committed) -> LogHead {
        LogHead {
            number: U64::new(number),
            check: U64::new(!number),
            committed: U64::new(committed.word()),
            below: U64::ZERO,
            reserved: [0; 32],
        }
    }

    #[test]
    fn a_head_to_the_byte() {
        let committed = Committed { len: 0x0102, sum: 0x0304_0506 };
        let mut head = head(4, committed);
        assert_eq!(&head.as_bytes()[..16], &[4, 0, 0, 0, 0, 0, 0, 0, 251, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(&head.as_bytes()[16..24], &[2, 1, 0, 0, 6, 5, 4, 3]);
        assert_eq!(Committed::of_word(committed.word()), committed);
        assert_eq!(head.check(1, &facts().plan), Ok(LogSlot::Held { number: 4, committed, is_below: false }));
        head.below = U64::new(LogHead::below_word(4));
        assert_eq!(&head.as_bytes()[24..32], &[0x63, 0x6c, 0x21, 0x77, 0x6f, 0x6c, 0x65, 0x62]);
        assert_eq!(head.check(1, &facts().plan), Ok(LogSlot::Held { number: 4, committed, is_below: true }));
    }

    #[test]
    fn a_torn_number_is_none_and_a_damaged_one_is_told() {
        let plan = facts().plan;
        assert_eq!(LogHead::read_from_bytes(&[0; 64]).unwrap().check(0, &plan), Ok(LogSlot::Blank));
        let mut damaged = head(4, Committed { len: 7, sum: 8 });
        assert!(damaged.check(2, &plan).is_err(), "it lies in the slot of another number");
        damaged.check = U64::new(9);
        assert!(damaged.check(1, &plan).is_err());
        assert!(head(4, Committed { len: 513, sum: 8 }).check(1, &plan).is_err());
    }

    #[test]
    fn a_sum_is_that_of_the_number_and_the_bytes() {
        let mut parts = ChunkSum::new(5);
        parts.add(b"abc");
        parts.add(b"def");
        let mut whole = ChunkSum::new(5);
        whole.add(b"abcdef");
        assert_eq!((parts, parts.committed().len), (whole, 6));
        let mut other = ChunkSum::new(6);
        other.add(b"abcdef");
        assert_ne!(other.committed(), whole.committed());
    }

    #[test]
    fn a_plan_has_all_chunks_that_fit() {
        for bytes in [13_312, 20_000, 1 << 20, (40 << 20) + 12_288] {
            let plan = LogPlan::new(bytes, 512, 1 << 20).unwrap();
            let more = LogPlan { chunks: plan.chunks + 1, ..plan };
            assert!(plan.region_bytes() <= bytes && more.region_bytes() > bytes, "{plan:?} in {bytes}");
        }
        let plan = LogPlan::new((40 << 20) + 12_288, 2 << 20, 1 << 40).unwrap();
        assert_eq!((plan.chunks, plan.below_chunks), (20, 1 << 19));
        let refused = |region, chunk, below| LogPlan::new(region, chunk, below).is_err();
        assert!(refused(12_288, 512, 512) && refused(1 << 20, 513, 1 << 20) && refused(1 << 20, 512, 511));
    }
}
