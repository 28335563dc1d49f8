//! The board on which programs say by which program context each of their threads calls: a file
//! in memory, which both sides map.
//!
//! | words | stored by | |
//! | --- | --- | --- |
//! | 0 | the service | [`BOARD_MAGIC`], with the version |
//! | 1 | the service | the mount's device, as `fstat` of its files tells it |
//! | 2 | the service | whether the mount's policy asks for contexts: 1, or 0 |
//! | 3 | programs | how many accesses could not be recorded to a trace |
//! | 4 | the service | changes when a thread waits for room for mapped pages; see below |
//! | 5 | programs | how many reads of leased files they had kept, and made no request for |
//! | 6 | the service | changes when a file is wanted of which a mapping was upgraded; see below |
//! | 8 to 15 | the service | for each file with a lease, a bit: [`leased_place`] |
//! | 2 `n` + 16 | the program | [`said_word`] of the thread whose place `n` is |
//! | 2 `n` + 17 | the service | how many requests of that thread it answered that have a context |
//!
//! A thread says its context before a call that may become a request, and nothing behind it. To
//! find a context takes time, so a thread whose calls do not become requests, as the kernel's page
//! cache answers them, does not look for it. Two threads may have one place: the later one has it.
//!
//! Programs wait by futex for the first halves of words 4 and 6 to change. Then they give pages
//! back, or ask whether a file is wanted of which they upgraded a mapping.
//!
//! What is on the board is a hint. Whoever may write to it can make the placement err, have pages
//! go that come again when they are touched, and have programs ask for leases in vain; no more.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Says in the environment that a program has the direct path.
pub const DIRECT: &CStr = c"TIDEGATE_DIRECT";
/// Names in the environment how many frames a program context is of, and after a colon each the
/// boards of the mounts that the program uses.
pub const CONTEXTS: &CStr = c"TIDEGATE_CONTEXTS";
/// Names in the environment how many bytes of DRAM a program may take for pages of leased files
/// that it read; unless said otherwise, [`READ_CACHE_BYTES`].
pub const READ_CACHE: &CStr = c"TIDEGATE_READ_CACHE";
/// Is in the environment if the program's own mappings of the kernel's pages are to be upgraded.
pub const UPGRADE_MAPPINGS: &CStr = c"TIDEGATE_UPGRADE_MAPPINGS";
/// See [`READ_CACHE`].
pub const READ_CACHE_BYTES: u64 = 64 << 20;
/// Boards that a program says its contexts on.
pub const BOARDS_MAX: usize = 4;
/// Frames that a program context is of, unless said otherwise.
pub const FRAMES: u32 = 5;
/// Most frames that a program context may be of.
pub const FRAMES_MAX: u32 = 8;

/// The first word of a board.
pub const BOARD_MAGIC: u64 = 0x0002_4452_4f42_4754;
/// Bytes of a board.
pub const BOARD_BYTES: u64 = (HEAD_WORDS + 2 * PLACES) * WORD_BYTES;
/// Offset of the word with the mount's device.
pub const BOARD_DEVICE_AT: u64 = WORD_BYTES;
/// Offset of the word that says whether contexts are wanted.
pub const BOARD_WANTED_AT: u64 = 2 * WORD_BYTES;
/// Offset of the word that counts accesses which could not be recorded.
pub const BOARD_LOST_AT: u64 = 3 * WORD_BYTES;

/// Offset of the word that changes when room for mapped pages is wanted.
pub const BOARD_ROOM_AT: u64 = 4 * WORD_BYTES;

/// Offset of the word that counts reads for which programs made no request.
pub const BOARD_KEPT_READS_AT: u64 = 5 * WORD_BYTES;

/// Offset of the word that changes when somebody wants a file of which a mapping was upgraded.
pub const BOARD_RECALL_AT: u64 = 6 * WORD_BYTES;

/// Offset of the first word with bits of files that have leases, and how many words there are.
pub const BOARD_LEASED_AT: u64 = 8 * WORD_BYTES;
/// See [`BOARD_LEASED_AT`].
pub const BOARD_LEASED_WORDS: usize = 8;

