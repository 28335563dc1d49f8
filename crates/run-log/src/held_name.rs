//! Names of the system as a run has them: held ones, whose folders are open and synced, and those
//! that recovery finds.

use super::above;
use super::file_system::FileSystem;
use super::ground::{Below, Brought, Found, Target, Unlike};
use super::held_file::{self, Written, id_of, is_in_reserve};
use super::journal::{Kind, Named};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tidegate_layout::kept::StripAttributes;
use tidegate_preload_wire::FileId;

/// A name in a folder, whichever file has it.
#[derive(Debug)]
pub(super) struct HeldName {
    folder: File,
    folder_id: FileId,
    born_ns: i128,
    name: OsString,
    path: PathBuf,
}

impl HeldName {
    /// The name of the file behind a descriptor of a program, if it is a regular one with a name by
    /// which it can be found again.
    pub(super) fn of(descriptor: impl AsFd) -> io::Result<Option<HeldName>> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd()))?;
        let stat = rustix::fs::fstat(descriptor.as_fd())?;
        let Some((above, name)) = path.parent().zip(path.file_name()) else { return Ok(None) };
        let folder = File::from(open_folder(above)?);
        let same = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| id_of(&found) == id_of(&stat) && is_regular(&found));
        let Some(born_ns) = held_file::born_ns(&folder)?.filter(|_| same) else { return Ok(None) };
        let folder_id = id_of(&rustix::fs::fstat(&folder)?);
        Ok(Some(HeldName { folder, folder_id, born_ns, name: name.to_owned(), path }))
    }

    fn is_in_place(&self) -> bool {
        let above = self.path.parent();
        above.is_some_and(|above| rustix::fs::stat(above).is_ok_and(|found| id_of(&found) == self.folder_id))
    }

    /// Whether the system has hardly any descriptors left for this process.
    pub(super) fn takes_of_reserve(&self) -> bool {
        is_in_reserve(self.folder.as_raw_fd(), getrlimit(Resource::Nofile).current)
    }
}

fn open_folder(path: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Brings the file with `name` to its disk if there is a regular one, and then the folder.
fn sync_in(folder: &File, name: impl rustix::path::Arg) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    match rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from) {
        Ok(file) if is_regular(&rustix::fs::fstat(&file)?) => file.sync_all()?,
        Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => {}
        // It may not be read, or not now: everything on its file system is brought there.
        Err(_) => rustix::fs::syncfs(folder)?,
    }
    folder.sync_all()
}

impl Below for HeldName {
    fn id(&self) -> FileId {
        self.folder_id.name(self.name.as_bytes())
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn named(&self, family: u32) -> Named {
        let (path, inode) = (self.path.clone(), self.folder_id.inode);
        let file = rustix::fs::statat(&self.folder, self.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW);
        // Whatever lies there later is younger than this, and so is the folder.
        let changed = rustix::fs::fstat(&self.folder).ok().zip(file.ok());
        let changed = changed.map(|(folder, file)| folder.st_ctime.min(file.st_ctime));
        let file_system = FileSystem::of(&self.folder).ok().flatten();
        Named { family, path, inode, born_ns: self.born_ns, strip: None, kind: Kind::Name, changed, file_system }
    }

    fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.folder).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Nothing of it is kept in blocks.
    fn size(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        sync_in(&self.folder, self.name.as_os_str())
    }

    fn sync_in_place(&self) -> io::Result<bool> {
        self.sync()?;
        above::sync_above(&self.path, &self.folder)?;
        Ok(self.is_in_place())
    }
}

/// Brings what lies where `named` was held to its disk, as far as its folder can be opened.
pub(super) fn sync(named: &Named) -> io::Result<()> {
    let Some((above, name)) = named.path.parent().zip(named.path.file_name()) else { return Ok(()) };
    let Ok(folder) = open_folder(above).map(File::from) else { return Ok(()) };
    if rustix::fs::fstat(&folder)?.st_ino == named.inode { sync_in(&folder, name) } else { Ok(()) }
}

/// What recovery finds where a name was held.
enum Place {
    /// The folder; nothing has been done to the name since the system came up.
    Folder(File),
    /// It is not as it was.
    Unlike(Unlike),
}

