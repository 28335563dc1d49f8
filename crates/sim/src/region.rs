//! Simulated persistent memory: what each store makes visible, and what a fence makes durable.
//!
//! The rules are those of `docs/media-model.md`, named here by their numbers. Every store goes at
//! once into the visible contents and stays *pending* beside the durable ones (rule 2) until a
//! fence of a core that flushed or streamed it (rules 7 to 10). A [`Cut`] is the durable contents
//! with the stores pending at one instant.

use crate::cut::{Cut, Store, StoreKind};
use crate::image::{Image, in_memory, words};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_media::sync::{AtomicU64, Ordering, thread_token};
use tidegate_media::{ExchangeWords, LINE_BYTES, LineOrder, Poison, Region as Medium, Sealed};

/// Simulated persistent memory. Cores are told apart by [`thread_token`]: [`crate::on_core`]
/// chooses one.
pub struct Region {
    len: u64,
    order: LineOrder,
    /// Counts accesses, and is where a scheduler that stands in for the atomics may change threads.
    accesses: AtomicU64,
    state: Mutex<State>,
}

/// What was asked of a region since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes stored by `write`, `stream` and `store_u64`.
    pub bytes_stored: u64,
    /// Lines that `flush` was asked to write back.
    pub lines_flushed: u64,
    /// Those among them that held nothing new for the flushing core's next fence.
    pub lines_flushed_clean: u64,
    /// Fences.
    pub fences: u64,
    /// Those among them of a core that had flushed and streamed nothing since its last.
    pub fences_idle: u64,
}

/// What becomes of a store to a poisoned line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoisonedStore {
    /// It is kept, and reads of the line go on failing.
    Kept,
    /// It is kept, and a store of the whole line makes the line good again.
    Heals,
    /// It is lost: the region is sealed.
    Lost,
}

struct State {
    visible: Image,
    durable: Image,
    /// Stores that no fence has made durable, in the order in which they became visible.
    pending: Vec<Store>,
    /// Flushes and streams that wait for a fence of their core.
    marks: Vec<Mark>,
    next_seq: u64,
    counters: Counters,
    faults: Faults,
    sealed: Option<Sealed>,
    /// The cuts recorded so far; none are when this is `None`.
    cuts: Option<Vec<Cut>>,
}

/// Bytes whose stores up to `seq` are durable after the next fence of `core`.
struct Mark {
    core: u32,
    bytes: Range<u64>,
    seq: u64,
}

struct Faults {
    poisoned: Vec<Range<u64>>,
    poisoned_store: PoisonedStore,
    /// Bytes from here on are gone.
    end: u64,
}

impl Region {
    /// A region of `len` zero bytes, all of them durable. `len` is a multiple of 8.
    pub fn new(len: u64) -> Region {
        Region::from_image(Image::zeroed(len))
    }

    /// A region that holds `image`, all of it durable: the machine after power came back.
    pub fn from_image(image: Image) -> Region {
        Region::with_line_order(image, LineOrder::NATIVE)
    }

    /// A region that holds `image`, all of it durable, on a processor that keeps word stores to a
    /// line in `order`.
    pub fn with_line_order(image: Image, order: LineOrder) -> Region {
        let len = image.len();
        assert!(len.is_multiple_of(8), "a region of {len} bytes does not hold whole words");
        let faults = Faults { poisoned: Vec::new(), poisoned_store: PoisonedStore::Kept, end: len };
        let state = State {
            visible: image.clone(),
            durable: image,
            pending: Vec::new(),
            marks: Vec::new(),
            next_seq: 1,
            counters: Counters::default(),
            faults,
            sealed: None,
            cuts: None,
        };
        Region { len, order, accesses: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// The region that the next process finds when the last one was killed at this instant, and the
    /// power stayed (rule 12): everything is visible, what was pending still is, and nothing that
    /// the dead process marked counts, since it may have died just before it could.
    pub fn after_kill(cut: &Cut) -> Region {
        let region = Region::with_line_order(cut.least().clone(), cut.order());
        let mut state = region.state();
        state.visible = cut.most();
        state.pending = cut.pending().to_vec();
        state.next_seq = cut.pending().last().map_or(1, |store| store.seq + 1);
        drop(state);
        region
    }

    /// From now on, keeps a [`Cut`] for the instant before each fence.
    ///
    /// Together with one at the end of each operation those are all there is: between two fences
    /// nothing stops being possible, so an image that a cut may leave at some instant is also one
    /// at the next fence.
    pub fn record_cuts(&self) {
        self.state().cuts.get_or_insert_default();
    }

    /// The cuts recorded since [`Region::record_cuts`]. No more are, until it is called again.
    pub fn take_cuts(&self) -> Vec<Cut> {
        self.state().cuts.take().unwrap_or_default()
    }

    /// The power fails now.
    pub fn cut(&self) -> Cut {
        let state = self.state();
        state.cut(self.order)
    }

    /// The visible contents: what the death of every process leaves (rule 12).
    pub fn visible(&self) -> Image {
        self.state().visible.clone()
    }

    /// What was asked of the region so far.
    pub fn counters(&self) -> Counters {
        self.state().counters
    }

    /// Loads and stores made so far.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// Makes every line that `at..at + len` touches unreadable; stores to them fare as `stores`
    /// says.
    pub fn poison(&self, at: u64, len: u64, stores: PoisonedStore) {
        let mut state = self.state();
        state.faults.poisoned.push(lines_of(at, len));
        state.faults.poisoned_store = stores;
    }

    /// Cuts the region's file short: bytes from `end` on can be neither read nor stored.
    pub fn cut_short(&self, end: u64) {
        self.state().faults.end = end;
    }

    /// Whether a store was lost: every fence says so from then on.
    pub fn has_lost(&self) -> bool {
        self.state().sealed.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no access panics with the lock held")
    }

    /// Lets a scheduler in, checks the range, then takes the state.
    fn access(&self, at: u64, len: usize) -> MutexGuard<'_, State> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let inside = at.checked_add(len as u64).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {at} reach past a region of {} bytes", self.len);
        self.state()
    }
}

impl ExchangeWords for Region {
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        let mut state = self.access(at, 8);
        state.faults.readable(at, 8)?;
        let was = state.visible.load_u64(at);
        if was == old {
            state.store(at, &new.to_le_bytes(), StoreKind::Ordered);
        }
        Ok(was)
    }
}

