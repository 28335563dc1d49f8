//! The region that engines see: two sides, or the one that is left.

use crate::page::{self, SyncSide};
use crate::repairs::Repairs;
use tidegate_layout::mirror::{MIRROR_PAGE_BYTES, MirrorSide};
use tidegate_media::sync::{AtomicU32, Mutex, Ordering};
use tidegate_media::{LineOrder, Poison, Region, Sealed};

/// Which sides take stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Both.
    Both,
    /// Side 0 alone.
    First,
    /// Side 1 alone.
    Second,
}

impl Liveness {
    fn word(self) -> u32 {
        match self {
            Liveness::Both => 3,
            Liveness::First => 1,
            Liveness::Second => 2,
        }
    }

    fn of(word: u32) -> Liveness {
        match word & 3 {
            1 => Liveness::First,
            2 => Liveness::Second,
            _ => Liveness::Both,
        }
    }
}

/// In the word of a side that was opened alone: its page does not say so yet.
const UNSAID: u32 = 4;

/// In that word, beside [`UNSAID`]: the engine is open, and the next store or fence says it first.
const SAID_BY_STORES: u32 = 8;

/// Is told what the survivor's page says, once a side was given up: clients notice nothing.
pub type TellLoss = fn(&MirrorSide);

/// Two regions as one.
pub struct Mirror<R> {
    sides: [Option<R>; 2],
    len: u64,
    /// A [`Liveness`], with [`UNSAID`] and [`SAID_BY_STORES`]. Written with Release after the
    /// survivor's page is durable, read with Acquire: a thread that leaves out the lost side
    /// acknowledges nothing that the page does not cover.
    live: AtomicU32,
    /// What the page of the live sides says. Locked while a side is given up.
    page: Mutex<Recorded>,
    sync: SyncSide<R>,
    tell_loss: TellLoss,
    pub(crate) repairs: Repairs,
}

/// What the page of the live sides says, or that it could not be written.
struct Recorded {
    side: MirrorSide,
    failed: Option<Sealed>,
}

impl<R: Region> Mirror<R> {
    /// The set that `page` names, of `sides` by their numbers.
    pub(crate) fn new(sides: [Option<R>; 2], page: MirrorSide, live: Liveness, sync: SyncSide<R>) -> Mirror<R> {
        Mirror {
            sides,
            len: page.region_bytes - MIRROR_PAGE_BYTES,
            live: AtomicU32::new(live.word()),
            page: Mutex::new(Recorded { side: page, failed: None }),
            sync,
            tell_loss: |_| (),
            repairs: Repairs::default(),
        }
    }

    /// This mirror of one side, whose page does not say yet that the side goes on alone.
    pub(crate) fn unsaid(self) -> Mirror<R> {
        self.live.fetch_or(UNSAID, Ordering::Relaxed);
        self
    }

    /// Has the next store or fence of a side that was opened alone say so first: the engine is
    /// open. What it stored until then, a set that is opened whole may lack.
    pub fn engine_is_open(&self) {
        if self.is_unsaid() {
            self.live.fetch_or(SAID_BY_STORES, Ordering::AcqRel);
        }
    }

    /// Whether the region is a side that was opened alone, and its page does not say so yet: the
    /// other side is not stale.
    pub fn is_unsaid(&self) -> bool {
        self.live.load(Ordering::Acquire) & UNSAID != 0
    }

    /// Makes the page of a side that was opened alone say so, durably, unless it does: the other
    /// side is stale then. A client may be answered only afterwards.
    ///
    /// # Errors
    /// The side lost the store; every later fence fails.
    #[cold]
    pub fn go_alone(&self) -> Result<(), Sealed> {
        let mut page = self.page.lock();
        if let Some(sealed) = page.failed {
            return Err(sealed);
        }
        if !self.is_unsaid() {
            return Ok(());
        }
        match page::go_alone(self.reader(), page.side, self.sync) {
            Ok(side) => {
                page.side = side;
                self.live.store(self.liveness().word(), Ordering::Release);
                Ok(())
            }
            Err(sealed) => {
                page.failed = Some(sealed);
                Err(sealed)
            }
        }
    }

    /// This mirror, which calls `tell_loss` after it gave up a side.
    pub fn telling_loss(self, tell_loss: TellLoss) -> Mirror<R> {
        Mirror { tell_loss, ..self }
    }

    /// Which sides take stores now.
    #[inline]
    pub fn liveness(&self) -> Liveness {
        Liveness::of(self.live.load(Ordering::Acquire))
    }

    /// Which sides a store or fence goes to. A side that was opened alone says so first, once its
    /// engine is open; if it cannot, fences fail.
    #[inline]
    fn stored_to(&self) -> Result<Liveness, Sealed> {
        let word = self.live.load(Ordering::Acquire);
        if word & SAID_BY_STORES != 0 {
            self.go_alone()?;
        }
        Ok(Liveness::of(word))
    }

