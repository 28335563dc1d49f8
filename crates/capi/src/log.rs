//! An append-only log and what lies below it, as C programs hold them.

use crate::cache::{other_mark, take, unlocked};
use crate::status::CallFailure;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use tidegate_append_log::{
    AppendLog, CHUNK_BYTES_DEFAULT, LogError, LogOpenError, Making, OnDamage, REGION_BYTES_DEFAULT, create, identify,
};
use tidegate_background::LogThread;
use tidegate_media::{
    Access, Allocation, DiskAccess, FencedFile, FileDisk, MapError, MappedRegion, Process, UnfinishedFile, claim_of,
};
use uuid::Uuid;

/// Bytes that a new file below has room for, unless the caller says how many.
const CAPACITY_DEFAULT: u64 = 1 << 40;

/// Bytes in a block of what lies below.
const BLOCK_SIZE: u32 = 4096;

/// An append-only log in persistent memory, in front of a file or a disk.
pub struct Log {
    opened: Opened,
    /// Who opened it. A child of this process has no part in its thread.
    owner: Process,
}

/// How a log was opened.
enum Opened {
    /// With its thread.
    Whole(LogThread<FencedFile>),
    /// For reading what is not damaged: the log refuses everything else itself.
    Damaged(Box<AppendLog<FencedFile>>),
}

impl Log {
    /// Makes a log in a new region of `bytes` bytes at `pmem` in front of `below`: a block device,
    /// or a file that is empty or not there, which gets room for `capacity` bytes. 0: the usual
    /// number.
    pub(crate) fn create(pmem: &Path, bytes: u64, below: &Path, capacity: u64) -> Result<(), CallFailure> {
        let bytes = if bytes == 0 { REGION_BYTES_DEFAULT } else { bytes };
        let capacity = if capacity == 0 { CAPACITY_DEFAULT } else { capacity };
        if !(u64::from(BLOCK_SIZE)..1 << 63).contains(&capacity) {
            return Err(CallFailure::Capacity(capacity));
        }
        let made = UnfinishedFile(make_room(below, capacity)?.then_some(below));
        let disk = unlocked(|| FileDisk::open(below, DiskAccess::ReadWrite, BLOCK_SIZE))?;
        if let Some(by) = claim_of(&disk, 0)? {
            return Err(CallFailure::BelowClaimed(by));
        }
        let uuid = Uuid::new_v4().into_bytes();
        refuse_taken(&disk, uuid)?;
        let region = FencedFile::new(MappedRegion::create(pmem, bytes, Allocation::Full)?);
        let mapped = UnfinishedFile(Some(pmem));
        // Twenty chunks or so, whatever the size of the region.
        let chunk_bytes = (bytes / 16).next_power_of_two() / 2;
        let chunk_bytes = chunk_bytes.clamp(u64::from(BLOCK_SIZE), CHUNK_BYTES_DEFAULT);
        create(&region, &disk, &Making { chunk_bytes, uuid, below: disk.identity().0 })?;
        take(&disk, pmem, uuid)?;
        mapped.finish();
        made.finish();
        Ok(())
    }

    /// Opens the log at `pmem` in front of `below`; what was interrupted is finished.
    pub(crate) fn open(pmem: &Path, below: &Path, on_damage: OnDamage) -> Result<Log, CallFailure> {
        let region = FencedFile::new(unlocked(|| MappedRegion::open(pmem, Access::ReadWrite))?);
        let facts = identify(&region)?.ok_or(CallFailure::NoLog)?;
        let disk = unlocked(|| FileDisk::open(below, DiskAccess::ReadWrite, BLOCK_SIZE)).map_err(not_below)?;
        if disk.identity().0 != facts.below {
            return Err(CallFailure::AnotherBelow);
        }
        refuse_taken(&disk, facts.uuid)?;
        let log = AppendLog::open(region, Arc::new(disk), on_damage).map_err(|error| match error {
            LogOpenError::Below { needs, has, .. } if has < needs => {
                CallFailure::BelowShort { below: below.to_owned(), needs, has }
            }
            error => error.into(),
        })?;
        let opened = match log.damage().is_empty() {
            true => Opened::Whole(LogThread::start(log)?),
            false => Opened::Damaged(Box::new(log)),
        };
        Ok(Log { opened, owner: Process::current() })
    }

    /// This log, if the process that asks has opened it.
    pub(crate) fn own(&self) -> Result<&Log, CallFailure> {
        if self.owner.is_current() { Ok(self) } else { Err(CallFailure::Forked) }
    }

