//! Which blocks of the disk are cached where: a table cut into stripes, each under a lock of its
//! own.
//!
//! A stripe's lock guards the entries of its blocks too. Whoever locks several takes them in
//! ascending order.
//!
//! The replacement policy knows clean blocks only, as no other can go: a block that turns dirty
//! leaves it, and comes anew when the disk has it. So a search for victims never has to pass over
//! what waits for the disk, and writes of dirty blocks are not told at all. The rest is told in
//! batches, so that the policy's one lock is taken rarely; until then it is a little behind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use tidegate_media::sync::{Mutex, SpinGuard, SpinLock};
use tidegate_policy::evict::{Evict, Replacement};

/// What is known of a cached block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    pub(crate) entry: u32,
    pub(crate) block: u32,
    pub(crate) counter: u16,
    pub(crate) state: BlockState,
    /// Whether the entry's first word is known to be durable.
    pub(crate) named: bool,
    /// The side of the last cut on which the block was committed, if it is dirty: see
    /// `destage/ordered.rs`.
    pub(crate) side: Side,
}

/// Cuts in the order of commits part them into those on the one side and those on the other, in
/// turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    #[default]
    Even,
    Odd,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Even => Side::Odd,
            Side::Odd => Side::Even,
        }
    }
}

/// Sweeps one after the other that postpone the same block, at most: the one after them writes it.
pub const POSTPONED_MAX: usize = 2;

/// How a cached block stands to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// The disk holds the same bytes.
    Clean,
    /// The disk holds the same bytes, and the cache forgets them when the process ends: the block's
    /// entry is free, durably.
    Volatile,
    /// Only the cache holds it.
    Dirty,
    /// Dirty, and as many sweeps of destaging have left it to the next one: from one to
    /// [`POSTPONED_MAX`].
    Postponed(u8),
    /// Dirty, and somebody is writing it to the disk: nobody else may meanwhile.
    Destaging,
    /// Dirty and being written to the disk, and committed anew since it was copied.
    Overtaken,
}

impl BlockState {
    /// After a commit.
    pub(crate) fn committed(self) -> BlockState {
        match self {
            BlockState::Clean | BlockState::Volatile | BlockState::Dirty => BlockState::Dirty,
            // What the disk has of it is as old as before.
            BlockState::Postponed(_) => self,
            BlockState::Destaging | BlockState::Overtaken => BlockState::Overtaken,
        }
    }

    /// After a sweep has left it to the next one, if it may.
    fn postponed(self) -> Option<BlockState> {
        match self {
            BlockState::Dirty => Some(BlockState::Postponed(1)),
            BlockState::Postponed(times) if usize::from(times) < POSTPONED_MAX => {
                Some(BlockState::Postponed(times + 1))
            }
            BlockState::Postponed(_)
            | BlockState::Clean
            | BlockState::Volatile
            | BlockState::Destaging
            | BlockState::Overtaken => None,
        }
    }

    pub(crate) fn is_dirty(self) -> bool {
        !matches!(self, BlockState::Clean | BlockState::Volatile)
    }

    /// Whether it is dirty, and nobody writes it to the disk.
    pub(crate) fn waits(self) -> bool {
        matches!(self, BlockState::Dirty | BlockState::Postponed(_))
    }
}

/// A part of the table.
#[derive(Default)]
pub(crate) struct IndexStripe {
    map: HashMap<u64, Cached, BuildHasherDefault<Mixing>>,
    dirty: u32,
    /// Grows when a block goes that may have been written, or is written past the cache.
    changes: u64,
    /// The side of commits from now on.
    side: Side,
    /// For each block of the group under way that was committed again since the cut, where its
    /// content of the cut lies.
    kept: BTreeMap<u64, u32>,
    uses: Vec<Use>,
    pub(crate) counts: StripeCounts,
}

/// What happened to a stripe's blocks.
#[derive(Clone, Copy, Default)]
pub(crate) struct StripeCounts {
    pub(crate) read_hits: u64,
    pub(crate) read_misses: u64,
    pub(crate) write_hits: u64,
    pub(crate) write_misses: u64,
    pub(crate) commits: u64,
    pub(crate) fills: u64,
    pub(crate) evictions: u64,
}

