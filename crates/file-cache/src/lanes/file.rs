//! A file of the lane, as DRAM knows it.

use crate::below::{BackingFile, FileIdentity, Stamp};
use crate::error::FileError;
use crate::io::reserved::ReservedRoom;
use crate::lanes::segments::Segments;
use crate::lanes::slots::Chain;
use crate::tiers::dram::{Written, touching};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::Class;
use tidegate_media::sync::Mutex;

/// A file of the lane, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u32);

/// A file that is open, or not all below yet.
pub(crate) struct File {
    pub(crate) identity: FileIdentity,
    pub(crate) hint: Vec<u8>,
    pub(crate) below: Attachment,
    /// How often it is open.
    pub(crate) opens: u32,
    /// Taken by an operation that changes the file below.
    pub(crate) gate: Arc<Mutex<()>>,
    /// Whether the operation that has the gate wants nothing else to change the file.
    pub(crate) busy: bool,
    /// Operations on the file that do not hold the lane's lock.
    pub(crate) pins: u32,
    /// Its length as the program sees it.
    pub(crate) size: u64,
    /// Whether the kernel's path may have touched it: nothing is here, and `size` may be out of
    /// date.
    pub(crate) passed: bool,
    /// What its record says; `None`: the pool knows nothing of it.
    pub(crate) record: Option<Record>,
    /// Which entry has the newest durable copy of each byte.
    pub(crate) newest: Segments,
    /// Unsynced writes.
    pub(crate) written: Written,
    /// When a program changed the contents last, in the caller's words; 0: the file below says.
    pub(crate) modified: u64,
    /// Which of these words the file below is known to have, durably.
    pub(crate) modified_below: u64,
    /// Since when it has unsynced writes, if it has any.
    pub(crate) dirty_since: u64,
    /// Entries that count and whose bytes below are older, by version.
    pub(crate) out_of_sync: Chain,
    /// Entries that programs have mapped, by their offsets: see `tiers/mapped.rs`.
    pub(crate) mapped: BTreeMap<u64, u32>,
    /// The page in which programs say when they stored to these: see `tiers/mapped_times.rs`.
    pub(crate) time_page: Option<MappedTime>,
    /// The entry that ends where the durable file ends, if bytes may be put behind it.
    pub(crate) tail: Option<u32>,
    /// Where room below is reserved.
    pub(crate) room: ReservedRoom,
    /// The file's own mark of its last change, if nothing but reserved room has changed it since
    /// its record had one; otherwise 0.
    pub(crate) room_stamp: u64,
    /// Goes up when bytes that were read from here come to be read from below.
    pub(crate) dropped: u64,
    /// The least length that the file was cut to below since it was last synced there.
    pub(crate) cut_below: Option<u64>,
    /// The length that the file below has still to be cut to, while that is under way or after it
    /// was refused: what lies behind does not count.
    pub(crate) uncut: Option<u64>,
    /// Whether it was changed below since it was last synced there.
    pub(crate) changed_below: bool,
    /// Whether a program changed it below, as by a hole, and its next sync has to make that durable
    /// there.
    pub(crate) owes_sync_below: bool,
    /// Goes up before each change below.
    pub(crate) touched: u64,
    /// Goes up when the file is cut or drained.
    pub(crate) recast: u64,
    /// The context of the program that read or wrote it last; 0: not known.
    pub(crate) context: u64,
    /// The entry that the last read ended in, if it had one.
    pub(crate) placed_last: Option<u32>,
    /// The lease of the process that writes it without asking, by the entry that names its log.
    pub(crate) lease: Option<u32>,
    /// How often in a row it could not be written back: other files have their turn first.
    pub(crate) refusals: u32,
}

/// A file's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// The file's length after a cut: what the record says, and what entries add.
    pub(crate) size: u64,
    /// Entries up to this version count only below the length that the record says.
    pub(crate) version: u64,
    /// Entries up to this version are void.
    pub(crate) void: u64,
    /// The file's own mark of its last change, if nothing has changed it since; otherwise 0.
    pub(crate) stamp: u64,
    /// When a program changed the contents last, if the file below may say otherwise; otherwise 0.
    pub(crate) modified: u64,
}

/// The time page of a mapped file: see `tiers/mapped_times.rs`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedTime {
    /// The entry that names it.
    pub(crate) slot: u32,
    pub(crate) unit: u32,
    pub(crate) class: Class,
    /// The word that was taken last.
    pub(crate) taken: u64,
}

/// The file below.
pub(crate) enum Attachment {
    Attached(Arc<dyn BackingFile>),
    /// It was not found yet. It has to be cut to the length that the record says.
    Detached {
        cut_to: u64,
    },
}

