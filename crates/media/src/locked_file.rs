//! Files that one process has for itself, and waiting for them.

pub(crate) mod lock_holder;
pub(crate) mod map_error;

use crate::kernel::Process;
use crate::locked_file::lock_holder::LockHolder;
use crate::locked_file::map_error::MapError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for a lock that may be given up at any moment. The kernel takes half a second
/// at most to end a killed server's requests to a disk that answers.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Time between two attempts to get a lock.
const LOCK_TRIED_EVERY: Duration = Duration::from_millis(10);

/// An open file with an advisory lock (`flock`) on it, until this is dropped.
///
/// The lock belongs to the open file, not to the descriptor, so closing one descriptor is not
/// enough to end it: a child that another thread has just forked holds a second one until it runs
/// its program. So the lock is given up by name. In such a child this may be dropped too: there
/// only its descriptor is closed, for the lock is its parent's.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    /// Who gives the lock up; None: there is none, or it ends with the open file.
    owner: Option<Process>,
}

impl LockedFile {
    /// Locks `file`, found at `path`, against every other user. Does not wait.
    pub fn exclusive(path: &Path, file: File) -> Result<LockedFile, MapError> {
        LockedFile::lock(path, file, FlockOperation::NonBlockingLockExclusive)
    }

    /// Locks `file`, found at `path`, against whoever wants it for itself. Does not wait.
    pub fn shared(path: &Path, file: File) -> Result<LockedFile, MapError> {
        LockedFile::lock(path, file, FlockOperation::NonBlockingLockShared)
    }

    /// Like [`LockedFile::exclusive`], of a file that other processes have open too, by the same
    /// open file: the lock is theirs as well, and ends with the last descriptor of it.
    pub fn in_common(path: &Path, file: File) -> Result<LockedFile, MapError> {
        LockedFile::exclusive(path, file).map(|mut locked| {
            locked.owner = None;
            locked
        })
    }

    /// Takes `file` without a lock, for readers only.
    pub(crate) fn unlocked(file: File) -> LockedFile {
        LockedFile { file, owner: None }
    }

    fn lock(path: &Path, file: File, operation: FlockOperation) -> Result<LockedFile, MapError> {
        match flock(&file, operation) {
            Ok(()) => Ok(LockedFile { file, owner: Some(Process::current()) }),
            Err(Errno::WOULDBLOCK) => Err(MapError::InUse { path: path.to_owned(), holder: LockHolder::of(&file) }),
            Err(errno) => Err(MapError::io(path, "lock it", errno.into())),
        }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.owner.is_some_and(Process::is_current) {
            // A lock that cannot be given up goes with the last descriptor.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// Runs `open` again and again while it finds a lock that may be given up at any moment, for at
/// most `timeout`. Before it waits, it calls `tell` once with the holder of the lock.
pub fn when_unlocked<T>(
    timeout: Duration,
    tell: impl FnOnce(&Path, &LockHolder),
    mut open: impl FnMut() -> Result<T, MapError>,
) -> Result<T, MapError> {
    let deadline = Instant::now() + timeout;
    let mut tell = Some(tell);
    loop {
        match open() {
            Err(MapError::InUse { path, holder }) if holder.may_let_go() && Instant::now() < deadline => {
                tell.take().into_iter().for_each(|tell| tell(&path, &holder));
                std::thread::sleep(LOCK_TRIED_EVERY);
            }
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::in_a_child;

    #[test]
    fn the_lock_ends_with_its_owner_while_a_duplicate_is_open() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).expect("a file");
        let owner = LockedFile::exclusive(&path, open()).expect("nobody has it");
        let duplicate = owner.try_clone().expect("a second descriptor");
        assert!(matches!(LockedFile::shared(&path, open()), Err(MapError::InUse { .. })));
        drop(owner);
        LockedFile::exclusive(&path, open()).expect("the lock went with its owner");
        drop(duplicate);
    }

    #[test]
    fn a_lock_in_common_ends_with_its_last_descriptor() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).expect("a file");
        let first = LockedFile::exclusive(&path, open()).expect("nobody has it");
        let second = first.try_clone().expect("a second descriptor");
        drop(LockedFile::in_common(&path, second).expect("it is the same open file"));
        assert!(matches!(LockedFile::shared(&path, open()), Err(MapError::InUse { .. })), "the first one has it");
        let alone = LockedFile::in_common(&path, first.try_clone().expect("another descriptor")).expect("the same");
        drop(first);
        drop(alone);
        LockedFile::exclusive(&path, open()).expect("the lock went with its last owner");
    }

    #[test]
    fn a_child_that_drops_it_leaves_the_lock_to_its_parent() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).expect("a file");
        let mut owner = Some(LockedFile::exclusive(&path, open()).expect("nobody has it"));
        assert!(in_a_child(|| {
            drop(owner.take());
            LockedFile::shared(&path, open()).is_err()
        }));
        assert!(matches!(LockedFile::shared(&path, open()), Err(MapError::InUse { .. })));
        drop(owner);
        LockedFile::exclusive(&path, open()).expect("the lock went with its owner");
    }

    #[test]
    fn shared_locks_keep_out_only_those_who_want_it_alone() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).expect("a file");
        let readers = [0; 2].map(|_| LockedFile::shared(&path, open()).expect("a shared lock"));
        assert!(matches!(LockedFile::exclusive(&path, open()), Err(MapError::InUse { .. })));
        drop(readers);
        LockedFile::exclusive(&path, open()).expect("nobody has it any more");
    }
}
