//! Short writes of a lease that follow each other, as those of a log, become one entry: their bytes
//! are put together in the block of the first one. Otherwise each of them would take a block, an
//! entry and a part of a write below.
//!
//! The elements of the lease log stay as they are until the commit of that entry is durable, and
//! bytes behind an element's length count for nothing. So a cut leaves all elements or the entry.

use crate::lanes::lane::Lane;
use crate::lanes::lease::LentBlock;
use tidegate_layout::file_cache::{Extent, LEASE_CLASS};
use tidegate_media::Region;

/// An element that is as it may be.
#[derive(Clone, Copy)]
pub(super) struct Adopted {
    pub(super) slot: u32,
    pub(super) extent: Extent,
    pub(super) modified: u64,
}

impl Adopted {
    /// Whether one write may have both this element and the next one.
    pub(super) fn goes_on_in(&self, next: &Adopted) -> bool {
        let is_full = u64::from(self.extent.length) == LEASE_CLASS.bytes();
        is_full && self.extent.end() == next.extent.offset && self.modified == next.modified
    }
}

/// What elements become.
pub(super) struct Gathered {
    /// The entries to be.
    pub(super) entries: Vec<Adopted>,
    /// Blocks and entries that nobody needs after the commit.
    pub(super) spare: Vec<LentBlock>,
}

impl<R: Region> Lane<R> {
    /// Puts the bytes of elements together that follow each other and fit into a block. What was
    /// streamed is durable with the next fence.
    pub(super) fn gather(&self, elements: &[Adopted]) -> Gathered {
        let (mut entries, mut spare) = (Vec::<Adopted>::with_capacity(elements.len()), Vec::new());
        let mut bytes = vec![0; usize::try_from(LEASE_CLASS.bytes()).expect("a block is small")];
        // Whether the last entry's bytes were looked at: what is put behind them is known.
        let mut is_known_sound = false;
        for element in elements {
            let (extent, block) = (element.extent, LentBlock { unit: element.extent.unit, entry: element.slot });
            let length = usize::try_from(extent.length).expect("a block is small");
            let into = entries.last_mut().filter(|last| {
                last.extent.end() == extent.offset
                    && u64::from(last.extent.length) + u64::from(extent.length) <= LEASE_CLASS.bytes()
                    // Memory that cannot be read is left as it is: whoever reads it is told.
                    && (is_known_sound || self.is_sound(last, &mut bytes))
                    && self.medium.read_extent(&extent, extent.offset, &mut bytes[..length]).is_ok()
            });
            if let Some(last) = into {
                let behind = self.medium.plan.block_at(last.extent.unit) + u64::from(last.extent.length);
                self.medium.region.stream(behind, &bytes[..length]);
                last.extent.length += extent.length;
                spare.push(block);
                is_known_sound = true;
            } else {
                entries.push(*element);
                is_known_sound = false;
            }
        }
        Gathered { entries, spare }
    }

    /// Whether all of an element's bytes can be read.
    fn is_sound(&self, Adopted { extent, .. }: &Adopted, bytes: &mut [u8]) -> bool {
        let length = usize::try_from(extent.length).expect("a block is small");
        self.medium.read_extent(extent, extent.offset, &mut bytes[..length]).is_ok()
    }
}
