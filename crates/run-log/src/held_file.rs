//! Files of the system as a run has them: held ones, opened for reading and never written, and
//! those that recovery finds and writes.

use super::above;
use super::file_system::FileSystem;
use super::ground::{Attributes, Below, Brought, Found, Ground, Target, Unlike};
use super::held_name;
use super::journal::{self, Kind, Named};
use super::sight::Sight;
use crate::failure::{Failure, RunFailure};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, StatxFlags, Uid};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tidegate_host::Doing;
use tidegate_host::owned::{self, What};
use tidegate_layout::kept::StripAttributes;
use tidegate_preload_wire::FileId;

/// Bytes of the largest file that is held.
pub(super) const FILE_BYTES_MAX: u64 = super::kept::FILE_BLOCKS * super::kept::BLOCK_BYTES;

/// A file, opened anew: locks and the position belong to what the program has open.
pub(super) struct HeldFile {
    file: File,
    sight: Sight,
    /// Why a sync failed: the kernel says so once, and whoever syncs later is to hear of it too.
    failed: Mutex<Option<Errno>>,
    id: FileId,
    path: PathBuf,
    born_ns: i128,
}

impl fmt::Debug for HeldFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldFile").field("id", &self.id).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Which file `stat` describes.
pub(super) fn id_of(stat: &Stat) -> FileId {
    FileId { device: stat.st_dev, inode: stat.st_ino }
}

impl HeldFile {
    /// The file behind a descriptor of a program, if it is a regular one with a name by which it
    /// can be found again.
    pub(super) fn of(descriptor: impl AsFd) -> io::Result<Option<HeldFile>> {
        let link = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
        let path = std::fs::read_link(&link)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOATIME;
        let open = |flags| rustix::fs::open(link.as_str(), flags, Mode::empty());
        let file = File::from(open(flags).or_else(|_| open(flags - OFlags::NOATIME))?);
        let stat = rustix::fs::fstat(&file)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let small = stat.st_size.unsigned_abs() < FILE_BYTES_MAX;
        let Some(born_ns) = born_ns(&file)?.filter(|_| regular && small) else { return Ok(None) };
        let held =
            HeldFile { file, sight: Sight::default(), failed: Mutex::default(), id: id_of(&stat), path, born_ns };
        Ok(held.is_in_place().then_some(held))
    }

    fn is_in_place(&self) -> bool {
        rustix::fs::stat(&self.path).is_ok_and(|found| id_of(&found) == self.id)
    }

    /// Whether the system has hardly any descriptors left for this process: a program that gets
    /// none could not be answered.
    pub(super) fn takes_of_reserve(&self) -> bool {
        is_in_reserve(self.file.as_raw_fd(), getrlimit(Resource::Nofile).current)
    }
}

/// Numbers of descriptors that are kept for programs that have something to ask.
const RESERVE: u64 = 256;

/// Whether `number` is one of the last below `limit`.
pub(super) fn is_in_reserve(number: i32, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| u64::from(number.unsigned_abs()) >= limit.saturating_sub(RESERVE))
}

impl Below for HeldFile {
    fn id(&self) -> FileId {
        self.id
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn named(&self, family: u32) -> Named {
        Named {
            family,
            path: self.path.clone(),
            inode: self.id.inode,
            born_ns: self.born_ns,
            strip: None,
            kind: Kind::File,
            changed: rustix::fs::fstat(&self.file).ok().map(|stat| stat.st_ctime),
            file_system: FileSystem::of(&self.file).ok().flatten(),
        }
    }

    fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 0)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn attributes(&self) -> io::Result<Attributes> {
        let stat = rustix::fs::fstat(&self.file)?;
        let owner = u64::from(stat.st_uid) << 32 | u64::from(stat.st_gid);
        #[allow(clippy::useless_conversion, reason = "the count of names is narrower elsewhere")]
        let names = u64::from(stat.st_nlink);
        Ok([stat.st_mode.into(), owner, names])
    }