/// What the policy has not been told yet.
#[derive(Clone, Copy)]
enum Use {
    /// A clean block: read in, or written to the disk.
    Came(u32, u64),
    Asked(u32),
    /// It turned dirty.
    Left(u32),
}

/// The table.
pub(crate) struct Index {
    stripes: Box<[Padded]>,
    policy: Mutex<Box<dyn Evict>>,
}

#[repr(align(128))]
struct Padded(SpinLock<IndexStripe>);

const BLOCKS_PER_STRIPE: u32 = 64;
const STRIPES_MAX: u32 = 1024;
/// Blocks that follow each other are in one stripe, so that a large request takes few locks.
const NEIGHBOURS: u64 = 8;
const USES_MAX: usize = 32;

impl Index {
    pub(crate) fn new(blocks: u32, replacement: Replacement) -> Index {
        let stripes = (blocks / BLOCKS_PER_STRIPE).clamp(1, STRIPES_MAX).next_power_of_two();
        Index {
            stripes: (0..stripes)
                .map(|_| Padded(SpinLock::new(IndexStripe::with_room_for(blocks / stripes))))
                .collect(),
            policy: Mutex::new(replacement.over(blocks)),
        }
    }

    pub(crate) fn stripes(&self) -> usize {
        self.stripes.len()
    }

    pub(crate) fn stripe_of(&self, lba: u64) -> usize {
        let mixed = mix(lba / NEIGHBOURS) >> 40;
        usize::try_from(mixed).expect("24 bits") & (self.stripes.len() - 1)
    }

    #[track_caller]
    pub(crate) fn lock(&self, stripe: usize) -> SpinGuard<'_, IndexStripe> {
        self.stripes[stripe].0.lock()
    }

    #[track_caller]
    pub(crate) fn lock_for(&self, lba: u64) -> SpinGuard<'_, IndexStripe> {
        self.lock(self.stripe_of(lba))
    }

    /// Notes that a block was asked for.
    pub(crate) fn asked(&self, stripe: &mut IndexStripe, cached: Cached) {
        if !cached.state.is_dirty() {
            self.note(stripe, Use::Asked(cached.entry));
        }
    }

    /// Notes that the clean block of `entry` turned dirty.
    pub(crate) fn turned_dirty(&self, stripe: &mut IndexStripe, entry: u32) {
        stripe.dirty += 1;
        self.note(stripe, Use::Left(entry));
    }

    /// Notes that block `lba`, which was dirty, turned clean.
    pub(crate) fn turned_clean(&self, stripe: &mut IndexStripe, lba: u64, entry: u32) {
        stripe.dirty -= 1;
        self.note(stripe, Use::Came(entry, lba));
    }

    /// Adds a block that was not cached.
    pub(crate) fn insert(&self, stripe: &mut IndexStripe, lba: u64, cached: Cached) {
        let before = stripe.map.insert(lba, cached);
        debug_assert_eq!(before, None, "block {lba} is cached once");
        match cached.state {
            BlockState::Clean | BlockState::Volatile => self.note(stripe, Use::Came(cached.entry, lba)),
            BlockState::Dirty | BlockState::Postponed(_) | BlockState::Destaging | BlockState::Overtaken => {
                stripe.dirty += 1
            }
        }
    }

    /// Takes out a clean block that is a victim of the policy.
    pub(crate) fn remove_victim(stripe: &mut IndexStripe, lba: u64) {
        let cached = stripe.map.remove(&lba);
        debug_assert!(cached.is_some_and(|cached| cached.state == BlockState::Clean), "a clean block goes");
        stripe.counts.evictions += 1;
        stripe.changed();
    }

    /// Takes out a victim that only this process knew. The disk has had its bytes all the time.
    pub(crate) fn remove_volatile(stripe: &mut IndexStripe, lba: u64) {
        let cached = stripe.map.remove(&lba);
        debug_assert!(
            cached.is_some_and(|cached| cached.state == BlockState::Volatile),
            "a block that was read in goes"
        );
        stripe.counts.evictions += 1;
    }

    /// Takes out a clean block that is about to come anew, as a dirty one.
    pub(crate) fn remove_overwritten(&self, stripe: &mut IndexStripe, lba: u64) {
        let cached = stripe.map.remove(&lba).expect("the block is cached");
        self.note(stripe, Use::Left(cached.entry));
    }

    /// Up to `wanted` entries that the policy gives up, among those that `may_go`.
    pub(crate) fn victims(&self, wanted: usize, may_go: &mut dyn FnMut(u32) -> bool) -> Vec<u32> {
        let victims = self.choose(wanted, may_go);
        if !victims.is_empty() {
            return victims;
        }
        for stripe in &*self.stripes {
            self.tell(&mut stripe.0.lock());
        }
        self.choose(wanted, may_go)
    }

    /// What may not go turned dirty, and the policy is told so on the way: otherwise every search
    /// would pass over it until its stripe tells. When it turns clean again, the stripe says that
    /// it came.
    fn choose(&self, wanted: usize, may_go: &mut dyn FnMut(u32) -> bool) -> Vec<u32> {
        let mut policy = self.policy.lock();
        let mut turned_dirty = Vec::new();
        let mut is_clean = |entry| {
            let clean = may_go(entry);
            turned_dirty.extend((!clean).then_some(entry));
            clean
        };
        let victims = (0..wanted).map_while(|_| policy.victim(&mut is_clean)).collect();
        turned_dirty.into_iter().for_each(|entry| policy.remove(entry));
        victims
    }

    fn note(&self, stripe: &mut IndexStripe, used: Use) {
        stripe.uses.push(used);
        if stripe.uses.len() >= USES_MAX {
            self.tell(stripe);
        }
    }

    fn tell(&self, stripe: &mut IndexStripe) {
        if stripe.uses.is_empty() {
            return;
        }
        let mut policy = self.policy.lock();
        for used in stripe.uses.drain(..) {
            match used {
                Use::Came(entry, lba) => {
                    // What an older batch of another stripe says of the entry may come after this
                    // one's.
                    policy.remove(entry);
                    policy.insert(entry, lba);
                }
                Use::Asked(entry) => policy.touch(entry),
                Use::Left(entry) => policy.remove(entry),
            }
        }
    }
}

