//! The strips of a pool: parts of it to which programs commit by themselves.
//!
//! They are given in pairs, an even one and the next, to be filled in turn; the pair has the number
//! of the first. A pair is given to a program together with a file, and used again when nobody
//! holds the file and nobody has any of it mapped: a program that is slow to notice may still be
//! storing to it.
//!
//! A run before there were pairs gave single strips, odd ones too. Read as a pair, such a strip has
//! a neighbour whose records are of another family, or of another run.

use super::span::Span;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_layout::kept::{Counting, STRIP_COUNTS_AT, StripCounts};
use tidegate_media::{Region, Result, Sealed};
use tidegate_wal::pair::{STRIPS, records, strip_of};
use tidegate_wal::strip::{Record, clear, counts};

/// Whether anybody has mapped these bytes of the pool: where, and how many.
pub(super) type IsMapped = Box<dyn Fn(u64, u64) -> bool + Send + Sync>;

/// The strips of a pool.
pub(super) struct Strips<R> {
    /// Where in the pool the first one lies, and the bytes of each.
    at: u64,
    bytes: u64,
    strips: Vec<Span<R>>,
    given: Mutex<Vec<bool>>,
    is_mapped: IsMapped,
    /// What was counted at strips that were given back.
    before: [AtomicU64; 4],
}

/// What programs did at strips.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) syncs: u64,
    pub(super) bytes: u64,
    pub(super) lines: u64,
    pub(super) fences: u64,
}

impl Done {
    fn of(counts: &StripCounts) -> Done {
        let StripCounts { syncs, bytes, lines, fences } = counts;
        Done { syncs: syncs.get(), bytes: bytes.get(), lines: lines.get(), fences: fences.get() }
    }

    fn words(self) -> [u64; 4] {
        [self.syncs, self.bytes, self.lines, self.fences]
    }

    fn from_words([syncs, bytes, lines, fences]: [u64; 4]) -> Done {
        Done { syncs, bytes, lines, fences }
    }
}

impl<R: Region> Strips<R> {
    /// `count` strips of `bytes` bytes from byte `at` of `region` on.
    pub(super) fn new(region: &Arc<R>, at: u64, bytes: u64, count: u32) -> Strips<R> {
        let begin = |number: u32| at + u64::from(number) * bytes;
        let span = |number| Span::new(Arc::clone(region), begin(number), begin(number + 1));
        let strips: Vec<_> = (0..count).map(span).collect();
        let given = Mutex::new(vec![false; strips.len()]);
        Strips { at, bytes, strips, given, is_mapped: Box::new(|_, _| false), before: Default::default() }
    }

    /// From now on a strip for which `is_mapped` holds is given to nobody.
    pub(super) fn ask_mapped(&mut self, is_mapped: IsMapped) {
        self.is_mapped = is_mapped;
    }

    /// Where in the pool pair `number` lies, and its bytes.
    pub(super) fn range(&self, number: u32) -> (u64, u64) {
        (self.at + u64::from(number) * self.bytes, STRIPS as u64 * self.bytes)
    }

    /// The strips of pair `number`, as many of them as there are.
    fn pair(&self, number: u32) -> impl Iterator<Item = &Span<R>> {
        self.strips.iter().skip(number as usize).take(STRIPS)
    }

    fn is_free(&self, number: u32) -> bool {
        let (at, len) = self.range(number);
        !(self.is_mapped)(at, len)
    }

    fn given(&self) -> MutexGuard<'_, Vec<bool>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing on any strip counts, durably on return. Whoever has one mapped from an older run may
    /// say again that something counts, and takes it for nothing.
    pub(super) fn clear_all(&self) -> std::result::Result<(), Sealed> {
        self.strips.iter().try_for_each(clear)
    }

    /// A pair for nobody else, on which nothing counts. None: there is none, or the memory takes no
    /// stores any more.
    pub(super) fn give(&self) -> Option<u32> {
        let mut given = self.given();
        let pairs = (0..).step_by(STRIPS).zip(given.chunks_exact(STRIPS));
        let number = pairs.into_iter().find(|(number, given)| !given[0] && self.is_free(*number))?.0;
        self.pair(number).try_for_each(clear).ok()?;
        let counts = (0..4).map(|place| STRIP_COUNTS_AT + place * 8);
        self.pair(number).for_each(|strip| counts.clone().for_each(|at| strip.store_u64(at, 0)));
        given[number as usize] = true;
        Some(number)
    }

    /// The file that pair `number` was for is held no more, and nothing on it counts.
    pub(super) fn take_back(&self, number: u32) {
        let done = self.done(number);
        let mut given = self.given();
        for (sum, more) in self.before.iter().zip(done.words()) {
            sum.fetch_add(more, Ordering::Relaxed);
        }
        given[number as usize] = false;
    }

    /// On the strip of pair `number` that has `filling`, nothing counts, durably on return.
    pub(super) fn clear(&self, number: u32, filling: u32) -> std::result::Result<(), Sealed> {
        self.pair(number).nth(strip_of(filling)).map_or(Ok(()), clear)
    }

    /// What was done at pair `number` since it was given.
    pub(super) fn done(&self, number: u32) -> Done {
        let each = self.pair(number).map(|strip| counts(strip).map(|counts| Done::of(&counts)).unwrap_or_default());
        Done::from_words(each.fold([0; 4], |sum, done| added(sum, done.words())))
    }

    /// Bytes that were committed to each strip of pair `number` since it was given.
    pub(super) fn bytes(&self, number: u32) -> [u64; STRIPS] {
        let mut bytes = self.pair(number).map(|strip| counts(strip).map_or(0, |counts| counts.bytes.get()));
        std::array::from_fn(|_| bytes.next().unwrap_or(0))
    }

    /// What was done at all of them.
    pub(super) fn done_at_all(&self) -> Done {
        let given = self.given();
        let now = (0..).zip(&*given).filter(|(_, given)| **given).map(|(number, _)| self.done(number).words());
        Done::from_words(now.fold(std::array::from_fn(|place| self.before[place].load(Ordering::Relaxed)), added))
    }

    /// The records on pair `number` that count for the run `session`, the oldest first.
    pub(super) fn records(&self, number: u32, session: u64, counts: impl Fn(Counting) -> bool) -> Result<Vec<Record>> {
        let found = records(self.pair(number), session, counts)?;
        Ok(found.into_iter().map(|(_, record)| record).collect())
    }

    /// What the heads say that counts, whatever else is known of it.
    pub(super) fn heads(&self) -> impl Iterator<Item = Counting> {
        self.strips.iter().filter_map(|strip| strip.load_u64(0).ok().and_then(Counting::of))
    }
}

fn added(sum: [u64; 4], more: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|place| sum[place] + more[place])
}