const WORD_BYTES: u64 = 8;
const HEAD_WORDS: u64 = 16;
/// Places for threads.
const PLACES: u64 = 4096;
/// Bits of a context that are said: the number of a thread takes the other ones.
const CONTEXT_BITS: u32 = 42;
const CONTEXT_MASK: u64 = (1 << CONTEXT_BITS) - 1;

/// A variable's name, as environments are made with it.
pub fn variable(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// What [`CONTEXTS`] says to a program whose contexts are of so many frames.
pub fn contexts_said(frames: u32, boards: &[PathBuf]) -> OsString {
    let mut said = OsString::from(frames.to_string());
    for board in boards.iter().take(BOARDS_MAX) {
        said.push(":");
        said.push(board);
    }
    said
}

/// What a thread says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It has no place: it says nothing, or another thread has it.
    Nothing,
    /// It has a place, and says no context.
    NoContext,
    /// This context, which is not 0.
    Context(u64),
}

/// Offset of the word in which a thread says its context; the service's word follows it.
pub fn board_place(thread: u32) -> u64 {
    (HEAD_WORDS + 2 * (u64::from(thread) % PLACES)) * WORD_BYTES
}

/// Where on a board a file's bit is that says whether it may have a lease, from 0 on. Other files
/// have the same one.
pub fn leased_place(inode: u64) -> u16 {
    // Neighbours get bits of their own.
    let bits = BOARD_LEASED_WORDS as u64 * 64;
    u16::try_from((inode ^ (inode / bits)) % bits).expect("few bits")
}

/// The word that has the bit of a place, and the bit there.
pub fn leased_bit(place: u16) -> (usize, u64) {
    (usize::from(place / 64), 1 << (place % 64))
}

/// A context as it is said, wherever a program says it: with as many bits as a board has room for.
/// That of none is 0, and of no other.
pub fn shown_context(context: u64) -> u64 {
    let shown = (context ^ context >> CONTEXT_BITS) & CONTEXT_MASK;
    if context == 0 { 0 } else { shown.max(1) }
}

/// The word of a thread that calls by a [shown](shown_context) context; 0: it says none.
pub fn said_word(thread: u32, shown: u64) -> u64 {
    u64::from(thread) << CONTEXT_BITS | shown & CONTEXT_MASK
}

/// What the word in a thread's place says of that thread.
pub fn said_by(thread: u32, word: u64) -> Said {
    if thread == 0 || word >> CONTEXT_BITS != u64::from(thread) {
        return Said::Nothing;
    }
    match word & CONTEXT_MASK {
        0 => Said::NoContext,
        context => Said::Context(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_says_a_context_none_or_nothing() {
        for context in [1, 7, 1 << 50, u64::MAX] {
            let shown = shown_context(context);
            assert_eq!(said_by(4321, said_word(4321, shown)), Said::Context(shown));
            assert_eq!((said_by(4322, said_word(4321, shown)), shown_context(shown)), (Said::Nothing, shown));
        }
        assert_eq!(said_by(4321, said_word(4321, 0)), Said::NoContext);
        assert_eq!([said_by(4321, 0), said_by(0, 0)], [Said::Nothing; 2]);
    }

    #[test]
    fn no_more_boards_are_said_than_a_program_has_room_for() {
        let boards: Vec<PathBuf> = ["/a", "/b", "/c", "/d", "/e"].map(PathBuf::from).into();
        assert_eq!(contexts_said(5, &boards[..1]), "5:/a");
        assert_eq!(contexts_said(8, &boards), "8:/a:/b:/c:/d");
        assert_eq!(variable(CONTEXTS), "TIDEGATE_CONTEXTS");
    }

    #[test]
    fn neighbours_among_inodes_have_bits_of_their_own() {
        let bits =
            |from: u64| (from..from + 512).map(leased_place).map(leased_bit).collect::<std::collections::BTreeSet<_>>();
        for from in [0, 512, 1 << 40] {
            assert_eq!(bits(from).len(), 512);
            assert!(bits(from).iter().all(|(word, bit)| *word < BOARD_LEASED_WORDS && bit.is_power_of_two()));
        }
    }

    #[test]
    fn places_are_on_the_board() {
        for thread in [0, 1, 4095, 4096, 4_194_304] {
            let at = board_place(thread);
            assert!((128..=BOARD_BYTES - 16).contains(&at) && at.is_multiple_of(16), "{thread} is at {at}");
        }
    }
}
