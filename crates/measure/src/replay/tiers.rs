//! The tiers of a replay: they do what a placement decides, and count it.

use super::costs::{LineCost, MemoryCosts};
use std::collections::{BTreeMap, HashMap};
use tidegate_policy::placement::{
    Condition, Decision, FileExtent, FilePage, FreeSlots, IoKind, IoRequest, LINE_BYTES, PAGE_BYTES, Placement, Reason,
    Tier, TierSlots, Work,
};

/// Steps in the background after one request.
const WORK_STEPS_MAX: u32 = 64;

/// Lines of a block.
const BLOCK_LINES: u64 = PAGE_BYTES / LINE_BYTES as u64;

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Pages that they touched.
    pub pages: u64,
    /// Pages found in DRAM.
    pub hits_dram: u64,
    /// Pages found in NVM.
    pub hits_nvm: u64,
    /// Blocks read from the files below.
    pub read_below: u64,
    /// Blocks written to the files below.
    pub written_below: u64,
    /// Lines of NVM read.
    pub lines_read: u64,
    /// Lines of NVM written.
    pub lines_written: u64,
    /// Blocks that moved between the tiers.
    pub moved: u64,
    /// Virtual time, in picoseconds.
    pub ps: u64,
}

impl Counts {
    /// Returns the pages found in a tier.
    pub fn hits(&self) -> u64 {
        self.hits_dram + self.hits_nvm
    }

    /// Returns the share of pages found in a tier.
    pub fn hit_ratio(&self) -> f64 {
        self.hits() as f64 / self.pages.max(1) as f64
    }

    /// Returns what was counted since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            requests: self.requests - before.requests,
            pages: self.pages - before.pages,
            hits_dram: self.hits_dram - before.hits_dram,
            hits_nvm: self.hits_nvm - before.hits_nvm,
            read_below: self.read_below - before.read_below,
            written_below: self.written_below - before.written_below,
            lines_read: self.lines_read - before.lines_read,
            lines_written: self.lines_written - before.lines_written,
            moved: self.moved - before.moved,
            ps: self.ps - before.ps,
        }
    }
}

/// Whether an access goes on where the one before it ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    InOrder,
    OutOfOrder,
}

/// A cached block.
#[derive(Clone, Copy)]
struct Cached {
    page: FilePage,
    is_dirty: bool,
}

/// A placement, and the tiers that it decides about.
pub struct Replay {
    placement: Box<dyn Placement>,
    slots: TierSlots,
    costs: MemoryCosts,
    index: HashMap<FilePage, u32>,
    cached: Vec<Option<Cached>>,
    free: [Vec<u32>; 2],
    /// Where the last request of a context to a file ended.
    ends: HashMap<(u64, u64), u64>,
    order: Order,
    counts: Counts,
    reasons: BTreeMap<Reason, u64>,
}

impl Replay {
    /// Empty tiers of these sizes, for which `placement` was made.
    pub fn new(placement: Box<dyn Placement>, slots: TierSlots, costs: MemoryCosts) -> Replay {
        Replay {
            placement,
            slots,
            costs,
            index: HashMap::new(),
            cached: vec![None; slots.all() as usize],
            free: [(0..slots.dram).rev().collect(), (slots.dram..slots.all()).rev().collect()],
            ends: HashMap::new(),
            order: Order::OutOfOrder,
            counts: Counts::default(),
            reasons: BTreeMap::new(),
        }
    }

    /// Returns what was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns how often the placement decided for each reason.
    pub fn reasons(&self) -> &BTreeMap<Reason, u64> {
        &self.reasons
    }

    /// Returns the blocks that the files below lack.
    pub fn dirty(&self) -> u64 {
        self.cached.iter().flatten().filter(|cached| cached.is_dirty).count() as u64
    }

    /// Carries out a request; it comes at its own time, or when the one before it ended.
    pub fn request(&mut self, request: &IoRequest) {
        let now_ms = request.now_ms.max(self.counts.ps / 1_000_000_000);
        let request = IoRequest { now_ms, ..*request };
        let end = request.offset + u64::from(request.bytes);
        let before = self.ends.insert((request.context, request.file), end);
        self.order = if before == Some(request.offset) { Order::InOrder } else { Order::OutOfOrder };
        self.counts.requests += 1;
        self.counts.ps += self.costs.request;
        self.placement.begin(&request);
        for (page, bytes) in request.pages() {
            self.page(&request, page, bytes);
            self.order = Order::InOrder;
        }
        for _ in 0..WORK_STEPS_MAX {
            let Some(work) = self.placement.work(self.free()) else { break };
            self.work(work);
        }
    }

