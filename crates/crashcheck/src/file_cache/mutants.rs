//! Machines that betray the file cache: each drops or changes one of its stores, flushes or fences.
//! A campaign that does not fail on such a machine is blind to that mistake.

use std::borrow::Cow;
use tidegate_layout::file_cache::{
    FileElement, FileEntry, FileRecord, LENGTH_BITS, LanePlan, LeaseElement, StoreTimes, VolatileWrite,
};
use zerocopy::{FromBytes, IntoBytes};

/// A mistake in the order of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesBug {
    /// The fence after data is missing.
    DataFenceMissing,
    /// The fence that ends a commit is missing.
    HeadFenceMissing,
    /// The cursors are not written back.
    CursorsFlushMissing,
    /// The head lets in one element after the other: a sync is not one commit.
    SyncNotAtomic,
    /// The tail passes elements whose entries nobody has written back.
    SettleFlushMissing,
    /// The word that lengthens or cuts an entry is not written back.
    LengthFlushMissing,
    /// Entries whose bytes are below do not become void, so that recovery applies versions older
    /// than what the file has.
    NothingVoid,
    /// The ring is emptied before the entries that its elements changed are durable.
    RedoFlushMissing,
    /// A file below says that it is synced, and is not.
    BackingSyncMissing,
    /// An entry says that it is clean before the file below has its bytes.
    CleanTooEarly,
    /// A clean entry is not freed before its block is used again.
    CleanNotFreed,
    /// A file below has the same mark whoever changes it.
    OneStamp,
    /// A record does not say when its file was changed last.
    TimeNotStored,
    /// What a process with a lease says to be committed is not written back.
    LeaseFlushMissing,
    /// The fence between what such a process writes and what it lets others see is missing.
    LeaseFenceMissing,
    /// A file below does not get the time of its last change with a sync.
    TimeNotBelow,
    /// A program's `msync` does not flush what it dirtied.
    MsyncFlushMissing,
    /// A program's `msync` does not fence.
    MsyncFenceMissing,
    /// The next process does not find the mappings of programs, and gives their blocks up.
    MappingForgotten,
    /// The fence between the time that a program said and the word that it was taken is missing.
    TakenTimeFenceMissing,
    /// The word that a program's time was taken is not stored.
    TakenTimeNotStored,
    /// Shared memory does not say which write is under way.
    WriteNotUnderWay,
}

/// What is wrong with a machine, and what was done since its last fence.
pub(crate) struct Faults {
    bug: Option<FilesBug>,
    plan: LanePlan,
    data: bool,
    leased: bool,
    /// Whether bytes of a mapped block are flushed.
    mapped: bool,
    elements: bool,
    cursors: bool,
    /// Whether the time of a file's last change was stored.
    time: bool,
    /// Whether anything was streamed since the machine started.
    begun: bool,
    /// Whether the last word of an entry that was stored frees it.
    frees: bool,
}

impl Faults {
    pub(crate) fn new(bug: Option<FilesBug>, plan: LanePlan) -> Faults {
        let (data, leased, mapped, elements, cursors) = (false, false, false, false, false);
        Faults { bug, plan, data, leased, mapped, elements, cursors, time: false, begun: false, frees: false }
    }

    pub(crate) fn has(&self, bug: FilesBug) -> bool {
        self.bug == Some(bug)
    }

    fn is_in_ring(&self, at: u64) -> bool {
        (self.plan.ring_at..self.plan.record_at(0)).contains(&at)
    }

    fn is_entry(&self, at: u64) -> bool {
        (self.plan.entry_at(0)..self.plan.chunks_at()).contains(&at)
    }

    /// Whether the time of a file's last change lies there.
    fn is_time(&self, at: u64) -> bool {
        let records = self.plan.record_at(0);
        let within = (at.wrapping_sub(records)) % size_of::<FileRecord>() as u64;
        (records..self.plan.entry_at(0)).contains(&at) && within == FileRecord::MODIFIED_AT
    }

    /// Whether a word lies there that says which of a program's times was taken: the lane stores no
    /// other word in its blocks, but at the heads of lease logs.
    fn is_taken_time(&self, at: u64) -> bool {
        at >= self.plan.chunks_at() && at % 256 == StoreTimes::TAKEN_AT
    }