    fn read(&self, at: u64, block: &mut [u8]) -> io::Result<()> {
        if self.sight.read(&self.file, at, block) {
            return Ok(());
        }
        let mut filled = 0;
        while filled < block.len() {
            match self.file.read_at(&mut block[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        block[filled..].fill(0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(errno) = *failed {
            return Err(errno.into());
        }
        let synced = rustix::io::retry_on_intr(|| rustix::fs::fsync(&self.file));
        *failed = synced.err();
        Ok(synced?)
    }

    fn sync_in_place(&self) -> io::Result<bool> {
        self.sync()?;
        above::sync_above(&self.path, &self.file)?;
        Ok(self.is_in_place())
    }
}

/// The file system after a power cut.
pub(super) struct System {
    /// Where what cannot go to its file goes.
    pub(super) salvage: PathBuf,
    /// The run that is recovered: families have the same numbers in each.
    pub(super) session: String,
    /// When the system came up, in seconds since 1970.
    pub(super) booted: i64,
    /// What becomes of what was kept of files whose file system is not mounted.
    pub(super) if_unmounted: IfUnmounted,
}

/// What becomes of what was kept of files whose file system is not mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfUnmounted {
    /// It stays in the pool.
    Keep,
    /// It goes aside.
    PutAside,
}

impl Ground for System {
    fn missing(&self, named: &Named) -> io::Result<Option<FileSystem>> {
        let Some(held) = named.file_system.as_ref().filter(|_| self.if_unmounted == IfUnmounted::Keep) else {
            return Ok(None);
        };
        let is_there = FileSystem::at(&named.path)?.is_none_or(|found| held.is(&found));
        Ok((!is_there).then(|| held.clone()))
    }

    fn find(&self, named: &Named, resumed: bool) -> io::Result<Found> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = match rustix::fs::open(&named.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Found::Unlike(Unlike::Missing)),
            Err(Errno::ISDIR | Errno::LOOP | Errno::NXIO) => return Ok(Found::Unlike(Unlike::Replaced)),
            Err(error) => return Err(error.into()),
        };
        let stat = rustix::fs::fstat(&file)?;
        // Whoever sets the time of the last write, as one does that puts back an older copy, does
        // not set the other.
        if !resumed && stat.st_mtime.max(stat.st_ctime) > self.booted {
            return Ok(Found::Unlike(Unlike::Changed));
        }
        if stat.st_ino != named.inode || born_ns(&file)? != Some(named.born_ns) {
            return Ok(Found::Unlike(Unlike::Replaced));
        }
        if !resumed && named.changed.is_some_and(|changed| stat.st_ctime < changed) {
            return Ok(Found::Unlike(Unlike::ClockBehind));
        }
        Ok(Found::Same(Box::new(Written::new(file, None))))
    }

    fn find_name(&self, named: &Named, resumed: bool, born_ns: u64) -> io::Result<Found> {
        held_name::find(named, self.booted, resumed, born_ns)
    }

    fn has_name(&self, named: &Named) -> bool {
        held_name::is_there(named)
    }

    fn remove_name(&self, named: &Named, born_ns: u64) -> io::Result<Brought> {
        held_name::remove(named, self.booted, born_ns, || self.salvage(named))
    }

    fn sync(&self, named: &Named) -> io::Result<()> {
        if named.kind == Kind::Name {
            return held_name::sync(named);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let Ok(file) = rustix::fs::open(&named.path, flags, Mode::empty()).map(File::from) else { return Ok(()) };
        if rustix::fs::fstat(&file)?.st_ino == named.inode { file.sync_all() } else { Ok(()) }
    }

    fn salvage(&self, named: &Named) -> io::Result<(Box<dyn Target>, PathBuf)> {
        // What was synced is its owner's alone, whatever mode its file had.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.salvage)?;
        let folder = owned::open_folder(&self.salvage)?;
        journal::sync_folder_of(&self.salvage)?;
        let name = named.path.file_name().unwrap_or_default().to_string_lossy();
        let run = self.session.get(..8).unwrap_or(&self.session);
        let name = format!("{run}-{}-{name}", named.family);
        // A recovery that was cut may have made it.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, &*name, flags, Mode::RUSR | Mode::WUSR)?;
        owned::accept(&file, What::File)?;
        Ok((Box::new(Written::new(file.into(), Some(&self.salvage))), self.salvage.join(name)))
    }
}

/// Where the folder `salvage` lies, which is this user's if it is there.
pub(super) fn own_salvage(salvage: &Path) -> Result<PathBuf, Failure> {
    let refused = |error| RunFailure::of_file(salvage, Doing::Write, error);
    let salvage = owned::resolved(salvage).map_err(refused)?;
    match owned::open_folder(&salvage) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(error)),
        _ => Ok(salvage),
    }
}