    fn free(&self) -> FreeSlots {
        let free = |nth: usize| u32::try_from(self.free[nth].len()).expect("made from a u32");
        FreeSlots { dram: free(0), nvm: free(1) }
    }

    fn page(&mut self, request: &IoRequest, page: FilePage, bytes: u32) {
        let slot = self.index.get(&page).copied();
        self.counts.pages += 1;
        match slot.map(|slot| self.slots.tier(slot)) {
            Some(Tier::Dram) => self.counts.hits_dram += 1,
            Some(Tier::Nvm) => self.counts.hits_nvm += 1,
            None => {}
        }
        let decision = self.placement.place(request, page, slot, self.free());
        *self.reasons.entry(decision.reason()).or_default() += 1;
        match request.kind {
            IoKind::Read => self.read(page, bytes, slot, decision),
            IoKind::Write | IoKind::SyncWrite => {
                let slot = self.move_for_write(page, bytes, slot, decision);
                self.store(request.kind, page, bytes, slot);
            }
        }
    }

    fn read(&mut self, page: FilePage, bytes: u32, slot: Option<u32>, decision: Decision) {
        match slot {
            Some(slot) => self.read_tier(self.slots.tier(slot), bytes),
            None => {
                self.read_below();
                self.copy_dram(bytes);
            }
        }
        match (slot, target(decision)) {
            (Some(slot), Some(tier)) => self.migrate(slot, tier),
            (Some(slot), None) if matches!(decision, Decision::Below(_)) => self.drop_block(slot),
            (None, Some(tier)) => {
                let entered = self.enter(Cached { page, is_dirty: false }, tier);
                self.write_tier(tier, entered.map_or(0, |_| BLOCK_LINES));
            }
            _ => {}
        }
    }

    /// Moves the block of a page that is written to its place; returns its slot there.
    fn move_for_write(&mut self, page: FilePage, bytes: u32, slot: Option<u32>, decision: Decision) -> Option<u32> {
        let is_whole = u64::from(bytes) == PAGE_BYTES;
        match (slot, target(decision)) {
            (Some(from), Some(tier)) if is_whole => {
                // All of it is written, so that nothing is copied.
                if self.slots.tier(from) == Tier::Nvm {
                    self.write_back(from);
                }
                self.counts.moved += 1;
                let slot = self.enter(Cached { page, is_dirty: true }, tier);
                self.leave(from);
                slot
            }
            (Some(from), Some(tier)) => {
                self.migrate(from, tier);
                self.index.get(&page).copied()
            }
            (Some(from), None) if matches!(decision, Decision::Below(_)) => {
                self.drop_block(from);
                None
            }
            (None, Some(tier)) => {
                let slot = self.enter(Cached { page, is_dirty: true }, tier)?;
                if !is_whole {
                    self.read_below();
                    self.write_tier(tier, BLOCK_LINES);
                }
                Some(slot)
            }
            (slot, None) => slot,
        }
    }

    /// Stores the bytes of a write where its block lies by now.
    fn store(&mut self, kind: IoKind, page: FilePage, bytes: u32, slot: Option<u32>) {
        let tier = slot.map(|slot| self.slots.tier(slot));
        match tier {
            Some(Tier::Nvm) => self.write_nvm(bytes),
            Some(Tier::Dram) => self.copy_dram(bytes),
            None => {
                if u64::from(bytes) < PAGE_BYTES {
                    self.read_below();
                }
                self.write_below();
            }
        }
        let mut is_dirty = true;
        if kind == IoKind::SyncWrite && tier != Some(Tier::Nvm) {
            if tier.is_some() {
                self.write_below();
            }
            self.counts.ps += self.costs.below_flush;
            is_dirty = false;
        }
        if let Some(slot) = slot {
            self.cached[slot as usize] = Some(Cached { page, is_dirty });
        }
    }

