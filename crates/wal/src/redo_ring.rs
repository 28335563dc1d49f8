//! The redo ring while a cache is at work.

use std::collections::VecDeque;
use tidegate_layout::ring::Cursors;
use tidegate_media::{Region, Sealed};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What a commit says about one target.
pub trait Element: FromBytes + IntoBytes + Immutable {
    /// What is flushed before the element no longer counts.
    type Target: Copy;

    /// What the element changes.
    fn target(&self) -> Self::Target;
}

/// Where a ring lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlan {
    /// Where the cursors lie: head and tail, in one line.
    pub cursors_at: u64,
    /// Where the elements lie.
    pub ring_at: u64,
    /// Elements in the ring, a power of two. A commit takes at most half of them.
    pub slots: u32,
}

/// How much a commit retires of what lies before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retire {
    /// As much as keeps half of the ring free for the next one.
    AsNeeded,
    /// Everything.
    All,
}

/// A redo ring: its plan, its head, and the targets of elements not retired yet.
pub struct RedoRing<E: Element> {
    plan: RingPlan,
    head: u64,
    unretired: VecDeque<E::Target>,
    /// The fence that failed. What the medium has of the cursors is not known since then, so no
    /// element is stored any more: it could be in the place of one that counts.
    failed: Option<Sealed>,
}

impl RingPlan {
    /// Where element number `number` of `bytes` bytes lies.
    pub(crate) fn element_at(&self, number: u64, bytes: usize) -> u64 {
        self.ring_at + number % u64::from(self.slots) * bytes as u64
    }

    #[track_caller]
    pub(crate) fn store_tail<R: Region + ?Sized>(&self, region: &R, tail: u64) {
        region.store_u64(self.cursors_at + Cursors::TAIL_AT, tail);
    }

    /// Both cursors lie in one line.
    #[track_caller]
    pub(crate) fn flush_cursors<R: Region + ?Sized>(&self, region: &R) {
        region.flush(self.cursors_at, size_of::<Cursors>() as u64);
    }
}

impl<E: Element> RedoRing<E> {
    /// A ring without unretired elements.
    pub(crate) fn new(plan: RingPlan, head: u64) -> RedoRing<E> {
        RedoRing { plan, head, unretired: VecDeque::new(), failed: None }
    }

    /// Elements that one commit takes at most.
    pub fn commit_max(&self) -> usize {
        self.plan.slots as usize / 2
    }

    /// Streams `elements` behind the head. Nothing counts yet; [`RedoRing::commit`] of the same
    /// elements follows, by the same thread.
    ///
    /// # Errors
    /// An earlier fence failed, and nothing was stored.
    pub fn stream<R: Region + ?Sized>(&self, region: &R, elements: &[E]) -> Result<(), Sealed> {
        self.failed.map_or(Ok(()), Err)?;
        let slots = u64::from(self.plan.slots);
        let until_wrap = usize::try_from(slots - self.head % slots).expect("a ring fits in memory").min(elements.len());
        let (here, wrapped) = elements.split_at(until_wrap);
        region.stream(self.plan.element_at(self.head, size_of::<E>()), here.as_bytes());
        if !wrapped.is_empty() {
            let begin = self.head + until_wrap as u64;
            region.stream(self.plan.element_at(begin, size_of::<E>()), wrapped.as_bytes());
        }
        Ok(())
    }

    /// Commits `elements`, which this thread has streamed as well as the data they speak of: two
    /// fences. `flush` begins the write-back of a target. Then the caller stores the targets.
    /// `Err`: nothing has changed if the first fence failed, and nobody knows if the second did;
    /// the region is sealed either way.
    pub fn commit<R: Region + ?Sized>(
        &mut self,
        region: &R,
        elements: &[E],
        retire: Retire,
        flush: impl FnMut(E::Target),
    ) -> Result<(), Sealed> {
        let retired = self.to_retire(elements.len(), retire);
        self.unretired.range(..retired).copied().for_each(flush);
        region.fence().map_err(|sealed| self.fails(sealed))?;
        self.unretired.drain(..retired);
        self.head += elements.len() as u64;
        region.store_u64(self.plan.cursors_at, self.head);
        self.plan.store_tail(region, self.head - (self.unretired.len() + elements.len()) as u64);
        self.plan.flush_cursors(region);
        region.fence().map_err(|sealed| self.fails(sealed))?;
        self.unretired.extend(elements.iter().map(E::target));
        Ok(())
    }

    /// Makes every target durable, so that no element counts any more: two fences, or none if there
    /// is nothing to do.
    pub fn retire<R: Region + ?Sized>(&mut self, region: &R, flush: impl FnMut(E::Target)) -> Result<(), Sealed> {
        if self.unretired.is_empty() {
            return Ok(());
        }
        self.unretired.iter().copied().for_each(flush);
        region.fence().map_err(|sealed| self.fails(sealed))?;
        self.unretired.clear();
        self.plan.store_tail(region, self.head);
        self.plan.flush_cursors(region);
        region.fence().map_err(|sealed| self.fails(sealed))
    }

    fn fails(&mut self, sealed: Sealed) -> Sealed {
        *self.failed.get_or_insert(sealed)
    }

    /// How many of the oldest elements go by a commit of `new` ones.
    fn to_retire(&self, new: usize, retire: Retire) -> usize {
        let kept_max = self.commit_max();
        match retire {
            Retire::All => self.unretired.len(),
            Retire::AsNeeded => (self.unretired.len() + new).saturating_sub(kept_max).min(self.unretired.len()),
        }
    }
}
