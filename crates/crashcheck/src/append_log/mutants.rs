//! Mistakes in a log that a campaign must notice, made at its memory.

use super::model::WINDOW;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_layout::append_log::{Committed, LOG_HEADS_AT, LOG_SUPERBLOCKS_AT, LogHead};
use tidegate_media::{Region, Sealed};
use tidegate_sim::InterceptMemory;

/// A mistake in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogBug {
    /// The fence between the bytes and the word that counts them is left out.
    DataFenceLeftOut,
    /// The word that counts bytes is durable before the bytes are stored.
    LengthBeforeBytes,
    /// A sync is answered before its word is durable.
    WordFenceLeftOut,
    /// The words of further chunks and that of the chunk in which the log ended become durable
    /// together.
    WordsTogether,
    /// A slot is used again with the word of its former chunk, and recovery leaves words behind the
    /// end.
    NotCleared,
    /// The word of a slot and its new number become durable together.
    ClearFenceLeftOut,
    /// A slot is free before what lies below was flushed.
    FreedBeforeSynced,
    /// Both copies of the superblock become durable together.
    CopiesTogether,
}

/// What happens at the memory of a log with a mistake, or without one.
pub(super) struct Mistaken {
    bug: Option<LogBug>,
    /// Whether it has the mistake now.
    is_on: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The next fence is not made.
    skips_fence: bool,
    /// Bytes that are not stored yet.
    held: Vec<(u64, Vec<u8>)>,
    /// The next fence is followed by the bytes.
    has_word: bool,
}

impl Mistaken {
    pub(super) fn new(bug: Option<LogBug>, is_on: Arc<AtomicBool>) -> Mistaken {
        Mistaken { bug, is_on, state: Mutex::default() }
    }

    fn has(&self, bug: LogBug) -> bool {
        self.bug == Some(bug) && self.is_on.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no access panics")
    }
}

/// Whether the word there says which bytes of a chunk count.
fn counts(at: u64) -> bool {
    (LOG_HEADS_AT..WINDOW.start).contains(&at) && at % 64 == LogHead::COMMITTED_AT
}

impl InterceptMemory for Mistaken {
    fn stream<R: Region + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        let mut state = self.state();
        if WINDOW.contains(&at) && self.has(LogBug::LengthBeforeBytes) {
            state.held.push((at, bytes.to_vec()));
            return;
        }
        state.skips_fence |= WINDOW.contains(&at) && self.has(LogBug::DataFenceLeftOut)
            || at == LOG_SUPERBLOCKS_AT[0] && self.has(LogBug::CopiesTogether);
        memory.stream(at, bytes);
    }

    fn store_u64<R: Region + ?Sized>(&self, memory: &R, at: u64, word: u64) {
        let mut state = self.state();
        if counts(at) {
            let is_part = (1..512).contains(&Committed::of_word(word).len);
            state.has_word |= word != 0;
            state.skips_fence |= word != 0 && self.has(LogBug::WordFenceLeftOut)
                || is_part && self.has(LogBug::WordsTogether)
                || word == 0 && self.has(LogBug::ClearFenceLeftOut);
            if word == 0 && self.has(LogBug::NotCleared) {
                return;
            }
        }
        memory.store_u64(at, word);
    }

    fn fence<R: Region + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        let mut state = self.state();
        if std::mem::take(&mut state.skips_fence) {
            return Ok(());
        }
        let follow = if std::mem::take(&mut state.has_word) { std::mem::take(&mut state.held) } else { Vec::new() };
        memory.fence()?;
        if follow.is_empty() {
            return Ok(());
        }
        follow.iter().for_each(|(at, bytes)| memory.stream(*at, bytes));
        memory.fence()
    }
}