impl Medium for Region {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let state = self.access(at, out.len());
        state.faults.readable(at, out.len())?;
        state.visible.read(at, out);
        Ok(())
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        let state = self.access(at, 8);
        state.faults.readable(at, 8)?;
        Ok(state.visible.load_u64(at))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.access(at, bytes.len()).store(at, bytes, StoreKind::Copied);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        let core = thread_token();
        let mut state = self.access(at, bytes.len());
        let before = state.next_seq;
        if state.store(at, bytes, StoreKind::Streamed) {
            state.mark(core, at..at + bytes.len() as u64, before);
        }
    }

    fn store_u64(&self, at: u64, word: u64) {
        assert!(at.is_multiple_of(8), "a word store at {at}, which is no multiple of 8");
        self.access(at, 8).store(at, &word.to_le_bytes(), StoreKind::Ordered);
    }

    fn flush(&self, at: u64, len: u64) {
        let core = thread_token();
        let lines = lines_of(at, len);
        let mut state = self.access(at, 0);
        let news = state.lines_with_news(core, &lines);
        let touched = (lines.end - lines.start) / LINE_BYTES;
        state.counters.lines_flushed += touched;
        state.counters.lines_flushed_clean += touched - news;
        if news > 0 {
            let before = state.next_seq;
            state.mark(core, lines, before);
        }
    }

    fn fence(&self) -> Result<(), Sealed> {
        let core = thread_token();
        let mut state = self.access(0, 0);
        if let Some(mut cuts) = state.cuts.take() {
            cuts.push(state.cut(self.order));
            state.cuts = Some(cuts);
        }
        state.fence(core);
        state.sealed.map_or(Ok(()), Err)
    }

    fn line_order(&self) -> LineOrder {
        self.order
    }
}

impl State {
    fn cut(&self, order: LineOrder) -> Cut {
        Cut::new(self.durable.clone(), self.pending.clone(), order, self.counters.fences)
    }

    /// Makes a store visible and pending. False when the medium lost it.
    fn store(&mut self, at: u64, bytes: &[u8], kind: StoreKind) -> bool {
        if !self.faults.storable(at, bytes.len()) {
            self.sealed.get_or_insert(Sealed::StoreLost { at });
            return false;
        }
        self.counters.bytes_stored += bytes.len() as u64;
        let untouched = self.pending.is_empty();
        for (at, mask, value) in words(at, bytes) {
            // A streamed word that changes nothing, durable or pending, cannot be told from one
            // never stored.
            let idle = kind == StoreKind::Streamed && untouched && self.durable.load_u64(at) & mask == value;
            if !idle {
                self.pending.push(Store { at, mask, value, kind, seq: self.next_seq });
                self.next_seq += 1;
            }
        }
        self.visible.write(at, bytes);
        true
    }

    /// Remembers that the stores to `bytes` so far wait for a fence of `core`. `before` is the
    /// number that the next store had when the range began to be stored: marks of neighbours with
    /// nothing between them are one.
    fn mark(&mut self, core: u32, bytes: Range<u64>, before: u64) {
        let seq = self.next_seq - 1;
        match self.marks.last_mut() {
            Some(last) if last.core == core && last.bytes.end == bytes.start && last.seq + 1 == before => {
                last.bytes.end = bytes.end;
                last.seq = seq;
            }
            _ => self.marks.push(Mark { core, bytes, seq }),
        }
    }

