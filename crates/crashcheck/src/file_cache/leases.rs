//! Programs that write files by leases, or have pages of them mapped, beside the process that has
//! the pool open.

use crate::checker::Failure;
use crate::file_cache::machine::{FILES, Watched};
use crate::file_cache::script::FileStep;
use std::collections::BTreeSet;
use std::ops::Range;
use tidegate_file_cache::{LeasedFile, PoolLease};
use tidegate_layout::file_cache::{Class, MappedRun};

/// Pages of mappings.
pub(crate) const PAGE: Class = Class::ALL[0];

/// Programs that share a lease.
pub(crate) const SHARERS: usize = 2;

/// A lease of a file, and the programs that share it. They take turns: each does the next act.
pub(crate) struct Lent {
    pub(crate) id: PoolLease,
    pub(crate) files: [LeasedFile<Watched>; SHARERS],
    /// Acts so far.
    pub(crate) acts: usize,
    /// What the file was like after each write since the last sync.
    pub(crate) states: Vec<Vec<u8>>,
}

/// What programs with leases have, for each file.
#[derive(Default)]
pub(crate) struct Leases {
    pub(crate) lent: [Option<Lent>; FILES],
    /// What a power cut in the step may leave too, as the pool takes writes over one by one.
    pub(crate) between: [BTreeSet<Vec<u8>>; FILES],
}

impl Lent {
    /// The program that does the next act, by its number.
    pub(crate) fn next(&mut self) -> (usize, &mut LeasedFile<Watched>) {
        let number = self.acts % SHARERS;
        self.acts += 1;
        (number, &mut self.files[number])
    }
}

impl Leases {
    /// Whether the program of a file writes it by a lease now.
    pub(crate) fn is_live(&self, file: usize) -> Result<bool, Failure> {
        let Some(lent) = &self.lent[file] else { return Ok(false) };
        Ok(!lent.files[0].is_revoked().map_err(Failure::new)?)
    }
}

/// What a program has mapped of a file: whole pages from its beginning on.
pub(crate) struct Mapping {
    pub(crate) runs: Vec<MappedRun>,
    /// Where in the pool it says when it stored.
    pub(crate) time_at: u64,
    pub(crate) memory: Watched,
    /// Where in the pool it stored since its last `msync`.
    pub(crate) dirty: Vec<Range<u64>>,
}

impl Mapping {
    /// One past the last byte of the file that is mapped.
    pub(crate) fn end(&self) -> u64 {
        self.runs.iter().map(|run| run.range().end).max().unwrap_or(0)
    }

    /// The places of a range of the file in the pool.
    pub(crate) fn places(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let place = |run: &MappedRun| run.within(range).map(|part| part.pool_at..part.pool_at + part.bytes);
        self.runs.iter().filter_map(place).collect()
    }
}

/// What programs have mapped, for each file.
pub(crate) type Mappings = [Option<Mapping>; FILES];

impl FileStep {
    /// Whether the step ends a lease of a file that it finds: it is done by others than the program
    /// that has the lease.
    pub(crate) fn revokes(self, leased: usize) -> bool {
        match self {
            FileStep::Write { file, .. }
            | FileStep::WriteSync { file, .. }
            | FileStep::WriteDirect { file, .. }
            | FileStep::Group { file, .. }
            | FileStep::Append { file, .. }
            | FileStep::SetTime(file)
            | FileStep::Sync(file)
            | FileStep::Truncate { file, .. }
            | FileStep::Punch { file, .. }
            | FileStep::Zero { file, .. }
            | FileStep::Drain(file)
            | FileStep::Close(file)
            | FileStep::Map(file)
            | FileStep::EndLease(file) => file == leased,
            FileStep::Reopen | FileStep::Restart | FileStep::Strange(_) => true,
            FileStep::Admit(_)
            | FileStep::Unwanted(_)
            | FileStep::WriteBack
            | FileStep::WriteDirty
            | FileStep::LeasedWrite { .. }
            | FileStep::LeasedSync(_)
            | FileStep::LeasedRead(_)
            | FileStep::WriteDirtyOne
            | FileStep::MappedStore { .. }
            | FileStep::Msync(_)
            | FileStep::GiveBack(_)
            | FileStep::Unmap(_)
            | FileStep::Refill(_) => false,
        }
    }

    /// Whether the step adopts what was written by a lease of a file, and lets the lease go on.
    pub(crate) fn adopts(self, leased: usize) -> bool {
        matches!(self, FileStep::WriteBack) || self == FileStep::LeasedRead(leased)
    }
}