/// Where `named` was held, in a system that came up at second `booted`, if no file has the name
/// that was born after `born_ns`. `resumed`: a recovery of this boot has begun to write there
/// already.
fn place(named: &Named, booted: i64, resumed: bool, born_ns: u64) -> io::Result<Place> {
    let Some((above, name)) = named.path.parent().zip(named.path.file_name()) else {
        return Ok(Place::Unlike(Unlike::Missing));
    };
    let folder = match open_folder(above) {
        Ok(folder) => File::from(folder),
        Err(Errno::NOENT) => return Ok(Place::Unlike(Unlike::Missing)),
        Err(Errno::NOTDIR) => return Ok(Place::Unlike(Unlike::Replaced)),
        Err(error) => return Err(error.into()),
    };
    let above = rustix::fs::fstat(&folder)?;
    if above.st_ino != named.inode || held_file::born_ns(&folder)? != Some(named.born_ns) {
        return Ok(Place::Unlike(Unlike::Replaced));
    }
    let is_older = |stat: &Stat| !resumed && named.changed.is_some_and(|changed| stat.st_ctime < changed);
    Ok(match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if !is_regular(&stat) => Place::Unlike(Unlike::Replaced),
        Ok(stat) if !resumed && stat.st_mtime.max(stat.st_ctime) > booted => Place::Unlike(Unlike::Changed),
        Ok(_) if !resumed && birth(&folder, name)? > i128::from(born_ns) => Place::Unlike(Unlike::Replaced),
        Ok(stat) if is_older(&stat) => Place::Unlike(Unlike::ClockBehind),
        Ok(_) | Err(Errno::NOENT) if is_older(&above) => Place::Unlike(Unlike::ClockBehind),
        Ok(_) | Err(Errno::NOENT) => Place::Folder(folder),
        Err(error) => return Err(error.into()),
    })
}

/// When the file with `name` was born, in nanoseconds since 1970.
fn birth(folder: &File, name: impl rustix::path::Arg) -> io::Result<i128> {
    let file = rustix::fs::openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    // Where births are not known, names are not held.
    Ok(held_file::born_ns(&file.into())?.unwrap_or(i128::MAX))
}

/// The name, for a new file in the place of what the power cut left there.
pub(super) fn find(named: &Named, booted: i64, resumed: bool, born_ns: u64) -> io::Result<Found> {
    Ok(match place(named, booted, resumed, born_ns)? {
        Place::Unlike(unlike) => Found::Unlike(unlike),
        Place::Folder(folder) => Found::Same(Box::new(New { folder, path: named.path.clone(), file: OnceCell::new() })),
    })
}

/// A file that is made with its first length.
struct New {
    folder: File,
    path: PathBuf,
    file: OnceCell<Written>,
}

impl New {
    fn make(&self) -> io::Result<Written> {
        let name = self.path.file_name().unwrap_or_default();
        match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Written::new(file.into(), self.path.parent()))
    }

    fn made(&self) -> io::Result<&Written> {
        self.file.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Target for New {
    fn len(&self) -> io::Result<u64> {
        self.made()?.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.file.get().is_none() {
            let _ = self.file.set(self.make()?);
        }
        self.made()?.set_len(len)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.made()?.write(at, data)
    }

    fn set_attributes(&self, attributes: StripAttributes) -> io::Result<()> {
        self.made()?.set_attributes(attributes)
    }

    fn sync(&self) -> io::Result<()> {
        self.made()?.sync()
    }
}

/// Whether anything lies where `named` was held, or may: nobody can look.
pub(super) fn is_there(named: &Named) -> bool {
    let absent = |error: io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    !named.path.symlink_metadata().is_err_and(absent)
}

/// Removes what the power cut left where `named` was held: nothing has the name. Its bytes go to
/// `aside` before, unless it is what another one made.
pub(super) fn remove(
    named: &Named,
    booted: i64,
    born_ns: u64,
    aside: impl FnOnce() -> io::Result<(Box<dyn Target>, PathBuf)>,
) -> io::Result<Brought> {
    let folder = match place(named, booted, false, born_ns)? {
        Place::Folder(folder) => folder,
        Place::Unlike(unlike) => return Ok(if is_there(named) { Brought::Left(unlike) } else { Brought::Gone }),
    };
    let name = named.path.file_name().unwrap_or_default();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let left = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            // A recovery that was cut may have removed it, or anybody.
            folder.sync_all()?;
            return Ok(Brought::Gone);
        }
        left => File::from(left?),
    };
    let (target, to) = aside()?;
    copy(&left, &*target)?;
    rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
    folder.sync_all()?;
    Ok(Brought::Removed(to))
}

