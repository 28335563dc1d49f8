//! When a file is claimed, and when the service is asked what it may not know.

use tidegate_file_wire::Answer;

/// So many syncs are seen before the first claim.
const SYNCS_FIRST: u32 = 2;
/// At most so many are seen before a later one.
const SYNCS_MAX: u32 = 1024;
/// A lease that lasted so many syncs was worth its claim.
const SYNCS_WORTH_IT: u32 = 1000;
/// So many writes that are not synced count as a sync: a file's first claim may have to wait for
/// the disk.
pub(crate) const WRITES_PER_SYNC: u32 = 256;

/// How many syncs of a file are to be seen before it is claimed: twice as many after each lease
/// that others ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    seen: u32,
    wanted: u32,
    /// Writes that were not synced, and do not count as a sync yet.
    writes: u32,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { seen: 0, wanted: SYNCS_FIRST, writes: 0 }
    }
}

impl Backoff {
    /// The file was synced, or written synchronously.
    pub(crate) fn saw_sync(&mut self) {
        self.seen = self.seen.saturating_add(1);
        self.writes = 0;
    }

    /// The file was written, and not synchronously.
    pub(crate) fn saw_write(&mut self) {
        self.writes += 1;
        if self.writes == WRITES_PER_SYNC {
            self.saw_sync();
        }
    }

    /// Whether the file is to be claimed at its next write.
    pub(crate) fn is_due(self) -> bool {
        self.seen >= self.wanted
    }

    /// A claim was refused for now.
    pub(crate) fn was_refused(&mut self) {
        self.wanted = (2 * self.wanted).min(SYNCS_MAX);
        self.seen = 0;
    }

    /// A lease was no use, after so many syncs: others ended it, or the file is read more than
    /// written.
    pub(crate) fn was_disturbed(&mut self, lasted_syncs: u32) {
        if lasted_syncs >= SYNCS_WORTH_IT {
            self.wanted = SYNCS_FIRST / 2;
        }
        self.was_refused();
    }
}

/// At most so many uses of the file go by between two questions.
const SKIPPED_MAX: u32 = 64;

/// When something is asked that may be in vain: a share in a lease, as what says that there is one
/// is a hint; or where pages lie in the pool, as they may lie below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VainBackoff {
    /// After so many answers in a row that were of no use, it is asked more seldom.
    patience: u32,
    skipped: u32,
    to_skip: u32,
    /// Answers in a row that were of no use.
    vain: u32,
}

impl VainBackoff {
    /// Nothing was asked yet. After so many answers in a row that were of no use, it is asked more
    /// seldom.
    pub(crate) fn new(patience: u32) -> VainBackoff {
        VainBackoff { patience, skipped: 0, to_skip: 0, vain: 0 }
    }

    /// Whether to ask now.
    pub(crate) fn is_due(&mut self) -> bool {
        self.skipped += 1;
        self.skipped > self.to_skip
    }

    /// What the answer was.
    pub(crate) fn was_answered(&mut self, answer: Answer) {
        self.skipped = 0;
        self.vain = if answer == Answer::Granted { 0 } else { self.vain.saturating_add(1) };
        self.to_skip = self.vain.checked_sub(self.patience).map_or(0, |more| SKIPPED_MAX.min(1 << more.min(16)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_asked_ever_more_seldom() {
        let mut joins = VainBackoff::new(8);
        let asked: Vec<u32> =
            (0..300).filter(|_| joins.is_due().then(|| joins.was_answered(Answer::Later)).is_some()).collect();
        assert_eq!(asked, [0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 26, 43, 76, 141, 206, 271]);
        joins.was_answered(Answer::Granted);
        assert!(joins.is_due());
    }

    /// Syncs until the next claim.
    fn waits(backoff: &mut Backoff) -> u32 {
        let mut syncs = 0;
        while !backoff.is_due() {
            backoff.saw_sync();
            syncs += 1;
        }
        syncs
    }

    #[test]
    fn a_file_that_others_use_is_claimed_ever_more_seldom() {
        let mut backoff = Backoff::default();
        let mut seen = Vec::new();
        for _ in 0..12 {
            seen.push(waits(&mut backoff));
            backoff.was_disturbed(999);
        }
        assert_eq!(seen, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
        backoff.was_disturbed(1000);
        assert_eq!(waits(&mut backoff), 2);
        backoff.was_refused();
        assert_eq!(waits(&mut backoff), 4);
    }

    #[test]
    fn a_file_that_is_written_often_is_claimed_without_syncs() {
        let mut backoff = Backoff::default();
        (1..SYNCS_FIRST * WRITES_PER_SYNC).for_each(|_| backoff.saw_write());
        assert!(!backoff.is_due());
        backoff.saw_write();
        assert!(backoff.is_due());
    }
}
