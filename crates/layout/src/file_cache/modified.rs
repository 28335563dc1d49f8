//! Times of modification as the pool has them: one word each, of which none is 0.

use crate::file_cache::namespace::LoggedTime;

/// Bits for nanoseconds and one.
const NANOS_BITS: u32 = 30;

/// Where seconds begin: those that ext4 has.
const FIRST_SECOND: i64 = i32::MIN as i64;

/// The last second that a word has.
const LAST_SECOND: i64 = FIRST_SECOND + (1 << (64 - NANOS_BITS)) - 1;

/// The word for a time, which is the nearest one if the word has no such second.
pub fn modified_word(time: LoggedTime) -> u64 {
    let seconds = (time.seconds.clamp(FIRST_SECOND, LAST_SECOND) - FIRST_SECOND).cast_unsigned();
    seconds << NANOS_BITS | (u64::from(time.nanos.min(999_999_999)) + 1)
}

/// The time of a word; 0 is none, and neither is one with more nanoseconds than a second has.
pub fn modified_time(word: u64) -> Option<LoggedTime> {
    let nanos = (word & ((1 << NANOS_BITS) - 1)).checked_sub(1).filter(|nanos| *nanos < 1_000_000_000)?;
    let seconds = (word >> NANOS_BITS).cast_signed() + FIRST_SECOND;
    Some(LoggedTime { seconds, nanos: u32::try_from(nanos).ok()? })
}

/// Words between times that the clock's ticks may lie apart, and an end of a second.
const TICK: u64 = 1 << 27;

/// The word for a change at `now` after one at `before`: another one, and a later one, also within
/// a tick of the clock. Where the clock was set back by more, `now`.
pub fn later_modified_word(before: u64, now: u64) -> u64 {
    match before.checked_sub(now) {
        Some(ahead) if ahead < TICK && before & ((1 << NANOS_BITS) - 1) < 1_000_000_000 => before + 1,
        Some(ahead) if ahead < TICK => ((before >> NANOS_BITS) + 1) << NANOS_BITS | 1,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_every_time_that_ext4_has_and_the_nearest_of_any_other() {
        let through = |seconds, nanos| {
            let time = modified_time(modified_word(LoggedTime { seconds, nanos })).expect("a time");
            (time.seconds, time.nanos)
        };
        for seconds in [FIRST_SECOND, -1, 0, 1_700_000_000, LAST_SECOND] {
            for nanos in [0, 1, 999_999_999] {
                assert_eq!(through(seconds, nanos), (seconds, nanos));
            }
        }
        assert_eq!((through(i64::MIN, 5), through(i64::MAX, 5)), ((FIRST_SECOND, 5), (LAST_SECOND, 5)));
        assert_eq!([0, 1_000_000_001, (1 << NANOS_BITS) - 1].map(modified_time), [None; 3]);
        assert!(modified_time(1_000_000_000).is_some());
    }

    #[test]
    fn changes_within_a_tick_of_the_clock_have_words_of_their_own() {
        let at = |seconds, nanos| modified_word(LoggedTime { seconds, nanos });
        let later = later_modified_word;
        assert_eq!(later(0, at(5, 0)), at(5, 0));
        assert_eq!(later(at(5, 0), at(5, 4_000_000)), at(5, 4_000_000));
        assert_eq!(later(at(5, 7), at(5, 7)), at(5, 8));
        assert_eq!(later(at(5, 9), at(5, 7)), at(5, 10));
        assert_eq!(later(at(5, 999_999_999), at(5, 999_999_999)), at(6, 0));
        assert_eq!(later(at(6, 0), at(5, 999_999_999)), at(6, 1), "behind the end of a second");
        assert_eq!(later(at(9, 0), at(5, 7)), at(5, 7), "the clock was set back");
    }
}
