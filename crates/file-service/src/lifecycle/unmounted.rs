//! Ending a mount from outside.

use crate::lifecycle::failure::ServiceFailure;
use crate::mount::{KIND, unmount};
use crate::mount_error::{MountError, Unmount};
use crate::mount_table::{self, MountedFileSystem};
use crate::source::users::{Use, users_of};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::path::{Path, PathBuf};

/// Unmounts `mountpoint`, and waits until its service has written everything back. Returns SOURCE.
pub fn end_mount(mountpoint: &Path, when: Unmount) -> Result<PathBuf, ServiceFailure> {
    let mountpoint = std::path::absolute(mountpoint).map_err(ServiceFailure::of_file("find", mountpoint))?;
    let source = match mount_table::at(&mountpoint) {
        Some(MountedFileSystem { kind, source_name }) if kind == KIND => PathBuf::from(source_name),
        _ => return Err(MountError::NotMounted { mountpoint }.into()),
    };
    match unmount(&mountpoint, when) {
        Err(MountError::Busy { mountpoint }) => {
            let users = users_of(&mountpoint, Use::Any);
            return Err(ServiceFailure::FilesInUse { source_directory: mountpoint, users });
        }
        ended => ended?,
    }
    wait_for(&source)?;
    Ok(source)
}

/// Waits until no service has SOURCE.
fn wait_for(source: &Path) -> Result<(), ServiceFailure> {
    let failed = |errno: rustix::io::Errno| ServiceFailure::of_file("wait for", source)(errno.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(source, flags, rustix::fs::Mode::empty()).map_err(failed)?;
    flock(&directory, FlockOperation::LockShared).map_err(failed)
}
