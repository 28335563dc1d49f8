//! One name of a folder, on a strip: whether a file has it, and all that the file is, as far as its
//! process has synced it.
//!
//! Part of the log of `tidegate run-log`, to be removed with it; until then it keeps its words.
//!
//! Programs make a file, sync it, and remove it again, over and over under the same name. Each
//! file's first sync would have to wait for the disk, as its name is not durable. Instead the strip
//! tells what has the name: *nothing is known* (what the disk has is true), *nothing has it* (the
//! strip's first record, alone), or *a file has it*, of which all bytes from its beginning on are
//! on the strip, behind the first record. One word says which, so it is one of these after a power
//! cut, and never something in between.
//!
//! # Why it is right after a power cut
//!
//! What [`crate::strip`] says holds for the records of a file. Besides:
//!
//! - *Cut before a file's first commit*: the word says what it said before the file was made:
//!   nothing is known, or nothing has the name. Nobody was promised the file.
//! - *Cut while records of the next file are staged*: [`Name::gone`] was durable before, so the
//!   words that count end before them.
//! - *Cut at [`Name::gone`]*: the file is there as it was committed last, or gone; its removal has
//!   not returned.
//! - *Cut behind [`Name::begin`]*: the strip tells what it told, and of younger files than before
//!   that they count for nothing. The only one of those is what was just made, and never synced.
//! - *What the disk has* may be any older file of that name, or any older state of it: a file
//!   system makes such changes durable when it likes. So where the strip knows, what the disk has
//!   under the name counts for nothing, unless it was born after the last file that the strip knows
//!   of; and [`Name::disclaim`] may only be called when the disk has what is true, durably.

use crate::strip::{Record, Staged, Strip};
use tidegate_layout::kept::{STRIP_ATTRIBUTES_AT, STRIP_NAME_AT, StripAttributes};
use tidegate_media::{Corrupt, Error, Region, Result, Sealed};
use zerocopy::{FromBytes, IntoBytes};

/// A name, and what has it.
pub struct Name<R> {
    strip: Strip<R>,
    /// The words of its first record.
    first: u16,
    /// As they were staged last.
    attributes: Option<StripAttributes>,
    /// One past the last byte that was staged.
    end: u64,
    /// When the youngest file was born.
    born_ns: u64,
}

/// What a strip tells of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing is known.
    Unknown,
    /// Nothing has it. No file that had it was born later, in nanoseconds since 1970.
    Gone(u64),
    /// A file has it.
    File {
        /// No file that had it was born later, in nanoseconds since 1970.
        born_ns: u64,
        /// What it is like.
        attributes: StripAttributes,
        /// Its bytes, those that were written first first. Everything between them is zero, and it
        /// ends with the last one.
        records: Vec<Record>,
    },
}

impl<R: Region> Name<R> {
    /// Begins to tell of a name on the strip that is all of `region`, as `slot` of the run
    /// `session`: nothing is known of it on return, durably.
    ///
    /// # Errors
    /// The memory lost a store.
    pub fn open(region: R, session: u64, slot: u32) -> Result<Name<R>, Sealed> {
        let mut strip = Strip::open(region, session, slot, 1)?;
        strip.stage_note(STRIP_NAME_AT, &[0; 8])?;
        Ok(Name { first: strip.words(), strip, attributes: None, end: 0, born_ns: 0 })
    }

    /// A file has got the name that was born then, in nanoseconds since 1970: durable on return,
    /// and it is told of from the next commit on. Until then what the strip tells is about files
    /// that were born no later.
    ///
    /// # Errors
    /// The memory lost a store, now or before.
    pub fn begin(&mut self, born_ns: u64) -> Result<(), Sealed> {
        // Clocks are set back.
        self.born_ns = self.born_ns.max(born_ns);
        self.strip.change_first(self.born_ns)
    }

    /// Puts `bytes`, which were written at `at` to the file that has the name, behind what was
    /// written before: see [`Strip::stage`].
    ///
    /// # Errors
    /// The memory lost a store, now or before; what was committed stays.
    pub fn stage(&mut self, at: u64, bytes: &[u8]) -> Result<Staged, Sealed> {
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end < STRIP_ATTRIBUTES_AT);
        let Some(end) = end else { return Ok(Staged::NoRoom) };
        let staged = self.strip.stage(at, bytes)?;
        if staged == Staged::There {
            self.end = self.end.max(end);
        }
        Ok(staged)
    }

    /// One past the last byte that was staged since the file was made.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Makes everything that was staged count, of a file with this mode, owner and group: durable
    /// on return.
    ///
    /// # Errors
    /// The memory lost a store, now or before. Nobody knows whether what was staged counts.
    pub fn commit(&mut self, [mode, user, group]: [u32; 3]) -> Result<Staged, Sealed> {
        let attributes = StripAttributes::new(mode, user, group);
        if self.attributes.as_ref().map(IntoBytes::as_bytes) != Some(attributes.as_bytes()) {
            if self.strip.stage_note(STRIP_ATTRIBUTES_AT, attributes.as_bytes())? == Staged::NoRoom {
                return Ok(Staged::NoRoom);
            }
            self.attributes = Some(attributes);
        }
        self.strip.commit()?;
        Ok(Staged::There)
    }

    /// The file was removed, and nothing has its name: durable on return.
    ///
    /// # Errors
    /// The memory lost a store, now or before. Nobody knows what the strip tells.
    pub fn gone(&mut self) -> Result<(), Sealed> {
        self.begin_anew();
        self.strip.commit()
    }

    /// Nothing is known of the name, durably on return. The disk has what is true.
    ///
    /// # Errors
    /// As those of [`Name::gone`].
    pub fn disclaim(&mut self) -> Result<(), Sealed> {
        self.begin_anew();
        self.strip.disclaim()
    }

    fn begin_anew(&mut self) {
        self.strip.rewind(self.first);
        (self.attributes, self.end) = (None, 0);
    }
}

/// What the records of a strip tell that count, as [`crate::strip::records`] gives them.
///
/// # Errors
/// They are not those of a name.
pub fn told(records: Vec<Record>) -> Result<Told> {
    let mut records = records.into_iter();
    let first = match records.next() {
        None => return Ok(Told::Unknown),
        Some(first) if first.at == STRIP_NAME_AT => first.bytes,
        Some(first) => return Err(corrupt(format!("a record at byte {}", first.at))),
    };
    let born_ns = <[u8; 8]>::try_from(first.as_slice()).map(u64::from_le_bytes);
    let born_ns = born_ns.map_err(|_| corrupt(format!("a first record of {} bytes", first.len())))?;
    let mut attributes = None;
    let mut bytes = Vec::new();
    for record in records {
        if record.at == STRIP_ATTRIBUTES_AT {
            let read = StripAttributes::read_from_bytes(&record.bytes);
            attributes = Some(read.map_err(|_| corrupt(format!("attributes of {} bytes", record.bytes.len())))?);
        } else {
            bytes.push(record);
        }
    }
    match attributes {
        None if bytes.is_empty() => Ok(Told::Gone(born_ns)),
        None => Err(corrupt("bytes without attributes".to_owned())),
        Some(attributes) => Ok(Told::File { born_ns, attributes, records: bytes }),
    }
}

fn corrupt(found: String) -> Error {
    Corrupt { rule: "a log segment tells that the name is free, or names a file", at: 0, found }.into()
}

#[cfg(test)]
mod tests;