    /// Takes a slot of `tier` for a block, evicting another if none is free. None if no block may
    /// go.
    fn enter(&mut self, block: Cached, tier: Tier) -> Option<u32> {
        let nth = usize::from(tier == Tier::Nvm);
        if self.free[nth].is_empty() {
            let cached = &self.cached;
            let mut condition = |slot: u32| match cached[slot as usize] {
                Some(Cached { is_dirty: true, .. }) => Condition::Dirty,
                _ => Condition::Clean,
            };
            let evicted = self.placement.evict(tier, &mut condition)?.slot;
            self.write_back(evicted);
            self.empty(evicted);
        }
        let slot = self.free[nth].pop().expect("one was freed");
        self.cached[slot as usize] = Some(block);
        self.index.insert(block.page, slot);
        self.placement.insert(slot, block.page);
        Some(slot)
    }

    /// Moves a block to another tier; if no block there may go, it stays out of both. A block that
    /// only NVM has is written back before.
    fn migrate(&mut self, from: u32, to: Tier) {
        if to == Tier::Dram {
            self.write_back(from);
        }
        let block = self.cached[from as usize].expect("it has a block");
        if self.enter(block, to).is_some() {
            self.read_tier(self.slots.tier(from), u32::try_from(PAGE_BYTES).expect("small"));
            self.write_tier(to, BLOCK_LINES);
            self.counts.moved += 1;
            self.leave(from);
        } else {
            self.drop_block(from);
        }
    }

    fn drop_block(&mut self, slot: u32) {
        self.write_back(slot);
        self.leave(slot);
    }

    fn leave(&mut self, slot: u32) {
        self.placement.remove(slot);
        self.empty(slot);
    }

    fn empty(&mut self, slot: u32) {
        let cached = self.cached[slot as usize].take().expect("it has a block");
        if self.index.get(&cached.page) == Some(&slot) {
            self.index.remove(&cached.page);
        }
        self.free[usize::from(self.slots.tier(slot) == Tier::Nvm)].push(slot);
    }

    fn write_back(&mut self, slot: u32) {
        let cached = self.cached[slot as usize].as_mut().expect("it has a block");
        if std::mem::take(&mut cached.is_dirty) {
            self.read_tier(self.slots.tier(slot), u32::try_from(PAGE_BYTES).expect("small"));
            self.write_below();
        }
    }

    fn work(&mut self, work: Work) {
        match work {
            Work::Reclaim { extent, from, .. } => {
                for slot in self.blocks_of(extent, from) {
                    match from {
                        Tier::Dram if self.slots.nvm > 0 => self.migrate(slot, Tier::Nvm),
                        _ => self.drop_block(slot),
                    }
                }
            }
            Work::Migrate { extent, .. } => {
                for slot in self.blocks_of(extent, Tier::Nvm) {
                    if self.free().dram > 0 {
                        self.migrate(slot, Tier::Dram);
                    }
                }
            }
        }
    }

    fn blocks_of(&self, extent: FileExtent, tier: Tier) -> Vec<u32> {
        let slots = extent.pages().filter_map(|page| self.index.get(&page).copied());
        slots.filter(|slot| self.slots.tier(*slot) == tier).collect()
    }
}

/// The tier that a block shall move to.
fn target(decision: Decision) -> Option<Tier> {
    match decision {
        Decision::ToDram(_) => Some(Tier::Dram),
        Decision::ToNvm(_) => Some(Tier::Nvm),
        Decision::Stay(_) | Decision::Below(_) => None,
    }
}

/// What single acts cost.
impl Replay {
    fn read_below(&mut self) {
        self.counts.read_below += 1;
        self.counts.ps += self.costs.below_read;
    }

    fn write_below(&mut self) {
        self.counts.written_below += 1;
        self.counts.ps += self.costs.below_write;
    }

    fn copy_dram(&mut self, bytes: u32) {
        self.counts.ps += u64::from(bytes.div_ceil(LINE_BYTES)) * self.costs.dram_line;
    }

    fn read_tier(&mut self, tier: Tier, bytes: u32) {
        match tier {
            Tier::Dram => self.copy_dram(bytes),
            Tier::Nvm => {
                let whole = u64::from(self.placement.nvm_bytes(bytes)).min(PAGE_BYTES);
                self.read_lines(whole / u64::from(LINE_BYTES));
            }
        }
    }

