//! Files below a storm: every request is a point, and may be the last.

use crate::mutant::{Mislaid, Mutant};
use crate::staged::Stage;
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_crashcheck::file_cache::SimFile;
use tidegate_file_cache::{
    BackingFile, BackingStatus, Below, Displaced, Disposition, Fallocate, FileIdentity, Refused, Sought, Stamp,
};
use tidegate_sim::{Content, Rng};
use tidegate_virtual_cores::point;

/// Kinds of requests, as the trace has them: none that a memory or a disk has.
const READ: u64 = 1;
const WRITE: u64 = 2;
const SET_LEN: u64 = 3;
const ROOM: u64 = 4;
const SYNC: u64 = 5;
const SYNCED: u64 = 6;
const TIME: u64 = 7;

/// All files below.
pub(crate) struct FilesBelow {
    files: Vec<Mutex<SimFile>>,
    stage: Arc<Stage>,
    has_plenty: bool,
}

impl FilesBelow {
    /// Has these files in a file system that has plenty of room, or not.
    pub(crate) fn new(files: Vec<SimFile>, stage: &Arc<Stage>, has_plenty: bool) -> FilesBelow {
        FilesBelow { files: files.into_iter().map(Mutex::new).collect(), stage: stage.clone(), has_plenty }
    }

    /// The file system with what a cut or a kill left.
    pub(crate) fn with(&self, files: Vec<SimFile>) -> FilesBelow {
        FilesBelow::new(files, &self.stage, self.has_plenty)
    }

    /// The visible contents of a file.
    pub(crate) fn contents(&self, number: usize) -> Vec<u8> {
        self.file(number).contents().to_vec()
    }

    /// The program that has a file open changed it at this time.
    pub(crate) fn note(&self, number: usize, time: u64) {
        self.file(number).note(time);
    }

    /// What a power cut leaves of all files.
    pub(crate) fn sample(&self, rng: &mut Rng) -> Vec<SimFile> {
        (0..self.files.len()).map(|number| self.file(number).sample(rng)).collect()
    }

    /// What a kill leaves of all files.
    pub(crate) fn left(&self) -> Vec<SimFile> {
        (0..self.files.len()).map(|number| self.file(number).clone()).collect()
    }

    fn file(&self, number: usize) -> MutexGuard<'_, SimFile> {
        self.files[number].lock().expect("no holder panics")
    }

    fn pass(&self, kind: u64, number: usize, at: u64, content: u64) {
        self.stage.pass((5 << 60 | kind << 56 | (number as u64) << 48 | at) ^ content.rotate_left(17), kind == SYNC);
        point(kind);
    }
}

/// One of them.
struct FileBelow {
    files: Arc<FilesBelow>,
    number: usize,
}

impl FileBelow {
    fn file(&self) -> MutexGuard<'_, SimFile> {
        self.files.file(self.number)
    }

    fn pass(&self, kind: u64, at: u64, content: u64) {
        self.files.pass(kind, self.number, at, content);
    }
}

/// The file of this number.
pub(crate) fn backing(files: &Arc<FilesBelow>, number: usize) -> Arc<dyn BackingFile> {
    Arc::new(FileBelow { files: files.clone(), number })
}

impl BackingFile for FileBelow {
    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 1, inode: self.number as u64, generation: 0 }
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        let file = self.file();
        Ok(BackingStatus {
            len: file.contents().len() as u64,
            stamp: Stamp::of(file.stamp(), file.stamp()),
            is_removed: false,
        })
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        self.pass(READ, at, 0);
        Ok(self.file().read(at, out))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        self.pass(WRITE, at, Content::of(data).0);
        self.file().write(at, data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        self.pass(SET_LEN, len, 0);
        self.file().set_len(len);
        Ok(())
    }

    fn fallocate(&self, at: u64, len: u64, how: Fallocate) -> Result<(), Refused> {
        self.pass(ROOM, at, len);
        match how {
            Fallocate::Reserve => self.file().change_room(),
            _ => self.file().zero(at, len),
        }
        Ok(())
    }

    fn has_plenty_for(&self, end: u64) -> Option<u64> {
        self.files.has_plenty.then_some(end)
    }

    /// Holes are not kept apart from zeroes.
    fn seek(&self, at: u64, sought: Sought) -> Result<Option<u64>, Refused> {
        let ends = self.file().contents().len() as u64;
        let found = if sought == Sought::Data { at } else { ends };
        Ok((at < ends).then_some(found))
    }

    fn set_times(&self) -> Result<(), Refused> {
        self.pass(TIME, 0, 0);
        self.file().set_noted();
        Ok(())
    }

    fn sync(&self) -> Result<(), Refused> {
        self.pass(SYNC, 0, 0);
        if self.files.stage.mutant() != Mutant::Mislaid(Mislaid::FileSyncs) {
            self.file().sync();
        }
        // The answer takes its way.
        point(SYNCED);
        Ok(())
    }
}

/// Where recovery finds them.
pub(crate) struct Found(pub(crate) Arc<FilesBelow>);

impl Below for Found {
    fn find(&self, identity: FileIdentity, _hint: &[u8]) -> Result<Option<Arc<dyn BackingFile>>, Refused> {
        let number = usize::try_from(identity.inode).expect("few files");
        Ok((number < self.0.files.len()).then(|| backing(&self.0, number)))
    }

    fn displaced(&self, _identity: FileIdentity, _hint: &[u8], _why: Displaced) -> Result<Disposition, Refused> {
        Ok(Disposition::Retain)
    }
}
