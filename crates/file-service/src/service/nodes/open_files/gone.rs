//! Files that nobody reaches any more, and files that are below: the pool lets go of them.

use super::{Counted, OpenFile, OpenFiles, ServedFrom, errno_of};
use rustix::io::Result;
use tidegate_file_cache::{FileError, FileIdentity};
use tidegate_source_files::backing::refused;

impl OpenFiles {
    /// Notes that the kernel forgot files when they had no name that it knew. What the pool has of
    /// such a file that rests is free then.
    pub(crate) fn nobody_reaches(&self, identities: &[FileIdentity]) {
        for gone in identities {
            if let Some(known) = self.files().get_mut(gone) {
                known.is_unreachable = true;
                continue;
            }
            self.forget_copy(*gone);
        }
    }

    /// Frees what the pool has of a file that is below.
    fn forget_copy(&self, identity: FileIdentity) {
        if let Err(error) = self.pool.forget_resting(identity) {
            tracing::debug!("the pool's copy of a file that is gone stays: {error}");
        }
    }

    /// Gives up what the pool has of files that lost their last name and that nobody has open. The
    /// loss of the names is durable before. Without a log of names it is not known when it is: such
    /// files are written back, and [let go of](OpenFiles::let_go).
    pub(crate) fn give_up_gone(&self) -> std::result::Result<(), FileError> {
        if !self.names.is_kept() {
            return Ok(());
        }
        let is_idle = |known: &&Counted| known.opens == 0 && known.is_unreachable;
        let unreachable: Vec<_> = self.files().values().filter(is_idle).map(|known| known.file.clone()).collect();
        let gone: Vec<_> = unreachable.into_iter().filter(|file| file.has_no_name()).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.names.commit().map_err(refused)?;
        for file in gone {
            let state = file.write_state();
            if let ServedFrom::Pool(number) = state.served_from {
                self.pool.discard(number)?;
            }
        }
        Ok(())
    }

    /// Makes SOURCE durable, so that the log of names need not keep what was recorded before.
    /// It does if the pool has data of a removed file still: without the log a recovery would miss
    /// that file. `note_gone` notes it, and one that is open, of which the pool may get data later.
    pub(crate) fn sync_source(&self, note_gone: impl Fn(FileIdentity) -> Result<()>) -> Result<()> {
        self.names.sync_source(|| {
            self.give_up_gone().map_err(|error| errno_of(&error))?;
            let known: Vec<_> = self.files().values().map(|known| (known.file.clone(), known.opens > 0)).collect();
            let may_have_data = |file: &OpenFile, open| self.names.is_kept() && (open || self.lacks(file));
            // The log may have to forget all the same, where its room is scarce.
            for (file, _) in known.iter().filter(|(file, open)| may_have_data(file, *open) && file.has_no_name()) {
                file.note_gone_once(&note_gone)?;
            }
            Ok(!known.iter().any(|(file, _)| self.lacks(file) && file.has_no_name()))
        })
    }

    /// Whether the file below lacks, or may lose, what the pool has.
    fn lacks(&self, file: &OpenFile) -> bool {
        match file.read_state().served_from {
            ServedFrom::Pool(number) => self.pool.lacks(number),
            ServedFrom::File | ServedFrom::BesidePool => false,
        }
    }

    /// Lets go of files that nobody has open and that are below.
    pub(crate) fn let_go(&self) -> std::result::Result<(), FileError> {
        let idle: Vec<_> =
            self.files().values().filter(|known| known.opens == 0).map(|known| known.file.clone()).collect();
        for file in idle {
            if !file.leave_pool(&self.pool)? {
                continue;
            }
            let mut files = self.files();
            let unused = files.get(&file.identity).filter(|known| known.is_unused());
            let Some(is_unreachable) = unused.map(|known| known.is_unreachable) else { continue };
            files.remove(&file.identity);
            drop(files);
            if is_unreachable && file.has_no_name() {
                self.forget_copy(file.identity);
            }
        }
        Ok(())
    }
}
