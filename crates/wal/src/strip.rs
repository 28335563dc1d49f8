//! Strips: records of what a program wrote to a file, committed by the program itself.
//!
//! Part of the log of `tidegate run-log`, to be removed with it; until then it keeps its words.
//!
//! A strip belongs to one process and is about one file at a time. [`Strip::stage`] puts a record
//! behind those that are there, durable on return and counting for nothing; [`Strip::commit`] makes
//! all that were staged count, with one word. So a sync is all there after a power cut, or nothing
//! of it is.
//!
//! Somebody else has room for more: when a strip is full, what its records are about is put there,
//! together with the number of the strip's *filling*. From then on that filling counts for nothing,
//! and [`Strip::begin`] begins another one in its place. Who has two strips fills them in turn, see
//! [`crate::pair`].
//!
//! # Why it is right after a power cut
//!
//! - *Cut while a record is staged*: it lies behind the words that count, or in the place of a
//!   filling that counts for nothing any more. The word is not touched.
//! - *Cut at the word*: it is old or new, whole. Each record was fenced by the thread that staged
//!   it, so all of them were durable before it was stored.
//! - *Cut between the absorbing and the first commit of the next filling*: the word still tells of
//!   the old filling, whose records may be half written over. Whoever reads the strip knows which
//!   filling was absorbed, and leaves it alone.
//! - *Another run, another file*: a record names its run, and the word its slot, which no other
//!   file of that run has. [`Strip::open`] makes the word say that nothing counts before it stages
//!   anything, as a word of an older run may tell of the same slot.
//! - *The process is killed*: what it has not committed counts for nothing. If its word is visible
//!   and not durable, nobody was promised anything.

use tidegate_layout::kept::{Counting, STRIP_BYTES, STRIP_COUNTS_AT, STRIP_RECORDS_AT, StripCounts, StripRecord};
use tidegate_media::{Corrupt, LINE_BYTES, Region, Result, Sealed};
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of a file: where, and how many.
pub type Range = (u64, u64);

/// Ranges that a filling is about at most.
pub const FILLING_RANGES_MAX: usize = 128;

/// Bytes of the largest record: more at once is better brought elsewhere.
pub const RECORD_BYTES_MAX: usize = 128 << 10;

/// A record up to this long is put together first, so that no line is flushed twice.
const TOGETHER_BYTES: usize = 512;

const HEADER: usize = size_of::<StripRecord>();

/// A strip, and what was put on it.
pub struct Strip<R> {
    region: R,
    session: u64,
    slot: u32,
    filling: u32,
    staged: u16,
    counting: u16,
    /// Words of the longest record since the filling began.
    longest: u16,
    ranges: [Range; FILLING_RANGES_MAX],
    ranges_len: usize,
    /// Bytes since the last commit.
    bytes: u64,
    counts: [u64; 4],
    failed: Option<Sealed>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// It is durable, and counts from the next commit on.
    There,
    /// There is no room for it.
    NoRoom,
}

/// How much room a strip has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// For several records, unless they are longer than any was since the filling began.
    Enough,
    /// The filling had better be absorbed.
    Little,
    /// The filling is to be absorbed before much else is put there.
    HardlyAny,
}

