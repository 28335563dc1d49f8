//! Machines that betray the cache: each drops or swaps one of its stores, flushes or fences.
//!
//! The engine is not changed. A [`FaultyCache`] recognises each site by where it stores, and by
//! what the same core has done since its last fence. A campaign that does not fail on such a
//! machine is blind to that mistake.

use crate::disk_cache::watch::{GroupPart, Watched};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tidegate_layout::disk_cache::{CURSORS_AT, CacheEntry, CachePlan, EntryState, START_SUMS_AT};
use tidegate_media::sync::thread_token;
use tidegate_media::{BlockDevice, Lba, LineOrder, Poison, Region as Medium, Sealed};

/// A mistake in the order of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheBug {
    /// One word of each block is never written back.
    TornWord,
    /// The fence between data and entry is missing where one block is committed.
    DataFenceMissing,
    /// The fence between data and entry is missing where a block is read in.
    FillFenceMissing,
    /// The entry's line is not written back where one block is committed.
    EntryFlushMissing,
    /// The fence that ends the commit of one block is missing.
    EntryFenceMissing,
    /// An entry's second word is stored before the first.
    EntryWordsSwapped,
    /// The second word of an entry is streamed alone although nobody has made the first durable.
    NameTakenForDurable,
    /// The fence between elements and head is missing.
    ElementsFenceMissing,
    /// The cursors are not written back.
    CursorsFlushMissing,
    /// The fence that ends the commit of several blocks is missing.
    HeadFenceMissing,
    /// The tail passes elements whose entries nobody has written back.
    RetireFlushMissing,
    /// An entry given up is not written back.
    EvictionFlushMissing,
    /// An entry given up is not fenced before it, its block, or the disk's block are used again.
    EvictionFenceMissing,
    /// An entry given up keeps a counter that older elements are ahead of.
    EvictionBehindElements,
    /// A recovery acts on cursors that a killed process has left in the caches only.
    CursorsOnOpenNotFlushed,
    /// A recovery rests on entries that a killed process has left in the caches only.
    EntriesOnOpenNotFlushed,
    /// A recovery moves the tail before the entries are durable.
    RecoveryFenceMissing,
    /// A block read in to be forgotten gets an entry all the same, which nobody frees.
    ForgottenEntryStored,
    /// A commit over a block read in to be forgotten takes the first word of its entry for durable.
    ForgottenTakenForNamed,
    /// The disk says that it has flushed, and has not.
    DiskFlushMissing,
    /// What the disk is known to hold is not doubted, durably, before it gets another block.
    DoubtFenceMissing,
    /// The doubt about what the disk holds is not written back.
    DoubtFlushMissing,
    /// The flush is missing that follows this part of bringing a group to the disk.
    GroupFlushMissing(GroupPart),
}

/// The memory of a watched machine in which one site of the engine is broken.
pub struct FaultyCache {
    watched: Watched,
    bug: CacheBug,
    plan: CachePlan,
    cores: Mutex<BTreeMap<u32, Core>>,
    /// Blocks of the disk that were read in to be forgotten.
    read_in: Mutex<BTreeSet<u64>>,
}

/// What a core did since its last fence.
#[derive(Clone, Debug, Default)]
struct Core {
    data: bool,
    elements: bool,
    committed_one: bool,
    freed: bool,
    moved_head: bool,
    /// It stored that nothing is known of one of the disk's first blocks.
    doubted: bool,
    flushed_table: bool,
    /// The entry whose first word was stored last.
    named: Option<u64>,
    /// Whether what that word names was read in to be forgotten.
    names_forgotten: bool,
    /// The entry whose second word was streamed instead of stored.
    streamed: Option<u64>,
    /// A fence left out for now: it is made up for before the next store that does not betray a
    /// block read in.
    owed: bool,
    /// A store held back, to come after the next.
    held: Option<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Superblock,
    Cursors,
    Ring,
    Entries,
    Data,
}

const CLEAN: u64 = 1 << 48;
const BLOCK_MASK: u64 = 0xffff_ffff;
const COUNTER_ONE: u64 = 1 << 32;

