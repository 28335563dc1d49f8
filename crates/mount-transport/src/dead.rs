//! Mounts of ours whose service died: they answer errors only, and cover what lies below them.
//!
//! A dead mount keeps programs from the directory below, which may lack what the pool has. So it
//! stays until the next mount takes its place, and what has to be known of the directory is found
//! out below it.

use crate::mount_error::{KIND, MountError, Unmount};
use crate::{fusermount, utab};
use nix::sched::{CloneFlags, unshare};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, OpenTreeFlags, UnmountFlags, mount_change, open_tree};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use tidegate_host::files::mount_table;

/// Most looks at a mount whose service is about to be gone: each waits until the kernel answers.
const LOOKS_MAX: usize = 100;

/// The path of the mount of ours at a directory, without links, if its service died.
pub fn dead_at(mountpoint: &Path) -> Option<PathBuf> {
    let mountpoint = mount_table::resolved(mountpoint).ok()?;
    let is_ours = mount_table::at(&mountpoint).is_some_and(|mounted| mounted.kind == KIND);
    (is_ours && is_dead(&mountpoint)).then_some(mountpoint)
}

/// Whether what is mounted there has lost its service. A killed one may not be gone yet: then this
/// waits until it is. The kernel remembers attributes, but no answer to `statfs`.
fn is_dead(mountpoint: &Path) -> bool {
    let looks = (0..LOOKS_MAX).map(|_| rustix::fs::statfs(mountpoint).err());
    let mut answers = looks.skip_while(|failed| matches!(failed, Some(Errno::CONNABORTED | Errno::INTR)));
    answers.next().flatten() == Some(Errno::NOTCONN)
}

/// Takes away the dead mounts of ours at a directory.
pub fn remove_dead(mountpoint: &Path) -> Result<(), MountError> {
    let Some(mountpoint) = dead_at(mountpoint) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() {
        while dead_at(&mountpoint).is_some() {
            fusermount::unmount(&mountpoint, Unmount::Lazily)?;
        }
        return Ok(());
    }
    // First: whatever follows is to follow at once.
    utab::forget(&mountpoint);
    take_away(&mountpoint).map_err(|errno| MountError::UnmountRefused { mountpoint, errno })
}

fn take_away(mountpoint: &Path) -> rustix::io::Result<()> {
    while dead_at(mountpoint).is_some() {
        take_topmost_away(mountpoint)?;
    }
    Ok(())
}

/// Takes away the dead mounts at `mountpoint` but for one, which goes on to cover it. Root only.
pub(crate) fn leave_one(mountpoint: &Path) -> rustix::io::Result<()> {
    let count = || mount_table::all_at(mountpoint).iter().filter(|mounted| mounted.kind == KIND).count();
    while count() > 1 && dead_at(mountpoint).is_some() {
        take_topmost_away(mountpoint)?;
    }
    Ok(())
}

/// Takes away what is on top at a mountpoint, without a look at it.
pub(crate) fn take_topmost_away(mountpoint: &Path) -> rustix::io::Result<()> {
    rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
}

/// The directory below the dead mounts at a mountpoint. They stay where they are.
#[derive(Debug)]
pub struct BelowDead {
    /// The directory. What is mounted in it is there too, for as long as this exists.
    pub directory: OwnedFd,
    _tree: OwnedFd,
}

impl BelowDead {
    /// Opens what lies below the dead mounts at `mountpoint`, an absolute path without links. Only
    /// root may, on Linux 5.2 or later.
    pub fn open(mountpoint: &Path) -> io::Result<BelowDead> {
        // A thread of its own gets a table of mounts of its own, which ends with it.
        let opened = thread::scope(|scope| scope.spawn(|| tree_below(mountpoint)).join());
        let tree = opened.map_err(|_| io::Error::other("the thread that looks below a mount ended"))??;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&tree, ".", flags, Mode::empty())?;
        Ok(BelowDead { directory, _tree: tree })
    }
}

/// A copy of the mounts from `mountpoint` on, without the dead ones there.
fn tree_below(mountpoint: &Path) -> io::Result<OwnedFd> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What changes here must not change elsewhere.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    take_away(mountpoint)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, mountpoint, flags)?)
}
