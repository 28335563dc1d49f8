//! Blocks that say which block they are and how often they were written: a torn, lost or misplaced
//! one shows.
//!
//! A block of generation 0 is all zeroes; any other repeats one record of 16 bytes,
//! `BBBBBBBB-GGGGGG\n`, block and generation in hexadecimal. `guest/sectors.c` writes and checks
//! the same inside a guest.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange};

/// Bytes in the record that a block repeats.
pub const RECORD_BYTES: usize = 16;

/// Fills `out` with the content of `block` at `generation`.
pub fn fill(out: &mut [u8], block: u64, generation: u32) {
    if generation == 0 {
        out.fill(0);
        return;
    }
    let record = format!("{block:08x}-{generation:06x}\n");
    for piece in out.chunks_mut(RECORD_BYTES) {
        piece.copy_from_slice(record.as_bytes());
    }
}

/// Why bytes are not those of a block at any generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// The block holds different records.
    #[error("block {block} is torn: it holds {first:?} and other records")]
    Torn {
        /// The block.
        block: u64,
        /// Its first record.
        first: String,
    },
    /// The block holds one record all over, but not one of its own.
    #[error("block {block} holds {record:?}, which is not its own record")]
    NotItsOwn {
        /// The block.
        block: u64,
        /// The record.
        record: String,
    },
}

/// The generation of the bytes found in `block`.
pub fn generation(bytes: &[u8], block: u64) -> Result<u32, Foreign> {
    let first = &bytes[..RECORD_BYTES];
    let record = String::from_utf8_lossy(first).into_owned();
    if bytes.chunks(RECORD_BYTES).any(|other| other != first) {
        return Err(Foreign::Torn { block, first: record });
    }
    if first.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let parsed = record.trim_end().split_once('-').and_then(|(owner, generation)| {
        Some((u64::from_str_radix(owner, 16).ok()?, u32::from_str_radix(generation, 16).ok()?))
    });
    match parsed {
        Some((owner, generation)) if owner == block => Ok(generation),
        _ => Err(Foreign::NotItsOwn { block, record }),
    }
}

/// A small generator of numbers: the same seed gives the same trial.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator for `seed`, any number.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }
}

/// The dull model of a device: which generation each block is at. Blocks not named are zeroes.
#[derive(Clone, Debug, Default)]
pub struct Model {
    generations: BTreeMap<u64, u32>,
    /// How many blocks have been written so far; the next generation is one more.
    written: u32,
}

impl Model {
    /// The generation of a block.
    pub fn generation(&self, block: u64) -> u32 {
        self.generations.get(&block).copied().unwrap_or(0)
    }

    /// The blocks that were ever touched, and their generations.
    pub fn touched(&self) -> impl Iterator<Item = (u64, u32)> {
        self.generations.iter().map(|(block, generation)| (*block, *generation))
    }

    /// Records that a block is now at a generation.
    pub fn set(&mut self, block: u64, generation: u32) {
        self.generations.insert(block, generation);
    }

    /// Takes over all blocks of another model, which must have touched none of the same.
    pub fn absorb(&mut self, other: &Model) {
        self.generations.extend(&other.generations);
        self.written = self.written.max(other.written);
    }

    /// A generation that no block has had.
    pub fn next_generation(&mut self) -> u32 {
        self.written += 1;
        self.written
    }

    /// Writes one block of a new generation to `device`, and records it.
    pub fn write(&mut self, device: &dyn BlockDevice, block: u64) {
        let generation = self.next_generation();
        let mut bytes = vec![0; device.geometry().block_size as usize];
        fill(&mut bytes, block, generation);
        device.write(Lba(block), &bytes, Durability::Volatile).expect("the device takes a write");
        self.set(block, generation);
    }

