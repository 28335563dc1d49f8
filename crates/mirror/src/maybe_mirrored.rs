//! The memory of a volume: one region, or a mirror.

use crate::mirror::{Liveness, Mirror};
use crate::open::lone;
use crate::page::{self, Page};
use tidegate_media::{LineOrder, Poison, Region, Sealed};

/// The memory of a volume.
pub enum MaybeMirrored<R> {
    /// One region, which is no side of a mirror.
    Plain(R),
    /// The sides of a mirror, or one of them.
    Mirrored(Mirror<R>),
}

/// Shows the volume on `region`, a side or not, and changes nothing. Not to be stored to.
pub fn view<R: Region>(region: R) -> MaybeMirrored<R> {
    match page::read(&region) {
        Page::Side(side) => MaybeMirrored::Mirrored(lone(region, side, |_| Ok(()))),
        Page::Absent | Page::Damaged | Page::Unreadable => MaybeMirrored::Plain(region),
    }
}

impl<R: Region> MaybeMirrored<R> {
    /// The mirror that it is, or is a side of.
    pub fn mirror(&self) -> Option<&Mirror<R>> {
        match self {
            MaybeMirrored::Plain(_) => None,
            MaybeMirrored::Mirrored(mirror) => Some(mirror),
        }
    }

    /// Tells a side that was opened alone that its engine is open, as [`Mirror::engine_is_open`].
    pub fn engine_is_open(&self) {
        self.mirror().into_iter().for_each(Mirror::engine_is_open);
    }

    /// Whether this is a side that was opened alone and does not say so yet, as
    /// [`Mirror::is_unsaid`].
    pub fn is_unsaid(&self) -> bool {
        self.mirror().is_some_and(Mirror::is_unsaid)
    }

    /// Makes a side that was opened alone say so, durably, as [`Mirror::go_alone`].
    ///
    /// # Errors
    /// The side lost the store.
    pub fn go_alone(&self) -> Result<(), Sealed> {
        self.mirror().map_or(Ok(()), Mirror::go_alone)
    }

    /// The regions that take stores now.
    pub fn live(&self) -> impl Iterator<Item = &R> {
        let regions = match self {
            MaybeMirrored::Plain(region) => [Some(region), None],
            MaybeMirrored::Mirrored(mirror) => {
                let [first, second] = mirror.sides();
                match mirror.liveness() {
                    Liveness::Both => [first, second],
                    Liveness::First => [first, None],
                    Liveness::Second => [None, second],
                }
            }
        };
        regions.into_iter().flatten()
    }

    /// The region that reads come from.
    pub fn reader(&self) -> &R {
        match self {
            MaybeMirrored::Plain(region) => region,
            MaybeMirrored::Mirrored(mirror) => mirror.reader(),
        }
    }

    /// Gives back the region that reads come from. A side comes without its twin.
    pub fn into_reader(self) -> R {
        match self {
            MaybeMirrored::Plain(region) => region,
            MaybeMirrored::Mirrored(mirror) => mirror.into_reader(),
        }
    }
}

impl<R: Region> Region for MaybeMirrored<R> {
    fn len(&self) -> u64 {
        match self {
            MaybeMirrored::Plain(region) => region.len(),
            MaybeMirrored::Mirrored(mirror) => mirror.len(),
        }
    }

    #[inline]
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        match self {
            MaybeMirrored::Plain(region) => region.read(at, out),
            MaybeMirrored::Mirrored(mirror) => mirror.read(at, out),
        }
    }

    #[inline]
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        match self {
            MaybeMirrored::Plain(region) => region.load_u64(at),
            MaybeMirrored::Mirrored(mirror) => mirror.load_u64(at),
        }
    }

    #[inline]
    #[track_caller]
    fn write(&self, at: u64, bytes: &[u8]) {
        match self {
            MaybeMirrored::Plain(region) => region.write(at, bytes),
            MaybeMirrored::Mirrored(mirror) => mirror.write(at, bytes),
        }
    }

    #[inline]
    #[track_caller]
    fn stream(&self, at: u64, bytes: &[u8]) {
        match self {
            MaybeMirrored::Plain(region) => region.stream(at, bytes),
            MaybeMirrored::Mirrored(mirror) => mirror.stream(at, bytes),
        }
    }

    #[inline]
    #[track_caller]
    fn store_u64(&self, at: u64, word: u64) {
        match self {
            MaybeMirrored::Plain(region) => region.store_u64(at, word),
            MaybeMirrored::Mirrored(mirror) => mirror.store_u64(at, word),
        }
    }

    #[inline]
    #[track_caller]
    fn flush(&self, at: u64, len: u64) {
        match self {
            MaybeMirrored::Plain(region) => region.flush(at, len),
            MaybeMirrored::Mirrored(mirror) => mirror.flush(at, len),
        }
    }

    #[inline]
    fn fence(&self) -> Result<(), Sealed> {
        match self {
            MaybeMirrored::Plain(region) => region.fence(),
            MaybeMirrored::Mirrored(mirror) => mirror.fence(),
        }
    }

    fn line_order(&self) -> LineOrder {
        self.reader().line_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create;
    use std::sync::Arc;
    use tidegate_sim::{PoisonedStore, Region as Simulated};

    fn sides() -> [Arc<Simulated>; 2] {
        [0, 1].map(|_| Arc::new(Simulated::new(4 * 4096)))
    }

    #[test]
    fn a_plain_region_is_seen_whole_and_a_side_without_its_page() {
        let [first, second] = sides();
        let plain = view(Arc::clone(&first));
        assert!(plain.mirror().is_none());
        assert_eq!((plain.len(), plain.live().count()), (4 * 4096, 1));
        create([first, Arc::clone(&second)], [7; 16], |_| Ok(())).expect("two regions of one length");
        let side = view(Arc::clone(&second));
        assert_eq!(side.mirror().map(Mirror::liveness), Some(Liveness::Second));
        assert_eq!((side.len(), side.live().count()), (2 * 4096, 1));
        assert!(Arc::ptr_eq(&side.into_reader(), &second));
    }

    #[test]
    fn a_region_that_is_given_up_takes_no_more_stores_and_gives_no_reads() {
        let [first, second] = sides();
        let made = create([Arc::clone(&first), Arc::clone(&second)], [7; 16], |_| Ok(()));
        let memory = MaybeMirrored::Mirrored(made.expect("two regions of one length"));
        assert_eq!(memory.live().count(), 2);
        first.poison(0, 64, PoisonedStore::Lost);
        memory.stream(0, &[5; 64]);
        memory.fence().expect("the other side has it");
        assert!(memory.live().all(|side| Arc::ptr_eq(side, &second)));
        assert!(Arc::ptr_eq(memory.reader(), &second));
        assert_eq!(memory.load_u64(0), Ok(u64::from_le_bytes([5; 8])));
    }
}
