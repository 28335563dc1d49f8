//! Files of SOURCE as the file cache sees them.
//!
//! The cache writes a file back long after its program did. So the time of modification that
//! programs see is noted here, and set below with each sync: it is the program's, and not that of
//! the write-back. The stamp by which strangers are found out is made of this time and the length;
//! both change with the contents only, while a rename or a new mode changes neither.

use crate::counted_room::{COUNTED_BYTES, CountedBeginning, CountedRoom};
use crate::sync_times::SyncTimes;
use crate::{OWN_DEVICE, SourceDirectory, about, nanoseconds, reopen};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, Statx, Timespec, Timestamps, UTIME_OMIT};
use rustix::fs::{fallocate, fchmod, fsync, ftruncate, futimens, seek};
use rustix::io::{Errno, pread, pwrite};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use tidegate_file_cache::{BackingFile, BackingStatus, Fallocate, FileIdentity, FileLength, Refused, Sought, Stamp};

/// The bits of a mode by which a program runs as the owner of its file, or in its group.
const SET_IDS: u32 = 0o6000;

/// The blocks of most file systems.
const BLOCK_BYTES: u64 = 4096;

/// An open regular file of SOURCE.
pub struct OpenedFile {
    descriptor: OwnedFd,
    /// What it is written by instead, where its file system could only be read when it was opened.
    written_by: Option<OnceLock<OwnedFd>>,
    identity: FileIdentity,
    /// When a program last changed the contents, as long as the file below may say otherwise.
    modified: Mutex<Option<Timespec>>,
    /// Whether it has a name, unless others have taken the last one away.
    is_named: AtomicBool,
    keeps_set_ids: bool,
    syncs: Arc<SyncTimes>,
    /// Room for its beginning, if that may be counted only.
    room: Option<Arc<CountedRoom>>,
    counted: CountedBeginning,
}

impl OpenedFile {
    /// The file that `descriptor` is open for.
    pub fn new(source: &SourceDirectory, descriptor: OwnedFd) -> rustix::io::Result<OpenedFile> {
        let about = about(&descriptor)?;
        Ok(OpenedFile::known(source, descriptor, &about))
    }

    /// The file that `descriptor` is open for, of which the kernel says this.
    pub fn known(source: &SourceDirectory, descriptor: OwnedFd, about: &Statx) -> OpenedFile {
        let (identity, syncs) = (source.identity(about), Arc::clone(&source.syncs));
        let is_named = AtomicBool::new(about.stx_nlink > 0);
        let keeps_set_ids = source.keeps_set_ids;
        let (written_by, modified) = (None, Mutex::new(None));
        // Room on another file system that is mounted there was never asked about.
        let room = (identity.device == OWN_DEVICE).then(|| Arc::clone(&source.room));
        let counted = CountedBeginning::default();
        OpenedFile { descriptor, written_by, identity, modified, is_named, keeps_set_ids, syncs, room, counted }
    }

    /// Opens a file by `open` for reading and writing. If its file system can only be read, each
    /// change is refused with `EROFS` until that can be written again.
    pub fn opened_for_writing(
        open: impl Fn(OFlags) -> rustix::io::Result<OpenedFile>,
    ) -> rustix::io::Result<OpenedFile> {
        match open(OFlags::RDWR) {
            Err(Errno::ROFS) => {
                let mut opened = open(OFlags::RDONLY)?;
                (opened.written_by, opened.room) = (Some(OnceLock::new()), None);
                Ok(opened)
            }
            opened => opened,
        }
    }

    /// The descriptor that the file is written by.
    fn for_writing(&self) -> Result<&OwnedFd, Refused> {
        let Some(written_by) = &self.written_by else { return Ok(&self.descriptor) };
        if let Some(opened) = written_by.get() {
            return Ok(opened);
        }
        let opened = reopen(&self.descriptor, OFlags::RDWR).map_err(refused)?;
        Ok(written_by.get_or_init(|| opened))
    }

    /// Bytes that it takes below, or will take, when so many are there now.
    pub fn bytes_below(&self, now: u64, size: u64) -> u64 {
        let counted = if self.counted.is_counted() { size.min(COUNTED_BYTES).next_multiple_of(BLOCK_BYTES) } else { 0 };
        now.max(counted)
    }

