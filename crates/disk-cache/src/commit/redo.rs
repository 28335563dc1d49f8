//! What transactions of several blocks do to entries, committed by the ring of the crate
//! `tidegate-wal`.
//!
//! One lock guards the ring; whoever commits holds it over both fences and until the entries are
//! stored.

use crate::region_io::Medium;
use tidegate_layout::disk_cache::RingElement;
use tidegate_media::{Region, Sealed};
use tidegate_wal::{Element, Retire};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An entry on its way to another block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) lba: u64,
    pub(crate) entry: u32,
    /// The block that it comes to name.
    pub(crate) block: u32,
    /// Its counter then.
    pub(crate) counter: u16,
    /// Whether it was free, so that its first word has to be stored too.
    pub(crate) fresh: bool,
    /// The block that it replaces, if the disk's block is cached.
    pub(crate) replaced: Option<u32>,
}

/// What an entry becomes, as the ring holds it. Its target is the entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub(crate) struct EntryMove(pub(crate) RingElement);

impl Element for EntryMove {
    type Target = u32;

    fn target(&self) -> u32 {
        self.0.entry.get()
    }
}

/// The cache's ring.
pub(crate) type Ring = tidegate_wal::RedoRing<EntryMove>;

/// How many steps an entry's counter goes before everything older is retired. An unretired element
/// is never so far behind its entry that the two could not be compared.
pub(crate) const COUNTER_STRIDE: u16 = 1 << 12;

/// Commits `moves`, whose data this thread has streamed: two fences. `Err`: nothing has changed if
/// the first one failed, and nobody knows if the second did; the region is sealed either way.
pub(crate) fn commit<R: Region>(ring: &mut Ring, medium: &Medium<R>, moves: &[Move]) -> Result<(), Sealed> {
    let elements: Vec<EntryMove> =
        moves.iter().map(|to| EntryMove(RingElement::new(to.entry, to.lba, to.block, to.counter))).collect();
    medium.noted(ring.stream(&medium.region, &elements))?;
    if medium.words_overtake() {
        for to in moves.iter().filter(|to| to.fresh) {
            medium.store_lba(to.entry, to.lba);
            medium.flush_entry(to.entry);
        }
    }
    let strides = moves.iter().any(|to| to.counter.is_multiple_of(COUNTER_STRIDE));
    let retire = if strides { Retire::All } else { Retire::AsNeeded };
    medium.noted(ring.commit(&medium.region, &elements, retire, |entry| medium.flush_entry(entry)))?;
    for to in moves {
        if to.fresh {
            medium.store_lba(to.entry, to.lba);
        }
        medium.store_state(to.entry, medium.plan.holding_word(to.lba, to.block, to.counter, false));
    }
    Ok(())
}

/// Makes every entry durable, so that no element counts any more: two fences, or none if there is
/// nothing to do.
pub(crate) fn retire<R: Region>(ring: &mut Ring, medium: &Medium<R>) -> Result<(), Sealed> {
    medium.noted(ring.retire(&medium.region, |entry| medium.flush_entry(entry)))
}