impl FaultyCache {
    /// `watched`, with `bug` in the cache of this plan.
    pub fn new(watched: Watched, plan: CachePlan, bug: CacheBug) -> FaultyCache {
        watched.by.0.lie_about_flushes(bug == CacheBug::DiskFlushMissing);
        if let (CacheBug::GroupFlushMissing(part), Some(journal)) = (bug, plan.journal()) {
            watched.by.0.lose_flush(journal, part);
        }
        FaultyCache { watched, bug, plan, cores: Mutex::default(), read_in: Mutex::default() }
    }

    fn part(&self, at: u64) -> Part {
        match at {
            at if at < CURSORS_AT => Part::Superblock,
            at if at < self.plan.ring_at => Part::Cursors,
            at if at < self.plan.entries_at => Part::Ring,
            at if at < self.plan.data_at => Part::Entries,
            _ => Part::Data,
        }
    }

    fn core<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        act(self.cores.lock().expect("no access panics").entry(thread_token()).or_default())
    }

    fn drops_flush(&self, part: Part, len: u64, core: &Core) -> bool {
        let table = part == Part::Entries && len > 16;
        match self.bug {
            CacheBug::EntryFlushMissing => part == Part::Entries && core.committed_one,
            CacheBug::CursorsFlushMissing => part == Part::Cursors && core.moved_head,
            CacheBug::RetireFlushMissing => part == Part::Entries && core.elements,
            CacheBug::NameTakenForDurable | CacheBug::ForgottenTakenForNamed => {
                len == 16 && core.streamed.is_some_and(|entry| self.part(entry) == part)
            }
            CacheBug::EvictionFlushMissing => part == Part::Entries && core.freed,
            CacheBug::CursorsOnOpenNotFlushed => part == Part::Cursors && !core.moved_head,
            CacheBug::EntriesOnOpenNotFlushed => table,
            CacheBug::DoubtFlushMissing => part == Part::Cursors && core.doubted,
            _ => false,
        }
    }

    fn drops_fence(&self, core: &mut Core) -> bool {
        match self.bug {
            CacheBug::DataFenceMissing => core.data && !core.elements,
            CacheBug::FillFenceMissing => {
                core.owed = core.data && !core.elements;
                core.owed
            }
            CacheBug::EntryFenceMissing => core.committed_one,
            CacheBug::ElementsFenceMissing => core.elements,
            CacheBug::HeadFenceMissing => core.moved_head,
            CacheBug::EvictionFenceMissing => core.freed,
            CacheBug::RecoveryFenceMissing => core.flushed_table,
            CacheBug::DoubtFenceMissing => core.doubted,
            _ => false,
        }
    }

    /// Makes up for the fence after data that turned out not to be a block read in.
    fn pay(&self) {
        if self.core(|core| std::mem::take(&mut core.owed)) {
            self.watched.fence().expect("the region is sound");
        }
    }

    fn store_entry(&self, at: u64, word: u64) {
        let first_word = at.is_multiple_of(16);
        if first_word {
            let names_forgotten = self.read_in.lock().expect("no access panics").contains(&word);
            self.core(|core| (core.named, core.names_forgotten) = (Some(at), names_forgotten));
            if self.bug == CacheBug::EntryWordsSwapped {
                self.core(|core| core.held = Some((at, word)));
            } else {
                self.watched.store_u64(at, word);
            }
            return;
        }
        let (holds, clean) = (word & BLOCK_MASK != 0, word & CLEAN != 0);
        if clean {
            self.core(|core| core.owed = false);
        } else {
            self.pay();
        }
        self.core(|core| {
            core.committed_one |= holds && !clean;
            core.freed |= !holds;
        });
        let named = self.core(|core| core.named) == Some(at - 8);
        let taken_for_named = match self.bug {
            CacheBug::NameTakenForDurable => !named,
            CacheBug::ForgottenTakenForNamed => named && self.core(|core| core.names_forgotten),
            _ => false,
        };
        if taken_for_named && holds && !clean {
            self.core(|core| core.streamed = Some(at - 8));
            return self.watched.stream(at, &word.to_le_bytes());
        }
        let late = self.bug == CacheBug::EvictionBehindElements && !holds && word >> 32 >= 2;
        self.watched.store_u64(at, if late { word - 2 * COUNTER_ONE } else { word });
        if let Some((at, word)) = self.core(|core| core.held.take()) {
            self.watched.store_u64(at, word);
        }
    }

    /// A block read in to be forgotten was stored to `at`.
    fn was_read_in(&self, at: u64, bytes: &[u8]) {
        let mut there = vec![0; bytes.len()];
        let disk = &self.watched.by.0.disk;
        let mut is_there = |lba: &u64| disk.read(Lba(*lba), &mut there).is_ok() && there == bytes;
        let Some(lba) = (0..self.plan.disk_blocks).find(|lba| is_there(lba)) else { return };
        self.read_in.lock().expect("no access panics").insert(lba);
        if self.bug == CacheBug::ForgottenEntryStored {
            self.store_clean_entry(lba, u32::try_from((at - self.plan.data_at) / bytes.len() as u64).expect("few"));
        }
    }

    fn store_clean_entry(&self, lba: u64, block: u32) {
        let state = |entry| {
            let words = [0, 8].map(|word| self.watched.load_u64(self.plan.entry_at(entry) + word).unwrap_or(0));
            CacheEntry::from_words(words).check(&self.plan)
        };
        let free = (0..self.plan.blocks).find_map(|entry| match state(entry) {
            Ok(EntryState::Free { counter }) => Some((entry, counter)),
            _ => None,
        });
        let Some((entry, counter)) = free else { return };
        let at = self.plan.entry_at(entry);
        self.watched.store_u64(at, lba);
        self.watched.store_u64(at + 8, self.plan.holding_word(lba, block, counter.wrapping_add(1), true));
        self.watched.flush(at, 16);
    }

    /// The second word of an entry, which commits one block in the place of another.
    fn stream_entry(&self, at: u64, word: u64) {
        self.pay();
        self.core(|core| core.committed_one = true);
        if self.bug == CacheBug::EntryFlushMissing {
            self.watched.store_u64(at, word);
        } else {
            self.watched.stream(at, &word.to_le_bytes());
        }
    }
}

