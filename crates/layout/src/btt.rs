//! The block translation table's bytes, as Linux's `nd_btt`, PMDK and UEFI (2.7 and later, chapter
//! 6) have them.
//!
//! The points on which the three disagree, and the choice here:
//! - *Flags in flog entries.* Linux writes bare block numbers, PMDK whole map entries. Here:
//!   written bare (but for the error bit of a replaced error entry, as Linux does), read with the
//!   flags stripped.
//! - *Flog slots.* Linux before 4.15 used slots 0 and 2 of a group, everybody else 0 and 1. Both
//!   are read, and a volume keeps the style it has.
//! - *A slot with sequence 2 or 3 beside an empty one.* Linux takes the empty one for the newest.
//!   Here the filled one is the newest, and such a pair is never written.

mod checksum;
mod flog;
mod geometry;
mod info;
mod map;

pub use flog::{FlogGroup, FlogHalf, SlotPair, newest_slot, next_seq};
pub use geometry::{
    ARENA_BYTES_MAX, ARENA_BYTES_MIN, ArenaGeometry, NFREE, PAGE_BYTES, SECTOR_SIZES, TooSmall, Version, arenas,
    sector_data_bytes,
};
pub use info::{Arena, InfoBlock};
pub use map::{MapEntry, MapState};
