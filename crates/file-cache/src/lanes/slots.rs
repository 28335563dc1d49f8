//! What the entries of a lane say, as DRAM knows it: packed, as there may be millions.
//!
//! Each entry has one standing at a time:
//!
//! | standing | the entry |
//! | --- | --- |
//! | [`Standing::Free`] | may be used |
//! | [`Standing::OutOfSync`] | counts, newer than the file below: it is in its file's chain |
//! | [`Standing::Clean`] | is void, its bytes are below too |
//! | [`Standing::Marked`] | likewise, and the medium says so, or may still say so |
//! | [`Standing::Dying`] | has no newest byte; the store that frees it is not durable yet |
//!
//! A *chain* links the entries of a file by their numbers, those of the oldest version first.

use tidegate_layout::file_cache::{Class, Extent, LENGTH_BITS};

/// No entry has this number.
const NONE: u32 = u32::MAX;

/// Bits of a [`Packed::what`], from the lowest: newest bytes, class, standing.
const NEWEST_BITS: u32 = LENGTH_BITS;
const CLASS_BITS: u32 = 3;

const _: () = assert!(Class::ALL.len() <= 1 << CLASS_BITS && Class::bytes_max() < 1 << NEWEST_BITS);

/// The entries of a lane.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Those up to the greatest number that was ever used.
    packed: Vec<Packed>,
    /// How many there are.
    most: u32,
    /// Free ones below `packed`'s end, the next one last.
    free: Vec<u32>,
    /// Newest bytes of those out of sync.
    out_of_sync_bytes: u64,
    /// Newest bytes of the clean ones, marked or not.
    clean_bytes: u64,
}

/// What an entry says that is not free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) extent: Extent,
    pub(crate) version: u64,
    /// Its bytes that no newer entry has.
    pub(crate) newest: u64,
    pub(crate) standing: Standing,
}

/// What an entry is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Free,
    OutOfSync,
    Clean,
    Marked,
    Dying,
}

impl Standing {
    /// Whether the bytes are below too.
    pub(crate) fn is_clean(self) -> bool {
        matches!(self, Standing::Clean | Standing::Marked)
    }
}

/// Entries one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

/// An entry in 36 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Packed {
    offset: u64,
    /// Version and length, as in the entry's last word.
    state: u64,
    file: u32,
    unit: u32,
    what: u32,
    before: u32,
    after: u32,
}

const _: () = assert!(size_of::<Packed>() == 36);

impl Default for Chain {
    fn default() -> Chain {
        Chain { first: NONE, last: NONE }
    }
}

impl Chain {
    pub(crate) fn is_empty(self) -> bool {
        self.first == NONE
    }

