//! Machines and services that betray the namespace log: each leaves out or exchanges one step. A
//! campaign that does not fail on such a machine is blind to that mistake.

use std::borrow::Cow;
use tidegate_layout::file_cache::{LogRecord, NameRecord, NamespacePlan, NodeIdentity};
use zerocopy::FromBytes;

/// A mistake in the order of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesBug {
    /// The fence between a record and its witness is missing.
    RecordFenceMissing,
    /// The cursors of the log are not written back.
    CursorsFlushMissing,
    /// A sync does not commit the log.
    CommitMissing,
    /// The witness is stored before the operation that it tells of.
    WitnessTooEarly,
    /// Operations are done without a witness.
    WitnessMissing,
    /// The tail passes records that SOURCE does not have durably.
    SourceSyncMissing,
    /// A file below says that it is synced, and neither it nor the operations before it are.
    FileSyncMissing,
    /// Recovery does not record the inodes that it made anew.
    MadeAnewMissing,
    /// The contents of an unlinked file are given up before the unlink is committed.
    DiscardBeforeCommit,
    /// A second recovery does not know that an earlier one began.
    ReplayBegunMissing,
}

/// What is wrong with a machine, and what was done since its last fence.
pub(crate) struct Faults {
    bug: Option<NamesBug>,
    plan: NamespacePlan,
    record: bool,
}

impl Faults {
    pub(crate) fn new(bug: Option<NamesBug>, plan: NamespacePlan) -> Faults {
        Faults { bug, plan, record: false }
    }

    pub(crate) fn has(&self, bug: NamesBug) -> bool {
        self.bug == Some(bug)
    }

    /// Bytes are streamed; what arrives in their place. A record of recovery's own that is to be
    /// missing becomes the other one, which is as long, about no inode.
    pub(crate) fn streamed<'a>(&mut self, at: u64, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if !(self.plan.ring_at..self.plan.end()).contains(&at) {
            return Cow::Borrowed(bytes);
        }
        self.record = true;
        let Ok((head, _)) = NameRecord::read_from_prefix(bytes) else { return Cow::Borrowed(bytes) };
        let nobody = NodeIdentity { inode: 0, generation: 0 };
        let place = head.place.get();
        let instead = match LogRecord::parse(bytes, place) {
            Ok((LogRecord::MadeAnew { .. }, _)) if self.has(NamesBug::MadeAnewMissing) => LogRecord::ReplayBegun,
            Ok((LogRecord::ReplayBegun, _)) if self.has(NamesBug::ReplayBegunMissing) => {
                LogRecord::MadeAnew { node: nobody, anew: nobody }
            }
            _ => return Cow::Borrowed(bytes),
        };
        Cow::Owned(instead.bytes(place).expect("it has no path"))
    }

    pub(crate) fn drops_flush(&self, at: u64) -> bool {
        self.has(NamesBug::CursorsFlushMissing) && at == self.plan.cursors_at
    }

    pub(crate) fn drops_fence(&mut self) -> bool {
        let record = std::mem::take(&mut self.record);
        self.has(NamesBug::RecordFenceMissing) && record
    }
}
