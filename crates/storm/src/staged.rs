//! A simulated memory on the stage of a storm: every access is counted, noted, and may be the last.

use crate::mutant::{CodeSite, Mutant, SiteKind};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_media::sync::thread_token;
use tidegate_media::{LINE_BYTES, LineOrder, Poison, Region, Sealed};
use tidegate_sim::Content;
use tidegate_virtual_cores::{is_inside, loaded, note, stop, stored};

/// What all memories of a run share: when it ends, what is broken, what was visited.
#[derive(Default)]
pub(crate) struct Stage {
    /// Accesses until the end of the present life. 0: no end.
    left: AtomicU64,
    /// Whether only fences count as accesses for that.
    fences_only: AtomicBool,
    mutant: Mutant,
    visits: Mutex<Vec<(&'static Location<'static>, SiteKind, u64)>>,
    held: Mutex<Vec<LateStore>>,
    /// Accesses of threads on virtual cores.
    passed: AtomicU64,
    /// Accesses until something goes wrong, and what.
    fault: Mutex<Option<(u64, Act)>>,
}

/// Something to be done once.
type Act = Box<dyn FnOnce() + Send>;

/// A store that waits for the next one of its thread.
struct LateStore {
    thread: u32,
    memory: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Stage {
    pub(crate) fn new(mutant: Mutant) -> Stage {
        Stage { mutant, ..Stage::default() }
    }

    /// When the machine stops.
    pub(crate) fn end(&self, end: End) {
        let (left, fences_only) = match end {
            End::None => (0, false),
            End::BeforeAccess(number) => (number, false),
            End::BeforeFence(number) => (number, true),
        };
        self.left.store(left, Ordering::Relaxed);
        self.fences_only.store(fences_only, Ordering::Relaxed);
        self.held().clear();
    }

    /// What goes wrong at the `access`-th access from now on, if anything.
    pub(crate) fn fault(&self, fault: Option<(u64, Act)>) {
        *self.fault.lock().expect("no holder panics") = fault;
    }

    /// Accesses so far.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// What is broken.
    pub(crate) fn mutant(&self) -> Mutant {
        self.mutant
    }

    /// How often each site was visited.
    pub(crate) fn visits(&self) -> Vec<(CodeSite, u64)> {
        let visits = self.visits.lock().expect("no holder panics");
        visits.iter().map(|(place, kind, times)| (CodeSite::at(*kind, place), *times)).collect()
    }

    fn held(&self) -> MutexGuard<'_, Vec<LateStore>> {
        self.held.lock().expect("no holder panics")
    }

    pub(crate) fn pass(&self, word: u64, is_fence: bool) {
        if !is_inside() {
            return;
        }
        note(word);
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.goes_wrong();
        if self.fences_only.load(Ordering::Relaxed) && !is_fence {
            return;
        }
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            if left == 1 {
                stop();
            }
        }
    }

    fn goes_wrong(&self) {
        let due = {
            let mut fault = self.fault.lock().expect("no holder panics");
            match &mut *fault {
                Some((left, _)) if *left > 1 => {
                    *left -= 1;
                    return;
                }
                due => due.take(),
            }
        };
        due.into_iter().for_each(|(_, befall)| befall());
    }

    /// Counts a visit; whether the operation at this place is to be broken.
    fn visit(&self, kind: SiteKind, place: &'static Location<'static>) -> bool {
        let mut visits = self.visits.lock().expect("no holder panics");
        let same = |visit: &&mut (&'static Location<'static>, SiteKind, u64)| {
            visit.0.line() == place.line() && visit.1 == kind && visit.0.file() == place.file()
        };
        match visits.iter_mut().find(same) {
            Some(visit) => visit.2 += 1,
            None => visits.push((place, kind, 1)),
        }
        match self.mutant {
            Mutant::Ignored(site) | Mutant::Late(site) => site == CodeSite::at(kind, place),
            _ => false,
        }
    }
}

/// When a life ends, counted from its beginning and from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// When all is done.
    None,
    /// Before an access to any memory.
    BeforeAccess(u64),
    /// Before a fence: a time at which much is pending.
    BeforeFence(u64),
}

/// The kind of access that a fence is.
const FENCE: u64 = 7;

/// A memory on a stage. Its accesses of more than a line are made in two halves, between which
/// others may come.
pub(crate) struct Staged<R: ?Sized> {
    memory: Arc<R>,
    stage: Arc<Stage>,
    /// Tells the memories of a stage apart.
    number: u64,
}

