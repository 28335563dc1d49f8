//! Where in a file its lease may write.

use std::ops::Range;

/// Unit of the room that is reserved for a lease.
const ROOM_UNIT: u64 = 1 << 20;
/// Room for a file to grow: a quarter of its length, within these bounds.
const AHEAD_MIN: u64 = 1 << 20;
const AHEAD_MAX: u64 = 64 << 20;
/// Room of a lease of a file with holes, around the place of the claim.
const WINDOW_BYTES: u64 = 64 << 20;

/// Room in a file of `size` bytes, with `allocated` bytes below, of which `asked` is written next.
pub fn lease_room(size: u64, allocated: u64, asked: Range<u64>) -> Range<u64> {
    let ahead = (size / 4).clamp(AHEAD_MIN, AHEAD_MAX);
    if allocated >= size && asked.start <= size.saturating_add(ahead) {
        let end = size.max(asked.end).saturating_add(ahead);
        return 0..end.next_multiple_of(ROOM_UNIT);
    }
    let start = asked.start.saturating_sub(WINDOW_BYTES / 2) / ROOM_UNIT * ROOM_UNIT;
    start..(start + WINDOW_BYTES).max(asked.end).next_multiple_of(ROOM_UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dense_file_is_lent_as_a_whole_and_one_with_holes_around_the_claim() {
        let mib = 1 << 20;
        assert_eq!(lease_room(0, 0, 0..4096), 0..2 * mib);
        assert_eq!(lease_room(100 * mib, 100 * mib, 7..8), 0..125 * mib);
        assert_eq!(lease_room(1 << 40, 4096, 1 << 39..1 << 39 | 1), (1 << 39) - 32 * mib..(1 << 39) + 32 * mib);
        assert_eq!(lease_room(100, 4096, 1 << 39..1 << 39 | 1), (1 << 39) - 32 * mib..(1 << 39) + 32 * mib);
    }
}
