//! Blocks of a disk that one user of a cache has at a time.

use crate::classic::wait_a_little;

/// Between the first two looks at a block that somebody else holds, and the longest wait between
/// two: a hard disk takes milliseconds.
const LOOK_AGAIN_NS: u64 = 5000;
const LOOK_AGAIN_NS_MAX: u64 = 320_000;

/// Waits between looks, each twice as long as the one before.
pub(crate) struct Naps {
    next_ns: u64,
}

impl Naps {
    pub(crate) fn new() -> Naps {
        Naps { next_ns: LOOK_AGAIN_NS }
    }

    pub(crate) fn wait(&mut self) {
        wait_a_little(self.next_ns);
        self.next_ns = (2 * self.next_ns).min(LOOK_AGAIN_NS_MAX);
    }
}

/// A cache whose users hold the blocks that they work on.
pub(crate) trait Holding {
    /// Holds a block; false if somebody else does.
    fn try_hold(&self, lba: u64) -> bool;

    /// Nobody holds these blocks any more.
    fn release(&self, lbas: &[u64]);

    /// Has `act` work on blocks while they are held. It gets them in ascending order, in which
    /// everybody holds them, so that none waits for another who waits for it.
    fn holding<T>(&self, lbas: &[u64], act: impl FnOnce(&[u64]) -> T) -> T {
        let mut lbas = lbas.to_vec();
        lbas.sort_unstable();
        for lba in &lbas {
            let mut naps = Naps::new();
            while !self.try_hold(*lba) {
                naps.wait();
            }
        }
        let done = act(&lbas);
        self.release(&lbas);
        done
    }
}
