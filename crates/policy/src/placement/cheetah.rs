//! Placement by synchronicity and temperature (Cheetah, ICA3PP 2020).
//!
//! Asynchronous writes enter DRAM, synchronous ones NVM. A read is served where the block lies. In
//! the paper all data lies in the file system in NVM; here that is a cache, so a block that is read
//! from the file below enters NVM.
//!
//! Three groups of threads become steps. Write-back is the caller's own. *Reclamation* begins when
//! nine tenths of a tier's slots are used and goes on until a fifth was reclaimed, from extents
//! below the threshold at the end of the list. *Migration* moves an extent that is read and reached
//! the threshold to DRAM. In the paper it copies: there the file system in NVM keeps all data.
//!
//! | DRAM used | threshold as published | normalised |
//! | --- | --- | --- |
//! | below 50 % | half of the sum of all temperatures | half of the mean |
//! | below 80 % | that share of the sum | that share of the mean |
//! | from 80 % on | none reaches it | none reaches it |
//!
//! As published at most two extents can reach it. Where reclamation begins, it is that of no extent
//! or of all, so that it takes the end of the list.

use super::extents::Extents;
use super::{
    Condition, Decision, Eviction, FileExtent, FilePage, FreeSlots, IoKind, IoRequest, Placement, Reason, Tier,
    TierSlots, Work,
};
use crate::evict::queues::{NONE, Queues};
use std::collections::VecDeque;

/// Shares of a tier in percent: used when reclamation begins; reclaimed when it ends.
const RECLAIM_AT_PERCENT: u32 = 90;
const RECLAIMED_PERCENT: u32 = 20;

/// Extents that wait for migration.
const WAITING_MAX: usize = 64;

/// Extents that one step looks at.
const LOOKS_MAX: usize = 8;

/// Sizes of blocks.
const BLOCK_BYTES: [u32; 7] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// What the threshold is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareOf {
    /// The sum of all temperatures, as published.
    Sum,
    /// The mean temperature.
    Mean,
}

/// Places by synchronicity and temperature.
pub(super) struct Cheetah {
    slots: TierSlots,
    share_of: ShareOf,
    extents: Extents,
    /// Slots of DRAM, and of NVM.
    used: Queues<2>,
    extent_of: Box<[FileExtent]>,
    /// Slots of a tier that are free when reclamation ends.
    reclaiming: [Option<u32>; 2],
    /// What was reclaimed last, which has to be gone.
    reclaimed: Option<(FileExtent, Tier)>,
    waiting: VecDeque<FileExtent>,
    /// Slots of DRAM that were free when a page was placed last.
    free_dram: u32,
}

impl Cheetah {
    pub(super) fn new(slots: TierSlots, share_of: ShareOf) -> Cheetah {
        Cheetah {
            slots,
            share_of,
            extents: Extents::new(slots.all()),
            used: Queues::new(slots.all()),
            extent_of: vec![FileExtent { file: 0, extent: 0 }; slots.all() as usize].into(),
            reclaiming: [None; 2],
            reclaimed: None,
            waiting: VecDeque::with_capacity(WAITING_MAX),
            free_dram: slots.dram,
        }
    }

    /// The temperature from which on an extent belongs in DRAM.
    fn threshold(&self) -> f64 {
        let whole = match self.share_of {
            ShareOf::Sum => self.extents.total(),
            ShareOf::Mean => self.extents.mean(),
        };
        if self.slots.dram == 0 {
            // Nothing migrates: it is asked which extents are cold.
            return whole * 0.5;
        }
        let used = 1.0 - f64::from(self.free_dram) / f64::from(self.slots.dram.max(1));
        match used {
            ..0.5 => whole * 0.5,
            0.5..0.8 => whole * used,
            _ => f64::INFINITY,
        }
    }

    fn queue(&self, slot: u32) -> usize {
        usize::from(self.slots.tier(slot) == Tier::Nvm)
    }

    /// Has the extent wait for migration if it is hot.
    fn notice(&mut self, extent: FileExtent) {
        let is_hot = self.extents.temperature(extent) >= self.threshold() && self.free_dram > 0;
        if is_hot && self.waiting.len() < WAITING_MAX && !self.waiting.contains(&extent) {
            self.waiting.push_back(extent);
        }
    }

