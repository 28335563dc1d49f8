//! Ending a mount: from outside, and at a signal to its supervisor.

use crate::lifecycle::control::status_of;
use crate::lifecycle::failure::ServiceFailure;
use crate::lifecycle::pool_of::pool_of_source;
use crate::lifecycle::served_mount::ServedMount;
use crate::pool::record::MountRecord;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidegate_host::files::mount_table::{self, MountedFileSystem};
use tidegate_host::files::users::{Use, users_of};
use tidegate_host::progress::ProgressMeter;
use tidegate_mount_transport::{KIND, MountError, Unmount, refuse_without_proc, unmount};

/// Between two looks whether the service has ended, or files are in use.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How many looks find files in use before that is told: a program that is just being started has
/// for a moment what the one has open that starts it.
const IN_USE_LOOKS: u32 = 20;

/// Unmounts the mount at `given`, and waits until its service has written everything back.
/// Returns SOURCE.
/// `tell` hears which programs and other mounts of it are waited for, and once a second how much is
/// left and how fast it goes.
pub fn end_mount(given: &Path, when: Unmount, mut tell: impl FnMut(&str)) -> Result<PathBuf, ServiceFailure> {
    refuse_without_proc("unmounting")?;
    let mountpoint = mount_table::resolved(given).or_else(|_| std::path::absolute(given));
    let mountpoint = mountpoint.map_err(ServiceFailure::of_file("find", given))?;
    let (source, number): (PathBuf, _) = match mount_table::at(&mountpoint) {
        Some(MountedFileSystem { kind, source_name, number, .. }) if kind == KIND => (source_name.into(), number),
        _ => return Err(MountError::NotMounted { mountpoint }.into()),
    };
    // Afterwards their files have no path that says so.
    let users = if when == Unmount::Lazily { users_of(&mountpoint, Use::Any) } else { Vec::new() };
    match once_unused(|| unmount(&mountpoint, when)) {
        Err(MountError::Busy { mountpoint }) => {
            let users = users_of(&mountpoint, Use::Any);
            return Err(ServiceFailure::FilesInUse { source_directory: mountpoint, users });
        }
        Err(MountError::NotMounted { mountpoint })
            if mount_table::at(&mountpoint).is_some_and(|at| at.kind == KIND) =>
        {
            return Err(MountError::OfAnotherUser { mountpoint }.into());
        }
        ended => ended?,
    }
    if !users.is_empty() {
        tell(&format!("programs use files of the mount, and are waited for: {}", users.join(", ")));
    }
    let places: Vec<_> = mount_table::places_of(&number).iter().map(|at| at.display().to_string()).collect();
    if !places.is_empty() {
        tell(&format!("it is mounted elsewhere too, and goes on until that is unmounted: {}", places.join(", ")));
    }
    let pool = pool_of_source(&source);
    wait_for(&source, &mut tell)?;
    // A service that has written everything removes its record; one that was killed does not.
    match pool.filter(|pool| !matches!(MountRecord::read(pool), Ok(None))) {
        Some(pool) => Err(ServiceFailure::LeftInPool { pool }),
        None => Ok(source),
    }
}

/// Calls `unmount` until no program uses files of the mount, if that is soon.
fn once_unused(mut unmount: impl FnMut() -> Result<(), MountError>) -> Result<(), MountError> {
    for _ in 1..IN_USE_LOOKS {
        match unmount() {
            Err(MountError::Busy { .. }) => std::thread::sleep(LOOK_EVERY),
            ended => return ended,
        }
    }
    unmount()
}

/// Unmounts at a signal: at once, or, while programs use files of the mount, for programs that come
/// now.
pub(crate) fn end_on_demand(mount: &ServedMount, tell: &dyn Fn(&str)) {
    let mountpoint = &mount.mountpoint;
    if !mount.is_in_place() {
        // It ends already, or is covered: what lies there is not ours to unmount.
        return tell(&format!("{} shows no files of this mount now, and is left as it is", mountpoint.display()));
    }
    let ended = match unmount(mountpoint, Unmount::Now) {
        Err(MountError::Busy { .. }) => {
            let users = users_of(mountpoint, Use::Any).join(", ");
            tell(&format!("programs use files of the mount, and are waited for: {users}"));
            unmount(mountpoint, Unmount::Lazily)
        }
        // It ends already.
        Err(MountError::NotMounted { .. }) => Ok(()),
        ended => ended,
    };
    ended.unwrap_or_else(|error| tell(&error.to_string()));
}

/// Waits until no service has SOURCE.
fn wait_for(source: &Path, tell: &mut dyn FnMut(&str)) -> Result<(), ServiceFailure> {
    let failed = |errno: Errno| ServiceFailure::of_file("wait for", source)(errno.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(source, flags, rustix::fs::Mode::empty()).map_err(failed)?;
    let left = || pool_of_source(source).and_then(|pool| bytes_left(&pool)).unwrap_or(0);
    let mut meter = ProgressMeter::begin(left());
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {}
            ended => return ended.map_err(failed),
        }
        std::thread::sleep(LOOK_EVERY);
        meter.line_if_due(Instant::now(), left).iter().for_each(|line| tell(line));
    }
}

/// Bytes that the files below lack, as the service says, while it still answers.
fn bytes_left(pool: &Path) -> Option<u64> {
    let status = status_of(pool).ok()??;
    Some(status.dirty_bytes + status.out_of_sync_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_in_use_for_a_moment_do_not_keep_a_mount() {
        let busy = || Err(MountError::Busy { mountpoint: "mnt".into() });
        let looks_of = |busy_looks: u32| {
            let mut looks = 0;
            let ended = once_unused(|| {
                looks += 1;
                if looks <= busy_looks { busy() } else { Ok(()) }
            });
            (looks, ended.is_ok())
        };
        assert_eq!((looks_of(0), looks_of(3)), ((1, true), (4, true)));
        assert_eq!(looks_of(u32::MAX), (IN_USE_LOOKS, false));
        let mut looks = 0;
        let refused = once_unused(|| {
            looks += 1;
            Err(MountError::NotMounted { mountpoint: "mnt".into() })
        });
        assert!(refused.is_err() && looks == 1);
    }
}
