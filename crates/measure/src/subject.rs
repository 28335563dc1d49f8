//! Subjects of measurement: one operation on one block, over and over.
//!
//! A subject borrows its region or device, so that the same region or device can be written, then
//! read, then counted. Subjects that fail panic: a benchmark of errors has no meaning.

use tidegate_media::{BlockDevice, Durability, Lba, Region};

/// Bytes in every block measured here.
pub const BLOCK_BYTES: usize = 4096;

/// The hot buffer a worker writes from or reads into.
pub struct Block(Box<AlignedBytes>);

#[repr(align(4096))]
struct AlignedBytes([u8; BLOCK_BYTES]);

impl Block {
    /// A block whose bytes tell workers apart.
    pub fn filled(worker: usize) -> Block {
        let bytes = std::array::from_fn(|at| at.wrapping_mul(31).wrapping_add(worker).to_le_bytes()[0]);
        Block(Box::new(AlignedBytes(bytes)))
    }

    /// What to write.
    pub fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        &self.0.0
    }

    /// Where to read into.
    pub fn bytes_mut(&mut self) -> &mut [u8; BLOCK_BYTES] {
        &mut self.0.0
    }
}

/// One operation on any of a row of blocks, callable from many threads.
pub trait Subject: Sync {
    /// How many blocks there are to choose from.
    fn blocks(&self) -> u32;

    /// Does the operation on block `at`.
    fn step(&self, at: u32, block: &mut Block);
}

/// Does the operation once on every block in ascending order: every page is mapped, every block
/// written.
pub fn sweep(subject: &dyn Subject) {
    let mut block = Block::filled(0);
    for at in 0..subject.blocks() {
        subject.step(at, &mut block);
    }
}

/// The blocks of a region from which a floor is taken: all of it, or what lies below a device whose
/// data nobody looks at.
#[derive(Clone, Copy)]
pub struct Bare<'a, R> {
    region: &'a R,
    /// Where the first block begins.
    start: u64,
    blocks: u32,
}

impl<'a, R: Region> Bare<'a, R> {
    /// All of `region`.
    pub fn all(region: &'a R) -> Bare<'a, R> {
        Bare { region, start: 0, blocks: blocks_in(region.len()) }
    }

    /// The bytes `start..start + len` of `region`. A floor in the very memory that a device lies in
    /// is free of what tells two pieces of memory apart: how far they are from the core, and how
    /// scattered their pages.
    pub fn part(region: &'a R, start: u64, len: u64) -> Bare<'a, R> {
        Bare { region, start, blocks: blocks_in(len) }
    }

    fn offset_of(&self, block: u32) -> u64 {
        self.start + u64::from(block) * BLOCK_BYTES as u64
    }
}

/// The floor of a durable write: stream the block, fence.
pub struct StreamedCopies<'a, R>(pub Bare<'a, R>);

impl<R: Region> Subject for StreamedCopies<'_, R> {
    fn blocks(&self) -> u32 {
        self.0.blocks
    }
    fn step(&self, at: u32, block: &mut Block) {
        self.0.region.stream(self.0.offset_of(at), block.bytes());
        self.0.region.fence().expect("the region takes every store");
    }
}

/// Writes of one block to a device, each durable on return.
pub struct BlockWrites<'a, D>(pub &'a D);

impl<D: BlockDevice> Subject for BlockWrites<'_, D> {
    fn blocks(&self) -> u32 {
        blocks_in(self.0.geometry().bytes())
    }
    fn step(&self, at: u32, block: &mut Block) {
        self.0.write(Lba(u64::from(at)), block.bytes(), Durability::Fua).expect("the device writes");
    }
}

/// Reads of one block from a device.
pub struct BlockReads<'a, D>(pub &'a D);

impl<D: BlockDevice> Subject for BlockReads<'_, D> {
    fn blocks(&self) -> u32 {
        blocks_in(self.0.geometry().bytes())
    }
    fn step(&self, at: u32, block: &mut Block) {
        self.0.read(Lba(u64::from(at)), block.bytes_mut()).expect("the device reads");
    }
}

fn blocks_in(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES as u64).expect("a few GiB at most")
}
