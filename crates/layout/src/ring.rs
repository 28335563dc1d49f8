//! Rings of elements between two cursors: the commits of a cache as they lie on a region.

use crate::on_media::{Broken, on_media};
use std::mem::offset_of;
use zerocopy::little_endian::U64;

on_media! {
    /// Which elements of the ring count: those from `tail` to `head`. Both only grow; element n
    /// lies in slot n modulo the ring's size.
    pub struct Cursors [16] {
        /// one past the last element that counts
        0: head: U64,
        /// the first element that counts
        8: tail: U64,
    }
}

impl Cursors {
    /// Where the tail lies, from the cursors' beginning.
    pub const TAIL_AT: u64 = offset_of!(Cursors, tail) as u64;

    /// How many elements count, if these may be the cursors of a ring of `slots` elements.
    pub fn check(&self, slots: u32) -> Result<u32, Broken> {
        let counting = self.head.get().checked_sub(self.tail.get());
        let counting = counting.and_then(|count| u32::try_from(count).ok()).filter(|count| *count <= slots);
        counting.ok_or_else(|| Broken {
            rule: "head follows tail by at most the ring's size",
            offset: 0,
            found: format!("{} and {}", self.head, self.tail),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn cursors_to_the_byte_and_in_order() {
        let cursors = |head, tail| Cursors { head: U64::new(head), tail: U64::new(tail) };
        assert_eq!(cursors(0x0102, 3).as_bytes(), b"\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(cursors(70, 6).check(64), Ok(64));
        assert!(cursors(71, 6).check(64).is_err() && cursors(5, 6).check(64).is_err());
    }
}