    /// The next extent of `from` to be reclaimed: among the first few at the end of the list the
    /// first that is cold, or else the first.
    fn coldest(&self, from: Tier) -> Option<(FileExtent, Reason)> {
        let queue = usize::from(from == Tier::Nvm);
        let oldest = self.used.oldest(queue);
        let known = |slot: u32| (slot != NONE).then_some(slot);
        let from_the_end = std::iter::successors(known(oldest), |slot| known(self.used.newer(*slot)));
        let mut looked = from_the_end.take(LOOKS_MAX);
        let cold = looked.find(|slot| self.extents.temperature(self.extent_of[*slot as usize]) < self.threshold());
        match cold {
            Some(slot) => Some((self.extent_of[slot as usize], Reason::Cold)),
            None => (oldest != NONE).then(|| (self.extent_of[oldest as usize], Reason::UsedLast)),
        }
    }

    fn reclaim(&mut self, free: FreeSlots) -> Option<Work> {
        for (nth, from) in [Tier::Dram, Tier::Nvm].into_iter().enumerate() {
            let (all, free) = (self.slots.of(from), free.of(from));
            let used_percent = u64::from(all - free) * 100;
            if self.reclaiming[nth].is_none()
                && all > 0
                && used_percent >= u64::from(all) * u64::from(RECLAIM_AT_PERCENT)
            {
                self.reclaiming[nth] = Some((free + all.div_ceil(100 / RECLAIMED_PERCENT)).min(all));
            }
            let until = self.reclaiming[nth].unwrap_or(0);
            let next = if free < until { self.coldest(from) } else { None };
            match next {
                // It did not leave: its blocks are pinned.
                Some((extent, _)) if self.reclaimed == Some((extent, from)) => self.reclaiming[nth] = None,
                Some((extent, reason)) => {
                    self.reclaimed = Some((extent, from));
                    return Some(Work::Reclaim { extent, from, reason });
                }
                None => self.reclaiming[nth] = None,
            }
        }
        self.reclaimed = None;
        None
    }
}

impl Placement for Cheetah {
    fn begin(&mut self, request: &IoRequest) {
        self.extents.count(request);
    }

    fn place(&mut self, request: &IoRequest, page: FilePage, slot: Option<u32>, free: FreeSlots) -> Decision {
        self.free_dram = free.dram;
        let extent = page.extent();
        self.extents.heat(extent, request.kind);
        let tier = slot.map(|slot| self.slots.tier(slot));
        if let Some(slot) = slot {
            let queue = self.queue(slot);
            if self.used.take(slot) {
                self.used.push(queue, slot);
            }
        }
        // Writes find their tier by synchronicity.
        if tier == Some(Tier::Nvm) && request.kind == IoKind::Read {
            self.notice(extent);
        }
        match (request.kind, tier) {
            (IoKind::Read, None) if self.slots.nvm == 0 => Decision::ToDram(Reason::ReadBelow),
            (IoKind::Read, None) => Decision::ToNvm(Reason::ReadBelow),
            (IoKind::Write, None | Some(Tier::Nvm)) if self.slots.dram > 0 => Decision::ToDram(Reason::Asynchronous),
            (IoKind::SyncWrite, None | Some(Tier::Dram)) if self.slots.nvm > 0 => Decision::ToNvm(Reason::Synchronous),
            (_, None) => Decision::Below(Reason::Rule),
            (_, Some(_)) => Decision::Stay(Reason::Cached),
        }
    }

    fn insert(&mut self, slot: u32, page: FilePage) {
        let queue = self.queue(slot);
        self.used.push(queue, slot);
        self.extent_of[slot as usize] = page.extent();
        self.extents.gain(page.extent());
    }

    fn remove(&mut self, slot: u32) {
        if self.used.take(slot) {
            self.extents.lose(self.extent_of[slot as usize]);
        }
    }

    fn temperature(&self, extent: FileExtent) -> Option<f64> {
        Some(self.extents.temperature(extent))
    }

    fn evict(&mut self, tier: Tier, condition: &mut dyn FnMut(u32) -> Condition) -> Option<Eviction> {
        let queue = usize::from(tier == Tier::Nvm);
        let slot = self.used.oldest_that(queue, &mut |slot| condition(slot) != Condition::Pinned)?;
        self.remove(slot);
        Some(Eviction { slot, reason: Reason::UsedLast })
    }

    fn work(&mut self, free: FreeSlots) -> Option<Work> {
        self.free_dram = free.dram;
        if let Some(work) = self.reclaim(free) {
            return Some(work);
        }
        let extent = self.waiting.pop_front().filter(|_| free.dram > 0)?;
        Some(Work::Migrate { extent, reason: Reason::Hot })
    }

    /// A write gets a block of the class of its size.
    fn nvm_bytes(&self, bytes: u32) -> u32 {
        let class = BLOCK_BYTES.into_iter().find(|block| *block >= bytes);
        class.unwrap_or(bytes)
    }
}
