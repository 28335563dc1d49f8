//! The length of a leased file, set to what it is: programs do so to be sure of it, SQLite at each
//! checkpoint. It takes a request only where the last page has to be read first.

use super::{Attempted, DirectFile, Leased, ReadAids, forget_kept};
use crate::os::{LeaseRequest, Os};
use tidegate_file_cache::Wrote;

impl<O: Os> DirectFile<O> {
    /// Sets the file's length. By the lease nothing is done but what leaves the file as it is: its
    /// last byte is written once more, so that it has the time of a change.
    pub fn set_length(&mut self, length: u64, aids: ReadAids<'_>) -> Attempted {
        let mut last = [0];
        let is_as_before = self.look() == Some(length);
        let Some(at) = length.checked_sub(1).filter(|_| is_as_before) else { return Attempted::ByDescriptor };
        let kept_before = self.kept_reads;
        if self.read(at, &mut last, aids) != Attempted::Done(1) {
            return Attempted::ByDescriptor;
        }
        self.kept_reads = kept_before;
        let now = self.os.now();
        for may_extend in [true, false] {
            // Only by the lease that the byte was read by, and if nobody has written since.
            let Some(Leased { number, file, pages, .. }) = &mut self.lease else { break };
            let seen = file.seen();
            let Some(mut turn) = file.turn(&mut |others| forget_kept(pages, others)).ok().flatten() else { break };
            if (turn.seen(), turn.size()) != (seen, length) {
                break;
            }
            let wrote = turn.write(at, &last, now);
            drop(turn);
            match wrote {
                Ok(Wrote::Done) => return Attempted::Done(length),
                Ok(Wrote::InDoubt) => return self.resolve(length),
                Ok(Wrote::OutOfBlocks) if may_extend && self.os.ask(LeaseRequest::Extend, *number) => {}
                _ => break,
            }
        }
        Attempted::ByDescriptor
    }
}
