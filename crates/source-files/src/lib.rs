//! SOURCE: the directory whose files a mount shows, reached by descriptors alone.
//!
//! A walk begins at SOURCE's own descriptor and follows names, each of which the kernel resolves
//! beneath it and never through a symbolic link. So a walk ends in SOURCE, whatever lies there and
//! is renamed meanwhile.

#![forbid(unsafe_code)]

pub mod acls;
pub mod backing;
mod counted_room;
pub mod mark;
pub mod name_log;
pub mod nameless;
pub mod names;
pub mod recovery;
mod route;
mod sync_times;

pub use route::Route;
pub use sync_times::SyncTimes;

use crate::counted_room::CountedRoom;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx};
use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, capabilities};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_file_cache::FileIdentity;

/// Most bytes of one step of a walk; the kernel takes 4095.
const STEP_BYTES_MAX: usize = 4000;

/// How a walk treats what it meets.
const WALK: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// What is asked of the kernel about a file.
const ASKED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// The device of files on SOURCE's own file system.
pub(crate) const OWN_DEVICE: u64 = 0;

/// A directory whose files are shown.
pub struct SourceDirectory {
    root: OwnedFd,
    device: u64,
    /// The syncs of its files.
    pub syncs: Arc<SyncTimes>,
    /// Whether a write by this process leaves files their set-user-ID and set-group-ID bits.
    keeps_set_ids: bool,
    room: Arc<CountedRoom>,
}

impl SourceDirectory {
    /// The directory at `path`.
    pub fn open(path: &Path) -> Result<SourceDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        SourceDirectory::of(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// The directory that `root` is open for.
    pub fn of(root: OwnedFd) -> Result<SourceDirectory> {
        let device = device_of(&about(&root)?);
        let capabilities = capabilities(None)?.effective;
        let keeps_set_ids = capabilities.contains(CapabilitySet::FSETID);
        let room = Arc::new(CountedRoom::of(device, capabilities.contains(CapabilitySet::SYS_RESOURCE)));
        Ok(SourceDirectory { root, device, syncs: Arc::default(), keeps_set_ids, room })
    }

    /// The directory's own descriptor.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A descriptor (`O_PATH`) of what `route` leads to.
    pub fn locate(&self, route: &Route) -> Result<OwnedFd> {
        match route {
            Route::Kept(kept) => Ok(rustix::io::fcntl_dupfd_cloexec(kept, 0)?),
            Route::Names(names) => self.walk(names, OFlags::PATH),
        }
    }

    /// A descriptor (`O_PATH`) of the directory that `route` leads to.
    pub fn locate_directory(&self, route: &Route) -> Result<OwnedFd> {
        match route {
            Route::Kept(_) => self.locate(route),
            Route::Names(names) => self.walk(names, OFlags::PATH | OFlags::DIRECTORY),
        }
    }

    /// Opens the regular file or directory that `route` leads to.
    pub fn open_at(&self, route: &Route, flags: OFlags) -> Result<OwnedFd> {
        match route {
            Route::Kept(kept) => reopen(kept, flags),
            Route::Names(names) => self.walk(names, flags),
        }
    }

    fn walk(&self, names: &[Box<[u8]>], flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut steps = steps(names).into_iter().peekable();
        let mut at: Option<OwnedFd> = None;
        while let Some(step) = steps.next() {
            let is_last = steps.peek().is_none();
            let flags = if is_last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC };
            let from = at.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            // A symbolic link as the last name is opened as itself, by O_PATH only.
            let may_be_link = is_last && flags.contains(OFlags::PATH) && !flags.contains(OFlags::DIRECTORY);
            at = Some(match may_be_link {
                false => open_step(from, &step, flags, WALK)?,
                true => self.open_itself(from, &step, flags)?,
            });
        }
        match at {
            Some(found) => Ok(found),
            None => openat(&self.root, ".", flags.difference(OFlags::NOFOLLOW), Mode::empty()),
        }
    }

    /// A descriptor (`O_PATH`) of what has this path from SOURCE on; no symbolic link is followed.
    pub fn open_path(&self, path: &Path) -> Result<OwnedFd> {
        let names: Vec<Box<[u8]>> = path.iter().map(|name| name.as_bytes().into()).collect();
        self.walk(&names, OFlags::PATH)
    }

    /// The path from SOURCE on of an open file, by whichever of its names the kernel knows. `None`:
    /// it has none below SOURCE, or there is no `/proc`.
    pub fn path_of(&self, descriptor: impl AsFd) -> Option<PathBuf> {
        let place = |of: &dyn AsFd| std::fs::read_link(by_descriptor(&of.as_fd())).ok();
        let below = place(&descriptor)?.strip_prefix(place(&self.root)?).ok()?.to_owned();
        let named = self.open_path(&below).and_then(about).ok()?;
        // After its removal the kernel shows a file with a remark behind its name.
        (self.identity(&named) == self.identity(&about(descriptor).ok()?)).then_some(below)
    }