/// A record that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where in the file its bytes lie.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl<R: Region> Strip<R> {
    /// Begins to fill the strip that is all of `region`, for the file of `slot` in the run
    /// `session`, with this `filling`. Whatever it had counts for nothing on return, durably.
    pub fn open(region: R, session: u64, slot: u32, filling: u32) -> Result<Strip<R>, Sealed> {
        clear(&region)?;
        let counts = [0, 0, 1, 1];
        let ranges = [(0, 0); FILLING_RANGES_MAX];
        let mut strip = Strip {
            region,
            session,
            slot,
            filling,
            staged: 0,
            counting: 0,
            longest: 0,
            ranges,
            ranges_len: 0,
            bytes: 0,
            counts,
            failed: None,
        };
        strip.count([0; 4]);
        Ok(strip)
    }

    /// Which filling this is.
    pub fn filling(&self) -> u32 {
        self.filling
    }

    /// What was put on the strip since its filling began, committed or not.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges[..self.ranges_len]
    }

    /// How much room is left.
    pub fn left(&self) -> Left {
        let less_than = |part: usize, records: usize| {
            let room = (self.capacity() / part).max(records * usize::from(self.longest) * 8);
            self.ranges_len + FILLING_RANGES_MAX / part > FILLING_RANGES_MAX || self.room() < room
        };
        if less_than(16, 1) {
            Left::HardlyAny
        } else if less_than(8, 2) {
            Left::Little
        } else {
            Left::Enough
        }
    }

    /// The slot of the file that it is about.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Whether it has records, and all of them count.
    pub fn is_committed(&self) -> bool {
        self.failed.is_none() && self.staged > 0 && self.counting == self.staged
    }

    /// Whether nothing on the strip counts, as far as its word tells: whoever absorbs a filling
    /// stores that.
    pub fn is_clear(&self) -> bool {
        self.region.load_u64(0) == Ok(0)
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.region.len().min(STRIP_BYTES) - STRIP_RECORDS_AT).expect("a log segment fits in memory")
    }

    fn room(&self) -> usize {
        self.capacity() - usize::from(self.staged) * 8
    }

    /// Puts `bytes`, which were written at `at`, on the strip.
    ///
    /// # Errors
    /// The memory lost a store, now or before; what was committed stays.
    pub fn stage(&mut self, at: u64, bytes: &[u8]) -> Result<Staged, Sealed> {
        self.failed.map_or(Ok(()), Err)?;
        let range = (at, bytes.len() as u64);
        let staged = if self.has_room_for(range) { self.stage_note(at, bytes)? } else { Staged::NoRoom };
        if staged == Staged::There {
            self.bytes += range.1;
            self.add(range);
        }
        Ok(staged)
    }

    /// Puts a record on the strip that tells of no bytes of a file: `at` says what it is instead.
    pub(crate) fn stage_note(&mut self, at: u64, bytes: &[u8]) -> Result<Staged, Sealed> {
        self.failed.map_or(Ok(()), Err)?;
        let words = (HEADER + bytes.len()).div_ceil(8);
        let words = u16::try_from(words).ok().filter(|_| bytes.len() <= RECORD_BYTES_MAX && words * 8 <= self.room());
        let Some(words) = words else { return Ok(Staged::NoRoom) };
        let place = STRIP_RECORDS_AT + u64::from(self.staged) * 8;
        let header =
            StripRecord { session: U64::new(self.session), at: U64::new(at), len: U64::new(bytes.len() as u64) };
        let lines = self.stream(place, header.as_bytes(), bytes);
        self.fence()?;
        self.staged += words;
        self.longest = self.longest.max(words);
        self.count([0, 0, lines, 1]);
        Ok(Staged::There)
    }

    /// Changes the first word of the bytes of the first record, whether it counts or not: durable
    /// on return.
    pub(crate) fn change_first(&mut self, word: u64) -> Result<(), Sealed> {
        self.failed.map_or(Ok(()), Err)?;
        self.region.stream(STRIP_RECORDS_AT + HEADER as u64, &word.to_le_bytes());
        self.fence()
    }

    /// The words of what was staged.
    pub(crate) fn words(&self) -> u16 {
        self.staged
    }

    /// Takes back what was staged behind the first `words` words: the next commit says that these
    /// count, and no more.
    pub(crate) fn rewind(&mut self, words: u16) {
        self.staged = words;
        (self.ranges_len, self.bytes) = (0, 0);
    }

    /// Nothing counts any more, durably. What was staged can be committed again.
    pub(crate) fn disclaim(&mut self) -> Result<(), Sealed> {
        self.failed.map_or(Ok(()), Err)?;
        let cleared = clear(&self.region);
        self.failed = cleared.err();
        self.counting = 0;
        cleared
    }

    /// Streams both behind each other, and whole words; how many lines that were.
    fn stream(&self, place: u64, header: &[u8], bytes: &[u8]) -> u64 {
        let mut together = [0; TOGETHER_BYTES];
        let first = (TOGETHER_BYTES - HEADER).min(bytes.len());
        let over = usize::try_from((place + (HEADER + first) as u64) % LINE_BYTES).expect("less than a line");
        // If there is a rest, it begins with a line.
        let first = if first < bytes.len() { first - over } else { first };
        let (joined, rest) = bytes.split_at(first);
        together[..HEADER].copy_from_slice(header);
        together[HEADER..HEADER + first].copy_from_slice(joined);
        let (whole, end) = rest.split_at(rest.len() / 8 * 8);
        let mut word = [0; 8];
        word[..end.len()].copy_from_slice(end);
        let pieces = [&together[..(HEADER + first).next_multiple_of(8)], whole, &word[..end.len().next_multiple_of(8)]];
        let mut at = place;
        let mut count = 0;
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            self.region.stream(at, piece);
            count += lines(at, piece.len() as u64);
            at += piece.len() as u64;
        }
        count
    }

    /// Makes everything that was staged count: durable on return.
    ///
    /// # Errors
    /// The memory lost a store, now or before. Nobody knows whether what was staged counts.
    pub fn commit(&mut self) -> Result<(), Sealed> {
        self.failed.map_or(Ok(()), Err)?;
        if self.counting == self.staged {
            return Ok(());
        }
        let counting = Counting { slot: self.slot, filling: self.filling, words: self.staged };
        self.region.stream(0, &counting.word().to_le_bytes());
        self.fence()?;
        self.counting = self.staged;
        let bytes = std::mem::take(&mut self.bytes);
        self.count([1, bytes, 1, 1]);
        Ok(())
    }

    /// Begins `filling` for the file of `slot`. All that the strip is about is elsewhere, durably,
    /// and so is that its filling counts for nothing; or else nothing counts, durably, that was
    /// said of its slot before.
    pub fn begin(&mut self, slot: u32, filling: u32) {
        (self.slot, self.filling) = (slot, filling);
        (self.staged, self.counting, self.longest, self.ranges_len, self.bytes) = (0, 0, 0, 0, 0);
    }

    fn fence(&mut self) -> Result<(), Sealed> {
        let fenced = self.region.fence();
        self.failed = fenced.err();
        fenced
    }

    /// Which known range `range` can go into.
    fn joins(&self, (at, len): Range) -> Option<usize> {
        let touches = |(from, known): &Range| at <= from + known && *from <= at + len;
        self.ranges().iter().rposition(touches)
    }

    fn has_room_for(&self, range: Range) -> bool {
        self.ranges_len < FILLING_RANGES_MAX || self.joins(range).is_some()
    }

    fn add(&mut self, (at, len): Range) {
        if let Some(known) = self.joins((at, len)) {
            let (from, bytes) = self.ranges[known];
            let begin = from.min(at);
            self.ranges[known] = (begin, (from + bytes).max(at + len) - begin);
        } else {
            self.ranges[self.ranges_len] = (at, len);
            self.ranges_len += 1;
        }
    }

    fn count(&mut self, more: [u64; 4]) {
        for (place, (count, more)) in (0_u64..).zip(self.counts.iter_mut().zip(more)) {
            *count += more;
            self.region.store_u64(STRIP_COUNTS_AT + place * 8, *count);
        }
    }
}

