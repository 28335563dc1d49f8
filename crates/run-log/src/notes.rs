//! Notes of where files were written that are common, as the supervisor reads them.

use crate::failure::Failure;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, PoisonError};
use tidegate_host::Doing;
use tidegate_media::{Allocation, MappedRegion, Region};
use tidegate_preload_wire::notes::{
    APPENDED, BITS_WORDS, DOUBT, NOTED_BLOCK_BYTES, NOTES_BYTES, PLACES, SUMMARY_WORDS, bits_at, flags_at, mark_of,
    place_of, summary_at, turn_at, under_way, under_way_at,
};
use tidegate_wal::strip::Range;

/// The notes of all common files.
pub(super) struct Notes {
    words: Box<dyn Region>,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    taken: HashSet<u64>,
    /// Files that had a place so far.
    files: u64,
}

/// What was noted of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// Blocks that were written, in order.
    pub(super) ranges: Vec<Range>,
    /// Whether something was appended.
    pub(super) appended: bool,
    /// Whether there is more, and nobody knows where.
    pub(super) doubt: bool,
}

impl Notes {
    /// In a new file, with room for all: no program's note may find the file system full.
    pub(super) fn create(path: &Path) -> Result<Notes, Failure> {
        let words = MappedRegion::create(path, NOTES_BYTES, Allocation::Full);
        Ok(Notes::on(Box::new(words.map_err(|error| Failure::Map { doing: Doing::Create, error })?)))
    }

    /// On zeroes.
    pub(super) fn on(words: Box<dyn Region>) -> Notes {
        Notes { words, places: Mutex::default() }
    }

    /// A place for a file, with nothing in it but what came too late for the one before; its mark.
    pub(super) fn begin(&self) -> Option<u16> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..PLACES).find(|place| !places.taken.contains(place))?;
        places.taken.insert(free);
        places.files += 1;
        let mark = mark_of(free, places.files);
        self.words.store_u64(under_way_at(free), under_way(mark, 0));
        // Both halves.
        let _ = (self.take(mark), self.take(mark));
        Some(mark)
    }

    /// The file has it no more.
    pub(super) fn end(&self, mark: u16) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&place_of(mark));
    }

    /// Takes what was noted. To be called by one at a time for each mark.
    pub(super) fn take(&self, mark: u16) -> Noted {
        let place = place_of(mark);
        let turn = self.word(turn_at(place)).unwrap_or_default();
        self.words.store_u64(turn_at(place), turn.wrapping_add(1));
        // Whoever noted something in this half and found the same turn behind it did so before
        // this.
        fence(Ordering::SeqCst);
        let flags = self.cleared(flags_at(place, turn)).unwrap_or(DOUBT);
        let mut noted = Noted { ranges: Vec::new(), appended: flags & APPENDED != 0, doubt: flags & DOUBT != 0 };
        for summary in 0..SUMMARY_WORDS {
            let words = self.cleared(summary_at(place, turn, summary));
            noted.doubt |= words.is_none();
            for word in ones(words.unwrap_or_default()).map(|word| summary * 64 + word) {
                let bits = self.cleared(bits_at(place, turn, word));
                noted.doubt |= bits.is_none();
                ones(bits.unwrap_or_default()).for_each(|bit| noted.add(word * 64 + bit));
            }
        }
        noted
    }

    /// Whether somebody is writing the file, or was when his process ended.
    pub(super) fn is_being_written(&self, mark: u16) -> bool {
        self.word(under_way_at(place_of(mark))) != Some(under_way(mark, 0))
    }

    fn word(&self, at: u64) -> Option<u64> {
        self.words.load_u64(at).ok()
    }

    /// The word at `at`, which is 0 then.
    fn cleared(&self, at: u64) -> Option<u64> {
        let word = self.word(at)?;
        if word != 0 {
            self.words.store_u64(at, 0);
        }
        Some(word)
    }
}

impl Noted {
    fn add(&mut self, block: u64) {
        let at = block * NOTED_BLOCK_BYTES;
        match self.ranges.last_mut().filter(|(from, len)| from + len == at) {
            Some((_, len)) => *len += NOTED_BLOCK_BYTES,
            None => self.ranges.push((at, NOTED_BLOCK_BYTES)),
        }
    }
}

/// The numbers of the bits of `word` that are set.
fn ones(word: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| word >> bit & 1 != 0)
}

const _: () = assert!(SUMMARY_WORDS * 64 == BITS_WORDS);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn set(words: &dyn Region, at: u64, bits: u64) {
        words.store_u64(at, words.load_u64(at).expect("sound") | bits);
    }

    #[test]
    fn what_was_noted_is_taken_once_and_a_place_is_given_to_one_file() {
        let region = Arc::new(MappedRegion::anonymous(NOTES_BYTES).expect("memory"));
        let notes = Notes::on(Box::new(Arc::clone(&region)));
        let first = notes.begin().expect("a place");
        let mark = notes.begin().expect("another");
        let (place, turn) = (place_of(mark), region.load_u64(turn_at(place_of(mark))).expect("sound"));
        assert_ne!(place_of(first), place);
        for block in [0, 1, 63, 64, BITS_WORDS * 64 - 1] {
            set(&*region, bits_at(place, turn, block / 64), 1 << (block % 64));
            set(&*region, summary_at(place, turn, block / 4096), 1 << (block / 64 % 64));
        }
        set(&*region, flags_at(place, turn), APPENDED);
        let last = (BITS_WORDS * 64 - 1) * 4096;
        let ranges = vec![(0, 8192), (63 * 4096, 8192), (last, 4096)];
        assert_eq!(notes.take(first), Noted::default());
        assert_eq!(notes.take(mark), Noted { ranges, appended: true, doubt: false });
        assert_eq!((notes.take(mark), notes.take(mark)), (Noted::default(), Noted::default()));
        set(&*region, flags_at(place, turn), DOUBT);
        region.store_u64(under_way_at(place), under_way(mark, 1));
        assert_eq!(
            (notes.take(mark).doubt, notes.is_being_written(mark)),
            (false, true),
            "it is the other half's turn"
        );
        assert!(notes.take(mark).doubt);
        notes.end(mark);
        let again = notes.begin().expect("the same place");
        assert!(place_of(again) == place && again != mark && !notes.is_being_written(again));
        assert_eq!((2..PLACES).filter_map(|_| notes.begin()).count() as u64, PLACES - 2);
        assert_eq!(notes.begin(), None);
    }
}