    /// Opens what has the last name of `step`, a symbolic link as itself. The way to it has none.
    fn open_itself(&self, from: BorrowedFd<'_>, step: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let Some(slash) = step.iter().rposition(|byte| *byte == b'/') else {
            return openat(from, step, flags, Mode::empty());
        };
        let above = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open_step(from, &step[..slash], above, WALK)?;
        openat(folder, &step[slash + 1..], flags, Mode::empty())
    }

    /// Which file `about` is of. Files on SOURCE's own file system are on device 0, as the number
    /// of a device may change when the machine starts again.
    pub fn identity(&self, about: &Statx) -> FileIdentity {
        let device = device_of(about);
        FileIdentity {
            device: if device == self.device { OWN_DEVICE } else { device },
            inode: about.stx_ino,
            generation: generation_of(about),
        }
    }
}

fn open_step(from: BorrowedFd<'_>, step: &[u8], flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd> {
    loop {
        match openat2(from, step, flags, Mode::empty(), resolve) {
            // A rename elsewhere came in between: the kernel asks to try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

/// The names as relative paths, each short enough for one system call.
fn steps(names: &[Box<[u8]>]) -> Vec<Vec<u8>> {
    let mut steps: Vec<Vec<u8>> = Vec::new();
    for name in names {
        match steps.last_mut().filter(|step| step.len() + 1 + name.len() <= STEP_BYTES_MAX) {
            Some(step) => {
                step.push(b'/');
                step.extend_from_slice(name);
            }
            None => steps.push(name.to_vec()),
        }
    }
    steps
}

/// Opens anew, with other flags, the file that `descriptor` is open for.
pub fn reopen(descriptor: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    // The link leads to the file itself, whatever its name is by now.
    let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
    rustix::fs::open(by_descriptor(&descriptor), flags, Mode::empty())
}

/// Opens a file by `open` for reading and writing, or for reading alone if that is all that is
/// allowed. Says whether it can be written.
pub fn open_as_allowed<T>(open: impl Fn(OFlags) -> Result<T>) -> Result<(T, bool)> {
    match open(OFlags::RDWR) {
        Ok(opened) => Ok((opened, true)),
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => Ok((open(OFlags::RDONLY)?, false)),
        Err(errno) => Err(errno),
    }
}

/// The path by which system calls without a form for descriptors reach a file, as long as its
/// descriptor is open.
pub fn by_descriptor(descriptor: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

/// What the kernel says of an open file, also one opened by `O_PATH`.
pub fn about(descriptor: impl AsFd) -> Result<Statx> {
    statx(descriptor, "", AtFlags::EMPTY_PATH, ASKED)
}

/// What the kernel says of what has `name` in the directory `folder`, a symbolic link itself.
pub fn about_at(folder: impl AsFd, name: &[u8]) -> Result<Statx> {
    statx(folder, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, ASKED)
}

fn device_of(about: &Statx) -> u64 {
    rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor)
}

/// The time of birth in nanoseconds: it tells files apart that had one inode after the other. 0 on
/// file systems that keep none.
fn generation_of(about: &Statx) -> u64 {
    if about.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    nanoseconds(about.stx_btime.tv_sec, about.stx_btime.tv_nsec)
}

/// A time as one number; times too far away share theirs.
pub fn nanoseconds(seconds: i64, nanoseconds: u32) -> u64 {
    seconds.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(nanoseconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn route(path: &str) -> Route {
        Route::Names(path.split('/').filter(|name| !name.is_empty()).map(|name| name.as_bytes().into()).collect())
    }

    fn source() -> (tempfile::TempDir, SourceDirectory) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("a/b")).expect("made");
        std::fs::write(folder.path().join("a/b/file"), b"x").expect("made");
        symlink("/etc", folder.path().join("a/out")).expect("made");
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        (folder, source)
    }

    #[test]
    fn a_walk_ends_beneath_the_root_and_follows_no_link() {
        let (_folder, source) = source();
        let open = |path: &str| source.open_at(&route(path), OFlags::RDONLY).map(drop);
        assert_eq!(open("a/b/file"), Ok(()));
        assert_eq!(open("a/out/passwd"), Err(Errno::LOOP));
        assert_eq!(open("a/out"), Err(Errno::LOOP));
        assert_eq!(source.locate(&route("a/out/passwd")).err(), Some(Errno::LOOP));
        assert_eq!(open("../x"), Err(Errno::XDEV));
        assert_eq!(open("a/none"), Err(Errno::NOENT));
    }

    #[test]
    fn a_link_is_located_as_itself_and_the_root_by_no_name() {
        let (folder, source) = source();
        let link = source.locate(&route("a/out")).expect("it is there");
        assert_eq!(rustix::fs::readlinkat(&link, "", Vec::new()).expect("a link").to_bytes(), b"/etc");
        let root = about(source.locate(&route("")).expect("the root")).expect("readable");
        let itself = about(source.root()).expect("readable");
        assert_eq!(source.identity(&root), source.identity(&itself));
        assert_eq!(source.identity(&itself).device, 0);
        drop(folder);
    }

    #[test]
    fn paths_longer_than_the_kernel_takes_are_walked_in_steps() {
        let (_folder, source) = source();
        let name: Box<[u8]> = vec![b'n'; 255].into();
        let mut at = source.locate(&route("")).expect("the root");
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, &*name, Mode::RWXU).expect("made");
            at = openat(&at, &*name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("it is there");
        }
        let found = source.open_at(&Route::Names(vec![name; 20]), OFlags::RDONLY | OFlags::DIRECTORY);
        let identity = |descriptor: &OwnedFd| source.identity(&about(descriptor).expect("readable"));
        assert_eq!(identity(&found.expect("it is there")), identity(&at));
    }
}