impl<R: Region + ?Sized> Staged<R> {
    pub(crate) fn new(memory: Arc<R>, stage: &Arc<Stage>, number: u64) -> Staged<R> {
        Staged { memory, stage: stage.clone(), number }
    }

    fn pass(&self, kind: u64, at: u64, content: u64) {
        self.stage.pass((self.number << 60 | kind << 56 | at) ^ content.rotate_left(17), kind == FENCE);
    }

    /// Where an access of `len` bytes at `at` is cut in two, if it is.
    fn half(at: u64, len: usize) -> Option<usize> {
        let middle = (at + len as u64 / 2).next_multiple_of(LINE_BYTES).checked_sub(at)?;
        let middle = usize::try_from(middle).expect("less than the length");
        (is_inside() && 0 < middle && middle < len).then_some(middle)
    }

    /// Holds a store back, if it is to be late.
    fn holds(&self, place: &'static Location<'static>, at: u64, bytes: &[u8]) -> bool {
        let broken = self.stage.visit(SiteKind::Store, place);
        if broken && is_inside() {
            let held = LateStore { thread: thread_token(), memory: self.number, at, bytes: bytes.to_vec() };
            self.stage.held().push(held);
            return true;
        }
        false
    }

    /// Makes the stores that this thread's last one was held back for.
    fn release(&self) {
        if !matches!(self.stage.mutant, Mutant::Late(_)) || !is_inside() {
            return;
        }
        let thread = thread_token();
        let due = |held: &mut LateStore| held.thread == thread && held.memory == self.number;
        let late: Vec<LateStore> = self.stage.held().extract_if(.., due).collect();
        for held in late {
            self.pass(8, held.at, 0);
            match <[u8; 8]>::try_from(held.bytes.as_slice()) {
                Ok(word) => self.memory.store_u64(held.at, u64::from_le_bytes(word)),
                Err(_) => self.memory.stream(held.at, &held.bytes),
            }
        }
    }
}

impl<R: Region + ?Sized> Region for Staged<R> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let half = Self::half(at, out.len()).unwrap_or(0);
        let (first, second) = out.split_at_mut(half);
        if half > 0 {
            self.pass(1, at, 0);
            self.memory.read(at, first)?;
        }
        self.pass(1, at + half as u64, 0);
        self.memory.read(at + half as u64, second)
    }

    #[track_caller]
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.pass(2, at, 0);
        let word = self.memory.load_u64(at)?;
        note(word);
        Ok(loaded(Location::caller(), self.number << 60 | at, word))
    }

    #[track_caller]
    fn write(&self, at: u64, bytes: &[u8]) {
        if self.holds(Location::caller(), at, bytes) {
            return;
        }
        let (first, second) = bytes.split_at(Self::half(at, bytes.len()).unwrap_or(0));
        if !first.is_empty() {
            self.pass(3, at, 0);
            self.memory.write(at, first);
        }
        self.pass(3, at, Content::of(bytes).0);
        self.memory.write(at + first.len() as u64, second);
        self.release();
    }

    #[track_caller]
    fn stream(&self, at: u64, bytes: &[u8]) {
        if self.holds(Location::caller(), at, bytes) {
            return;
        }
        let (first, second) = bytes.split_at(Self::half(at, bytes.len()).unwrap_or(0));
        if !first.is_empty() {
            self.pass(4, at, 0);
            self.memory.stream(at, first);
        }
        self.pass(4, at, Content::of(bytes).0);
        self.memory.stream(at + first.len() as u64, second);
        self.release();
    }

    #[track_caller]
    fn store_u64(&self, at: u64, word: u64) {
        if self.holds(Location::caller(), at, &word.to_le_bytes()) {
            return;
        }
        self.pass(5, at, word);
        stored(self.number << 60 | at);
        self.memory.store_u64(at, word);
        self.release();
    }

    #[track_caller]
    fn flush(&self, at: u64, len: u64) {
        if self.stage.visit(SiteKind::Flush, Location::caller()) {
            return;
        }
        self.pass(6, at, len);
        self.memory.flush(at, len);
    }

    #[track_caller]
    fn fence(&self) -> Result<(), Sealed> {
        if self.stage.visit(SiteKind::Fence, Location::caller()) {
            return Ok(());
        }
        self.pass(FENCE, 0, 0);
        let fenced = self.memory.fence();
        self.release();
        fenced
    }

    fn line_order(&self) -> LineOrder {
        self.memory.line_order()
    }
}
