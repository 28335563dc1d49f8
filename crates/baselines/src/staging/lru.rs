//! LRU: when no slot is free, the block used longest ago is written back, and only then the writer
//! fills its slot (a "2-step write", Caiti § 3).

use super::list::UseOrder;
use super::{Rule, Slot, Slots};
use tidegate_media::Result;
use tidegate_media::sync::Mutex;

/// The rule of LRU.
pub struct Lru(Mutex<UseOrder>);

impl Rule for Lru {
    fn new(slots: u32) -> Lru {
        Lru(Mutex::new(UseOrder::new(slots)))
    }

    fn written(&self, slot: Slot, _lba: u64) {
        self.0.lock().touch(slot);
    }

    fn read(&self, slot: Slot) {
        self.0.lock().touch(slot);
    }

    fn freed(&self, slot: Slot) {
        self.0.lock().remove(slot);
    }

    fn make_room(&self, slots: &Slots) -> Result<()> {
        // Another writer may take the same block, or free it first: then there is a free slot all
        // the same.
        let oldest = self.0.lock().oldest();
        oldest.map_or(Ok(()), |slot| slots.evict(self, slot).map(|_| ()))
    }

    fn metadata_bytes(&self) -> usize {
        self.0.lock().bytes()
    }
}
