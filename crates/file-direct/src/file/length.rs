//! The length of a leased file, set to what it is: programs do so to be sure of it, SQLite at each
//! checkpoint. It takes a request only where the last page has to be read first.

use super::{Attempted, DirectFile, Leased, ReadAids, forget_kept};
use crate::os::{LeaseRequest, Os};
use tidegate_file_cache::Wrote;

/// So often it is tried: another process may write meanwhile.
const TRIES_MAX: u32 = 8;

/// What became of one try.
enum Again {
    Done,
    InDoubt,
    /// It may work the next time.
    Tried,
    Refused,
}

impl<O: Os> DirectFile<O> {
    /// Sets the file's length. By the lease nothing is done but what leaves the file as it is: its
    /// last byte is written once more, so that it has the time of a change.
    pub fn set_length(&mut self, length: u64, aids: ReadAids<'_>) -> Attempted {
        let ReadAids { message, cache } = aids;
        for _ in 0..TRIES_MAX {
            let is_as_before = self.look() == Some(length);
            let Some(at) = length.checked_sub(1).filter(|_| is_as_before) else { break };
            let (kept_before, mut last) = (self.kept_reads, [0]);
            if self.read(at, &mut last, ReadAids { message, cache }) != Attempted::Done(1) {
                break;
            }
            self.kept_reads = kept_before;
            match self.write_again(at, last, length) {
                Again::Done => return Attempted::Done(length),
                Again::InDoubt => return self.resolve(length),
                Again::Tried => {}
                Again::Refused => break,
            }
        }
        Attempted::ByDescriptor
    }

    /// Writes the last byte of the file as it was read.
    fn write_again(&mut self, at: u64, last: [u8; 1], length: u64) -> Again {
        let (now, Some(Leased { number, file, pages, .. })) = (self.os.now(), &mut self.lease) else {
            return Again::Refused;
        };
        let seen = file.seen();
        let (os, mut forget) = (&mut self.os, |others| forget_kept(pages, others));
        let Some(mut turn) = file.turn(&mut forget, &mut |round| os.pause(round)).ok().flatten() else {
            return Again::Refused;
        };
        // Only by the lease that the byte was read by, and if nobody has written since.
        if (turn.seen(), turn.size()) != (seen, length) {
            return Again::Tried;
        }
        let wrote = turn.write(at, &last, now);
        drop(turn);
        match wrote {
            Ok(Wrote::Done) => Again::Done,
            Ok(Wrote::InDoubt) => Again::InDoubt,
            Ok(Wrote::OutOfBlocks) if self.os.ask(LeaseRequest::Extend, *number) => Again::Tried,
            _ => Again::Refused,
        }
    }
}
