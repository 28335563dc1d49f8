//! The folder of a run: its socket and its table, for this user alone.

use crate::failure::Failure;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use tidegate_host::default_paths;
use tidegate_preload_wire as wire;
use uuid::Uuid;

/// How its name begins.
pub(super) const NAME: &str = "tidegate-run-";

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A fresh one, in the user's runtime folder if there is one.
    pub(super) fn make() -> Result<Folder, Failure> {
        // The paths of sockets are short.
        let above = Some(default_paths::passing_folder()).filter(|path| path.as_os_str().len() < 60);
        let above = above.unwrap_or_else(|| "/tmp".into());
        let name = Uuid::new_v4().simple().to_string();
        let folder = above.join(format!("{NAME}{}", &name[..12]));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(Failure::system("making the folder of the run"))?;
        Ok(Folder(folder))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.0.join(wire::SOCKET)
    }

    /// The table.
    pub(super) fn table(&self) -> PathBuf {
        self.0.join(wire::TABLE)
    }

    /// The notes of common files.
    pub(super) fn notes(&self) -> PathBuf {
        self.0.join(wire::NOTES)
    }
}

/// Removes the folder `left` of a supervisor that was killed, if it is one of this user's.
pub(super) fn remove_left(left: &Path) {
    let is_named = left.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(NAME.as_bytes()));
    let user = rustix::process::geteuid().as_raw();
    let is_own = left.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
    if is_named && is_own {
        // What is left of it is in a folder for what is temporary.
        let _ = std::fs::remove_dir_all(left);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is in a folder for what is temporary.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
