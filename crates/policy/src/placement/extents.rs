//! Temperatures of extents that have a cached block.
//!
//! Each access raises its extent's temperature by the weight of its kind. The weights are the
//! shares of reads and writes among the requests of the last two seconds: the paper says that they
//! follow the ratio of reads to writes, and not how. Temperatures never fall; an extent without a
//! cached block has none.

use super::{FileExtent, IoKind, IoRequest};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// How long weights stay.
const WINDOW_MS: u64 = 2_000;

/// Bytes that an extent takes at most: its entry, and as much again for the table's free places.
pub(super) const EXTENT_BYTES_MAX: usize = 2 * (size_of::<(FileExtent, Warm)>() + 1) * 8 / 7;

/// An extent with a cached block.
#[derive(Clone, Copy, Debug, Default)]
struct Warm {
    temperature: f64,
    blocks: u32,
}

/// Every extent with a cached block: at most one for each slot.
pub(super) struct Extents {
    warm: HashMap<FileExtent, Warm, BuildHasherDefault<DefaultHasher>>,
    total: f64,
    weights: Weights,
}

/// What an access adds, by kind.
struct Weights {
    read: f64,
    write: f64,
    since_ms: u64,
    reads: u32,
    writes: u32,
}

impl Extents {
    /// Makes an empty table; no more than `slots` extents ever have a block.
    pub(super) fn new(slots: u32) -> Extents {
        let weights = Weights { read: 0.5, write: 0.5, since_ms: 0, reads: 0, writes: 0 };
        let warm = HashMap::with_capacity_and_hasher(slots as usize, BuildHasherDefault::default());
        Extents { warm, total: 0.0, weights }
    }

    /// Counts a request, and renews the weights if they are two seconds old.
    pub(super) fn count(&mut self, request: &IoRequest) {
        let weights = &mut self.weights;
        if request.now_ms >= weights.since_ms + WINDOW_MS {
            let all = f64::from(weights.reads + weights.writes);
            if all > 0.0 {
                (weights.read, weights.write) = (f64::from(weights.reads) / all, f64::from(weights.writes) / all);
            }
            (weights.since_ms, weights.reads, weights.writes) = (request.now_ms, 0, 0);
        }
        match request.kind {
            IoKind::Read => weights.reads = weights.reads.saturating_add(1),
            IoKind::Write | IoKind::SyncWrite => weights.writes = weights.writes.saturating_add(1),
        }
    }

    /// Raises the temperature of `extent` for one access, if it has one.
    pub(super) fn heat(&mut self, extent: FileExtent, kind: IoKind) {
        let weight = match kind {
            IoKind::Read => self.weights.read,
            IoKind::Write | IoKind::SyncWrite => self.weights.write,
        };
        if let Some(warm) = self.warm.get_mut(&extent) {
            warm.temperature += weight;
            self.total += weight;
        }
    }

    /// A block of `extent` is cached.
    pub(super) fn gain(&mut self, extent: FileExtent) {
        self.warm.entry(extent).or_default().blocks += 1;
    }

    /// A block of `extent` is cached no more.
    pub(super) fn lose(&mut self, extent: FileExtent) {
        let warm = self.warm.get_mut(&extent).expect("it has a block");
        warm.blocks -= 1;
        if warm.blocks == 0 {
            self.total -= warm.temperature;
            self.warm.remove(&extent);
        }
    }

    /// Returns the temperature of `extent`.
    pub(super) fn temperature(&self, extent: FileExtent) -> f64 {
        self.warm.get(&extent).map_or(0.0, |warm| warm.temperature)
    }

    /// Returns the sum of all temperatures.
    pub(super) fn total(&self) -> f64 {
        self.total.max(0.0)
    }

    /// Returns the mean temperature.
    pub(super) fn mean(&self) -> f64 {
        self.total() / (self.warm.len().max(1)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: IoKind, now_ms: u64) -> IoRequest {
        IoRequest { file: 1, offset: 0, bytes: 1, kind, context: 0, now_ms }
    }

    #[test]
    fn weights_are_the_shares_of_the_last_two_seconds() {
        let (mut extents, extent) = (Extents::new(4), FileExtent { file: 1, extent: 0 });
        extents.gain(extent);
        extents.heat(extent, IoKind::Read);
        assert!((extents.temperature(extent) - 0.5).abs() < 1e-9, "nothing is known yet");
        (0..3).for_each(|_| extents.count(&request(IoKind::Read, 1_999)));
        extents.count(&request(IoKind::SyncWrite, 1_999));
        extents.heat(extent, IoKind::Read);
        assert!((extents.temperature(extent) - 1.0).abs() < 1e-9, "the window is not over");
        extents.count(&request(IoKind::Read, 2_000));
        extents.heat(extent, IoKind::Read);
        extents.heat(extent, IoKind::Write);
        assert!((extents.temperature(extent) - 2.0).abs() < 1e-9, "3/4 and 1/4");
    }

    #[test]
    fn an_extent_without_blocks_takes_its_heat_with_it() {
        let mut extents = Extents::new(4);
        let both = [0, 1].map(|extent| FileExtent { file: 1, extent });
        both.iter().for_each(|extent| extents.gain(*extent));
        both.iter().for_each(|extent| extents.heat(*extent, IoKind::Read));
        extents.lose(both[0]);
        assert!((extents.total() - 0.5).abs() < 1e-9 && (extents.mean() - 0.5).abs() < 1e-9);
        extents.heat(both[0], IoKind::Read);
        assert!(extents.temperature(both[0]) == 0.0);
    }
}
