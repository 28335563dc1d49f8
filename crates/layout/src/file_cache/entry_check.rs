//! Checks entries and elements against the plan of their lane.

use crate::file_cache::entry::{
    Change, EntryState, Extent, FileElement, FileEntry, LENGTH_BITS, UNITS_PER_CHUNK, class_of, length_of,
};
use crate::file_cache::lease_mark::LeaseMark;
use crate::file_cache::superblock::LanePlan;
use crate::on_media::{Broken, rule};

/// Bytes of a file end here at the latest, as the kernel's `loff_t` wants it.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

impl Extent {
    pub(super) fn check(&self, plan: &LanePlan) -> Result<(), Broken> {
        let fits = u64::from(self.length) <= self.class.bytes();
        rule(fits, "an extent fits into its block", 24, self.length)?;
        let end = self.offset.checked_add(u64::from(self.length)).is_some_and(|end| end <= FILE_BYTES_MAX);
        rule(end, "an extent ends within a file", 0, self.offset)?;
        rule(self.file < plan.files, "an extent names a record", 8, self.file)?;
        let aligned = self.unit.is_multiple_of(self.class.units());
        let inside = u64::from(self.unit) < u64::from(plan.chunks) * u64::from(UNITS_PER_CHUNK);
        rule(aligned && inside, "an extent names a block of the lane", 12, self.unit)
    }
}

impl FileEntry {
    /// What the entry says, if it may say so in a lane of this plan.
    pub fn check(&self, plan: &LanePlan) -> Result<EntryState, Broken> {
        let word = self.state.get();
        let (version, length) = (word >> LENGTH_BITS, length_of(word));
        if length == 0 {
            return Ok(EntryState { version, extent: None });
        }
        let class = class_of(self.class.get())?;
        rule(self.clean.get() <= 1, "an entry is clean or not", 18, self.clean)?;
        let (file, unit) = (self.file.get(), self.unit.get());
        let extent = Extent { file, offset: self.offset.get(), length, unit, class };
        extent.check(plan)?;
        Ok(EntryState { version, extent: Some(extent) })
    }
}

