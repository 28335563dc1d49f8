//! Pages of leased files in DRAM that only this process has: what was read once by a request is
//! read again without one.
//!
//! A page is there for the lease by which it was read, and says nothing once that lease is revoked:
//! whoever takes a page out looks at the lease afterwards. What is written by the lease is written
//! into its pages as well. So a page has what the file has, as long as nobody else may change it.
//!
//! All files of the process share the memory, which is divided into sets of [`WAYS`] pages. A page
//! may lie in either of two sets: with one, some would be full long before others. Whoever wants a
//! place takes the coldest page of both. A lease that ends gives its pages back.
//!
//! Nothing here waits, also not where a signal handler comes in between:
//!
//! - What is done for one lease is done by one thread at a time, so only that thread names a page
//!   as its lease's.
//! - Others may take a page away at any time. They say so in the page's owner before they store to
//!   the page; whoever copied it out looks at the owner again.

use std::sync::atomic::AtomicU64 as Counter;
use tidegate_media::sync::{AtomicU64, Ordering, fence};

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Pages of a set.
const WAYS: usize = 8;
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;
const WORD_BYTES: usize = 8;

/// Words of a set's head: owners, numbers of pages, and heats, each in a line of its own.
const HEAD_WORDS: usize = 3 * WAYS;
const OWNERS_AT: usize = 0;
const NUMBERS_AT: usize = WAYS;
const HEATS_AT: usize = 2 * WAYS;
/// The bit of an owner's word while its page is being stored to.
const BUSY: u64 = 1;
/// How hot a page is that was read by a request, how much hotter each further read makes it, and
/// how hot it may be. Each page of its set that has to go makes it colder by one.
const HEAT_FIRST: u64 = 4;
const HEAT_OF_READ: u64 = 8;
const HEAT_MAX: u64 = 32;

/// The memory of all pages, which is zeroes to begin with.
#[derive(Clone, Copy, Debug)]
pub struct ReadCache<'m> {
    heads: &'m [AtomicU64],
    pages: &'m [AtomicU64],
}

/// What became of a page that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It has a place where there was none before.
    InFreePlace,
    /// It has that of another page.
    InPlaceOfAnother,
    /// It has none: others are at all of them.
    Nowhere,
}

/// One lease's pages: a number that no other lease of this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

/// The last owner that was given out: not in the memory of pages, which forks wipe.
static LAST_OWNER: Counter = Counter::new(0);