/// Lines that `at..at + len`, which is not empty, touches.
fn lines(at: u64, len: u64) -> u64 {
    (at + len - 1) / LINE_BYTES - at / LINE_BYTES + 1
}

/// Nothing on `strip` counts any more, durably on return.
pub fn clear<R: Region + ?Sized>(strip: &R) -> Result<(), Sealed> {
    strip.stream(0, &0_u64.to_le_bytes());
    strip.fence()
}

/// What the process of a strip has counted.
pub fn counts<R: Region + ?Sized>(strip: &R) -> Result<StripCounts> {
    let mut counts = StripCounts::new_zeroed();
    strip.read(STRIP_COUNTS_AT, counts.as_mut_bytes())?;
    Ok(counts)
}

/// The records of `strip` that count for the run `session`, the oldest first, and of which slot and
/// filling they are. `counts` says whether that filling still does: of one that was absorbed, or
/// whose slot is void, the records may be half written over.
pub fn records<R: Region + ?Sized>(
    strip: &R,
    session: u64,
    counts: impl FnOnce(Counting) -> bool,
) -> Result<Option<(Counting, Vec<Record>)>> {
    let Some(counting) = Counting::of(strip.load_u64(0)?).filter(|counting| counts(*counting)) else { return Ok(None) };
    let end = STRIP_RECORDS_AT + u64::from(counting.words) * 8;
    let mut at = STRIP_RECORDS_AT;
    if end > strip.len() {
        let found = format!("{} words", counting.words);
        return Err(Corrupt { rule: "records of a log segment lie in it", at: 0, found }.into());
    }
    let mut records = Vec::new();
    while at < end {
        let mut header = StripRecord::new_zeroed();
        let corrupt = |found: String| Corrupt { rule: "records of a log segment lie behind each other", at, found };
        if at + HEADER as u64 > end {
            return Err(corrupt(format!("{} bytes are left", end - at)).into());
        }
        strip.read(at, header.as_mut_bytes())?;
        if header.session.get() != session {
            // A word of an older run, and nobody has begun to fill the strip since.
            let begun = !records.is_empty();
            return if begun {
                Err(corrupt(format!("a record of run {:016x}", header.session)).into())
            } else {
                Ok(None)
            };
        }
        let len = header.len.get();
        let next = (at + HEADER as u64).checked_add(len).and_then(|next| next.checked_next_multiple_of(8));
        let Some(next) = next.filter(|next| *next <= end) else { return Err(corrupt(format!("{len} bytes")).into()) };
        let mut bytes = vec![0; usize::try_from(len).expect("a log segment fits in memory")];
        strip.read(at + HEADER as u64, &mut bytes)?;
        records.push(Record { at: header.at.get(), bytes });
        at = next;
    }
    Ok(Some((counting, records)))
}

#[cfg(test)]
mod tests;