impl FileElement {
    /// What the element says, if it may say so in a lane of this plan.
    pub fn check(&self, plan: &LanePlan) -> Result<Change, Broken> {
        let (target, word, what) = (self.target.get(), self.state.get(), self.what.get());
        let version = word >> LENGTH_BITS;
        if self.is_of_record() {
            rule(target < plan.files, "an element names a record", 0, target)?;
            rule(self.place.get() <= FILE_BYTES_MAX, "a file's length is in range", 8, self.place)?;
            return Ok(Change::Record { file: target, size: self.place.get(), void: what, version });
        }
        let kinds = [FileElement::ENTRY, FileElement::LEASE];
        rule(kinds.contains(&self.kind.get()), "an element's kind is known", 4, self.kind)?;
        rule(target < plan.entries, "an element names an entry", 0, target)?;
        if self.kind.get() == FileElement::LEASE {
            return Ok(Change::Lease { slot: target, mark: LeaseMark::of_bits(length_of(word))?, version });
        }
        rule(length_of(word) > 0, "an element's extent has bytes", 24, word)?;
        let [f0, f1, f2, f3, u0, u1, u2, u3] = what.to_le_bytes();
        let extent = Extent {
            file: u32::from_le_bytes([f0, f1, f2, f3]),
            offset: self.place.get(),
            length: length_of(word),
            unit: u32::from_le_bytes([u0, u1, u2, u3]),
            class: class_of(self.class.get())?,
        };
        extent.check(plan)?;
        Ok(Change::Entry { slot: target, extent, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_cache::{Class, PoolPlan};
    use zerocopy::{FromBytes, IntoBytes};

    fn plan() -> LanePlan {
        PoolPlan::cut(1, 4, 16, 8, 2).lane(0)
    }

    const EXTENT: Extent = Extent { file: 3, offset: 0x0102, length: 100, unit: 0x1004, class: Class::ALL[1] };

    #[test]
    fn golden_bytes_of_an_entry() {
        assert_eq!(FileEntry::new(&EXTENT, 5).version(), 5);
        let words: Vec<u8> = FileEntry::words(&EXTENT, 5).iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut golden = [0; 32];
        golden[..2].copy_from_slice(b"\x02\x01");
        golden[8..18].copy_from_slice(b"\x03\0\0\0\x04\x10\0\0\x01\0");
        golden[24..28].copy_from_slice(b"\x64\0\xa0\0");
        assert_eq!((&words[..], FileEntry::new(&EXTENT, 5).as_bytes()), (&golden[..], &golden[..]));
        let entry = FileEntry::read_from_bytes(&golden).unwrap();
        assert_eq!(entry.check(&plan()), Ok(EntryState { version: 5, extent: Some(EXTENT) }));
        assert!(!entry.is_clean());
    }

    #[test]
    fn golden_bytes_of_a_clean_entry() {
        assert_eq!(FileEntry::CLASS_AT, 16);
        assert_eq!(FileEntry::clean_word(EXTENT.class).to_le_bytes(), *b"\x01\0\x01\0\0\0\0\0");
        let mut clean = FileEntry::new(&EXTENT, 5);
        clean.clean = 1.into();
        assert_eq!(clean.as_bytes()[16..24], FileEntry::clean_word(EXTENT.class).to_le_bytes());
        assert_eq!((clean.is_clean(), clean.check(&plan()).is_ok()), (true, true));
        clean.clean = 2.into();
        assert_eq!((clean.is_clean(), clean.check(&plan()).is_ok()), (false, false), "it names a lease log");
        (clean.clean, clean.state) = (1.into(), FileEntry::state_word(5, 0).into());
        assert!(!clean.is_clean(), "a free entry is not");
    }

    #[test]
    fn golden_bytes_of_an_element() {
        let change = Change::Entry { slot: 7, extent: EXTENT, version: 5 };
        let element = FileElement::new(&change);
        assert_eq!(&element.as_bytes()[..16], b"\x07\0\0\0\x01\0\x01\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(&element.as_bytes()[16..], b"\x03\0\0\0\x04\x10\0\0\x64\0\xa0\0\0\0\0\0");
        assert_eq!(element.check(&plan()), Ok(change));
        let change = Change::Record { file: 2, size: 9, void: 4, version: 6 };
        let element = FileElement::new(&change);
        assert_eq!(&element.as_bytes()[..16], b"\x02\0\0\0\x02\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(&element.as_bytes()[16..], b"\x04\0\0\0\0\0\0\0\0\0\xc0\0\0\0\0\0");
        assert_eq!(element.check(&plan()), Ok(change));
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let check = |extent: Extent| FileElement::new(&Change::Entry { slot: 0, extent, version: 1 }).check(&plan());
        assert!(check(EXTENT).is_ok());
        for extent in [
            Extent { file: 4, ..EXTENT },
            Extent { unit: 0x1002, ..EXTENT },
            Extent { unit: 0x2000, ..EXTENT },
            Extent { length: 1025, ..EXTENT },
            Extent { length: 0, ..EXTENT },
            Extent { offset: u64::MAX - 5, ..EXTENT },
        ] {
            assert!(check(extent).is_err(), "{extent:?}");
        }
        assert!(FileElement::new(&Change::Entry { slot: 16, extent: EXTENT, version: 1 }).check(&plan()).is_err());
        assert!(FileElement::new(&Change::Record { file: 4, size: 0, void: 0, version: 1 }).check(&plan()).is_err());
    }

    #[test]
    fn classes_go_from_256_bytes_to_a_chunk() {
        assert_eq!(Class::ALL.map(Class::bytes), [256, 1024, 4096, 16384, 65536, 262_144, 1 << 20]);
        assert_eq!(Class::holding(257), Some(Class::ALL[1]));
        assert_eq!(Class::holding((1 << 20) + 1), None);
    }
}