impl IndexStripe {
    /// With room for `blocks` and those by which it may be fuller than others.
    fn with_room_for(blocks: u32) -> IndexStripe {
        let most = (blocks + blocks / 4) as usize;
        IndexStripe {
            map: HashMap::with_capacity_and_hasher(most, BuildHasherDefault::default()),
            ..IndexStripe::default()
        }
    }

    pub(crate) fn get(&self, lba: u64) -> Option<Cached> {
        self.map.get(&lba).copied()
    }

    /// What is known of a block, to be changed; whoever makes a clean one dirty says so by
    /// [`Index::turned_dirty`].
    pub(crate) fn get_mut(&mut self, lba: u64) -> Option<&mut Cached> {
        self.map.get_mut(&lba)
    }

    /// Replaces what is known of a cached block; whoever makes a clean one dirty, or the other way
    /// round, says so by [`Index::turned_dirty`] or [`Index::turned_clean`].
    pub(crate) fn update(&mut self, lba: u64, cached: Cached) {
        *self.map.get_mut(&lba).expect("the block is cached") = cached;
    }

    /// A number that stays the same while what the disk has of blocks that are not cached stays the
    /// same.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// A block went, or is written past the cache.
    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }

    /// The side of a commit now.
    pub(crate) fn side(&self) -> Side {
        self.side
    }

    /// Parts the commits up to now from those that come.
    pub(crate) fn cut(&mut self) {
        debug_assert!(self.kept.is_empty(), "no group is under way");
        self.side = self.side.other();
    }

    /// Whether `cached` is as it was at the last cut, and dirty then.
    pub(crate) fn is_of_the_cut(&self, cached: &Cached) -> bool {
        cached.state.is_dirty() && cached.side != self.side
    }

    /// Gives up the content that block `lba` had as `was`. Returns its block if that is free now:
    /// the group under way may need it.
    pub(crate) fn superseded(&mut self, lba: u64, was: &Cached) -> Option<u32> {
        if !self.is_of_the_cut(was) {
            return Some(was.block);
        }
        self.kept.insert(lba, was.block);
        None
    }

    /// Block `lba` of the group under way, as it was at the cut.
    pub(crate) fn of_the_cut(&self, lba: u64) -> Cached {
        let cached = self.get(lba).expect("a block of a group stays cached");
        Cached { block: self.kept.get(&lba).copied().unwrap_or(cached.block), ..cached }
    }

    /// Where its content of the cut lies if it was committed again since: the group under way needs
    /// that no more.
    pub(crate) fn no_longer_kept(&mut self, lba: u64) -> Option<u32> {
        self.kept.remove(&lba)
    }

    /// Block `lba`, which is as it was at the last cut, is no more of that.
    pub(crate) fn waits_for_the_next_cut(&mut self, lba: u64) {
        let side = self.side;
        self.map.get_mut(&lba).expect("a block of a group stays cached").side = side;
    }

    /// Every block that was dirty at the last cut, and that no group has brought to the disk since.
    pub(crate) fn all_of_the_cut(&self) -> impl Iterator<Item = u64> + '_ {
        let dirty = self.all_dirty().filter(|lba| self.map.get(lba).is_some_and(|cached| self.is_of_the_cut(cached)));
        dirty.chain(self.kept.keys().copied())
    }

    /// Blocks that are cached, dirty ones among them, and older contents that are kept.
    pub(crate) fn fill(&self) -> [u32; 3] {
        let count = |blocks: usize| u32::try_from(blocks).expect("a cache has fewer than 2^32 blocks");
        [count(self.map.len()), self.dirty, count(self.kept.len())]
    }

    /// Every dirty block.
    pub(crate) fn all_dirty(&self) -> impl Iterator<Item = u64> + '_ {
        let any = if self.dirty == 0 { None } else { Some(&self.map) };
        any.into_iter().flatten().filter(|(_, cached)| cached.state.is_dirty()).map(|(lba, _)| *lba)
    }

    /// Every block that the disk has too.
    pub(crate) fn all_clean(&self) -> impl Iterator<Item = u64> + '_ {
        self.map.iter().filter(|(_, cached)| !cached.state.is_dirty()).map(|(lba, _)| *lba)
    }

    /// Leaves block `lba` to the next sweep of destaging, if it is dirty and that has not been done
    /// twice.
    pub(crate) fn postpone(&mut self, lba: u64) -> bool {
        let cached = self.map.get_mut(&lba);
        let left = cached.and_then(|cached| Some((cached.state.postponed()?, cached)));
        left.map(|(state, cached)| cached.state = state).is_some()
    }

    /// The blocks that `entries` name.
    pub(crate) fn named_by(&self, entries: &BTreeSet<u32>) -> Vec<u64> {
        let named = |cached: &Cached| cached.state != BlockState::Volatile && entries.contains(&cached.entry);
        self.map.iter().filter(|(_, cached)| named(cached)).map(|(lba, _)| *lba).collect()
    }
}

