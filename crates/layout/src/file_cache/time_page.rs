//! Time pages: when programs stored last to the pages of a file that they have mapped.
//!
//! A time page is a block of the lane, named by an entry that says so. The programs that have the
//! file mapped store to its first line, the service to its second one.

use crate::file_cache::entry::{Class, Extent, FileEntry, UNIT_BYTES, class_of, length_of};
use crate::file_cache::superblock::LanePlan;
use crate::on_media::{Broken, on_media};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};

on_media! {
    /// The first two lines of a time page. Each has one side that stores to it.
    pub struct StoreTimes [128] {
        /// when a program stored to mapped pages last, as the file's record has it; 0: not yet
        0: stored: U64,
        /// how many processes have the file mapped and have not said that they unmapped it
        8: mappers: U32,
        /// zero
        12: reserved: [u8; 52],
        /// the word `stored` that the service has taken over
        64: taken: U64,
        /// zero
        72: reserved2: [u8; 56],
    }
}

const _: () = assert!(size_of::<StoreTimes>() as u64 <= UNIT_BYTES, "it fits into any block");

/// What an entry says that names a time page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedTimePage {
    /// Number of the file's record.
    pub file: u32,
    /// Where the page begins.
    pub unit: u32,
    /// Size of its block.
    pub class: Class,
}

impl StoreTimes {
    /// Where the word of the programs lies, from the page's beginning.
    pub const STORED_AT: u64 = offset_of!(StoreTimes, stored) as u64;
    /// Where the number of the processes lies.
    pub const MAPPERS_AT: u64 = offset_of!(StoreTimes, mappers) as u64;
    /// Where the word of the service lies.
    pub const TAKEN_AT: u64 = offset_of!(StoreTimes, taken) as u64;
}

impl FileEntry {
    /// Whether the entry names a time page, if it counts.
    pub fn is_time_page(&self) -> bool {
        self.clean.get() == FileEntry::TIME_PAGE && length_of(self.state.get()) > 0
    }

    /// The time page that the entry names, if it may say so in a lane of this plan.
    pub fn time_page(&self, plan: &LanePlan) -> Result<TrustedTimePage, Broken> {
        let class = class_of(self.class.get())?;
        let (file, unit) = (self.file.get(), self.unit.get());
        Extent { file, offset: 0, length: 1, unit, class }.check(plan)?;
        Ok(TrustedTimePage { file, unit, class })
    }

    /// The words of an entry that names a time page, in the order in which they are stored.
    pub fn time_page_words(page: &TrustedTimePage, version: u64) -> [u64; 4] {
        [
            0,
            u64::from(page.unit) << 32 | u64::from(page.file),
            u64::from(FileEntry::TIME_PAGE) << 16 | u64::from(page.class.number()),
            FileEntry::state_word(version, 1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_cache::PoolPlan;
    use zerocopy::{FromBytes, IntoBytes};

    fn plan() -> LanePlan {
        PoolPlan::cut(1, 4, 16, 8, 2).lane(0)
    }

    #[test]
    fn golden_bytes_of_a_time_page() {
        let (reserved, reserved2) = ([0; 52], [0; 56]);
        let page = StoreTimes { stored: 0x0102.into(), mappers: 3.into(), reserved, taken: 5.into(), reserved2 };
        let bytes = page.as_bytes();
        assert_eq!((&bytes[..2], bytes[8], bytes[64]), (&b"\x02\x01"[..], 3, 5));
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 4);
        assert_eq!((StoreTimes::STORED_AT, StoreTimes::MAPPERS_AT, StoreTimes::TAKEN_AT), (0, 8, 64));
    }

    #[test]
    fn golden_bytes_of_the_entry_of_a_time_page() {
        let page = TrustedTimePage { file: 3, unit: 0x1010, class: Class::ALL[2] };
        let bytes: Vec<u8> = FileEntry::time_page_words(&page, 5).iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(&bytes[..24], b"\0\0\0\0\0\0\0\0\x03\0\0\0\x10\x10\0\0\x02\0\x04\0\0\0\0\0");
        assert_eq!(&bytes[24..], b"\x01\0\xa0\0\0\0\0\0");
        let entry = FileEntry::read_from_bytes(&bytes).unwrap();
        assert_eq!((entry.is_time_page(), entry.is_lease(), entry.is_clean()), (true, false, false));
        assert_eq!((entry.time_page(&plan()), entry.check(&plan()).is_ok()), (Ok(page), false));
        for (word, wrong) in [(8, 4), (12, 0x2000), (12, 0x1001), (16, 7 | 4 << 16)] {
            let mut bytes = bytes.clone();
            bytes[word..word + 4].copy_from_slice(&u32::to_le_bytes(wrong));
            assert!(FileEntry::read_from_bytes(&bytes).unwrap().time_page(&plan()).is_err(), "{word}");
        }
    }
}
