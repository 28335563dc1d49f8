//! COA (Co-Active): blocks that were written once are cold and go first, into the device's idle
//! time if it has any.
//!
//! Caiti § 5.1: "a cold/hot separation module to distinguish cold and hot data via a Bloom Filter",
//! "two linked lists for dirty and clean blocks", and "when PMem stays idle, Co-Active proactively
//! evicts data from the dirty list".
//!
//! Left open and chosen: a block is hot if the filter knows it when it is written again, and the
//! filter forgets everything when it knows twice as many blocks as there are slots (it has 16 bits
//! for each slot, the 2 bytes of Caiti § 5.1). Hot and cold dirty blocks are two lists, so that the
//! oldest cold one is found at once. The device counts as idle while no request is under way; then
//! the thread beside the cache cleans one cold block after the other and leaves them cached. As
//! long as there is one it looks for such a moment without a pause, as it has a core to itself in
//! Caiti's runs. A writer without a slot takes the oldest clean one, which costs no write; if there
//! is none, the oldest cold dirty one, and a hot one last.

use super::list::UseOrder;
use super::{Rule, Slot, Slots};
use tidegate_media::Result;
use tidegate_media::sync::{AtomicU64, Mutex, Ordering};
use tidegate_sim::mix;

/// Bits of the filter for each slot.
const BITS_PER_SLOT: usize = 16;

/// The rule of Co-Active.
pub struct Coa {
    lists: Mutex<Lists>,
    /// Requests under way.
    requests: AtomicU64,
}

struct Lists {
    clean: UseOrder,
    cold: UseOrder,
    hot: UseOrder,
    filter: Filter,
}

impl Lists {
    fn remove(&mut self, slot: Slot) {
        let _was_in_one = self.clean.remove(slot) || self.cold.remove(slot) || self.hot.remove(slot);
    }

    fn victim(&self) -> Option<Slot> {
        self.clean.oldest().or_else(|| self.cold.oldest()).or_else(|| self.hot.oldest())
    }
}

impl Coa {
    /// The oldest cold slot, off its list: a writer that needs a slot meanwhile takes another one,
    /// and need not wait for this one's cleaning.
    fn take_cold(&self) -> Option<Slot> {
        let mut lists = self.lists.lock();
        let slot = lists.cold.oldest()?;
        lists.remove(slot);
        Some(slot)
    }
}

impl Rule for Coa {
    fn new(slots: u32) -> Coa {
        let [clean, cold, hot] = [(); 3].map(|()| UseOrder::new(slots));
        let lists = Lists { clean, cold, hot, filter: Filter::new(slots) };
        Coa { lists: Mutex::new(lists), requests: AtomicU64::new(0) }
    }

    // Relaxed: whether the device is idle is a guess that may be wrong a moment later.
    fn begin(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }

    fn written(&self, slot: Slot, lba: u64) {
        let mut lists = self.lists.lock();
        lists.remove(slot);
        match lists.filter.note(lba) {
            true => lists.hot.touch(slot),
            false => lists.cold.touch(slot),
        }
    }

    fn read(&self, slot: Slot) {
        let mut lists = self.lists.lock();
        let Lists { clean, cold, hot, .. } = &mut *lists;
        if let Some(list) = [clean, cold, hot].into_iter().find(|list| list.has(slot)) {
            list.touch(slot);
        }
    }

    fn cleaned(&self, slot: Slot) {
        let mut lists = self.lists.lock();
        lists.remove(slot);
        lists.clean.touch(slot);
    }

    fn freed(&self, slot: Slot) {
        self.lists.lock().remove(slot);
    }

    fn make_room(&self, slots: &Slots) -> Result<()> {
        let victim = self.lists.lock().victim();
        victim.map_or(Ok(()), |slot| slots.evict(self, slot).map(|_| ()))
    }

    fn background_step(&self, slots: &Slots) -> Result<bool> {
        // Before the lists' lock, which writers need.
        if self.requests.load(Ordering::Relaxed) > 0 {
            return Ok(true);
        }
        let Some(slot) = self.take_cold() else { return Ok(false) };
        slots.clean(self, slot).inspect_err(|_| self.lists.lock().cold.touch(slot))?;
        Ok(true)
    }

    fn metadata_bytes(&self) -> usize {
        let lists = self.lists.lock();
        let links: usize = [&lists.clean, &lists.cold, &lists.hot].into_iter().map(UseOrder::bytes).sum();
        links + size_of_val(&*lists.filter.bits)
    }
}

/// A Bloom filter with two hash functions that forgets everything when it is full.
struct Filter {
    bits: Box<[u64]>,
    /// Blocks it can know, and how many more before it is full.
    room: u32,
    left: u32,
}

impl Filter {
    fn new(slots: u32) -> Filter {
        let words = (slots as usize * BITS_PER_SLOT).div_ceil(64);
        Filter { bits: vec![0; words].into(), room: 2 * slots, left: 2 * slots }
    }

    /// Adds `lba`, and says whether it was in, or seems to have been.
    fn note(&mut self, lba: u64) -> bool {
        let spread = mix(lba);
        let known = [spread >> 32, spread & 0xffff_ffff].map(|hash| {
            let bit = usize::try_from(hash).expect("32 bits") % (self.bits.len() * 64);
            let (word, mask) = (&mut self.bits[bit / 64], 1 << (bit % 64));
            let was_set = *word & mask != 0;
            *word |= mask;
            was_set
        });
        if known != [true; 2] {
            self.left -= 1;
            if self.left == 0 {
                self.bits.fill(0);
                self.left = self.room;
            }
        }
        known == [true; 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_hot_from_its_second_write_until_the_filter_is_full() {
        let mut filter = Filter::new(1000);
        let strangers = (0..500).filter(|lba| filter.note(*lba)).count();
        assert!(strangers < 10, "{strangers} of 500 new blocks seem known");
        assert!((0..500).all(|lba| filter.note(lba)), "what is in is always found");
        assert!((500..3000).any(|lba| !filter.note(lba) && filter.left == filter.room), "it is never full");
        assert!(!filter.note(0), "a full filter forgets");
    }
}
