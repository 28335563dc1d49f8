//! The redo ring after a cut: which elements count, and how they cease to.

use crate::redo_ring::{Element, RedoRing, RingPlan};
use tidegate_layout::Broken;
use tidegate_layout::ring::Cursors;
use tidegate_media::{Corrupt, Region, Result, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// The elements that count.
pub struct Loaded<E> {
    plan: RingPlan,
    head: u64,
    /// Each with the place where it lies, the oldest first.
    pub elements: Vec<(u64, E)>,
}

impl<E: Element> Loaded<E> {
    /// Makes the cursors durable that a killed process may have left in the CPU's caches, and reads
    /// what counts.
    pub fn begin<R: Region + ?Sized>(region: &R, plan: RingPlan) -> Result<Loaded<E>> {
        plan.flush_cursors(region);
        region.fence()?;
        Loaded::read(region, plan)
    }

    /// Reads the cursors and every element that counts. Changes nothing.
    pub fn read<R: Region + ?Sized>(region: &R, plan: RingPlan) -> Result<Loaded<E>> {
        let mut cursors = Cursors::new_zeroed();
        region.read(plan.cursors_at, cursors.as_mut_bytes())?;
        cursors.check(plan.slots).map_err(|broken| corrupt(plan.cursors_at, broken))?;
        let numbers = cursors.tail.get()..cursors.head.get();
        let elements = numbers.map(|number| {
            let at = plan.element_at(number, size_of::<E>());
            let mut element = E::new_zeroed();
            region.read(at, element.as_mut_bytes())?;
            Ok((at, element))
        });
        Ok(Loaded { plan, head: cursors.head.get(), elements: elements.collect::<Result<_>>()? })
    }

    /// Retires every element, after the caller made their targets durable: at most one fence.
    pub fn finish<R: Region + ?Sized>(self, region: &R) -> Result<RedoRing<E>, Sealed> {
        if !self.elements.is_empty() {
            self.plan.store_tail(region, self.head);
            self.plan.flush_cursors(region);
            region.fence()?;
        }
        Ok(RedoRing::new(self.plan, self.head))
    }
}

/// A rule of a format that the bytes at `at` break, as an error of the medium.
pub fn corrupt(at: u64, broken: Broken) -> Corrupt {
    Corrupt { rule: broken.rule, at: at + broken.offset, found: broken.found }
}