    fn write_tier(&mut self, tier: Tier, lines: u64) {
        match tier {
            Tier::Dram => self.counts.ps += lines * self.costs.dram_line,
            Tier::Nvm => self.write_lines(lines),
        }
    }

    /// A write to a block in NVM: of less than is written at once, the rest is read before.
    fn write_nvm(&mut self, bytes: u32) {
        let whole = self.placement.nvm_bytes(bytes).min(u32::try_from(PAGE_BYTES).expect("small"));
        if whole > bytes.next_multiple_of(LINE_BYTES) {
            self.read_lines(u64::from(whole / LINE_BYTES));
        }
        self.write_lines(u64::from(whole / LINE_BYTES));
    }

    fn read_lines(&mut self, lines: u64) {
        self.counts.lines_read += lines;
        self.counts.ps += lines * self.of_line(self.costs.nvm_read);
    }

    fn of_line(&self, cost: LineCost) -> u64 {
        match self.order {
            Order::InOrder => cost.in_order,
            Order::OutOfOrder => cost.out_of_order,
        }
    }

    fn write_lines(&mut self, lines: u64) {
        self.counts.lines_written += lines;
        self.counts.ps += lines * self.of_line(self.costs.nvm_write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::placement::NamedPlacement;

    const SLOTS: TierSlots = TierSlots { dram: 2, nvm: 2 };

    const IN_NVM: TierSlots = TierSlots { dram: 0, nvm: 4 };

    fn replay(named: NamedPlacement) -> Replay {
        Replay::new(named.over(SLOTS), SLOTS, MemoryCosts::OPTANE)
    }

    fn io(kind: IoKind, page: u64, bytes: u32) -> IoRequest {
        IoRequest { file: 1, offset: page * PAGE_BYTES, bytes, kind, context: 1, now_ms: 0 }
    }

    #[test]
    fn counts_and_times_of_single_requests_are_exact() {
        let mut replay = Replay::new(NamedPlacement::Cheetah.over(IN_NVM), IN_NVM, MemoryCosts::OPTANE);
        let costs = MemoryCosts::OPTANE;
        replay.request(&io(IoKind::Read, 0, 4096));
        let filled = costs.request + costs.below_read + 16 * costs.dram_line + 16 * costs.nvm_write.out_of_order;
        assert_eq!((replay.counts().read_below, replay.counts().lines_written, replay.counts().ps), (1, 16, filled));
        let before = replay.counts();
        replay.request(&io(IoKind::SyncWrite, 0, 300));
        let counts = replay.counts().since(&before);
        // A block of 1 KiB: what was in it is read, and all of it written.
        assert_eq!((counts.hits_nvm, counts.lines_read, counts.lines_written), (1, 4, 4));
        assert_eq!(counts.ps, costs.request + 4 * costs.nvm_read.out_of_order + 4 * costs.nvm_write.out_of_order);
    }

    #[test]
    fn a_dirty_block_is_written_below_once() {
        let mut replay = replay(NamedPlacement::Lru);
        (0..3).for_each(|_| replay.request(&io(IoKind::Write, 0, 4096)));
        (1..5).for_each(|page| replay.request(&io(IoKind::Read, page, 4096)));
        assert_eq!((replay.counts().written_below, replay.counts().hits(), replay.dirty()), (1, 2, 0));
    }

    #[test]
    fn a_partial_write_needs_the_rest_of_its_block() {
        let mut replay = replay(NamedPlacement::Lru);
        replay.request(&io(IoKind::Write, 0, 100));
        assert_eq!(replay.counts().read_below, 1);
        replay.request(&io(IoKind::Write, 0, 100));
        assert_eq!((replay.counts().read_below, replay.dirty()), (1, 1));
    }

    #[test]
    fn what_goes_on_in_order_costs_less() {
        let mut replay = Replay::new(NamedPlacement::Cheetah.over(IN_NVM), IN_NVM, MemoryCosts::OPTANE);
        let costs = MemoryCosts::OPTANE;
        replay.request(&io(IoKind::SyncWrite, 0, 4096));
        let first = replay.counts().ps;
        replay.request(&io(IoKind::SyncWrite, 1, 4096));
        assert_eq!(
            first - (replay.counts().ps - first),
            16 * (costs.nvm_write.out_of_order - costs.nvm_write.in_order)
        );
    }
}