    /// How many of `lines` hold a pending store that no mark of `core` covers yet.
    fn lines_with_news(&self, core: u32, lines: &Range<u64>) -> u64 {
        let inside = self.pending.iter().filter(|store| lines.contains(&store.at));
        let news = inside.filter(|store| !self.marks.iter().any(|mark| mark.core == core && mark.covers(store)));
        let mut lines: Vec<u64> = news.map(|store| store.at / LINE_BYTES).collect();
        lines.sort_unstable();
        lines.dedup();
        lines.len() as u64
    }

    fn fence(&mut self, core: u32) {
        self.counters.fences += 1;
        let (own, others): (Vec<Mark>, Vec<Mark>) =
            std::mem::take(&mut self.marks).into_iter().partition(|mark| mark.core == core);
        self.marks = others;
        if own.is_empty() {
            self.counters.fences_idle += 1;
            return;
        }
        let mut kept: Vec<Store> = Vec::new();
        let mut kept_lines = Lines::default();
        for store in std::mem::take(&mut self.pending) {
            if !own.iter().any(|mark| mark.covers(&store)) {
                kept_lines.add(store.at);
                kept.push(store);
                continue;
            }
            store.put(&mut self.durable);
            // What is older than a durable store to the same bytes can no longer arrive (rule 5).
            if kept_lines.may_hold(store.at) {
                for older in kept.iter_mut().filter(|older| older.at == store.at) {
                    older.mask &= !store.mask;
                }
            }
        }
        kept.retain(|store| store.mask != 0);
        self.pending = kept;
    }
}

/// Which lines were added, with some that were not: a look here spares most looks through a list.
#[derive(Default)]
struct Lines([u64; 8]);

impl Lines {
    fn add(&mut self, at: u64) {
        let (word, bit) = Lines::place(at);
        self.0[word] |= bit;
    }

    fn may_hold(&self, at: u64) -> bool {
        let (word, bit) = Lines::place(at);
        self.0[word] & bit != 0
    }

    fn place(at: u64) -> (usize, u64) {
        let line = at / LINE_BYTES;
        (in_memory(line / 64 % 8), 1 << (line % 64))
    }
}

impl Mark {
    fn covers(&self, store: &Store) -> bool {
        let from = store.at + u64::from(store.mask.trailing_zeros() / 8);
        let until = store.at + 8 - u64::from(store.mask.leading_zeros() / 8);
        store.seq <= self.seq && self.bytes.start <= from && until <= self.bytes.end
    }
}

impl Faults {
    fn readable(&self, at: u64, len: usize) -> Result<(), Poison> {
        let bytes = at..at + len as u64;
        let gone = bytes.end > self.end && !bytes.is_empty();
        if gone || self.poisoned.iter().any(|bad| overlap(bad, &bytes)) {
            return Err(Poison { at, len: len as u64 });
        }
        Ok(())
    }

    fn storable(&mut self, at: u64, len: usize) -> bool {
        let bytes = at..at + len as u64;
        let hit = self.poisoned.iter().any(|bad| overlap(bad, &bytes));
        match self.poisoned_store {
            PoisonedStore::Heals if hit => self.heal(&bytes),
            PoisonedStore::Lost if hit => return false,
            _ => {}
        }
        bytes.is_empty() || bytes.end <= self.end
    }

    /// Makes the lines good that lie whole within `bytes`.
    fn heal(&mut self, bytes: &Range<u64>) {
        let whole = bytes.start.next_multiple_of(LINE_BYTES)..bytes.end - bytes.end % LINE_BYTES;
        let bad = std::mem::take(&mut self.poisoned);
        for line in bad.into_iter().flat_map(|range| range.step_by(in_memory(LINE_BYTES))) {
            if !whole.contains(&line) {
                self.poisoned.push(line..line + LINE_BYTES);
            }
        }
    }
}

/// Runs `script` on a region that holds `start`, and returns every cut that matters: one before
/// each fence, in order, and one at the end.
pub fn power_cuts(start: &Image, script: impl FnOnce(&Arc<Region>)) -> Vec<Cut> {
    let region = Arc::new(Region::from_image(start.clone()));
    region.record_cuts();
    script(&region);
    let mut cuts = region.take_cuts();
    cuts.push(region.cut());
    cuts
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The bytes of all lines that `at..at + len` touches.
fn lines_of(at: u64, len: u64) -> Range<u64> {
    if len == 0 {
        return at..at;
    }
    at - at % LINE_BYTES..(at + len).next_multiple_of(LINE_BYTES)
}
