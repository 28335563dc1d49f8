//! The board on which programs with the direct path say by which program context they call. It lies
//! beside the memory of unsynced writes, and is no more than a hint.

use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, ftruncate};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tidegate_file_wire::{
    BOARD_BYTES, BOARD_DEVICE_AT, BOARD_KEPT_READS_AT, BOARD_LEASED_AT, BOARD_LEASED_WORDS, BOARD_MAGIC,
    BOARD_RECALL_AT, BOARD_ROOM_AT, BOARD_WANTED_AT, Said, board_place, leased_bit, leased_place, said_by,
};
use tidegate_host::owned::{What, accept};
use tidegate_media::OutlivingMemory;
use tidegate_policy::placement::NamedPlacement;

/// The board of a mount.
pub struct ContextBoard {
    memory: OutlivingMemory,
    /// Where programs find it.
    pub path: PathBuf,
    counts: [AtomicU64; 2],
    /// When programs were asked for room last.
    rung: Mutex<Option<Instant>>,
}

/// Between two times that programs are asked for room: as long as giving some takes them, about.
const RING_EVERY: Duration = Duration::from_millis(20);

impl ContextBoard {
    /// The board at `path` of the mount on `device`, which tells programs whether the policy asks
    /// for contexts. Programs may have it from an earlier server.
    pub fn open(path: PathBuf, device: u64, policy: NamedPlacement) -> io::Result<ContextBoard> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        accept(&opened, What::File)?;
        ftruncate(&opened, BOARD_BYTES)?;
        let bytes = usize::try_from(BOARD_BYTES).expect("it is small");
        let memory = OutlivingMemory::of(opened.as_fd(), 0, bytes)?;
        memory.store_word(BOARD_DEVICE_AT, device)?;
        memory.store_word(BOARD_WANTED_AT, u64::from(policy.bytes_of_contexts() > 0))?;
        // This server's counts begin at 0; a read that is told of meanwhile is not counted.
        memory.store_word(BOARD_KEPT_READS_AT, 0)?;
        memory.store_word(0, BOARD_MAGIC)?;
        let board = ContextBoard { memory, path, counts: [const { AtomicU64::new(0) }; 2], rung: Mutex::default() };
        // Those that an earlier server lent are not lent any more.
        board.say_leased(std::iter::empty());
        Ok(board)
    }

    /// The context by which a thread makes the request that is being answered, if it says one. If
    /// the thread may say one, it hears that this request was answered.
    pub fn answering(&self, thread: u32) -> Option<u64> {
        let place = board_place(thread);
        let said = said_by(thread, self.word(place));
        if said != Said::Nothing {
            // A board that cannot be stored to says nothing either.
            let _ = self.memory.store_word(place + 8, self.word(place + 8).wrapping_add(1));
        }
        let context = if let Said::Context(context) = said { Some(context) } else { None };
        self.counts[usize::from(context.is_none())].fetch_add(1, Ordering::Relaxed);
        context
    }

    /// Has programs give back a part of the pages that they have mapped, if they can. A program
    /// asks for room again and again; this heeds it seldom.
    pub fn ask_for_room(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if rung.is_none_or(|rung| rung.elapsed() >= RING_EVERY) {
            *rung = Some(Instant::now());
            if let Err(error) = self.memory.ring(BOARD_ROOM_AT) {
                tracing::warn!("programs cannot be asked for room for mapped pages: {error}");
            }
        }
    }

    /// Has programs ask whether files are wanted of which they upgraded mappings.
    pub fn recall(&self) {
        if let Err(error) = self.memory.ring(BOARD_RECALL_AT) {
            tracing::warn!("programs cannot be asked for files whose mappings they upgraded: {error}");
        }
    }

    /// Says which files have a lease, by their inodes.
    pub fn say_leased(&self, inodes: impl Iterator<Item = u64>) {
        let mut words = [0; BOARD_LEASED_WORDS];
        for (word, bit) in inodes.map(leased_place).map(leased_bit) {
            words[word] |= bit;
        }
        for (at, word) in (BOARD_LEASED_AT..).step_by(size_of::<u64>()).zip(words) {
            // A board that cannot be stored to says nothing.
            let _ = self.memory.store_word(at, word);
        }
    }

    /// Requests that had a context, and those that had none.
    pub fn counts(&self) -> [u64; 2] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Reads for which programs made no request, as far as they have told.
    pub fn kept_reads(&self) -> u64 {
        self.word(BOARD_KEPT_READS_AT)
    }

    fn word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        if self.memory.load(at, &mut word).is_ok() { u64::from_le_bytes(word) } else { 0 }
    }
}

impl fmt::Debug for ContextBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextBoard").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_file_wire::said_word;

    #[test]
    fn programs_are_asked_for_room_and_for_files_by_words_that_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let board = ContextBoard::open(folder.path().join("board"), 42, NamedPlacement::Uhnvm).expect("made");
        board.ask_for_room();
        board.recall();
        assert_eq!([BOARD_ROOM_AT, BOARD_RECALL_AT].map(|at| board.word(at)), [1, 1]);
    }

    #[test]
    fn a_thread_that_has_a_place_hears_of_its_requests_and_a_second_server_finds_its_context() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("board");
        let board = ContextBoard::open(path.clone(), 42, NamedPlacement::Uhnvm).expect("made");
        let heard = |board: &ContextBoard| board.word(board_place(7) + 8);
        assert_eq!((board.answering(7), heard(&board)), (None, 0), "nobody is there");
        board.memory.store_word(board_place(7), said_word(7, 0)).expect("stored");
        assert_eq!((board.answering(7), heard(&board)), (None, 1));
        board.memory.store_word(board_place(7), said_word(7, 99)).expect("stored");
        drop(board);
        let board = ContextBoard::open(path, 42, NamedPlacement::Uhnvm).expect("there");
        assert_eq!((board.answering(7), heard(&board)), (Some(99), 2));
        assert_eq!((board.answering(7 + 4096), board.counts()), (None, [1, 1]), "another thread has the place");
    }
}
