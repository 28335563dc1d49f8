//! Where what stands in the table: words of 8 bytes.
//!
//! The supervisor changes rows first and the epoch then. A program that finds the epoch it knows
//! has seen every row there is.

/// Where the epoch stands: it changes with every row.
pub const EPOCH_AT: u64 = 0;
/// Where it stands how many rows are in use, from the first on.
pub const USED_AT: u64 = 8;
/// Where it stands how many rows are about names.
pub const NAMES_AT: u64 = 16;
/// Rows there are.
pub const SLOTS: u64 = 1000;
/// Where the part begins that programs may write: it is a page's beginning.
pub const YOUNG_AT: u64 = 32768;
/// Bytes of that part.
pub const YOUNG_BYTES: u64 = 16384;
/// Bytes of the table.
pub const TABLE_BYTES: u64 = YOUNG_AT + YOUNG_BYTES;

const ROWS_AT: u64 = 64;
const ROW_BYTES: u64 = 32;
const _: () = assert!(SLOT_COLUMN + 8 == ROW_BYTES);
const _: () = assert!(ROWS_AT + SLOTS * ROW_BYTES <= YOUNG_AT && SLOTS * 16 <= YOUNG_BYTES);

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device's number.
    pub device: u64,
    /// The inode's number on it.
    pub inode: u64,
}

/// The holder's number in the row of a file that is common.
pub const COMMON: u64 = u64::MAX;

/// What tells a name from a file: no device has a number with this bit.
const NAME: u64 = 1 << 63;
/// Bits of a folder's inode that a name's number has; those above are the name's own.
const FOLDER_BITS: u32 = 40;

impl FileId {
    /// The number that stands for `name` in the folder `self`. Two names of a folder may have the
    /// same one: whoever has the one is taken to have the other.
    pub fn name(self, name: &[u8]) -> FileId {
        // FNV-1a.
        let hash = name
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        let folder = self.inode & ((1 << FOLDER_BITS) - 1);
        FileId { device: self.device | NAME, inode: folder | (hash ^ hash >> 32) << FOLDER_BITS }
    }

    /// Whether this stands for a name.
    pub fn is_name(self) -> bool {
        self.device & NAME != 0
    }

    /// Whether this stands for a name in `folder`, as far as its number tells.
    pub fn is_name_in(self, folder: FileId) -> bool {
        let same = (self.inode ^ folder.inode) & ((1 << FOLDER_BITS) - 1) == 0;
        self.device == folder.device | NAME && same
    }
}

/// Where the words of row `row` stand that the holder of a name stores: the device and the inode of
/// the file that has the name now, or zeroes. The supervisor clears them when the row is entered
/// and removed.
pub fn young_at(row: u64) -> u64 {
    YOUNG_AT + row * 16
}

/// A row: a file, and who holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The file.
    pub file: FileId,
    /// The holder's number, never 0; 0: the row is free.
    pub holder: u64,
    /// The slot for which the holder may commit to its strips; 0: for none. The mark of a file that
    /// is common ([`crate::notes::mark_of`]).
    pub slot: u64,
}

impl Row {
    /// The mark of the file, if it is common and stays so for now.
    pub fn mark(&self) -> Option<u16> {
        u16::try_from(self.slot).ok().filter(|mark| self.holder == COMMON && *mark != 0)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_files_and_from_names_of_other_folders() {
        let folder = FileId { device: 3, inode: 1 << 45 | 4 };
        let name = folder.name(b"a");
        assert!(name.is_name() && !folder.is_name() && name.is_name_in(folder));
        assert_ne!(name, folder.name(b"b"));
        for other in [FileId { inode: 5, ..folder }, FileId { device: 4, ..folder }] {
            assert!(!name.is_name_in(other) && name != other.name(b"a"));
        }
    }
}