impl Medium for FaultyCache {
    fn len(&self) -> u64 {
        self.watched.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.watched.read(at, out)
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.watched.load_u64(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.watched.write(at, bytes);
        if self.part(at) == Part::Data {
            self.was_read_in(at, bytes);
        }
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        let part = self.part(at);
        if let (Part::Entries, Ok(word)) = (part, bytes.try_into()) {
            return self.stream_entry(at, u64::from_le_bytes(word));
        }
        if part == Part::Ring {
            self.pay();
        }
        self.core(|core| {
            core.data |= part == Part::Data;
            core.elements |= part == Part::Ring;
        });
        if self.bug == CacheBug::TornWord && part == Part::Data {
            self.watched.stream(at, &bytes[..64]);
            self.watched.write(at + 64, &bytes[64..72]);
            self.watched.stream(at + 72, &bytes[72..]);
        } else {
            self.watched.stream(at, bytes);
        }
    }

    fn store_u64(&self, at: u64, word: u64) {
        if self.part(at) == Part::Entries {
            return self.store_entry(at, word);
        }
        self.core(|core| {
            core.moved_head |= at == CURSORS_AT;
            core.doubted |= (START_SUMS_AT..self.plan.ring_at).contains(&at) && word == 0;
        });
        self.watched.store_u64(at, word);
    }

    fn flush(&self, at: u64, len: u64) {
        let part = self.part(at);
        let dropped = self.core(|core| {
            core.flushed_table |= part == Part::Entries && len > 16;
            self.drops_flush(part, len, core)
        });
        if !dropped {
            self.watched.flush(at, len);
        }
    }

    fn fence(&self) -> Result<(), Sealed> {
        let dropped = self.core(|core| {
            let dropped = self.drops_fence(core);
            *core = Core { owed: core.owed, held: core.held, ..Core::default() };
            dropped
        });
        if dropped { Ok(()) } else { self.watched.fence() }
    }

    fn line_order(&self) -> LineOrder {
        self.watched.line_order()
    }
}