    /// Notes that the mount is about to take a name away, and be it the last one.
    pub fn note_removal(&self) {
        self.is_named.store(false, Ordering::SeqCst);
    }

    /// Whether it never had a name, or the mount took the last one away. If others did, it counts
    /// as changed by them.
    pub fn has_no_name(&self) -> bool {
        !self.is_named.load(Ordering::SeqCst) && about(&self.descriptor).is_ok_and(|about| about.stx_nlink == 0)
    }

    /// The descriptor that it is open by.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// When a program changed the contents, if the file below may not know yet.
    pub fn modified(&self) -> Option<Timespec> {
        *self.modified.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes when a program changed the contents.
    pub fn set_modified(&self, at: Option<Timespec>) {
        self.change_modified(|modified| *modified = at);
    }

    /// Changes when a program changed the contents. Nobody else does meanwhile.
    pub fn change_modified<T>(&self, change: impl FnOnce(&mut Option<Timespec>) -> T) -> T {
        change(&mut self.modified.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Changes the room of a range, and the length of the file if asked.
    pub fn fallocate_to(&self, at: u64, len: u64, how: Fallocate, length: FileLength) -> Result<(), Refused> {
        let how = match how {
            Fallocate::Reserve => FallocateFlags::empty(),
            Fallocate::Zero => FallocateFlags::ZERO_RANGE,
            Fallocate::Punch => FallocateFlags::PUNCH_HOLE,
        };
        let length = match length {
            FileLength::Keep => FallocateFlags::KEEP_SIZE,
            FileLength::Extend => FallocateFlags::empty(),
        };
        fallocate(self.for_writing()?, how | length, at, len).map_err(refused)
    }

    /// Gives back what was reserved, and sets the times, of a file that no program has open. One
    /// without a name goes with its last descriptor.
    pub fn settle(&self) -> Result<(), Refused> {
        if about(&self.descriptor).map_err(refused)?.stx_nlink == 0 {
            return Ok(());
        }
        self.trim_room()?;
        self.set_times()
    }

    /// Gives back the room that was reserved behind the end. The time of the last change stays.
    fn trim_room(&self) -> Result<(), Refused> {
        let about = about(&self.descriptor).map_err(refused)?;
        let block = u64::from(about.stx_blksize).max(512);
        if about.stx_blocks * 512 < about.stx_size.next_multiple_of(block) + block {
            return Ok(());
        }
        ftruncate(self.for_writing()?, about.stx_size).map_err(refused)?;
        self.set_modified_below(mtime_of(&about))
    }

    /// Calls `change`, which does below what a program did before. A program that wrote lost the
    /// file its set-user-ID and set-group-ID bits then; those that it has were set later, and stay.
    fn keeping_set_ids(&self, change: impl FnOnce() -> Result<(), Refused>) -> Result<(), Refused> {
        if self.keeps_set_ids {
            return change();
        }
        let mode = || about(&self.descriptor).map(|about| u32::from(about.stx_mode)).map_err(refused);
        let before = mode()?;
        let changed = change();
        if before & SET_IDS != 0 && mode()? != before {
            // A group that this process is not in has its bit removed all the same.
            fchmod(&self.descriptor, Mode::from_raw_mode(before & 0o7777)).map_err(refused)?;
        }
        changed
    }

    fn set_modified_below(&self, modified: Timespec) -> Result<(), Refused> {
        let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: omitted, last_modification: modified };
        futimens(&self.descriptor, &times).map_err(refused)
    }
}

impl BackingFile for OpenedFile {
    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        let about = about(&self.descriptor).map_err(refused)?;
        let is_removed = about.stx_nlink == 0 && self.is_named.load(Ordering::SeqCst);
        Ok(BackingStatus { len: about.stx_size, stamp: stamp_of(&about), is_removed })
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        let mut done = 0;
        while done < out.len() {
            match pread(&self.descriptor, &mut out[done..], at + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(refused(errno)),
            }
        }
        Ok(done)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        let descriptor = self.for_writing()?;
        self.keeping_set_ids(|| {
            let mut done = 0;
            while done < data.len() {
                match pwrite(descriptor, &data[done..], at + done as u64) {
                    Ok(0) => return Err(refused(Errno::IO)),
                    Ok(bytes) => done += bytes,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(refused(errno)),
                }
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        let descriptor = self.for_writing()?;
        self.keeping_set_ids(|| ftruncate(descriptor, len).map_err(refused))
    }

    fn fallocate(&self, at: u64, len: u64, how: Fallocate) -> Result<(), Refused> {
        let before = about(&self.descriptor).map_err(refused)?;
        self.keeping_set_ids(|| self.fallocate_to(at, len, how, FileLength::Keep))?;
        if how == Fallocate::Reserve {
            // No byte was changed. One that may not set its times is taken for changed.
            let _ = self.set_modified_below(mtime_of(&before));
        }
        Ok(())
    }

    fn has_plenty_for(&self, end: u64) -> Option<u64> {
        let room = self.room.as_ref().filter(|_| end <= COUNTED_BYTES)?;
        room.count(&self.counted, &self.descriptor).then_some(COUNTED_BYTES)
    }

    fn seek(&self, at: u64, sought: Sought) -> Result<Option<u64>, Refused> {
        let from = match sought {
            Sought::Data => SeekFrom::Data(at),
            Sought::Hole => SeekFrom::Hole(at),
        };
        match seek(&self.descriptor, from) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(refused(errno)),
        }
    }

    fn set_times(&self) -> Result<(), Refused> {
        let Some(modified) = self.modified() else { return Ok(()) };
        let now = about(&self.descriptor).map_err(refused)?.stx_mtime;
        if (now.tv_sec, u64::from(now.tv_nsec)) == (modified.tv_sec, u64::try_from(modified.tv_nsec).unwrap_or(0)) {
            // Setting them again would change the file's mark.
            return Ok(());
        }
        self.set_modified_below(modified)
    }

    fn sync(&self) -> Result<(), Refused> {
        let began = Instant::now();
        fsync(&self.descriptor).map_err(refused)?;
        self.syncs.count(began);
        Ok(())
    }
}

impl Drop for OpenedFile {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.end(&self.counted);
        }
    }
}

fn mtime_of(about: &Statx) -> Timespec {
    Timespec { tv_sec: about.stx_mtime.tv_sec, tv_nsec: about.stx_mtime.tv_nsec.into() }
}

/// A mark that changes with the time of modification and the length, and, for any other change,
/// with the time of that.
fn stamp_of(about: &Statx) -> Stamp {
    let modified = nanoseconds(about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec);
    let changed = nanoseconds(about.stx_ctime.tv_sec, about.stx_ctime.tv_nsec);
    // An odd multiplier keeps lengths apart.
    Stamp::of(modified ^ about.stx_size.wrapping_mul(0x9e37_79b9_7f4a_7c15), changed)
}

/// What the kernel refused, as the cache hears of it.
pub fn refused(errno: Errno) -> Refused {
    Refused { errno: errno.raw_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;
    use rustix::fs::OFlags;
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    fn opened() -> (tempfile::TempDir, OpenedFile) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), b"0123456789").expect("made");
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        let route = Route::Names(vec![b"file"[..].into()]);
        let descriptor = source.open_at(&route, OFlags::RDWR).expect("it is there");
        let file = OpenedFile::new(&source, descriptor).expect("readable");
        (folder, file)
    }

    fn stamp(file: &OpenedFile) -> Stamp {
        file.status().expect("readable").stamp
    }

    #[test]
    fn reads_end_with_the_file_and_writes_and_lengths_reach_it() {
        let (folder, file) = opened();
        let mut out = [0; 8];
        assert_eq!((file.read(6, &mut out), &out[..4]), (Ok(4), &b"6789"[..]));
        file.write(12, b"ab").expect("written");
        file.fallocate(0, 1 << 20, Fallocate::Reserve).expect("there is room");
        assert_eq!(file.status().expect("readable").len, 14);
        file.set_len(3).expect("cut");
        assert_eq!(std::fs::read(folder.path().join("file")).expect("readable"), b"012");
    }

    /// As of a server without the rights of root. Capabilities are a thread's own.
    #[test]
    fn set_ids_that_a_file_got_after_a_write_stay_when_it_is_written_below() {
        let as_user = || {
            let mut sets = capabilities(None).expect("told");
            sets.effective.remove(CapabilitySet::FSETID);
            set_capabilities(None, sets).expect("given up");
            let (_folder, file) = opened();
            fchmod(file.descriptor(), Mode::from_raw_mode(0o6755)).expect("its owner's");
            file.write(3, b"later").expect("written");
            file.set_len(2).expect("cut");
            file.fallocate(0, 8192, Fallocate::Reserve).expect("there is room");
            about(&file.descriptor).expect("readable").stx_mode & 0o7777
        };
        assert_eq!(std::thread::spawn(as_user).join().expect("no panic"), 0o6755);
    }

    #[test]
    fn the_stamp_changes_with_contents_and_length_and_not_with_name_or_mode() {
        let (folder, file) = opened();
        let path = folder.path().join("file");
        file.set_modified(Some(Timespec { tv_sec: 1000, tv_nsec: 5 }));
        file.sync_with_times().expect("synced");
        let before = stamp(&file);
        std::fs::rename(&path, folder.path().join("other")).expect("renamed");
        fchmod(file.descriptor(), Mode::RUSR).expect("changed");
        assert!(stamp(&file).has_contents_of(before));
        std::fs::write(folder.path().join("other"), b"9876543210").expect("written by a stranger");
        assert!(!stamp(&file).has_contents_of(before));
    }

    #[test]
    fn whoever_sets_the_times_back_after_a_change_is_found_out_by_the_stamp() {
        let (folder, file) = opened();
        let path = folder.path().join("file");
        let (before, modified) = (stamp(&file), std::fs::metadata(&path).expect("readable").modified());
        // Times are as coarse as the kernel's tick.
        while stamp(&file) == before {
            std::fs::write(&path, b"9876543210").expect("written by a stranger");
            let written = std::fs::File::options().write(true).open(&path).expect("there");
            written.set_modified(modified.as_ref().copied().expect("a time")).expect("set back");
        }
        assert!(stamp(&file).has_contents_of(before), "by time and length the contents are the same");
    }

    #[test]
    fn a_sync_sets_the_time_at_which_the_program_wrote() {
        let (_folder, file) = opened();
        file.set_modified(Some(Timespec { tv_sec: 77, tv_nsec: 88 }));
        file.write(0, b"late").expect("written");
        file.sync_with_times().expect("synced");
        let about = about(file.descriptor()).expect("readable");
        assert_eq!((about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec), (77, 88));
    }

    #[test]
    fn the_beginning_of_a_file_is_counted_until_the_file_is_closed() {
        let (_folder, mut file) = opened();
        let room = Arc::new(CountedRoom::with_plenty());
        file.room = Some(Arc::clone(&room));
        assert_eq!(file.has_plenty_for(COUNTED_BYTES + 1), None);
        assert_eq!((file.bytes_below(0, 5000), room.files()), (0, 0));
        assert_eq!(file.has_plenty_for(100), Some(COUNTED_BYTES));
        assert_eq!((file.bytes_below(0, 5000), file.bytes_below(0, 1 << 20), room.files()), (8192, COUNTED_BYTES, 1));
        assert_eq!((file.bytes_below(1 << 20, 5000), file.bytes_below(512, 0)), (1 << 20, 512));
        drop(file);
        assert_eq!(room.files(), 0);
    }

    /// What the tests of this crate lie on may be any file system.
    #[test]
    fn a_file_of_sources_own_file_system_has_its_room_and_no_other() {
        let (folder, file) = opened();
        assert!(file.room.is_some());
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        let elsewhere = std::fs::File::open("/proc/self/status").expect("there");
        let elsewhere = OpenedFile::new(&source, elsewhere.into()).expect("readable");
        assert!(elsewhere.room.is_none() && elsewhere.has_plenty_for(1).is_none());
    }

    #[test]
    fn a_refusal_has_the_kernels_number() {
        let (_folder, file) = opened();
        assert_eq!(file.set_len(u64::MAX >> 1).err().map(|refused| refused.errno), Some(27), "EFBIG");
    }
}
