//! Lanes of one arena: each owns a free block and a pair of flog slots, and serves one write at a
//! time.
//!
//! 1. A lane's free block is named by no map entry, and is its newest flog entry's `old`.
//! 2. A lane remembers its last store to the map until a later write of the lane has flushed the
//!    line and passed a fence; then `fences` grows.
//! 3. A lane is given back only after a fence behind whatever was streamed for it. Streamed stores
//!    are not kept in order with that of the lock's release: they might reach its free block after
//!    those of the lane's next holder.

use std::ops::Deref;
use tidegate_layout::btt::{Arena, FlogHalf, SlotPair, next_seq};
use tidegate_media::sync::{AtomicU64, Ordering, SpinGuard, SpinLock};
use tidegate_media::{Region, Result, Sealed};

/// How many covering fences a lane has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneFences(u64);

/// A store to the map by a lane, not yet known to be fenced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneStore {
    /// Where the stored word lies in the region.
    pub(crate) at: u64,
    /// The lane, and how many fences it had passed when it stored.
    pub(crate) lane: u32,
    pub(crate) fences: LaneFences,
}

/// All lanes of an arena.
pub(crate) struct Lanes {
    lanes: Box<[Padded<SpinLock<Lane>>]>,
    fences: Box<[Padded<AtomicU64>]>,
}

/// What the holder of a lane works with.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u32,
    /// The block the next write goes to.
    free: u32,
    /// Which two slots of the group are in use, and which of them, 0 or 1, the next write
    /// overwrites.
    pair: SlotPair,
    next_slot: usize,
    next_seq: u32,
    /// Where the lane's last store to the map lies in the region, while no fence covers it.
    unfenced: Option<u64>,
    /// How many numbers were drawn.
    writes: u32,
}

impl Lanes {
    pub(crate) fn new(lanes: Vec<Lane>) -> Lanes {
        let fences = lanes.iter().map(|_| Padded(AtomicU64::new(0))).collect();
        Lanes { lanes: lanes.into_iter().map(|lane| Padded(SpinLock::new(lane))).collect(), fences }
    }

    /// A lane for the thread `token`: its own if that is free, else any free one, else its own once
    /// it is free.
    pub(crate) fn take(&self, token: u32) -> SpinGuard<'_, Lane> {
        let own = token as usize % self.lanes.len();
        // Apart from the search, which costs more than the rest of a write's bookkeeping if it is
        // inlined.
        self.lanes[own].try_lock().unwrap_or_else(|| self.take_any(own))
    }

    /// A free lane, the search beginning at `own`; else `own`, once it is free.
    #[cold]
    fn take_any(&self, own: usize) -> SpinGuard<'_, Lane> {
        let (before, after) = self.lanes.split_at(own);
        let free = after.iter().chain(before).find_map(|lane| lane.try_lock());
        free.unwrap_or_else(|| self.lanes[own].lock())
    }

    /// Calls `act` on every lane, each as soon as it is free, and returns how many there are.
    pub(crate) fn each(&self, mut act: impl FnMut(&mut Lane) -> Result<()>) -> Result<u32> {
        let mut count = 0;
        for lane in &self.lanes {
            act(&mut lane.lock())?;
            count += 1;
        }
        Ok(count)
    }

    /// How many covering fences `lane` has passed.
    pub(crate) fn fences(&self, lane: u32) -> LaneFences {
        // Relaxed: asked by the lane's holder, who is the only one to change it.
        LaneFences(self.fences[lane as usize].load(Ordering::Relaxed))
    }

    /// Whether `lane` has passed a covering fence since it had passed `fences`.
    pub(crate) fn fenced_since(&self, lane: u32, fences: LaneFences) -> bool {
        // Acquire pairs with the Release of `passed_fence`: the fence came before.
        self.fences[lane as usize].load(Ordering::Acquire) != fences.0
    }

    fn passed_fence(&self, lane: u32) {
        let LaneFences(count) = self.fences(lane);
        // Release pairs with the Acquire of `fenced_since`. A plain store: only the lane's holder
        // changes it.
        self.fences[lane as usize].store(count + 1, Ordering::Release);
    }
}

impl Lane {
    /// The lane `number` whose newest flog entry lies in slot `newest` of `pair` and has number
    /// `seq`.
    pub(crate) fn new(number: u32, pair: SlotPair, newest: usize, seq: u32, free: u32) -> Lane {
        Lane { number, free, pair, next_slot: 1 - newest, next_seq: next_seq(seq), unfenced: None, writes: 0 }
    }

    /// The block the next write goes to.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// A number for each write that levelling of wear counts, as good as random; the lane's free
    /// block makes others of them after each opening.
    pub(crate) fn draw(&mut self) -> u64 {
        self.writes = self.writes.wrapping_add(1);
        mix(mix(u64::from(self.writes) << 32 | u64::from(self.free)) ^ u64::from(self.number))
    }

    /// The lane's number in its arena.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Fences what the calling thread streamed for this lane, and the lane's last store to the map
    /// with it. That is flushed only here, not where it was stored: a locked instruction soon after
    /// a flush waits for it, and the next lock is one.
    pub(crate) fn fence_data<R: Region>(&mut self, region: &R, lanes: &Lanes) -> Result<(), Sealed> {
        if let Some(at) = self.unfenced {
            region.flush(at, 8);
        }
        region.fence()?;
        if self.unfenced.take().is_some() {
            lanes.passed_fence(self.number);
        }
        Ok(())
    }

    /// Streams the first word of the lane's next flog entry: that `lba` is about to leave
    /// `replaced`. It counts for nothing before the second word is stored, and is durable by then:
    /// the caller passes a fence in between, [`Lane::fence_data`] as a rule.
    #[track_caller]
    pub(crate) fn log_replaced<R: Region>(&self, region: &R, arena: &Arena, lba: u32, replaced: u32) {
        let [first, _] = FlogHalf::new(lba, replaced, self.free, self.next_seq).words();
        region.stream(self.flog_at(arena), &first.to_le_bytes());
    }

    /// Streams the second word of the flog entry, which commits the move to the lane's free block,
    /// and fences it.
    pub(crate) fn log_new<R: Region>(&self, region: &R, arena: &Arena) -> Result<(), Sealed> {
        let [_, second] = FlogHalf::new(0, 0, self.free, self.next_seq).words();
        region.stream(self.flog_at(arena) + FlogHalf::SECOND_WORD_AT, &second.to_le_bytes());
        region.fence()
    }

    fn flog_at(&self, arena: &Arena) -> u64 {
        let slot = self.pair.slots()[self.next_slot];
        arena.flog_at(self.number) + (slot * size_of::<FlogHalf>()) as u64
    }

    /// After the map's word at `at` was stored: the lane's free block is now `old`. Inlined: what
    /// it answers would else be stored to the stack in words and loaded as vectors, which waits for
    /// the fence before.
    #[inline(always)]
    pub(crate) fn advance(&mut self, lanes: &Lanes, old: u32, at: u64) -> LaneStore {
        self.free = old;
        self.next_slot = 1 - self.next_slot;
        self.next_seq = next_seq(self.next_seq);
        self.unfenced = Some(at);
        LaneStore { at, lane: self.number, fences: lanes.fences(self.number) }
    }
}

/// Spreads what is nearly equal over all 64 bits (the finaliser of SplitMix64).
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A value on cache lines of its own, so that neighbours in a row do not slow each other.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