/// A hasher for numbers of blocks: one multiplication, both halves folded.
#[derive(Default)]
struct Mixing(u64);

impl Hasher for Mixing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}

/// Spreads the bits of a number over all of a word.
fn mix(number: u64) -> u64 {
    let spread = (number ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
    spread ^ spread >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_victims_looks_at_clean_blocks_only() {
        let index = Index::new(1024, Replacement::Lru);
        let cached =
            |entry, state| Cached { entry, block: entry, counter: 0, state, named: true, side: Side::default() };
        for entry in 0..1024 {
            let state = if entry < 1000 { BlockState::Dirty } else { BlockState::Clean };
            index.insert(&mut index.lock_for(entry.into()), entry.into(), cached(entry, state));
        }
        let mut looks = 0;
        let chosen = index.victims(4, &mut |entry| {
            looks += 1;
            entry != 1001
        });
        assert!(chosen.len() == 4 && chosen.iter().all(|entry| *entry >= 1000), "{chosen:?}");
        assert!(looks <= 2 * 4, "{looks}");
        let mut asked = Vec::new();
        index.victims(2, &mut |entry| {
            asked.push(entry);
            true
        });
        assert!(asked.len() == 2 && !asked.contains(&1001), "{asked:?}: what turned dirty is not asked about twice");

        let mut none_may_go = |_| false;
        (1000..1024).for_each(|entry| index.turned_dirty(&mut index.lock_for(u64::from(entry)), entry));
        assert!(index.victims(1, &mut none_may_go).is_empty());
        assert!(index.victims(1, &mut |entry| panic!("{entry} is known, and dirty")).is_empty());
        index.turned_clean(&mut index.lock_for(7), 7, 7);
        assert_eq!(index.victims(9, &mut |_| true), [7]);
    }
}