fn copy(left: &File, to: &dyn Target) -> io::Result<()> {
    to.set_len(0)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let count = left.read_at(&mut buffer, at)?;
        if count == 0 {
            return to.sync();
        }
        to.write(at, &buffer[..count])?;
        at += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_name_stands_for_whichever_file_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("it is there").join("name");
        let file = File::create(&path).expect("a file");
        let name = HeldName::of(&file).expect("it can be looked at").expect("it has a name");
        assert!(name.is_in_place() && !name.is_removed() && name.id().is_name());
        name.sync().expect("it can be synced");
        std::fs::remove_file(&path).expect("removed");
        name.sync().expect("its folder can be synced");
        assert!(HeldName::of(&file).expect("it can be looked at").is_none(), "it has no name any more");
        let named = name.named(1);
        assert_eq!((named.kind, named.path), (Kind::Name, path));
    }

    #[test]
    fn what_is_newer_than_the_boot_stays_and_what_is_older_goes_aside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("it is there").join("name");
        let aside = folder.path().join("aside");
        std::fs::write(&path, b"left by the cut").expect("written");
        let name = HeldName::of(File::open(&path).expect("open")).expect("looked at").expect("it has a name");
        let named = name.named(1);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later");
        let seconds = |after: i64| i64::try_from(now.as_secs()).expect("seconds") + after;
        let put = || -> io::Result<(Box<dyn Target>, PathBuf)> {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&aside)?;
            Ok((Box::new(Written::new(file, None)), aside.clone()))
        };
        let removed = |after, born_ns| remove(&named, seconds(after), born_ns, put).expect("it can be looked at");
        assert_eq!(removed(-1000, u64::MAX), Brought::Left(Unlike::Changed), "it was written since the boot");
        assert!(path.exists() && !aside.exists());
        assert_eq!(
            removed(1000, 1),
            Brought::Left(Unlike::Replaced),
            "it was born later than any file that is known of"
        );
        assert!(path.exists() && !aside.exists());
        let doubtful = Named { changed: named.changed.map(|changed| changed + 1), ..named.clone() };
        assert!(doubtful.changed.is_some());
        let left = remove(&doubtful, seconds(1000), u64::MAX, put).expect("it can be looked at");
        assert_eq!(
            left,
            Brought::Left(Unlike::ClockBehind),
            "file and folder are older than they were when it was held"
        );
        assert!(path.exists() && !aside.exists());
        let found = find(&doubtful, seconds(1000), false, u64::MAX).expect("it can be looked at");
        assert!(matches!(found, Found::Unlike(Unlike::ClockBehind)), "nothing takes its place");
        assert_eq!(removed(1000, u64::MAX), Brought::Removed(aside.clone()));
        assert_eq!(std::fs::read(&aside).expect("put aside"), b"left by the cut");
        assert!(!path.exists() && !is_there(&named));
        assert_eq!(removed(1000, u64::MAX), Brought::Gone, "nothing is there");
        std::fs::create_dir(&path).expect("a folder");
        assert_eq!(removed(1000, u64::MAX), Brought::Left(Unlike::Replaced), "that is no file");
        std::fs::remove_dir(&path).expect("removed");
        let Found::Same(target) = find(&named, seconds(-1000), false, u64::MAX).expect("it can be made") else {
            panic!("nothing was in the way");
        };
        assert!(!path.exists(), "it is not made before it is written");
        target.set_len(0).and_then(|()| target.write(0, b"synced")).and_then(|()| target.sync()).expect("written");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"synced");
        let again = find(&named, seconds(-1000), false, u64::MAX).expect("it can be looked at");
        assert!(matches!(again, Found::Unlike(Unlike::Changed)), "it is newer than the boot");
        assert!(matches!(find(&named, seconds(-1000), true, u64::MAX).expect("it can be made"), Found::Same(_)));
        std::fs::remove_dir_all(folder.path()).expect("removed");
        assert!(matches!(find(&named, 0, false, u64::MAX).expect("looked at"), Found::Unlike(Unlike::Missing)));
    }
}
