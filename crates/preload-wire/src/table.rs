//! Where what stands in the table: words of 8 bytes.
//!
//! The supervisor changes rows first and the epoch then. A program that finds the epoch it knows has seen every row there is.

/// Where the epoch stands: it changes with every row.
pub const EPOCH_AT: u64 = 0;
/// Where it stands how many rows are in use, from the first on.
pub const USED_AT: u64 = 8;
/// Rows there are.
pub const SLOTS: u64 = 1000;
/// Bytes of the table.
pub const TABLE_BYTES: u64 = 32768;

const ROWS_AT: u64 = 64;
const ROW_BYTES: u64 = 32;
const _: () = assert!(SLOT_COLUMN + 8 == ROW_BYTES);
const _: () = assert!(ROWS_AT + SLOTS * ROW_BYTES <= TABLE_BYTES);

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device's number.
    pub device: u64,
    /// The inode's number on it.
    pub inode: u64,
}

/// A row: a file, and who holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The file.
    pub file: FileId,
    /// The holder's number, never 0; 0: the row is free.
    pub holder: u64,
    /// The slot for which the holder may commit to its strips; 0: for none.
    pub slot: u64,
}

impl Row {
    /// The row's words, in their order.
    pub fn words(&self) -> [u64; 4] {
        [self.file.device, self.file.inode, self.holder, self.slot]
    }

    /// The row that these words are, unless it is free.
    pub fn of([device, inode, holder, slot]: [u64; 4]) -> Option<Row> {
        (holder != 0).then_some(Row { file: FileId { device, inode }, holder, slot })
    }
}

/// Where in a row the slot stands for which its holder may commit.
pub const SLOT_COLUMN: u64 = 24;

/// Where row `slot` begins.
pub fn row_at(slot: u64) -> u64 {
    ROWS_AT + slot * ROW_BYTES
}
