//! Where *notes* stand of files that several processes write in common: words of 8 bytes, in a file
//! that all of them and the supervisor map.
//!
//! A place is about one file, and has two *halves*; a half has a bit for each block of the file, a
//! bit for each word of these, and flags. Its *turn* says which half notes go to now: the one with
//! the number of its last bit. Programs set bits, and look behind that whether the turn is the
//! same; if not, they set them in the other half too. The supervisor ends the turn first, and reads
//! the half and clears it then. So whatever was noted when it ended the turn it reads, and whatever
//! it does not find is noted where it will look next: a bit that comes too late is one too many.

/// Places there are.
pub const PLACES: u64 = 32;
/// Bytes of the file of notes.
pub const NOTES_BYTES: u64 = PLACES * PLACE_BYTES;
/// Bytes of a block of a file, which a bit is about.
pub const NOTED_BLOCK_BYTES: u64 = 4096;
/// Bytes of a file that there are bits for.
pub const NOTED_BYTES_MAX: u64 = BITS_WORDS * 64 * NOTED_BLOCK_BYTES;
/// Words with bits for blocks in a half, and words with bits for these.
pub const BITS_WORDS: u64 = 4096;
/// The same.
pub const SUMMARY_WORDS: u64 = BITS_WORDS / 64;
/// The flag of a half: something was written, and nobody knows where.
pub const DOUBT: u64 = 1;
/// Another: something was appended.
pub const APPENDED: u64 = 2;

const PLACE_BYTES: u64 = 17 * 4096;
const HALF_BYTES: u64 = (1 + SUMMARY_WORDS + BITS_WORDS) * 8;
/// A half begins behind the turn's line.
const HALVES_AT: u64 = 64;
const _: () = assert!(HALVES_AT + 2 * HALF_BYTES <= PLACE_BYTES);

/// Bits of a mark that tell the place; the others tell apart the files that were there.
const PLACE_BITS: u32 = 5;
const _: () = assert!(1 << PLACE_BITS == PLACES);

/// The mark of the file that is the `number`th at `place`, as its row has it: never 0.
pub fn mark_of(place: u64, number: u64) -> u16 {
    let mark = (number << PLACE_BITS | place) & 0x7fff;
    u16::try_from(mark).unwrap_or_default() | 0x8000
}

/// The place of a mark.
pub fn place_of(mark: u16) -> u64 {
    u64::from(mark) & (PLACES - 1)
}

/// Where the turn of `place` stands.
pub fn turn_at(place: u64) -> u64 {
    place * PLACE_BYTES
}

/// Where it stands how many writes to the file at `place` are under way ([`under_way`]). One that
/// ended with its process is counted for ever.
pub fn under_way_at(place: u64) -> u64 {
    turn_at(place) + 8
}

/// The word that says that `count` writes are under way to the file with this mark. Who began one
/// when another file was there does not count it.
pub fn under_way(mark: u16, count: u64) -> u64 {
    u64::from(mark) << 48 | count
}

fn half_at(place: u64, turn: u64) -> u64 {
    turn_at(place) + HALVES_AT + (turn & 1) * HALF_BYTES
}

/// Where the flags of the half of `turn` stand.
pub fn flags_at(place: u64, turn: u64) -> u64 {
    half_at(place, turn)
}

/// Where its `word`th word stands that has a bit for each of 64 words.
pub fn summary_at(place: u64, turn: u64, word: u64) -> u64 {
    half_at(place, turn) + (1 + word) * 8
}

/// Where its `word`th word stands that has a bit for each of 64 blocks.
pub fn bits_at(place: u64, turn: u64, word: u64) -> u64 {
    half_at(place, turn) + (1 + SUMMARY_WORDS + word) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_words_are_in_one_place() {
        let mut all = vec![];
        for place in [0, 1, PLACES - 1] {
            all.extend([turn_at(place), under_way_at(place)]);
            for turn in [6, 7] {
                all.push(flags_at(place, turn));
                all.extend((0..SUMMARY_WORDS).map(|word| summary_at(place, turn, word)));
                all.extend((0..BITS_WORDS).map(|word| bits_at(place, turn, word)));
            }
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|at| at + 8 <= NOTES_BYTES && at.is_multiple_of(8)));
    }

    #[test]
    fn marks_tell_the_place_and_who_was_there() {
        for place in 0..PLACES {
            assert_eq!(place_of(mark_of(place, 77)), place);
            assert!(mark_of(place, 77) != mark_of(place, 78) && mark_of(place, 0) != 0);
        }
    }
}
