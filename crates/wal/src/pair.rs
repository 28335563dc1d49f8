//! Two strips that are filled in turn: while one is absorbed, the other one is filled.
//!
//! Part of the log of `tidegate run-log`, to be removed with it; until then it keeps its words.
//!
//! Fillings of both have consecutive numbers: the odd ones are the first strip's, the even ones the
//! second's. The lower one of the two that were begun last is being filled until [`Pair::turn`]
//! goes on with the next; then it is *handed over* until [`Pair::absorbed`] says that it counts for
//! nothing, and its strip is free for the filling after the next.
//!
//! # Why it is right after a power cut
//!
//! What [`crate::strip`] says holds for each strip by itself. Besides:
//!
//! - *Which filling is newer*: records of two fillings may count at once, and their numbers say
//!   which ones are older: [`records`] gives those first. Of two fillings of a strip only the newer
//!   one can count, as its word tells of one.
//! - *Cut at a turn*: nothing is stored. All that was staged counts before, so no sync is about two
//!   strips: its one word leaves all of it or nothing.
//! - *Cut while the older filling is absorbed*: until the absorber's commit is durable both count,
//!   from then on the newer one alone. What the absorber took may be newer than the older filling,
//!   as the program went on: then it is what the newer one has too, or what no sync has promised
//!   yet, and the newer records go over it.
//! - *Cut while a strip is filled again*: its older filling was absorbed before [`Pair::absorbed`]
//!   was called, durably. Absorbers take fillings in their order: the last one that was absorbed is
//!   known by its number, and those before it count for nothing either.

use crate::strip::{self, Left, Range, Record, Staged, Strip};
use tidegate_layout::kept::{Counting, STRIP_FILLING_MAX};
use tidegate_media::{Region, Result, Sealed};

/// Strips of a pair.
pub const STRIPS: usize = 2;

/// Two strips, and which of them is being filled.
pub struct Pair<R> {
    strips: [Strip<R>; STRIPS],
    now: usize,
}

/// Which strip of a pair has `filling`, which is not 0.
pub fn strip_of(filling: u32) -> usize {
    usize::from(filling.is_multiple_of(2))
}

impl<R: Region> Pair<R> {
    /// Begins to fill `strips` for the file of `slot` in the run `session`. Whatever they had
    /// counts for nothing on return, durably.
    pub fn open(strips: [R; STRIPS], session: u64, slot: u32) -> Result<Pair<R>, Sealed> {
        let [first, second] = strips;
        let strips = [Strip::open(first, session, slot, 1)?, Strip::open(second, session, slot, 2)?];
        Ok(Pair { strips, now: 0 })
    }

    fn now(&self) -> &Strip<R> {
        &self.strips[self.now]
    }

    fn other(&self) -> &Strip<R> {
        &self.strips[1 - self.now]
    }

    /// The number of the filling that is being filled.
    pub fn filling(&self) -> u32 {
        self.now().filling()
    }

    /// What was put there since it began, committed or not.
    pub fn ranges(&self) -> &[Range] {
        self.now().ranges()
    }

    /// How much room it has left.
    pub fn left(&self) -> Left {
        self.now().left()
    }

    /// Puts `bytes`, which were written at `at`, there: see [`Strip::stage`].
    pub fn stage(&mut self, at: u64, bytes: &[u8]) -> Result<Staged, Sealed> {
        self.strips[self.now].stage(at, bytes)
    }

    /// Makes everything that was staged count: see [`Strip::commit`].
    pub fn commit(&mut self) -> Result<(), Sealed> {
        self.strips[self.now].commit()
    }

    /// Goes on with the next filling. False: there is none yet, or something here does not count
    /// yet.
    pub fn turn(&mut self) -> bool {
        let next = self.other().filling();
        let free = next > self.filling() && next <= STRIP_FILLING_MAX;
        let turns = free && self.now().is_committed();
        if turns {
            self.now = 1 - self.now;
        }
        turns
    }

    /// Whether whoever absorbs `filling`, which is not 0, has come as far as to clear its strip.
    /// Only a hint that [`Pair::absorbed`] will be called soon.
    pub fn is_clear(&self, filling: u32) -> bool {
        self.strips[strip_of(filling)].is_clear()
    }

    /// All that `filling` and those before it are about is elsewhere, durably, and so is that they
    /// count for nothing. False: there is no further filling.
    pub fn absorbed(&mut self, filling: u32) -> bool {
        for strip in self.strips.iter_mut().filter(|strip| strip.filling() <= filling) {
            strip.begin(strip.slot(), strip.filling() + 2);
        }
        self.now = usize::from(self.strips[1].filling() < self.strips[0].filling());
        self.filling() <= STRIP_FILLING_MAX
    }

    /// Nothing counts that was said of the slot before, durably. From now on the file's slot is
    /// `slot`.
    pub fn forgotten(&mut self, slot: u32) {
        for (filling, strip) in (1..).zip(&mut self.strips) {
            strip.begin(slot, filling);
        }
        self.now = 0;
    }
}

/// The records of `strips` that count for the run `session`, the oldest first, see
/// [`strip::records`]; and the filling of each.
pub fn records<'a, R: Region + 'a>(
    strips: impl IntoIterator<Item = &'a R>,
    session: u64,
    counts: impl Fn(Counting) -> bool,
) -> Result<Vec<(Counting, Record)>> {
    let mut fillings = Vec::new();
    for strip in strips {
        fillings.extend(strip::records(strip, session, &counts)?);
    }
    fillings.sort_by_key(|(counting, _)| (counting.slot, counting.filling));
    let each = |(counting, records): (Counting, Vec<Record>)| records.into_iter().map(move |record| (counting, record));
    Ok(fillings.into_iter().flat_map(each).collect())
}

#[cfg(test)]
mod tests;