    /// The oldest entry.
    pub(crate) fn first(self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

impl Packed {
    const FREE: Packed = Packed { offset: 0, state: 0, file: 0, unit: 0, what: 0, before: NONE, after: NONE };

    fn version(self) -> u64 {
        self.state >> LENGTH_BITS
    }

    fn length(self) -> u32 {
        u32::try_from(self.state & ((1 << LENGTH_BITS) - 1)).expect("a length has 21 bits")
    }

    fn newest(self) -> u32 {
        self.what & ((1 << NEWEST_BITS) - 1)
    }

    fn class(self) -> Class {
        Class::ALL[(self.what >> NEWEST_BITS & ((1 << CLASS_BITS) - 1)) as usize]
    }

    fn standing(self) -> Standing {
        match self.what >> (NEWEST_BITS + CLASS_BITS) {
            0 => Standing::Free,
            1 => Standing::OutOfSync,
            2 => Standing::Clean,
            3 => Standing::Marked,
            _ => Standing::Dying,
        }
    }

    fn set_what(&mut self, newest: u32, class: Class, standing: Standing) {
        let standing = match standing {
            Standing::Free => 0,
            Standing::OutOfSync => 1,
            Standing::Clean => 2,
            Standing::Marked => 3,
            Standing::Dying => 4,
        };
        self.what = (standing << CLASS_BITS | u32::from(class.number())) << NEWEST_BITS | newest;
    }

    fn unpacked(self) -> Slot {
        let (offset, length, class) = (self.offset, self.length(), self.class());
        let extent = Extent { file: self.file, offset, length, unit: self.unit, class };
        Slot { extent, version: self.version(), newest: u64::from(self.newest()), standing: self.standing() }
    }
}

impl Slots {
    /// So many entries, all free.
    pub(crate) fn new(most: u32) -> Slots {
        Slots { packed: Vec::new(), most, free: Vec::new(), out_of_sync_bytes: 0, clean_bytes: 0 }
    }

    /// What an entry says, unless it is free.
    pub(crate) fn get(&self, number: u32) -> Option<Slot> {
        let packed = self.packed.get(number as usize)?;
        (packed.standing() != Standing::Free).then(|| packed.unpacked())
    }

    /// Every entry that is not free.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u32, Slot)> {
        let used = (0..).zip(&self.packed).filter(|(_, packed)| packed.standing() != Standing::Free);
        used.map(|(number, packed)| (number, packed.unpacked()))
    }

    /// What an entry says that is known to be in use.
    pub(crate) fn used(&self, number: u32) -> Slot {
        self.get(number).expect("whoever has bytes is in use")
    }

    /// Bytes in entries that are newer than the file below, and newest.
    pub(crate) fn out_of_sync_bytes(&self) -> u64 {
        self.out_of_sync_bytes
    }

    /// Bytes in clean entries, and newest. An entry without one is freed, so 0 says that there is
    /// no clean one.
    pub(crate) fn clean_bytes(&self) -> u64 {
        self.clean_bytes
    }

    /// A free entry, which is the caller's until it is used or given back.
    pub(crate) fn take_free(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        let next = u32::try_from(self.packed.len()).ok().filter(|next| *next < self.most)?;
        self.packed.push(Packed::FREE);
        Some(next)
    }

    /// Takes this entry if it is free.
    pub(crate) fn take_this(&mut self, number: u32) {
        self.free.retain(|free| *free != number);
    }

    /// How many entries are free.
    pub(crate) fn free_entries(&self) -> u32 {
        let used = self.packed.len().saturating_sub(self.free.len());
        self.most.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// The opposite of [`Slots::take_free`].
    pub(crate) fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// All entries that are used from now on were used before. The others are free.
    pub(crate) fn begin(&mut self, used: impl Iterator<Item = u32>) {
        let end = used.max().map_or(0, |greatest| greatest + 1);
        self.packed = vec![Packed::FREE; end as usize];
    }

    /// The end of [`Slots::begin`]: what was not used is free.
    pub(crate) fn began(&mut self) {
        let is_free = |(_, packed): &(u32, &Packed)| packed.standing() == Standing::Free;
        self.free = (0..).zip(&self.packed).filter(is_free).map(|(number, _)| number).collect();
        self.free.reverse();
    }

    /// An entry that was taken comes to say this, and is the newest of its file's `chain`.
    pub(crate) fn occupy(&mut self, number: u32, extent: &Extent, version: u64, chain: &mut Chain) {
        self.fill(number, extent, version, Standing::OutOfSync);
        self.append(chain, number);
    }

    /// An entry that was taken comes to say this, and is a marked one.
    pub(crate) fn occupy_clean(&mut self, number: u32, extent: &Extent, version: u64) {
        self.fill(number, extent, version, Standing::Marked);
    }

    fn fill(&mut self, number: u32, extent: &Extent, version: u64, standing: Standing) {
        let packed = &mut self.packed[number as usize];
        packed.offset = extent.offset;
        packed.state = version << LENGTH_BITS | u64::from(extent.length);
        packed.file = extent.file;
        packed.unit = extent.unit;
        packed.set_what(extent.length, extent.class, standing);
        self.count(standing, |bytes| bytes + u64::from(extent.length));
    }

    /// The entry has this length.
    pub(crate) fn set_length(&mut self, number: u32, length: u32) {
        let packed = &mut self.packed[number as usize];
        packed.state = packed.version() << LENGTH_BITS | u64::from(length);
    }

    /// The entry got so many bytes behind the others, and has the newest copy of them.
    pub(crate) fn lengthen(&mut self, number: u32, bytes: u32) {
        let packed = &mut self.packed[number as usize];
        packed.set_what(packed.newest() + bytes, packed.class(), packed.standing());
        let (standing, length) = (packed.standing(), packed.length() + bytes);
        self.count(standing, |all| all + u64::from(bytes));
        self.set_length(number, length);
    }

    /// So many of its bytes have a newer copy, or are no more. Says how many are its own still.
    pub(crate) fn lose(&mut self, number: u32, bytes: u64) -> u64 {
        let packed = &mut self.packed[number as usize];
        let lost = u32::try_from(bytes).expect("a block is small");
        packed.set_what(packed.newest() - lost, packed.class(), packed.standing());
        let (standing, left) = (packed.standing(), packed.newest());
        self.count(standing, |all| all - bytes);
        u64::from(left)
    }

    /// An entry out of sync, in its file's `chain`, or a marked one, is to be freed by a store that
    /// is not durable yet. False for another one: it needs none.
    pub(crate) fn begin_to_die(&mut self, number: u32, chain: &mut Chain) -> bool {
        match self.packed[number as usize].standing() {
            Standing::OutOfSync => self.unlink(chain, number),
            Standing::Marked => {}
            Standing::Free | Standing::Clean | Standing::Dying => return false,
        }
        self.stand(number, Standing::Dying);
        true
    }

    /// A clean entry is marked on the medium from now on, or no longer.
    pub(crate) fn mark(&mut self, number: u32, standing: Standing) {
        self.stand(number, standing);
    }

    /// The entry is free, and so is its block. `None`: it was before. One that is out of sync has
    /// no chain any more.
    pub(crate) fn free(&mut self, number: u32) -> Option<Extent> {
        let slot = self.get(number)?;
        self.stand(number, Standing::Free);
        self.free.push(number);
        Some(slot.extent)
    }

    /// An entry of `chain` has this version from now on, the newest of all.
    pub(crate) fn renew(&mut self, number: u32, version: u64, chain: &mut Chain) {
        self.unlink(chain, number);
        let packed = &mut self.packed[number as usize];
        packed.state = version << LENGTH_BITS | u64::from(packed.length());
        self.append(chain, number);
    }

    /// The entries of `chain` up to `version` are clean from now on, and no longer in it: these.
    pub(crate) fn clean_up_to(&mut self, chain: &mut Chain, version: u64) -> Vec<u32> {
        let mut brought = Vec::new();
        while let Some(number) = chain.first()
            && self.packed[number as usize].version() <= version
        {
            self.unlink(chain, number);
            self.stand(number, Standing::Clean);
            brought.push(number);
        }
        brought
    }

    /// The entries of a chain, the oldest first.
    pub(crate) fn of(&self, chain: Chain) -> impl Iterator<Item = (u32, Slot)> + '_ {
        let next = |number: &u32| Some(self.packed[*number as usize].after).filter(|after| *after != NONE);
        std::iter::successors(chain.first(), next).map(|number| (number, self.packed[number as usize].unpacked()))
    }

    /// The entries of a chain up to `version`.
    pub(crate) fn up_to(&self, chain: Chain, version: u64) -> impl Iterator<Item = (u32, Slot)> + '_ {
        self.of(chain).take_while(move |(_, slot)| slot.version <= version)
    }