    fn log(&self) -> &AppendLog<FencedFile> {
        match &self.opened {
            Opened::Whole(thread) => thread.log(),
            Opened::Damaged(log) => log,
        }
    }

    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64, CallFailure> {
        Ok(match &self.opened {
            Opened::Whole(thread) => thread.append(bytes),
            Opened::Damaged(log) => log.append(bytes),
        }?)
    }

    pub(crate) fn sync(&self) -> Result<u64, CallFailure> {
        Ok(match &self.opened {
            Opened::Whole(thread) => thread.sync(),
            Opened::Damaged(log) => log.sync(),
        }?)
    }

    pub(crate) fn drop_behind(&self, offset: u64) -> Result<(), CallFailure> {
        Ok(self.log().drop_behind(offset)?)
    }

    pub(crate) fn write_back(&self) -> Result<(), CallFailure> {
        Ok(self.log().write_back_all()?)
    }

    /// Where it begins, and where its durable bytes end.
    pub(crate) fn places(&self) -> (u64, u64) {
        (self.log().begin(), self.log().durable_to())
    }

    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, CallFailure> {
        Ok(self.log().read(at, out)?)
    }

    /// Shows all durable bytes from `from` on to `visit`, until that says no.
    pub(crate) fn replay(&self, from: u64, mut visit: impl FnMut(u64, &[u8]) -> bool) -> Result<(), CallFailure> {
        Ok(self.log().replay_while(from, &mut visit).map(drop)?)
    }

    /// Gives it back, with everything synced that was appended.
    pub(crate) fn close(self) -> Result<(), CallFailure> {
        match self.opened {
            Opened::Whole(thread) if self.owner.is_current() => Ok(thread.sync().map(drop)?),
            Opened::Whole(thread) => {
                thread.abandon();
                Ok(())
            }
            Opened::Damaged(_) => Ok(()),
        }
    }
}

/// Why the file or disk below a log that is there is not opened.
fn not_below(error: MapError) -> CallFailure {
    match error {
        MapError::NotFound { path } => CallFailure::BelowAbsent(path),
        MapError::Empty { path } => CallFailure::BelowEmpty(path),
        error => error.into(),
    }
}

/// Refuses a file or disk that is marked for another region than `own`.
fn refuse_taken(disk: &FileDisk, own: [u8; 16]) -> Result<(), CallFailure> {
    match other_mark(disk, own) {
        Some(mark) => Err(CallFailure::BelowTaken { region: Uuid::from_bytes(mark.region), place: mark.place }),
        None => Ok(()),
    }
}

