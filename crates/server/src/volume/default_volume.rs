//! The volume that is served when none is named: of 1 GiB, in the user's state folder, created if
//! it is absent.

use crate::failure::{Doing, Failure, VolumeFailure};
use crate::options::CreateOptions;
use crate::volume::create::create;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use tidegate_host::default_paths;

/// Bytes of the default volume's region.
const DEFAULT_REGION_BYTES: u64 = 1 << 30;

/// The default volume, and whether it was created just now.
pub fn default_volume() -> Result<(PathBuf, bool), Failure> {
    let path = default_paths::default_volume();
    // What has the name of the unfinished one is written over: another user could have linked it to
    // anything.
    default_paths::make_own_folder_of(&path)?;
    if path.symlink_metadata().is_ok() {
        return Ok((path, false));
    }
    let created = create_whole(&path)?;
    Ok((path, created))
}

/// Makes the default volume under another name first, so that a creation that is killed leaves
/// nothing in its place. False if another server was faster.
fn create_whole(path: &Path) -> Result<bool, Failure> {
    let unfinished = path.with_extension("pmem.unfinished");
    create(&CreateOptions { force: true, ..CreateOptions::new(unfinished.clone(), DEFAULT_REGION_BYTES) })?;
    match renameat_with(CWD, &unfinished, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(errno) => return Err(VolumeFailure::of_io(path, Doing::Create, errno.into()).into()),
    }
    let folder = path.parent().unwrap_or(path);
    let durable = File::open(folder).and_then(|folder| folder.sync_all());
    durable.map_err(|error| VolumeFailure::of_io(folder, Doing::Create, error))?;
    Ok(true)
}
