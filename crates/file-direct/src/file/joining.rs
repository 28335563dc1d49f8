//! Shares in a lease that other processes have. Whoever uses a file that is leased asks for one
//! first: otherwise its request would end the lease of the others, who would end its own.

use super::{DirectFile, EndedBy, Leased, forget_kept};
use crate::os::Os;
use tidegate_file_wire::{Answer, JOINS};

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