    fn stand(&mut self, number: u32, standing: Standing) {
        let packed = &mut self.packed[number as usize];
        let (before, newest) = (packed.standing(), packed.newest());
        packed.set_what(newest, packed.class(), standing);
        self.count(before, |bytes| bytes - u64::from(newest));
        self.count(standing, |bytes| bytes + u64::from(newest));
    }

    /// Changes the sum of the bytes of entries that stand so, if there is one.
    fn count(&mut self, standing: Standing, change: impl FnOnce(u64) -> u64) {
        let sum = match standing {
            Standing::OutOfSync => &mut self.out_of_sync_bytes,
            Standing::Clean | Standing::Marked => &mut self.clean_bytes,
            Standing::Free | Standing::Dying => return,
        };
        *sum = change(*sum);
    }

    fn append(&mut self, chain: &mut Chain, number: u32) {
        let packed = &mut self.packed[number as usize];
        (packed.before, packed.after) = (chain.last, NONE);
        match chain.last {
            NONE => chain.first = number,
            last => self.packed[last as usize].after = number,
        }
        chain.last = number;
    }

    fn unlink(&mut self, chain: &mut Chain, number: u32) {
        let Packed { before, after, .. } = self.packed[number as usize];
        match before {
            NONE => chain.first = after,
            before => self.packed[before as usize].after = after,
        }
        match after {
            NONE => chain.last = before,
            after => self.packed[after as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use tidegate_sim::Rng;

    fn extent(file: u32, offset: u64, length: u32) -> Extent {
        Extent { file, offset, length, unit: 7, class: Class::ALL[6] }
    }

    /// These entries are clean, no others are, and their bytes are counted.
    fn assert_clean(slots: &Slots, clean: &[u32]) {
        let is_clean = |slot: Slot| slot.standing.is_clean();
        let found: BTreeSet<u32> = (0..slots.most).filter(|number| slots.get(*number).is_some_and(is_clean)).collect();
        assert_eq!(found, BTreeSet::from_iter(clean.iter().copied()));
        assert_eq!(slots.clean_bytes(), clean.iter().map(|number| slots.used(*number).newest).sum::<u64>());
        assert_eq!(slots.clean_bytes() > 0, !clean.is_empty());
    }

    /// Beside it, a dull model: a map for each standing.
    #[test]
    fn entries_agree_with_a_map_for_each_standing() {
        const MOST: u32 = 24;
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (mut slots, mut chain) = (Slots::new(MOST), Chain::default());
            let mut waiting: BTreeMap<(u64, u32), u64> = BTreeMap::new();
            let (mut clean, mut dying) = (Vec::new(), Vec::new());
            for version in 1..400 {
                let oldest = waiting.keys().nth(rng.index(waiting.len().max(1))).copied();
                match (rng.below(7), oldest) {
                    (0 | 1, _) => match slots.take_free() {
                        Some(number) => {
                            let length = 1 + u32::try_from(rng.below(1 << 20)).unwrap();
                            slots.occupy(number, &extent(3, version, length), version, &mut chain);
                            waiting.insert((version, number), u64::from(length));
                        }
                        None => assert_eq!(waiting.len() + clean.len() + dying.len(), MOST as usize),
                    },
                    (2, Some(oldest)) => {
                        let own = waiting.get_mut(&oldest).unwrap();
                        let lost = rng.below(*own);
                        *own -= lost;
                        assert_eq!(slots.lose(oldest.1, lost), *own);
                    }
                    (3, Some(oldest)) => {
                        waiting.remove(&oldest);
                        assert!(slots.begin_to_die(oldest.1, &mut chain));
                        dying.push(oldest.1);
                    }
                    (5, _) if !clean.is_empty() => {
                        let number = clean[rng.index(clean.len())];
                        if slots.begin_to_die(number, &mut chain) {
                            clean.retain(|one| *one != number);
                            dying.push(number);
                        }
                    }
                    (4, Some((upto, _))) => {
                        let brought = slots.clean_up_to(&mut chain, upto);
                        let newer = waiting.split_off(&(upto + 1, 0));
                        assert!(std::mem::replace(&mut waiting, newer).keys().map(|key| &key.1).eq(&brought));
                        brought.iter().filter(|_| rng.one_in(2)).for_each(|one| slots.mark(*one, Standing::Marked));
                        clean.extend(brought);
                    }
                    _ => {
                        let from = if rng.one_in(2) { &mut clean } else { &mut dying };
                        if !from.is_empty() {
                            let number = from.remove(rng.index(from.len()));
                            assert!(slots.free(number).is_some() && slots.free(number).is_none());
                        }
                    }
                }
                let chained: Vec<_> = slots.of(chain).map(|(number, slot)| (slot.version, number)).collect();
                assert_eq!(chained, waiting.keys().copied().collect::<Vec<_>>(), "seed {seed}");
                assert_clean(&slots, &clean);
                assert_eq!(slots.out_of_sync_bytes(), waiting.values().sum::<u64>());
            }
        }
    }

    #[test]
    fn what_an_entry_says_is_packed_without_loss() {
        let (mut slots, mut chain) = (Slots::new(9), Chain::default());
        slots.begin([2, 4].into_iter());
        let whole =
            Extent { file: u32::MAX, offset: u64::MAX >> 1, length: 1 << 20, unit: u32::MAX, class: Class::ALL[6] };
        slots.occupy(4, &whole, (1 << 43) - 1, &mut chain);
        slots.occupy(2, &extent(1, 5, 1), 3, &mut chain);
        slots.began();
        let slot = slots.used(4);
        assert_eq!((slot.extent, slot.version, slot.newest), (whole, (1 << 43) - 1, 1 << 20));
        slots.lengthen(2, 8);
        assert_eq!((slots.used(2).extent.length, slots.used(2).newest), (9, 9));
        let free: Vec<u32> = std::iter::from_fn(|| slots.take_free()).collect();
        assert_eq!(free, [0, 1, 3, 5, 6, 7, 8]);
    }
}