impl Owner {
    /// One that has no pages yet.
    pub(crate) fn new() -> Owner {
        Owner(LAST_OWNER.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The word that says so of a page.
    fn word(self) -> u64 {
        self.0 << 1
    }
}

impl<'m> ReadCache<'m> {
    /// As many pages as there are words for. `None`: not even a set of them.
    pub fn over(words: &'m [AtomicU64]) -> Option<ReadCache<'m>> {
        // Pages begin where pages of the memory begin, if its words do.
        let least = |sets: usize| (sets * HEAD_WORDS).next_multiple_of(PAGE_WORDS) + sets * WAYS * PAGE_WORDS;
        let most = words.len() / (HEAD_WORDS + WAYS * PAGE_WORDS);
        let sets = if least(most) <= words.len() { most } else { most - 1 };
        let (heads, pages) = words.split_at_checked((sets * HEAD_WORDS).next_multiple_of(PAGE_WORDS))?;
        (sets > 0).then(|| ReadCache { heads: &heads[..sets * HEAD_WORDS], pages })
    }

    /// Copies a part of page `number`, from byte `from` on, into `out`. False: the page is not
    /// there, and `out` is nothing.
    pub(crate) fn get(&self, owner: Owner, number: u64, from: usize, out: &mut [u8]) -> bool {
        let Some((set, way)) = self.find(owner, number) else { return false };
        load(set.page(way), from, out);
        // Acquire: what was copied is looked at before the owner. Pairs with `take`.
        fence(Ordering::Acquire);
        if set.owner(way).load(Ordering::Relaxed) != owner.word() {
            return false;
        }
        let heat = set.heat(way).load(Ordering::Relaxed);
        if heat < HEAT_MAX {
            set.heat(way).store(HEAT_MAX.min(heat + HEAT_OF_READ), Ordering::Relaxed);
        }
        true
    }

    /// Keeps page `number`, which is not there.
    pub(crate) fn keep(&self, owner: Owner, number: u64, bytes: &[u8; PAGE_BYTES]) -> Placed {
        let sets = self.sets_of(owner, number);
        let coldest = sets.iter().filter_map(|set| Some((set.coldest(number)?, set)));
        let Some((Coldest { is_taken, way, word, .. }, set)) = coldest.min_by_key(|(coldest, _)| *coldest) else {
            return Placed::Nowhere;
        };
        if !set.take(way, word, owner) {
            return Placed::Nowhere;
        }
        if is_taken {
            sets.iter().for_each(Set::cool);
        }
        set.number(way).store(number, Ordering::Relaxed);
        set.heat(way).store(HEAT_FIRST, Ordering::Relaxed);
        store(set.page(way), 0, bytes);
        set.give(way, owner);
        if is_taken { Placed::InPlaceOfAnother } else { Placed::InFreePlace }
    }

    /// Whether any of the pages that `len` bytes at offset `at` lie in is there.
    pub(crate) fn has_any(&self, owner: Owner, at: u64, len: usize) -> bool {
        pieces(at, len).any(|(number, ..)| self.find(owner, number).is_some())
    }

    /// Has the pages that are there follow a write of `len` bytes at offset `at`. `fill` tells the
    /// bytes of a page if it can, by its offset; other pages are given back, and counted.
    pub(crate) fn refresh(
        &self,
        owner: Owner,
        at: u64,
        len: usize,
        mut fill: impl FnMut(u64, &mut [u8; PAGE_BYTES]) -> bool,
        page: &mut [u8; PAGE_BYTES],
    ) -> u32 {
        let mut lost = 0;
        for (number, ..) in pieces(at, len) {
            let Some((set, way)) = self.find(owner, number) else { continue };
            let page_at = number * PAGE_BYTES as u64;
            if fill(page_at, page) {
                set.store(way, owner, 0, page);
            } else {
                free(set.owner(way), owner);
                lost += 1;
            }
        }
        lost
    }

    /// Gives back the pages that `len` bytes at offset `at` lie in: others wrote them.
    pub(crate) fn forget(&self, owner: Owner, at: u64, len: usize) {
        for (set, way) in pieces(at, len).filter_map(|(number, ..)| self.find(owner, number)) {
            free(set.owner(way), owner);
        }
    }

    /// Gives back all pages of a lease that has ended. It looks at a word for each page that there
    /// is room for.
    pub(crate) fn drop_all(&self, owner: Owner) {
        let owners = self.heads.chunks_exact(HEAD_WORDS).flat_map(|head| &head[OWNERS_AT..OWNERS_AT + WAYS]);
        owners.filter(|word| word.load(Ordering::Relaxed) == owner.word()).for_each(|word| free(word, owner));
    }

    /// Stores what was written to the file at offset `at` into the pages that are there.
    pub(crate) fn update(&self, owner: Owner, at: u64, data: &[u8]) {
        for (number, from, piece) in pieces(at, data.len()) {
            if let Some((set, way)) = self.find(owner, number) {
                set.store(way, owner, from, &data[piece]);
            }
        }
    }

    /// Where a page is that nobody takes away just now.
    fn find(&self, owner: Owner, number: u64) -> Option<(Set<'m>, usize)> {
        self.sets_of(owner, number).into_iter().find_map(|set| Some((set, set.find(owner, number)?)))
    }

    /// The sets that a page may lie in.
    fn sets_of(&self, owner: Owner, number: u64) -> [Set<'m>; 2] {
        let sets = self.heads.len() / HEAD_WORDS;
        let page = number ^ owner.0.rotate_left(32);
        [0x9e37_79b9_7f4a_7c15, 0x3c6e_f372_fe94_f82a].map(|seed| {
            // SplitMix64's mixer, after Steele, Lea and Flood.
            let hash = page.wrapping_add(seed);
            let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let hash = hash ^ hash >> 31;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the high half of a product with few sets is a small number"
            )]
            let nth = ((u128::from(hash) * sets as u128) >> 64) as usize;
            let head = &self.heads[nth * HEAD_WORDS..][..HEAD_WORDS];
            Set { head, pages: &self.pages[nth * WAYS * PAGE_WORDS..][..WAYS * PAGE_WORDS] }
        })
    }
}

/// A page that may go, in the order in which they do: one that is free, best in the set that has
/// most such pages; or the coldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Coldest {
    is_taken: bool,
    /// How hot it is, or how many pages of its set are taken.
    rank: u64,
    /// Of pages that are as cold, not always the same one goes.
    turn: u64,
    way: usize,
    /// The word of its owner.
    word: u64,
}

