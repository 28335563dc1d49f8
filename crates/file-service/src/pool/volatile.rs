//! The memory of unsynced writes: one file in `/dev/shm` for each lane of a pool. Where SOURCE has
//! no log of names, one more notes the files that lost their last name. On a further one programs
//! say their contexts (`ContextBoard`).
//!
//! It outlives the process, so that a service that was killed loses no write that a program made;
//! it does not outlive the machine. It is named after the pool's identity, and removed together
//! with what it was needed for.

use crate::lifecycle::failure::{DramRefused, ServiceFailure, system};
use crate::pool::DRAM_BYTES_MIN;
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tidegate_file_cache::FileIdentity;
use tidegate_host::owned::{self, What, accept};
use tidegate_host::unlocked::unlocked;
use tidegate_media::{Access, Allocation, MappedRegion};

/// Bytes of a note: three words that identify a file.
const NOTE_BYTES: usize = 24;

/// In the place of a note: there is none.
const NO_NOTE: [u8; NOTE_BYTES] = [0; NOTE_BYTES];

/// Where memory that outlives a process is.
pub(crate) const FOLDER: &str = "/dev/shm";

/// Bytes of DRAM for unsynced writes, unless asked otherwise, where [`FOLDER`] has twice as many.
const USUAL_BYTES: u64 = 256 << 20;

/// Bytes of DRAM for unsynced writes: as many as asked for, if they can be had.
pub(crate) fn accepted(asked: Option<u64>) -> Result<u64, ServiceFailure> {
    let folder = rustix::fs::statvfs(FOLDER).map_err(system("looking at the size of /dev/shm"))?;
    let room = folder.f_blocks.saturating_mul(folder.f_frsize);
    match asked {
        None => Ok(USUAL_BYTES.min(room / 2).max(DRAM_BYTES_MIN)),
        Some(asked) if asked < DRAM_BYTES_MIN => Err(DramRefused::TooSmall { asked, least: DRAM_BYTES_MIN }.into()),
        Some(asked) if asked > room => Err(DramRefused::TooLarge { asked, room }.into()),
        Some(asked) => Ok(asked),
    }
}

/// The memory of a pool's lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volatile {
    pool: [u8; 16],
}

impl Volatile {
    /// That of the pool with this identity.
    pub(crate) fn of(pool: [u8; 16]) -> Volatile {
        Volatile { pool }
    }

    /// That of the pool that [`Volatile::id`] names; None: no pool has such a name.
    pub(crate) fn of_id(id: &str) -> Option<Volatile> {
        Some(Volatile { pool: uuid::Uuid::try_parse(id).ok()?.into_bytes() })
    }

    /// Whether a file of this name is the memory of a lane.
    pub(crate) fn is_name(name: &OsStr) -> bool {
        let id_and_lane = name.to_str().and_then(|name| name.strip_prefix("tidegate-")?.split_once('-'));
        id_and_lane.is_some_and(|(id, lane)| Volatile::of_id(id).is_some() && lane.parse::<u32>().is_ok())
    }

    /// The pool's identity as text.
    pub(crate) fn id(self) -> String {
        uuid::Uuid::from_bytes(self.pool).simple().to_string()
    }

    /// What a process that was killed left of a lane, or fresh memory of `bytes`.
    pub(crate) fn open_or_create(self, lane: u32, bytes: u64) -> Result<MappedRegion, ServiceFailure> {
        let path = self.path(lane);
        // A process that was ended while it made the file left no byte in it, and no write.
        if path.symlink_metadata().is_ok_and(|about| about.is_file() && about.len() == 0) {
            removed(&path)?;
        }
        if !path.exists() {
            return MappedRegion::create(&path, bytes, Allocation::Sparse).map_err(ServiceFailure::Memory);
        }
        // The server before this one may have been killed, and end later than its lock on the pool.
        let own = |file: &File| accept(file, What::File);
        unlocked(|| MappedRegion::open_if(&path, Access::ReadWrite, own)).map_err(ServiceFailure::Memory)
    }

    /// Removes what there is of a lane.
    pub(crate) fn remove(self, lane: u32) -> Result<(), ServiceFailure> {
        removed(&self.path(lane))
    }

