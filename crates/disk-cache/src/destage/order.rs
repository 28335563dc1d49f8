//! How far the group is that an ordered disk gets.

use tidegate_layout::disk_cache::{JournalPlan, JournalRecord, TrustedJournal};
use tidegate_media::sync::Mutex;

/// What keeps the order of commits on a disk.
pub(crate) struct Order {
    pub(super) plan: JournalPlan,
    pub(super) uuid: [u8; 16],
    pub(super) under_way: Mutex<UnderWay>,
}

/// What is being brought to the disk.
pub(super) struct UnderWay {
    pub(super) stage: Stage,
    /// Groups that have ended, empty ones too.
    pub(super) ended: u64,
}

/// How far a group is.
pub(super) enum Stage {
    /// Nobody has looked at the journal yet.
    Unknown,
    /// The journal's newest header tells of no group.
    Idle(TrustedJournal),
    /// The group's blocks up to `next` are in the journal.
    Copying { group: Group, next: usize, records: Vec<JournalRecord> },
    /// All of them are, and their header could not be written.
    Declaring { group: Group },
    /// The group counts; its blocks up to `next` are in place.
    Placing { group: Group, next: usize },
    /// All of them are, and the header that says so could not be written.
    Retiring { group: Group },
}

/// Blocks that are put in place as one.
pub(super) struct Group {
    pub(super) lbas: Vec<u64>,
    /// The header that tells of them.
    pub(super) header: TrustedJournal,
}

impl Order {
    /// That of the cache `uuid`, by the journal of this plan.
    pub(crate) fn new(plan: JournalPlan, uuid: [u8; 16]) -> Order {
        Order { plan, uuid, under_way: Mutex::new(UnderWay { stage: Stage::Unknown, ended: 0 }) }
    }
}

impl UnderWay {
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Unknown | Stage::Idle(_))
    }
}