impl File {
    /// A file that was just opened.
    pub(crate) fn new(backing: Arc<dyn BackingFile>, hint: &[u8], size: u64) -> File {
        let identity = backing.identity();
        File { opens: 1, below: Attachment::Attached(backing), ..File::detached(identity, hint, size) }
    }

    /// A file that an earlier process left, with the length that its record says.
    pub(crate) fn detached(identity: FileIdentity, hint: &[u8], size: u64) -> File {
        File {
            identity,
            hint: hint.to_vec(),
            below: Attachment::Detached { cut_to: size },
            opens: 0,
            gate: Arc::default(),
            busy: false,
            pins: 0,
            size,
            passed: false,
            record: None,
            newest: Segments::default(),
            written: Written::default(),
            modified: 0,
            modified_below: 0,
            dirty_since: 0,
            out_of_sync: Chain::default(),
            mapped: BTreeMap::new(),
            time_page: None,
            tail: None,
            room: ReservedRoom::default(),
            room_stamp: 0,
            dropped: 0,
            cut_below: None,
            uncut: None,
            changed_below: false,
            owes_sync_below: false,
            touched: 0,
            recast: 0,
            lease: None,
            refusals: 0,
            context: 0,
            placed_last: None,
        }
    }

    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.below, Attachment::Detached { .. })
    }

    /// The mark by which the file below is known, as long as the power stays on.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        Stamp::of_word(self.record?.stamp).or_else(|| Stamp::of_word(self.room_stamp))
    }

    /// The file below.
    pub(crate) fn backing(&self) -> Result<&Arc<dyn BackingFile>, FileError> {
        match &self.below {
            Attachment::Attached(backing) => Ok(backing),
            Attachment::Detached { .. } => Err(FileError::Detached),
        }
    }

    /// A killed process saw this length, or was about to see the one to which a synchronous write
    /// grew the file: that may have been committed and not been noted yet.
    pub(crate) fn take_over_size(&mut self, size: u64, grows_to: u64) {
        let durable = self.record.map_or(0, |record| record.size);
        self.size = if durable > size && durable == grows_to { durable } else { size };
    }

    /// Whether the pool need not know the file if nobody has it open: all that was promised of it
    /// is below, durably. Whoever has it open sees to its time.
    pub(crate) fn is_done(&self) -> bool {
        self.lease.is_none()
            && self.time_page.is_none()
            && self.is_all_below()
            && (self.opens > 0 || self.modified == self.modified_below)
    }

    /// Whether all that was promised of it is below, durably, but for its time.
    fn is_all_below(&self) -> bool {
        let durable = match (self.record, &self.below) {
            (None, _) => true,
            // A file with a stamp was synced after its last change.
            (Some(record), Attachment::Detached { .. }) => record.stamp != 0,
            (Some(_), Attachment::Attached(_)) => !self.changed_below,
        };
        durable && self.uncut.is_none() && self.is_below()
    }

    /// Whether the time of its last change is all that the file below may lack.
    pub(crate) fn lacks_only_its_time(&self) -> bool {
        self.is_all_below() && self.modified != self.modified_below
    }

    /// Whether a sync of the file below is all that keeps the pool from forgetting it, as after a
    /// cut.
    pub(crate) fn is_only_cut(&self) -> bool {
        !self.is_detached() && !self.is_all_below() && self.is_below()
    }

    /// Whether the file is nobody's, all of it is below, and the lane has clean entries of it. It
    /// is found again by its identity.
    pub(crate) fn is_resting(&self) -> bool {
        self.opens == 0 && self.is_detached() && self.is_done()
    }

    /// Whether the file may rest: the lane can tell later whether somebody changed it.
    pub(crate) fn can_rest(&self) -> bool {
        let says_all = |record: Record| record.stamp != 0 && record.size == self.size;
        self.record.is_some_and(says_all) && !self.newest.is_empty() && !self.passed
    }

    /// Notes how a step of write-back ended.
    pub(crate) fn was_tried(&mut self, is_below: bool) {
        self.refusals = if is_below { 0 } else { self.refusals.saturating_add(1) };
    }

    /// Whether everything that was written is below, durably.
    pub(crate) fn is_below(&self) -> bool {
        self.written.is_empty() && self.out_of_sync.is_empty()
    }

    /// Its contents below are durable.
    pub(crate) fn was_synced_below(&mut self) {
        (self.changed_below, self.owes_sync_below) = (false, false);
    }

    /// The first bytes from `at` on that are here.
    pub(crate) fn first_here(&self, at: u64) -> Option<Range<u64>> {
        let unsynced = touching(&self.written, at..u64::MAX).next().map(|(range, ..)| range);
        self.newest.first_from(at).into_iter().chain(unsynced).min_by_key(|range| range.start)
    }
}
