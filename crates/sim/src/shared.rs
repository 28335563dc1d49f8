//! Simulated memory that a process shares with the next one: it outlives a kill, and no power cut.
//!
//! Stores are visible at once, streamed ones not to every thread: half of their lines stay with the
//! core that streamed them until its next fence. A kill loses nothing of them: a processor finishes
//! the stores it has begun.

use crate::image::Image;
use std::sync::{Mutex, MutexGuard};
use tidegate_media::sync::{AtomicU64, Ordering, thread_token};
use tidegate_media::{ExchangeWords, LINE_BYTES, Poison, Region, Sealed};
use tidegate_virtual_cores::mix;

/// Memory without power cuts. Cores are told apart by [`thread_token`].
pub struct SharedMemory {
    len: u64,
    /// Counts accesses, and is where a scheduler that stands in for the atomics may change threads.
    accesses: AtomicU64,
    state: Mutex<State>,
}

struct State {
    image: Image,
    /// Streamed lines that only their core sees, in their order.
    streamed: Vec<(u32, u64, Vec<u8>)>,
    /// The access from which on stores are lost.
    lost_from: u64,
    sealed: Option<Sealed>,
}

impl SharedMemory {
    /// `len` zero bytes.
    pub fn new(len: u64) -> SharedMemory {
        SharedMemory::of(Image::zeroed(len))
    }

    /// What another process left.
    pub fn of(image: Image) -> SharedMemory {
        let len = image.len();
        let state = State { image, streamed: Vec::new(), lost_from: u64::MAX, sealed: None };
        SharedMemory { len, accesses: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// From access number `access` on, the medium refuses every store.
    pub fn lose_stores_from(&self, access: u64) {
        self.state().lost_from = access;
    }

    /// Accesses so far.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// Whether [`SharedMemory::lose_stores_from`] was asked for.
    pub fn may_lose_stores(&self) -> bool {
        self.state().lost_from != u64::MAX
    }

    /// Whether a store was lost.
    pub fn has_lost(&self) -> bool {
        self.state().sealed.is_some()
    }

    /// What a kill at this instant leaves to the next process.
    pub fn left(&self) -> Image {
        let state = self.state();
        let mut image = state.image.clone();
        state.streamed.iter().for_each(|(_, at, line)| image.write(*at, line));
        image
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no access panics with the lock held")
    }

    /// Lets a scheduler in, then takes the state.
    fn access(&self) -> MutexGuard<'_, State> {
        let number = self.accesses.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        if number >= state.lost_from {
            state.lost_from = 0;
        }
        state
    }
}

impl State {
    fn refuses(&mut self, at: u64) -> bool {
        if self.lost_from == 0 {
            self.sealed.get_or_insert(Sealed::StoreLost { at });
        }
        self.lost_from == 0
    }

    fn fence(&mut self, core: u32) {
        let State { image, streamed, .. } = self;
        streamed.retain(|(of, at, line)| {
            if *of == core {
                image.write(*at, line);
            }
            *of != core
        });
    }
}

impl ExchangeWords for SharedMemory {
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        let mut state = self.access();
        // A processor that exchanges a word has made its earlier stores visible; streamed ones are
        // not among those.
        let was = state.image.load_u64(at);
        if was == old && !state.refuses(at) {
            state.image.store_u64(at, new);
        }
        Ok(was)
    }
}

impl Region for SharedMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let state = self.access();
        state.image.read(at, out);
        let core = thread_token();
        for (_, line_at, line) in state.streamed.iter().filter(|(of, ..)| *of == core) {
            overlay(out, at, *line_at, line);
        }
        Ok(())
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let mut state = self.access();
        if !state.refuses(at) {
            state.image.write(at, bytes);
        }
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        let mut state = self.access();
        if state.refuses(at) {
            return;
        }
        let core = thread_token();
        for (offset, line) in (0..).step_by(64).zip(bytes.chunks(64)) {
            let at = at + offset;
            if mix(at / LINE_BYTES) & 1 == 0 {
                state.image.write(at, line);
            } else {
                state.streamed.push((core, at, line.to_vec()));
            }
        }
    }

    fn store_u64(&self, at: u64, word: u64) {
        let mut state = self.access();
        if !state.refuses(at) {
            state.image.store_u64(at, word);
        }
    }

    fn flush(&self, _at: u64, _len: u64) {}

    fn fence(&self) -> Result<(), Sealed> {
        let mut state = self.access();
        state.fence(thread_token());
        state.sealed.map_or(Ok(()), Err)
    }
}

/// Puts the part of `line`, which lies at `line_at`, that falls into `out`, which lies at `at`,
/// there.
fn overlay(out: &mut [u8], at: u64, line_at: u64, line: &[u8]) {
    for (byte_at, byte) in (line_at..).zip(line) {
        if let Some(index) = byte_at.checked_sub(at).and_then(|index| usize::try_from(index).ok())
            && let Some(place) = out.get_mut(index)
        {
            *place = *byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::on_core;

    fn bytes_of(memory: &SharedMemory) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        memory.read(0, &mut bytes).expect("it is sound");
        bytes
    }

    #[test]
    fn others_see_streamed_lines_after_the_fence_and_a_kill_loses_none() {
        let memory = SharedMemory::new(1024);
        on_core(1, || memory.stream(0, &[7; 1024]));
        assert!(on_core(2, || bytes_of(&memory)).contains(&0));
        assert_eq!(on_core(1, || bytes_of(&memory)), [7; 1024]);
        assert_eq!(memory.left().to_vec(), [7; 1024]);
        on_core(1, || memory.fence()).expect("no store was lost");
        assert_eq!(on_core(2, || bytes_of(&memory)), [7; 1024]);
    }

    #[test]
    fn a_lost_store_is_reported_by_the_fence() {
        let memory = SharedMemory::new(1024);
        memory.lose_stores_from(2);
        memory.store_u64(0, 1);
        memory.fence().expect("nothing is lost yet");
        memory.store_u64(8, 1);
        assert_eq!(memory.fence(), Err(Sealed::StoreLost { at: 8 }));
        assert_eq!(memory.load_u64(8), Ok(0));
    }
}
