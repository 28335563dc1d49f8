//! Entries that the medium does not give back.
//!
//! Such a line stays out of use: a store to it may be lost, and would seal the region. For each of
//! its entries a free block is withheld too, so that there are as many entries as blocks again.
//! What the entries named, nothing tells but the ring, if it still has an element about them; an
//! older element may have named another block by then, so it is a hint, and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tidegate_layout::disk_cache::{CachePlan, EntryState};
use tidegate_media::Lba;

/// Entries that cannot be read, and what is known of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoisonedEntries {
    /// Their numbers, ascending.
    pub entries: Vec<u32>,
    /// Where the first of them lies, in bytes.
    pub at: u64,
    /// Blocks of the disk that the ring knows them to have named at last, or not long ago. What
    /// only the cache had of them is lost.
    pub named: Vec<Lba>,
}

impl PoisonedEntries {
    /// Of the entries `numbers`, if `newest` is what the ring says.
    pub(crate) fn of(plan: &CachePlan, numbers: &BTreeSet<u32>, newest: &BTreeMap<u32, EntryState>) -> PoisonedEntries {
        let said = numbers.iter().filter_map(|entry| newest.get(entry));
        let lbas: BTreeSet<Lba> = said.filter_map(|state| state.lba().map(Lba)).collect();
        let at = numbers.first().map_or(0, |entry| plan.entry_at(*entry));
        PoisonedEntries { entries: numbers.iter().copied().collect(), at, named: lbas.into_iter().collect() }
    }

    /// How many of `blocks` they leave in use: for each of them one is withheld.
    pub(crate) fn leave_of(&self, blocks: u32) -> u32 {
        blocks - u32::try_from(self.entries.len()).expect("an entry has a number of 32 bits")
    }

    /// Whether nothing is lost.
    pub fn is_nothing(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Display for PoisonedEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, first) = (self.entries.len(), self.entries.first().copied().unwrap_or_default());
        write!(f, "{count} entries cannot be read, from number {first} on: up to as many blocks are lost, of which ")?;
        match &*self.named {
            [] => f.write_str("the ring knows none"),
            named => {
                f.write_str("the ring knows")?;
                let told = named.iter().take(NAMED_TOLD_MAX);
                told.enumerate().try_for_each(|(nth, lba)| write!(f, "{} {lba}", if nth > 0 { "," } else { "" }))?;
                match named.len().saturating_sub(NAMED_TOLD_MAX) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

/// Blocks that a sentence names.
const NAMED_TOLD_MAX: usize = 16;