/// Gives back the page with this owner's word, unless others have taken it away.
fn free(word: &AtomicU64, owner: Owner) {
    let _ = word.compare_exchange(owner.word(), 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// The pages that `len` bytes at offset `at` lie in: the number of each, where in it they begin,
/// and which of the bytes those are.
pub(crate) fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let page = PAGE_BYTES as u64;
    #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
    let within = move |done: usize| ((at + done as u64) % page) as usize;
    let mut done = 0;
    std::iter::from_fn(move || {
        let (from, number) = (within(done), (at + done as u64) / page);
        let piece = done..len.min(done + (PAGE_BYTES - from));
        done = piece.end;
        (!piece.is_empty()).then_some((number, from, piece))
    })
}

/// A set, whose pages any thread may be at.
#[derive(Clone, Copy)]
struct Set<'m> {
    head: &'m [AtomicU64],
    pages: &'m [AtomicU64],
}

impl<'m> Set<'m> {
    fn owner(&self, way: usize) -> &'m AtomicU64 {
        &self.head[OWNERS_AT + way]
    }

    fn number(&self, way: usize) -> &'m AtomicU64 {
        &self.head[NUMBERS_AT + way]
    }

    fn heat(&self, way: usize) -> &'m AtomicU64 {
        &self.head[HEATS_AT + way]
    }

    fn page(&self, way: usize) -> &'m [AtomicU64] {
        &self.pages[way * PAGE_WORDS..][..PAGE_WORDS]
    }

    /// Where a page is that nobody takes away just now.
    fn find(&self, owner: Owner, number: u64) -> Option<usize> {
        // Acquire: pairs with `give`.
        let is_it = |way: &usize| {
            self.owner(*way).load(Ordering::Acquire) == owner.word()
                && self.number(*way).load(Ordering::Relaxed) == number
        };
        (0..WAYS).find(is_it)
    }

    /// Takes a page, so that nobody else stores to it. False: it is not as it `was`.
    fn take(&self, way: usize, was: u64, owner: Owner) -> bool {
        let taken =
            self.owner(way).compare_exchange(was, owner.word() | BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Release: what is stored to the page from now on is seen after the owner's word. Pairs
        // with `get`.
        fence(Ordering::Release);
        taken
    }

    /// Gives a page that was taken to its owner.
    fn give(&self, way: usize, owner: Owner) {
        self.owner(way).store(owner.word(), Ordering::Release);
    }

    /// Stores bytes into a page of its owner. If others take it away meanwhile, it is not there.
    fn store(&self, way: usize, owner: Owner, from: usize, data: &[u8]) {
        if self.take(way, owner.word(), owner) {
            store(self.page(way), from, data);
            self.give(way, owner);
        }
    }

    /// The page that is to make room for page `number`.
    fn coldest(&self, number: u64) -> Option<Coldest> {
        let words: [u64; WAYS] = std::array::from_fn(|way| self.owner(way).load(Ordering::Relaxed));
        let taken = words.iter().filter(|word| **word != 0).count() as u64;
        let candidate = |(way, word): (usize, u64)| {
            let is_taken = word != 0;
            let rank = if is_taken { self.heat(way).load(Ordering::Relaxed) } else { taken };
            (word & BUSY == 0).then_some(Coldest {
                is_taken,
                rank,
                turn: (way as u64 ^ number) % WAYS as u64,
                way,
                word,
            })
        };
        words.into_iter().enumerate().filter_map(candidate).min()
    }

    /// Makes all pages colder.
    fn cool(&self) {
        for way in 0..WAYS {
            // Another thread's hit may be lost in between: it is a hint.
            let heat = self.heat(way).load(Ordering::Relaxed);
            self.heat(way).store(heat.saturating_sub(1), Ordering::Relaxed);
        }
    }
}

