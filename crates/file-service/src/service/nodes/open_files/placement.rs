//! Placement: the pool hears what programs read and write, and gets what it wants of the files
//! below.

use super::{Caching, OpenFile, OpenFiles, ServedFrom};
use crate::pool::read_admission::{WAITING_MAX, hash_of};
use std::ops::Range;
use tidegate_access_trace::ContextBoard;
use tidegate_file_cache::{FileError, FileIdentity, PlacementStep, PoolFile, ProgramAccess};
use tidegate_fuse::Header;
use tidegate_policy::placement::IoKind;

/// Steps of the placement that one look makes at most.
const STEPS_MAX: u32 = 64;

/// What is asked for by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requested {
    /// The thread that asked.
    pub(crate) thread: u32,
    /// Whether it wants to be cached.
    pub(crate) caching: Caching,
}

impl Requested {
    /// By the sender of a request.
    pub(crate) fn by(header: &Header, caching: Caching) -> Requested {
        Requested { thread: header.pid, caching }
    }

    /// The program context: what the program says of it, or the thread and the file.
    fn context(self, file: &OpenFile, board: Option<&ContextBoard>) -> u64 {
        let said = board.and_then(|board| board.answering(self.thread));
        said.unwrap_or_else(|| hash_of(&(self.thread, file.identity)))
    }
}

impl OpenFiles {
    /// Tells the pool what a program read of a file that it has, and how many bytes of that came
    /// from below.
    pub(super) fn note_read(
        &self,
        (file, number): (&OpenFile, PoolFile),
        (at, bytes, below): (u64, usize, u64),
        by: Requested,
    ) {
        let access =
            ProgramAccess { at, bytes: bytes as u64, kind: IoKind::Read, context: by.context(file, self.board.get()) };
        match self.note_access(number, &access) {
            _ if below == 0 || by.caching == Caching::Direct => {}
            Some(wanted) => self.admission.want(file.identity, wanted),
            None => self.admission.note(file.identity, at, bytes),
        }
    }

    /// Tells the pool what a program wrote.
    pub(crate) fn note_written(&self, file: &OpenFile, (at, bytes): (u64, usize), kind: IoKind, by: Requested) {
        if let ServedFrom::Pool(number) = file.read_state().served_from {
            self.note_access(
                number,
                &ProgramAccess { at, bytes: bytes as u64, kind, context: by.context(file, self.board.get()) },
            );
        }
    }

    fn note_access(&self, number: PoolFile, access: &ProgramAccess) -> Option<Vec<Range<u64>>> {
        self.pool.accessed(number, access).unwrap_or_else(|error| {
            tracing::debug!("the placement of a file does not follow: {error}");
            None
        })
    }

    /// Has the pool make room as its placement wants it, and admit the reads that wait. What is
    /// refused below is not admitted: the next program that reads it hears of it.
    pub(crate) fn place_waiting(&self) {
        for _ in 0..STEPS_MAX {
            let step = self.pool.placement_step().unwrap_or_else(|error| {
                tracing::debug!("the placement makes no room: {error}");
                PlacementStep::Idle
            });
            if step == PlacementStep::Idle {
                break;
            }
        }
        let mut spare = None;
        for _ in 0..WAITING_MAX {
            let Some((identity, range)) = self.admission.next() else { return };
            let spare = spare.get_or_insert_with(|| self.pool.spare_records());
            if let Err(error) = self.admit((identity, range), spare) {
                tracing::debug!("a read is not admitted to the pool: {error}");
            }
        }
    }

    /// Admits a read. A file that has no record takes one of the `spare` ones.
    fn admit(&self, (identity, range): (FileIdentity, Range<u64>), spare: &mut usize) -> Result<(), FileError> {
        let Some(file) = self.get(identity) else { return Ok(()) };
        if file.read_state().may_wake() && *spare > 0 {
            *spare -= 1;
            self.wake(&file)?;
        }
        let served_from = file.read_state().served_from;
        let ServedFrom::Pool(number) = served_from else { return Ok(()) };
        self.pool.admit(number, range).map(drop)
    }
}