    /// Whether a word of an entry, counted from its beginning, lies there.
    fn is_word(&self, at: u64, word: u64) -> bool {
        self.is_entry(at) && (at - self.plan.entry_at(0)) % size_of::<FileEntry>() as u64 == word
    }

    /// Bytes are streamed; what arrives in their place.
    pub(crate) fn streamed<'a>(&mut self, at: u64, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.begun = true;
        self.data |= at >= self.plan.chunks_at();
        self.leased |= at >= self.plan.chunks_at() && bytes.len() == size_of::<LeaseElement>();
        if !self.is_in_ring(at) {
            return Cow::Borrowed(bytes);
        }
        self.elements = true;
        if !self.has(FilesBug::NothingVoid) {
            return Cow::Borrowed(bytes);
        }
        let mut elements = bytes.to_vec();
        for raw in elements.chunks_mut(size_of::<FileElement>()) {
            let mut element = FileElement::read_from_bytes(raw).expect("whole elements");
            if element.is_of_record() {
                element.what = 0.into();
            }
            raw.copy_from_slice(element.as_bytes());
        }
        Cow::Owned(elements)
    }

    /// A word is stored in the place of another; words that are stored durably in between.
    pub(crate) fn stored(&mut self, at: u64, word: u64, before: u64) -> Vec<u64> {
        if self.is_word(at, FileEntry::STATE_AT) {
            self.frees = word & ((1 << LENGTH_BITS) - 1) == 0;
        }
        self.time |= self.is_time(at);
        if at != self.plan.cursors_at {
            return Vec::new();
        }
        self.cursors = true;
        if self.has(FilesBug::SyncNotAtomic) { (before + 1..word).collect() } else { Vec::new() }
    }

    /// The word that is stored in the place of another.
    pub(crate) fn stored_instead(&self, at: u64, word: u64) -> u64 {
        match self.bug {
            Some(FilesBug::TimeNotStored) if self.is_time(at) => 0,
            Some(FilesBug::TakenTimeNotStored) if self.is_taken_time(at) => 0,
            Some(FilesBug::CleanTooEarly) if self.is_word(at, FileEntry::CLASS_AT) => word | 1 << 16,
            _ => word,
        }
    }

    /// Whether a word of shared memory is not stored.
    pub(crate) fn is_dropped_from_dram(&self, at: u64) -> bool {
        self.has(FilesBug::WriteNotUnderWay) && at == VolatileWrite::AT
    }

    pub(crate) fn forgets_times(&self) -> bool {
        self.has(FilesBug::TimeNotBelow)
    }

    pub(crate) fn has_one_stamp(&self) -> bool {
        self.has(FilesBug::OneStamp)
    }

    pub(crate) fn drops_flush(&mut self, at: u64, len: u64) -> bool {
        self.mapped |= at >= self.plan.chunks_at() && len != 8;
        let one_entry = self.is_entry(at) && len <= 32;
        match self.bug {
            Some(FilesBug::CursorsFlushMissing) => at == self.plan.cursors_at && self.cursors,
            Some(FilesBug::MsyncFlushMissing) => at >= self.plan.chunks_at(),
            Some(FilesBug::LeaseFlushMissing) => at >= self.plan.chunks_at() && len == 8,
            Some(FilesBug::SettleFlushMissing) => one_entry && self.elements,
            Some(FilesBug::RedoFlushMissing) => one_entry && !self.begun,
            Some(FilesBug::LengthFlushMissing) => one_entry && !self.elements,
            Some(FilesBug::CleanNotFreed) => one_entry && !self.elements && self.frees,
            _ => false,
        }
    }

    pub(crate) fn drops_fence(&mut self) -> bool {
        let drops = match self.bug {
            Some(FilesBug::DataFenceMissing) => self.data,
            Some(FilesBug::LeaseFenceMissing) => self.leased,
            Some(FilesBug::MsyncFenceMissing) => self.mapped,
            Some(FilesBug::HeadFenceMissing) => self.cursors,
            Some(FilesBug::TakenTimeFenceMissing) => self.time && !self.data && !self.elements,
            _ => false,
        };
        self.time = false;
        (self.data, self.leased, self.elements, self.cursors, self.mapped) = (false, false, false, false, false);
        drops
    }

    pub(crate) fn lies_about_syncs(&self) -> bool {
        self.has(FilesBug::BackingSyncMissing)
    }
}
