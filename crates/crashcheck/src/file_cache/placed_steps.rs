//! What placements do with clean entries in a script, and a step of what leaves DRAM by age: no
//! program sees anything of it.

use crate::checker::Failure;
use crate::file_cache::checker::Process;
use crate::file_cache::script::FileStep;
use tidegate_file_cache::ProgramAccess;
use tidegate_policy::placement::{IoKind, NamedPlacement};

impl Process {
    pub(crate) fn placed_step(&mut self, step: FileStep) -> Result<(), Failure> {
        match step {
            FileStep::Admit(file) => self.pool.admit(self.ids[file], 0..u64::MAX).map(drop),
            FileStep::Unwanted(file) => {
                self.pool.place_by(NamedPlacement::Uhnvm);
                // Nothing is known of the context: its reads are random ones.
                let read = ProgramAccess { at: 0, bytes: 8192, kind: IoKind::Read, context: 1 };
                self.pool.accessed(self.ids[file], &read).map(drop)
            }
            FileStep::WriteDirtyOne => {
                let mut lanes = 0..self.pool.lanes();
                lanes.try_for_each(|lane| self.pool.write_dirty_step(lane, 1, u64::MAX).map(drop))
            }
            _ => Ok(()),
        }
        .map_err(Failure::new)
    }
}
