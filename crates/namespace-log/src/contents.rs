//! Contents and names together: how the recovery of contents uses names that were replayed, and how
//! the first sync of a new file does without a sync below.

use crate::log::NamespaceLog;
use crate::replay::{NamesReplayed, Whereabouts};
use std::sync::Arc;
use tidegate_file_cache::{
    BackingFile, BackingStatus, Below, Displaced, Disposition, Fallocate, FileIdentity, Refused, Sought, Stamp,
};
use tidegate_media::Region;
use tidegate_media::sync::{AtomicBool, Ordering};

/// The kernel's errno for a failed access.
const EIO: i32 = 5;

/// Where the recovery of contents finds files after names were replayed. Contents of a removed file
/// are given up. Those of a file that was made anew go there. All others are as `below` says.
pub struct ReplayedBelow<'a, R> {
    names: &'a NamesReplayed<R>,
    below: &'a dyn Below,
}

impl<'a, R: Region> ReplayedBelow<'a, R> {
    /// `below` finds files by the identities and paths that they have now.
    pub fn new(names: &'a NamesReplayed<R>, below: &'a dyn Below) -> ReplayedBelow<'a, R> {
        ReplayedBelow { names, below }
    }
}

impl<R: Region> Below for ReplayedBelow<'_, R> {
    fn find(&self, identity: FileIdentity, path_hint: &[u8]) -> Result<Option<Arc<dyn BackingFile>>, Refused> {
        match self.names.whereabouts(identity) {
            Whereabouts::Removed | Whereabouts::MadeAnew { .. } => Ok(None),
            Whereabouts::Named(path) => self.below.find(identity, path),
            Whereabouts::Unmentioned => self.below.find(identity, path_hint),
        }
    }

    fn displaced(&self, identity: FileIdentity, path_hint: &[u8], why: Displaced) -> Result<Disposition, Refused> {
        match self.names.whereabouts(identity) {
            Whereabouts::Removed => return Ok(Disposition::Discard),
            Whereabouts::MadeAnew { node, path } => {
                let anew = FileIdentity { inode: node.inode, generation: node.generation, ..identity };
                if let Some(file) = self.below.find(anew, path)? {
                    return Ok(Disposition::Salvage(file));
                }
            }
            Whereabouts::Named(_) | Whereabouts::Unmentioned => {}
        }
        self.below.displaced(identity, path_hint, why)
    }
}

/// A file below that was just made and whose creation is recorded. Until something is stored in it,
/// its sync is a commit of the log, and it has no stamp.
pub struct MadeFile<R> {
    below: Arc<dyn BackingFile>,
    log: Arc<NamespaceLog<R>>,
    /// Set before anything is stored.
    stored: AtomicBool,
}

impl<R: Region> MadeFile<R> {
    /// `below` is empty.
    pub fn new(below: Arc<dyn BackingFile>, log: Arc<NamespaceLog<R>>) -> MadeFile<R> {
        MadeFile { below, log, stored: AtomicBool::new(false) }
    }

    /// Notes that the file below is changed by another way.
    pub fn note_change(&self) {
        self.stored.store(true, Ordering::SeqCst);
    }

    fn is_as_made(&self) -> bool {
        !self.stored.load(Ordering::SeqCst)
    }
}

impl<R: Region + Send + Sync> BackingFile for MadeFile<R> {
    fn identity(&self) -> FileIdentity {
        self.below.identity()
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        let status = self.below.status()?;
        Ok(if self.is_as_made() { BackingStatus { stamp: Stamp::NONE, ..status } } else { status })
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        self.below.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        self.note_change();
        self.below.write(at, data)
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        self.note_change();
        self.below.set_len(len)
    }

    fn fallocate(&self, at: u64, len: u64, how: Fallocate) -> Result<(), Refused> {
        self.stored.fetch_or(how != Fallocate::Reserve, Ordering::SeqCst);
        self.below.fallocate(at, len, how)
    }

    fn has_plenty_for(&self, end: u64) -> Option<u64> {
        self.below.has_plenty_for(end)
    }

    fn seek(&self, at: u64, sought: Sought) -> Result<Option<u64>, Refused> {
        self.below.seek(at, sought)
    }

    fn set_times(&self) -> Result<(), Refused> {
        if self.is_as_made() { Ok(()) } else { self.below.set_times() }
    }

    fn sync(&self) -> Result<(), Refused> {
        if self.is_as_made() { self.log.commit().map_err(|_| Refused { errno: EIO }) } else { self.below.sync() }
    }
}
