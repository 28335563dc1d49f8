//! What a guest that means harm does to its queue. The target of fuzzing has it too.

use tidegate_virtio_driver::DriverQueue;
use vm_memory::{Bytes, GuestAddress};

/// Changes the queue's memory somewhere, by what may mean something there. `pick` chooses a number
/// below the one that it is given.
pub(crate) fn scribble(queue: &DriverQueue, pick: &mut impl FnMut(u64) -> u64) {
    const MEMORY: &str = "the memory is the guest's own";
    let places = queue.places();
    match pick(4) {
        0 => {
            let addresses = [0, places.descriptors, places.slots, places.slots + 40, u64::MAX - 3, u64::MAX];
            let lengths = [0, 1, 15, 16, 17, 32, 512, 1 << 20, u32::MAX];
            let data = (among(&addresses, pick), among(&lengths, pick));
            queue.describe(pick(16) as u16, data, pick(8) as u16, pick(18) as u16);
        }
        1 => {
            let at = places.available + pick(places.used - places.available);
            queue.memory().write_obj(pick(20) as u8, GuestAddress(at)).expect(MEMORY);
        }
        2 => {
            let header = [among(&[0_u32, 1, 4, 8, 11, 13, 99], pick).to_le_bytes(), [0; 4]].concat();
            queue.memory().write_slice(&header, GuestAddress(places.slots)).expect(MEMORY);
            let sector = among(&[0, 1, 63, 64, u64::MAX], pick);
            queue.memory().write_obj(sector, GuestAddress(places.slots + 8)).expect(MEMORY);
        }
        _ => {
            let at = places.descriptors + pick(places.slots + 600 - places.descriptors);
            queue.memory().write_obj(pick(256) as u8, GuestAddress(at)).expect(MEMORY);
        }
    }
}

fn among<T: Copy>(all: &[T], pick: &mut impl FnMut(u64) -> u64) -> T {
    all[pick(all.len() as u64) as usize]
}