/// Makes `below` a file with room for `capacity` bytes, unless it is a device; whether there was
/// none.
fn make_room(below: &Path, capacity: u64) -> Result<bool, CallFailure> {
    let sized = |file: File| file.set_len(capacity).and_then(|()| file.sync_all());
    match std::fs::metadata(below) {
        Ok(found) if found.file_type().is_block_device() => Ok(false),
        Ok(found) if found.len() > 0 => Err(CallFailure::BelowHolds(found.len())),
        Ok(_) => Ok(sized(File::options().write(true).open(below)?).map(|()| false)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = UnfinishedFile(Some(below));
            sized(File::options().write(true).create_new(true).mode(0o600).open(below)?)?;
            made.finish();
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

impl From<LogError> for CallFailure {
    fn from(error: LogError) -> CallFailure {
        CallFailure::Log(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Status, ended};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A folder, and where the region and the file below may be in it.
    fn scratch() -> (TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (pmem, below) = (folder.path().join("pmem"), folder.path().join("below"));
        (folder, pmem, below)
    }

    #[test]
    fn a_log_is_what_was_synced_and_mistakes_are_told() {
        let (folder, pmem, below) = scratch();
        let open = || Log::open(&pmem, &below, OnDamage::Refuse);
        Log::create(&pmem, 128 << 10, &below, 8 << 20).unwrap();
        let modes = [&pmem, &below].map(|file| file.metadata().unwrap().permissions().mode() & 0o777);
        assert_eq!(modes, [0o600, 0o600], "only its owner reads the log");
        let log = open().unwrap();
        assert_eq!(log.append(&vec![5; 300_000]).unwrap(), 300_000, "more than the window has");
        assert_eq!(log.sync().unwrap(), 300_000);
        assert_eq!(ended(|| log.read(300_001, &mut [0; 1]).map(drop)), Status::TidegateMisuse);
        log.drop_behind(100_000).unwrap();
        assert_eq!(ended(|| log.read(99_999, &mut [0; 1]).map(drop)), Status::TidegateMisuse);
        assert_eq!(ended(|| log.drop_behind(300_001)), Status::TidegateMisuse);
        assert_eq!(ended(|| open().map(drop)), Status::TidegateInUse);
        log.write_back().unwrap();
        log.append(b"unsynced").unwrap();
        log.close().unwrap();
        let log = open().unwrap();
        let mut bytes = 0;
        log.replay(0, |at, part| {
            assert!(part.iter().all(|byte| *byte == 5) || at + part.len() as u64 > 300_000);
            bytes += part.len();
            true
        })
        .unwrap();
        assert_eq!((bytes, log.places()), (200_008, (100_000, 300_008)));
        log.close().unwrap();
        let other = folder.path().join("other");
        assert_eq!(ended(|| Log::create(&other, 0, &below, 0)), Status::TidegateRefused, "it holds something");
        assert!(!other.exists());
        let new = folder.path().join("new");
        assert_eq!(ended(|| Log::create(&pmem, 0, &new, 0)), Status::TidegateSystem, "the region is there already");
        assert!(!new.exists());
        assert_eq!(ended(|| Log::create(&other, 8192, &new, 0)), Status::TidegateMisuse, "no chunk fits");
        assert!(!new.exists() && !other.exists());
        std::fs::copy(&below, folder.path().join("copy")).unwrap();
        let copy = Log::open(&pmem, &folder.path().join("copy"), OnDamage::Refuse);
        assert_eq!(ended(|| copy.map(drop)), Status::TidegateRefused, "another file");
    }

    #[test]
    fn a_log_without_the_bytes_below_is_refused_and_kept() {
        let (folder, pmem, below) = scratch();
        Log::create(&pmem, 128 << 10, &below, 8 << 20).unwrap();
        let refused = || {
            let opened = Log::open(&pmem, &below, OnDamage::Refuse).map(drop);
            let words = opened.as_ref().unwrap_err().to_string();
            assert_eq!(ended(|| opened), Status::TidegateRefused, "{words}");
            assert!(words.contains(below.to_str().unwrap()) && !words.contains("volume"), "{words}");
            words
        };
        let file = File::options().write(true).open(&below).unwrap();
        file.set_len(4 << 20).unwrap();
        assert!(refused().contains("8388608 bytes"));
        file.set_len(0).unwrap();
        assert!(refused().contains("is empty"));
        file.set_len(8 << 20).unwrap();
        drop(file);
        std::fs::rename(&below, folder.path().join("elsewhere")).unwrap();
        assert!(refused().contains("is not there"));
        std::fs::rename(folder.path().join("elsewhere"), &below).unwrap();
        Log::open(&pmem, &below, OnDamage::Refuse).unwrap().close().unwrap();
        std::fs::remove_file(&pmem).unwrap();
        let absent = Log::open(&pmem, &below, OnDamage::Refuse).map(drop);
        assert_eq!(ended(|| absent), Status::TidegateSystem, "the region is absent: a log may be made");
    }

    #[test]
    fn a_file_below_without_room_is_told_and_a_drop_makes_some() {
        let (_folder, pmem, below) = scratch();
        Log::create(&pmem, 128 << 10, &below, 64 << 10).unwrap();
        let log = Log::open(&pmem, &below, OnDamage::Refuse).unwrap();
        log.append(&vec![1; 64 << 10]).unwrap();
        assert_eq!(ended(|| log.append(&[2]).map(drop)), Status::TidegateSystem);
        log.sync().unwrap();
        log.drop_behind(32 << 10).unwrap();
        log.append(&[2]).unwrap();
        log.close().unwrap();
    }

    #[test]
    fn a_damaged_log_is_refused_and_the_rest_of_it_can_be_read() {
        let (_folder, pmem, below) = scratch();
        Log::create(&pmem, 128 << 10, &below, 8 << 20).unwrap();
        let log = Log::open(&pmem, &below, OnDamage::Refuse).unwrap();
        log.append(&[5; 1000]).unwrap();
        log.close().unwrap();
        let file = File::options().write(true).open(&pmem).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[6], 12_288 + 700).unwrap();
        drop(file);
        let refused = Log::open(&pmem, &below, OnDamage::Refuse).map(drop).unwrap_err().to_string();
        assert!(refused.contains("bytes 0..1000 of the log are damaged"), "{refused}");
        let log = Log::open(&pmem, &below, OnDamage::ReadOnly).unwrap();
        assert_eq!(log.places(), (0, 1000));
        assert_eq!(ended(|| log.read(0, &mut [0; 8]).map(drop)), Status::TidegateRefused);
        assert_eq!(ended(|| log.append(&[1]).map(drop)), Status::TidegateRefused);
        log.close().unwrap();
    }
}
