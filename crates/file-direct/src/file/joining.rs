//! Shares in a lease that other processes have. Whoever uses a file that is leased asks for one
//! first: otherwise its request would end the lease of the others, who would end its own.

use super::{DirectFile, EndedBy, Leased, forget_kept};
use crate::os::Os;
use tidegate_file_wire::{Answer, JOINS};

/// After so many answers in a row that there is none, a share is asked for more seldom.
const REFUSED_MAX: u32 = 8;
/// At most so many uses of the file go by between two questions for a share.
const SKIPPED_MAX: u32 = 64;

/// When a share is asked for: there may be none, as what says so is a hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JoinBackoff {
    skipped: u32,
    to_skip: u32,
    /// Answers in a row that there is none.
    refused: u32,
}

impl JoinBackoff {
    /// Whether to ask now.
    fn is_due(&mut self) -> bool {
        self.skipped += 1;
        self.skipped > self.to_skip
    }

    /// What the answer was.
    fn was_answered(&mut self, answer: Answer) {
        self.skipped = 0;
        self.refused = if answer == Answer::Granted { 0 } else { self.refused.saturating_add(1) };
        self.to_skip = self.refused.checked_sub(REFUSED_MAX).map_or(0, |more| SKIPPED_MAX.min(1 << more.min(16)));
    }
}

impl<O: Os> DirectFile<O> {
    /// Takes a share in the lease that others have, to use `len` bytes at offset `at`. False: there
    /// is none.
    pub(super) fn join(&mut self, at: u64, len: usize) -> bool {
        if self.never || !self.os.others_have_lease() || !self.joins.is_due() {
            return false;
        }
        let answer = self.ask_for_lease(at, len, JOINS);
        self.joins.was_answered(answer);
        answer == Answer::Granted
    }

    /// Looks at what others that have the lease too have written. How long the file is then;
    /// `None`: there is no lease any more.
    pub(super) fn look(&mut self) -> Option<u64> {
        let Leased { file, pages, .. } = self.lease.as_mut()?;
        let (os, mut forget) = (&mut self.os, |others| forget_kept(pages, others));
        let mut is_sound = file.look(&mut forget).is_ok();
        if is_sound && file.size().is_none() {
            is_sound = file.turn(&mut forget, &mut |round| os.pause(round)).is_ok();
        }
        // Without a turn it is still not known.
        let size = file.size().filter(|_| is_sound);
        if size.is_none() {
            self.end(EndedBy::Others);
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_not_there_is_asked_for_ever_more_seldom() {
        let mut joins = JoinBackoff::default();
        let asked: Vec<u32> =
            (0..300).filter(|_| joins.is_due().then(|| joins.was_answered(Answer::Later)).is_some()).collect();
        assert_eq!(asked, [0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 26, 43, 76, 141, 206, 271]);
        joins.was_answered(Answer::Granted);
        assert!(joins.is_due());
    }
}
