//! What the memories and the disk cost in a replay.

/// The time of a line, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCost {
    /// If it goes on where the line before it ended.
    pub in_order: u64,
    /// If it does not.
    pub out_of_order: u64,
}

/// Times of single acts, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCosts {
    /// Reading or writing 256 bytes of DRAM, in any order.
    pub dram_line: u64,
    /// Reading a line of NVM.
    pub nvm_read: LineCost,
    /// Writing a line of NVM.
    pub nvm_write: LineCost,
    /// Reading a block from the file below.
    pub below_read: u64,
    /// Writing a block to the file below.
    pub below_write: u64,
    /// Making the disk below durable.
    pub below_flush: u64,
    /// A request, whatever it touches: entering the kernel and telling the program context.
    pub request: u64,
}

impl MemoryCosts {
    /// One Optane DIMM beside DRAM, with a solid-state disk below.
    ///
    /// | number | source |
    /// | --- | --- |
    /// | reads of NVM in order, 6.6 GB/s | Izraelevitz and others, arXiv 1903.05714 |
    /// | writes in order, 2.3 GB/s | the same, one DIMM |
    /// | twice as long for reads out of order, four times for writes | UHNVM, Fig. 3 |
    /// | DRAM, 12 GB/s | one core's copy, as measured for the platform `reference` |
    /// | disk | Intel SSD DC S4600, as for the platform `sata-ssd`: each block is a request |
    /// | 0.86 µs for a request | a stack of five frames, and a system call, measured |
    pub const OPTANE: MemoryCosts = MemoryCosts {
        dram_line: 21_000,
        nvm_read: LineCost { in_order: 38_800, out_of_order: 2 * 38_800 },
        nvm_write: LineCost { in_order: 111_000, out_of_order: 4 * 111_000 },
        below_read: 118_190_000,
        below_write: 60_190_000,
        below_flush: 52_000_000,
        request: 860_000,
    };
}