    /// Zeroes `blocks` blocks from `first` on, in `device` and here.
    pub fn write_zeroes(&mut self, device: &dyn BlockDevice, first: u64, blocks: u64) {
        let range = LbaRange { first: Lba(first), blocks };
        device.write_zeroes(range, Durability::Fua).expect("the device zeroes blocks");
        range.iter().for_each(|block| self.set(block.0, 0));
    }

    /// Discards `blocks` blocks from `first` on; each then reads as before or as zeroes, and is
    /// recorded as found.
    pub fn discard(&mut self, device: &dyn BlockDevice, first: u64, blocks: u64) {
        let range = LbaRange { first: Lba(first), blocks };
        device.discard(range).expect("the device discards blocks");
        for block in range.iter() {
            let found = read_generation(device, block.0);
            assert!(found == 0 || found == self.generation(block.0), "{block}: {found} after a discard");
            self.set(block.0, found);
        }
    }

    /// Plans `count` writes of new generations to random blocks, records them, and returns the
    /// lines for the guest's `sectors write`.
    pub fn plan(&mut self, dice: &mut Dice, count: u32, blocks: u64) -> String {
        let mut plan = String::new();
        for _ in 0..count {
            let (block, generation) = (dice.below(blocks), self.next_generation());
            self.set(block, generation);
            writeln!(plan, "{block} {generation}").expect("text grows");
        }
        plan
    }

    /// The lines for the guest's `sectors verify`: every block that was ever touched.
    pub fn lines(&self) -> String {
        self.touched().fold(String::new(), |lines, (block, generation)| lines + &format!("{block} {generation}\n"))
    }

    /// Reads every block of `device` and compares.
    pub fn assert_all(&self, device: &dyn BlockDevice, whose: &str) {
        let geometry = device.geometry();
        let mut block = 0;
        each_piece(device, |bytes| {
            for bytes in bytes.chunks(geometry.block_size as usize) {
                assert_eq!(generation(bytes, block), Ok(self.generation(block)), "{whose}: block {block}");
                block += 1;
            }
        });
        assert_eq!(block, geometry.blocks, "{whose}: blocks read");
    }

    /// Reads every block that was ever touched from `device` and compares. For devices too large to
    /// read.
    pub fn assert_touched(&self, device: &dyn BlockDevice, whose: &str) {
        for (block, generation) in self.touched() {
            assert_eq!(read_generation(device, block), generation, "{whose}: block {block}");
        }
    }

    /// The SHA-256 of a device of `blocks` blocks of `block_size` bytes with these contents.
    pub fn sha256(&self, blocks: u64, block_size: u32) -> String {
        let mut digest = Sha256::new();
        let mut bytes = vec![0; block_size as usize];
        for block in 0..blocks {
            fill(&mut bytes, block, self.generation(block));
            digest.update(&bytes);
        }
        crate::artefacts::hex(&digest.finalize())
    }
}

/// The generation of one block of `device`.
pub fn read_generation(device: &dyn BlockDevice, block: u64) -> u32 {
    let mut bytes = vec![0; device.geometry().block_size as usize];
    device.read(Lba(block), &mut bytes).expect("the device reads");
    generation(&bytes, block).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// The SHA-256 of all blocks of `device`, in order.
pub fn sha256_of_device(device: &dyn BlockDevice) -> String {
    let mut digest = Sha256::new();
    each_piece(device, |bytes| digest.update(bytes));
    crate::artefacts::hex(&digest.finalize())
}

fn each_piece(device: &dyn BlockDevice, mut each: impl FnMut(&[u8])) {
    const PIECE_BLOCKS: u64 = 256;
    let geometry = device.geometry();
    for first in (0..geometry.blocks).step_by(256) {
        let blocks = PIECE_BLOCKS.min(geometry.blocks - first);
        let bytes = usize::try_from(blocks * u64::from(geometry.block_size)).expect("a piece is small");
        let mut piece = vec![0; bytes];
        device.read(Lba(first), &mut piece).expect("the device reads");
        each(&piece);
    }
}
