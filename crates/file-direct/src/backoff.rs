//! When a file is claimed.

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

#[cfg(test)]
mod tests {
    use super::*;

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
