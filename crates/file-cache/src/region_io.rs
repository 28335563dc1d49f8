//! The region as a lane: entries, records and blocks instead of bytes.
//!
//! Only what concerns records flushes here; the order of a commit is told where it is made.

use tidegate_layout::file_cache::{
    Change, Extent, FileElement, FileEntry, FileRecord, LENGTH_BITS, LanePlan, LeaseMark, TrustedRecord,
};
use tidegate_media::{LineOrder, Poison, Region, Sealed};
use tidegate_wal::{Element, RingPlan};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A lane on its region.
pub(crate) struct Medium<R> {
    pub(crate) region: R,
    pub(crate) plan: LanePlan,
}

/// What a commit says about an entry or a record, as the ring holds it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub(crate) struct LaneElement(pub(crate) FileElement);

/// What is flushed before an element no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Entry(u32),
    Record(u32),
}

impl Element for LaneElement {
    type Target = Target;

    fn target(&self) -> Target {
        let number = self.0.target.get();
        if self.0.is_of_record() { Target::Record(number) } else { Target::Entry(number) }
    }
}

impl Target {
    /// What a change changes.
    pub(crate) fn of(change: &Change) -> Target {
        match *change {
            Change::Entry { slot, .. } => Target::Entry(slot),
            Change::Record { file, .. } => Target::Record(file),
            Change::Lease { slot, .. } => Target::Entry(slot),
        }
    }
}

/// Where a lane's ring lies.
pub(crate) fn ring_plan(plan: &LanePlan) -> RingPlan {
    RingPlan { cursors_at: plan.cursors_at, ring_at: plan.ring_at, slots: plan.ring_slots }
}

impl<R: Region> Medium<R> {
    /// Whether two words stored to one line may arrive the second without the first.
    pub(crate) fn words_overtake(&self) -> bool {
        self.region.line_order() == LineOrder::Any
    }

    #[track_caller]
    pub(crate) fn fence(&self) -> Result<(), Sealed> {
        self.region.fence()
    }

    /// Streams bytes into the block that begins at `unit`.
    #[track_caller]
    pub(crate) fn stream_block(&self, unit: u32, within: u64, data: &[u8]) {
        self.region.stream(self.plan.block_at(unit) + within, data);
    }

    /// Copies an extent's bytes from offset `at` of the file on.
    pub(crate) fn read_extent(&self, extent: &Extent, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(self.plan.block_at(extent.unit) + (at - extent.offset), out)
    }

    /// Stores all of an entry but its last word. The entry is free, durably.
    #[track_caller]
    pub(crate) fn store_extent(&self, slot: u32, extent: &Extent) {
        for (at, word) in (self.plan.entry_at(slot)..).step_by(8).zip(&FileEntry::words(extent, 0)[..3]) {
            self.region.store_u64(at, *word);
        }
    }

    /// Stores that an entry is clean, or is to be when its last word is stored.
    #[track_caller]
    pub(crate) fn store_clean(&self, slot: u32, extent: &Extent) {
        self.region.store_u64(self.plan.entry_at(slot) + FileEntry::CLASS_AT, FileEntry::clean_word(extent.class));
    }

    /// Stores an entry's last word.
    #[track_caller]
    pub(crate) fn store_state(&self, slot: u32, version: u64, length: u32) {
        self.region.store_u64(self.plan.entry_at(slot) + FileEntry::STATE_AT, FileEntry::state_word(version, length));
    }

    /// Stores how much of a lease log was taken over.
    #[track_caller]
    pub(crate) fn store_lease(&self, slot: u32, mark: LeaseMark, version: u64) {
        self.region.store_u64(self.plan.entry_at(slot) + FileEntry::STATE_AT, FileEntry::lease_word(mark, version));
    }