/// Copies bytes from byte `from` of a page on.
fn load(page: &[AtomicU64], from: usize, out: &mut [u8]) {
    let (first, skip) = (from / WORD_BYTES, from % WORD_BYTES);
    let (head, rest) = out.split_at_mut(out.len().min((WORD_BYTES - skip) % WORD_BYTES));
    let mut words = page[first..].iter();
    let mut next = || words.next().map_or(0, |word| word.load(Ordering::Relaxed)).to_le_bytes();
    if !head.is_empty() {
        head.copy_from_slice(&next()[skip..skip + head.len()]);
    }
    let (whole, tail) = rest.as_chunks_mut::<WORD_BYTES>();
    whole.iter_mut().for_each(|bytes| *bytes = next());
    if !tail.is_empty() {
        tail.copy_from_slice(&next()[..tail.len()]);
    }
}

/// Stores bytes from byte `from` of a page on, which nobody else stores to.
fn store(page: &[AtomicU64], from: usize, data: &[u8]) {
    let (first, skip) = (from / WORD_BYTES, from % WORD_BYTES);
    let (head, rest) = data.split_at(data.len().min((WORD_BYTES - skip) % WORD_BYTES));
    let (whole, tail) = rest.as_chunks::<WORD_BYTES>();
    let mut words = page[first..].iter();
    let mut part = |skip: usize, part: &[u8]| {
        if let Some(word) = words.next().filter(|_| !part.is_empty()) {
            let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
            bytes[skip..skip + part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    };
    if !head.is_empty() {
        part(skip, head);
    }
    whole.iter().for_each(|bytes| part(0, bytes));
    part(0, tail);
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "bytes are made of counts, and offsets are small")]
mod tests {
    use super::*;
    use std::thread;
    use tidegate_sim::Rng;

    /// Memory of so many sets.
    fn memory(sets: usize) -> Vec<AtomicU64> {
        (0..(sets * HEAD_WORDS).next_multiple_of(PAGE_WORDS) + sets * WAYS * PAGE_WORDS)
            .map(|_| AtomicU64::new(0))
            .collect()
    }

    fn read(cache: &ReadCache<'_>, owner: Owner, number: u64) -> Option<u8> {
        let mut byte = [0];
        cache.get(owner, number, 7, &mut byte).then_some(byte[0])
    }

    #[test]
    fn less_memory_than_a_set_takes_is_no_cache() {
        let memory = memory(1);
        assert!(ReadCache::over(&memory[1..]).is_none() && ReadCache::over(&[]).is_none());
        assert!(ReadCache::over(&memory).is_some());
    }

    #[test]
    fn parts_are_read_and_written_as_in_a_row_of_bytes() {
        let (memory, mut rng) = (memory(4), Rng::new(11));
        let cache = ReadCache::over(&memory).expect("four sets");
        let owner = Owner::new();
        let mut model: Vec<u8> = (0..3 * PAGE_BYTES).map(|at| (at * 7) as u8).collect();
        for number in 0..3 {
            let page = model[number * PAGE_BYTES..].first_chunk().expect("a page");
            assert_eq!(cache.keep(owner, number as u64, page), Placed::InFreePlace);
        }
        for round in 0..3000_u64 {
            let at = rng.below(model.len() as u64 - 1) as usize;
            let len = 1 + rng.below(if round % 2 == 0 { 20 } else { 6000 }) as usize;
            let len = len.min(model.len() - at);
            model[at..at + len].fill(round as u8);
            cache.update(owner, at as u64, &vec![round as u8; len]);
            let at = rng.below(model.len() as u64 - 1) as usize;
            let mut out = vec![0; (1 + rng.below(5000) as usize).min(model.len() - at)];
            for (number, from, piece) in pieces(at as u64, out.len()) {
                assert!(cache.get(owner, number, from, &mut out[piece]));
            }
            assert_eq!(out, model[at..at + out.len()], "round {round}");
        }
    }

    #[test]
    fn a_page_that_is_read_again_and_again_stays_and_others_go() {
        let memory = memory(1);
        let cache = ReadCache::over(&memory).expect("a set");
        let owner = Owner::new();
        for number in 0..100 {
            let kept = cache.keep(owner, number, &[number as u8; PAGE_BYTES]);
            assert_eq!(kept, if number < WAYS as u64 { Placed::InFreePlace } else { Placed::InPlaceOfAnother });
            assert_eq!(read(&cache, owner, 0), Some(0), "after {number} others");
        }
        let kept = (0..100).filter(|number| read(&cache, owner, *number).is_some()).count();
        assert_eq!((kept, read(&cache, owner, 99)), (WAYS, Some(99)));
    }

    #[test]
    fn pages_of_a_lease_that_ended_make_room_however_hot_they_were() {
        let memory = memory(2);
        let cache = ReadCache::over(&memory).expect("two sets");
        let (ended, owner) = (Owner::new(), Owner::new());
        for number in 0..30 {
            cache.keep(ended, number, &[1; PAGE_BYTES]);
            (0..10).for_each(|_| assert_eq!(read(&cache, ended, number), Some(1)));
        }
        cache.drop_all(ended);
        assert!((0..30).all(|number| read(&cache, ended, number).is_none()));
        let free = (0..100).take_while(|number| cache.keep(owner, *number, &[2; PAGE_BYTES]) == Placed::InFreePlace);
        assert!(free.count() >= WAYS);
        (100..300).for_each(|number| _ = cache.keep(owner, number, &[2; PAGE_BYTES]));
        assert_eq!((0..300).filter(|number| read(&cache, owner, *number).is_some()).count(), 2 * WAYS);
    }

    #[test]
    fn most_of_the_memory_is_used_before_a_page_has_to_go() {
        let memory = memory(64);
        let cache = ReadCache::over(&memory).expect("many sets");
        for owner in (1..9).map(Owner) {
            let placed = |number: &u64| cache.keep(owner, *number, &[3; PAGE_BYTES]) == Placed::InFreePlace;
            let kept = (0..64 * WAYS as u64).take_while(placed).count();
            assert!(kept * 4 >= 64 * WAYS * 3, "{kept} of owner {owner:?}");
            cache.drop_all(owner);
        }
    }

    #[test]
    fn single_pages_are_found_and_given_back() {
        let memory = memory(2);
        let cache = ReadCache::over(&memory).expect("two sets");
        let owner = Owner::new();
        (0..3).for_each(|number| _ = cache.keep(owner, number, &[1; PAGE_BYTES]));
        assert!(cache.has_any(owner, 3 * 4096 - 1, 2) && !cache.has_any(owner, 3 * 4096, 5000));
        assert!(!cache.has_any(Owner::new(), 0, 4096) && !cache.has_any(owner, 0, 0));
        let fill = |at, page: &mut [u8; PAGE_BYTES]| {
            page.fill(9);
            at == 4096
        };
        assert_eq!(cache.refresh(owner, 4095, 4098, fill, &mut [0; PAGE_BYTES]), 2);
        assert_eq!([0, 1, 2, 3].map(|number| read(&cache, owner, number)), [None, Some(9), None, None]);
    }

    /// Each thread has a lease of its own, and pages that no other one may see.
    #[test]
    fn threads_that_take_each_others_pages_away_see_their_own_bytes() {
        let memory = memory(1);
        let cache = ReadCache::over(&memory).expect("a set");
        let run = |seed| {
            let (owner, mut rng) = (Owner::new(), Rng::new(seed));
            let mut latest = [0_u8; 6];
            let (mut hits, mut page) = (0, [0; PAGE_BYTES]);
            for turn in 0..30_000_u32 {
                let number = rng.below(latest.len() as u64);
                let byte = &mut latest[number as usize];
                if rng.below(4) == 0 {
                    *byte = (turn as u8 & 0x7f) | (seed as u8) << 7;
                    cache.update(owner, number * PAGE_BYTES as u64, &[*byte; PAGE_BYTES]);
                } else if cache.get(owner, number, 0, &mut page) {
                    assert_eq!(page, [*byte; PAGE_BYTES], "turn {turn}");
                    hits += 1;
                } else {
                    cache.keep(owner, number, &[*byte; PAGE_BYTES]);
                }
            }
            hits
        };
        let hits = thread::scope(|scope| [0, 1].map(|seed| scope.spawn(move || run(seed))).map(|run| run.join()));
        hits.into_iter().for_each(|hits| assert!(hits.expect("its own bytes") > 1000));
    }
}