/// A file that recovery writes.
pub(super) struct Written {
    file: File,
    /// The folder that it is new in.
    folder: Option<PathBuf>,
}

impl Written {
    /// New in `folder`, if that is named.
    pub(super) fn new(file: File, folder: Option<&Path>) -> Written {
        Written { file, folder: folder.map(Path::to_owned) }
    }
}

impl Target for Written {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
    }

    fn set_attributes(&self, attributes: StripAttributes) -> io::Result<()> {
        let StripAttributes { mode, user, group, .. } = attributes;
        let owner = (Uid::from_raw(user.get()), Gid::from_raw(group.get()));
        // Whoever may not give files away keeps them.
        let mode = match rustix::fs::fchown(&self.file, Some(owner.0), Some(owner.1)) {
            Ok(()) => mode.get() & 0o7777,
            // It runs as nobody but the one who owns it.
            Err(Errno::PERM) => mode.get() & 0o777,
            Err(error) => return Err(error.into()),
        };
        Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        self.folder.iter().try_for_each(|folder| File::open(folder)?.sync_all())
    }
}

/// When the system came up, in seconds since 1970.
pub(super) fn booted_seconds() -> io::Result<i64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    seconds.ok_or_else(|| io::Error::other("/proc/stat does not say when the system came up"))
}

/// When the file's inode was made, where the file system knows.
pub(super) fn born_ns(file: &File) -> io::Result<Option<i128>> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
    let known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(known.then(|| i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_last_numbers_are_kept_for_programs() {
        assert!(is_in_reserve(768, Some(1024)) && is_in_reserve(3, Some(100)));
        assert!(!is_in_reserve(767, Some(1024)) && !is_in_reserve(i32::MAX, None));
    }

    #[test]
    fn what_is_put_aside_is_its_users_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let salvage = folder.path().join("below").join("aside");
        let system = System {
            salvage: salvage.clone(),
            session: "session".to_owned(),
            booted: 0,
            if_unmounted: IfUnmounted::Keep,
        };
        let named = Named {
            family: 1,
            path: "/file".into(),
            inode: 1,
            born_ns: 1,
            strip: None,
            kind: Kind::File,
            changed: None,
            file_system: None,
        };
        let (_, to) = system.salvage(&named).expect("it can be made");
        let mode = |path: &Path| path.metadata().expect("it is there").mode() & 0o777;
        assert_eq!((mode(&salvage), mode(&to)), (0o700, 0o600));
    }

    #[test]
    fn a_file_is_as_it_was_held_unless_anything_of_it_is_newer_than_the_boot() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("it is there").join("file");
        let file = File::create(&path).expect("a file");
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(long_ago).expect("times can be set");
        let named = HeldFile::of(&file).expect("it can be held").expect("its birth is known").named(1);
        let now = i64::try_from(SystemTime::now().duration_since(long_ago).expect("later").as_secs()).expect("seconds");
        let system = |booted| {
            let (session, if_unmounted) = ("run".to_owned(), IfUnmounted::Keep);
            System { salvage: folder.path().join("aside"), session, booted, if_unmounted }
        };
        let unlike =
            |booted, named: &Named, resumed| match system(booted).find(named, resumed).expect("it can be looked at") {
                Found::Same(_) => None,
                Found::Unlike(unlike) => Some(unlike),
            };
        let found = |booted, resumed| unlike(booted, &named, resumed);
        assert_eq!(found(now + 1000, false), None);
        assert_eq!(found(now - 1000, false), Some(Unlike::Changed), "its time of writing was set back since the boot");
        assert_eq!(found(now - 1000, true), None, "the recovery itself wrote it");
        let changed = named.changed.map(|changed| changed + 1);
        assert!(
            changed.is_some_and(|changed| changed > now),
            "the hold tells of the last change, not of the last write"
        );
        let later = Named { changed, ..named.clone() };
        assert_eq!(unlike(now + 1000, &later, false), Some(Unlike::ClockBehind), "it was older when it was held");
        assert_eq!(unlike(now + 1000, &later, true), None, "the recovery itself changed it");
    }
}