    /// Has a free entry say these words, durably. What was streamed before is durable first.
    pub(crate) fn put_entry(&self, slot: u32, words: [u64; 4]) -> Result<(), Sealed> {
        let [place, what, class, state] = words;
        self.store_state(slot, state >> LENGTH_BITS, 0);
        self.flush_entry(slot);
        self.fence()?;
        for (at, word) in (self.plan.entry_at(slot)..).step_by(8).zip([place, what, class]) {
            self.region.store_u64(at, word);
        }
        self.flush_entry(slot);
        self.fence()?;
        self.region.store_u64(self.plan.entry_at(slot) + FileEntry::STATE_AT, state);
        self.flush_entry(slot);
        self.fence()
    }

    #[track_caller]
    pub(crate) fn flush_entry(&self, slot: u32) {
        self.region.flush(self.plan.entry_at(slot), size_of::<FileEntry>() as u64);
    }

    pub(crate) fn flush_target(&self, target: Target) {
        match target {
            Target::Entry(slot) => self.flush_entry(slot),
            Target::Record(file) => self.flush_record_words(file),
        }
    }

    /// Stores what a change says about its target.
    pub(crate) fn carry_out(&self, change: &Change) {
        match *change {
            Change::Entry { slot, extent, version } => {
                self.store_extent(slot, &extent);
                self.store_state(slot, version, extent.length);
            }
            Change::Record { file, size, void, version } => {
                let at = self.plan.record_at(file);
                self.region.store_u64(at + FileRecord::SIZE_AT, size);
                self.region.store_u64(at + FileRecord::VOID_AT, void);
                self.region.store_u64(at + FileRecord::VERSION_AT, version);
            }
            Change::Lease { slot, mark, version } => self.store_lease(slot, mark, version),
        }
    }

    /// Where words of a line may overtake each other: all but the last word of fresh entries,
    /// durable with the next fence. An entry that is free only because it is void says so by itself
    /// first, with a version that no older element of the ring exceeds: such an element would bring
    /// back a block that another entry has by now.
    pub(crate) fn prepare(&self, changes: &[Change]) -> Result<(), Sealed> {
        let fresh = || {
            changes.iter().filter_map(|change| match change {
                Change::Entry { slot, extent, version } => Some((*slot, extent, *version)),
                Change::Record { .. } | Change::Lease { .. } => None,
            })
        };
        for (slot, _, version) in fresh() {
            self.store_state(slot, version - 1, 0);
            self.flush_entry(slot);
        }
        self.fence()?;
        for (slot, extent, _) in fresh() {
            self.store_extent(slot, extent);
            self.flush_entry(slot);
        }
        Ok(())
    }

    /// The words of a record that change lie in its first line.
    pub(crate) fn flush_record_words(&self, file: u32) {
        self.region.flush(self.plan.record_at(file), FileRecord::CHANGING_BYTES);
    }

    /// Stores when a program changed the file last, and begins its write-back.
    pub(crate) fn store_modified(&self, file: u32, modified: u64) {
        self.region.store_u64(self.plan.record_at(file) + FileRecord::MODIFIED_AT, modified);
        self.flush_record_words(file);
    }

    /// Stores the file's mark of its last change, and begins its write-back.
    #[track_caller]
    pub(crate) fn store_stamp(&self, file: u32, stamp: u64) {
        self.region.store_u64(self.plan.record_at(file) + FileRecord::STAMP_AT, stamp);
        self.flush_record_words(file);
    }

    /// Writes a record that is not in use, durably, and puts it in use, durably.
    pub(crate) fn put_record(&self, file: u32, record: &TrustedRecord) -> Result<(), Sealed> {
        let at = self.plan.record_at(file);
        let raw = FileRecord::new(record);
        self.region.write(at, raw.as_bytes());
        self.region.flush(at, size_of::<FileRecord>() as u64);
        self.fence()?;
        self.store_record_state(file, 1);
        self.fence()
    }

    /// Stores whether a record is in use, and begins the word's write-back.
    #[track_caller]
    pub(crate) fn store_record_state(&self, file: u32, state: u64) {
        self.region.store_u64(self.plan.record_at(file) + FileRecord::STATE_AT, state);
        self.flush_record_words(file);
    }
}