    /// Notes that a file is about to lose its last name. Whatever kills the service leaves the
    /// note, and the removal.
    pub(crate) fn note_gone(self, file: FileIdentity) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(self.path_of_gone(), flags, Mode::RUSR | Mode::WUSR)?;
        accept(&opened, What::File)?;
        File::from(opened).write_all(words_of(file).as_flattened())
    }

    /// The notes of a mount whose log of names tells which files lost their last name. The log has
    /// an operation once it is done below: only the file of the operation under way is noted. What
    /// a note takes up of the memory is taken up here.
    pub(crate) fn note_under_way(self) -> io::Result<NoteUnderWay> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(self.path_of_gone(), flags, Mode::RUSR | Mode::WUSR)?;
        accept(&opened, What::File)?;
        let note = NoteUnderWay(File::from(opened));
        // A server of the mount before this one may have left a note.
        if note.0.metadata()?.len() < NOTE_BYTES as u64 {
            note.clear()?;
        }
        Ok(note)
    }

    /// The files that were noted. A note that was cut short is left out.
    pub(crate) fn gone(self) -> Result<HashSet<FileIdentity>, ServiceFailure> {
        let path = self.path_of_gone();
        let mut notes = Vec::new();
        match owned::open(&path, OFlags::RDONLY).and_then(|mut file| io::Read::read_to_end(&mut file, &mut notes)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ServiceFailure::of_file("read", &path)(error));
            }
            _ => {}
        }
        let word = |note: &[u8], at: usize| u64::from_le_bytes(note[at..at + 8].try_into().unwrap_or_default());
        let file =
            |note: &[u8]| FileIdentity { device: word(note, 0), inode: word(note, 8), generation: word(note, 16) };
        let noted = notes.chunks_exact(NOTE_BYTES).filter(|note| **note != NO_NOTE);
        Ok(noted.map(file).collect())
    }

    /// Removes the notes: the pool has nothing of the files any more.
    pub(crate) fn remove_gone(self) -> Result<(), ServiceFailure> {
        removed(&self.path_of_gone())
    }

    /// Where programs say their contexts.
    pub(crate) fn path_of_board(self) -> PathBuf {
        PathBuf::from(FOLDER).join(format!("tidegate-{}-contexts", self.id()))
    }

    /// Removes the board of contexts: no program has files of the mount open any more.
    pub(crate) fn remove_board(self) -> Result<(), ServiceFailure> {
        removed(&self.path_of_board())
    }

    fn path_of_gone(self) -> PathBuf {
        PathBuf::from(FOLDER).join(format!("tidegate-{}-gone", self.id()))
    }

    fn path(self, lane: u32) -> PathBuf {
        PathBuf::from(FOLDER).join(format!("tidegate-{}-{lane}", self.id()))
    }
}

fn removed(path: &Path) -> Result<(), ServiceFailure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(ServiceFailure::of_file("remove", path)),
    }
}

/// The file that the operation under way takes the last name from.
#[derive(Debug)]
pub(crate) struct NoteUnderWay(File);

impl NoteUnderWay {
    /// Notes the file, in place of the last one: it is recorded by now.
    pub(crate) fn set(&self, file: FileIdentity) -> io::Result<()> {
        self.0.write_all_at(words_of(file).as_flattened(), 0)
    }

    /// The operation was not done.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.0.write_all_at(&NO_NOTE, 0)
    }
}

fn words_of(file: FileIdentity) -> [[u8; 8]; 3] {
    [file.device, file.inode, file.generation].map(u64::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_operation_under_way_the_last_file_is_noted_until_it_is_not_done() {
        let volatile = Volatile::of(*uuid::Uuid::new_v4().as_bytes());
        let [one, other] = [1, 2].map(|inode| FileIdentity { device: 0, inode, generation: 3 });
        let note = volatile.note_under_way().expect("opened");
        assert_eq!(volatile.gone().expect("readable"), HashSet::new());
        let room = volatile.path_of_gone().metadata().expect("it is there").len();
        assert_eq!(room, NOTE_BYTES as u64, "a full file system keeps no file from being removed");
        for file in [one, other] {
            note.set(file).expect("noted");
            volatile.note_under_way().expect("the next server opens it");
            assert_eq!(volatile.gone().expect("readable"), HashSet::from([file]));
        }
        note.clear().expect("written");
        assert_eq!(volatile.gone().expect("readable"), HashSet::new());
        volatile.remove_gone().expect("removed");
    }

    #[test]
    fn memory_that_never_got_a_byte_is_made_anew() {
        let volatile = Volatile::of(*uuid::Uuid::new_v4().as_bytes());
        File::create(volatile.path(0)).expect("made");
        let memory = volatile.open_or_create(0, 1 << 20).expect("made anew");
        assert_eq!(tidegate_media::Region::len(&memory), 1 << 20);
        drop(memory);
        volatile.remove(0).expect("removed");
    }

    #[test]
    fn files_that_were_noted_are_found_and_a_torn_note_is_left_out() {
        let volatile = Volatile::of(*uuid::Uuid::new_v4().as_bytes());
        assert_eq!(volatile.gone().expect("readable"), HashSet::new());
        let files = [1, 2].map(|inode| FileIdentity { device: 0, inode, generation: u64::MAX });
        files.iter().for_each(|file| volatile.note_gone(*file).expect("noted"));
        let mut notes = File::options().append(true).open(volatile.path_of_gone()).expect("it is there");
        notes.write_all(&[7; NOTE_BYTES - 1]).expect("written");
        assert_eq!(volatile.gone().expect("readable"), HashSet::from(files));
        volatile.remove_gone().expect("removed");
        volatile.remove_gone().expect("it is gone already");
        assert_eq!(volatile.gone().expect("readable"), HashSet::new());
    }
}