    /// What the page of the live sides says. The number of its side means nothing while both live.
    pub fn page(&self) -> MirrorSide {
        self.page.lock().side
    }

    /// The regions of the set that were opened, by the numbers of their sides.
    pub fn sides(&self) -> [Option<&R>; 2] {
        [self.sides[0].as_ref(), self.sides[1].as_ref()]
    }

    /// Gives back the region that reads come from.
    pub(crate) fn into_reader(self) -> R {
        let first = usize::from(self.liveness() == Liveness::Second);
        let [zero, one] = self.sides;
        if first == 0 { zero } else { one }.expect("a side that lives is open")
    }

    /// Lines that the first side did not give, and that were stored there anew.
    pub fn repaired_lines(&self) -> u64 {
        self.repairs.count()
    }

    /// The side of that number, which is open: it lives, or did until now.
    #[inline]
    pub(crate) fn side(&self, number: usize) -> &R {
        self.sides[number].as_ref().expect("a side that lives is open")
    }

    /// The side that reads come from.
    #[inline]
    pub(crate) fn reader(&self) -> &R {
        self.side(usize::from(self.liveness() == Liveness::Second))
    }

    /// Does `act` to each live side, side 1 first: repairs of side 0 rest on that.
    #[inline]
    fn each(&self, act: impl Fn(&R)) {
        // The fence that acknowledges the store tells why it cannot.
        match self.stored_to().unwrap_or_else(|_| self.liveness()) {
            Liveness::Both => {
                act(self.side(1));
                act(self.side(0));
            }
            Liveness::First => act(self.side(0)),
            Liveness::Second => act(self.side(1)),
        }
    }

    #[inline]
    #[track_caller]
    fn check_range(&self, at: u64, len: u64) {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {at} reach past a mirror of {} bytes", self.len);
    }

    /// Gives up the side that answered a fence with an error: the other one goes on alone, and says
    /// so before anything is acknowledged. Fails if no side is left.
    #[cold]
    pub(crate) fn give_up(&self, answers: [Result<(), Sealed>; 2]) -> Result<(), Sealed> {
        let mut page = self.page.lock();
        if let Some(sealed) = page.failed {
            return Err(sealed);
        }
        let (survivor, left) = match (self.liveness(), answers) {
            // Another thread was first.
            (Liveness::First, [answer, _]) | (Liveness::Second, [_, answer]) => return answer,
            (Liveness::Both, [Ok(()), Ok(())]) => return Ok(()),
            (Liveness::Both, [Err(sealed), Err(_)]) => {
                page.failed = Some(sealed);
                return Err(sealed);
            }
            (Liveness::Both, [Ok(()), Err(_)]) => (0, Liveness::First),
            (Liveness::Both, [Err(_), Ok(())]) => (1, Liveness::Second),
        };
        let side = MirrorSide { side: u32::from(survivor == 1), ..page.side };
        match page::go_alone(self.side(survivor), side, self.sync) {
            Ok(side) => {
                page.side = side;
                self.live.store(left.word(), Ordering::Release);
                drop(page);
                (self.tell_loss)(&side);
                Ok(())
            }
            Err(sealed) => {
                page.failed = Some(sealed);
                Err(sealed)
            }
        }
    }
}

impl<R: Region> Region for Mirror<R> {
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.check_range(at, out.len() as u64);
        self.reader().read(at, out).or_else(|_| self.read_from_both(at, out))
    }

    #[inline]
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.check_range(at, 8);
        self.reader().load_u64(at).or_else(|_| {
            let mut word = [0; 8];
            self.read_from_both(at, &mut word)?;
            Ok(u64::from_le_bytes(word))
        })
    }

    #[inline]
    #[track_caller]
    fn write(&self, at: u64, bytes: &[u8]) {
        self.check_range(at, bytes.len() as u64);
        self.each(|side| side.write(at, bytes));
    }

    #[inline]
    #[track_caller]
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.check_range(at, bytes.len() as u64);
        self.each(|side| side.stream(at, bytes));
    }

    #[inline]
    #[track_caller]
    fn store_u64(&self, at: u64, word: u64) {
        self.check_range(at, 8);
        self.each(|side| side.store_u64(at, word));
    }

    #[inline]
    #[track_caller]
    fn flush(&self, at: u64, len: u64) {
        self.check_range(at, len);
        self.each(|side| side.flush(at, len));
    }

    #[inline]
    fn fence(&self) -> Result<(), Sealed> {
        match self.stored_to()? {
            Liveness::First => self.side(0).fence(),
            Liveness::Second => self.side(1).fence(),
            Liveness::Both => {
                let second = self.side(1).fence();
                match (self.side(0).fence(), second) {
                    (Ok(()), Ok(())) => self.compare_repaired(),
                    (first, second) => self.give_up([first, second]),
                }
            }
        }
    }

    fn line_order(&self) -> LineOrder {
        self.reader().line_order()
    }
}

#[cfg(test)]
mod tests;
