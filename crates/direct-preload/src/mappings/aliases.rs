//! Other addresses of pages that are about to go from a paged mapping.
//!
//! Through these addresses the pages are flushed when the program's own ones are absent already: so
//! no store is left out.

use crate::mappings::errno_of;
use rustix::io::Errno;
use std::ptr::with_exposed_provenance_mut;
use tidegate_media::MappedRuns;
use tidegate_process_mappings::{EXTENT_BYTES, MappedPages, Paged, Reach, Which};

/// Pages of an extent.
const EXTENT_PAGES: usize = EXTENT_BYTES / 4096;

/// Other addresses of the pages of an extent.
pub(super) struct Aliases {
    aliases: [Option<MappedRuns>; EXTENT_PAGES],
    count: usize,
}

impl Aliases {
    pub(super) const NONE: Aliases = Aliases { aliases: [const { None }; EXTENT_PAGES], count: 0 };

    /// Has the present pages of a part, if the process may load from them: of others all is
    /// flushed.
    pub(super) fn add_present(&mut self, paged: &Paged, part: &MappedPages) -> Result<(), Errno> {
        let mut left = part.addresses();
        while part.reach() == Reach::Readable
            && let Some(run) = paged.run(&left, Which::TogetherInPool)
        {
            // SAFETY: it is present, and lies in the pool as a whole.
            let alias = unsafe { MappedRuns::alias(with_exposed_provenance_mut(run.start), run.len()) };
            if let Some(place) = self.aliases.get_mut(self.count) {
                *place = Some(alias.map_err(errno_of)?);
                self.count += 1;
            }
            left.start = run.end;
        }
        Ok(())
    }

    pub(super) fn flush(&self) {
        for alias in self.aliases.iter().flatten() {
            // SAFETY: it is mapped as long as this is there.
            unsafe { MappedRuns::flush(alias.base(), alias.bytes()) };
        }
        MappedRuns::fence();
    }
}

impl Drop for Aliases {
    fn drop(&mut self) {
        for alias in self.aliases.iter_mut().filter_map(Option::take) {
            // SAFETY: nobody else knows of it.
            unsafe { alias.give_up() };
        }
    }
}
